//! Products that sum up as a chip's matrix unit does: the scalar rule's bits.

use burn_backend::TensorData;
use burn_mx::{
    Accumulation, BlockFormat, FloatFormat, MxBackend, MxDevice, MxSpecs, Packed, RandomStream,
    Rounder,
};
use microscaling::ElementFormat;
use microscaling_product::{AccumulatorOperand, Axis, OperandKind, OperandType};

use super::support::*;
use crate::backend::{TestBackend, TestDevice};

type Tensor<const D: usize> = burn::tensor::Tensor<MxBackend<TestBackend>, D>;

/// Accumulators of chips, of recipes, and of no chip: few and many terms, narrow and wide ones, each rounding, groups.
const ACCUMULATORS: [&str; 42] = [
    "volta",
    "turing",
    "ampere",
    "ada",
    "hopper",
    "blackwell",
    "cdna1",
    "cdna2",
    "cdna3",
    "hopper_promote128",
    "hopper(promote_every=32,scale_at=promotion)",
    "blackwell(promote_every=16,scale_at=promotion)",
    "accumulator(order=joint,terms=5,fraction_bits=7,output=e5m4_rne)",
    "accumulator(order=joint,terms=3,fraction_bits=30,output=f32_rne)",
    "accumulator(order=joint,terms=9,fraction_bits=27,output=bf16_rne,floor_exponent=-20)",
    "accumulator(order=joint,terms=1024,fraction_bits=25,output=f32_rz)",
    "accumulator(order=joint,terms=64,fraction_bits=50,output=f32_rne,floor_exponent=-300)",
    "accumulator(order=joint,terms=8,fraction_bits=1,output=e2m1_rz)",
    "accumulator(order=joint,terms=16,fraction_bits=12,output=f16_rne,promote_every=24)",
    "accumulator(order=joint,terms=1,fraction_bits=10,output=e8m13_rz,promote_every=1)",
    "accumulator(order=joint,terms=4,fraction_bits=23,output=f32_rne,promote_every=16,scale_at=promotion)",
    "accumulator(order=joint,terms=12,fraction_bits=20,output=f32_rne,group=4)",
    "accumulator(order=joint,terms=16,fraction_bits=9,output=e8m13_rz,group=8,promote_every=8,scale_at=promotion)",
    "accumulator(order=joint,terms=6,fraction_bits=40,output=f32_rz,group=2,promote_every=32)",
    "accumulator(order=late,terms=8,fraction_bits=24)",
    "accumulator(order=late,terms=3,fraction_bits=9,output=e5m4_rne,promote_every=16)",
    "accumulator(order=late,terms=16,fraction_bits=20,interleave=true,output=f32_rz)",
    "accumulator(order=late,terms=4,fraction_bits=1,interleave=true,output=f16_rne)",
    "accumulator(order=pairs,terms=4,flush=true)",
    "accumulator(order=pairs,terms=2,output=f32_rz)",
    "accumulator(order=pairs,terms=32,output=bf16_rne,promote_every=16)",
    "accumulator(order=pairs,terms=8,flush=true,output=e5m4_rne)",
    "accumulator(order=pairs,terms=64)",
    "accumulator(order=fma)",
    "accumulator(order=fma,output=e4m2_rne)",
    "accumulator(order=fma,output=bf16_rne,promote_every=16,scale_at=promotion)",
    "accumulator(order=integer,bits=24,promote_every=32)",
    "accumulator(order=integer,bits=32,promote_every=16)",
    "accumulator(order=integer,bits=12,promote_every=32)",
    "accumulator(order=integer,bits=15,overflow=saturate,promote_every=32)",
    "accumulator(order=integer,bits=40,promote_every=32)",
    "accumulator(order=exact,terms=4)",
];

/// Formats of a left and of a right operand in blocks.
const FORMATS: [[&str; 2]; 14] = [
    ["mxfp8_e4m3", "mxfp8_e4m3"],
    ["mxfp8_e5m2", "mxfp8_e4m3"],
    ["mxfp6_e3m2", "mxfp6_e2m3"],
    ["mxfp4", "mxfp8_e5m2"],
    ["mxfp4", "mxfp4"],
    ["nvfp4", "nvfp4"],
    ["nvfp4(tensor_scale=true)", "nvfp4(tensor_scale=true)"],
    ["mxint8", "mxint8"],
    ["mxfp8_e4m3", "nvfp4(tensor_scale=true)"],
    [
        "block(element=fp8_e4m3,scale=ue5m3,block_size=16)",
        "block(element=fp8_e5m2,scale=ue4m3,block_size=48)",
    ],
    [
        "mx(element=float16,block_size=64)",
        "mx(element=bfloat16,block_size=32)",
    ],
    [
        "mx(element=fp8_e4m3fnuz,block_size=16)",
        "mx(element=fp6_e2m3,block_size=8,square=true)",
    ],
    ["mx(element=fp6_e3m2,block_size=0)", "nvfp4(square=true)"],
    [
        "mx(element=fp8_e5m2fnuz,block_size=32)",
        "mx(element=fp8_e4m3fnuz,block_size=32)",
    ],
];

