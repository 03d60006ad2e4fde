//! Convolutions that a chip's matrix unit sums up: the device against Flex, which the suite compares with the scalar rule.

use burn::backend::Flex;
use burn::tensor::module::{
    conv_transpose1d, conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d,
};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{Tensor, TensorData};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};

use super::accumulators::{numbers, parsed};
use super::support::*;
use crate::backend::TestBackend;

/// Along each axis: the length of the input, the window, stride, padding and dilation.
type Axes<const N: usize> = [[usize; 5]; N];

/// A convolution of this number of images, groups, and channels of a group.
#[derive(Clone, Copy, Debug)]
struct Case<const N: usize> {
    transposed: bool,
    images: usize,
    groups: usize,
    channels: [usize; 2],
    axes: Axes<N>,
}

impl<const N: usize> Case<N> {
    fn along(&self, what: usize) -> [usize; N] {
        self.axes.map(|axis| axis[what])
    }
}

macro_rules! gradients {
    ($name:ident, $n:literal, $rank:literal, $conv:ident, $transposed:ident) => {
        /// The output, and the gradients of x and the weight.
        fn $name<B: MxKernels>(case: &Case<$n>, specs: &MxSpecs, family: u64) -> [Vec<f32>; 3] {
            let device = MxDevice::new(B::Device::default(), specs).expect("the specs are sound");
            let tensor = |family, seed, leading: [usize; 2], lengths: [usize; $n]| {
                let shape = [&leading[..], &lengths].concat();
                let values = numbers(family, shape.iter().product(), seed);
                Tensor::<MxAutodiff<B>, $rank>::from_data(TensorData::new(values, shape), &device)
            };
            let [inputs, outputs] = case.channels;
            let groups = case.groups;
            let x = tensor(family, 1, [case.images, groups * inputs], case.along(0)).require_grad();
            let leading = match case.transposed {
                false => [groups * outputs, inputs],
                true => [groups * inputs, outputs],
            };
            // Where numbers are NaN, they are in one operand.
            let ordinary = if family == 4 { 1 } else { family };
            let weight = tensor(ordinary, 2, leading, case.along(1)).require_grad();
            let [stride, padding, dilation] = [2, 3, 4].map(|what| case.along(what));
            let output = match case.transposed {
                false => {
                    let options = ConvOptions::new(stride, padding, dilation, groups);
                    $conv(x.clone(), weight.clone(), None, options)
                }
                true => {
                    let more = [1; $n];
                    let options =
                        ConvTransposeOptions::new(stride, padding, more, dilation, groups);
                    $transposed(x.clone(), weight.clone(), None, options)
                }
            };
            let [images, channels, lengths @ ..] = output.dims();
            let grad = tensor(ordinary, 3, [images, channels], lengths);
            let gradients = (output.clone() * grad).sum().backward();
            let values = |data: TensorData| data.into_vec::<f32>().expect("it holds float32");
            [
                values(output.into_data()),
                values(x.grad(&gradients).expect("x is a leaf").into_data()),
                values(
                    weight
                        .grad(&gradients)
                        .expect("the weight is a leaf")
                        .into_data(),
                ),
            ]
        }
    };
}

gradients!(in_a_line, 1, 3, conv1d, conv_transpose1d);
gradients!(in_a_plane, 2, 4, conv2d, conv_transpose2d);
gradients!(in_space, 3, 5, conv3d, conv_transpose3d);

/// Formats of activations and weights, and an accumulator; the last ones have no blocks.
const UNITS: [([&str; 2], &str); 10] = [
    (["mxfp8_e4m3", "mxfp8_e4m3"], "hopper"),
    (
        ["mxfp8_e5m2", "mxfp8_e4m3"],
        "hopper(promote_every=32,scale_at=promotion)",
    ),
    (["nvfp4(tensor_scale=true)"; 2], "blackwell"),
    (
        [
            "mxfp6_e2m3",
            "mx(element=fp6_e2m3,block_size=8,square=true)",
        ],
        "accumulator(order=joint,terms=12,fraction_bits=20,output=f32_rne,group=4)",
    ),
    (
        ["mx(element=fp6_e3m2,block_size=0)", "nvfp4"],
        "accumulator(order=late,terms=16,fraction_bits=20,interleave=true,output=f32_rz)",
    ),
    (
        ["mxint8"; 2],
        "accumulator(order=integer,bits=15,overflow=saturate,promote_every=32)",
    ),
    (
        ["block(element=fp8_e4m3,scale=ue5m3,block_size=16)"; 2],
        "accumulator(order=pairs,terms=4,flush=true)",
    ),
    (["", ""], "ampere"),
    (["", ""], "accumulator(order=fma,output=bf16_rne)"),
    (
        ["", ""],
        "accumulator(order=joint,terms=8,fraction_bits=12,output=f16_rne,promote_every=24)",
    ),
];

