//! Accumulators: the kernels are the rule, and the rule is what arithmetic without it says.

use crate::float_state::{flushing, ieee};
use microscaling::{BlockFormat, ElementFormat, RandomStream, Rounding, ScaleFormat};
use microscaling_product::{
    AccumulateError, Accumulation, Accumulator, AccumulatorMatrix, AccumulatorOperand, Axis, Chip,
    OperandKind, OperandType, Order, Overflow, ScaleAt, ScaleType, SumFormat,
};
use proptest::prelude::*;
use proptest::sample::select;

fn axis(length: usize, stride: usize) -> Axis {
    Axis { length, stride }
}

/// A matrix of an operand, `[lines, length]` or, `transposed`, `[length, lines]`.
#[derive(Debug, Clone)]
struct Matrix {
    kind: OperandKind,
    lines: usize,
    length: usize,
    transposed: bool,
    elements: Vec<f32>,
    scales: Vec<f32>,
}

/// The numbers of an operand.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    /// Binades of magnitudes.
    spread: u32,
    /// The middle of them, in percent of what the type has.
    middle: i32,
    /// The number of NaN or Inf in 1000 elements.
    special: u32,
}

impl Matrix {
    fn new(kind: OperandKind, [lines, length]: [usize; 2], numbers: Numbers, seed: u64) -> Self {
        let stream = RandomStream::new(seed, 0);
        let (emin, emax) = match kind.element {
            OperandType::Element(format) if format.is_integer() => (-6, 0),
            OperandType::Element(format) => (format.emin() - 2, format.emax()),
            _ => (-130, 127),
        };
        let middle = emin + (emax - emin) * numbers.middle / 100;
        let element = |i: usize| {
            let (word, kind_of) = (stream.draw(2 * i as u64), stream.draw(2 * i as u64 + 1));
            match kind_of % 1000 {
                n if n < numbers.special => {
                    return [f32::NAN, f32::INFINITY, -f32::INFINITY][word as usize % 3];
                }
                n if n < 100 => return if word & 1 == 0 { 0.0 } else { -0.0 },
                _ => {}
            }
            let exponent = middle + (kind_of >> 10) as i32 % (numbers.spread as i32 + 1)
                - numbers.spread as i32 / 2;
            of_type(kind.element, word, exponent.clamp(emin, emax))
        };
        let blocks = match (kind.scale, kind.block) {
            (None, _) => 0,
            (_, 0) => usize::from(length > 0),
            (_, block) => length.div_ceil(block),
        };
        let scale = |i: usize| {
            let word = stream.draw((1 << 40) + i as u64);
            match kind.scale.unwrap() {
                _ if word % 1000 < numbers.special / 4 => f32::NAN,
                // The least and the greatest one.
                ScaleType::PowerOfTwo if numbers.special > 0 && word % 100 < 2 => {
                    f32::from_bits([1 << 22, 254 << 23][(word >> 20) as usize % 2])
                }
                ScaleType::PowerOfTwo => {
                    2.0_f32.powi((word >> 10) as i32 % (numbers.spread as i32 + 1) - 4)
                }
                ScaleType::Float(ScaleFormat::FLOAT32) => f32::from_bits(0x3f00_0000 | word >> 8),
                _ => ElementFormat::FP8_E4M3.decode(word % 127),
            }
        };
        Self {
            kind,
            lines,
            length,
            transposed: seed & 1 == 1,
            elements: (0..lines * length).map(element).collect(),
            scales: (0..lines * blocks).map(scale).collect(),
        }
    }

    fn operand(&self) -> AccumulatorOperand<'_> {
        let (free, summed) = match self.transposed {
            true => (axis(self.lines, 1), axis(self.length, self.lines)),
            false => (axis(self.lines, self.length), axis(self.length, 1)),
        };
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements,
            free,
            summed,
            scales: &self.scales,
        }
    }

    /// An element times its scale.
    fn value(&self, line: usize, at: usize) -> f64 {
        let operand = self.operand();
        let element = self.elements[line * operand.free.stride + at * operand.summed.stride];
        let scale = match (self.scales.len() / self.lines, self.kind.block) {
            (0, _) => 1.0,
            (_, 0) => self.scales[line],
            (blocks, block) => self.scales[line * blocks + at / block],
        };
        f64::from(element) * f64::from(scale)
    }
}

