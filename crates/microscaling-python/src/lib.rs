//! The native half of the Python module `microscaling`. The Python half, in `python/microscaling`, converts the callers' arguments
//! to contiguous arrays. The native half quantizes, packs, multiplies and measures these arrays, without the interpreter's lock.

mod arguments;
mod format;
mod p3109;
mod packed;
mod pool;
mod product;
mod statistics;
mod tensor;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        format::Format,
        packed::{Packed, load, pack},
        product::dot,
        statistics::{Statistics, statistics, statistics_of},
        tensor::{hadamard_, quantize, quantize_, round_},
    };

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The set of `microscaling vectors` with these arguments, as the bytes of a `.npy` file.
    #[pyfunction]
    fn vectors(py: Python<'_>, args: Vec<String>) -> PyResult<Vec<u8>> {
        py.detach(|| crate::pool::run(|| microscaling_cli::vectors(&args)))
            .map_err(crate::arguments::value_error)
    }

    /// The report of `microscaling check` with these arguments on the bytes of a `.npy` file, as JSON.
    #[pyfunction]
    fn check(py: Python<'_>, args: Vec<String>, dump: Vec<u8>) -> PyResult<String> {
        py.detach(|| crate::pool::run(|| microscaling_cli::check(&args, dump)))
            .map_err(crate::arguments::value_error)
    }

    /// Runs the command line. `args` begin with the program's name; the result is the process's exit status.
    #[pyfunction]
    fn main(py: Python<'_>, args: Vec<std::ffi::OsString>) -> u8 {
        py.detach(|| crate::pool::run(|| microscaling_cli::run(args)))
    }
}
