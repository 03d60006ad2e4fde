//! Recipes in one pass over memory: the functions of an element that are a dozen rounded steps each.

use microscaling::{FloatFormat, Rounding, map_in_place, zip_in_place};

use crate::semantics::activation;
use crate::semantics::arithmetic::{self, Arithmetic, ScalarSteps};

/// A recipe of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryRecipe {
    /// e to the power of x.
    Exp,
    /// 2 to the power of x.
    Exp2,
    /// The sigmoid of x.
    Sigmoid,
    /// The gelu of x.
    Gelu,
}

/// A recipe of two tensors of the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryRecipe {
    /// The gradient of a sigmoid from its input and its output's gradient.
    SigmoidBackward,
    /// The gradient of a gelu from its input and its output's gradient.
    GeluBackward,
}

/// How the steps of a recipe round. Stochastic rounding is not among the modes: its random numbers go by the
/// tensors of a composition.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Steps of the forward pass, also where a backward pass computes them again.
    pub forward: (FloatFormat, Rounding),
    /// Steps of the backward pass; `None` computes them in plain `f32`.
    pub backward: Option<(FloatFormat, Rounding)>,
    /// Whether the exponential function is computed as a power of 2.
    pub exp2: bool,
}

/// Binds `$steps` to scalar arithmetic with the rounding as a constant, so that a loop is compiled for each.
macro_rules! with_steps {
    ($rounding:expr, $exp2:expr, $steps:ident => $body:expr) => {
        match $exp2 {
            false => with_steps!(@rounding $rounding, false, $steps => $body),
            true => with_steps!(@rounding $rounding, true, $steps => $body),
        }
    };
    (@rounding $rounding:expr, $exp2:literal, $steps:ident => $body:expr) => {
        match $rounding {
            None => {
                let $steps = ScalarSteps::<_, $exp2>::new(|x| x);
                $body
            }
            Some((format, Rounding::Nearest)) => {
                let $steps = ScalarSteps::<_, $exp2>::new(
                    #[inline(always)]
                    move |x| format.round(x, Rounding::Nearest, 0),
                );
                $body
            }
            Some((format, Rounding::Even)) => {
                let $steps = ScalarSteps::<_, $exp2>::new(
                    #[inline(always)]
                    move |x| format.round(x, Rounding::Even, 0),
                );
                $body
            }
            Some((format, Rounding::Floor)) => {
                let $steps = ScalarSteps::<_, $exp2>::new(
                    #[inline(always)]
                    move |x| format.round(x, Rounding::Floor, 0),
                );
                $body
            }
            Some((_, Rounding::Stochastic)) => unreachable!("stochastic recipes are composed"),
        }
    };
}

impl UnaryRecipe {
    /// Replaces every element, which need not be rounded.
    pub(crate) fn apply(self, data: &mut [f32], steps: Steps) {
        with_steps!(Some(steps.forward), steps.exp2, s => match self {
            Self::Exp => map_in_place(
                data,
                #[inline(always)]
                move |x| s.exp(s.round(x)),
            ),
            Self::Exp2 => map_in_place(
                data,
                #[inline(always)]
                move |x| s.round(arithmetic::exp2(s.round(x))),
            ),
            Self::Sigmoid => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::sigmoid_steps(&s, s.round(x)),
            ),
            Self::Gelu => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::gelu_steps(&s, s.round(x)),
            ),
        });
    }
}

impl BinaryRecipe {
    /// Replaces every gradient by the gradient of the input; neither need be rounded.
    pub(crate) fn apply(self, grad: &mut [f32], input: &[f32], steps: Steps) {
        with_steps!(Some(steps.forward), steps.exp2, f => {
            // No exponential is computed in the backward pass's own steps.
            with_steps!(@rounding steps.backward, false, b => match self {
                Self::SigmoidBackward => zip_in_place(
                    grad,
                    input,
                    #[inline(always)]
                    move |g, x| {
                        let y = activation::sigmoid_steps(&f, f.round(x));
                        activation::sigmoid_backward_steps(&b, y, b.round(g))
                    },
                ),
                Self::GeluBackward => zip_in_place(
                    grad,
                    input,
                    #[inline(always)]
                    move |g, x| activation::gelu_backward_steps(&f, &b, f.round(x), b.round(x), b.round(g)),
                ),
            })
        });
    }
}
