//! Ops in a loss: values and gradients are plain Burn's to the bit, for every op of Burn and for each of its operands.
//!
//! The independent source is Burn alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::prelude::*;
use burn::tensor::activation;
use burn::tensor::linalg::cosine_similarity;
use burn::tensor::module;
use burn::tensor::ops::{DeformConvOptions, FloatTensor};
use burn::tensor::{Shape, TensorPrimitive};
use burn_backend::TensorMetadata;
use burn_mx::{MxDevice, MxSpecs};

use super::op_coverage::calls::{Calls, floats};
use super::op_coverage::{Row, difference, loss_of, panic_message, rows};
use crate::support::*;

/// The kinds of an op's operands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operand {
    /// In a full-precision piece.
    Exact,
    /// Follows from the logarithm of a softmax.
    Probability,
    /// An activation outside of any piece.
    Activation,
    /// A leaf that requires gradients.
    Parameter,
    /// An input without gradients.
    Data,
}
use Operand::{Activation, Data, Exact as InPiece, Parameter, Probability};

/// Values and shape of an input.
type Input = (Vec<f32>, Shape);

/// The inputs that an op takes.
fn inputs_of(op: &str) -> Vec<Input> {
    let calls = Calls::<Flex>::new(FlexDevice, false, false);
    calls.call(op);
    let inputs = calls.inputs.into_inner().into_iter();
    inputs
        .map(|input| (floats::<Flex>(input.clone()), input.shape()))
        .collect()
}

fn changed<B: Backend>(
    tensor: FloatTensor<B>,
    change: impl FnOnce(Tensor<B, 1>) -> Tensor<B, 1>,
) -> FloatTensor<B> {
    // The rank that is said here does not matter.
    let tensor = Tensor::from_primitive(TensorPrimitive::Float(tensor));
    change(tensor).into_primitive().tensor()
}

fn operand<B: Exact>(leaf: FloatTensor<B>, operand: Operand) -> FloatTensor<B> {
    match operand {
        Data | Parameter => leaf,
        Activation => activation::<B>(leaf),
        InPiece => changed::<B>(activation::<B>(leaf), B::exact),
        Probability => {
            let last = leaf.shape().num_dims() - 1;
            B::float_exp(B::log_softmax(activation::<B>(leaf), last))
        }
    }
}

/// The values of an op's output, then the gradients of the operands that have one.
fn computed<B: Exact>(
    op: &str,
    inputs: &[Input],
    operands: &[Operand],
    device: &B::Device,
) -> Vec<Vec<f32>> {
    let calls = Calls::<B>::new(device.clone(), false, false);
    let mut leaves = Vec::new();
    for ((values, shape), kind) in inputs.iter().zip(operands) {
        let data = TensorData::new(values.clone(), shape.clone());
        let mut leaf = B::float_from_data(data, device);
        if *kind != Data {
            leaf = B::float_set_require_grad(leaf, true);
            leaves.push(leaf.clone());
        }
        calls.inputs.borrow_mut().push(operand::<B>(leaf, *kind));
    }
    calls.again.set(Some(0));
    let (output, loss) = loss_of(&calls, op, 90);
    let grads = loss.backward();
    let gradients = leaves
        .iter()
        .map(|leaf| B::grad(leaf, &grads).map_or_else(Vec::new, floats::<B::InnerBackend>));
    std::iter::once(output).chain(gradients).collect()
}

/// One operand of one kind, the others of another.
fn one_of(kind: Operand, others: Operand, count: usize) -> Vec<Vec<Operand>> {
    let with = |one| {
        let operands = (0..count).map(|i| if i == one { kind } else { others });
        operands.collect()
    };
    (0..count).map(with).collect()
}

/// Specs by which activations alone are emulated, and specs by which everything is.
fn devices() -> [MxDevice<FlexDevice>; 2] {
    let everything = MxSpecs {
        bfloat: 16,
        w_elem_format: MxSpecs::mxfp4().w_elem_format,
        a_elem_format: MxSpecs::mxfp4().a_elem_format,
        ..MxSpecs::mx()
    };
    let activations = MxDevice::new(FlexDevice, "mxfp8_e4m3").expect("it is a preset");
    [activations, mx_device(&everything)]
}

