//! Products of operands in bfloat16 panels, against plain loops in float32 and float64.

#[cfg(target_arch = "x86_64")]
use crate::float_state::flushing;
use crate::float_state::ieee;
use microscaling::{
    BlockFormat, FloatFormat, OperandQuantization, RandomHadamard, RandomStream, Rounding, Signs,
};
use microscaling_product::{
    Axis, Epilogue, Matrices, Panels, PanelsError, ProductPath, Side, reproducible_products,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Elements along the summed axis that are added up before they are added to the others' sum.
const BLOCK: usize = 512;

/// All but AMX's and `bfmmla`, whose sums are others: their tests are beside their kernels.
fn paths() -> impl Iterator<Item = ProductPath> {
    ProductPath::ALL
        .into_iter()
        .filter(|path| path.is_available() && path.is_bit_exact())
}

/// A matrix of bfloat16 numbers, [free, summed], each of them `value(i)` of a random word.
fn matrix(free: usize, summed: usize, seed: u64, value: impl Fn(u32) -> f32) -> Vec<f32> {
    let stream = RandomStream::new(seed, 7);
    (0..(free * summed) as u64)
        .map(|i| value(stream.draw(i)))
        .collect()
}

/// Numbers of 8 significant bits around 1.
fn ordinary(word: u32) -> f32 {
    f32::from_bits((word & 0x807f_0000) | ((120 + (word & 15)) << 23))
}

fn panels(side: Side, values: &[f32], free: usize, summed: usize) -> Panels {
    quantized(side, values, [free, summed], OperandQuantization::default())
}

/// Panels of one matrix, [free, summed].
fn quantized(
    side: Side,
    values: &[f32],
    [free, summed]: [usize; 2],
    quantization: OperandQuantization,
) -> Panels {
    let matrices = Matrices {
        data: values,
        starts: &[0],
        free: Axis {
            length: free,
            stride: summed,
        },
        summed: Axis {
            length: summed,
            stride: 1,
        },
        group: summed,
    };
    Panels::quantize(side, matrices, quantization).unwrap()
}

/// The rule, with the standard library's fused multiply-add. `lhs` [m, k], `rhs` [n, k].
fn rule(lhs: &[f32], rhs: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let element = |i: usize, j: usize| {
        let (row, column) = (&lhs[i * k..(i + 1) * k], &rhs[j * k..(j + 1) * k]);
        let blocks = row
            .chunks(BLOCK)
            .zip(column.chunks(BLOCK))
            .map(|(row, column)| {
                let pairs = row.chunks(2).zip(column.chunks(2));
                pairs.fold(0.0_f32, |sum, (a, b)| {
                    let even = |sum: f32| a[0].mul_add(b[0], sum);
                    match a.len() {
                        2 => even(a[1].mul_add(b[1], sum)),
                        // The operands go on with zeros.
                        _ => even(0.0_f32.mul_add(0.0, sum)),
                    }
                })
            });
        blocks.reduce(|sum, block| sum + block).unwrap_or(0.0)
    };
    let one_nan = |x: f32| if x.is_nan() { f32::NAN } else { x };
    ieee(|| {
        (0..m * n)
            .map(|at| one_nan(element(at / n, at % n)))
            .collect()
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Checks the product of two matrices, [m, k] and [n, k], on every path.
fn check(lhs: &[f32], rhs: &[f32], [m, n, k]: [usize; 3]) {
    let expected = bits(&rule(lhs, rhs, [m, n, k]));
    let (lhs, rhs) = (panels(Side::Lhs, lhs, m, k), panels(Side::Rhs, rhs, n, k));
    for path in paths() {
        let mut result = vec![f32::NAN; m * n];
        Panels::multiply_by(path, &lhs, &rhs, &[(0, 0)], &mut result).unwrap();
        assert!(bits(&result) == expected, "{path} {m} x {k} x {n}");
    }
}

#[test]
fn every_path_is_the_rule_for_every_remainder() {
    for length in 1..=70 {
        for [m, n, k] in [[length, 21, 33], [13, length, 40], [9, 50, length]] {
            let (lhs, rhs) = (matrix(m, k, 1, ordinary), matrix(n, k, 2, ordinary));
            check(&lhs, &rhs, [m, n, k]);
        }
    }
}

#[test]
fn every_path_is_the_rule_where_sums_have_several_blocks() {
    for k in [511, 512, 513, 1024, 1025, 1600] {
        let (m, n) = (19, 57);
        check(
            &matrix(m, k, 3, ordinary),
            &matrix(n, k, 4, ordinary),
            [m, n, k],
        );
    }
}

#[test]
fn large_products_are_the_rule_and_the_same_with_any_number_of_threads() {
    reproducible_products(true);
    let [m, n, k] = [300, 450, 700];
    let (lhs, rhs) = (matrix(m, k, 5, ordinary), matrix(n, k, 6, ordinary));
    let expected = bits(&rule(&lhs, &rhs, [m, n, k]));
    for threads in [1, 2, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let result = pool.install(|| {
            let (lhs, rhs) = (panels(Side::Lhs, &lhs, m, k), panels(Side::Rhs, &rhs, n, k));
            let mut result = vec![f32::NAN; m * n];
            Panels::multiply(&lhs, &rhs, &[(0, 0)], &mut result).unwrap();
            result
        });
        assert!(bits(&result) == expected, "{threads} threads");
    }
}

/// NaN, infinities, zeros of both signs, the largest numbers, subnormals that bfloat16 has.
#[test]
fn special_numbers() {
    let special = |word: u32| match word >> 26 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => f32::NEG_INFINITY,
        3..8 => 0.0,
        8..12 => -0.0,
        12 => f32::from_bits(0x7f7f_0000),
        13 => f32::from_bits(0xff7f_0000),
        14 => f32::from_bits(0x0001_0000),
        15 => f32::from_bits(0x807f_0000),
        _ => ordinary(word),
    };
    for (m, n, k) in [(3, 5, 2), (16, 33, 37), (40, 70, 600)] {
        check(
            &matrix(m, k, 8, special),
            &matrix(n, k, 9, special),
            [m, n, k],
        );
    }
}

/// Where a product or a sum may be a subnormal, `vdpbf16ps` would flush it to zero.
#[test]
fn nothing_is_flushed() {
    for (left, right) in [
        (1, 127),
        (1, 141),
        (64, 64),
        (70, 71),
        (71, 71),
        (0, 200),
        (20, 121),
        (8, 135),
    ] {
        // The least exponent and a few above.
        let of = |exponent: u32| {
            move |word: u32| f32::from_bits((word & 0x807f_0000) | ((exponent + (word & 3)) << 23))
        };
        let [m, n, k] = [16, 48, 64];
        check(
            &matrix(m, k, 10, of(left)),
            &matrix(n, k, 11, of(right)),
            [m, n, k],
        );
    }
}

#[test]
fn pairs_of_matrices_in_any_order() {
    reproducible_products(true);
    let [m, n, k] = [5, 18, 35];
    let (lhs, rhs) = (
        matrix(3 * m, k, 12, ordinary),
        matrix(2 * n, k, 13, ordinary),
    );
    let of = |side, data: &[f32], free: usize, starts: &[usize]| {
        let matrices = Matrices {
            data,
            starts,
            free: Axis {
                length: free,
                stride: k,
            },
            summed: Axis {
                length: k,
                stride: 1,
            },
            group: k,
        };
        Panels::quantize(side, matrices, OperandQuantization::default()).unwrap()
    };
    let left = of(Side::Lhs, &lhs, m, &[0, m * k, 2 * m * k]);
    let right = of(Side::Rhs, &rhs, n, &[0, n * k]);
    let pairs = [(2, 0), (0, 1), (0, 0), (1, 1)];
    let mut result = vec![0.0; pairs.len() * m * n];
    Panels::multiply(&left, &right, &pairs, &mut result).unwrap();
    for ((l, r), result) in pairs.into_iter().zip(result.chunks(m * n)) {
        let expected = rule(
            &lhs[l * m * k..(l + 1) * m * k],
            &rhs[r * n * k..(r + 1) * n * k],
            [m, n, k],
        );
        assert_eq!(bits(result), bits(&expected), "{l} times {r}");
    }
    let new = Panels::product(&left, &right, &pairs).unwrap();
    assert_eq!(bits(&new), bits(&result));
}

#[test]
fn products_without_elements() {
    let empty = |side, free, summed| panels(side, &[], free, summed);
    let (lhs, rhs) = (empty(Side::Lhs, 3, 0), empty(Side::Rhs, 2, 0));
    let mut result = [f32::NAN; 6];
    Panels::multiply(&lhs, &rhs, &[(0, 0)], &mut result).unwrap();
    assert_eq!(result, [0.0; 6]);
    let product = |pairs| Panels::product(&lhs, &rhs, pairs);
    assert_eq!(product(&[(0, 0)]), Ok(vec![0.0; 6]));
    assert_eq!(product(&[]), Ok(vec![]));
    assert!(matches!(
        product(&[(1, 0)]),
        Err(PanelsError::Product { .. })
    ));
    Panels::multiply(
        &empty(Side::Lhs, 0, 4),
        &empty(Side::Rhs, 0, 4),
        &[(0, 0)],
        &mut [],
    )
    .unwrap();
    Panels::multiply(&lhs, &rhs, &[], &mut []).unwrap();
}

fn formats() -> impl Strategy<Value = Option<BlockFormat>> {
    let named: Vec<BlockFormat> = BlockFormat::NAMES.map(|name| name.parse().unwrap()).into();
    let parameters = [
        "mx(element=int4,block_size=16)",
        "mx(element=fp8_e4m3,block_size=0)",
        "mx(element=fp4_e2m1,block_size=20,scale_mode=rceil)",
        "mx(element=fp6_e3m2,block_size=64)",
        "bfp(bit_width=12,block_size=48)",
        "mx(element=fp4_e2m1,scale_mode=rms)",
        "mx(element=fp4_e2m1,scale_mode=rms,block_size=20,headroom=4/3)",
        "nvfp4(tensor_scale=false,headroom=17/16)",
        "nvfp4(tensor_scale=false,four_over_six=true)",
        "block(element=int4,scale=ue4m3,block_size=16)",
        "block(element=table(razer),scale=ue4m3,block_size=16)",
        "block(element=fp8_e4m3,scale=ue3m3,block_size=24)",
        "block(element=fp4_e3m0,scale=ue5m3,block_size=32)",
    ];
    let parameters = parameters.map(|text| text.parse().unwrap());
    let all: Vec<Option<BlockFormat>> = named
        .into_iter()
        .chain(parameters)
        // The scale of a tensor stays beside the panels, which hold bfloat16 numbers.
        .filter(|format| !format.tensor_scale && format.significant_bits() <= 8)
        .map(Some)
        .chain([None])
        .collect();
    select(all)
}

/// Matrices of these lengths along the free and the summed axis. Lines along the dense axis begin `stride` apart.
fn in_lines<'a>(
    data: &'a [f32],
    starts: &'a [usize],
    [free, summed]: [usize; 2],
    dense_free: bool,
    stride: usize,
) -> Matrices<'a> {
    let (free_stride, summed_stride) = if dense_free { (1, stride) } else { (stride, 1) };
    let axis = |length, stride| Axis { length, stride };
    Matrices {
        data,
        starts,
        free: axis(free, free_stride),
        summed: axis(summed, summed_stride),
        group: summed,
    }
}

/// Formats that round elements, scales, tables and sub-blocks by random numbers, along an axis or in squares.
fn stochastic_formats() -> impl Strategy<Value = BlockFormat> {
    let eden = "block(element=fp4_e2m1,scale=ue4m3,tensor_scale=true,block_size=16,eden=true)";
    let others = [
        eden,
        "nvfp4(tensor_scale=true)",
        "mx(element=fp4_e2m1,block_size=16,square=true)",
        "mx(element=fp8_e4m3,block_size=128,square=true)",
        "mx(element=int4,block_size=1)",
    ];
    let others: Vec<BlockFormat> = others.map(|text| text.parse().unwrap()).into();
    prop_oneof![
        formats().prop_filter_map("a product without blocks", |format| format),
        select(others),
    ]
}

/// Any float32 of ordinary magnitude.
fn number(word: u32) -> f32 {
    f32::from_bits((word & 0x807f_ffff) | ((118 + (word >> 23 & 15)) << 23))
}

/// Mostly a float32 of ordinary magnitude; one of 512 is of any magnitude, Inf or NaN. None is a subnormal: a test's own products
/// may be flushed.
fn any_number(word: u32) -> f32 {
    match word >> 5 & 511 {
        0 => f32::from_bits(word.rotate_left(18) | 0x1000_0000),
        1 if word & 31 == 0 => f32::INFINITY,
        1 if word & 31 == 1 => f32::NAN,
        _ => number(word),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Panels hold what the slice API gives, for every format, side, layout and length.
    #[test]
    fn panels_hold_quantized_values(
        blocks in formats(),
        rounding in select(vec![Rounding::NearestAway, Rounding::NearestEven, Rounding::TowardZero]),
        side in select(vec![Side::Lhs, Side::Rhs]),
        matrices in prop_oneof![1..3_usize, 1..40_usize],
        free in prop_oneof![1..70_usize, Just(16_usize), Just(48)],
        group in prop_oneof![1..20_usize, 1..70_usize, Just(32_usize), Just(64), Just(320), 1..1500_usize],
        groups in 1..4_usize,
        gap in 0..3_usize,
        dense_free in any::<bool>(),
        elementwise in any::<bool>(),
        ordinary in any::<bool>(),
        hadamard in option::of((select(RandomHadamard::BLOCK_SIZES.to_vec()), any::<bool>())),
        factor in option::of(select(vec![0.75_f32, 0.9])),
        seed in any::<u64>(),
    ) {
        let summed = group * groups;
        let hadamard = hadamard.filter(|_| blocks.is_some()).map(|(block_size, is_random)| {
            let signs = match is_random {
                true => RandomStream::new(seed, 3).into(),
                false => Signs::Repeated(seed.into()),
            };
            (RandomHadamard { block_size }, signs)
        });
        let factor = factor.filter(|_| blocks.is_some());
        // [matrices, group axis .., free] or [matrices, free, summed], with gaps after the inner axis.
        let (outer, inner) = if dense_free { (summed, free) } else { (free, summed) };
        let stride = inner + gap;
        let data = matrix(matrices, outer * stride, seed, if ordinary { number } else { any_number });
        let starts: Vec<usize> = (0..matrices).map(|i| i * outer * stride).collect();
        // Without blocks the numbers are bfloat16 numbers by this rounding only.
        let elementwise = (elementwise || blocks.is_none()).then(|| (FloatFormat::bfloat(16).unwrap(), rounding));
        let quantization = OperandQuantization {
            elementwise,
            hadamard,
            factor,
            blocks: blocks.map(|format| (format, rounding)),
            ..OperandQuantization::default()
        };
        let source = Matrices { group, ..in_lines(&data, &starts, [free, summed], dense_free, stride) };
        let (free_stride, summed_stride) = (source.free.stride, source.summed.stride);
        let panels = Panels::quantize(side, source, quantization);
        if let Ok(panels) = &panels {
            prop_assert_eq!([panels.matrices(), panels.free(), panels.summed()], [matrices, free, summed]);
        }
        let mut are_exact = true;
        let rounder = rounding.with(RandomStream::new(0, 0));
        for (matrix, start) in starts.iter().enumerate() {
            // [free, summed]
            let at = |i: usize| start + i / summed * free_stride + i % summed * summed_stride;
            let mut expected: Vec<f32> = (0..free * summed).map(|i| data[at(i)]).collect();
            if let Some((format, _)) = elementwise {
                format.round_slice(&mut expected, rounder);
            }
            let shape = [free * groups, group];
            if let Some((transform, signs)) = hadamard {
                transform.transform(&mut expected, &shape, 1, signs).unwrap();
            }
            expected.iter_mut().for_each(|x| *x *= factor.unwrap_or(1.0));
            if let Some(format) = blocks {
                format.quantize(&mut expected, &shape, 1, rounder).unwrap();
            }
            are_exact &= expected.iter().all(|x| x.to_bits() & 0xffff == 0);
            let Ok(panels) = &panels else {
                continue;
            };
            let mut values = vec![f32::NAN; free * summed];
            panels.read(matrix, &mut values);
            let expected: Vec<f32> = match side {
                Side::Lhs => expected,
                Side::Rhs => (0..free * summed).map(|i| expected[i % free * summed + i / free]).collect(),
            };
            // A transform's NaN has the sign of one of its additions. Products have one NaN.
            let one_nan = |values: Vec<f32>| match hadamard {
                Some(_) => values.into_iter().map(|x| if x.is_nan() { f32::NAN } else { x }).collect(),
                None => values,
            };
            let (values, expected) = (one_nan(values), one_nan(expected));
            prop_assert_eq!(bits(&values), bits(&expected), "{:?} {}", blocks, rounding);
        }
        prop_assert_eq!(panels.err(), (!are_exact).then_some(PanelsError::Inexact));
    }

    /// Stochastic blocks in panels have the random numbers of a tensor that is quantized as a whole, wherever pieces end. The matrices
    /// may be a part of the tensor.
    #[test]
    fn panels_hold_stochastic_blocks(
        format in stochastic_formats(),
        side in select(vec![Side::Lhs, Side::Rhs]),
        matrices in prop_oneof![Just(1_usize), 1..40_usize],
        free in prop_oneof![1..70_usize, Just(16_usize), Just(48), Just(300)],
        group in prop_oneof![1..20_usize, 1..70_usize, Just(32_usize), Just(256), Just(320), 1..1500_usize],
        groups in 1..4_usize,
        is_part in any::<bool>(),
        dense_free in any::<bool>(),
        elementwise in any::<bool>(),
        hadamard in option::of(select(RandomHadamard::BLOCK_SIZES.to_vec())),
        factor in option::of(select(vec![0.75_f32, 0.9])),
        seed in any::<u64>(),
    ) {
        let groups = if format.square { 1 } else { groups };
        let hadamard = hadamard.filter(|_| !format.square).map(|block_size| {
            (RandomHadamard { block_size }, Signs::from(RandomStream::new(seed, 3)))
        });
        // A part has whole blocks. A tensor's scale follows from all elements.
        let has_parts = [1, 16, 32, 64, 128].contains(&format.block_size) && !format.tensor_scale;
        let margin = if is_part && groups == 1 && has_parts { 128 } else { 0 };
        let whole = |length: usize| if margin > 0 { length.next_multiple_of(margin) } else { length };
        let group = whole(group);
        let free = if format.square { whole(free) } else { free };
        let summed = group * groups;
        let matrices = if free * summed > 20_000 { 1 } else { matrices };
        let stream = RandomStream::new(seed, 4);
        let bfloat16 = (FloatFormat::bfloat(16).unwrap(), Rounding::NearestEven);
        let quantization = OperandQuantization {
            elementwise: elementwise.then_some(bfloat16),
            hadamard: hadamard.filter(|_| margin == 0),
            factor,
            blocks: Some((format, Rounding::Stochastic)),
            stream,
        };
        // The tensor is [matrices, group axis .., free] or [matrices, free, summed], with margins around a part.
        let (outer, inner) = if dense_free { (summed, free) } else { (free, summed) };
        let (rows, columns) = (outer + 2 * margin, inner + 2 * margin);
        let data = matrix(matrices, rows * columns, seed, number);
        let first = margin * columns + margin;
        let starts: Vec<usize> = (0..matrices).map(|i| i * rows * columns + first).collect();
        let source = Matrices { group, ..in_lines(&data, &starts, [free, summed], dense_free, columns) };
        let (free_stride, summed_stride) = (source.free.stride, source.summed.stride);
        let panels = Panels::quantize(side, source, quantization).unwrap();

        let mut all = data.clone();
        if elementwise {
            bfloat16.0.round_slice(&mut all, bfloat16.1.with(stream));
        }
        let (shape, axis) = match (dense_free, groups) {
            (true, 1) => (vec![matrices, rows, columns], 1),
            (true, _) => (vec![matrices, groups, group, columns], 2),
            (false, 1) => (vec![matrices, rows, columns], 2),
            (false, _) => (vec![matrices, rows, groups, group], 3),
        };
        if let Some((transform, signs)) = quantization.hadamard {
            transform.transform(&mut all, &shape, axis, signs).unwrap();
        }
        all.iter_mut().for_each(|x| *x *= factor.unwrap_or(1.0));
        let (axis, rounder) = (if format.square { 2 } else { axis }, Rounding::Stochastic.with(stream));
        let scale = match format.tensor_scale {
            true => format.quantize_without_tensor_scale(&mut all, &shape, axis, rounder).unwrap().unwrap(),
            false => {
                format.quantize(&mut all, &shape, axis, rounder).unwrap();
                1.0
            }
        };
        for (matrix, start) in starts.iter().enumerate() {
            let mut values = vec![f32::NAN; free * summed];
            panels.read(matrix, &mut values);
            let expected: Vec<f32> = (0..free * summed).map(|i| {
                let (free, summed) = match side {
                    Side::Lhs => (i / summed, i % summed),
                    Side::Rhs => (i % free, i / free),
                };
                all[start + free * free_stride + summed * summed_stride] * scale
            }).collect();
            prop_assert_eq!(bits(&values), bits(&expected), "{} {}", format, margin);
        }
    }

    /// Square blocks lie along both axes of each matrix, wherever pieces end.
    #[test]
    fn panels_hold_square_blocks(
        format in select(vec![
            "mx(element=fp8_e4m3,block_size=32,square=true)",
            "mx(element=fp4_e2m1,block_size=7,square=true)",
            "mx(element=int8,block_size=48,square=true)",
            "mx(element=fp6_e3m2,block_size=1500,square=true)",
            "nvfp4(square=true)",
            "nvfp4(tensor_scale=true,square=true)",
        ]),
        rounding in select(vec![Rounding::NearestAway, Rounding::NearestEven, Rounding::TowardZero]),
        side in select(vec![Side::Lhs, Side::Rhs]),
        matrices in prop_oneof![Just(1_usize), 1..20_usize],
        free in prop_oneof![1..70_usize, 1..600_usize],
        summed in prop_oneof![1..70_usize, 1..1500_usize],
        gap in 0..3_usize,
        dense_free in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let matrices = if free * summed > 100_000 { 1 } else { matrices };
        let format: BlockFormat = format.parse().unwrap();
        let (outer, inner) = if dense_free { (summed, free) } else { (free, summed) };
        let stride = inner + gap;
        let data = matrix(matrices, outer * stride, seed, number);
        let starts: Vec<usize> = (0..matrices).map(|i| i * outer * stride).collect();
        let source = in_lines(&data, &starts, [free, summed], dense_free, stride);
        let (free_stride, summed_stride) = (source.free.stride, source.summed.stride);
        let quantization = OperandQuantization {
            blocks: Some((format, rounding)),
            ..OperandQuantization::default()
        };
        let panels = Panels::quantize(side, source, quantization).unwrap();

        // [matrices, free, summed], one tensor.
        let place = |i: usize| {
            let (matrix, i) = (i / (free * summed), i % (free * summed));
            starts[matrix] + i / summed * free_stride + i % summed * summed_stride
        };
        let mut expected: Vec<f32> = (0..matrices * free * summed).map(|i| data[place(i)]).collect();
        let in_tensor = rounding.with(RandomStream::new(0, 0));
        format.quantize(&mut expected, &[matrices, free, summed], 2, in_tensor).unwrap();
        for (matrix, expected) in expected.chunks(free * summed).enumerate() {
            let mut values = vec![f32::NAN; free * summed];
            panels.read(matrix, &mut values);
            let expected: Vec<f32> = match side {
                Side::Lhs => expected.to_vec(),
                Side::Rhs => (0..free * summed).map(|i| expected[i % free * summed + i / free]).collect(),
            };
            if format.tensor_scale {
                // The path multiplies in another order.
                let near = |(a, b): (&f32, &f32)| (a - b).abs() <= a.abs() * 2.0_f32.powi(-22);
                prop_assert!(values.iter().zip(&expected).all(near), "{} {}", format, rounding);
                continue;
            }
            prop_assert_eq!(bits(&values), bits(&expected), "{} {}", format, rounding);
        }
        if let Some(group) = (1..summed).rev().find(|group| summed.is_multiple_of(*group)) {
            let error = Panels::quantize(side, Matrices { group, ..source }, quantization);
            prop_assert_eq!(error.unwrap_err(), PanelsError::SquareGroups { group, summed });
        }
    }

    /// The error is what float32 accumulation gives, against float64.
    #[test]
    fn the_error_is_that_of_float32_sums(
        m in 1..40_usize,
        n in 1..60_usize,
        k in prop_oneof![1..70_usize, 1..2000_usize],
        seed in any::<u64>(),
    ) {
        let (lhs, rhs) = (matrix(m, k, seed, ordinary), matrix(n, k, seed ^ 1, ordinary));
        let mut result = vec![0.0; m * n];
        let (left, right) = (panels(Side::Lhs, &lhs, m, k), panels(Side::Rhs, &rhs, n, k));
        Panels::multiply(&left, &right, &[(0, 0)], &mut result).unwrap();
        for (at, got) in result.into_iter().enumerate() {
            let products = (0..k).map(|p| f64::from(lhs[at / n * k + p]) * f64::from(rhs[at % n * k + p]));
            let (exact, magnitude) = products.fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()));
            // One rounding for each addition: of a block's elements, then of the blocks.
            let additions = k.min(BLOCK) + k.div_ceil(BLOCK);
            let bound = additions as f64 * f64::from(f32::EPSILON) / 2.0 * 1.001 * magnitude;
            prop_assert!((f64::from(got) - exact).abs() <= bound, "{got} {exact} {bound}");
        }
    }
}

