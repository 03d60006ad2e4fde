//! The cost of number formats in hardware, by published models: bits in memory and in transfers, gates and energy of
//! multiply-accumulate units, time on a chip.
//!
//! Every figure is a model's. A model leaves things out (wires, registers, the quantizer, the reach of real kernels below peaks), so
//! that ratios of formats say more than values. Each table names its [source](Tables); a program may bring its own tables.
//!
//! ```
//! use burn_mx_cost::{Numbers, Product, Tables};
//! use microscaling::BlockFormat;
//!
//! let tables = Tables::default();
//! let cost = |format: &str| -> Result<_, Box<dyn std::error::Error>> {
//!     let numbers = Numbers::from(format.parse::<BlockFormat>()?);
//!     let product = Product::matmul("head", [1, 64, 8192, 8192], numbers, numbers);
//!     let seconds = tables.chip("b200")?.seconds(&product)?;
//!     Ok((tables.cost(&[product]), seconds))
//! };
//! let (fp8, fp8_seconds) = cost("mxfp8_e4m3")?;
//! let (fp4, fp4_seconds) = cost("mxfp4")?;
//! assert_eq!([fp8.bits, fp4.bits], [8.25, 4.25]);
//! assert_eq!((fp4.area / fp8.area * 100.0).round(), 38.0);
//! assert!(fp4_seconds < 0.55 * fp8_seconds);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accumulator;
mod chip;
mod choice;
mod cost;
mod datasheet;
mod error;
mod gates;
mod numbers;
mod operations;
mod product;
mod tables;

pub use accumulator::{exact_bits, kept_bits};
pub use chip::ChipRates;
pub use choice::{Candidate, Choice, ChoiceError, choose};
pub use cost::Cost;
pub use error::CostError;
pub use gates::Gates;
pub use numbers::{Numbers, Scale};
pub use operations::Operations;
pub use product::{Operand, Product};
pub use tables::Tables;

/// Lines of memory for a tile of elements, as arXiv 2302.08007 counts (section IV, d): lines of 64 bytes, tiles of 256
/// elements. Rounding up punishes scales inside of the tile.
pub fn tile_lines(numbers: Numbers, tile: usize, line_bytes: usize) -> usize {
    (tile as f64 * numbers.bits / (8.0 * line_bytes as f64)).ceil() as usize
}
