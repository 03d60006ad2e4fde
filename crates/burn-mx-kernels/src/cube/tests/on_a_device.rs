//! Compares kernels by the device's own float32 with kernels by integers. Ordinary numbers give the same results if the
//! device rounds as IEEE 754 says, as Mesa's driver for processors does. So this test runs the arithmetic that CUDA uses.

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, TensorData, read_sync};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use burn_wgpu::WgpuRuntime;
use microscaling::{
    BlockFormat, Dialect, FloatFormat, OperandQuantization, RandomHadamard, RandomStream, Rounding,
    Signs,
};

use super::{ordinary_numbers, rounding_to_bfloat};
use crate::MxKernels;
use crate::arithmetic::Function;
use crate::cube::functions::elementwise;
use crate::cube::launch;
use crate::cube::numbers::float::{FORCED, Float32};
use crate::cube::product::{self, ResultRounding};
use crate::cube::quantize::{self, Job};
use crate::kernel_op::KernelOp;
use crate::kernel_op::norm::{Norm, Normalization};
use crate::kernel_op::op::{BinaryOp, OpRounding, UnaryOp};
use crate::kernel_op::softmax::{LogSoftmax, Softmax};
use crate::product::Operand;

type B = CubeBackend<WgpuRuntime, f32, i32, u32>;
type DeviceTensor = CubeTensor<WgpuRuntime>;

/// Numbers of magnitude 2^-6 to 2.
fn ordinary(shape: [usize; 2], seed: u64) -> DeviceTensor {
    let values = ordinary_numbers(shape.iter().product(), seed);
    B::float_from_data(TensorData::new(values, shape), &Default::default())
}

