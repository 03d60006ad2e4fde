//! Convolutions with the sums of a chip's matrix unit: against implicit matrix products that are written out here, sum by sum, by
//! microscaling's scalar rule.

use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(test_backend = "flex")]
use burn::backend::NdArray;
use burn::nn::conv::Conv2dConfig;
use burn::tensor::TensorData;
use burn_mx::{Accumulation, BlockFormat, MxAutodiff, MxKernels, MxSpecs, Packed, Rounder};
use microscaling_product::{Accumulator, AccumulatorOperand, Axis, OperandKind};

use super::accumulators::specs;
use super::convolution_geometries::{AxisCase, Case, Inputs, device};
use crate::support::*;

/// A tensor quantized along an axis: the number that each element is, and its scale.
struct Apart {
    elements: Vec<f32>,
    scales: Vec<f32>,
    tensor_scale: f32,
}

impl Apart {
    fn new(format: BlockFormat, data: &TensorData, axis: usize) -> Self {
        let values = data.to_vec::<f32>().unwrap();
        let shape: Vec<usize> = data.shape.to_vec();
        let packed = Packed::encode(format, &values, &shape, axis, Rounder::NearestAway).unwrap();
        let [elements, scales] = packed.elements_and_scales(axis).unwrap();
        let inner: usize = shape[axis + 1..].iter().product();
        let blocks = shape[axis].div_ceil(format.group_size());
        let scale = |i: usize| {
            let (outer, along) = (i / inner / shape[axis], i / inner % shape[axis]);
            scales[(outer * blocks + along / format.group_size()) * inner + i % inner]
        };
        Self {
            scales: (0..elements.len()).map(scale).collect(),
            elements,
            tensor_scale: packed.tensor_scale().unwrap_or(1.0),
        }
    }
}

/// One sum: what its operands are, at places along K.
struct Sum {
    elements: [Vec<f32>; 2],
    scales: [Vec<f32>; 2],
}

/// The sums of one product, each with K places; blocks have `block` elements.
struct Sums<'a> {
    operands: [&'a Apart; 2],
    block: usize,
    sums: Vec<Sum>,
}