/// Numbers of seven families: [`noise`], ordinary ones, of many binades, few that are not 0, with Inf and NaN, that cancel.
pub(super) fn numbers(family: u64, length: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, family);
    let ordinary = |i: u64| {
        let word = stream.draw(i);
        f32::from_bits(word & 0x807f_ffff | (124 + stream.draw(1 << 32 | i) % 6) << 23)
    };
    let number = |i: u64| {
        let choice = stream.draw(1 << 33 | i);
        match family {
            1 => ordinary(i),
            2 => ordinary(i) * 2.0_f32.powi(choice as i32 % 40),
            3 => match choice % 8 {
                0 => ordinary(i),
                1 => -0.0,
                _ => 0.0,
            },
            4 => match choice % 97 {
                0 => f32::INFINITY,
                1 => f32::NEG_INFINITY,
                2 => f32::NAN,
                _ => ordinary(i),
            },
            5 => ordinary(i / 2) * [1.0, -1.0][i as usize % 2],
            _ => ordinary(i) * 2.0_f32.powi(-110 - choice as i32 % 30),
        }
    };
    match family {
        0 => noise(length, seed),
        _ => (0..length as u64).map(number).collect(),
    }
}

/// The matrix product on the backend; the right operand is a weight.
fn product<const D: usize>(
    specs: &MxSpecs,
    operands: [&[f32]; 2],
    shapes: [[usize; D]; 2],
    turned: bool,
) -> Vec<f32> {
    let specs = specs.resolve().expect("the accumulator takes the operands");
    let device = MxDevice::new(TestDevice::default(), &specs).expect("resolved specs");
    let tensor = |i: usize| {
        let mut shape = shapes[i];
        if !turned {
            let data = TensorData::new(operands[i].to_vec(), shape);
            return Tensor::<D>::from_data(data, &device);
        }
        // The same elements, otherwise in memory.
        let [rows, columns] = [shape[D - 2], shape[D - 1]];
        let matrices = operands[i].chunks_exact(rows * columns);
        let values = matrices.flat_map(|matrix| {
            (0..columns).flat_map(move |column| matrix[column..].iter().step_by(columns).copied())
        });
        shape.swap(D - 2, D - 1);
        let data = TensorData::new(values.collect(), shape);
        Tensor::<D>::from_data(data, &device).swap_dims(D - 2, D - 1)
    };
    let product = tensor(0).matmul(tensor(1).set_require_grad(true));
    product.into_data().into_vec().expect("it is float32")
}

/// The same, one dot product after the other.
fn by_the_rule(
    accumulation: Accumulation,
    lhs: &AccumulatorOperand<'_>,
    rhs: &AccumulatorOperand<'_>,
) -> Vec<f32> {
    let accumulator = accumulation
        .of(lhs.kind, rhs.kind)
        .expect("it has been asked");
    let mut result = Vec::new();
    for row in 0..lhs.free.length {
        for column in 0..rhs.free.length {
            let dot = accumulator.dot(lhs, row, rhs, column, 0.0);
            result.push(dot.expect("the operands are sound"));
        }
    }
    result
}

/// Matrices quantized together, elements and scales apart.
struct Quantized {
    kind: OperandKind,
    elements: Vec<f32>,
    /// [matrix, free, block]
    scales: Vec<f32>,
    free: Axis,
    summed: Axis,
    tensor_scale: f32,
}

