//! The expected value of every number, in f64 and one element at a time, written from the definitions alone. The
//! definitions are OCP MX v1.0, the reference emulation library, and this crate's documentation for everything else.
//!
//! Call this module in IEEE 754's default state. Every float32 is a normal f64, and only marked operations round.

use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, Headroom, NonFinite, OuterScale, Rounding,
    ScaleFormat, ScaleMode, SharedExpMethod, Shifts, Subnormals,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// 2^e, from −1022 to 1023.
fn pow2(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// Of a positive number.
fn floor_log2(x: f64) -> i32 {
    (x.to_bits() >> 52) as i32 - 1023
}

fn ceil_log2(x: f64) -> i32 {
    floor_log2(x) + i32::from(x > pow2(floor_log2(x)))
}

/// Mantissa bits, exponents of the smallest normal and the largest number, and the largest number.
fn element(format: ElementFormat) -> (i32, i32, i32, f64) {
    // From what the text says, not from what the format says of itself.
    let text = format.to_string();
    let float = |exponent_bits: i32, mantissa_bits: i32, bias: i32, specials: &str| {
        let implicit = 1 << mantissa_bits;
        let without_number = match specials {
            "ieee" => implicit,
            "nan" | "extended" => 1,
            "nan_inf" => 2,
            _ => 0,
        };
        let largest = (1 << (exponent_bits + mantissa_bits)) - 1 - without_number;
        let (top, mantissa) = (largest >> mantissa_bits, largest % implicit);
        let max = f64::from(implicit + mantissa) * pow2(top - bias - mantissa_bits);
        (mantissa_bits, 1 - bias, top - bias, max)
    };
    match text.as_str() {
        "fp8_e5m2" => (2, -14, 15, 57344.0),
        "fp8_e4m3" => (3, -6, 8, 448.0),
        "fp6_e3m2" => (2, -2, 4, 28.0),
        "fp6_e2m3" => (3, 0, 2, 7.5),
        "fp4_e2m1" => (1, 0, 2, 6.0),
        "int8" => (6, 0, 0, 127.0 / 64.0),
        "int6" => (4, 0, 0, 31.0 / 16.0),
        "int5" => (3, 0, 0, 15.0 / 8.0),
        "int3" => (1, 0, 0, 3.0 / 2.0),
        "int4" => (2, 0, 0, 7.0 / 4.0),
        "int2" => (0, 0, 0, 1.0),
        "float16" => (10, -14, 15, 65504.0),
        "bfloat16" => (7, -126, 127, pow2(127) * (2.0 - pow2(-7))),
        "fp8_e3m4" => float(3, 4, 3, "ieee"),
        "fp8_e2m5" => float(2, 5, 1, "none"),
        "fp8_e4m3fnuz" => float(4, 3, 8, "fnuz"),
        "fp8_e4m3b11fnuz" => float(4, 3, 11, "fnuz"),
        "fp8_e5m2fnuz" => float(5, 2, 16, "fnuz"),
        "fp5_e3m1" => float(3, 1, 3, "none"),
        "fp5_e2m2" => float(2, 2, 1, "none"),
        "fp4_e3m0" => float(3, 0, 3, "none"),
        "fp4_e1m2" => float(1, 2, 1, "none"),
        "fp3_e2m0" => float(2, 0, 1, "none"),
        p3109 if p3109.starts_with("binary") => {
            let digits = |text: &str| text.trim_matches(char::is_alphabetic).parse::<i32>();
            let (bits, precision) = p3109.split_once('p').unwrap();
            let [bits, precision] = [bits, precision].map(|text| digits(text).unwrap());
            let exponent_bits = bits - precision;
            let specials = if p3109.ends_with('e') {
                "extended"
            } else {
                "fnuz"
            };
            float(
                exponent_bits,
                precision - 1,
                1 << (exponent_bits - 1),
                specials,
            )
        }
        other => {
            let inside = other.split_once('(').unwrap().1.trim_end_matches(')');
            let values: Vec<&str> = inside
                .split(',')
                .map(|field| field.split_once('=').unwrap().1)
                .collect();
            let number = |i: usize| values[i].parse::<i32>().unwrap();
            if other.starts_with("fixed") {
                let (bits, fraction_bits) = (number(0), number(1));
                let max = f64::from((1 << (bits - 1)) - 1) * pow2(-fraction_bits);
                let exponent = bits - 2 - fraction_bits;
                return (bits - 2, exponent, exponent, max);
            }
            float(number(0), number(1), number(2), values[3])
        }
    }
}

/// A magnitude to a multiple of a step.
fn to_multiple(x: f64, step: f64, rounding: Rounding, draw: u32) -> f64 {
    to_multiple_by_code(x, step, 0.0, rounding, draw)
}

/// The same, where the code of a number is this many more than its steps.
fn to_multiple_by_code(x: f64, step: f64, more: f64, rounding: Rounding, draw: u32) -> f64 {
    let steps = x / step;
    let below = steps.floor();
    let fraction = steps - below;
    let up = match rounding {
        Rounding::NearestAway => fraction >= 0.5,
        Rounding::NearestEven => fraction > 0.5 || (fraction == 0.5 && (below + more) % 2.0 == 1.0),
        Rounding::TowardZero => false,
        Rounding::Stochastic => (fraction * pow2(31)).floor() + f64::from(draw >> 1) >= pow2(31),
    };
    (below + f64::from(u8::from(up))) * step
}

/// A magnitude to a number with this number of mantissa bits, not finer than at 2^emin.
fn to_float(x: f64, mantissa_bits: i32, emin: i32, rounding: Rounding, draw: u32) -> f64 {
    let exponent = if x == 0.0 {
        emin
    } else {
        floor_log2(x).max(emin)
    };
    let step = pow2(exponent - mantissa_bits);
    // A binade has 2^mantissa_bits codes.
    let more = f64::from(exponent - emin) * pow2(mantissa_bits);
    to_multiple_by_code(x, step, more, rounding, draw)
}

/// `FloatFormat::round`: bfloatN and fpN.
pub(crate) fn round_float(format: FloatFormat, x: f32, rounding: Rounding, draw: u32) -> f32 {
    let (mantissa_bits, emin) = match format.exponent_bits() {
        8 => (format.mantissa_bits() as i32, -126),
        _ => (format.mantissa_bits() as i32, -14),
    };
    if !x.is_finite() || (emin == -126 && mantissa_bits == 23) {
        return x;
    }
    let magnitude = f64::from(x.abs());
    if !format.subnormals() && magnitude < pow2(emin) {
        return 0.0_f32.copysign(x);
    }
    let rounded = to_float(magnitude, mantissa_bits, emin, rounding, draw);
    let max = pow2(1 - emin) * (2.0 - pow2(-mantissa_bits));
    let finite = if rounded > max {
        f64::INFINITY
    } else {
        rounded
    };
    (finite as f32).copysign(x)
}

/// An element's number, and the magnitude from which on the element is clipped: Inf if from none.
pub(crate) type Element = (f32, f64);

/// A whole tensor.
pub(crate) fn quantize(
    format: BlockFormat,
    data: &[f32],
    shape: &[usize],
    axis: usize,
    rounding: Rounding,
    draw: impl Fn(usize) -> u32,
) -> Vec<Element> {
    let tensor_amax = amax(data);
    let mut elements = vec![(0.0, 0.0); data.len()];
    for places in blocks(format, shape, axis) {
        let block: Vec<f32> = places.iter().map(|at| data[*at]).collect();
        let draws: Vec<u32> = places.iter().map(|at| draw(*at)).collect();
        let of = |block: &[f32], draws: &[u32]| match (
            format.shifts,
            format.non_finite,
            format.scale,
            format.outer,
        ) {
            (Some(shifts), ..) => microexponent(format, shifts, block, rounding, draws),
            (_, NonFinite::Kept, ..) => bfp(format, block, rounding, draws),
            (.., scale, _) if scale.is_exponent() => mx(format, block, rounding, draws),
            (.., Some(outer)) => outer_scale(format, outer, block, rounding, draws),
            (.., None) => float_scale(format, tensor_amax, block, rounding, draws),
        };
        let block = match format.sign_scales {
            true => by_sign(&block, &draws, of),
            false => of(&block, &draws),
        };
        for (at, element) in places.into_iter().zip(block) {
            elements[at] = element;
        }
    }
    elements
}

/// The elements of each sign in a block of their own. One of them that is NaN makes both NaN.
fn by_sign(
    block: &[f32],
    draws: &[u32],
    of: impl Fn(&[f32], &[u32]) -> Vec<Element>,
) -> Vec<Element> {
    let mut elements = vec![(0.0, 0.0); block.len()];
    for negative in [false, true] {
        let places = (0..block.len()).filter(|at| block[*at].is_sign_negative() == negative);
        let places: Vec<usize> = places.collect();
        let part: Vec<f32> = places.iter().map(|at| block[*at]).collect();
        let draws: Vec<u32> = places.iter().map(|at| draws[*at]).collect();
        for (at, element) in places.into_iter().zip(of(&part, &draws)) {
            elements[at] = element;
        }
    }
    match elements.iter().any(|(x, _)| x.is_nan()) {
        true => all_nan(block),
        false => elements,
    }
}

/// The places of the elements of each block, in row-major order.
fn blocks(format: BlockFormat, shape: &[usize], axis: usize) -> Vec<Vec<usize>> {
    let size = match (format.shared_exp_method, format.outer) {
        (SharedExpMethod::None, _) => 1,
        (SharedExpMethod::Max, Some(outer)) => outer.size,
        (SharedExpMethod::Max, None) => format.block_size,
    };
    let square = format.square;
    let partner = if axis == 0 { 1 } else { axis - 1 };
    let mut blocks: BTreeMap<[usize; 5], Vec<usize>> = BTreeMap::new();
    for place in 0..shape.iter().product() {
        let (mut rest, mut block) = (place, [0; 5]);
        for i in (0..shape.len()).rev() {
            (block[i], rest) = (rest % shape[i], rest / shape[i]);
        }
        let of = |at: usize| at.checked_div(size).unwrap_or(0);
        block[axis] = of(block[axis]);
        if square {
            block[partner] = of(block[partner]);
        }
        blocks.entry(block).or_default().push(place);
    }
    blocks.into_values().collect()
}

/// The largest magnitude; not finite if one is not.
fn amax(block: &[f32]) -> f64 {
    let larger = |max: f64, x: &f32| match x.is_finite() {
        true => max.max(f64::from(x.abs())),
        false => f64::INFINITY,
    };
    block.iter().fold(0.0, larger)
}

fn all_nan(block: &[f32]) -> Vec<Element> {
    vec![(f32::NAN, f64::INFINITY); block.len()]
}

fn zeros(block: &[f32]) -> Vec<Element> {
    let zero = |x: &f32| (0.0_f32.copysign(*x), f64::INFINITY);
    block.iter().map(zero).collect()
}

fn mx(format: BlockFormat, block: &[f32], rounding: Rounding, draws: &[u32]) -> Vec<Element> {
    let (mantissa_bits, emin, _, max) = element(format.element);
    let Some(s) = mx_scale(format, block) else {
        return all_nan(block);
    };
    if format.subnormals == Subnormals::FlushBlocks && amax(block) < pow2(-126) {
        return zeros(block);
    }
    let round = |(x, draw): (&f32, &u32)| {
        let scaled = f64::from(x.abs()) / pow2(s);
        let rounded = to_float(scaled, mantissa_bits, emin, rounding, *draw).min(max);
        // The largest number of the block that is less than 2^128.
        let limit = (max * pow2(s)).min((2.0 - pow2(-mantissa_bits)) * pow2(127));
        let rounded = (rounded * pow2(s)).min(limit);
        ((rounded as f32).copysign(*x), limit)
    };
    block.iter().zip(draws).map(round).collect()
}

/// The exponent of a block's scale; `None` for NaN.
fn mx_scale(format: BlockFormat, block: &[f32]) -> Option<i32> {
    let (mantissa_bits, _, emax, max) = element(format.element);
    let limit = (1 << (format.scale.bits() - 1)) - 1;
    let amax = amax(block);
    if amax.is_infinite() {
        return None;
    }
    let h = format.headroom;
    let s = match format.scale_mode {
        _ if amax == 0.0 => -126 - emax,
        ScaleMode::Floor => floor_log2_of_product(h, amax) - emax,
        ScaleMode::Ceil => ceil_log2_of_product(h, amax) - emax,
        ScaleMode::Even if h.is_none() => {
            let rounded = (amax as f32).to_bits() + (1 << (22 - mantissa_bits));
            (rounded >> 23) as i32 - 127 - emax
        }
        ScaleMode::Even => {
            // n · amax / d plus half a unit of the element's last place at its exponent.
            let exponent = floor_log2_of_product(h, amax);
            let [n, d] = [h.numerator(), h.denominator()].map(f64::from);
            let half_ulp = d * pow2(exponent - mantissa_bits - 1);
            let carries = n * amax + half_ulp >= d * pow2(exponent + 1);
            exponent + i32::from(carries) - emax
        }
        ScaleMode::Rceil => {
            // The product is rounded to float32.
            let p = amax as f32 * (1.0 / max as f32);
            match f64::from(p) {
                0.0 => -127,
                p => ceil_log2_of_product(h, p),
            }
        }
        ScaleMode::Rms => root_mean_square(h, amax, block),
        other => unimplemented!("{other} is not known here"),
    };
    (s <= limit).then_some(s.max(-limit))
}

/// floor(log2(h · x)).
fn floor_log2_of_product(h: Headroom, x: f64) -> i32 {
    let [n, d] = [h.numerator(), h.denominator()].map(f64::from);
    let exponent = floor_log2(x);
    exponent + i32::from(n * x >= d * pow2(exponent + 1))
}

/// ceil(log2(h · x)).
fn ceil_log2_of_product(h: Headroom, x: f64) -> i32 {
    let [n, d] = [h.numerator(), h.denominator()].map(f64::from);
    let exponent = ceil_log2(x);
    exponent + i32::from(n * x > d * pow2(exponent))
}

/// floor(log2(h · c · √M)) + e − 15.
fn root_mean_square(h: Headroom, amax: f64, block: &[f32]) -> i32 {
    let unit = floor_log2(amax) - 15;
    let multiples = block
        .iter()
        .map(|x| (f64::from(x.abs()) / pow2(unit)).floor() as u128);
    let sum: u128 = multiples.map(|m| m * m).sum();
    let mean = (sum / block.len() as u128).max(1);
    let above = u128::from(h.numerator()) * 292_247_856;
    let below = u128::from(h.denominator()) * 600_000_000;
    // 4 · 2^s ≤ 4 · h · c · √M, squared.
    let fits = |s: &u32| (below << s) * (below << s) <= 16 * above * above * mean;
    let s = (0..24).rev().find(fits).expect("h · c is at least 1/4");
    s as i32 - 2 + unit
}

/// The exponent field.
fn biased(x: f64) -> i32 {
    if x < pow2(-126) {
        0
    } else {
        floor_log2(x) + 127
    }
}

fn bfp(format: BlockFormat, block: &[f32], rounding: Rounding, draws: &[u32]) -> Vec<Element> {
    let m = format.element.bits() as i32 - 1;
    let finite: Vec<f32> = block.iter().copied().filter(|x| x.is_finite()).collect();
    let step = pow2(biased(amax(&finite)) - 127 - (m - 1));
    let limit = (pow2(m) - 1.0) * step;
    let round = |(x, draw): (&f32, &u32)| match x.is_finite() {
        true => {
            let rounded = to_multiple(f64::from(x.abs()), step, rounding, *draw);
            ((rounded.min(limit) as f32).copysign(*x), limit)
        }
        false => (*x, limit),
    };
    block.iter().zip(draws).map(round).collect()
}

fn microexponent(
    format: BlockFormat,
    shifts: Shifts,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<Element> {
    let m = format.element.bits() as i32 - 1;
    let shared = amax(block);
    if shared.is_infinite() {
        return all_nan(block);
    }
    let shared = biased(shared);
    let of_sub_block = |(sub_block, draws): (&[f32], &[u32])| -> Vec<Element> {
        let shift = (shared - biased(amax(sub_block))).min((1 << shifts.bits) - 1);
        let step = pow2(shared - 127 - shift + 1 - m);
        let limit = (pow2(m) - 1.0) * step;
        let round = |(x, draw): (&f32, &u32)| {
            let magnitude = f64::from(x.abs());
            let magnitude = if magnitude < pow2(-126) {
                0.0
            } else {
                magnitude
            };
            let rounded = to_multiple(magnitude, step, rounding, *draw).min(limit);
            ((rounded as f32).copysign(*x), limit)
        };
        sub_block.iter().zip(draws).map(round).collect()
    };
    let size = shifts.block_size;
    let sub_blocks = block.chunks(size).zip(draws.chunks(size));
    sub_blocks.flat_map(of_sub_block).collect()
}

/// A part of the tensor, quantized as a separate tensor. Its scale has few bits.
fn outer_scale(
    format: BlockFormat,
    outer: OuterScale,
    part: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<Element> {
    let (.., max) = scale_format(format.scale);
    let of_tensor = BlockFormat {
        tensor_scale: true,
        outer: None,
        ..format
    };
    let wanted = tensor_scale(of_tensor, amax(part), max as f32);
    if amax(part).is_infinite() {
        return all_nan(part);
    }
    let (outer_bits, outer_emin, outer_max) = scale_format(outer.scale);
    let least = if outer_bits < 23 { outer_bits } else { 0 };
    let limited = f64::from(wanted).clamp(pow2(outer_emin - least), outer_max);
    let t = to_float(limited, outer_bits, outer_emin, Rounding::NearestEven, 0) as f32;
    let size = format.block_size;
    let blocks = part.chunks(size).zip(draws.chunks(size));
    blocks
        .flat_map(|(block, draws)| in_units_of(of_tensor, t, block, rounding, draws))
        .collect()
}

/// Mantissa bits, exponent of the smallest normal number, largest number.
fn scale_format(scale: ScaleFormat) -> (i32, i32, f64) {
    match scale.to_string().as_str() {
        "ue4m3" => (3, -6, 448.0),
        "ue5m3" => (3, -14, 114_688.0),
        "ue5m2" => (2, -14, 57_344.0),
        "ue3m3" => (3, -2, 28.0),
        "ue6m2" => (2, -47, 49_152.0),
        "bfloat16" => (7, -126, pow2(127) * (2.0 - pow2(-7))),
        "float32" => (23, -126, f64::from(f32::MAX)),
        "float(exponent_bits=7,mantissa_bits=0,bias=63,specials=ieee)" => (0, -62, pow2(63)),
        "float(exponent_bits=7,mantissa_bits=0,bias=62,specials=ieee)" => (0, -61, pow2(64)),
        other => unimplemented!("{other} is not known here"),
    }
}

/// t of a tensor, whose blocks have scales up to a largest one.
fn tensor_scale(format: BlockFormat, tensor_amax: f64, scale_max: f32) -> f32 {
    let h = f32::from(format.headroom.numerator()) / f32::from(format.headroom.denominator());
    let first = alternatives(format)[0].q;
    match (format.tensor_scale, format.four_over_six) {
        (false, _) => 1.0,
        (true, false) if format.eden => tensor_amax as f32 / (scale_max * 4.0 / 7.0 * first) * h,
        (true, false) => tensor_amax as f32 / (scale_max * first) * h,
        (true, true) => tensor_amax as f32 / (256.0 * 6.0) * h,
    }
}

fn float_scale(
    format: BlockFormat,
    tensor_amax: f64,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<Element> {
    let (.., scale_max) = scale_format(format.scale);
    let t = tensor_scale(format, tensor_amax, scale_max as f32);
    if format.tensor_scale && tensor_amax.is_infinite() {
        return all_nan(block);
    }
    in_units_of(format, t, block, rounding, draws)
}

/// Each operation rounds to float32, so it is float32's.
fn in_units_of(
    format: BlockFormat,
    t: f32,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<Element> {
    let h = f32::from(format.headroom.numerator()) / f32::from(format.headroom.denominator());
    let alternatives = alternatives(format);
    let doublings = if format.sub_scales.is_some() {
        4.0
    } else {
        1.0
    };
    let (scale_bits, scale_emin, scale_max) = scale_format(format.scale);
    let scale_min = match format.subnormal_scales && scale_bits < 23 {
        true => pow2(scale_emin - scale_bits),
        false => pow2(scale_emin),
    };
    let (scale_max, scale_min) = (scale_max as f32, scale_min as f32);
    let amax = amax(block);
    if amax.is_infinite() {
        return all_nan(block);
    }
    if t == 0.0 {
        return zeros(block);
    }
    let scale = |alternative: &Alternative| {
        let wanted = amax as f32 / (alternative.q * doublings) / t * h * alternative.factor;
        let limited = f64::from(wanted.clamp(scale_min, scale_max));
        to_float(limited, scale_bits, scale_emin, Rounding::NearestEven, 0) as f32
    };
    let with = |alternative: &Alternative, rounding: Rounding, draws: &[u32]| -> Vec<Element> {
        let of_block = scale(alternative);
        if (t * of_block).is_infinite() {
            return all_nan(block);
        }
        let round = |(i, (x, draw)): (usize, (&f32, &u32))| {
            let c = of_block * sub_scale(format, of_block, block, i);
            let inverse = 1.0 / t / c;
            if (t * c).is_infinite() {
                return (f32::NAN, f64::INFINITY);
            }
            let scaled = match t * c == 0.0 {
                true => 0.0,
                false if inverse.is_infinite() => x.abs() / (t * c),
                false => x.abs() * inverse,
            };
            let (unit, q) = alternative.numbers.round(scaled, *x, rounding, *draw);
            let limit = match f64::from(q * (t * c)) {
                // A table without numbers of this sign.
                0.0 if q == 0.0 && t * c > 0.0 => f64::from(f32::from_bits(1)),
                0.0 => f64::INFINITY,
                limit => limit,
            };
            ((unit * (t * c)).copysign(*x), limit)
        };
        block.iter().zip(draws).enumerate().map(round).collect()
    };
    if alternatives.len() == 1 || amax == 0.0 {
        return with(&alternatives[0], rounding, draws);
    }
    let below = if format.four_over_six { 17 } else { 15 };
    let unit = pow2(floor_log2(amax) - below);
    let error = |alternative: &&Alternative| -> u64 {
        let rounded = with(alternative, Rounding::NearestEven, &vec![0; block.len()]);
        if rounded.iter().any(|(q, _)| q.is_nan()) {
            return u64::MAX;
        }
        let errors = rounded.iter().zip(block).map(|((q, _), x)| {
            let difference = f64::from((q - x).abs());
            let error = (difference / unit).floor().min(65535.0) as u64;
            error * error
        });
        errors.sum()
    };
    // Of equal ones the first.
    let best = alternatives.iter().min_by_key(error).unwrap();
    with(best, rounding, draws)
}

/// By what the scale of an element's block is multiplied for its sub-blocks.
fn sub_scale(format: BlockFormat, scale: f32, block: &[f32], i: usize) -> f32 {
    let Some(sub_scales) = format.sub_scales else {
        return 1.0;
    };
    let (_, _, emax, _) = element(format.element);
    let mut factor = 1.0;
    for (length, above) in sub_scales.block_sizes().into_iter().zip([2, 1]) {
        let start = i / length * length;
        let part = &block[start..block.len().min(start + length)];
        if amax(part) >= f64::from(scale) * factor * pow2(emax + above) {
            factor *= 2.0;
        }
    }
    factor as f32
}

/// The kinds of blocks.
struct Alternative {
    numbers: Numbers,
    /// The largest number, and by what its scale is larger than that makes it.
    q: f32,
    factor: f32,
}

enum Numbers {
    /// Mantissa bits, exponent of the smallest normal number, largest number.
    Float(i32, i32, f32),
    /// The magnitudes of positive and of negative numbers, from 0 on.
    Table([Vec<f32>; 2]),
}

impl Numbers {
    /// The number of a magnitude with the sign of x, and the largest number of this sign.
    fn round(&self, scaled: f32, x: f32, rounding: Rounding, draw: u32) -> (f32, f32) {
        match self {
            Self::Float(mantissa_bits, emin, q) => {
                let limited = f64::from(scaled.min(*q));
                let unit = to_float(limited, *mantissa_bits, *emin, rounding, draw);
                (unit.min(f64::from(*q)) as f32, *q)
            }
            Self::Table(sides) => {
                let side = &sides[usize::from(x.is_sign_negative())];
                let above = side.partition_point(|magnitude| *magnitude <= scaled);
                let last = side[side.len() - 1];
                if above == side.len() {
                    return (last, last);
                }
                let (low, high) = (side[above - 1], side[above]);
                let mean = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
                // Between neighbours of float32 there is nothing.
                let mean = if mean > low { mean } else { high };
                let up = match rounding {
                    Rounding::NearestAway => scaled >= mean,
                    Rounding::NearestEven => scaled > mean || (scaled == mean && above % 2 == 0),
                    Rounding::TowardZero => false,
                    Rounding::Stochastic => {
                        let fraction = ((scaled - low) / (high - low) * 16_777_216.0).floor();
                        fraction.min(16_777_215.0) + (draw >> 8) as f32 >= 16_777_216.0
                    }
                };
                (if up { high } else { low }, last)
            }
        }
    }
}

/// The alternatives of the blocks of a format, which are kept for the next block: a table may have 256 numbers, and its text is long.
fn alternatives(format: BlockFormat) -> Rc<[Alternative]> {
    thread_local! {
        static LAST: RefCell<Option<(BlockFormat, Rc<[Alternative]>)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| match last {
        Some((of, alternatives)) if *of == format => alternatives.clone(),
        _ => {
            let made: Rc<[Alternative]> = read_alternatives(format).into();
            *last = Some((format, made.clone()));
            made
        }
    })
}

fn read_alternatives(format: BlockFormat) -> Vec<Alternative> {
    let text = format.element.to_string();
    let Some(inside) = text.strip_prefix("table(") else {
        let (mantissa_bits, emin, _, q) = element(format.element);
        let numbers = || Numbers::Float(mantissa_bits, emin, q as f32);
        let of_factor = |factor| Alternative {
            numbers: numbers(),
            q: q as f32,
            factor,
        };
        return match format.four_over_six {
            true => vec![of_factor(1.0), of_factor(1.5)],
            false => vec![of_factor(1.0)],
        };
    };
    let fp4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let both = |magnitudes: Vec<f32>| [magnitudes.clone(), magnitudes];
    let with_5 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0];
    let sides = match inside {
        "nf4)" => {
            let positive = [
                0.0, 0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684,
                1.0,
            ];
            let negative = [
                0.0,
                0.091050036,
                0.18477343,
                0.28444138,
                0.3949175,
                0.52507305,
                0.6961928,
                1.0,
            ];
            vec![[positive.to_vec(), negative.to_vec()]]
        }
        "if4)" => {
            let integers = (0..8).map(|i| i as f32 * 6.0 / 7.0).collect();
            vec![both(fp4.to_vec()), both(integers)]
        }
        "razer)" => vec![
            [with_5.to_vec(), fp4.to_vec()],
            [fp4.to_vec(), with_5.to_vec()],
        ],
        _ => {
            let tables = inside.trim_end_matches(')').split('/');
            let side = |numbers: &[f32], negative: bool| {
                let numbers = numbers.iter().filter(|x| x.is_sign_negative() == negative);
                let mut side: Vec<f32> = numbers.map(|x| x.abs()).filter(|x| *x > 0.0).collect();
                side.push(0.0);
                side.sort_by(f32::total_cmp);
                side
            };
            let of = |table: &str| {
                let numbers: Vec<f32> = table.split(' ').map(|x| x.parse().unwrap()).collect();
                [side(&numbers, false), side(&numbers, true)]
            };
            tables.map(of).collect()
        }
    };
    let alternative = |sides: [Vec<f32>; 2]| Alternative {
        q: sides.iter().flatten().fold(0.0, |max, x| max.max(*x)),
        numbers: Numbers::Table(sides),
        factor: 1.0,
    };
    sides.into_iter().map(alternative).collect()
}
