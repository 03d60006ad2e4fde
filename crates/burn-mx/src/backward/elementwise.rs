//! Elementwise ops whose gradient the emulation defines op by op.

use core::fmt::Debug;
use core::marker::PhantomData;

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, binary as binary_step, unary as unary_step};
use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Scalar, Shape, TensorMetadata, get_device_settings};

use super::parameter::gradient_of;
use super::{Tracked, boundary, check_recorded, metas};
use crate::arithmetic::{Arithmetic, activation as formula};
use crate::backend::MxBackend;
use crate::kernels::{BinaryFunction, BinaryOp, MxKernels, UnaryOp, to_f32};
use crate::random::OpNumber;
use crate::semantics::activation;
use crate::semantics::elementwise::{self, Passes, broadcast_dims};
use crate::semantics::{Float, softmax, stored};
use crate::tensor::{Join, Meta};

/// An op on one tensor and its gradient.
pub(crate) trait UnaryRule<B: MxKernels>: Clone + Debug + Send + 'static {
    /// The op, with the random numbers of this number.
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B>;
    /// The gradient of the input; `x` and `g` are as saved and as they arrived.
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B>;
}

/// An op on two tensors of the same rank, which broadcast, and its gradients.
pub(crate) trait BinaryRule<B: MxKernels>: Clone + Debug + Default + Send + 'static {
    /// Whether the gradients need the operands' values.
    const NEEDS_OPERANDS: bool;
    /// Whether [`BinaryRule::lhs`] is rounded.
    const LHS_ROUNDED: bool = true;
    /// The op, with the random numbers of this number.
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B>;
    /// The gradient of the left operand before it is summed over broadcast axes; operands are given, as
    /// saved, where they are needed.
    fn lhs(pass: &Passes<B>, operands: Operands<B>, g: Float<B>) -> FloatTensor<B>;
    /// As [`BinaryRule::lhs`], of the right operand.
    fn rhs(pass: &Passes<B>, operands: Operands<B>, g: Float<B>) -> FloatTensor<B>;
}

type Operands<B> = [Option<Float<B>>; 2];

const SAVED: &str = "operands are saved where they are needed";

/// The rounding at the edge of an op that is computed as a whole: of its operand or result, and of the gradient.
#[derive(Clone, Debug)]
pub(crate) struct Round;

impl<B: MxKernels> UnaryRule<B> for Round {
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>(Some(number), x, |x| x)
    }
    fn backward(&self, pass: &Passes<B>, _: Float<B>, g: Float<B>) -> FloatTensor<B> {
        pass.gradient(g)
    }
}

/// The rounding at the edge of an op that moves data, whose gradient is a sum: of that gradient alone.
#[derive(Clone, Debug)]
pub(crate) struct RoundGradient;

impl<B: MxKernels> UnaryRule<B> for RoundGradient {
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
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>(Some(number), x, B::float_log)
    }
    fn backward(&self, pass: &Passes<B>, x: Float<B>, g: Float<B>) -> FloatTensor<B> {
        pass.backward.div(pass.gradient(g), pass.operand(0, x))
    }
}

/// Square root: `(g / 2) / y`.
#[derive(Clone, Debug)]
pub(crate) struct Sqrt;

impl<B: MxKernels> UnaryRule<B> for Sqrt {
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
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>(Some(number), x, B::float_tanh)
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
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>(Some(number), x, B::float_tan)
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
fn negative<B: MxKernels>(pass: &Passes<B>, x: Float<B>) -> BoolTensor<B> {
    let bool_dtype = get_device_settings::<B>(&B::float_device(&x.inner)).bool_dtype;
    B::float_lower_elem(pass.forward_operand(0, x), 0.0.into(), bool_dtype)
}

/// Mean over one axis, or over all: `g / n`.
#[derive(Clone, Debug)]
pub(crate) struct Mean {
    pub(crate) dim: Option<usize>,
}

impl<B: MxKernels> UnaryRule<B> for Mean {
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
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        match self.dim {
            Some(dim) => elementwise::unary::<B>(Some(number), x, |x| B::float_prod_dim(x, dim)),
            None => elementwise::unary::<B>(Some(number), x, B::float_prod),
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
    fn forward(&self, number: OpNumber, x: Float<B>) -> Float<B> {
        elementwise::unary::<B>(Some(number), x, |x| B::float_cumprod(x, self.dim))
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

/// Sum: `g`, `g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Add;

impl<B: MxKernels> BinaryRule<B> for Add {
    const NEEDS_OPERANDS: bool = false;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::binary_op::<B>(Some(number), BinaryOp::Add, lhs, rhs)
    }
    fn lhs(pass: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        pass.gradient(g)
    }
    fn rhs(pass: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        pass.gradient(g)
    }
}

/// Difference: `g` as it is, which is what the reference does here and not in a sum, and `-g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sub;

impl<B: MxKernels> BinaryRule<B> for Sub {
    const NEEDS_OPERANDS: bool = false;
    const LHS_ROUNDED: bool = false;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::binary_op::<B>(Some(number), BinaryOp::Sub, lhs, rhs)
    }
    fn lhs(_: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        to_f32::<B>(g.inner)
    }
    fn rhs(pass: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        pass.backward.neg(pass.gradient(g))
    }
}

/// Product: `g b`, `g a`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mul;

impl<B: MxKernels> BinaryRule<B> for Mul {
    const NEEDS_OPERANDS: bool = true;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::binary_op::<B>(Some(number), BinaryOp::Mul, lhs, rhs)
    }
    fn lhs(pass: &Passes<B>, [_, b]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let b = pass.operand(1, b.expect(SAVED));
        pass.backward.mul(pass.gradient(g), b)
    }
    fn rhs(pass: &Passes<B>, [a, _]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let a = pass.operand(0, a.expect(SAVED));
        pass.backward.mul(pass.gradient(g), a)
    }
}

/// Quotient: `g / b`, `g (-y / b)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Div;

impl<B: MxKernels> BinaryRule<B> for Div {
    const NEEDS_OPERANDS: bool = true;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::div::<B>(Some(number), lhs, rhs)
    }
    fn lhs(pass: &Passes<B>, [_, b]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let b = pass.operand(1, b.expect(SAVED));
        pass.backward.div(pass.gradient(g), b)
    }
    fn rhs(pass: &Passes<B>, [a, b]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let (v, forward) = (&pass.backward, pass.forward());
        let (a, b) = (a.expect(SAVED), b.expect(SAVED));
        let y = forward.div(forward.operand(a), forward.operand(b.clone()));
        v.mul(pass.gradient(g), v.div(v.neg(y), pass.operand(1, b)))
    }
}

