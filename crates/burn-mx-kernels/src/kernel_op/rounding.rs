//! How the rounded ops of a function round, as constants of the loops that compute them.

use microscaling::{FloatFormat, Rounding};

/// How the rounded ops of a function round. Stochastic rounding is not among the modes, because its random numbers
/// follow the tensors of a composition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionRounding {
    /// The format of every result.
    pub format: FloatFormat,
    /// How each is rounded to it.
    pub rounding: Rounding,
    /// Whether a backward pass's own ops are rounded, too, or computed in plain `f32`. Recomputed parts of the forward
    /// pass are rounded in any case.
    pub quantize_backward: bool,
    /// Whether the exponential function is computed as a power of 2.
    pub exp2: bool,
    /// Whether a division is a multiplication by the reciprocal.
    pub reciprocal: bool,
}

/// The elementwise format of every preset. As a constant it rounds in a few instructions, all of which vectorize;
/// a format that is looked at in the loop takes several times as many.
pub(crate) const BFLOAT16: FloatFormat = match FloatFormat::bfloat(16) {
    Ok(format) => format,
    Err(_) => panic!("bfloat has 10 to 32 bits"),
};

/// Gives a closure, attributes and all, a name.
pub(crate) fn closure<F: Fn(f32) -> f32 + Copy + Send + Sync>(round: F) -> F {
    round
}

/// Binds `$round` to the rounding of some [`FunctionRounding`] with the mode, and the usual format, as constants, so that a
/// loop is compiled for each.
macro_rules! with_rounding {
    ($rounding:expr, $round:ident => $body:expr) => {{
        use ::microscaling::Rounding;
        use $crate::kernel_op::rounding::{BFLOAT16, with_rounding};
        let format = $rounding.format;
        match (format == BFLOAT16, $rounding.rounding) {
            (true, Rounding::NearestAway) => with_rounding!(@as BFLOAT16, NearestAway, $round => $body),
            (true, Rounding::NearestEven) => with_rounding!(@as BFLOAT16, NearestEven, $round => $body),
            (true, Rounding::TowardZero) => with_rounding!(@as BFLOAT16, TowardZero, $round => $body),
            (false, Rounding::NearestAway) => with_rounding!(@as format, NearestAway, $round => $body),
            (false, Rounding::NearestEven) => with_rounding!(@as format, NearestEven, $round => $body),
            (false, Rounding::TowardZero) => with_rounding!(@as format, TowardZero, $round => $body),
            (_, Rounding::Stochastic) => unreachable!("functions that round stochastically are composed"),
        }
    }};
    (@as $format:expr, $mode:ident, $round:ident => $body:expr) => {{
        let $round = $crate::kernel_op::rounding::closure(
            #[inline(always)]
            move |x| $format.round(x, Rounding::$mode, 0),
        );
        $body
    }};
}

/// Binds `$arith` to scalar arithmetic that rounds as some [`FunctionRounding`] say; `exp2` where exponentials are computed.
macro_rules! with_arithmetic {
    ($rounding:expr, exp2, $arith:ident => $body:expr) => {
        $crate::kernel_op::rounding::with_rounding!($rounding, round => match $rounding.exp2 {
            false => {
                let $arith = $crate::arithmetic::ScalarArithmetic::<_, false>::new(round, $rounding.reciprocal);
                $body
            }
            true => {
                let $arith = $crate::arithmetic::ScalarArithmetic::<_, true>::new(round, $rounding.reciprocal);
                $body
            }
        })
    };
    ($rounding:expr, $arith:ident => $body:expr) => {
        $crate::kernel_op::rounding::with_rounding!($rounding, round => {
            let $arith = $crate::arithmetic::ScalarArithmetic::<_, false>::new(round, $rounding.reciprocal);
            $body
        })
    };
}

/// Binds `$forward` to the arithmetic of the forward pass and `$backward` to the arithmetic of the backward pass. `exp2`
/// is for a forward pass with exponentials; the backward pass has none.
macro_rules! with_passes {
    ($rounding:expr, exp2, ($forward:ident, $backward:ident) => $body:expr) => {
        $crate::kernel_op::rounding::with_rounding!($rounding, round => match $rounding.exp2 {
            false => $crate::kernel_op::rounding::with_passes!(@exp2 false, $rounding, round, ($forward, $backward) => $body),
            true => $crate::kernel_op::rounding::with_passes!(@exp2 true, $rounding, round, ($forward, $backward) => $body),
        })
    };
    ($rounding:expr, ($forward:ident, $backward:ident) => $body:expr) => {
        $crate::kernel_op::rounding::with_rounding!($rounding, round => {
            $crate::kernel_op::rounding::with_passes!(@exp2 false, $rounding, round, ($forward, $backward) => $body)
        })
    };
    (@exp2 $exp2:literal, $rounding:expr, $round:ident, ($forward:ident, $backward:ident) => $body:expr) => {{
        let $forward = $crate::arithmetic::ScalarArithmetic::<_, $exp2>::new($round, $rounding.reciprocal);
        match $rounding.quantize_backward {
            true => {
                let $backward = $crate::arithmetic::ScalarArithmetic::<_, false>::new($round, $rounding.reciprocal);
                $body
            }
            false => {
                let $backward = $crate::arithmetic::ScalarArithmetic::<_, false>::new(|x| x, $rounding.reciprocal);
                $body
            }
        }
    }};
}

pub(crate) use with_rounding;
pub(super) use {with_arithmetic, with_passes};
