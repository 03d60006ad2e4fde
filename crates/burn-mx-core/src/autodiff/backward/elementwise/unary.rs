//! The gradients of functions of one tensor.

use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Scalar, Shape, TensorMetadata, get_device_settings};

use crate::semantics::elementwise::{self, Passes};
use crate::semantics::{activation, softmax};
use crate::tensor::Float;
use crate::tensor::random_streams::OpNumber;
use burn_mx_kernels::Function;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::UnaryOp;
use burn_mx_kernels::internal::formulas::Arithmetic;

/// An op on one tensor that has its own step, and its gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UnaryRule {
    /// The rounding at the edge of an op that is computed as a whole: of its operand or result, and of the gradient.
    Round,
    /// The rounding at the edge of an op that moves data, whose gradient is a sum: of that gradient alone.
    RoundGradient,
    /// A function with a formula and a gradient.
    Function(Function),
    /// Natural logarithm: `g / x`.
    Log,
    /// Square root: `(g / 2) / y`.
    Sqrt,
    /// Square: `g (2 x)`.
    Square,
    /// Hyperbolic tangent: `(1 - y²) g`.
    Tanh,
    /// Tangent: `g (y² + 1)`.
    Tan,
    /// `max(x, 0)`: `g` where the output is positive.
    Relu,
    /// Logarithm of the logistic function: `(m - s (1 - 1 / z)) g`.
    LogSigmoid,
    /// Logarithm of the softmax over the last axis, in one pass: `g - p sum(g) / sum(p)` with `p = exp(x - max x)`.
    LogSoftmax,
    /// Leaky relu: `g` or `slope · g`.
    LeakyRelu { slope: Scalar },
    /// Mean over one axis, or over all: `g / n`.
    Mean { dim: Option<usize> },
    /// Product over one axis, or over all: `g y / x`, where no x is zero.
    Prod { dim: Option<usize> },
    /// Products of the elements up to each one along an axis: the sum of `g y` from each on, divided by `x`, where no x is
    /// zero.
    CumProd { dim: usize },
}

