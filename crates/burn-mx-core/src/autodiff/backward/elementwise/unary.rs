//! The gradients of functions of one tensor.

use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Scalar, Shape, TensorMetadata, get_device_settings};

use super::UnaryRule;
use crate::arithmetic::{Arithmetic, activation as formula};
use crate::kernels::{BinaryFunction, MxKernels, UnaryOp};
use crate::semantics::elementwise::{self, Passes};
use crate::semantics::{activation, softmax};
use crate::tensor::Float;
use crate::tensor::random_streams::OpNumber;

/// The rounding at the edge of an op that is computed as a whole: of its operand or result, and of the gradient.
#[derive(Clone, Debug)]
pub(crate) struct Round;

impl<B: MxKernels> UnaryRule<B> for Round {
    const NAME: &'static str = "round";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>("round", Some(number), x, |x| x)
    }
    fn backward(&self, pass: &Passes<B>, _: Float<B>, g: Float<B>) -> FloatTensor<B> {
        pass.gradient(g)
    }
}

/// The rounding at the edge of an op that moves data, whose gradient is a sum: of that gradient alone.
#[derive(Clone, Debug)]
pub(crate) struct RoundGradient;

impl<B: MxKernels> UnaryRule<B> for RoundGradient {
    const NAME: &'static str = "round";
    fn forward(&self, _: OpNumber, x: Float<B>) -> Float<B> {
        x
    }
    fn backward(&self, pass: &Passes<B>, _: Float<B>, g: Float<B>) -> FloatTensor<B> {
        pass.gradient(g)
    }
}

/// Exponential function: `g y`.
#[derive(Clone, Debug)]
pub(crate) struct Exp;

impl<B: MxKernels> UnaryRule<B> for Exp {
    const NAME: &'static str = "exp";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::exp::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let forward = pass.forward();
        let y = forward.exp(forward.operand(x));
        pass.backward.mul(pass.gradient(g), y)
    }
}

/// Natural logarithm: `g / x`.
#[derive(Clone, Debug)]
pub(crate) struct Log;

impl<B: MxKernels> UnaryRule<B> for Log {
    const NAME: &'static str = "log";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>("log", Some(number), x, B::float_log)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        pass.backward.div(pass.gradient(g), pass.operand(0, x))
    }
}

/// Square root: `(g / 2) / y`.
#[derive(Clone, Debug)]
pub(crate) struct Sqrt;

impl<B: MxKernels> UnaryRule<B> for Sqrt {
    const NAME: &'static str = "sqrt";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary_op::<B>(Some(number), UnaryOp::Sqrt, x, B::float_sqrt)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let forward = pass.forward();
        let y = forward.sqrt(forward.operand(x));
        v.div(v.div_scalar(pass.gradient(g), 2.0), y)
    }
}

/// Square: `g (2 x)`.
#[derive(Clone, Debug)]
pub(crate) struct Square;

impl<B: MxKernels> UnaryRule<B> for Square {
    const NAME: &'static str = "square";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::square::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let doubled = v.mul_scalar(pass.operand(0, x), 2.0);
        v.mul(pass.gradient(g), doubled)
    }
}

/// Hyperbolic tangent: `(1 - y²) g`.
#[derive(Clone, Debug)]
pub(crate) struct Tanh;

impl<B: MxKernels> UnaryRule<B> for Tanh {
    const NAME: &'static str = "tanh";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>("tanh", Some(number), x, B::float_tanh)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let forward = pass.forward();
        let y = forward.tanh(forward.operand(x));
        let derivative = v.one_minus(v.mul(y.clone(), y));
        v.mul(derivative, pass.gradient(g))
    }
}

/// Tangent: `g (y² + 1)`.
#[derive(Clone, Debug)]
pub(crate) struct Tan;

