//! Matrix products of operands that are exact in bfloat16.
//!
//! An operand is quantized straight into [`Panels`]: bfloat16 numbers in the order in which the kernels read them.
//! [`Panels::multiply`] multiplies two panels. Its documentation has the rule of the sum, which every path keeps to the bit.

pub(super) mod accumulate;
mod epilogue;
mod error;
mod fill;
mod kernels;
mod matrices;
mod multiply;
mod panels;
mod path;
mod pieces;
mod tile_blocks;
mod transpose;

pub use epilogue::Epilogue;
pub use error::PanelsError;
pub use fill::{DenseAxis, OperandQuantization};
pub use matrices::{Axis, Matrices};
pub use panels::{Panels, Side};
pub use path::ProductPath;
pub use pieces::Line;