impl<'a> Sums<'a> {
    fn new(operands: [&'a Apart; 2], block: usize, count: usize, k: usize) -> Self {
        let sum = || Sum {
            elements: [vec![0.0; k], vec![0.0; k]],
            scales: [vec![1.0; k / block], vec![1.0; k / block]],
        };
        Self {
            operands,
            block,
            sums: (0..count).map(|_| sum()).collect(),
        }
    }

    fn add(&mut self, sum: usize, k: usize, at: [usize; 2]) {
        for (i, at) in at.into_iter().enumerate() {
            let operand = self.operands[i];
            self.sums[sum].elements[i][k] = operand.elements[at];
            self.sums[sum].scales[i][k / self.block] = operand.scales[at];
        }
    }

    fn results(&self, accumulator: &Accumulator, kind: OperandKind) -> Vec<f32> {
        let one = |sum: &Sum| {
            let [lhs, rhs] = [0, 1].map(|i| AccumulatorOperand {
                kind: OperandKind {
                    block: self.block,
                    ..kind
                },
                elements: &sum.elements[i],
                free: Axis {
                    length: 1,
                    stride: 1,
                },
                summed: Axis {
                    length: sum.elements[i].len(),
                    stride: 1,
                },
                scales: &sum.scales[i],
            });
            let sum = accumulator.dot(&lhs, 0, &rhs, 0, 0.0).unwrap();
            let scales = self.operands.map(|operand| f64::from(operand.tensor_scale));
            (f64::from(sum) * (scales[0] * scales[1])) as f32
        };
        self.sums.iter().map(one).collect()
    }
}

/// Output and gradients of x and weight. Blocks along channels have `block` elements with one scale in every sum; taps and positions
/// begin with a block.
fn by_hand(
    case: &Case,
    inputs: &Inputs,
    format: &str,
    accumulator: &str,
    block: usize,
) -> [Vec<f32>; 3] {
    let [x, weight, bias, grad] = inputs;
    let format: BlockFormat = format.parse().unwrap();
    let kind = OperandKind::of_format(&format).unwrap();
    let accumulation: Accumulation = accumulator.parse().unwrap();
    let accumulator = accumulation.of(kind, kind).unwrap();
    let apart = |data, axis| Apart::new(format, data, axis);
    let [inputs_axis, outputs_axis] = if case.transposed { [0, 1] } else { [1, 0] };
    let (x_forward, w_forward) = (apart(x, 1), apart(weight, inputs_axis));
    let (grad_backward, w_backward) = (apart(grad, 1), apart(weight, outputs_axis));
    let (x_images, grad_images) = (apart(x, 0), apart(grad, 0));
    let taps: usize = case.axes.iter().map(|axis| axis.window).product();
    let of_windows = if case.transposed { x } else { grad };
    let positions: usize = of_windows.shape.as_slice()[2..].iter().product();
    let [of_inputs, of_outputs] = case
        .channels
        .map(|count| count.next_multiple_of(kind.block));
    let of_images = case.images.next_multiple_of(kind.block);
    let count = |data: &TensorData| data.shape.iter().product();
    let [mut out, mut dx, mut dw] = [
        Sums::new(
            [&x_forward, &w_forward],
            block,
            count(grad),
            taps * of_inputs,
        ),
        Sums::new(
            [&grad_backward, &w_backward],
            block,
            count(x),
            taps * of_outputs,
        ),
        Sums::new(
            [&x_images, &grad_images],
            kind.block,
            count(weight),
            positions * of_images,
        ),
    ];
    case.for_each_product(|product| {
        let [x, weight, grad] = product.at;
        out.add(grad, product.tap * of_inputs + product.input, [x, weight]);
        dx.add(x, product.tap * of_outputs + product.output, [grad, weight]);
        dw.add(
            weight,
            product.position * of_images + product.image,
            [x, grad],
        );
    });
    let [mut out, dx, dw] = [out, dx, dw].map(|sums| sums.results(&accumulator, kind));
    let bias = bias.to_vec::<f32>().unwrap();
    let of_plane: usize = grad.shape.as_slice()[2..].iter().product();
    for (i, sum) in out.iter_mut().enumerate() {
        *sum += bias[i / of_plane % bias.len()];
    }
    [out, dx, dw]
}

/// On the backend under test, and on NdArray.
fn check(case: &Case, format: &str, accumulator: &str, block: usize) {
    let numbers: Vec<Vec<f32>> = (0..5).map(|seed| noise(1 << 15, seed)).collect();
    let inputs = case.inputs(|seed, i| numbers[seed as usize][i]);
    let expected = by_hand(case, &inputs, format, accumulator, block);
    let specs = specs(format, accumulator);
    let what = format!("{format} {accumulator} {case:?}");
    check_on::<TestBackend>(case, &inputs, &specs, &expected, &what);
    #[cfg(test_backend = "flex")]
    check_on::<NdArray>(case, &inputs, &specs, &expected, &what);
}

fn check_on<B: MxKernels>(
    case: &Case,
    inputs: &Inputs,
    specs: &MxSpecs,
    expected: &[Vec<f32>; 3],
    what: &str,
) {
    let [out, dx, dw, _] = case.results::<MxAutodiff<B>>(inputs, &device::<B>(specs));
    let got = [out, dx, dw];
    for (name, (got, expected)) in ["out", "dx", "dw"]
        .into_iter()
        .zip(got.iter().zip(expected))
    {
        assert_same_bits(got, expected, &format!("{name} of {what}"));
    }
}

fn axis(length: usize, window: usize, stride: usize, padding: usize, dilation: usize) -> AxisCase {
    AxisCase {
        length,
        window,
        stride,
        padding,
        dilation,
        padding_out: 0,
    }
}

fn case(
    transposed: bool,
    images: usize,
    channels: [usize; 2],
    groups: usize,
    axes: &[AxisCase],
) -> Case {
    Case {
        transposed,
        images,
        channels,
        groups,
        axes: axes.to_vec(),
    }
}

#[test]
fn sums_are_the_units() {
    let plane = [axis(5, 3, 1, 1, 1), axis(4, 2, 2, 0, 2)];
    let space = [
        axis(3, 2, 1, 1, 1),
        axis(2, 2, 1, 0, 1),
        axis(3, 1, 2, 0, 1),
    ];
    for transposed in [false, true] {
        for case in [
            case(transposed, 36, [3, 5], 1, &[axis(5, 3, 2, 1, 1)]),
            case(transposed, 2, [40, 9], 1, &plane),
            // A block is of several groups.
            case(transposed, 2, [8, 4], 4, &plane),
            case(transposed, 2, [32, 16], 2, &[axis(4, 3, 1, 1, 1)]),
            case(transposed, 2, [5, 9], 1, &space),
            // One block of two groups, in whose middle the second one begins.
            case(transposed, 2, [4, 6], 2, &plane),
            // One position: a weight's gradient sums over the images alone.
            case(transposed, 32, [4, 6], 2, &[axis(3, 3, 1, 0, 1)]),
            case(transposed, 32, [4, 6], 2, &[axis(1, 1, 1, 0, 1)]),
        ] {
            for (format, accumulator) in [
                ("mxfp8_e4m3", "hopper"),
                ("mxfp8_e5m2", "hopper(promote_every=32,scale_at=promotion)"),
                ("mxfp4", "blackwell"),
                (
                    "mxint8",
                    "accumulator(order=integer,bits=16,overflow=saturate,promote_every=32)",
                ),
                (
                    "mxfp6_e3m2",
                    "accumulator(order=joint,terms=4,fraction_bits=8,output=e8m7_rz)",
                ),
            ] {
                check(&case, format, accumulator, 32);
            }
            check(&case, "nvfp4(tensor_scale=true)", "blackwell", 16);
        }
    }
}

/// Blocks of 32 channels that begin in the middle of a group of 48: a unit that multiplies scales first takes parts of them, one that
/// needs whole ones does not.
#[test]
fn blocks_across_groups() {
    let across = case(false, 2, [48, 40], 2, &[axis(3, 2, 1, 0, 1)]);
    check(&across, "mxfp8_e4m3", "hopper", 8);
    let specs = specs("mxfp8_e4m3", "hopper(promote_every=32,scale_at=promotion)");
    let device = mx_device(&specs);
    let layer = Conv2dConfig::new([96, 80], [1, 1]).with_groups(2);
    let layer = burn_mx::module::label_parameters(layer.init::<Mx>(&device));
    let x = noise_tensor::<Mx, 4>([1, 96, 2, 2], 1, &device);
    let error = catch_unwind(AssertUnwindSafe(|| drop(values(layer.forward(x))))).unwrap_err();
    let error = error.downcast_ref::<String>().unwrap();
    for part in ["output of convolution weight", "promote_every", "16"] {
        assert!(error.contains(part), "{error}: {part}");
    }
}