fn specs([activations, weights]: [&str; 2], accumulator: &str) -> MxSpecs {
    let accumulator = Some(parsed(accumulator));
    if activations.is_empty() {
        return MxSpecs {
            bfloat: 16,
            accumulator,
            ..MxSpecs::none()
        };
    }
    MxSpecs {
        a_elem_format: Some(parsed(activations)),
        w_elem_format: Some(parsed(weights)),
        // Square blocks are for weights.
        a_elem_format_bp_ex: (!weights.contains("square")).then(|| parsed(weights)),
        accumulator,
        ..MxSpecs::none()
    }
}

/// Every unit on every case, by a function for each backend.
fn check<const N: usize>(
    cases: &[Case<N>],
    device: impl Fn(&Case<N>, &MxSpecs, u64) -> [Vec<f32>; 3],
    flex: impl Fn(&Case<N>, &MxSpecs, u64) -> [Vec<f32>; 3],
) {
    let (mut all, mut of_numbers) = (0, 0);
    for (i, case) in cases.iter().enumerate() {
        let across =
            |channels: &usize| !channels.is_multiple_of(32) && !32_usize.is_multiple_of(*channels);
        let has_parts = case.groups > 1 && case.channels.iter().any(across);
        for (j, (formats, accumulator)) in UNITS.into_iter().enumerate() {
            // Parts of blocks, which these units do not take.
            let needs_blocks = ["blackwell", "group=", "promote_every=32"];
            if has_parts && needs_blocks.iter().any(|it| accumulator.contains(it)) {
                continue;
            }
            let specs = specs(formats, accumulator);
            let family = (i + j) as u64 % 7;
            let [got, expected] = [device(case, &specs, family), flex(case, &specs, family)];
            for (name, (got, expected)) in ["out", "dx", "dw"]
                .into_iter()
                .zip(got.iter().zip(&expected))
            {
                let what = format!("{name} of {case:?}, {formats:?}, {accumulator}, {family}");
                all += expected.len();
                of_numbers += expected.iter().filter(|x| x.is_normal()).count();
                assert_same(got, expected, &what);
            }
        }
    }
    assert!(
        3 * of_numbers > all,
        "{of_numbers} of {all} sums are a number but 0"
    );
}

fn case<const N: usize>(
    transposed: bool,
    images: usize,
    groups: usize,
    channels: [usize; 2],
    axes: Axes<N>,
) -> Case<N> {
    Case {
        transposed,
        images,
        groups,
        channels,
        axes,
    }
}

#[test]
fn sums_of_convolutions() {
    let plane = [[5, 3, 1, 1, 1], [4, 2, 2, 0, 2]];
    check(
        &[
            case(false, 36, 1, [3, 5], [[5, 3, 2, 1, 1]]),
            case(true, 3, 1, [40, 33], [[4, 3, 2, 1, 2]]),
        ],
        in_a_line::<TestBackend>,
        in_a_line::<Flex>,
    );
    check(
        &[
            case(false, 2, 1, [40, 9], plane),
            // A block is of several groups.
            case(true, 2, 4, [8, 4], plane),
            // A block begins in the middle of a group.
            case(false, 2, 2, [48, 40], plane),
        ],
        in_a_plane::<TestBackend>,
        in_a_plane::<Flex>,
    );
    let space = [[3, 2, 1, 1, 1], [2, 2, 1, 0, 1], [3, 1, 2, 0, 1]];
    check(
        &[
            case(false, 2, 1, [5, 9], space),
            case(true, 2, 2, [5, 9], space),
        ],
        in_space::<TestBackend>,
        in_space::<Flex>,
    );
}

/// More windows than a device holds at once.
#[test]
fn sums_in_parts() {
    let specs = specs(["mxfp8_e4m3"; 2], "hopper");
    fn output<B: MxKernels>(specs: &MxSpecs) -> Vec<f32> {
        let device = MxDevice::new(B::Device::default(), specs).expect("the specs are sound");
        let tensor = |seed, shape: [usize; 4]| {
            let data = TensorData::new(numbers(1, shape.iter().product(), seed), shape);
            Tensor::<MxBackend<B>, 4>::from_data(data, &device)
        };
        let [x, weight] = [tensor(1, [2, 2, 80, 80]), tensor(2, [2, 1, 7, 7])];
        let options = ConvOptions::new([1; 2], [1; 2], [1; 2], 2);
        let output = conv2d(x, weight, None, options).into_data();
        output.into_vec().expect("it holds float32")
    }
    let [got, expected] = [output::<TestBackend>(&specs), output::<Flex>(&specs)];
    assert_same(&got, &expected, "two images in two groups");
}