/// Checks every op that has a gradient, with its operands of the kinds that `kinds` returns for their number.
fn check(kinds: impl Fn(usize) -> Vec<Vec<Operand>>) {
    check_some(|_, _| true, kinds);
}

/// As [`check`], of the ops that `takes` says.
fn check_some(takes: impl Fn(&str, &Row) -> bool, kinds: impl Fn(usize) -> Vec<Vec<Operand>>) {
    let devices = devices();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (op, row) in rows() {
        // A leaf alone can be asked to require gradients.
        if row.backward == "–" || op == "float_set_require_grad" || !takes(op, &row) {
            continue;
        }
        let inputs = inputs_of(op);
        for operands in kinds(inputs.len()) {
            if op == "attention" && operands[0] == operands[1] && operands[2] != operands[0] {
                // Queries meet keys first, in a product outside of the piece.
                continue;
            }
            let expected = computed::<Plain>(op, &inputs, &operands, &FlexDevice);
            for device in &devices {
                let got = || computed::<Mx>(op, &inputs, &operands, device);
                checked += 1;
                let problem = match catch_unwind(AssertUnwindSafe(got)) {
                    Ok(got) => differences(&got, &expected),
                    Err(panic) => vec![panic_message(&*panic)],
                };
                let specs = device.specs().map(ToString::to_string);
                let named = |problem| format!("`{op}` of {operands:?}, {specs:?}: {problem}");
                wrong.extend(problem.into_iter().map(named));
            }
        }
    }
    assert!(checked > 160, "{checked} cases");
    assert_none(&wrong);
}

fn differences(got: &[Vec<f32>], expected: &[Vec<f32>]) -> Vec<String> {
    let pairs = got.iter().zip(expected).enumerate();
    let differing = pairs.filter_map(|(i, (got, expected))| {
        let difference = difference(got, expected)?;
        Some(match i {
            0 => format!("value: {difference}"),
            _ => format!("gradient {i}: {difference}"),
        })
    });
    differing.collect()
}

#[test]
fn every_op_in_a_piece_is_float32s() {
    check(|count| vec![vec![InPiece; count]]);
}

#[test]
fn every_op_of_a_piece_and_of_data_is_float32s() {
    check(|count| one_of(InPiece, Data, count));
}

#[test]
fn every_op_of_a_piece_and_of_an_activation_is_float32s() {
    check(|count| one_of(InPiece, Activation, count));
}

#[test]
fn every_op_of_a_piece_and_of_a_parameter_is_float32s() {
    check(|count| one_of(InPiece, Parameter, count));
}

/// A loss ends where a layer begins.
#[test]
fn every_op_after_a_logarithm_of_a_softmax_is_float32s() {
    let is_no_layer = |op: &str, row: &Row| {
        let is_layer = ["product", "products"].contains(&row.forward) || op == "unfold4d";
        !is_layer || ["float_matmul", "attention"].contains(&op)
    };
    check_some(is_no_layer, |count| vec![vec![Probability; count]]);
    check_some(is_no_layer, |count| one_of(Probability, Data, count));
}

/// A function of two operands.
type Of2<B> = fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>;