/// A number of the type with this exponent, or as close as there is one.
fn of_type(element: OperandType, word: u32, exponent: i32) -> f32 {
    let sign = if word & 1 == 0 { 1.0 } else { -1.0 };
    let x = (1.0 + f64::from(word >> 9) / f64::from(1 << 23)) * 2.0_f64.powi(exponent);
    let unit = |emin: i32, bits: u32| 2.0_f64.powi(exponent.max(emin) - bits as i32);
    let (unit, max) = match element {
        OperandType::Element(format) if format.is_integer() => {
            (f64::from(format.min_subnormal()), f64::from(format.max()))
        }
        OperandType::Element(format) => (
            unit(format.emin(), format.mantissa_bits()),
            f64::from(format.max()),
        ),
        OperandType::Tf32 => (unit(-126, 10), f64::from(f32::from_bits(0x7f7f_e000))),
        _ => (unit(-126, 23), f64::from(f32::MAX)),
    };
    ieee(|| (sign * ((x / unit).floor() * unit).min(max)) as f32)
}

fn elements() -> impl Strategy<Value = OperandType> {
    let named: Vec<OperandType> = ElementFormat::NAMED.into_iter().map(Into::into).collect();
    prop_oneof![
        4 => select(vec![
            OperandType::Element(ElementFormat::FP8_E4M3),
            OperandType::Element(ElementFormat::FP8_E5M2),
            OperandType::Element(ElementFormat::FP4_E2M1),
            OperandType::Element(ElementFormat::BFLOAT16),
            OperandType::Element(ElementFormat::FLOAT16),
        ]),
        2 => select(named),
        1 => Just(OperandType::Tf32),
        1 => Just(OperandType::Float32),
    ]
}

fn scales() -> impl Strategy<Value = (Option<ScaleType>, usize)> {
    let some = |scale| Just(Some(scale));
    let blocks = select(vec![0, 16, 32, 64_usize]);
    prop_oneof![
        3 => Just((None, 0)),
        3 => (some(ScaleType::PowerOfTwo), blocks.clone()),
        2 => (some(ScaleType::Float(ScaleFormat::UE4M3)), blocks.clone()),
        1 => (some(ScaleType::Float(ScaleFormat::FLOAT32)), blocks),
    ]
}

fn outputs() -> impl Strategy<Value = SumFormat> {
    let any = (2..=8_u32, 1..=23_u32, any::<bool>()).prop_map(|(exponent, mantissa, nearest)| {
        let rounding = if nearest {
            Rounding::NearestEven
        } else {
            Rounding::TowardZero
        };
        SumFormat::new(exponent, mantissa, rounding).unwrap()
    });
    let named = vec![
        SumFormat::F32_RZ,
        SumFormat::F32_RNE,
        SumFormat::E8M13_RZ,
        SumFormat::F16_RNE,
    ];
    prop_oneof![3 => select(named), 1 => any]
}

fn orders() -> impl Strategy<Value = Order> {
    let joint = (
        prop_oneof![select(vec![4, 8, 16, 32, 64_usize]), 1..=40_usize],
        prop_oneof![select(vec![8, 13, 23, 24, 25_u32]), 1..=60_u32],
        select(vec![-133, -132, -139, 0, -30, -300]),
        select(vec![1, 1, 1, 4, 16_usize]),
        outputs(),
    );
    let joint =
        joint.prop_map(
            |(terms, fraction_bits, floor_exponent, group, output)| Order::Joint {
                terms: terms.next_multiple_of(group),
                fraction_bits,
                floor_exponent,
                group,
                output,
            },
        );
    let terms = select(vec![4, 8, 16_usize]);
    let late = (
        terms.clone(),
        prop_oneof![Just(24), 1..=31_u32],
        any::<bool>(),
        outputs(),
    );
    let late = late.prop_map(|(terms, fraction_bits, interleave, output)| Order::Late {
        terms,
        fraction_bits,
        interleave,
        output,
    });
    let pairs = (select(vec![2, 4, 8, 16_usize]), any::<bool>(), outputs());
    let pairs = pairs.prop_map(|(terms, flush, output)| Order::Pairs {
        terms,
        flush,
        output,
    });
    prop_oneof![
        6 => joint,
        2 => late,
        1 => (terms, outputs()).prop_map(|(terms, output)| Order::Exact { terms, output }),
        2 => pairs,
        1 => outputs().prop_map(|output| Order::Fma { output }),
    ]
}