impl<B: MxKernels> UnaryRule<B> for Tan {
    const NAME: &'static str = "tan";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>("tan", Some(number), x, B::float_tan)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let (v, forward) = (&pass.backward, pass.forward());
        let y = forward.round(B::float_tan(forward.operand(x)));
        let derivative = v.add_scalar(v.mul(y.clone(), y), 1.0);
        v.mul(pass.gradient(g), derivative)
    }
}

/// `max(x, 0)`: `g` where the output is positive.
#[derive(Clone, Debug)]
pub(crate) struct Relu;

impl<B: MxKernels> UnaryRule<B> for Relu {
    const NAME: &'static str = "relu";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        activation::relu::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        activation::relu_gradient::<B>(pass, x, g)
    }
}

/// Gelu: `(Φ + x Φ') g`.
#[derive(Clone, Debug)]
pub(crate) struct Gelu;

impl<B: MxKernels> UnaryRule<B> for Gelu {
    const NAME: &'static str = "gelu";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        activation::gelu::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        activation::gelu_gradient::<B>(pass, x, g)
    }
}

/// Logarithm of the logistic function: `(m - s (1 - 1 / z)) g`.
#[derive(Clone, Debug)]
pub(crate) struct LogSigmoid;

impl<B: MxKernels> UnaryRule<B> for LogSigmoid {
    const NAME: &'static str = "log_sigmoid";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        activation::log_sigmoid::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        activation::log_sigmoid_gradient::<B>(pass, x, g)
    }
}

/// Logistic function: `y (1 - y) g`.
#[derive(Clone, Debug)]
pub(crate) struct Sigmoid;

impl<B: MxKernels> UnaryRule<B> for Sigmoid {
    const NAME: &'static str = "sigmoid";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        activation::sigmoid::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        if let Some(rounding) = v.backward_in_one_pass() {
            let function = BinaryFunction::SigmoidBackward;
            return activation::one_pass_of_two::<B>(function, x.inner, g.inner, rounding);
        }
        let forward = pass.forward();
        let y = formula::sigmoid(&forward, forward.operand(x));
        formula::sigmoid_backward(v, y, pass.gradient(g))
    }
}

/// Silu: `(σ + y (1 - σ)) g`.
#[derive(Clone, Debug)]
pub(crate) struct Silu;

impl<B: MxKernels> UnaryRule<B> for Silu {
    const NAME: &'static str = "silu";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        activation::silu::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        if let Some(rounding) = v.backward_in_one_pass() {
            let function = BinaryFunction::SiluBackward;
            return activation::one_pass_of_two::<B>(function, x.inner, g.inner, rounding);
        }
        let forward = pass.forward();
        let x = forward.operand(x);
        formula::silu_backward(&forward, v, x, pass.gradient(g))
    }
}

/// First-order gelu: `(Φ + x Φ') g`.
#[derive(Clone, Debug)]
pub(crate) struct GeluFirstOrder;

impl<B: MxKernels> UnaryRule<B> for GeluFirstOrder {
    const NAME: &'static str = "gelu_first_order";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        activation::gelu_first_order::<B>(Some(number), x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        if let Some(rounding) = v.backward_in_one_pass() {
            let function = BinaryFunction::GeluFirstOrderBackward;
            return activation::one_pass_of_two::<B>(function, x.inner, g.inner, rounding);
        }
        let forward = pass.forward();
        let forward_x = forward.operand(x.clone());
        let (x, g) = (pass.operand(0, x), pass.gradient(g));
        formula::gelu_first_order_backward(&forward, v, forward_x, x, g)
    }
}

/// Logarithm of the softmax over the last axis, in one pass: `g - p sum(g) / sum(p)` with `p = exp(x - max x)`.
#[derive(Clone, Debug)]
pub(crate) struct LogSoftmax;

impl<B: MxKernels> UnaryRule<B> for LogSoftmax {
    const NAME: &'static str = "log_softmax";
    fn forward(&self, _: OpNumber, x: Float<B>) -> Float<B> {
        softmax::log_forward::<B>(x)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let rounding = pass.backward.backward_in_one_pass();
        let rounding = rounding.expect("the forward pass was one pass");
        softmax::log_backward::<B>(x, g, rounding)
    }
}

