//! Arithmetic of single numbers.

use super::{Arithmetic, LOG2_E};

/// Arithmetic of single numbers, rounded by `R`; exponentials are powers of 2 with `EXP2`, a constant, since a
/// vectorized loop would compute both.
#[derive(Clone, Copy)]
pub(crate) struct ScalarArithmetic<R, const EXP2: bool> {
    round: R,
    reciprocal: bool,
}

impl<R: Fn(f32) -> f32, const EXP2: bool> ScalarArithmetic<R, EXP2> {
    /// `reciprocal` is what [`Arithmetic::divides_by_reciprocal`] returns.
    pub(crate) fn new(round: R, reciprocal: bool) -> Self {
        Self { round, reciprocal }
    }
}

impl<R: Fn(f32) -> f32, const EXP2: bool> Arithmetic for ScalarArithmetic<R, EXP2> {
    type Value = f32;

    #[inline(always)]
    fn round(&self, value: f32) -> f32 {
        (self.round)(value)
    }

    #[inline(always)]
    fn add(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs + rhs)
    }

    #[inline(always)]
    fn sub(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs - rhs)
    }

    #[inline(always)]
    fn sub_unrounded(&self, lhs: f32, rhs: f32) -> f32 {
        lhs - rhs
    }

    #[inline(always)]
    fn mul(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs * rhs)
    }

    #[inline(always)]
    fn quotient(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs / rhs)
    }

    #[inline(always)]
    fn add_scalar(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs + rhs)
    }

    #[inline(always)]
    fn mul_scalar(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs * rhs)
    }

    #[inline(always)]
    fn div_scalar(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs / rhs)
    }

    #[inline(always)]
    fn neg(&self, value: f32) -> f32 {
        -value
    }

    #[inline(always)]
    fn recip(&self, value: f32) -> f32 {
        self.round(1.0 / value)
    }

    #[inline(always)]
    fn sqrt(&self, value: f32) -> f32 {
        self.round(value.sqrt())
    }

    #[inline(always)]
    fn exp(&self, value: f32) -> f32 {
        if EXP2 {
            return self.exp2(self.mul_scalar(value, LOG2_E));
        }
        self.round(super::exp(value))
    }

    #[inline(always)]
    fn exp2(&self, value: f32) -> f32 {
        self.round(super::exp2(value))
    }

    #[inline(always)]
    fn ln(&self, value: f32) -> f32 {
        self.round(value.ln())
    }

    #[inline(always)]
    fn divides_by_reciprocal(&self) -> bool {
        self.reciprocal
    }
}