fn integers() -> impl Strategy<Value = Order> {
    let overflow = select(Overflow::ALL.to_vec());
    (prop_oneof![2..=24_u32, 2..=62_u32], overflow)
        .prop_map(|(bits, overflow)| Order::Integer { bits, overflow })
}

/// Accumulators with operands that they take.
fn products() -> impl Strategy<Value = (Accumulator, [OperandKind; 2])> {
    let kinds = (elements(), elements(), scales(), any::<bool>());
    let kinds = kinds.prop_map(|(lhs, rhs, (scale, block), both)| {
        let kind = |element, scale| OperandKind {
            element,
            scale,
            block,
        };
        [kind(lhs, scale), kind(if both { lhs } else { rhs }, scale)]
    });
    let floats = (
        orders(),
        kinds,
        select(vec![0, 1, 16, 32, 48, 128_usize]),
        any::<bool>(),
    );
    let floats = floats.prop_map(|(order, kinds, every, late)| {
        let scale_at = if late && every > 0 {
            ScaleAt::Promotion
        } else {
            ScaleAt::Product
        };
        let accumulator = Accumulator {
            promote_every: every,
            scale_at,
            ..Accumulator::new(order)
        };
        (accumulator, kinds)
    });
    let fixed = select(vec![(8, 6), (4, 2), (16, 14), (2, 0), (6, 4)]);
    let fixed = (integers(), fixed.clone(), fixed, scales(), any::<bool>());
    let fixed = fixed.prop_map(|(order, lhs, rhs, (scale, block), whole)| {
        let kind = |(bits, fraction_bits)| OperandKind {
            element: ElementFormat::fixed(bits, fraction_bits).unwrap().into(),
            scale,
            block,
        };
        let accumulator = Accumulator {
            promote_every: if whole { block } else { block / 2 },
            ..Accumulator::new(order)
        };
        (accumulator, [lhs, rhs].map(kind))
    });
    prop_oneof![5 => floats, 1 => fixed].prop_filter("taken", |(accumulator, [lhs, rhs])| {
        accumulator.check(*lhs, *rhs).is_ok()
    })
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let special = select(vec![0, 0, 0, 2, 40]);
    (select(vec![0, 4, 10, 40, 200_u32]), 0..=100, special).prop_map(|(spread, middle, special)| {
        Numbers {
            spread,
            middle,
            special,
        }
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// All dot products by the rule.
fn rule(accumulator: &Accumulator, lhs: &Matrix, rhs: &Matrix, c: &[f32]) -> Vec<f32> {
    let (lhs, rhs) = (lhs.operand(), rhs.operand());
    let dot = |at: usize| {
        let (row, column) = (at / rhs.free.length, at % rhs.free.length);
        accumulator.dot(&lhs, row, &rhs, column, c[at]).unwrap()
    };
    (0..c.len()).map(dot).collect()
}

/// Sums that a product may start from.
fn sums(count: usize, kind: u32, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 7);
    let sum = |i: u64| match (kind, stream.draw(i)) {
        (0, _) => 0.0,
        (1, word) => word as i32 as f32 / 2.0_f32.powi(30),
        (_, word) => f32::from_bits(word),
    };
    (0..count as u64).map(sum).collect()
}

/// More cases than usual, and those that `PROPTEST_CASES` asks for.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: usual.cases.max(1500),
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn kernels_are_the_rule(
        (accumulator, kinds) in products(),
        shape in prop_oneof![[1..=3_usize, 1..=70, 0..=70], [1..=20_usize, 1..=40, 1..=20]],
        numbers in numbers(),
        kind in 0..=2_u32,
        seed in any::<u64>(),
    ) {
        let [m, n, k] = shape;
        let lhs = Matrix::new(kinds[0], [m, k], numbers, seed);
        let rhs = Matrix::new(kinds[1], [n, k], numbers, seed >> 1 ^ 5);
        let c = sums(m * n, kind, seed);
        let expected = bits(&rule(&accumulator, &lhs, &rhs, &c));
        let run = || {
            let mut result = c.clone();
            accumulator.multiply_add(&lhs.operand(), &rhs.operand(), &mut result).unwrap();
            result
        };
        let got = bits(&run());
        for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
            // Without products a NaN stays.
            prop_assert!(
                got == expected || k == 0 && f32::from_bits(*got).is_nan(),
                "{accumulator} of {} and {}, {at}: {:e}, not {:e}",
                kinds[0], kinds[1], f32::from_bits(*got), f32::from_bits(*expected),
            );
        }
        prop_assert_eq!(bits(&flushing(run)), got);
        prop_assert_eq!(bits(&flushing(|| rule(&accumulator, &lhs, &rhs, &c))), expected);
    }

    /// Float64 holds sums of products of FP8 exactly, and is rounded once to float32.
    #[test]
    fn joint_with_enough_bits_is_the_exact_sum_rounded_once(
        kind in (select(vec![ElementFormat::FP8_E4M3, ElementFormat::FP6_E3M2]), any::<bool>()),
        k in 1..=64_usize,
        numbers in numbers(),
        seed in any::<u64>(),
    ) {
        let (element, scaled) = kind;
        let kind = OperandKind {
            element: element.into(),
            scale: scaled.then_some(ScaleType::PowerOfTwo),
            block: 32,
        };
        let numbers = Numbers { special: 0, spread: numbers.spread.min(4), ..numbers };
        let lhs = Matrix::new(kind, [2, k], numbers, seed);
        let rhs = Matrix::new(kind, [3, k], numbers, seed ^ 9);
        let exact = |at: usize| {
            let products = (0..k).map(|p| lhs.value(at / 3, p) * rhs.value(at % 3, p));
            products.sum::<f64>()
        };
        let accumulator = Accumulator::joint(64, 60, SumFormat::F32_RNE);
        let cut = Accumulator::joint(64, 60, SumFormat::F32_RZ);
        let units = Accumulator::new(Order::Exact { terms: 64, output: SumFormat::F32_RNE });
        for at in 0..6 {
            let exact = exact(at);
            let dot = |accumulator: Accumulator| {
                accumulator.dot(&lhs.operand(), at / 3, &rhs.operand(), at % 3, 0.0).unwrap()
            };
            let nearest = exact as f32 + 0.0;
            prop_assert_eq!(dot(accumulator).to_bits(), nearest.to_bits());
            prop_assert_eq!(dot(units).to_bits(), nearest.to_bits());
            let down = f64::from(dot(cut));
            prop_assert!(down.abs() <= exact.abs() && (exact - down).abs() <= exact.abs() * 2.0_f64.powi(-23));
        }
    }

    /// A product of bfloat16 is exact, so that each addition rounds once.
    #[test]
    fn promotion_after_each_element_is_a_chain_of_float32(
        k in 1..=80_usize,
        terms in 1..=64_usize,
        numbers in numbers(),
        start in any::<f32>(),
        seed in any::<u64>(),
    ) {
        let kind = OperandKind::from(ElementFormat::BFLOAT16);
        // Where no product is below 2^-133, the floor, or overflows.
        let numbers = Numbers { spread: numbers.spread.min(40), middle: 50, ..numbers };
        let lhs = Matrix::new(kind, [1, k], numbers, seed);
        let rhs = Matrix::new(kind, [1, k], numbers, seed ^ 3);
        let accumulator = Accumulator {
            promote_every: 1,
            ..Accumulator::joint(terms, 25, SumFormat::F32_RZ)
        };
        let fma = Accumulator::new(Order::Fma { output: SumFormat::F32_RNE });
        let chain = (0..k).fold(start, |sum, p| {
            let [a, b] = [&lhs, &rhs].map(|matrix| matrix.value(0, p) as f32);
            a.mul_add(b, sum)
        });
        for accumulator in [accumulator, fma] {
            let mut result = [start];
            accumulator.multiply_add(&lhs.operand(), &rhs.operand(), &mut result).unwrap();
            // A partial sum is never -0.
            let same = result[0] == chain || result[0].is_nan() && chain.is_nan();
            prop_assert!(same, "{accumulator}: {:e}, not {chain:e}", result[0]);
        }
    }

    #[test]
    fn integers_wrap_or_saturate(
        order in integers(),
        k in 1..=100_usize,
        numbers in numbers(),
        seed in any::<u64>(),
    ) {
        let Order::Integer { bits, overflow } = order else { unreachable!() };
        let kind = OperandKind::from(ElementFormat::INT8);
        let numbers = Numbers { special: 0, ..numbers };
        let lhs = Matrix::new(kind, [1, k], numbers, seed);
        let rhs = Matrix::new(kind, [1, k], numbers, seed ^ 3);
        let half = 1_i128 << (bits - 1);
        let sum = (0..k).fold(0_i128, |sum, p| {
            let product = lhs.value(0, p) * 64.0 * rhs.value(0, p) * 64.0;
            let sum = sum + product as i128;
            match overflow {
                Overflow::Wrap => (sum + half).rem_euclid(2 * half) - half,
                Overflow::Saturate => sum.max(-half).min(half - 1),
            }
        });
        let mut result = [0.0];
        let accumulator = Accumulator::new(order);
        accumulator.multiply(&lhs.operand(), &rhs.operand(), &mut result).unwrap();
        prop_assert_eq!(result[0], sum as f32 / 4096.0);
    }

    #[test]
    fn text_is_read_back((accumulator, _) in products(), chip in select(Chip::ALL.to_vec())) {
        let text = accumulator.to_string();
        prop_assert_eq!(text.parse::<Accumulator>().unwrap(), accumulator, "{}", text);
        prop_assert_eq!(text.parse::<Accumulation>().unwrap(), accumulator.into());
        let choice = Accumulation::Chip {
            chip,
            promote_every: accumulator.promote_every,
            scale_at: match accumulator.promote_every {
                0 => ScaleAt::Product,
                _ => accumulator.scale_at,
            },
        };
        prop_assert_eq!(choice.to_string().parse::<Accumulation>().unwrap(), choice);
        #[cfg(feature = "serde")]
        {
            let json = serde_json::to_string(&choice).unwrap();
            prop_assert_eq!(serde_json::from_str::<Accumulation>(&json).unwrap(), choice);
            let json = serde_json::to_string(&accumulator).unwrap();
            prop_assert_eq!(serde_json::from_str::<Accumulator>(&json).unwrap(), accumulator);
        }
    }
}

