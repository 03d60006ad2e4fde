//! The parts of the squared error, against their definitions in float64.

use microscaling::{
    BlockFormat, Comparison, ElementFormat, ErrorParts, QuantizeError, RandomStream, Rounding,
};

use super::inputs::numbers;
use super::statistics::blocks;

/// To the nearest number of the element, a tie to the even code: from a list of the positive numbers.
fn nearest(element: ElementFormat, x: f64) -> f64 {
    let codes = 1_u32 << (element.bits() - 1);
    let numbers = (0..codes).map(|code| (code, f64::from(element.decode(code))));
    let numbers = numbers.filter(|(_, number)| (0.0..=f64::from(element.max())).contains(number));
    let distance = |number: f64| (x.abs() - number).abs();
    let found = numbers.min_by(|(code, number), (other_code, other)| {
        let by_distance = distance(*number).total_cmp(&distance(*other));
        by_distance.then((code % 2).cmp(&(other_code % 2)))
    });
    found.expect("there is a zero").1.copysign(x)
}

/// Five sums: e², the squares of the three parts, the products of scale and grid. Two counts: elements, and elements in the dead zone.
/// The mean bias.
fn by_definition(
    format: &BlockFormat,
    [x, q]: [&[f32]; 2],
    blocks: &[Vec<usize>],
) -> ([f64; 5], [u64; 2], f64) {
    let (mut sums, mut counts, mut biases) = ([0.0; 5], [0; 2], Vec::new());
    for block in blocks {
        let of_block = |of: &[f32]| block.iter().map(|at| f64::from(of[*at])).collect();
        let [x, q]: [Vec<f64>; 2] = [x, q].map(of_block);
        if q.iter().any(|q| q.is_nan()) {
            continue;
        }
        let amax = x.iter().fold(0.0, |amax: f64, x| amax.max(x.abs()));
        let exact = amax / f64::from(format.element.max());
        if amax > 0.0 {
            let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
            let scale = match format.is_mx() {
                true => 2_f64.powi(format.scale_exponent_of(&x).expect("it is finite")),
                false => f64::from(format.block_scale_of(&x, 1.0)),
            };
            biases.push((scale / exact).log2());
        }
        for (x, q) in x.iter().zip(&q) {
            let ideal = match exact {
                0.0 => 0.0,
                _ => exact * nearest(format.element, x / exact),
            };
            let is_dead = x.abs() < exact * f64::from(format.element.min_subnormal()) / 2.0;
            let [scale, rest] = [q - ideal, ideal - x];
            counts[0] += 1;
            counts[1] += u64::from(is_dead);
            sums[0] += (q - x).powi(2);
            sums[1] += scale.powi(2);
            sums[if is_dead { 2 } else { 3 }] += rest.powi(2);
            sums[4] += if is_dead { 0.0 } else { scale * rest };
        }
    }
    let count = biases.len() as f64;
    (sums, counts, biases.iter().sum::<f64>() / count)
}

fn parts(
    text: &str,
    x: &[f32],
    shape: &[usize],
    axis: usize,
    rounding: Rounding,
) -> (Option<ErrorParts>, Vec<f32>) {
    let format: BlockFormat = text.parse().expect("it is a format");
    let mut q = x.to_vec();
    let rounder = rounding.with(RandomStream::new(1, 2));
    format.quantize(&mut q, shape, axis, rounder).unwrap();
    let comparison = Comparison {
        original: x,
        quantized: &q,
        shape,
        axis,
        format: Some(format),
    };
    (ErrorParts::of(comparison, rounding).expect("it fits"), q)
}

