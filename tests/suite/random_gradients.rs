//! Random graphs of data, parameters and constants, backwards: which gradients are rounded follows from what tensors follow from.
//!
//! The model here knows the rule alone. The rule computes each op by Flex and rounds by `half`.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::prelude::*;
use proptest::prelude::*;

use super::random_scopes::{Origin, elementwise, rounded, runner};
use crate::support::*;

const SHAPE: [usize; 2] = [2, 2];

type Plain2 = Tensor<Flex, 2>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Add,
    Sub,
    Mul,
    AddScalar,
    MulScalar,
    SumDim,
    Matmul,
    Neg,
    Transpose,
    MaskFill,
}

const OPS: [Op; 10] = [
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::AddScalar,
    Op::MulScalar,
    Op::SumDim,
    Op::Matmul,
    Op::Neg,
    Op::Transpose,
    Op::MaskFill,
];

/// An op on earlier tensors. The second operand of a mask says where.
#[derive(Clone, Copy, Debug)]
struct Step {
    op: Op,
    operands: [usize; 2],
    scalar: f32,
}

impl Step {
    fn run<B: Backend>(self, x: Tensor<B, 2>, y: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.op {
            Op::Add => x + y,
            Op::Sub => x - y,
            Op::Mul => x * y,
            Op::AddScalar => x + self.scalar,
            Op::MulScalar => x * self.scalar,
            Op::SumDim => x.sum_dim(1).expand(SHAPE),
            Op::Matmul => x.matmul(y),
            Op::Neg => -x,
            Op::Transpose => x.transpose(),
            Op::MaskFill => x.mask_fill(y.greater_elem(self.scalar), 0.0),
        }
    }

    fn takes_two(self) -> bool {
        let of_two = [Op::Add, Op::Sub, Op::Mul, Op::Matmul, Op::MaskFill];
        of_two.contains(&self.op)
    }

    fn moves(self) -> bool {
        [Op::Neg, Op::Transpose, Op::MaskFill].contains(&self.op)
    }

    /// The gradients of the operands, where `r` rounds if the op is emulated.
    fn gradients(
        self,
        x: Plain2,
        y: Plain2,
        g: Plain2,
        r: fn(Plain2) -> Plain2,
    ) -> [Option<Plain2>; 2] {
        match self.op {
            Op::Add => [Some(r(g.clone())), Some(r(g))],
            Op::Sub => [Some(g.clone()), Some(r(-g))],
            Op::Mul => [Some(r(r(g.clone()) * r(y))), Some(r(r(g) * r(x)))],
            Op::AddScalar => [Some(g), None],
            Op::MulScalar => [Some(r(r(g) * self.scalar)), None],
            Op::SumDim => [Some(r(r(g).sum_dim(1)).expand(SHAPE)), None],
            Op::Matmul => [
                Some(r(r(g.clone()).matmul(r(y).transpose()))),
                Some(r(r(x).transpose().matmul(r(g)))),
            ],
            Op::Neg => [Some(-g), None],
            Op::Transpose => [Some(g.transpose()), None],
            Op::MaskFill => [Some(g.mask_fill(y.greater_elem(self.scalar), 0.0)), None],
        }
    }
}

#[derive(Clone)]
struct Node {
    value: Plain2,
    origin: Origin,
    /// Of a leaf none.
    made_by: Option<Step>,
    uses: usize,
    gradient: Option<Plain2>,
}

/// A graph, and the rule's word on the graph.
struct Model(Vec<Node>);

fn leaves<B: Backend>(device: &B::Device) -> Vec<Tensor<B, 2>> {
    let positions = Tensor::<B, 1, Int>::arange(1..5, device)
        .float()
        .reshape(SHAPE);
    vec![
        noise_tensor(SHAPE, 1, device),
        noise_tensor(SHAPE, 2, device),
        noise_tensor::<B, 2>(SHAPE, 3, device).require_grad(),
        noise_tensor::<B, 2>(SHAPE, 4, device).require_grad(),
        positions / 7.0,
    ]
}

/// The leaves that require gradients.
const PARAMETERS: [usize; 2] = [2, 3];

impl Model {
    fn new() -> Self {
        let leaves = leaves::<Flex>(&FlexDevice).into_iter().enumerate();
        let node = |(i, leaf): (usize, Plain2)| Node {
            value: leaf.detach(),
            origin: Origin {
                data: i < 2,
                parameters: PARAMETERS.contains(&i),
            },
            made_by: None,
            uses: 0,
            gradient: None,
        };
        Self(leaves.map(node).collect())
    }

    fn of(steps: Vec<Step>) -> Self {
        let mut model = Self::new();
        for step in steps {
            model.take(step);
        }
        model
    }