/// Elements times scales are what quantizing gives.
#[test]
fn matrices_are_quantized_apart() {
    let others = [
        "mx(element=int4,block_size=7,square=true)",
        "block(element=e2m1,scale=bfloat16,block_size=5)",
    ];
    let square = [
        "nvfp4(tensor_scale=true,square=true)",
        "mx(element=e5m2,block_size=0)",
    ];
    let stream = RandomStream::new(3, 0);
    let rounder = Rounding::NearestEven.with(stream);
    let mut data: Vec<f32> = (0..45 * 50).map(|i| stream.draw(i) as i32 as f32).collect();
    data[77] = f32::NAN;
    let mut refused = Vec::new();
    for name in BlockFormat::NAMES.into_iter().chain(others).chain(square) {
        let format: BlockFormat = name.parse().unwrap();
        for axis in 0..2 {
            let Ok(matrix) = AccumulatorMatrix::quantize(&format, &data, [45, 50], axis, rounder)
            else {
                refused.push(name);
                continue;
            };
            let mut expected = data.clone();
            format
                .quantize(&mut expected, &[45, 50], axis, rounder)
                .unwrap();
            let operand = matrix.operand();
            let matrix_of = Matrix {
                kind: operand.kind,
                lines: operand.free.length,
                length: operand.summed.length,
                transposed: axis == 0,
                elements: operand.elements.to_vec(),
                // Halves: the scale 2^128 of a block with NaN or Inf is beyond float32.
                scales: operand
                    .scales
                    .iter()
                    .map(|scale| match *scale {
                        f32::INFINITY => 2.0_f32.powi(127),
                        scale => scale / 2.0,
                    })
                    .collect(),
            };
            let factor = if operand.kind.scale.is_some() {
                2.0
            } else {
                1.0
            };
            for (at, expected) in expected.into_iter().enumerate() {
                let [row, column] = [at / 50, at % 50];
                let value = match axis {
                    0 => matrix_of.value(column, row),
                    _ => matrix_of.value(row, column),
                };
                let got = factor * value * f64::from(matrix.tensor_scale().unwrap_or(1.0));
                // NaN is 1.5 · 2^128.
                let is_top = name == "bfp16ebs8" && got.abs() == 1.5 * 2.0_f64.powi(128);
                let is_nan = got.is_nan() || is_top;
                let same = got as f32 == expected || is_nan && expected.is_nan();
                assert!(same, "{name}, axis {axis}: {got:e}, not {expected:e}");
            }
            // Every number is one of its type.
            let fma = Accumulator::new(Order::Fma {
                output: SumFormat::F32_RNE,
            });
            let mut result = vec![0.0; operand.free.length * operand.free.length];
            fma.multiply(&operand, &operand, &mut result).unwrap();
        }
    }
    let refusing = [
        "mx4", "mx4", "mx6", "mx6", "mx9", "mx9", "bfp16", "bfp16", "nf4", "nf4", "if4", "if4",
        "razer", "razer", "hif4", "hif4", "amxfp4", "amxfp4",
    ];
    assert_eq!(refused, refusing);
}