#[test]
fn every_part_is_its_definition() {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-5 * a.abs().max(b.abs()) + 1e-7;
    for text in [
        "mx(element=fp4_e2m1,scale_mode=rceil)",
        "mxfp4",
        "mx(element=fp4_e2m1,scale_mode=even,square=true,block_size=8)",
        "mxfp8_e4m3",
        "mx(element=int4,block_size=0)",
        "mx(element=fp6_e3m2,headroom=4/3)",
        "nvfp4",
        "block(element=e1m2,scale=ue5m3,block_size=16)",
    ] {
        for (shape, axis) in [(vec![96, 40], 1), (vec![96, 40], 0), (vec![3, 50, 7], 1)] {
            let format: BlockFormat = text.parse().unwrap();
            let mut x = numbers(shape.iter().product(), 0, false, 5);
            for x in &mut x {
                // Of ordinary magnitudes, so that no scale underflows.
                *x = x.clamp(-40.0, 40.0) + 1e-3;
            }
            x[3] = f32::NAN;
            let (got, q) = parts(text, &x, &shape, axis, Rounding::NearestEven);
            let got = got.expect("the format has parts");
            let places = blocks(&shape, axis, format);
            let ([error, scale, dead, grid, product], counts, bias) =
                by_definition(&format, [&x, &q], &places);
            let name = format!("{text} {shape:?} {axis}");
            assert_eq!([got.elements(), got.dead_zone_elements()], counts, "{name}");
            for (got, expected) in [
                (got.error(), error),
                (got.scale().unwrap(), scale / error),
                (got.dead_zone().unwrap(), dead / error),
                (got.grid().unwrap(), grid / error),
                (got.cosine().unwrap_or(0.0), product / (scale * grid).sqrt()),
                (got.scale_bias().unwrap(), bias),
            ] {
                assert!(close(got, expected), "{name}: {got}, not {expected}");
            }
        }
    }
}

#[test]
fn parts_of_several_tensors_are_of_all_elements() {
    let x = numbers(64 * 32, 0, false, 9);
    let of = |x: &[f32]| {
        let shape = [x.len() / 32, 32];
        parts("mxfp4", x, &shape, 1, Rounding::NearestAway)
            .0
            .unwrap()
    };
    let mut both = of(&x[..20 * 32]);
    both.merge(of(&x[20 * 32..]));
    let all = of(&x);
    assert_eq!(both.dead_zone_elements(), all.dead_zone_elements());
    let close = |a: Option<f64>, b: Option<f64>| (a.unwrap() - b.unwrap()).abs() < 1e-12;
    assert!(close(both.scale(), all.scale()) && close(both.scale_bias(), all.scale_bias()));
}

#[test]
fn formats_without_the_parts_have_none() {
    let x = numbers(64, 0, false, 1);
    for text in [
        "mx9",
        "bfp16",
        "nf4",
        "hif4",
        "mx(element=fp4_e2m1,sign_scales=true)",
        "mx(element=int8,shared_exp_method=none)",
        "block(element=e2m1,scale=ue4m3,block_size=16,outer_size=32)",
        "mx(element=fp4_e2m1,rounding=floor)",
        "mx(element=fp8_e4m3,flush_outputs=true)",
        "mx(element=fp8_e4m3,overflow=nan)",
    ] {
        let (got, _) = parts(text, &x, &[1, 64], 1, Rounding::NearestEven);
        assert_eq!(got, None, "{text}");
    }
    for rounding in [Rounding::Stochastic, Rounding::TowardZero] {
        let (got, _) = parts("mxfp4", &x, &[64], 0, rounding);
        assert_eq!(got, None, "{rounding}");
    }
    let comparison = Comparison {
        original: &x,
        quantized: &x,
        shape: &[64],
        axis: 0,
        format: None,
    };
    assert_eq!(ErrorParts::of(comparison, Rounding::NearestEven), Ok(None));
    let short = Comparison {
        quantized: &x[1..],
        ..comparison
    };
    let error = ErrorParts::of(short, Rounding::NearestEven).unwrap_err();
    assert!(matches!(
        error,
        QuantizeError::LengthMismatch { got: 63, .. }
    ));
}

#[test]
fn strange_tensors_have_parts() {
    for (x, elements) in [
        (vec![], 0),
        (vec![0.0; 40], 40),
        (vec![f32::NAN; 5], 0),
        (vec![f32::INFINITY, 1.0], 0),
        (vec![1e-45, 0.0], 2),
        (vec![f32::MAX, 1.0], 2),
    ] {
        let shape = [x.len()];
        let (got, _) = parts("mxfp4", &x, &shape, 0, Rounding::NearestEven);
        let got = got.unwrap();
        assert_eq!(got.elements(), elements, "{x:?}");
        let shares = [got.scale(), got.dead_zone(), got.grid(), got.cosine()];
        assert!(
            shares.iter().flatten().all(|share| share.is_finite()),
            "{x:?}: {got:?}"
        );
    }
}
