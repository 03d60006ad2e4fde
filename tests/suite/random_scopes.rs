//! Random graphs of data, parameters, constants and integers: which ops are rounded follows from what their operands follow from.
//!
//! The model here knows the rule alone. The rule computes each op by Flex and rounds by `half`.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::prelude::*;
use burn::tensor::TensorPrimitive;
use burn_mx::{MxBackend, MxSpecs};
use half::bf16;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::*;

const SHAPE: [usize; 2] = [2, 2];

/// The origin of a tensor: nothing but constants, or data, or parameters, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Origin {
    pub(super) data: bool,
    pub(super) parameters: bool,
}

impl Origin {
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            data: self.data || other.data,
            parameters: self.parameters || other.parameters,
        }
    }

    pub(super) fn is_activation(self) -> bool {
        self.data && self.parameters
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    // Computes.
    Add,
    Sub,
    Mul,
    Div,
    AddScalar,
    MulScalar,
    Exp,
    Sqrt,
    Recip,
    Tanh,
    SumDim,
    MeanDim,
    Sum,
    Mean,
    Matmul,
    // Moves.
    Neg,
    Abs,
    Transpose,
    Clamp,
    Larger,
    Cat,
    Gather,
    Select,
    Scatter,
    MaskWhere,
    MaskFill,
    OneHot,
    Positions,
    Powi,
}

const OPS: [Op; 29] = [
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::Div,
    Op::AddScalar,
    Op::MulScalar,
    Op::Exp,
    Op::Sqrt,
    Op::Recip,
    Op::Tanh,
    Op::SumDim,
    Op::MeanDim,
    Op::Sum,
    Op::Mean,
    Op::Matmul,
    Op::Neg,
    Op::Abs,
    Op::Transpose,
    Op::Clamp,
    Op::Larger,
    Op::Cat,
    Op::Gather,
    Op::Select,
    Op::Scatter,
    Op::MaskWhere,
    Op::MaskFill,
    Op::OneHot,
    Op::Positions,
    Op::Powi,
];

/// An op on earlier tensors.
#[derive(Clone, Copy, Debug)]
struct Step {
    op: Op,
    operands: [usize; 3],
    scalar: f32,
}

fn row<B: Backend>(indices: Tensor<B, 2, Int>) -> Tensor<B, 1, Int> {
    indices.reshape([2])
}

/// burn-flex cannot reduce a tensor of [`SHAPE`] that `expand` returns.
fn repeated<B: Backend>(element: Tensor<B, 1>) -> Tensor<B, 2> {
    element.reshape([1, 1]).repeat_dim(0, 2).repeat_dim(1, 2)
}

impl Step {
    /// The op as a program writes it, of tensors of [`SHAPE`]. The indices and the mask are of the second and the third operand.
    fn run<B: Backend>(self, x: Tensor<B, 2>, y: Tensor<B, 2>, z: Tensor<B, 2>) -> Tensor<B, 2> {
        let chosen = |tensor: Tensor<B, 2>| tensor.argmax(1);
        match self.op {
            Op::Add => x + y,
            Op::Sub => x - y,
            Op::Mul => x * y,
            Op::Div => x / y,
            Op::AddScalar => x + self.scalar,
            Op::MulScalar => x * self.scalar,
            Op::Exp => x.exp(),
            Op::Sqrt => x.sqrt(),
            Op::Recip => x.recip(),
            Op::Tanh => x.tanh(),
            Op::SumDim => x.sum_dim(1).repeat_dim(1, 2),
            Op::MeanDim => x.mean_dim(0).repeat_dim(0, 2),
            Op::Sum => repeated(x.sum()),
            Op::Mean => repeated(x.mean()),
            // The sign of a product's zero is the backend's.
            Op::Matmul => x.matmul(y) + 0.0,
            Op::Neg => -x,
            Op::Abs => x.abs(),
            Op::Transpose => x.transpose(),
            Op::Clamp => x.clamp(-self.scalar.abs(), self.scalar.abs()),
            Op::Larger => x.max_pair(y),
            Op::Cat => Tensor::cat(vec![x, y], 0).narrow(0, 1, 2),
            Op::Gather => x.gather(1, chosen(y)).repeat_dim(1, 2),
            Op::Select => x.select(0, row(chosen(y))),
            Op::Scatter => {
                let values = z.narrow(1, 0, 1);
                x.scatter(1, chosen(y), values, burn::tensor::IndexingUpdateOp::Add)
            }
            Op::MaskWhere => x.mask_where(y.greater(z.clone()), z),
            Op::MaskFill => x.mask_fill(y.greater_elem(self.scalar), self.scalar),
            Op::OneHot => row(chosen(y)).one_hot::<2>(2).float(),
            Op::Positions => chosen(y).float().repeat_dim(1, 2),
            Op::Powi => {
                let exponents = (chosen(y) + 1).repeat_dim(1, 2).into_primitive();
                let power = B::float_powi(x.into_primitive().tensor(), exponents);
                Tensor::from_primitive(TensorPrimitive::Float(power))
            }
        }
    }