/// A matrix of one element.
fn one(value: f32, quantization: OperandQuantization) -> Result<Panels, PanelsError> {
    let axis = Axis {
        length: 1,
        stride: 1,
    };
    let matrices = Matrices {
        data: &[value],
        starts: &[0],
        free: axis,
        summed: axis,
        group: 1,
    };
    Panels::quantize(Side::Lhs, matrices, quantization)
}

/// A product with an epilogue has the bits of rounding the product, adding the bias to each row, and rounding again.
#[test]
fn an_epilogue_follows_the_sums() {
    let formats = [
        FloatFormat::bfloat(16),
        FloatFormat::bfloat(12),
        FloatFormat::fp(13),
    ];
    for (rows, summed, columns) in [
        (1, 0, 5),
        (5, 7, 1),
        (17, 600, 100),
        (40, 1100, 300),
        (300, 40, 700),
    ] {
        let [lhs, rhs] =
            [(Side::Lhs, rows, 1), (Side::Rhs, columns, 2)].map(|(side, free, seed)| {
                panels(side, &matrix(free, summed, seed, ordinary), free, summed)
            });
        let bias = matrix(1, columns, 3, ordinary);
        let product = Panels::product(&lhs, &rhs, &[(0, 0)]).unwrap();
        for format in formats.iter().flatten() {
            for rounding in [
                Rounding::NearestAway,
                Rounding::NearestEven,
                Rounding::TowardZero,
            ] {
                for bias in [None, Some(&bias[..])] {
                    let rounder = rounding.with(RandomStream::new(0, 0));
                    let mut expected = product.clone();
                    format.round_slice(&mut expected, rounder);
                    if let Some(bias) = bias {
                        for row in expected.chunks_mut(columns) {
                            row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
                        }
                        format.round_slice(&mut expected, rounder);
                    }
                    let epilogue = Epilogue {
                        rounding: Some((*format, rounding)),
                        bias,
                    };
                    let got = Panels::product_with(&lhs, &rhs, &[(0, 0)], epilogue).unwrap();
                    assert_eq!(
                        bits(&got),
                        bits(&expected),
                        "{rows} {summed} {columns} {epilogue:?}"
                    );
                }
            }
        }
        let bias_alone = Epilogue {
            rounding: None,
            bias: Some(&bias),
        };
        let got = Panels::product_with(&lhs, &rhs, &[(0, 0)], bias_alone).unwrap();
        let sums = product.iter().zip(bias.iter().cycle());
        let expected: Vec<f32> = sums.map(|(x, bias)| x + bias).collect();
        assert_eq!(bits(&got), bits(&expected));
    }
    let [lhs, rhs] = [Side::Lhs, Side::Rhs].map(|side| panels(side, &[1.0; 6], 3, 2));
    let error = |epilogue| {
        let result = Panels::product_with(&lhs, &rhs, &[(0, 0)], epilogue);
        result.unwrap_err().to_string()
    };
    let short = Epilogue {
        rounding: None,
        bias: Some(&[1.0; 2]),
    };
    assert_eq!(
        error(short),
        "bias of 2 elements, expected 3: one for each column of the product"
    );
    let random = Epilogue {
        rounding: Some((FloatFormat::bfloat(16).unwrap(), Rounding::Stochastic)),
        bias: None,
    };
    assert_eq!(
        error(random),
        "elementwise rounding is `stochastic`; allowed: `nearest`, `even`, `floor`"
    );
}

