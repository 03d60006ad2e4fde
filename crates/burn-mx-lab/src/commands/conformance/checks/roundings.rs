//! How far roundings can take a result: running error analysis, for every format and rounding mode.
//!
//! Each number stands beside a bound of its error. An op carries the errors of its operands on by their largest possible
//! magnitudes. A rounding adds half a step of the format, or a whole step if the rounding is not to nearest. The step is
//! taken at the largest possible magnitude of the number. So the result bounds the error of any computation by the same
//! ops, not only of these cases.

use burn_mx::ResolvedSpecs;
use microscaling::{FloatFormat, Rounding};

/// A number and how far from it the computed one may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded {
    pub(crate) exact: f64,
    pub(crate) error: f64,
}

impl From<f32> for Bounded {
    /// An exact number.
    fn from(x: f32) -> Self {
        Self {
            exact: f64::from(x),
            error: 0.0,
        }
    }
}

impl Bounded {
    fn largest(self) -> f64 {
        self.exact.abs() + self.error
    }

    fn smallest(self) -> f64 {
        self.exact.abs() - self.error
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            exact: self.exact + other.exact,
            error: self.error + other.error,
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(other.times(-1.0_f32))
    }

    pub(crate) fn times(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        let error = self.largest() * other.error + self.error * other.exact.abs();
        Self {
            exact: self.exact * other.exact,
            error,
        }
    }

    /// Divided by an exact number.
    pub(crate) fn over(self, divisor: f32) -> Self {
        Self {
            exact: self.exact / f64::from(divisor),
            error: self.error / f64::from(divisor).abs(),
        }
    }

    /// A float32 sum in any order.
    pub(crate) fn sum(terms: &[Self]) -> Self {
        let magnitude: f64 = terms.iter().map(|term| term.largest()).sum();
        let error: f64 = terms.iter().map(|term| term.error).sum();
        Self {
            exact: terms.iter().map(|term| term.exact).sum(),
            error: error + terms.len() as f64 * SINGLE * magnitude,
        }
    }

    /// One of two numbers, nobody knows which.
    pub(crate) fn or(self, other: Self) -> Self {
        let of_other = (self.exact - other.exact).abs() + other.error;
        let unknown = self.error.is_nan() || of_other.is_nan();
        Self {
            exact: self.exact,
            error: if unknown {
                f64::INFINITY
            } else {
                self.error.max(of_other)
            },
        }
    }

    /// How far two computed numbers can be apart; infinite where one of them may overflow.
    pub(crate) fn apart(self, other: Self) -> f64 {
        let apart = (self.exact - other.exact).abs() + self.error + other.error;
        if apart.is_nan() { f64::INFINITY } else { apart }
    }
}

/// The error of a float32 op, relative to its result.
const SINGLE: f64 = 1.0 / (1 << 24) as f64;

/// The ops of one pass: in float32, rounded to a format where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ops {
    format: Option<FloatFormat>,
    rounding: Rounding,
    reciprocal: bool,
}

impl Ops {
    pub(crate) fn of_forward(specs: &ResolvedSpecs) -> Self {
        Self {
            format: specs.float_format(),
            rounding: specs.round(),
            reciprocal: specs.specs().vec_use_recip,
        }
    }

    pub(crate) fn of_backward(specs: &ResolvedSpecs) -> Self {
        let forward = Self::of_forward(specs);
        Self {
            format: forward.format.filter(|_| specs.quantize_backprop()),
            ..forward
        }
    }

    /// The same ops, not rounded.
    pub(crate) fn unrounded(self) -> Self {
        Self {
            format: None,
            ..self
        }
    }

    /// The rounding of one number that is known.
    pub(crate) fn value(self, x: f32) -> f32 {
        match self.format {
            Some(format) => format.round(x, self.rounding, 0),
            None => x,
        }
    }

    /// The number after a float32 op and its rounding.
    pub(crate) fn round(self, x: Bounded) -> Bounded {
        let largest = x.largest();
        let mut error = x.error + largest * SINGLE + f64::from(f32::from_bits(1));
        if let Some(format) = self.format {
            error += self.off_by(format, x);
        }
        let max = self.format.map_or(f32::MAX, FloatFormat::max);
        if largest > f64::from(max) {
            error = f64::INFINITY;
        }
        Bounded {
            exact: x.exact,
            error,
        }
    }

    /// The largest error of one rounding to `format`.
    fn off_by(self, format: FloatFormat, x: Bounded) -> f64 {
        let (largest, normal) = (x.largest(), f64::from(format.min_normal()));
        let exponent = largest.max(normal).log2().floor() as i32;
        let step = 2.0_f64.powi(exponent - format.mantissa_bits() as i32);
        let to_nearest = matches!(self.rounding, Rounding::NearestAway | Rounding::NearestEven);
        let step = if to_nearest { step / 2.0 } else { step };
        match x.smallest() < normal && !format.subnormals() {
            // Everything below the least normal number becomes zero.
            true => step.max(largest.min(normal)),
            false => step,
        }
    }

    /// A quotient, or the product with a rounded reciprocal.
    pub(crate) fn div(self, x: Bounded, divisor: f32) -> Bounded {
        match self.reciprocal {
            true => self.round(x.times(self.value(1.0 / divisor))),
            false => self.round(x.over(divisor)),
        }
    }

    /// A float32 sum of rounded terms, rounded.
    pub(crate) fn sum(self, terms: &[Bounded]) -> Bounded {
        self.round(Bounded::sum(terms))
    }
}
