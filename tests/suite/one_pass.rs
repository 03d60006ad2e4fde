//! Ops that are computed in one pass with their roundings have the bits of rounding, computing and rounding one number
//! after another. Shapes, layout in memory and the number of elements do not matter.

use burn::backend::{Flex, NdArray};
use burn::prelude::*;
use burn::tensor::activation;
use burn_mx::module::emulated;
use burn_mx::{BlockFormat, FloatFormat, Rounder, Rounding};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs, Portable};

use crate::support::*;

/// Zeros, subnormals, the ends of the range, Inf, NaN, ties of bfloat16 and its neighbours.
const SPECIALS: [f32; 18] = [
    0.0,
    -0.0,
    1.0e-45,
    -3.0e-39,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1.0,
    1.003_906_2,
    1.011_718_8,
    -1.003_906_4,
    65_504.0,
    3.389_531_4e38,
    1.0e20,
    -7.5,
];

/// Specials first, then noise.
fn data(count: usize, seed: u64) -> Vec<f32> {
    let mut data = noise(count, seed);
    // Another order for another seed, so that specials meet each other in many pairs.
    for (i, x) in data.iter_mut().enumerate().take(18 * 18) {
        *x = SPECIALS[(i + (seed as usize) * (i / 18)) % 18];
    }
    data
}

/// Specs, and the format and the rounding that they name.
type Specs = (MxSpecs, FloatFormat, Rounding);

fn specs() -> Vec<Specs> {
    let bfloat = |bits, round| MxSpecs {
        bfloat: bits,
        round,
        ..MxSpecs::none()
    };
    let fp = |bits, round| MxSpecs {
        fp: bits,
        round,
        ..MxSpecs::none()
    };
    let format = |specs: &MxSpecs| match specs.fp {
        0 => FloatFormat::bfloat(specs.bfloat).expect("a width of bfloat"),
        bits => FloatFormat::fp(bits).expect("a width of fp"),
    };
    let mut all = Vec::new();
    for round in [
        Rounding::NearestAway,
        Rounding::NearestEven,
        Rounding::TowardZero,
    ] {
        for specs in [bfloat(16, round), bfloat(12, round), fp(16, round)] {
            let format = format(&specs);
            all.push((specs, format, round));
        }
    }
    let flushed = MxSpecs {
        bfloat_subnorms: false,
        ..bfloat(16, Rounding::NearestEven)
    };
    let format = format(&flushed).with_subnormals(false);
    all.push((flushed, format, Rounding::NearestEven));
    all
}

fn device<B: MxKernels>(specs: &MxSpecs) -> MxDevice<B::Device> {
    let specs = specs.resolve().expect("the specs are sound");
    MxDevice::new(B::Device::default(), &specs).expect("resolved specs")
}

/// A name, whether there are two tensors, the op, and the op on single numbers.
type Op<B> = (
    &'static str,
    bool,
    fn(Tensor<B, 3>, Tensor<B, 3>) -> Tensor<B, 3>,
    fn(f32, f32) -> f32,
);

fn ops<B: Backend>() -> [Op<B>; 9] {
    [
        ("add", true, |x, y| x + y, |x, y| x + y),
        ("sub", true, |x, y| x - y, |x, y| x - y),
        ("mul", true, |x, y| x * y, |x, y| x * y),
        ("div", true, |x, y| x / y, |x, y| x / y),
        ("add_scalar", false, |x, _| x + 0.3, |x, _| x + 0.3),
        ("sub_scalar", false, |x, _| x - 0.3, |x, _| x - 0.3),
        ("mul_scalar", false, |x, _| x * 0.3, |x, _| x * 0.3),
        ("div_scalar", false, |x, _| x / 0.3, |x, _| x / 0.3),
        ("sqrt", false, |x, _| x.sqrt(), |x, _| x.sqrt()),
    ]
}

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Dense,
    /// Somebody else holds the buffer, too.
    Shared,
    Transposed,
    /// A window of a larger tensor.
    Sliced,
}