/// A tensor scale follows from the transformed elements, of all pieces on all threads.
#[test]
fn tensor_scales_of_transformed_operands() {
    let (free, summed) = (300, 1000);
    let data = matrix(free, summed, 5, number);
    let (transform, signs) = (RandomHadamard { block_size: 64 }, RandomStream::new(9, 1));
    let rounding = Rounding::NearestEven;
    let quantization = OperandQuantization {
        hadamard: Some((transform, signs.into())),
        factor: Some(0.75),
        blocks: Some(("nvfp4(tensor_scale=true)".parse().unwrap(), rounding)),
        ..OperandQuantization::default()
    };
    let mut transformed = data.clone();
    transform
        .transform(&mut transformed, &[free, summed], 1, signs)
        .unwrap();
    transformed.iter_mut().for_each(|x| *x *= 0.75);
    let blocks_alone = OperandQuantization {
        blocks: quantization.blocks,
        ..OperandQuantization::default()
    };
    let quantized = |data: &[f32], quantization| {
        let panels = quantized(Side::Lhs, data, [free, summed], quantization);
        let mut values = vec![f32::NAN; free * summed];
        panels.read(0, &mut values);
        bits(&values)
    };
    assert_eq!(
        quantized(&data, quantization),
        quantized(&transformed, blocks_alone)
    );
}