/// Leaky relu with a learned slope: `g` or `slope · g`, and 0 or `g x`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PRelu;

impl<B: MxKernels> BinaryRule<B> for PRelu {
    const NEEDS_OPERANDS: bool = true;
    fn forward(number: OpNumber, x: Float<B>, slope: Float<B>) -> Float<B> {
        activation::prelu::<B>(Some(number), x, slope)
    }
    fn lhs(pass: &Passes<B>, [x, slope]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let negative = negative(pass, x.expect(SAVED));
        let g = pass.gradient(g);
        let scaled = v.mul(g.clone(), pass.operand(1, slope.expect(SAVED)));
        B::float_mask_where(g, negative, scaled)
    }
    fn rhs(pass: &Passes<B>, [x, _]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let x = x.expect(SAVED);
        let positive = B::bool_not(negative(pass, x.clone()));
        let products = v.mul(pass.gradient(g), pass.operand(0, x));
        B::float_mask_fill(products, positive, 0.0.into())
    }
}

/// A unary op of emulated tensors.
pub(crate) fn unary<B: MxKernels, C: CheckpointStrategy, R: UnaryRule<B>>(
    x: Tracked<B>,
    rule: R,
) -> Tracked<B> {
    check_recorded::<B, C, 1>([&x]);
    let number = number_of(&Join::of([Some(x.primitive.meta)]));
    let retro = RetroUnary::<B, R> {
        number,
        input: x.node.id,
        rule: rule.clone(),
        _backend: PhantomData,
    };
    match Backward::<MxBackend<B>, 1>::prepare::<C>(Unary(rule.clone()), [x.node.clone()])
        .memory_bound()
        .retro_forward(retro)
        .parents([&x])
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let state = (number, prep.checkpoint(&x));
            prep.finish(state, rule.forward(number, x.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(rule.forward(number, x.primitive)),
    }
}

/// A binary op, by its rule where elementwise ops are emulated and by `plain` where they are not.
pub(crate) fn binary_or<B: MxKernels, C: CheckpointStrategy, R: BinaryRule<B>>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
    plain: impl FnOnce(Tracked<B>, Tracked<B>) -> Tracked<B>,
) -> Tracked<B> {
    match elementwise::emulation(&Join::of(metas::<B, 2>([&lhs, &rhs]))) {
        Some(_) => binary::<B, C, R>(lhs, rhs),
        None => boundary::exempt_or_not::<B, C>(lhs, rhs, plain),
    }
}

