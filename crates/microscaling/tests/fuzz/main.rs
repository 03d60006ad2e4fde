//! Random calls of the slice API against an independent model ([`model`]): formats, shapes, axes, roundings, numbers of threads,
//! the float state of threads, values of all kinds, and hostile bytes.
//!
//! The test runs for 10 seconds, or for `MICROSCALING_FUZZ_SECONDS`; ten minutes in `.ci/long`, and hours are worth it after a change of
//! the kernels. A failure prints the seed of its case, which `MICROSCALING_FUZZ_SEED` runs alone.

#![allow(
    clippy::too_many_lines,
    reason = "a case checks all results of one tensor"
)]

mod cases;
#[path = "../suite/float_state.rs"]
#[allow(dead_code, reason = "the suite has more uses for it")]
mod float_state;
mod hostile;
mod model;
mod random;

use cases::{Place, assert_same, run};
use float_state::ieee;
use microscaling::{
    BlockFormat, Comparison, Dialect, NonFinite, Packed, RandomHadamard, Statistics,
};
use random::{Random, Tensor};

/// Whether elements are of tables.
fn is_table(format: &str) -> bool {
    format.contains("table") || ["nf4", "if4", "razer"].contains(&format)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Everything that quantizes, packs and unpacks.
fn quantizing(random: &mut Random) {
    let format = random.format();
    let tensor = random.tensor(format.square);
    let Tensor { shape, axis, data } = &tensor;
    // MS-EDEN does not round elements; its tests are in the suite.
    let has_eden = format.eden;
    let rounding = match has_eden {
        true => random.deterministic_rounding(),
        false => random.rounding(),
    };
    let stream = random.stream();
    let rounder = rounding.with(stream);
    let place = Place::of(random);
    let draw = |at: usize| stream.draw(at as u64);
    let expected = ieee(|| model::quantize(format, data, shape, *axis, rounding, draw));
    let (values, limits): (Vec<f32>, Vec<f64>) = expected.into_iter().unzip();
    let what = |at: usize| {
        format!(
            "{format} {shape:?} axis {axis} {rounding}, element {at}: {:e} became",
            data[at]
        )
    };

    let quantized = place.call(|| {
        let mut values = data.clone();
        format
            .quantize(&mut values, shape, *axis, rounder)
            .map(|()| values)
    });
    let quantized = quantized.expect("all fits");
    assert_same(&quantized, &values, &what);

    let packed = place.call(|| Packed::encode(format, data, shape, *axis, rounder));
    let is_finite = data.iter().all(|x| x.is_finite());
    let packed = match (format.non_finite, packed) {
        (NonFinite::Kept, Err(_)) if !is_finite => None,
        (_, packed) => Some(packed.expect("all fits")),
    };
    if let Some(packed) = packed {
        // Two's complements have no −0, nor has FNUZ, nor have tables other than IF4's.
        let text = format.to_string();
        let none = [
            "int", "fixed", "fnuz", "binary", "extended", "table", "nf4", "razer",
        ];
        let has_none = none.iter().any(|name| text.contains(name)) && !text.contains("if4");
        let decoded = place.call(|| packed.decode());
        // A number of a table that is not 0 becomes −0 where its product with the scale is too small.
        let is_table = is_table(&text);
        let code = |(x, decoded): (&f32, &f32)| {
            let is_code = !is_table || decoded.to_bits() == 0;
            match has_none && is_code && x.to_bits() == 1 << 31 {
                true => 0.0,
                false => *x,
            }
        };
        let values: Vec<f32> = values.iter().zip(&decoded).map(code).collect();
        assert_same(&decoded, &values, &|at| format!("decoded: {}", what(at)));
        let view = packed.view();
        let width = shape.last().copied().unwrap_or(1).max(1);
        let rows = random.below(view.rows() + 1)..view.rows();
        let mut some = vec![0.0_f32; rows.len() * width];
        place
            .call(|| view.decode_into(rows.clone(), &mut some))
            .expect("the rows are there");
        let values = &values[rows.start * width..][..some.len()];
        assert_same(&some, values, &|at| format!("rows: {}", what(at)));
    }

    let mut gradient = vec![1.0; data.len()];
    place
        .call(|| format.mask_clipped(data, shape, *axis, &mut gradient))
        .expect("all fits");
    // The mask does not know how elements are rounded.
    let kept = ieee(|| {
        let kept = |(x, limit): (&f32, &f64)| match x.is_finite() && f64::from(x.abs()) >= *limit {
            true => 0.0,
            false => 1.0,
        };
        data.iter().zip(&limits).map(kept).collect::<Vec<f32>>()
    });
    assert_same(&gradient, &kept, &|at| format!("mask: {}", what(at)));

    let mut units = data.clone();
    let scale =
        place.call(|| format.quantize_without_tensor_scale(&mut units, shape, *axis, rounder));
    if let Some(scale) = scale.expect("all fits") {
        assert!(format.tensor_scale && scale.is_finite());
        // A float32 product of a float32 product, and the units of a table are products, too; Inf stands for all from 2^128 on.
        let top = 2.0_f64.powi(128);
        let roundings = if is_table(&format.to_string()) {
            1.501
        } else {
            1.001
        };
        let near = |(unit, value): (&f32, &f32)| {
            // A block is NaN in either where its scale times the tensor's is too large.
            if unit.is_nan() && value.is_nan() {
                return true;
            }
            let exact = (f64::from(*unit) * f64::from(scale)).clamp(-top, top);
            let value = f64::from(*value).clamp(-top, top);
            // Below 2^-126 products round to the least subnormal, 2^-149.
            let unit_in_last_place =
                (value.abs() * f64::from(f32::EPSILON)).max(2.0_f64.powi(-149));
            (exact - value).abs() <= unit_in_last_place * roundings
        };
        let all = ieee(|| units.iter().zip(&values).all(near));
        assert!(
            all,
            "{format} {shape:?} axis {axis} {rounding}: in units of {scale:e}"
        );
    }
}

/// bfloatN and fpN.
fn elementwise(random: &mut Random) {
    let format = random.float_format();
    let tensor = random.tensor(false);
    let (rounding, stream) = (random.rounding(), random.stream());
    let place = Place::of(random);
    let expected: Vec<f32> = ieee(|| {
        let elements = tensor.data.iter().enumerate();
        elements
            .map(|(at, x)| model::round_float(format, *x, rounding, stream.draw(at as u64)))
            .collect()
    });
    let mut got = tensor.data.clone();
    place.call(|| format.round_slice(&mut got, rounding.with(stream)));
    let what = |at: usize| format!("{format:?} {rounding}: {:e}", tensor.data[at]);
    assert_same(&got, &expected, &what);
}

/// Formats without a model: the same bits anywhere.
fn anywhere(random: &mut Random) {
    let format = random.format();
    let tensor = random.tensor(format.square);
    let Tensor { shape, axis, data } = &tensor;
    let block_size = RandomHadamard::BLOCK_SIZES[random.below(RandomHadamard::BLOCK_SIZES.len())];
    let (stream, seconds) = (random.stream(), random.deterministic_rounding());
    let (dialect, weight) = (Dialect::ALL[random.below(7)], random.values(128));
    let run = || {
        let mut quantized = data.clone();
        format
            .quantize(&mut quantized, shape, *axis, seconds.with(stream))
            .expect("all fits");
        let statistics = Statistics::of(Comparison {
            original: data,
            quantized: &quantized,
            shape,
            axis: *axis,
            format: Some(format),
        });
        let statistics = statistics.expect("all fits");
        let of_blocks = statistics.block_sqnr([0.0, 0.5, 1.0]);
        let figures = [
            statistics.mse(),
            statistics.sqnr(),
            statistics.slope(),
            statistics.cosine(),
            statistics.dynamic_range(),
        ];
        let range = statistics
            .scale_range()
            .map(|range| range.map(f32::to_bits));
        let mut transformed = data.clone();
        RandomHadamard { block_size }
            .transform(&mut transformed, shape, *axis, stream)
            .expect("all fits");
        let encoded = dialect.formats().iter().map(|name| {
            let format: BlockFormat = name.parse().expect("it is one");
            let tensor = dialect.encode(format, &weight, &[2, 64]).ok()?;
            let decoded = bits(&tensor.packed.decode());
            Some((tensor.packed, tensor.divisor.map(f32::to_bits), decoded))
        });
        let encoded: Vec<_> = encoded.collect();
        let doubles = |x: Option<f64>| x.map(f64::to_bits);
        (
            // Of NaN the sign is the processor's.
            transformed
                .iter()
                .map(|x| if x.is_nan() { 0 } else { x.to_bits() })
                .collect::<Vec<_>>(),
            figures.map(doubles),
            of_blocks.map(|blocks| blocks.map(f64::to_bits)),
            range,
            encoded,
        )
    };
    let place = Place::of(random);
    assert!(
        place.call(run) == ieee(run),
        "{format} {shape:?} axis {axis} {dialect} {block_size}: other bits elsewhere"
    );
}

fn case(seed: u64) {
    let mut random = Random::new(seed);
    match random.below(14) {
        0..8 => quantizing(&mut random),
        8..10 => elementwise(&mut random),
        10..12 => anywhere(&mut random),
        _ => hostile::bytes(&mut random),
    }
}

#[test]
fn random_calls() {
    run("microscaling", case);
}

/// A few cases that never change.
#[test]
fn fixed_seeds() {
    (0..300).for_each(case);
}
