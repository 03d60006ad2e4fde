//! The numeric kernels of [burn-mx](https://docs.rs/burn-mx): ops as data, and one set of kernels for each of Burn's backends.
//!
//! Programs depend on `burn-mx`. A backend of your own needs [`MxKernels`], which `burn-mx` exports, too. All hidden items are
//! burn-mx's own, and change without notice.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod arithmetic;
#[cfg(feature = "cube")]
mod cube;
mod dense;
mod float_types;
#[cfg(feature = "fusion")]
mod fusion;
#[cfg(feature = "host")]
mod host;
mod kernel_op;
mod kernel_set;
mod plain;
mod portable;
mod process;
mod product;
mod statistics;

pub use arithmetic::Function;
pub use float_types::{from_f32, to_f32};
pub use plain::ModelOps;
pub use portable::host_round_trips;
pub use process::{keep_compiled_kernels, show_waits};
pub use product::reproducible_products;

/// Items for the other crates of the project.
#[doc(hidden)]
pub mod internal {
    pub use crate::float_types::{read_values, same_type};
    pub use crate::kernel_op::{
        KernelOp,
        adamw::AdamWStep,
        norm::{Norm, Normalization},
        op::{BinaryOp, OpRounding, UnaryOp},
        rounding::FunctionRounding,
        softmax::{LogSoftmax, Softmax},
    };
    pub use crate::kernel_set::{KernelSet, PortableKernels};
    pub use crate::portable::note;
    pub use crate::product::{
        Operand, OperandForm, OperandLayout, accumulated, are_float32,
        convolution::{Convolution, ConvolutionProduct},
        in_float32, in_tensor, quantized,
    };
    pub use crate::statistics::{PendingStatistics, StatisticsWords, TensorStatistics};

    /// The formulas of emulated functions, and the same functions by Burn's ops.
    pub mod formulas {
        pub use crate::arithmetic::{Arithmetic, LOG2_E, Rows, activation, norm, softmax};
        pub use crate::plain::{as_row, plain_function, plain_rms_norm};
    }
}

use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use kernel_op::KernelOp;
use kernel_set::{KernelSet, PortableKernels};
use microscaling::{BlockFormat, FloatFormat, RandomStream, Rounding};

/// A backend that burn-mx's `MxBackend` can wrap. Your own backend needs only `impl MxKernels for MyBackend {}`. Its
/// kernels then go through host memory, with results that are bit-identical to the native kernels'. Another crate's backend needs
/// only burn-mx's `Portable` around it.
pub trait MxKernels: Backend {
    /// The kernels of this backend.
    #[doc(hidden)]
    fn kernels() -> &'static dyn KernelSet<Self> {
        &PortableKernels
    }

    /// The result of an op on N tensors.
    #[doc(hidden)]
    fn kernel<const N: usize>(op: KernelOp, inputs: [FloatTensor<Self>; N]) -> FloatTensor<Self> {
        let mut inputs = inputs.into_iter();
        let first = inputs.next().expect("an op takes a tensor");
        Self::kernels()
            .run(op, first, [inputs.next(), inputs.next()])
            .0
    }

    /// [`KernelOp::Quantize`] in blocks alone.
    #[doc(hidden)]
    fn mx_quantize(
        tensor: FloatTensor<Self>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FloatTensor<Self> {
        Self::kernel(KernelOp::quantize(axis, format, rounding, stream), [tensor])
    }

    /// [`KernelOp::Round`].
    #[doc(hidden)]
    fn float_round_to(
        tensor: FloatTensor<Self>,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FloatTensor<Self> {
        let op = KernelOp::Round {
            format,
            rounding,
            stream,
        };
        Self::kernel(op, [tensor])
    }
}
