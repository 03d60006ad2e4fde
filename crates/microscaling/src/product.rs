//! Matrix products of operands that are exact in bfloat16.
//!
//! An operand is quantized straight into [`Panels`], bfloat16 in the order in which the kernels read them, and
//! [`Panels::multiply`] multiplies two of them, with the sums in float32.
//!
//! # The sum
//! The product of two bfloat16 numbers has at most 16 significant bits, so float32 holds it. An element of the result is,
//! for each [`BLOCK`](panels::BLOCK) elements along the summed axis (the last ones are as many as there are), a sum s that
//! starts from 0 and to which the products are added in pairs, of each pair the odd one first: s = fma(a₁, b₁, s), then
//! s = fma(a₀, b₀, s); the blocks' sums are added in order. That is what AVX-512's `vdpbf16ps` computes, so every path
//! gives the same bits. They depend on nothing but the operands' values and the length of the summed axis: not on the
//! processor, the threads, the other lengths or the way in which the operands lay in memory.

mod fill;
mod kernels;
mod matrices;
mod multiply;
mod panels;
mod path;
mod pieces;
mod transpose;

pub use fill::{DenseAxis, OperandQuantization};
pub use matrices::{Axis, Matrices};
pub use panels::{Panels, Side};
pub use path::ProductPath;
pub use pieces::Line;