    /// How many of its operands the op takes, the first ones or all but the first.
    fn takes(self) -> &'static [usize] {
        match self.op {
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Matmul => &[0, 1],
            Op::Larger | Op::Cat | Op::Gather | Op::Select | Op::MaskFill | Op::Powi => &[0, 1],
            Op::Scatter | Op::MaskWhere => &[0, 1, 2],
            Op::OneHot | Op::Positions => &[1],
            _ => &[0],
        }
    }

    fn rule(self) -> Rule {
        match self.op {
            Op::Matmul => Rule::Product,
            Op::Sum | Op::Mean => Rule::ToOneElement,
            Op::MeanDim => Rule::Mean,
            Op::Powi | Op::Scatter => Rule::Rounded,
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::AddScalar | Op::MulScalar => Rule::Rounded,
            Op::Exp | Op::Sqrt | Op::Recip | Op::Tanh | Op::SumDim => Rule::Rounded,
            _ => Rule::Moved,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Of an activation: operands and result.
    Rounded,
    /// A sum that is rounded and divided by two.
    Mean,
    /// Float32 of any operand.
    ToOneElement,
    /// Operands and result, but for constants that were computed.
    Product,
    /// Nothing.
    Moved,
}

/// A tensor of the model.
#[derive(Clone)]
struct Node {
    value: Tensor<Flex, 2>,
    origin: Origin,
}

pub(super) fn rounded(tensor: Tensor<Flex, 2>) -> Tensor<Flex, 2> {
    let shape = tensor.shape();
    let values = values(tensor)
        .into_iter()
        .map(|x| bf16::from_f32(x).to_f32());
    Tensor::from_data(TensorData::new(values.collect(), shape), &FlexDevice)
}

impl Node {
    /// The result of a step by the rule; `None` for one that the rule leaves open here.
    fn of(step: Step, operands: [&Self; 3]) -> Option<Self> {
        let taken = step.takes().iter().map(|i| operands[*i].origin);
        let mut origin = taken.clone().fold(Origin::default(), Origin::with);
        let value = |f: fn(Tensor<Flex, 2>) -> Tensor<Flex, 2>| {
            let [x, y, z] = operands.map(|node| f(node.value.clone()));
            step.run(x, y, z)
        };
        let emulated = match step.rule() {
            // A product of a constant has its own rules.
            Rule::Product if taken.clone().any(|origin| origin == Origin::default()) => {
                return None;
            }
            Rule::Product => true,
            Rule::Moved => {
                // Burn makes the integers of a one-hot tensor anew, of their numbers.
                origin.data |= matches!(step.op, Op::OneHot);
                false
            }
            Rule::ToOneElement => {
                if origin.is_activation() {
                    // A number about the model, such as a loss: data from here on.
                    origin.parameters = false;
                }
                false
            }
            Rule::Rounded | Rule::Mean => origin.is_activation(),
        };
        let value = match (emulated, step.rule()) {
            (false, _) => value(|x| x),
            (true, Rule::Mean) => {
                let sum = rounded(operands[0].value.clone()).sum_dim(0);
                rounded(rounded(sum) / 2.0).repeat_dim(0, 2)
            }
            // Indices and exponents are not rounded, and rounding moves no largest element of these.
            (true, Rule::Rounded) if matches!(step.op, Op::Powi | Op::Scatter) => {
                let [x, y, z] = operands.map(|node| node.value.clone());
                rounded(step.run(rounded(x), y, rounded(z)))
            }
            (true, _) => rounded(value(rounded)),
        };
        Some(Self { value, origin })
    }
}

/// Data, parameters, constants and arithmetic on constants, two of each.
fn leaves<B: Backend>(device: &B::Device) -> Vec<Tensor<B, 2>> {
    let positions = || {
        Tensor::<B, 1, Int>::arange(1..5, device)
            .float()
            .reshape(SHAPE)
    };
    vec![
        noise_tensor(SHAPE, 1, device),
        Tensor::<B, 2, Int>::from_data([[3, 1000], [-7, 257]], device).float(),
        noise_tensor::<B, 2>(SHAPE, 2, device).require_grad(),
        noise_tensor::<B, 2>(SHAPE, 3, device).require_grad(),
        positions() / 7.0,
        Tensor::full(SHAPE, 1.1, device),
    ]
}

fn nodes() -> Vec<Node> {
    let origin = |i| Origin {
        data: i < 2,
        parameters: i == 2 || i == 3,
    };
    let leaves = leaves::<Flex>(&FlexDevice).into_iter().enumerate();
    leaves
        .map(|(i, leaf)| Node {
            value: leaf.detach(),
            origin: origin(i),
        })
        .collect()
}

/// The steps on a backend; those that the model leaves out, it leaves out.
fn run<B: Backend>(steps: &[(Step, [usize; 3])], device: &B::Device) -> Vec<Vec<f32>> {
    let mut tensors = leaves::<B>(device);
    for (step, operands) in steps {
        let [x, y, z] = operands.map(|i| tensors[i].clone());
        tensors.push(step.run(x, y, z));
    }
    tensors.into_iter().map(values).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0..OPS.len(), any::<[u8; 3]>(), -2.0f32..2.0).prop_map(|(op, operands, scalar)| Step {
            op: OPS[op],
            operands: operands.map(usize::from),
            scalar,
        });
    prop::collection::vec(step, 1..16)
}