/// Leaky relu: `g` or `slope · g`.
#[derive(Clone, Debug)]
pub(crate) struct LeakyRelu {
    pub(crate) slope: Scalar,
}

impl<B: MxKernels> UnaryRule<B> for LeakyRelu {
    const NAME: &'static str = "leaky_relu";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        activation::leaky_relu::<B>(Some(number), x, self.slope)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let negative = negative(pass, x);
        let g = pass.gradient(g);
        let scaled = v.round(B::float_mul_scalar(g.clone(), self.slope));
        B::float_mask_where(g, negative, scaled)
    }
}

/// Where `x` is negative as the forward pass rounded it.
pub(super) fn negative<B: MxKernels>(pass: &Passes<B>, x: Float<B>) -> BoolTensor<B> {
    let bool_dtype = get_device_settings::<B>(&B::float_device(&x.inner)).bool_dtype;
    B::float_lower_elem(pass.forward_operand(0, x), 0.0.into(), bool_dtype)
}

/// Mean over one axis, or over all: `g / n`.
#[derive(Clone, Debug)]
pub(crate) struct Mean {
    pub(crate) dim: Option<usize>,
}

impl<B: MxKernels> UnaryRule<B> for Mean {
    const NAME: &'static str = "mean";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        match self.dim {
            Some(dim) => elementwise::mean_dim::<B>(Some(number), x, dim),
            None => elementwise::mean::<B>(Some(number), x),
        }
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let shape = x.shape();
        let count = self.dim.map_or(shape.num_elements(), |dim| shape[dim]);
        let share = v.div_scalar(pass.gradient(g), count as f32);
        let share = match self.dim {
            Some(_) => share,
            None => B::float_reshape(share, Shape::from(vec![1; shape.num_dims()])),
        };
        B::float_expand(share, shape)
    }
}

/// Product over one axis, or over all: `g y / x`, where no x is zero.
#[derive(Clone, Debug)]
pub(crate) struct Prod {
    pub(crate) dim: Option<usize>,
}

impl<B: MxKernels> UnaryRule<B> for Prod {
    const NAME: &'static str = "prod";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        match self.dim {
            Some(dim) => {
                elementwise::unary::<B>("prod_dim", Some(number), x, |x| B::float_prod_dim(x, dim))
            }
            None => elementwise::unary::<B>("prod", Some(number), x, B::float_prod),
        }
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let forward = pass.forward();
        let forward_x = forward.operand(x.clone());
        let y = match self.dim {
            Some(dim) => B::float_prod_dim(forward_x, dim),
            None => B::float_prod(forward_x),
        };
        let weighted = v.mul(pass.gradient(g), forward.round(y));
        let shape = x.shape();
        let weighted = match self.dim {
            Some(_) => weighted,
            None => B::float_reshape(weighted, Shape::from(vec![1; shape.num_dims()])),
        };
        v.div(B::float_expand(weighted, shape), pass.operand(0, x))
    }
}

/// Products of the elements up to each one along an axis: the sum of `g y` from each on, divided by `x`, where no x is
/// zero.
#[derive(Clone, Debug)]
pub(crate) struct CumProd {
    pub(crate) dim: usize,
}

impl<B: MxKernels> UnaryRule<B> for CumProd {
    const NAME: &'static str = "cumprod";
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>("cumprod", Some(number), x, |x| {
            B::float_cumprod(x, self.dim)
        })
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        let (v, forward) = (&pass.backward, pass.forward());
        let y = B::float_cumprod(forward.operand(x.clone()), self.dim);
        let weighted = v.mul(pass.gradient(g), forward.round(y));
        let reversed = |tensor| B::float_flip(tensor, &[self.dim]);
        let sums = v.round(B::float_cumsum(reversed(weighted), self.dim));
        v.div(reversed(sums), pass.operand(0, x))
    }
}