impl Quantized {
    /// Row-major matrices of a shape that are summed over an axis, 0 or 1.
    fn new(format: &BlockFormat, values: &[f32], [rows, columns]: [usize; 2], axis: usize) -> Self {
        let shape = [values.len() / (rows * columns), rows, columns];
        let along = if format.square { 2 } else { axis + 1 };
        let packed = Packed::encode(*format, values, &shape, along, Rounder::NearestAway);
        let packed = packed.unwrap_or_else(|error| panic!("{format}: {error}"));
        let apart = packed.elements_and_scales(axis + 1);
        let [elements, mut scales] = apart.expect("blocks lie along the axis");
        let across = Axis {
            length: rows,
            stride: columns,
        };
        let along = Axis {
            length: columns,
            stride: 1,
        };
        if axis == 0 {
            let of_matrix = scales.len() / shape[0];
            let matrices = scales.chunks_exact(of_matrix);
            let turned = matrices.flat_map(|matrix| {
                (0..columns).flat_map(move |line| matrix[line..].iter().step_by(columns).copied())
            });
            scales = turned.collect();
        }
        Self {
            kind: OperandKind::of_format(format).expect("of one element"),
            elements,
            scales,
            free: if axis == 0 { along } else { across },
            summed: if axis == 0 { across } else { along },
            tensor_scale: packed.tensor_scale().unwrap_or(1.0),
        }
    }

    fn operand(&self, matrix: usize) -> AccumulatorOperand<'_> {
        let elements = self.free.length * self.summed.length;
        let scales = self.scales.len() * elements / self.elements.len();
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements[matrix * elements..][..elements],
            free: self.free,
            summed: self.summed,
            scales: &self.scales[matrix * scales..][..scales],
        }
    }
}

/// The products of some of the matrices.
fn of_blocks(
    accumulation: Accumulation,
    [lhs, rhs]: [&Quantized; 2],
    matrices: impl IntoIterator<Item = [usize; 2]>,
) -> Vec<f32> {
    let products = matrices
        .into_iter()
        .flat_map(|[i, j]| by_the_rule(accumulation, &lhs.operand(i), &rhs.operand(j)));
    let scale = f64::from(lhs.tensor_scale) * f64::from(rhs.tensor_scale);
    products
        .map(|value| (f64::from(value) * scale) as f32)
        .collect()
}

fn specs(formats: &[BlockFormat; 2], accumulation: Accumulation) -> MxSpecs {
    MxSpecs {
        a_elem_format: Some(formats[0].into()),
        w_elem_format: Some(formats[1].into()),
        accumulator: Some(accumulation),
        ..MxSpecs::none()
    }
}

pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Every accumulator with every pair of formats that it takes. A device compiles a kernel for each, which takes minutes: there a third of the
/// pairs runs, or all of them with `MX_EVERY_KERNEL`, as in `.ci/long`.
#[test]
fn sums_of_blocks() {
    let mut takes = [0; ACCUMULATORS.len()];
    for (i, texts) in FORMATS.iter().enumerate() {
        let formats = texts.map(parsed::<BlockFormat>);
        let kinds = [0, 1].map(|i| OperandKind::of_format(&formats[i]).expect("of one element"));
        for (accumulator, takes) in ACCUMULATORS.iter().zip(&mut takes) {
            let accumulation: Accumulation = parsed(accumulator);
            if accumulation.of(kinds[0], kinds[1]).is_err() {
                continue;
            }
            *takes += 1;
            // The first, the fourth, … that the accumulator takes.
            if !every_kernel() && *takes % 3 != 1 {
                continue;
            }
            for family in 0..7 {
                let [m, k, n] = match (family + i as u64) % 4 {
                    0 => [5, 100, 7],
                    1 => [3, 33, 4],
                    2 => [4, 7, 3],
                    _ => [2, 320, 3],
                };
                let lhs = numbers(family, m * k, 1 + 10 * i as u64);
                let rhs = numbers(
                    if family == 4 { 1 } else { family },
                    k * n,
                    2 + 10 * i as u64,
                );
                let got = product(
                    &specs(&formats, accumulation),
                    [&lhs, &rhs],
                    [[m, k], [k, n]],
                    family % 2 == 1,
                );
                let lhs = Quantized::new(&formats[0], &lhs, [m, k], 1);
                let rhs = Quantized::new(&formats[1], &rhs, [k, n], 0);
                let expected = of_blocks(accumulation, [&lhs, &rhs], [[0, 0]]);
                let what = format!("{accumulator} of {texts:?}, family {family}, {m} x {k} x {n}");
                assert_same(&got, &expected, &what);
            }
        }
    }
    for (accumulator, takes) in ACCUMULATORS.iter().zip(takes) {
        let is_of_elements = ["volta", "turing", "ampere", "cdna1", "cdna2"];
        assert_eq!(
            takes == 0,
            is_of_elements.contains(accumulator),
            "{accumulator}: {takes}"
        );
    }
}