    /// Adds the result of the step, if the rule covers the step: a constant's products have their own rules, and the order of three
    /// gradients' sum is burn-autodiff's.
    fn take(&mut self, mut step: Step) {
        step.operands = step.operands.map(|i| i % self.0.len());
        let [x, y] = step.operands.map(|i| &self.0[i]);
        let mut origin = x.origin;
        if step.takes_two() {
            origin = origin.with(y.origin);
        }
        let is_constant = |node: &Node| node.origin == Origin::default();
        if step.op == Op::Matmul && (is_constant(x) || is_constant(y)) {
            return;
        }
        let used = if step.takes_two() {
            &step.operands[..]
        } else {
            &step.operands[..1]
        };
        if used.iter().any(|i| self.0[*i].uses + used.len() > 2) {
            return;
        }
        let r = rounding(step, origin);
        let value = match step.moves() {
            true => step.run(x.value.clone(), y.value.clone()),
            false => r(step.run(r(x.value.clone()), r(y.value.clone()))),
        };
        for i in used {
            self.0[*i].uses += 1;
        }
        self.0.push(Node {
            value,
            origin,
            made_by: Some(step),
            uses: 0,
            gradient: None,
        });
    }

    /// The last result that a parameter has taken part in.
    fn output(&self) -> Option<usize> {
        let is_output = |node: &Node| node.made_by.is_some() && node.origin.parameters;
        self.0.iter().rposition(is_output)
    }

    /// The gradients of the parameters, for this gradient of the output.
    fn backward(&mut self, output: usize, gradient: Plain2) -> Vec<Vec<f32>> {
        self.0[output].gradient = Some(gradient);
        for i in (0..=output).rev() {
            let Node {
                origin,
                made_by: Some(step),
                gradient: Some(gradient),
                ..
            } = self.0[i].clone()
            else {
                continue;
            };
            let [x, y] = step.operands.map(|i| self.0[i].value.clone());
            let gradients = step.gradients(x, y, gradient, rounding(step, origin));
            for (i, gradient) in step.operands.into_iter().zip(gradients) {
                if let Some(gradient) = gradient {
                    self.0[i].add_gradient(gradient);
                }
            }
        }
        let gradient = |i: usize| self.0[i].gradient.clone().map_or_else(Vec::new, values);
        PARAMETERS.map(gradient).to_vec()
    }
}

impl Node {
    fn add_gradient(&mut self, gradient: Plain2) {
        if !self.origin.parameters {
            return;
        }
        let sum = match self.gradient.take() {
            None => gradient,
            Some(former) if self.origin.is_activation() => {
                rounded(rounded(former) + rounded(gradient))
            }
            Some(former) => former + gradient,
        };
        self.gradient = Some(sum);
    }
}

/// The rounding of an op, of its operands, result and gradients.
fn rounding(step: Step, result: Origin) -> fn(Plain2) -> Plain2 {
    match step.op == Op::Matmul || result.is_activation() {
        true => rounded,
        false => |tensor| tensor,
    }
}

/// The output's values, and the gradients of the parameters.
fn trained<B: Exact>(model: &Model, output: usize, device: &B::Device) -> [Vec<Vec<f32>>; 2] {
    let mut tensors = leaves::<B>(device);
    let parameters = PARAMETERS.map(|i| tensors[i].clone());
    for step in model.0.iter().filter_map(|node| node.made_by) {
        let [x, y] = step.operands.map(|i| tensors[i].clone());
        tensors.push(step.run(x, y));
    }
    let out = tensors.swap_remove(output);
    let grads = B::loss_with_gradient(out.clone(), noise_tensor(SHAPE, 9, device)).backward();
    let gradient = |leaf: Tensor<B, 2>| leaf.grad(&grads).map_or_else(Vec::new, values);
    [vec![values(out)], parameters.map(gradient).to_vec()]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0..OPS.len(), any::<[u8; 2]>(), -2.0f32..2.0).prop_map(|(op, operands, scalar)| Step {
            op: OPS[op],
            operands: operands.map(usize::from),
            scalar,
        });
    prop::collection::vec(step, 2..20)
}

#[test]
fn random_graphs_have_gradients_that_are_rounded_where_activations_are() {
    let device = mx_device(&elementwise());
    let result = runner().run(&steps(), |steps| {
        let mut model = Model::of(steps);
        let Some(output) = model.output() else {
            return Ok(());
        };
        let [value, gradients] = trained::<Mx>(&model, output, &device);
        let expected = model.backward(output, noise_tensor(SHAPE, 9, &FlexDevice));
        // The sign of a product's zero is the backend's.
        let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
        let all_same = |a: &[f32], b: &[f32]| a.len() == b.len() && a.iter().zip(b).all(same);
        let graph = || {
            model
                .0
                .iter()
                .filter_map(|node| node.made_by)
                .collect::<Vec<_>>()
        };
        let expected_value = values(model.0[output].value.clone());
        prop_assert!(
            all_same(&value[0], &expected_value),
            "tensor {output} is {:?}, and not {expected_value:?}, of {:?}",
            value[0],
            graph()
        );
        for (i, (got, expected)) in gradients.iter().zip(&expected).enumerate() {
            prop_assert!(
                all_same(got, expected),
                "gradient {i} by tensor {output} is {got:?}, and not {expected:?}, of {:?}",
                graph()
            );
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