impl UnaryRule {
    /// The op's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Round | Self::RoundGradient => "round",
            Self::Function(function) => function.name(),
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Square => "square",
            Self::Tanh => "tanh",
            Self::Tan => "tan",
            Self::Relu => "relu",
            Self::LogSigmoid => "log_sigmoid",
            Self::LogSoftmax => "log_softmax",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::Mean { .. } => "mean",
            Self::Prod { .. } => "prod",
            Self::CumProd { .. } => "cumprod",
        }
    }

    /// The op, with the random numbers of this number.
    pub(super) fn forward<B: MxKernels>(self, number: OpNumber, x: Float<B>) -> Float<B> {
        let number = Some(number);
        match self {
            Self::Round => elementwise::unary::<B>("round", number, x, |x| x),
            Self::RoundGradient => x,
            Self::Function(function) => activation::function::<B>(function, number, x),
            Self::Log => elementwise::function::<B>("log", number, x, B::float_log),
            Self::Sqrt => elementwise::unary_op::<B>(number, UnaryOp::Sqrt, x, B::float_sqrt),
            Self::Square => elementwise::square::<B>(number, x),
            Self::Tanh => elementwise::function::<B>("tanh", number, x, B::float_tanh),
            Self::Tan => elementwise::function::<B>("tan", number, x, B::float_tan),
            Self::Relu => activation::relu::<B>(number, x),
            Self::LogSigmoid => activation::log_sigmoid::<B>(number, x),
            Self::LogSoftmax => softmax::log_forward::<B>(x),
            Self::LeakyRelu { slope } => activation::leaky_relu::<B>(number, x, slope),
            Self::Mean { dim } => match dim {
                Some(dim) => elementwise::mean_dim::<B>(number, x, dim),
                None => elementwise::mean::<B>(number, x),
            },
            Self::Prod { dim } => match dim {
                Some(dim) => {
                    elementwise::unary::<B>("prod_dim", number, x, |x| B::float_prod_dim(x, dim))
                }
                None => elementwise::unary::<B>("prod", number, x, B::float_prod),
            },
            Self::CumProd { dim } => {
                elementwise::unary::<B>("cumprod", number, x, |x| B::float_cumprod(x, dim))
            }
        }
    }

    /// The gradient of the input; `x` and `g` are as saved and as they arrived.
    pub(super) fn backward<B: MxKernels>(
        self,
        pass: &Passes<B>,
        x: Float<B>,
        g: Float<B>,
    ) -> FloatTensor<B> {
        let v = &pass.backward;
        match self {
            Self::Round | Self::RoundGradient => pass.gradient(g),
            Self::Function(function) => activation::gradient::<B>(function, pass, x, g),
            Self::Log => v.div(pass.gradient(g), pass.operand(0, x)),
            Self::Sqrt => {
                let forward = pass.forward();
                let y = forward.sqrt(forward.operand(x));
                v.div(v.div_scalar(pass.gradient(g), 2.0), y)
            }
            Self::Square => {
                let doubled = v.mul_scalar(pass.operand(0, x), 2.0);
                v.mul(pass.gradient(g), doubled)
            }
            Self::Tanh => {
                let forward = pass.forward();
                let y = forward.tanh(forward.operand(x));
                let derivative = v.one_minus(v.mul(y.clone(), y));
                v.mul(derivative, pass.gradient(g))
            }
            Self::Tan => {
                let forward = pass.forward();
                let y = forward.of_each(B::float_tan, forward.operand(x));
                let derivative = v.add_scalar(v.mul(y.clone(), y), 1.0);
                v.mul(pass.gradient(g), derivative)
            }
            Self::Relu => activation::relu_gradient::<B>(pass, x, g),
            Self::LogSigmoid => activation::log_sigmoid_gradient::<B>(pass, x, g),
            Self::LogSoftmax => {
                let rounding = v.backward_in_one_pass();
                let rounding = rounding.expect("the forward pass was one pass");
                softmax::log_backward::<B>(x, g, rounding)
            }
            Self::LeakyRelu { slope } => {
                let negative = negative(pass, x);
                let g = pass.gradient(g);
                let scaled = v.round(B::float_mul_scalar(g.clone(), slope));
                B::float_mask_where(g, negative, scaled)
            }
            Self::Mean { dim } => {
                let shape = x.shape();
                let count = dim.map_or(shape.num_elements(), |dim| shape[dim]);
                let share = v.div_scalar(pass.gradient(g), count as f32);
                let share = match dim {
                    Some(_) => share,
                    None => B::float_reshape(share, Shape::from(vec![1; shape.num_dims()])),
                };
                B::float_expand(share, shape)
            }
            Self::Prod { dim } => {
                let forward = pass.forward();
                let forward_x = forward.operand(x.clone());
                let y = match dim {
                    Some(dim) => B::float_prod_dim(forward_x, dim),
                    None => B::float_prod(forward_x),
                };
                let weighted = v.mul(pass.gradient(g), forward.round(y));
                let shape = x.shape();
                let weighted = match dim {
                    Some(_) => weighted,
                    None => B::float_reshape(weighted, Shape::from(vec![1; shape.num_dims()])),
                };
                v.div(B::float_expand(weighted, shape), pass.operand(0, x))
            }
            Self::CumProd { dim } => {
                let forward = pass.forward();
                let y = B::float_cumprod(forward.operand(x.clone()), dim);
                let weighted = v.mul(pass.gradient(g), forward.round(y));
                let reversed = |tensor| B::float_flip(tensor, &[dim]);
                let sums = v.round(B::float_cumsum(reversed(weighted), dim));
                v.div(reversed(sums), pass.operand(0, x))
            }
        }
    }
}

/// Where `x` is negative as the forward pass rounded it.
pub(super) fn negative<B: MxKernels>(pass: &Passes<B>, x: Float<B>) -> BoolTensor<B> {
    let bool_dtype = get_device_settings::<B>(&B::float_device(&x.inner)).bool_dtype;
    B::float_lower_elem(pass.forward_operand(0, x), 0.0.into(), bool_dtype)
}