/// A tree of float32 adders.
#[test]
fn pairs_are_trees_of_float32() {
    let kind = OperandKind::from(ElementFormat::FP8_E5M2);
    let numbers = Numbers {
        spread: 30,
        middle: 50,
        special: 0,
    };
    let (lhs, rhs) = (
        Matrix::new(kind, [3, 37], numbers, 1),
        Matrix::new(kind, [40, 37], numbers, 2),
    );
    for terms in [2, 4, 8, 32] {
        let accumulator = Accumulator::new(Order::Pairs {
            terms,
            flush: false,
            output: SumFormat::F32_RNE,
        });
        let mut result = vec![0.0; 120];
        accumulator
            .multiply(&lhs.operand(), &rhs.operand(), &mut result)
            .unwrap();
        for (at, got) in result.into_iter().enumerate() {
            let product = |p| match p < 37 {
                true => (lhs.value(at / 40, p) * rhs.value(at % 40, p)) as f32,
                false => 0.0,
            };
            let sum = (0..37).step_by(terms).fold(0.0, |c, start| {
                let mut sums: Vec<f32> = (start..start + terms).map(product).collect();
                while sums.len() > 1 {
                    sums = sums.chunks(2).map(|pair| pair[0] + pair[1]).collect();
                }
                c + sums[0]
            });
            assert_eq!(got, sum, "{terms} terms, {at}");
        }
    }
}