/// Every float32 that bfloat16 does not have is refused, among them subnormals that are too fine.
#[test]
fn what_bfloat16_does_not_have_is_refused() {
    let exact = [
        0.0,
        -0.0,
        1.0,
        f32::NAN,
        f32::INFINITY,
        2.0_f32.powi(-126),
        2.0_f32.powi(-133),
        3.3895314e38,
    ];
    for x in exact {
        let mut value = [0.0];
        one(x, OperandQuantization::default())
            .unwrap()
            .read(0, &mut value);
        assert_eq!(bits(&value), bits(&[x]));
    }
    let inexact = [
        0.1,
        1.003_906_3,
        2.0_f32.powi(-134),
        3.0 * 2.0_f32.powi(-134),
        f32::from_bits(1),
        f32::from_bits(0x7f80_0001),
    ];
    for x in inexact {
        let error = one(x, OperandQuantization::default()).unwrap_err();
        assert_eq!(error, PanelsError::Inexact, "{x:e}");
    }
    // Where blocks are so small that their elements are.
    let mxfp4 = OperandQuantization {
        blocks: Some(("mxfp8_e4m3".parse().unwrap(), Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    assert!(one(1.25 * 2.0_f32.powi(-126), mxfp4).is_ok());
    assert_eq!(
        one(f32::from_bits(0x0000_1800), mxfp4).unwrap_err(),
        PanelsError::Inexact
    );
}

#[test]
fn stochastic_elementwise_rounding_is_refused() {
    let bfloat16 = FloatFormat::bfloat(16).unwrap();
    let quantization = OperandQuantization {
        elementwise: Some((bfloat16, Rounding::Stochastic)),
        ..OperandQuantization::default()
    };
    assert_eq!(one(1.0, quantization).unwrap_err(), PanelsError::Stochastic);
}

/// A tensor scale multiplies the product of the operands without their scales.
#[test]
fn tensor_scales_multiply_the_product() {
    let format: BlockFormat = "nvfp4(tensor_scale=true)".parse().unwrap();
    let bfloat16 = FloatFormat::bfloat(16).unwrap();
    let quantization = OperandQuantization {
        elementwise: Some((bfloat16, Rounding::NearestEven)),
        blocks: Some((format, Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    let rounder = Rounding::NearestEven.with(RandomStream::new(0, 0));
    for ([m, n, k], gap) in [([20, 50, 70], 0), ([20, 50, 70], 3), ([1, 17, 600], 1)] {
        let stride = k + gap;
        let lhs = matrix(m, stride, 20, number);
        let rhs = matrix(n, stride, 21, |word| 1e-3 * number(word));
        let operand = |side, data: &[f32], free| {
            let matrices = Matrices {
                data,
                starts: &[0],
                free: Axis {
                    length: free,
                    stride,
                },
                summed: Axis {
                    length: k,
                    stride: 1,
                },
                group: k,
            };
            Panels::quantize(side, matrices, quantization).unwrap()
        };
        let quantized = |data: &[f32]| {
            let rows = data.chunks(stride).map(|row| &row[..k]);
            let mut values = rows.collect::<Vec<_>>().concat();
            bfloat16.round_slice(&mut values, rounder);
            let shape = [values.len() / k, k];
            format.quantize(&mut values, &shape, 1, rounder).unwrap();
            values
        };
        let (left, right) = (operand(Side::Lhs, &lhs, m), operand(Side::Rhs, &rhs, n));
        let (lhs, rhs) = (quantized(&lhs), quantized(&rhs));
        let mut result = vec![0.0; m * n];
        for path in paths() {
            Panels::multiply_by(path, &left, &right, &[(0, 0)], &mut result).unwrap();
            for (at, got) in result.iter().enumerate() {
                let product = |p| f64::from(lhs[at / n * k + p]) * f64::from(rhs[at % n * k + p]);
                let sums = |(sum, all), x: f64| (sum + x, all + x.abs());
                let (exact, magnitude) = (0..k).map(product).fold((0.0, 0.0), sums);
                // An element of the slice API is rounded after its scale, one of panels before.
                let bound = (k + 4) as f64 * f64::from(f32::EPSILON) / 2.0 * 1.001 * magnitude;
                assert!(
                    (f64::from(*got) - exact).abs() <= bound,
                    "{path} {got} {exact}"
                );
            }
        }
        let mut values = vec![0.0; m * k];
        left.read(0, &mut values);
        for (got, expected) in values.into_iter().zip(lhs) {
            let error = (got - expected).abs();
            assert!(error <= f32::EPSILON * expected.abs(), "{got} {expected}");
        }
    }
    // No scale, or one so small that subnormals take part.
    for x in [0.0, 1e-30, f32::INFINITY, f32::NAN] {
        let error = one(x, quantization).unwrap_err();
        assert!(
            matches!(error, PanelsError::TensorScale { .. }),
            "{x:e}: {error}"
        );
        let message = error.to_string();
        assert!(message.contains("the tensor scale is"), "{message}");
    }
}

/// Small products on the calling thread, and large products on a pool's threads, while all threads flush subnormals.
#[cfg(target_arch = "x86_64")]
#[test]
fn products_in_any_float_state() {
    let tiny = |word: u32| ordinary(word) * 2.0_f32.powi(-66);
    for [m, n, k] in [[64, 64, 40], [300, 300, 100]] {
        let (lhs, rhs) = (matrix(m, k, 15, tiny), matrix(n, k, 16, tiny));
        let expected = bits(&rule(&lhs, &rhs, [m, n, k]));
        let (lhs, rhs) = (panels(Side::Lhs, &lhs, m, k), panels(Side::Rhs, &rhs, n, k));
        for path in paths() {
            let run = || {
                let mut result = vec![f32::NAN; m * n];
                Panels::multiply_by(path, &lhs, &rhs, &[(0, 0)], &mut result).unwrap();
                result
            };
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3);
            let pool = flushing(|| pool.build().unwrap());
            assert!(bits(&flushing(run)) == expected, "{path} {m} x {k} x {n}");
            assert!(
                bits(&pool.install(run)) == expected,
                "{path} {m} x {k} x {n}"
            );
        }
    }
    let small = [f32::from_bits(0x0001_0000); 4];
    let panels = panels(Side::Lhs, &small, 2, 2);
    let mut values = [0.0; 4];
    flushing(|| panels.read(0, &mut values));
    assert_eq!(bits(&values), bits(&small));
}

/// A NaN that is made of infinities, of sums that overflow, or of a tensor scale, and one that was there before.
#[test]
fn there_is_one_nan() {
    let (top, inf) = (f32::from_bits(0x7f7f_0000), f32::INFINITY);
    let cases = [
        [[inf, 1.0], [0.0, 1.0]],
        [[inf, inf], [1.0, -1.0]],
        [[top, top], [top, -top]],
        [[-f32::NAN, 1.0], [1.0, 1.0]],
        [[1.0, 1.0], [1.0, f32::from_bits(0xffc1_0000)]],
    ];
    for [lhs, rhs] in cases {
        check(&lhs, &rhs, [1, 1, 2]);
    }
    for path in paths() {
        let lhs = panels(Side::Lhs, &[0.0; 2], 1, 2).with_tensor_scale(inf);
        let rhs = panels(Side::Rhs, &[1.0; 2], 1, 2);
        let mut result = [0.0];
        Panels::multiply_by(path, &lhs, &rhs, &[(0, 0)], &mut result).unwrap();
        assert_eq!(bits(&result), [f32::NAN.to_bits()], "{path}");
    }
}

/// Panels without elements take no memory, however long their other axes are.
#[test]
fn no_elements_of_huge_axes() {
    for [starts, free, summed] in [
        [0, usize::MAX, 1 << 50],
        [1, 0, usize::MAX],
        [1, usize::MAX, 0],
    ] {
        let matrices = |free, summed| Matrices {
            data: &[],
            starts: &[0][..starts],
            free: Axis {
                length: free,
                stride: 1,
            },
            summed: Axis {
                length: summed,
                stride: 0,
            },
            group: summed.max(1),
        };
        let quantize = |side, matrices| {
            Panels::quantize(side, matrices, OperandQuantization::default()).unwrap()
        };
        let lhs = quantize(Side::Lhs, matrices(free, summed));
        assert!(lhs.bytes() <= 64, "{}", lhs.bytes());
        let rhs = quantize(Side::Rhs, matrices(0, summed));
        let pairs: &[(usize, usize)] = if starts == 0 { &[] } else { &[(0, 0)] };
        Panels::multiply(&lhs, &rhs, pairs, &mut []).unwrap();
    }
}

/// Lengths whose product wraps around to a small number are not taken for one.
#[test]
#[should_panic(expected = "larger than all memory")]
fn panels_larger_than_all_memory() {
    let matrices = Matrices {
        data: &[1.0],
        starts: &[0],
        free: Axis {
            length: 1 << 60,
            stride: 0,
        },
        summed: Axis {
            length: 1,
            stride: 1,
        },
        group: 1,
    };
    let _ = Panels::quantize(Side::Lhs, matrices, OperandQuantization::default());
}

#[test]
fn errors_say_what_is_wrong() {
    let axis = |length, stride| Axis { length, stride };
    let wrong = |free, summed, group, starts: &[usize]| {
        let matrices = Matrices {
            data: &[1.0; 24],
            starts,
            free,
            summed,
            group,
        };
        let error =
            Panels::quantize(Side::Rhs, matrices, OperandQuantization::default()).unwrap_err();
        assert!(
            matches!(error, PanelsError::Layout { length: 24, .. }),
            "{error}"
        );
    };
    wrong(axis(3, 2), axis(4, 6), 4, &[0]);
    wrong(axis(4, 1), axis(6, 4), 5, &[0]);
    wrong(axis(4, 1), axis(6, 4), 0, &[0]);
    wrong(axis(4, 1), axis(6, 4), 6, &[1]);
    wrong(axis(4, usize::MAX), axis(6, 1), 6, &[0]);
    wrong(axis(4, 6), axis(6, 1), 6, &[usize::MAX]);

    let (lhs, rhs) = (
        panels(Side::Lhs, &[1.0; 6], 2, 3),
        panels(Side::Rhs, &[1.0; 12], 4, 3),
    );
    let other = panels(Side::Rhs, &[1.0; 12], 3, 4);
    let mut result = [0.0; 8];
    let message = |lhs: &Panels, rhs: &Panels, pairs: &[(usize, usize)], result: &mut [f32]| {
        Panels::multiply(lhs, rhs, pairs, result)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message(&lhs, &other, &[(0, 0)], &mut result),
        "product of 1 left operands [free 2, summed 3] and 1 right operands [free 3, summed 4]: the pairs' results \
         have 6 elements, got 8"
    );
    message(&lhs, &rhs, &[(0, 1)], &mut result);
    message(&lhs, &lhs, &[(0, 0)], &mut result[..4]);
    message(&rhs, &rhs, &[(0, 0)], &mut [0.0; 16]);
    message(&lhs, &rhs, &[(0, 0)], &mut result[..7]);
    assert_eq!(result, [0.0; 8]);
}