/// Operands without blocks: float16, bfloat16 and tensor-float-32.
#[test]
fn sums_of_elements() {
    let specs = |fp, bfloat| MxSpecs {
        fp,
        bfloat,
        ..MxSpecs::none()
    };
    let formats = [
        (
            ElementFormat::FLOAT16.into(),
            FloatFormat::fp(16),
            specs(16, 0),
        ),
        (
            ElementFormat::BFLOAT16.into(),
            FloatFormat::bfloat(16),
            specs(0, 16),
        ),
        (OperandType::Tf32, FloatFormat::bfloat(19), specs(0, 19)),
    ];
    for (element, format, specs) in formats {
        let format = format.expect("so many bits are allowed");
        let kind = OperandKind::from(element);
        for accumulator in ACCUMULATORS {
            let accumulation: Accumulation = parsed(accumulator);
            if accumulation.of(kind, kind).is_err() {
                continue;
            }
            for family in 0..7 {
                let [m, k, n] = [5, 70, 6];
                let rounded = |length, seed| {
                    let mut values = numbers(family, length, seed);
                    format.round_slice(&mut values, Rounder::NearestAway);
                    values
                };
                let (lhs, rhs) = (rounded(m * k, 3), rounded(k * n, 4));
                let operand = |elements, free, summed| AccumulatorOperand {
                    kind,
                    elements,
                    free,
                    summed,
                    scales: &[],
                };
                let axis = |length, stride| Axis { length, stride };
                let mut expected = by_the_rule(
                    accumulation,
                    &operand(&lhs, axis(m, k), axis(k, 1)),
                    &operand(&rhs, axis(n, 1), axis(k, n)),
                );
                // The product's result is rounded, too.
                format.round_slice(&mut expected, Rounder::NearestAway);
                let specs = MxSpecs {
                    accumulator: Some(accumulation),
                    ..specs.clone()
                };
                let got = product(&specs, [&lhs, &rhs], [[m, k], [k, n]], family % 2 == 0);
                let what = format!("{accumulator} of {element}, family {family}");
                assert_same(&got, &expected, &what);
            }
        }
    }
}

/// Leading axes broadcast.
#[test]
fn sums_of_several_matrices() {
    for (format, accumulator) in [
        ("mxfp8_e4m3", "hopper"),
        ("nvfp4(tensor_scale=true)", "blackwell"),
        ("mxfp8_e5m2", "hopper(promote_every=32,scale_at=promotion)"),
    ] {
        let formats = [parsed::<BlockFormat>(format); 2];
        let accumulation: Accumulation = parsed(accumulator);
        let [m, k, n] = [4, 50, 5];
        let shapes = [[2, 1, 3, m, k], [1, 2, 3, k, n]];
        // Of one binade: a tensor scale is all matrices'.
        let lhs = numbers(1, shapes[0].iter().product(), 5);
        let rhs = numbers(1, shapes[1].iter().product(), 6);
        let got = product(&specs(&formats, accumulation), [&lhs, &rhs], shapes, true);
        let lhs = Quantized::new(&formats[0], &lhs, [m, k], 1);
        let rhs = Quantized::new(&formats[1], &rhs, [k, n], 0);
        let leading = (0..12).map(|at| (at / 6, at / 3 % 2, at % 3));
        let matrices = leading.map(|(i, j, l)| [i * 3 + l, j * 3 + l]);
        let expected = of_blocks(accumulation, [&lhs, &rhs], matrices);
        assert_same(&got, &expected, &format!("{accumulator} of {format}"));
    }
}

/// More products in a sum than one launch adds up.
#[test]
fn long_sums() {
    for (format, accumulator) in [
        ("mxfp8_e4m3", "hopper"),
        ("nvfp4", "accumulator(order=fma)"),
        ("mxfp8_e5m2", "hopper(promote_every=32,scale_at=promotion)"),
        (
            "mxfp6_e2m3",
            "accumulator(order=joint,terms=8,fraction_bits=20,output=f32_rne,group=4,promote_every=16)",
        ),
    ] {
        let formats = [parsed::<BlockFormat>(format); 2];
        let accumulation: Accumulation = parsed(accumulator);
        let k = 150_001;
        let (lhs, rhs) = (numbers(1, k, 7), numbers(1, 2 * k, 8));
        let shapes = [[1, k], [k, 2]];
        let got = product(&specs(&formats, accumulation), [&lhs, &rhs], shapes, false);
        let lhs = Quantized::new(&formats[0], &lhs, shapes[0], 1);
        let rhs = Quantized::new(&formats[1], &rhs, shapes[1], 0);
        let expected = of_blocks(accumulation, [&lhs, &rhs], [[0, 0]]);
        assert_same(&got, &expected, &format!("{accumulator} of {format}"));
    }
}