/// The longer a sum is, the more of each term Hopper cuts off, unless partial sums are promoted.
#[test]
fn promotion_makes_the_error_independent_of_the_length() {
    let error = |choice: &str, k: usize| {
        let stream = RandomStream::new(k as u64, 3);
        let data = |start: usize| -> Vec<f32> {
            let word = |i: usize| stream.draw((start + i) as u64);
            (0..8 * k)
                .map(|i| word(i) as f32 / 2.0_f32.powi(32))
                .collect()
        };
        let format = "mxfp8_e4m3".parse().unwrap();
        let matrix = |data: &[f32]| {
            let rounder = Rounding::NearestEven.with(stream);
            AccumulatorMatrix::quantize(&format, data, [8, k], 1, rounder).unwrap()
        };
        let (lhs, rhs) = (matrix(&data(0)), matrix(&data(8 * k)));
        let product = |choice: &str| {
            let (lhs, rhs) = (lhs.operand(), rhs.operand());
            let accumulator = choice
                .parse::<Accumulation>()
                .unwrap()
                .of(lhs.kind, rhs.kind);
            let mut result = vec![0.0; 64];
            accumulator
                .unwrap()
                .multiply(&lhs, &rhs, &mut result)
                .unwrap();
            result
        };
        let exact = product("accumulator(order=exact,terms=1024)");
        let errors = product(choice).into_iter().zip(exact);
        errors
            .map(|(got, exact)| f64::from((got - exact).abs() / exact))
            .sum::<f64>()
            / 64.0
    };
    let [short, long] = [256, 8192].map(|k| error("hopper", k));
    assert!(long > 10.0 * short, "{short:e} {long:e}");
    let [short, long] = [256, 8192].map(|k| error("hopper_promote128", k));
    assert!(long < 2.0 * short, "{short:e} {long:e}");
}

