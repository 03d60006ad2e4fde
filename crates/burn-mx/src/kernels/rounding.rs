//! How the steps of a recipe round, as constants of the loops that compute them.

use microscaling::{FloatFormat, Rounding};

/// How the steps of a recipe round. Stochastic rounding is not among the modes: its random numbers go by the
/// tensors of a composition.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRounding {
    /// The format of every step.
    pub format: FloatFormat,
    /// How each step is rounded to it.
    pub rounding: Rounding,
    /// Whether a backward pass's own steps are rounded, too, or computed in plain `f32`. FunctionRounding of the forward
    /// pass that it computes again are rounded in any case.
    pub quantize_backward: bool,
    /// Whether the exponential function is computed as a power of 2.
    pub exp2: bool,
}

/// The elementwise format of every preset. As a constant it rounds in a few instructions, all of which vectorize;
/// a format that is looked at in the loop takes several times as many.
pub(super) const BFLOAT16: FloatFormat = match FloatFormat::bfloat(16) {
    Ok(format) => format,
    Err(_) => panic!("bfloat has 10 to 32 bits"),
};

/// Gives a closure, attributes and all, a name.
pub(super) fn closure<F: Fn(f32) -> f32 + Copy + Send + Sync>(round: F) -> F {
    round
}

/// Binds `$round` to the rounding of some [`FunctionRounding`] with the mode, and the usual format, as constants, so that a
/// loop is compiled for each.
macro_rules! with_rounding {
    ($steps:expr, $round:ident => $body:expr) => {{
        use ::microscaling::Rounding;
        use $crate::kernels::rounding::{BFLOAT16, with_rounding};
        let format = $steps.format;
        match (format == BFLOAT16, $steps.rounding) {
            (true, Rounding::Nearest) => with_rounding!(@as BFLOAT16, Nearest, $round => $body),
            (true, Rounding::Even) => with_rounding!(@as BFLOAT16, Even, $round => $body),
            (true, Rounding::Floor) => with_rounding!(@as BFLOAT16, Floor, $round => $body),
            (false, Rounding::Nearest) => with_rounding!(@as format, Nearest, $round => $body),
            (false, Rounding::Even) => with_rounding!(@as format, Even, $round => $body),
            (false, Rounding::Floor) => with_rounding!(@as format, Floor, $round => $body),
            (_, Rounding::Stochastic) => unreachable!("stochastic recipes are composed"),
        }
    }};
    (@as $format:expr, $mode:ident, $round:ident => $body:expr) => {{
        let $round = $crate::kernels::rounding::closure(
            #[inline(always)]
            move |x| $format.round(x, Rounding::$mode, 0),
        );
        $body
    }};
}

/// Binds `$s` to scalar arithmetic that rounds as some [`FunctionRounding`] say; `exp2` where exponentials are computed.
macro_rules! with_arithmetic {
    ($steps:expr, exp2, $s:ident => $body:expr) => {
        $crate::kernels::rounding::with_rounding!($steps, round => match $steps.exp2 {
            false => {
                let $s = $crate::arithmetic::ScalarArithmetic::<_, false>::new(round);
                $body
            }
            true => {
                let $s = $crate::arithmetic::ScalarArithmetic::<_, true>::new(round);
                $body
            }
        })
    };
    ($steps:expr, $s:ident => $body:expr) => {
        $crate::kernels::rounding::with_rounding!($steps, round => {
            let $s = $crate::arithmetic::ScalarArithmetic::<_, false>::new(round);
            $body
        })
    };
}

/// Binds `$f` to the arithmetic of the forward pass and `$b` to that of the backward pass; `exp2` where the
/// forward pass's has exponentials, which the other has not.
macro_rules! with_passes {
    ($steps:expr, exp2, ($f:ident, $b:ident) => $body:expr) => {
        $crate::kernels::rounding::with_rounding!($steps, round => match $steps.exp2 {
            false => $crate::kernels::rounding::with_passes!(@exp2 false, $steps, round, ($f, $b) => $body),
            true => $crate::kernels::rounding::with_passes!(@exp2 true, $steps, round, ($f, $b) => $body),
        })
    };
    ($steps:expr, ($f:ident, $b:ident) => $body:expr) => {
        $crate::kernels::rounding::with_rounding!($steps, round => {
            $crate::kernels::rounding::with_passes!(@exp2 false, $steps, round, ($f, $b) => $body)
        })
    };
    (@exp2 $exp2:literal, $steps:expr, $round:ident, ($f:ident, $b:ident) => $body:expr) => {{
        let $f = $crate::arithmetic::ScalarArithmetic::<_, $exp2>::new($round);
        match $steps.quantize_backward {
            true => {
                let $b = $crate::arithmetic::ScalarArithmetic::<_, false>::new($round);
                $body
            }
            false => {
                let $b = $crate::arithmetic::ScalarArithmetic::<_, false>::new(|x| x);
                $body
            }
        }
    }};
}

pub(super) use {with_arithmetic, with_passes, with_rounding};
