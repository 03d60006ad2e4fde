//! Rounded arithmetic, of tensors or of single numbers, and every function's formula, written once over both.
//!
//! A formula takes rounded operands. Kernels run the formulas on rows of memory, semantics run them on whole tensors.

pub mod activation;
mod exp;
mod function;
pub mod norm;
mod rows;
mod scalar;
pub mod softmax;

pub(crate) use exp::{exp, exp2};
pub use function::Function;
pub(crate) use function::with_function;
pub use rows::Rows;
pub(crate) use rows::SliceRows;
#[cfg(feature = "cube")]
pub(crate) use rows::lanes;
pub(crate) use scalar::ScalarArithmetic;

/// 1.4453125 = log2(e) in bfloat16, the factor by which `vec_use_exp2` turns exp into exp2.
pub const LOG2_E: f32 = 1.4453125;

/// Rounded ops: each is computed in `f32` and rounded, unless its documentation differs.
pub trait Arithmetic {
    /// The numbers: single ones, or tensors.
    type Value: Clone;

    /// The number, rounded.
    fn round(&self, value: Self::Value) -> Self::Value;
    /// The sum.
    fn add(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value;
    /// The difference.
    fn sub(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value;
    /// The difference, not rounded.
    fn sub_unrounded(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value;
    /// The product.
    fn mul(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value;
    /// The quotient, independent of [`divides_by_reciprocal`](Self::divides_by_reciprocal).
    fn quotient(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value;
    /// The sum with a number that is not rounded.
    fn add_scalar(&self, lhs: Self::Value, rhs: f32) -> Self::Value;
    /// The product with a number that is not rounded.
    fn mul_scalar(&self, lhs: Self::Value, rhs: f32) -> Self::Value;
    /// The quotient by a number that is not rounded.
    fn div_scalar(&self, lhs: Self::Value, rhs: f32) -> Self::Value;
    /// The negative, which needs no rounding.
    fn neg(&self, value: Self::Value) -> Self::Value;
    /// The reciprocal.
    fn recip(&self, value: Self::Value) -> Self::Value;
    /// The square root.
    fn sqrt(&self, value: Self::Value) -> Self::Value;
    /// e^x, by a power of 2 with `vec_use_exp2`.
    fn exp(&self, value: Self::Value) -> Self::Value;
    /// 2 to the power of x.
    fn exp2(&self, value: Self::Value) -> Self::Value;
    /// The natural logarithm.
    fn ln(&self, value: Self::Value) -> Self::Value;

    /// Whether a division is a multiplication by the reciprocal (`vec_use_recip`).
    fn divides_by_reciprocal(&self) -> bool;

    /// `lhs / rhs`, by the reciprocal where that is asked for.
    #[inline(always)]
    fn div(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value {
        match self.divides_by_reciprocal() {
            true => self.mul(lhs, self.recip(rhs)),
            false => self.quotient(lhs, rhs),
        }
    }

    /// `1 - x`
    #[inline(always)]
    fn one_minus(&self, value: Self::Value) -> Self::Value {
        self.add_scalar(self.neg(value), 1.0)
    }
}