/// Losses of one's own, and functions that Burn composes of ops; the second operand is positive.
fn functions<B: Backend>() -> Vec<(&'static str, Of2<B>)> {
    fn unit<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
        activation::sigmoid(x)
    }
    vec![
        ("quotient", |x, y| x / y),
        ("quotient by it", |x, y| y / (x.abs() + 0.1)),
        ("power", |x, y| (x.abs() + 0.1).powf(y)),
        ("power of it", |x, y| y.powf(x)),
        ("whole power", |x, y| x.powi_scalar(3) * y),
        ("half power", |x, y| x.abs().powf_scalar(1.5) * y),
        ("atan2", |x, y| x.atan2(y)),
        ("atan2 of it", |x, y| y.atan2(x)),
        ("remainder", |x, y| x.remainder(y) * 1.1),
        ("reciprocal", |x, y| x.recip() * y),
        ("root", |x, y| (x.square() + y).sqrt()),
        ("percentage", |x, y| ((x - y.clone()) / y).abs().mean_dim(1)),
        ("cosine", |x, y| cosine_similarity(x, y, 1, None)),
        ("gaussian", |x, y| {
            (y.clone().log() + (x - 0.3).square() / y) * 0.5
        }),
        ("gaussian of a logarithm", |x, y| {
            ((y - 0.3).square() / x.clone().exp() + x) * 0.5
        }),
        ("focal", |x, y| {
            let p = unit(x);
            ((p.clone().neg() + 1.0).powf_scalar(2.0) * p.log() * y).neg()
        }),
        ("dice", |x, y| {
            let p = unit(x);
            let both = (p.clone() * y.clone()).sum_dim(1) * 2.0;
            (both + 1.0) / (p.sum_dim(1) + y.sum_dim(1) + 1.0)
        }),
        ("hinge", |x, y| (x * y).neg().add_scalar(1.0).clamp_min(0.0)),
        ("logarithm of cosh", |x, y| (x - y).cosh().log()),
        ("softmax", |x, y| activation::softmax(x, 1) * y),
        ("softmin", |x, y| activation::softmin(x, 1) * y),
        ("quiet softmax", |x, y| activation::quiet_softmax(x, 1) * y),
        ("log softmax", |x, y| activation::log_softmax(x, 1) * y),
        ("log sigmoid", |x, y| activation::log_sigmoid(x) * y),
        ("softplus", |x, y| activation::softplus(x, 1.0) * y),
        ("mish", |x, y| activation::mish(x) * y),
        ("silu", |x, y| activation::silu(x) * y),
        ("gelu", |x, y| activation::gelu(x) * y),
        ("gelu of a tanh", |x, y| activation::gelu_approximate(x) * y),
        ("elu", |x, y| activation::elu(x, 1.1) * y),
        ("celu", |x, y| activation::celu(x, 1.1) * y),
        ("selu", |x, y| activation::selu(x) * y),
        ("softsign", |x, y| activation::softsign(x) * y),
        ("glu", |x, y| activation::glu(Tensor::cat(vec![x, y], 1), 1)),
        ("variance", |x, y| (x * y).var(1)),
        ("biased variance", |x, y| (x * y).var_bias(1)),
        ("covariance", |x, y| (x * y).cov(1, 1)),
        ("product", |x, y| x.matmul(y.transpose())),
        ("sorted", |x, y| x.sort(1) * y),
        ("largest", |x, y| x.max_dim(1) * y.min_dim(1)),
        ("larger", |x, y| x.max_pair(y.clone()) * y),
        ("running product", |x, y| (x * y).cumprod(1)),
        ("running sum", |x, y| (x * y).cumsum(1)),
        ("product of all", |x, y| (x + y).prod_dim(1)),
        ("masked", |x, y| {
            let mask = x.clone().greater(y.clone());
            x.mask_where(mask, y)
        }),
        ("gathered", |x, y| {
            let largest = x.clone().argmax(1);
            x.gather(1, largest) / y.narrow(1, 0, 1)
        }),
        ("norm", |x, y| {
            burn::tensor::linalg::l2_norm(x / y, 1).log1p()
        }),
        ("angle", |x, y| (x / 8.0).asin() + (y / 8.0).acos()),
        ("error function", |x, y| x.erf() / y),
    ]
}