/// Sums of what Hopper keeps 13 fraction bits of: 1 and 2^-13, but not 2^-14.
#[test]
fn what_is_cut_off_is_lost() {
    let kind = OperandKind::from(ElementFormat::FP8_E5M2);
    let hopper = Accumulation::from(Chip::Hopper).of(kind, kind).unwrap();
    let dot = |exponent: i32| {
        let mut elements = vec![2.0_f32.powi(exponent); 32];
        elements[0] = 1.0;
        let lhs = Matrix {
            kind,
            lines: 1,
            length: 32,
            transposed: false,
            elements,
            scales: Vec::new(),
        };
        let rhs = Matrix {
            elements: vec![1.0; 32],
            ..lhs.clone()
        };
        hopper
            .dot(&lhs.operand(), 0, &rhs.operand(), 0, 0.0)
            .unwrap()
    };
    assert_eq!(dot(-13), 1.0 + 31.0 * 2.0_f32.powi(-13));
    assert_eq!(dot(-14), 1.0);
}

#[cfg(feature = "rayon")]
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let kinds = [
        (ElementFormat::FP8_E4M3, "hopper"),
        (ElementFormat::BFLOAT16, "cdna3"),
        (ElementFormat::FLOAT16, "cdna2"),
        (ElementFormat::FP4_E2M1, "blackwell"),
    ];
    for (element, chip) in kinds {
        let kind = OperandKind {
            element: element.into(),
            scale: Some(ScaleType::PowerOfTwo),
            block: 32,
        };
        let numbers = Numbers {
            spread: 8,
            middle: 50,
            special: 0,
        };
        let (lhs, rhs) = (
            Matrix::new(kind, [150, 300], numbers, 1),
            Matrix::new(kind, [170, 300], numbers, 2),
        );
        let accumulator = chip
            .parse::<Accumulation>()
            .unwrap()
            .of(kind, kind)
            .unwrap();
        let multiply = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| {
                let mut result = vec![0.0; 150 * 170];
                accumulator
                    .multiply(&lhs.operand(), &rhs.operand(), &mut result)
                    .unwrap();
                bits(&result)
            })
        };
        let one = multiply(1);
        for threads in [2, 3, 5, 16] {
            assert!(multiply(threads) == one, "{chip}, {threads} threads");
        }
        let c = vec![0.0; 170];
        let row = Matrix {
            lines: 1,
            elements: lhs.elements[..300].to_vec(),
            scales: lhs.scales[..10].to_vec(),
            transposed: false,
            ..lhs.clone()
        };
        if !lhs.transposed {
            assert_eq!(bits(&rule(&accumulator, &row, &rhs, &c)), one[..170]);
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let text = |text: &str| text.parse::<Accumulation>().unwrap_err().to_string();
    for (input, expected) in [
        (
            "fermi",
            "unknown accumulator `fermi`: expected one of volta, turing, ampere, ada, hopper, blackwell, cdna1, cdna2, \
             cdna3, xdna2, hopper_promote128, hopper(…), accumulator(…)",
        ),
        (
            "hopper(every=3)",
            "hopper: unknown parameter `every`: expected one of promote_every, scale_at",
        ),
        (
            "hopper(scale_at=promotion)",
            "accumulator of order hopper: promote_every is 0, expected at least 1 with scale_at promotion",
        ),
        (
            "accumulator(order=sorted)",
            "accumulator: order is `sorted`, expected one of joint, late, exact, pairs, fma, integer",
        ),
        (
            "accumulator(order=joint,terms=32,fraction_bits=13)",
            "accumulator: output is missing, expected a format, f32, f16, bf16 or e…m… of 2 to 8 exponent and 1 to 23 mantissa \
             bits, then _rz or _rne, as e8m13_rz",
        ),
        (
            "accumulator(order=joint,terms=32,fraction_bits=99,output=f32_rz)",
            "accumulator of order joint: fraction_bits is 99, expected 1 to 60",
        ),
        (
            "accumulator(order=joint,terms=32,fraction_bits=13,output=f32_rz,group=3)",
            "accumulator of order joint: group is 3, expected a divisor of terms",
        ),
        (
            "accumulator(order=fma,terms=3)",
            "accumulator: unknown parameter `terms`: expected one of order, output, promote_every, scale_at",
        ),
        (
            "accumulator(order=integer,bits=24,scale_at=product)",
            "accumulator: unknown parameter `scale_at`: expected one of order, bits, overflow, promote_every",
        ),
        (
            "accumulator(order=pairs,terms=6)",
            "accumulator of order pairs: terms is 6, expected a power of two from 2 on",
        ),
    ] {
        assert_eq!(text(input), expected);
    }
    let fp8 = OperandKind::from(ElementFormat::FP8_E4M3);
    let mxfp8 = OperandKind {
        scale: Some(ScaleType::PowerOfTwo),
        block: 32,
        ..fp8
    };
    let of = |choice: &str, kind| {
        let choice: Accumulation = choice.parse().unwrap();
        choice.of(kind, kind).unwrap_err().to_string()
    };
    assert_eq!(
        of("ampere", fp8),
        "ampere has no matrix unit for fp8_e4m3 times fp8_e4m3: expected float16; bfloat16; tf32"
    );
    assert_eq!(
        of("hopper(promote_every=48,scale_at=promotion)", mxfp8),
        "accumulator: promote_every is 48, expected a divisor of the block of 32 elements (0: of all)"
    );
    assert_eq!(
        of("accumulator(order=integer,bits=24)", fp8),
        "accumulator of order integer: the elements are fp8_e4m3, expected fixed point, as int8"
    );

    let fma = Accumulator::new(Order::Fma {
        output: SumFormat::F32_RNE,
    });
    let operand =
        |kind, elements: &'static [f32], scales: &'static [f32], length| AccumulatorOperand {
            kind,
            elements,
            free: axis(1, length),
            summed: axis(length, 1),
            scales,
        };
    let good = operand(fp8, &[1.0, 2.0], &[], 2);
    let mut result = [7.0; 2];
    let mut error = |lhs, rhs| fma.multiply(&lhs, &rhs, &mut result[..1]).unwrap_err();
    assert_eq!(
        error(operand(fp8, &[1.0, 0.3], &[], 2), good).to_string(),
        "left operand: element 0, 1 is 3e-1, expected a number of fp8_e4m3"
    );
    assert_eq!(
        error(good, operand(mxfp8, &[1.0, 2.0], &[3.0], 2)).to_string(),
        "right operand: a scale is 3e0, expected a number of e8m0"
    );
    let wrong = error(good, operand(mxfp8, &[1.0, 2.0], &[], 2));
    assert!(matches!(
        wrong,
        AccumulateError::Scales {
            expected: 1,
            got: 0,
            ..
        }
    ));
    let wrong = error(good, operand(fp8, &[1.0], &[], 1));
    assert!(matches!(wrong, AccumulateError::Summed { lhs: 2, rhs: 1 }));
    let wrong = error(operand(fp8, &[1.0], &[], 2), good);
    assert!(matches!(wrong, AccumulateError::Elements { got: 1, .. }));
    let wrong = fma.multiply(&good, &good, &mut result).unwrap_err();
    assert_eq!(
        wrong,
        AccumulateError::Result {
            expected: 1,
            got: 2
        }
    );
    assert_eq!(result, [7.0; 2]);
}