fn bits(tensor: DeviceTensor) -> Vec<u32> {
    let data = read_sync(B::float_into_data(tensor)).expect("the device computes");
    let values: Vec<f32> = data.into_vec().expect("it holds f32");
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn its_float32_and_integers_agree() {
    let format = FloatFormat::bfloat(20).expect("20 bits are allowed");
    let rounding = rounding_to_bfloat(20);
    let op = OpRounding {
        format,
        rounding: Rounding::NearestEven,
        operands: true,
    };
    let x = || ordinary([9, 50], 1);
    let y = || ordinary([9, 50], 2);
    let row = || B::float_reshape(ordinary([1, 50], 3), [50].into());
    let norm = |norm| Normalization::new(norm, 1e-5, rounding);
    let softmax = Softmax {
        rounding,
        base2: false,
    };
    let hadamard = |block_size, signs: Signs, inverse| KernelOp::Hadamard {
        axis: 1,
        transform: RandomHadamard { block_size },
        signs,
        inverse,
    };
    let random = || Signs::from(RandomStream::new(4, 4));
    let repeated = || Signs::Repeated(0x5a5a_1234_9876_cdef_0246_8ace_1357_9bdf);
    // Several cubes of units, the last of which is not full.
    let rows = || ordinary([9, 384], 4);
    let binary = |function| (KernelOp::Binary(function, op), vec![x(), y()]);
    let unary = |function| (KernelOp::Function(function, rounding), vec![x()]);
    let quantize = |format: &str| {
        let format = format.parse().expect("the format is sound");
        let stream = RandomStream::new(5, 5);
        let op = KernelOp::quantize(1, format, Rounding::Stochastic, stream);
        (op, vec![x()])
    };
    let kernels: Vec<(KernelOp, Vec<DeviceTensor>)> = vec![
        binary(BinaryOp::Add),
        binary(BinaryOp::Sub),
        binary(BinaryOp::Mul),
        binary(BinaryOp::Div),
        (KernelOp::Unary(UnaryOp::Sqrt, op), vec![B::float_abs(x())]),
        (KernelOp::Recip, vec![x()]),
        unary(Function::Exp),
        unary(Function::Gelu),
        (
            KernelOp::FunctionGradient(Function::Gelu, rounding),
            vec![y(), x()],
        ),
        (KernelOp::Softmax(softmax), vec![x()]),
        (KernelOp::LogSoftmax(LogSoftmax { rounding }), vec![x()]),
        (KernelOp::Norm(norm(Norm::Layer)), vec![x(), row(), row()]),
        (
            KernelOp::NormBackward(norm(Norm::Rms)),
            vec![y(), x(), row()],
        ),
        (hadamard(32, random(), false), vec![x()]),
        (hadamard(16, random(), false), vec![rows()]),
        (hadamard(32, random(), true), vec![rows()]),
        (hadamard(64, repeated(), true), vec![rows()]),
        (hadamard(128, repeated(), false), vec![rows()]),
        (hadamard(128, random(), true), vec![rows()]),
        quantize("nvfp4(tensor_scale=true)"),
        quantize("nvfp4(four_over_six=true)"),
        quantize("nvfp4(square=true)"),
        quantize("mx(element=fp4_e2m1,block_size=32,scale_mode=rms)"),
        quantize("block(element=e2m1,scale=ue5m2,block_size=32,sign_scales=true)"),
        quantize("hif4"),
        quantize("if4"),
        quantize(EDEN),
    ];
    for (op, tensors) in kernels {
        let run = || {
            let mut tensors = tensors.iter().cloned();
            let first = tensors.next().expect("an op takes a tensor");
            let others = [tensors.next(), tensors.next()];
            B::kernels().run(op, first, others).0
        };
        let [device, integers] = [Float32::Device, Float32::Integers].map(|float32| {
            FORCED.set(Some(float32));
            bits(run())
        });
        assert_eq!(device, integers, "{op:?}");
    }
}

/// Sums of columns, beside sums in float64, with zeros, infinities and NaN, and without rows.
#[test]
fn columns_are_summed_and_rounded() {
    let bfloat16 = FloatFormat::bfloat(16).expect("16 bits are allowed");
    let rounding = OpRounding {
        format: bfloat16,
        rounding: Rounding::NearestEven,
        operands: false,
    };
    for shape in [
        [0, 3],
        [1, 1],
        [3, 17],
        [16, 16],
        [33, 1],
        [700, 50],
        [2, 0],
    ] {
        let [rows, columns] = shape;
        let mut values = ordinary_numbers(rows * columns, 8);
        if columns == 50 {
            values[3] = f32::INFINITY;
            values[4] = f32::NAN;
            values[5 + 50 * 699] = f32::NEG_INFINITY;
            (0..rows).for_each(|row| values[row * columns + 6] = 0.0);
        }
        let tensor =
            B::float_from_data(TensorData::new(values.clone(), shape), &Default::default());
        for cut in [false, true] {
            // The same in three axes, the second of which has rows of other tensors between.
            let tensor = match cut {
                false => tensor.clone(),
                true => {
                    let three = B::float_reshape(tensor.clone(), [rows, 1, columns].into());
                    let twice = B::float_cat(vec![three.clone(), three], 1);
                    B::float_slice(
                        twice,
                        &[(0..rows).into(), (1..2).into(), (0..columns).into()],
                    )
                }
            };
            let sums = bits(B::kernels().column_sums(tensor, rounding));
            assert_eq!(sums.len(), columns);
            for (column, got) in sums.into_iter().map(f32::from_bits).enumerate() {
                let column: Vec<f64> = (values.iter().skip(column).step_by(columns))
                    .map(|x| f64::from(*x))
                    .collect();
                let exact: f64 = column.iter().sum();
                let magnitudes: f64 = column.iter().map(|x| x.abs()).sum();
                assert_eq!(got.to_bits() & 0xffff, 0, "{got} is a bfloat16");
                let got = f64::from(got);
                // A bfloat16 has 8 significant bits.
                let half_a_step = exact.abs().log2().floor().exp2() / 256.0;
                let is_right = match exact.is_finite() {
                    true => (got - exact).abs() <= half_a_step + magnitudes * 1e-6,
                    false => got.total_cmp(&exact).is_eq() || got.is_nan() && exact.is_nan(),
                };
                assert!(is_right, "{shape:?} {got} {exact}");
            }
        }
    }
}

/// Blocks that a device rounds by few float operations, and their neighbours that are too large, by every rounding.
#[test]
fn tame_blocks() {
    let stream = RandomStream::new(6, 0);
    // Lines of 64 numbers: zeros, and numbers of one to 2^18 parts of the line's largest one, which is 2^-60 to 2^118.
    let number = |i| {
        let word = stream.draw(i);
        let exponent = 67 + (i / 64) as u32 % 179 - word % 19;
        let pattern = word & 0x807f_ffff | exponent << 23;
        // Ties, and numbers without a fraction.
        let pattern = if word >> 8 & 1 == 0 {
            pattern & 0xfff0_0000
        } else {
            pattern
        };
        if word >> 9 & 15 == 0 {
            0.0
        } else {
            f32::from_bits(pattern)
        }
    };
    let values: Vec<f32> = (0..64 * 179).map(number).collect();
    let data = TensorData::new(values, [179, 64]);
    let x: DeviceTensor = B::float_from_data(data, &Default::default());
    let bfloat16 = FloatFormat::bfloat(16).expect("16 bits are allowed");
    for (i, format) in TAME.into_iter().enumerate() {
        for (j, rounding) in Rounding::ALL.into_iter().enumerate() {
            let format = format.parse().expect("the format is sound");
            let op = KernelOp::Quantize {
                axis: 1,
                quantization: OperandQuantization {
                    elementwise: ((i + j) % 2 == 0).then_some((bfloat16, Rounding::NearestEven)),
                    blocks: Some((format, rounding)),
                    stream: RandomStream::new(7, 7),
                    ..OperandQuantization::default()
                },
            };
            let [device, integers] = [Float32::Device, Float32::Integers].map(|float32| {
                FORCED.set(Some(float32));
                bits(B::kernels().run(op, x.clone(), [None, None]).0)
            });
            assert_eq!(device, integers, "{op:?}");
        }
    }
}

const TAME: [&str; 12] = [
    "mxfp8_e4m3",
    "mxfp8_e5m2",
    "mxfp6_e2m3",
    "mxfp4",
    "mxint8",
    "mx4",
    "mx9",
    "bfp16",
    "mx(element=fp4_e2m1,block_size=32,scale_mode=rceil)",
    "nvfp4",
    "nvfp4(tensor_scale=true)",
    "block(element=fp6_e3m2,scale=ue5m2,block_size=32)",
];

/// A product gets the bits of float64 from a device that has float64, and from integers.
#[test]
fn tensor_scales_in_float64() {
    let word = |number: f32| launch::word(&ordinary([1, 1], 0), number.to_bits());
    for scales in [[Some(3.1e-20), Some(7.3e-12)], [None, Some(1.7e19)]] {
        let [device, integers] = [Float32::Device, Float32::Integers].map(|float32| {
            FORCED.set(Some(float32));
            let scaled = |how| {
                let scales = scales.map(|scale| scale.map(word));
                product::scaled(ordinary([9, 50], 9), scales, how)
            };
            let (format, rounding) = (rounding_to_bfloat(16).format, Rounding::NearestEven);
            let stream = RandomStream::new(0, 0);
            let rounded = elementwise::round(scaled(None), format, rounding, stream);
            assert_eq!(
                bits(scaled(Some(ResultRounding { format, rounding }))),
                bits(rounded)
            );
            bits(scaled(None))
        });
        assert_eq!(device, integers, "{scales:?}");
    }
}

/// A product's kernel rounds and adds a bias as a pass over the product does.
#[test]
fn products_with_a_bias() {
    FORCED.set(Some(Float32::Device));
    let operand = |shape: &[usize], seed| {
        let values = ordinary([1, shape.iter().product()], seed);
        B::float_reshape(values, shape.to_vec().into())
    };
    let rounding = OpRounding {
        format: FloatFormat::bfloat(16).expect("16 bits are allowed"),
        rounding: Rounding::NearestEven,
        operands: true,
    };
    for (lhs, rhs, bias) in [
        (vec![5, 8], vec![8, 12], 12),
        (vec![1, 1], vec![1, 1], 1),
        (vec![33, 64], vec![64, 70], 70),
        (vec![600, 64], vec![64, 33], 33),
        (vec![3, 7, 16], vec![1, 16, 24], 24),
        // A stranger's bias that broadcasts.
        (vec![4, 8], vec![8, 6], 1),
    ] {
        let product = || {
            let [lhs, rhs] = [(&lhs, 1), (&rhs, 2)].map(|(shape, seed)| operand(shape, seed));
            [lhs, rhs].map(Operand::of_values)
        };
        let rank = lhs.len();
        let bias = {
            let mut shape = vec![1; rank];
            shape[rank - 1] = bias;
            operand(&shape, 3)
        };
        let [left, right] = product();
        let got = product::rounded::<_, B>(left, right, rounding, Some(bias.clone()));
        let [left, right] = product();
        let expected = product::multiply::<_, B>(left, right);
        let expected = rounding.of_product::<B>(expected, Some(bias));
        assert_eq!(bits(got), bits(expected), "{lhs:?} · {rhs:?}");
    }
}

/// A format whose scales MS-EDEN corrects.
const EDEN: &str = "block(element=fp4_e2m1,scale=ue4m3,tensor_scale=true,block_size=16,eden=true)";

/// Ops with a number have the bits of the processor's own op between two roundings.
#[test]
fn ops_with_a_number() {
    let format = FloatFormat::bfloat(16).expect("16 bits are allowed");
    let rounding = OpRounding {
        format,
        rounding: Rounding::NearestEven,
        operands: true,
    };
    let round = |values: &mut [f32]| {
        format.round_slice(values, Rounding::NearestEven.with(RandomStream::new(0, 0)))
    };
    type Compute = fn(f32) -> f32;
    let ops: [(UnaryOp, Compute); 5] = [
        (UnaryOp::AddScalar(0.3), |x| x + 0.3),
        (UnaryOp::SubScalar(0.3), |x| x - 0.3),
        (UnaryOp::MulScalar(0.3), |x| x * 0.3),
        (UnaryOp::DivScalar(0.3), |x| x / 0.3),
        (UnaryOp::Recip, |x| 1.0 / x),
    ];
    let x = ordinary([9, 50], 1);
    for (op, compute) in ops {
        let mut expected: Vec<f32> = bits(x.clone()).into_iter().map(f32::from_bits).collect();
        round(&mut expected);
        expected.iter_mut().for_each(|x| *x = compute(*x));
        round(&mut expected);
        let expected: Vec<u32> = expected.into_iter().map(f32::to_bits).collect();
        let kernel = KernelOp::Unary(op, rounding);
        let (got, _) = B::kernels().run(kernel, x.clone(), [None, None]);
        assert_eq!(bits(got), expected, "{op:?}");
    }
}

/// Operands for matrix units are written as bfloat16, whose bits this device can hold though it computes nothing with them.
#[test]
fn operands_in_bfloat16_have_the_upper_halves() {
    let upper_halves = |mut tensor: DeviceTensor| -> Vec<u32> {
        assert_eq!(tensor.dtype, DType::BF16);
        tensor.dtype = DType::U16;
        let data = read_sync(B::int_into_data(tensor)).expect("the device computes");
        let halves: Vec<u16> = data.into_vec().expect("it holds u16");
        halves
            .into_iter()
            .map(|half| u32::from(half) << 16)
            .collect()
    };
    let none = RandomStream::new(0, 0);
    let nearest = Rounding::NearestEven;
    for (text, shape, axis) in [
        ("mxfp8_e4m3", [5, 70], 1),
        ("mxfp8_e4m3", [70, 5], 0),
        ("mx9", [9, 64], 1),
        ("nvfp4(four_over_six=true)", [3, 50], 1),
        ("hif4", [3, 130], 1),
        (
            "block(element=table(razer),scale=ue3m3,block_size=8)",
            [9, 64],
            1,
        ),
        (
            "mx(element=fp4_e2m1,block_size=32,square=true)",
            [40, 33],
            1,
        ),
    ] {
        let format: BlockFormat = text.parse().expect("the format is sound");
        let job = Job::of(None, (format, nearest));
        let x = || ordinary(shape, 7);
        let (narrow, _) = quantize::quantize_in_units(x(), DType::BF16, axis, job, none);
        let wide = quantize::quantize(x(), axis, job, none);
        assert_eq!(
            upper_halves(narrow),
            bits(wide),
            "{text} {shape:?} along {axis}"
        );
    }
    let rounding = Some((
        FloatFormat::bfloat(16).expect("16 bits are allowed"),
        nearest,
    ));
    let x = || ordinary([3, 50], 8);
    let narrow = elementwise::round_to(x(), DType::BF16, rounding);
    let wide = elementwise::round_to(x(), DType::F32, rounding);
    assert_eq!(upper_halves(narrow), bits(wide));
}

/// Numbers of all kinds: of each block of 40 another one.
fn numbers_of_all_kinds(length: usize) -> Vec<f32> {
    let stream = RandomStream::new(9, 0);
    let number = |i: u64| {
        let (word, kind) = (stream.draw(i), i / 40 % 6);
        f32::from_bits(match kind {
            0 => word,
            1 => word & 0x80ff_ffff,
            2 => word & 0x8000_ffff,
            3 => word & 0x9fff_f000 | 0x7000_0000,
            4 => word & 0x8000_0000,
            _ => word & 0x807f_ffff | (121 + word % 7) << 23,
        })
    };
    (0..length as u64).map(number).collect()
}

/// Functions of rows have the host's bits on every length: of ordinary numbers and of all kinds, by the device's float32
/// and by integers.
#[test]
fn rows_are_the_hosts() {
    let rounding = rounding_to_bfloat(16);
    let softmax = Softmax {
        rounding,
        base2: false,
    };
    let logarithm = LogSoftmax { rounding };
    let [layer, rms] =
        [Norm::Layer, Norm::Rms].map(|norm| Normalization::new(norm, 1e-5, rounding));
    // With the number of rows that they take, and whether the last is as long as a row.
    let functions = [
        (KernelOp::Softmax(softmax), 0, 0),
        (KernelOp::SoftmaxBackward(softmax), 1, 0),
        (KernelOp::LogSoftmax(logarithm), 0, 0),
        (KernelOp::LogSoftmaxBackward(logarithm), 1, 0),
        (KernelOp::Norm(layer), 0, 2),
        (KernelOp::NormBackward(layer), 1, 1),
        (KernelOp::NormBackward(rms), 1, 1),
    ];
    let tensor = |values: &[f32], shape: &[usize]| {
        let data = TensorData::new(values.to_vec(), shape.to_vec());
        B::float_from_data(data, &Default::default())
    };
    let lengths = [1, 2, 15, 16, 17, 100, 257, 1000, 1024, 5000, 9000];
    for (length, rows) in lengths
        .into_iter()
        .flat_map(|length| [(length, 0), (length, 3)])
    {
        let shape = [rows, length];
        for (op, others, parameters) in functions {
            for all_kinds in [false, true] {
                let values = |seed| match all_kinds {
                    true => numbers_of_all_kinds(rows * length),
                    false => ordinary_numbers(rows * length, seed),
                };
                let tensors: Vec<(Vec<f32>, Vec<usize>)> = (0..=others)
                    .map(|i| (values(i), shape.to_vec()))
                    .chain((0..parameters).map(|i| (ordinary_numbers(length, 9 + i), vec![length])))
                    .collect();
                let mut expected = tensors[0].0.clone();
                let others = [1, 2].map(|i| Some(tensors.get(i)?.0.clone()));
                let second = op.apply(&mut expected, &shape, others);
                for float32 in [Float32::Device, Float32::Integers] {
                    // Mesa's processors flush no subnormal number; but their float32 is not promised.
                    FORCED.set(Some(float32));
                    let mut tensors = tensors.iter().map(|(values, shape)| tensor(values, shape));
                    let first = tensors.next().expect("an op takes a tensor");
                    let others = [tensors.next(), tensors.next()];
                    let (got, products) = B::kernels().run(op, first, others);
                    let pairs = [Some((got, &expected)), products.zip(second.as_ref())];
                    for (got, expected) in pairs.into_iter().flatten() {
                        for (i, (got, expected)) in bits(got).into_iter().zip(expected).enumerate()
                        {
                            let got = f32::from_bits(got);
                            assert!(
                                got.to_bits() == expected.to_bits()
                                    || got.is_nan() && expected.is_nan(),
                                "{op:?} {shape:?} {float32:?}, {i}: {got:e}, not {expected:e}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn dialects_are_the_hosts() {
    let mut compared = 0;
    for dialect in Dialect::ALL {
        for name in dialect.formats() {
            let format: BlockFormat = name.parse().expect("a format");
            for (shape, axis) in [([12, 70], 1), ([70, 12], 0), ([0, 5], 1), ([1, 33], 1)] {
                let length = shape.iter().product();
                let mut all = numbers_of_all_kinds(length);
                let finite = |x: f32| if x.is_finite() { x } else { 1.5 };
                let small = |x: f32| finite(x).clamp(-3.0, 3.0) * 2.0_f32.powi(-130);
                let usual = |x: f32| finite(x).clamp(-3.0, 3.0);
                let inputs = [
                    all.iter().copied().map(finite).collect(),
                    all.iter().copied().map(usual).collect(),
                    all.iter().copied().map(small).collect(),
                    vec![-0.0; length],
                    {
                        all.iter_mut()
                            .skip(5)
                            .step_by(211)
                            .for_each(|x| *x = f32::INFINITY);
                        all
                    },
                ];
                for x in inputs {
                    let mut expected = x.clone();
                    (dialect.quantize(format, &mut expected, &shape, axis)).expect("its format");
                    let op = KernelOp::Dialect {
                        axis,
                        dialect,
                        format,
                    };
                    let tensor = B::float_from_data(TensorData::new(x, shape), &Default::default());
                    // In another order in memory, too.
                    let turned = {
                        let turned = B::float_transpose(tensor.clone());
                        let mut dense = launch::dense(&turned);
                        dense.dtype = DType::F32;
                        B::float_transpose(dense)
                    };
                    for tensor in [tensor, turned] {
                        let got = bits(B::kernels().run(op, tensor, [None, None]).0);
                        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                            let (got, expected) = (f32::from_bits(*got), *expected);
                            let same = got.to_bits() == expected.to_bits()
                                || got.is_nan() && expected.is_nan();
                            assert!(
                                same,
                                "{dialect} {name} {shape:?} {axis}, {i}: {got:e}, not {expected:e}"
                            );
                            compared += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(compared > 100_000, "{compared} numbers");
}