/// The function, and the gradients of the operands that are not data.
fn function_of<B: Exact>(
    function: Of2<B>,
    operands: [Operand; 2],
    device: &B::Device,
) -> Vec<Vec<f32>> {
    let shape = [4, 4];
    let mut leaves = Vec::new();
    let mut of = |tensor: Tensor<B, 2>, kind: Operand| {
        let tensor = tensor.set_require_grad(kind != Data);
        if kind != Data {
            leaves.push(tensor.clone());
        }
        let tensor = operand::<B>(tensor.into_primitive().tensor(), kind);
        Tensor::from_primitive(TensorPrimitive::Float(tensor))
    };
    let x = of(noise_tensor(shape, 1, device), operands[0]);
    let positive = noise(16, 2).into_iter().map(|x| x.abs() + 0.3).collect();
    let y = of(
        Tensor::from_data(TensorData::new::<f32, _>(positive, shape), device),
        operands[1],
    );
    let out = function(x, y);
    // Burn's own average: its gradient begins in the loss.
    let factor = noise_tensor::<B, 2>(out.dims(), 3, device);
    let grads = (out.clone() * B::exact(factor)).mean().backward();
    let gradients = leaves.iter().map(|leaf| leaf.grad(&grads));
    let gradients = gradients.map(|gradient| gradient.map_or_else(Vec::new, values));
    std::iter::once(values(out)).chain(gradients).collect()
}

fn assert_near(got: &[f32], expected: &[f32]) {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2.0 * f32::EPSILON * b.abs();
    assert!(got.iter().zip(expected).all(near), "{got:?} {expected:?}");
}

#[test]
fn losses_of_ones_own_are_float32s() {
    let mut wrong = Vec::new();
    let [device, _] = devices();
    for ((what, plain), (_, mx)) in functions::<Plain>().into_iter().zip(functions::<Mx>()) {
        for operands in [
            [InPiece, InPiece],
            [InPiece, Data],
            [Data, InPiece],
            [InPiece, Parameter],
            [Parameter, InPiece],
        ] {
            let expected = function_of::<Plain>(plain, operands, &FlexDevice);
            let got = function_of::<Mx>(mx, operands, &device);
            if what == "cosine" && operands.contains(&Parameter) {
                // The sum of a parameter's three gradients has another order.
                assert_near(&got.concat(), &expected.concat());
                continue;
            }
            let differences = differences(&got, &expected).into_iter();
            wrong.extend(differences.map(|problem| format!("{what} of {operands:?}, {problem}")));
        }
    }
    assert_none(&wrong);
}

/// A mean over the tokens that count: the gradient of a logit is (p − 1) / 3, by hand.
#[test]
fn a_masked_mean_has_the_gradient_of_the_formula() {
    let [device, _] = devices();
    let logits = Tensor::<Mx, 2>::from_data([[0.0; 2]; 4], &device).require_grad();
    let targets = Tensor::<Mx, 2, Int>::from_data([[0], [1], [0], [1]], &device);
    let mask = Tensor::<Mx, 1>::from_data([1.0, 1.0, 1.0, 0.0], &device);
    let nll = activation::log_softmax(logits.clone(), 1);
    let nll = nll.gather(1, targets).squeeze_dim::<1>(1).neg();
    let loss = (nll * mask.clone()).sum() / mask.sum();
    let grads = loss.clone().backward();
    assert_same_bits(&values(loss), &[std::f32::consts::LN_2], "loss");
    let gradient = values(logits.grad(&grads).expect("a leaf"));
    let sixth = 0.166_666_67;
    let expected = [-sixth, sixth, sixth, -sixth, -sixth, sixth, 0.0, 0.0];
    for (got, expected) in gradient.iter().zip(expected) {
        assert!((got - expected).abs() < 1.5e-8, "{gradient:?}");
    }
}

/// A deformable convolution whose mask alone is in a piece, in inference.
#[test]
fn a_mask_in_a_piece_exempts_its_convolution() {
    fn convolved<B: Exact>(device: &B::Device) -> Vec<f32> {
        let x = noise_tensor::<B::InnerBackend, 4>([1, 2, 5, 5], 1, device);
        let weight = noise_tensor([3, 2, 3, 3], 2, device);
        let offset = noise_tensor([1, 18, 3, 3], 3, device);
        let mask = noise_tensor::<B, 4>([1, 9, 3, 3], 4, device);
        let options = DeformConvOptions::new([1, 1], [0, 0], [1, 1], 1, 1);
        let mask = Some(B::exact(mask).inner());
        values(module::deform_conv2d(
            x, offset, weight, mask, None, options,
        ))
    }
    let expected = convolved::<Plain>(&FlexDevice);
    for device in devices() {
        assert_same_bits(&convolved::<Mx>(&device), &expected, "convolution");
    }
}