/// Every number of a type is taken, and no other one.
#[test]
fn numbers_of_a_type() {
    let fma = Accumulator::new(Order::Fma {
        output: SumFormat::F32_RNE,
    });
    let taken = |kind: OperandKind, x: f32| {
        let elements = [x];
        let operand = AccumulatorOperand {
            kind,
            elements: &elements,
            free: axis(1, 1),
            summed: axis(1, 1),
            scales: &[],
        };
        fma.multiply(&operand, &operand, &mut [0.0]).is_ok()
    };
    for format in ElementFormat::NAMED {
        for code in 0..1 << format.bits() {
            let x = format.decode(code);
            // Quantizing never gives the most negative integer.
            if x.abs() <= format.max() || !x.is_finite() {
                assert!(taken(format.into(), x), "{format}: {x:e}");
                let between = f32::from_bits(x.to_bits() ^ 1);
                // Longer formats' neighbours are their own.
                if format.bits() <= 8 && x.is_finite() {
                    assert!(!taken(format.into(), between), "{format}: {between:e}");
                }
            }
        }
        assert!(
            !taken(format.into(), f32::MAX) && !taken(format.into(), 3e-45),
            "{format}"
        );
    }
    assert!(taken(OperandType::Tf32.into(), 1.0 + 1.0 / 1024.0));
    assert!(!taken(OperandType::Tf32.into(), 1.0 + 1.0 / 2048.0));
    assert!(taken(OperandType::Float32.into(), 1e-45));
}