/// A binary op of emulated tensors.
fn binary<B: MxKernels, C: CheckpointStrategy, R: BinaryRule<B>>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
) -> Tracked<B> {
    check_recorded::<B, C, 2>([&lhs, &rhs]);
    let metas = [lhs.primitive.meta, rhs.primitive.meta];
    let number = number_of(&Join::of(metas.map(Some)));
    let retro = RetroBinary::<B, R> {
        number,
        inputs: [lhs.node.id, rhs.node.id],
        _backend: PhantomData,
    };
    match Backward::<MxBackend<B>, 2>::prepare::<C>(
        Binary(R::default()),
        [lhs.node.clone(), rhs.node.clone()],
    )
    .memory_bound()
    .retro_forward(retro)
    .parents([&lhs, &rhs])
    .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let state = BinaryState {
                number,
                saved: R::NEEDS_OPERANDS.then(|| [prep.checkpoint(&lhs), prep.checkpoint(&rhs)]),
                shapes: [lhs.primitive.shape(), rhs.primitive.shape()],
                metas,
            };
            prep.finish(state, R::forward(number, lhs.primitive, rhs.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(R::forward(number, lhs.primitive, rhs.primitive)),
    }
}

/// The number of a new op.
fn number_of(join: &Join) -> OpNumber {
    let interned = elementwise::emulation(join).expect(EMULATED);
    interned.draws().op()
}

const EMULATED: &str = "the op has a step of its own only where elementwise ops are emulated";

/// The arithmetic of the backward pass of the op with this number, of tensors with these metas.
fn passes<B: MxKernels>(number: OpNumber, join: &Join) -> Passes<B> {
    Passes::emulated(join, Some(number)).expect(EMULATED)
}

#[derive(Debug)]
struct Unary<R>(R);

impl<B: MxKernels, R: UnaryRule<B>> Backward<MxBackend<B>, 1> for Unary<R> {
    type State = (OpNumber, NodeId);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let (number, x) = ops.state;
        let x = checkpointer.retrieve_node_output::<Float<B>>(x);
        unary_step::<MxBackend<B>, _>(ops.parents, ops.node, grads, |grad| {
            let meta = x.meta;
            let join = Join::of([Some(meta)]);
            let pass = passes::<B>(number, &join);
            let dx = self.0.backward(&pass, x, grad);
            gradient_of::<B>(meta, pass.backward.finish(dx, &join))
        });
    }
}

#[derive(Debug)]
struct Binary<R>(#[allow(dead_code, reason = "names the op in the debug output")] R);

#[derive(Clone, Debug)]
struct BinaryState {
    /// Of the op in the forward pass.
    number: OpNumber,
    saved: Option<[NodeId; 2]>,
    shapes: [Shape; 2],
    metas: [Meta; 2],
}

impl<B: MxKernels, R: BinaryRule<B>> Backward<MxBackend<B>, 2> for Binary<R> {
    type State = BinaryState;

    fn backward(
        self,
        ops: Ops<BinaryState, 2>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let BinaryState {
            number,
            saved,
            shapes: [lhs_shape, rhs_shape],
            metas,
        } = ops.state;
        let join = Join::of(metas.map(Some));
        let pass = passes::<B>(number, &join);
        let operands: Operands<B> = match saved {
            Some(ids) => ids.map(|id| Some(checkpointer.retrieve_node_output(id))),
            None => [None, None],
        };
        let v = &pass.backward;
        let reduce = |grad: FloatTensor<B>, rounded: bool, shape: &Shape, meta: Meta| {
            let broadcast = broadcast_dims(shape, &grad.shape());
            // The gradient of a constant without specs goes by the op's.
            let own = Join::of([Some(meta), Some(join.result)]);
            let gradient = match (broadcast.is_empty(), rounded) {
                (true, true) => v.finish(grad, &own),
                (true, false) => stored::<B>(grad, own.result),
                (false, true) => v.finish(v.sum_dims(grad, broadcast), &own),
                (false, false) => v.finish(v.sum_dims(v.round(grad), broadcast), &own),
            };
            gradient_of::<B>(meta, gradient)
        };
        let [lhs_meta, rhs_meta] = metas;
        binary_step::<MxBackend<B>, _, _>(
            ops.parents,
            ops.node,
            grads,
            |grad| {
                reduce(
                    R::lhs(&pass, operands.clone(), grad),
                    R::LHS_ROUNDED,
                    &lhs_shape,
                    lhs_meta,
                )
            },
            |grad| {
                reduce(
                    R::rhs(&pass, operands.clone(), grad),
                    true,
                    &rhs_shape,
                    rhs_meta,
                )
            },
        );
    }
}

/// Recomputes a unary op for gradient checkpointing.
#[derive(Debug)]
struct RetroUnary<B, R> {
    number: OpNumber,
    input: NodeId,
    rule: R,
    _backend: PhantomData<B>,
}

impl<B: MxKernels, R: UnaryRule<B>> RetroForward for RetroUnary<B, R> {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let x = states.get_state::<Float<B>>(&self.input);
        states.save(out_node, self.rule.forward(self.number, x));
    }
}

/// Recomputes a binary op for gradient checkpointing.
#[derive(Debug)]
struct RetroBinary<B, R> {
    number: OpNumber,
    inputs: [NodeId; 2],
    _backend: PhantomData<(B, R)>,
}

impl<B: MxKernels, R: BinaryRule<B>> RetroForward for RetroBinary<B, R> {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let lhs = states.get_state::<Float<B>>(&self.inputs[0]);
        let rhs = states.get_state::<Float<B>>(&self.inputs[1]);
        states.save(out_node, R::forward(self.number, lhs, rhs));
    }
}