/// Runs a test on 400 graphs.
pub(super) fn runner() -> TestRunner {
    TestRunner::new(Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    })
}

/// The presets' elementwise format and scope, without blocks.
pub(super) fn elementwise() -> MxSpecs {
    MxSpecs {
        scale_bits: 0,
        block_size: 0,
        w_elem_format: None,
        a_elem_format: None,
        ..MxSpecs::mxfp8_e4m3()
    }
}

#[test]
fn random_graphs_are_rounded_where_activations_are() {
    let device = mx_device(&elementwise());
    let result = runner().run(&steps(), |steps| {
        let mut nodes = nodes();
        let mut taken = Vec::new();
        for step in steps {
            let operands = step.operands.map(|i| i % nodes.len());
            if let Some(node) = Node::of(step, operands.map(|i| &nodes[i])) {
                nodes.push(node);
                taken.push((step, operands));
            }
        }
        for (backend, got) in [
            ("training", run::<Mx>(&taken, &device)),
            ("inference", run::<MxBackend<Flex>>(&taken, &device)),
        ] {
            for (i, (got, node)) in got.into_iter().zip(&nodes).enumerate() {
                let expected = values(node.value.clone());
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                prop_assert!(
                    got.iter().zip(&expected).all(same),
                    "{backend}: tensor {i}, of {:?}, is {got:?}, and not {expected:?}, after {taken:?}",
                    node.origin,
                );
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
