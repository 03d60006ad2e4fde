//! Rounded arithmetic, of tensors or of single numbers, so that a recipe is written once for both.

/// 1.4453125 = log2(e) in bfloat16, the factor by which `vec_use_exp2` turns exp into exp2.
pub(crate) const LOG2_E: f32 = 1.4453125;

/// Steps of a recipe: each is computed in `f32` and rounded.
pub(crate) trait Arithmetic {
    type Value: Clone;

    fn add(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value;
    fn mul(&self, lhs: Self::Value, rhs: Self::Value) -> Self::Value;
    fn add_scalar(&self, lhs: Self::Value, rhs: f32) -> Self::Value;
    fn mul_scalar(&self, lhs: Self::Value, rhs: f32) -> Self::Value;
    fn neg(&self, value: Self::Value) -> Self::Value;
    fn recip(&self, value: Self::Value) -> Self::Value;
    fn exp(&self, value: Self::Value) -> Self::Value;

    /// `1 - x`
    #[inline(always)]
    fn one_minus(&self, value: Self::Value) -> Self::Value {
        self.add_scalar(self.neg(value), 1.0)
    }
}

/// Arithmetic of single numbers, rounded by `R`.
#[derive(Clone, Copy)]
pub(crate) struct ScalarSteps<R> {
    round: R,
    exp2: bool,
}

impl<R: Fn(f32) -> f32> ScalarSteps<R> {
    pub(crate) fn new(round: R, exp2: bool) -> Self {
        Self { round, exp2 }
    }

    #[inline(always)]
    pub(crate) fn round(&self, value: f32) -> f32 {
        (self.round)(value)
    }
}

impl<R: Fn(f32) -> f32> Arithmetic for ScalarSteps<R> {
    type Value = f32;

    #[inline(always)]
    fn add(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs + rhs)
    }

    #[inline(always)]
    fn mul(&self, lhs: f32, rhs: f32) -> f32 {
        self.round(lhs * rhs)
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
    fn neg(&self, value: f32) -> f32 {
        -value
    }

    #[inline(always)]
    fn recip(&self, value: f32) -> f32 {
        self.round(1.0 / value)
    }

    #[inline(always)]
    fn exp(&self, value: f32) -> f32 {
        if self.exp2 {
            return self.round(self.mul_scalar(value, LOG2_E).exp2());
        }
        self.round(value.exp())
    }
}