fn tensor<B: Backend>(
    shape: [usize; 3],
    values: &[f32],
    memory: Memory,
    device: &B::Device,
) -> (Tensor<B, 3>, Option<Tensor<B, 3>>) {
    let dense = Tensor::<B, 3>::from_data(TensorData::new(values.to_vec(), shape), device);
    match memory {
        Memory::Dense => (dense, None),
        Memory::Shared => (dense.clone(), Some(dense)),
        Memory::Transposed => {
            let [a, b, c] = shape;
            let mut turned = vec![0.0; values.len()];
            for (i, &x) in values.iter().enumerate() {
                let (row, column) = (i / c % b, i % c);
                turned[i / (b * c) * b * c + column * b + row] = x;
            }
            let turned = Tensor::from_data(TensorData::new(turned, [a, c, b]), device);
            (turned.swap_dims(1, 2), None)
        }
        Memory::Sliced => {
            let padding = Tensor::ones([1, shape[1], shape[2]], device);
            let padded = Tensor::cat(vec![padding.clone(), dense, padding], 0);
            (padded.narrow(0, 1, shape[0]), None)
        }
    }
}

/// Operands of two shapes, and what the ops give for each of some specs: the same on every backend, however they lie in memory.
struct Case<'a> {
    shapes: [[usize; 3]; 2],
    operands: [Vec<f32>; 2],
    specs: &'a [Specs],
    /// By specs and op.
    expected: Vec<Vec<f32>>,
}

impl<'a> Case<'a> {
    fn new(left: [usize; 3], right: [usize; 3], specs: &'a [Specs]) -> Self {
        let output: [usize; 3] = core::array::from_fn(|i| match left[i] {
            0 => 0,
            length => length.max(right[i]),
        });
        let places = |shape: [usize; 3]| -> Vec<usize> {
            let [_, b, c] = output;
            let at = |index: usize| {
                let position = [index / (b * c), index / c % b, index % c];
                (0..3).fold(0, |at, i| at * shape[i] + position[i] % shape[i])
            };
            (0..output.iter().product()).map(at).collect()
        };
        let operands =
            [(left, 1), (right, 5)].map(|(shape, seed)| data(shape.iter().product(), seed));
        // Ops with two operands; an op on the left operand alone keeps its shape.
        let pairs: Vec<_> = places(left).into_iter().zip(places(right)).collect();
        let alone: Vec<_> = (0..operands[0].len()).map(|i| (i, 0)).collect();
        let mut expected = Vec::new();
        for (_, format, rounding) in specs {
            let round = |x: f32| format.round(x, *rounding, 0);
            let [x, y] = operands
                .each_ref()
                .map(|values| values.iter().map(|&x| round(x)).collect::<Vec<_>>());
            for (_, is_binary, _, exact) in ops::<Flex>() {
                let places = if is_binary { &pairs } else { &alone };
                let results = places.iter().map(|&(i, j)| round(exact(x[i], y[j])));
                expected.push(results.collect());
            }
        }
        Self {
            shapes: [left, right],
            operands,
            specs,
            expected,
        }
    }

    fn check<B: MxKernels>(&self, memory: Memory) {
        let [left, right] = self.shapes;
        let [x, y] = &self.operands;
        let mut expected = self.expected.iter();
        for (specs, format, rounding) in self.specs {
            let device = device::<B>(specs);
            for (name, _, op, _) in ops::<MxBackend<B>>() {
                let (lhs, held_lhs) = tensor(left, x, memory, &device);
                let (rhs, held_rhs) = tensor(right, y, memory, &device);
                let got = values(op(lhs, rhs));
                let expected = expected.next().expect("there is one for each specs and op");
                let what = format!("{name} {left:?} {right:?} {memory:?} {format} {rounding:?}");
                assert_same_bits(&got, expected, &what);
                for (held, before) in [(held_lhs, x), (held_rhs, y)] {
                    if let Some(held) = held {
                        assert_same_bits(&values(held), before, &format!("{what}: held"));
                    }
                }
            }
        }
    }
}

fn check_all<B: MxKernels>() {
    let full = [3, 18, 18];
    let others = [
        full,
        [1, 1, 18],
        [1, 18, 18],
        [3, 18, 1],
        [3, 1, 1],
        [1, 18, 1],
        [3, 1, 18],
        [1, 1, 1],
    ];
    let specs = specs();
    let with_full = others.map(|other| [[full, other], [other, full]]);
    let neither = [[[3, 1, 18], [1, 18, 1]], [[2, 0, 4], [1, 1, 4]]];
    for [left, right] in with_full.into_iter().flatten().chain(neither) {
        let case = Case::new(left, right, &specs);
        for memory in [
            Memory::Dense,
            Memory::Shared,
            Memory::Transposed,
            Memory::Sliced,
        ] {
            case.check::<B>(memory);
        }
    }
}

#[test]
fn ops_on_flex_are_those_of_single_numbers() {
    check_all::<Flex>();
}

#[test]
fn ops_on_ndarray_are_those_of_single_numbers() {
    check_all::<NdArray>();
}

