//! The sums of XDNA2: exact integers of eight products, added up in float32.

use microscaling::{BlockFormat, Packed, RandomStream, Rounder};
use microscaling_product::{Accumulation, AccumulatorMatrix, Chip, OperandKind};

const LENGTH: usize = 512;

/// Numbers whose blocks have exponents of their own.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let stream = RandomStream::new(seed, 0);
    let number = |i: u64| {
        let word = stream.draw(i);
        let block = stream.draw((1 << 32) + i / 8) & 7;
        f32::from_bits(word & 0x807f_ffff | (120 + block) << 23)
    };
    (0..count as u64).map(number).collect()
}

/// e and the eight m of each block.
fn blocks(x: &[f32]) -> Vec<(i32, Vec<i64>)> {
    let packed = Packed::encode(
        BlockFormat::BFP16EBS8,
        x,
        &[x.len()],
        0,
        Rounder::NearestEven,
    );
    let packed = packed.unwrap();
    let codes = packed.view().codes();
    let blocks = packed.scales().iter().zip(codes.chunks(8));
    blocks
        .map(|(e, m)| {
            (
                i32::from(*e),
                m.iter().map(|m| i64::from(*m as i8)).collect(),
            )
        })
        .collect()
}

/// Each sum of eight products is an integer times 2^(ea + eb − 266).
fn sum(a: &[f32], b: &[f32]) -> f32 {
    let mut sum = 0.0_f32;
    for ((ea, a), (eb, b)) in blocks(a).into_iter().zip(blocks(b)) {
        let products: i64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
        // Float64 holds both summands, and the sum is rounded once: less than 53 bits lie between them.
        let exact = products as f64 * 2_f64.powi(ea + eb - 266);
        let distance = (exact.abs().log2() - f64::from(sum.abs()).log2()).abs();
        // Far apart, the smaller one moves the larger one in neither float.
        assert!(exact == 0.0 || sum == 0.0 || !(24.0..80.0).contains(&distance));
        sum = (f64::from(sum) + exact) as f32;
    }
    sum
}

#[test]
fn sums_of_the_npu() {
    let format = BlockFormat::BFP16EBS8;
    let kind = OperandKind::of_format(&format).unwrap();
    assert_eq!(kind.to_string(), "int8 with scales e8 of 8");
    let accumulator = Chip::Xdna2.accumulator(kind, kind).unwrap();
    assert_eq!(
        accumulator.to_string(),
        "accumulator(order=exact,terms=8,output=f32_rne)"
    );
    let by_name: Accumulation = "xdna2".parse().unwrap();
    assert_eq!(by_name.of(kind, kind).unwrap(), accumulator);
    let (lhs, rhs) = (numbers(1, 8 * LENGTH), numbers(2, 8 * LENGTH));
    let [a, b] = [&lhs, &rhs].map(|x| {
        AccumulatorMatrix::quantize(&format, x, [8, LENGTH], 1, Rounder::NearestEven).unwrap()
    });
    let mut result = vec![0.0; 64];
    accumulator
        .multiply(&a.operand(), &b.operand(), &mut result)
        .unwrap();
    let (mut once, has_most_negative) = (0, blocks(&lhs).iter().any(|(_, m)| m.contains(&-128)));
    assert!(has_most_negative);
    for (at, got) in result.into_iter().enumerate() {
        let row = |x: &[f32], line: usize| x[line * LENGTH..][..LENGTH].to_vec();
        let (a, b) = (row(&lhs, at / 8), row(&rhs, at % 8));
        assert_eq!(got, sum(&a, &b), "sum {at}");
        let exact: f64 = blocks(&a)
            .into_iter()
            .zip(blocks(&b))
            .map(|((ea, a), (eb, b))| {
                let products: i64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
                products as f64 * 2_f64.powi(ea + eb - 266)
            })
            .sum();
        once += usize::from(got == exact as f32);
    }
    // One rounding at the end gives other sums.
    assert!(once < 40, "{once}");
}

/// A block with NaN or Inf is integers under the exponent 255, and the chip multiplies them as any others.
#[test]
fn a_block_with_nan_is_summed_as_integers() {
    let format = BlockFormat::BFP16EBS8;
    let kind = OperandKind::of_format(&format).unwrap();
    let accumulator = Chip::Xdna2.accumulator(kind, kind).unwrap();
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    let ordinary = numbers(3, 16);
    // Two elements of a block.
    let special: [[f32; 2]; 5] = [
        [nan, 1.0],
        [-nan, nan],
        [infinity, -1.0],
        [-infinity, infinity],
        [nan, -infinity],
    ];
    let scaled = |by: f32| ordinary.iter().map(|x| x * by).collect::<Vec<f32>>();
    let others = [1.0, 2_f32.powi(-40), 2_f32.powi(10), 0.0].map(scaled);
    let mut kinds = [0; 3];
    for [first, second] in special {
        for at in [0, 8] {
            for rhs in &others {
                let mut lhs = ordinary.clone();
                (lhs[at], lhs[at + 3]) = (first, second);
                let [a, b] = [&lhs, rhs].map(|x| {
                    AccumulatorMatrix::quantize(&format, x, [1, 16], 1, Rounder::NearestEven)
                        .unwrap()
                });
                // By the rule of one sum, and by the kernels.
                let (a, b) = (a.operand(), b.operand());
                let got = accumulator.dot(&a, 0, &b, 0, 0.0).unwrap();
                let mut result = [0.0];
                accumulator.multiply(&a, &b, &mut result).unwrap();
                let expected = sum(&lhs, rhs);
                assert_eq!([got, result[0]], [expected; 2], "{lhs:?} {rhs:?}");
                kinds[0] += usize::from(expected.is_infinite());
                kinds[1] += usize::from(expected.is_finite() && expected != 0.0);
                kinds[2] += usize::from(expected == 0.0);
            }
        }
    }
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
}

#[test]
fn other_operands_are_named() {
    let kind = OperandKind::of_format(&"mxint8".parse().unwrap()).unwrap();
    let error = Chip::Xdna2.accumulator(kind, kind).unwrap_err().to_string();
    assert!(
        error.contains("int8 with scales e8 of 8 (bfp16ebs8)"),
        "{error}"
    );
}