#[test]
fn composed_ops_are_those_of_single_numbers() {
    check_all::<Portable<Flex>>();
}

#[test]
fn large_ops_are_those_of_single_numbers() {
    // More elements than one thread works on, and no multiple of the pieces that they are cut into.
    let full = [7, 101, 211];
    // How an op is cut into pieces does not depend on the format: each rounding once, and subnormals flushed.
    let specs: Vec<_> = specs().into_iter().step_by(3).collect();
    for other in [full, [1, 1, 211], [7, 101, 1], [1, 1, 1]] {
        let case = Case::new(full, other, &specs);
        for memory in [Memory::Dense, Memory::Shared] {
            case.check::<Flex>(memory);
            case.check::<NdArray>(memory);
        }
    }
}

/// A name, and the function of each number.
type Function<B> = (&'static str, fn(Tensor<B, 3>) -> Tensor<B, 3>);

/// Functions that the wrapped backend computes.
fn functions<B: Backend>() -> [Function<B>; 8] {
    [
        ("tanh", |x| x.tanh()),
        ("log", |x| x.log()),
        ("log1p", |x| x.log1p()),
        ("sin", |x| x.sin()),
        ("tan", |x| x.tan()),
        ("erf", |x| x.erf()),
        ("atan", |x| x.atan()),
        ("cosh", |x| x.cosh()),
    ]
}

/// Many bfloat16 numbers are looked up in a table, few are computed; another format, and another backend, has other results.
#[test]
fn functions_are_the_backends_between_two_roundings() {
    fn check<B: MxKernels>(shape: [usize; 3]) {
        let x = data(shape.iter().product(), 1);
        for (specs, format, rounding) in specs() {
            let round = |values: &mut [f32]| {
                values
                    .iter_mut()
                    .for_each(|x| *x = format.round(*x, rounding, 0));
            };
            let mut rounded = x.clone();
            round(&mut rounded);
            let device = device::<B>(&specs);
            let plain = functions::<B>().into_iter();
            for ((name, function), (_, plain)) in functions::<MxBackend<B>>().into_iter().zip(plain)
            {
                let (rounded, _) = tensor::<B>(shape, &rounded, Memory::Dense, device.inner());
                let mut expected = values(plain(rounded));
                round(&mut expected);
                for memory in [
                    Memory::Dense,
                    Memory::Shared,
                    Memory::Transposed,
                    Memory::Sliced,
                ] {
                    let what = format!("{name} {shape:?} {memory:?} {format} {rounding:?}");
                    let (x_tensor, held) = tensor(shape, &x, memory, &device);
                    let got = values(function(x_tensor));
                    assert_same_bits(&got, &expected, &what);
                    if let Some(held) = held {
                        assert_same_bits(&values(held), &x, &format!("{what}: held"));
                    }
                }
            }
        }
    }
    for shape in [[3, 18, 18], [7, 31, 40], [3, 18, 18]] {
        check::<Flex>(shape);
        check::<NdArray>(shape);
        check::<Portable<Flex>>(shape);
    }
}

#[test]
fn operands_quantized_in_pieces_are_quantized_as_a_whole() {
    fn quantized<B: MxKernels>(specs: &MxSpecs, shape: [usize; 3], hold: bool) -> Vec<f32> {
        let device = device::<B>(specs);
        let x = noise_tensor::<MxBackend<B>, 3>(shape, 3, &device);
        let held = hold.then(|| x.clone());
        // A product with the identity shows the quantized operand, unless the operand is a constant.
        let eye = emulated(Tensor::<MxBackend<B>, 2>::eye(shape[1], &device));
        let product = values(eye.unsqueeze::<3>().matmul(x));
        if let Some(held) = held {
            assert_same_bits(&values(held), &noise(shape.iter().product(), 3), "held");
        }
        product
    }
    let specs = MxSpecs::mxfp8_e4m3();
    let float = FloatFormat::bfloat(16).expect("a width of bfloat");
    let format = BlockFormat::mx(burn_mx::ElementFormat::FP8_E4M3, 32);
    // Axes that blocks divide, and do not, and exceed; slabs shorter and longer than a piece, one and several.
    for shape in [
        [1, 300, 70],
        [3, 64, 300],
        [3, 70, 300],
        [200, 40, 7],
        [2, 96, 1],
        [2, 33, 4097],
        [5, 12, 7],
        [40, 20, 1],
        [1, 20, 30],
    ] {
        let mut expected = noise(shape.iter().product(), 3);
        float.round_slice(&mut expected, Rounder::NearestEven);
        format
            .quantize(&mut expected, &shape, 1, Rounder::NearestEven)
            .expect("the axis exists");
        for hold in [false, true] {
            let what = format!("{shape:?}, held: {hold}");
            assert_same_bits(&quantized::<Flex>(&specs, shape, hold), &expected, &what);
            assert_same_bits(&quantized::<NdArray>(&specs, shape, hold), &expected, &what);
        }
    }
}

#[test]
fn softmax_in_one_pass_gives_the_composition_of_its_steps() {
    fn softmax<B: MxKernels>(specs: &MxSpecs, rows: bool) -> Vec<f32> {
        let device = device::<B>(specs);
        let count = 40 * 16;
        let mut x = noise(count, 9);
        x[3] = f32::NAN;
        x[17] = f32::INFINITY;
        x[33] = f32::NEG_INFINITY;
        x[50..66].fill(f32::NEG_INFINITY);
        let x = Tensor::<MxBackend<B>, 2>::from_data(TensorData::new(x, [40, 16]), &device);
        // Over the other axis of the transposed tensor it is composed, with another order of additions: the numbers
        // have so few significant bits here that sums are exact.
        values(match rows {
            true => activation::softmax(x, 1),
            false => activation::softmax(x.transpose(), 0).transpose(),
        })
    }
    for exp2 in [false, true] {
        for recip in [false, true] {
            let specs = MxSpecs {
                bfloat: 10,
                softmax_exp2: exp2,
                vec_use_exp2: exp2,
                vec_use_recip: recip,
                round: Rounding::NearestEven,
                ..MxSpecs::none()
            };
            let composed = softmax::<Flex>(&specs, false);
            assert_same_bits(&softmax::<Flex>(&specs, true), &composed, "flex");
            assert_same_bits(&softmax::<NdArray>(&specs, true), &composed, "ndarray");
            assert_same_bits(
                &softmax::<Portable<Flex>>(&specs, true),
                &composed,
                "portable",
            );
        }
    }
}

#[test]
fn log_softmax_in_one_pass_gives_the_composition_of_its_steps() {
    /// The output and the gradient of the input.
    fn log_softmax<B: MxKernels>(specs: &MxSpecs, rows: bool) -> [Vec<f32>; 2] {
        type A<B> = MxAutodiff<B>;
        let device = device::<B>(specs);
        let mut x = noise(40 * 16, 9);
        x[3] = f32::NAN;
        x[17] = f32::INFINITY;
        x[33] = f32::NEG_INFINITY;
        x[50..66].fill(f32::NEG_INFINITY);
        // So few significant bits that sums are exact, rounded or not.
        let mut g = noise(40 * 16, 10);
        let coarse = FloatFormat::bfloat(10).expect("a width of bfloat");
        coarse.round_slice(&mut g, Rounder::NearestEven);
        let tensor = |values: Vec<f32>| {
            Tensor::<A<B>, 2>::from_data(TensorData::new(values, [40, 16]), &device)
        };
        let x = tensor(x).require_grad();
        // Over the other axis of the transposed tensor it is composed.
        let out = match rows {
            true => activation::log_softmax(x.clone(), 1),
            false => activation::log_softmax(x.clone().transpose(), 0).transpose(),
        };
        let grads = A::<B>::loss_with_gradient(out.clone(), tensor(g)).backward();
        [values(out), values(x.grad(&grads).expect("x is a leaf"))]
    }
    for (exp2, recip, quantize_backprop) in [
        (false, false, true),
        (true, false, true),
        (false, true, true),
        (false, false, false),
        (true, true, false),
    ] {
        let specs = MxSpecs {
            bfloat: 10,
            vec_use_exp2: exp2,
            vec_use_recip: recip,
            quantize_backprop,
            quantize_loss: true,
            round: Rounding::NearestEven,
            ..MxSpecs::none()
        };
        let composed = log_softmax::<Flex>(&specs, false);
        let what = format!("{exp2} {recip} {quantize_backprop}");
        assert_all_same_bits(
            &log_softmax::<Flex>(&specs, true),
            &composed,
            &format!("flex {what}"),
        );
        let ndarray = log_softmax::<NdArray>(&specs, true);
        assert_all_same_bits(&ndarray, &composed, &format!("ndarray {what}"));
        let portable = log_softmax::<Portable<Flex>>(&specs, true);
        assert_all_same_bits(&portable, &composed, &format!("portable {what}"));
    }
}
