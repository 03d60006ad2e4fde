//! A slow, independent statement of the rules in f64: tables of values, searches and divisions. Every number here is
//! exact in f64, so only marked operations round.

pub(crate) mod blocks;

use crate::float_state::ieee;
use microscaling::{BlockFormat, ElementFormat, Headroom, Rounding, ScaleMode};

/// 2^e, exactly, also where f32 has no such number.
pub(crate) fn pow2(e: i32) -> f64 {
    2.0_f64.powi(e)
}

/// From the exponent field: every float32 is a normal f64.
pub(crate) fn floor_log2(x: f64) -> i32 {
    (x.to_bits() >> 52) as i32 - 1023
}

pub(crate) fn ceil_log2(x: f64) -> i32 {
    floor_log2(x) + i32::from(pow2(floor_log2(x)) < x)
}

/// The non-negative values of a format in ascending order: an even place is an even last digit.
pub(crate) fn magnitudes(element: ElementFormat) -> Vec<f64> {
    let of_bias = |bias: i32, mantissa_bits: i32, count: i32| -> Vec<f64> {
        let per_binade = 1 << mantissa_bits;
        let value = |code: i32| match (code / per_binade, code % per_binade) {
            (0, mantissa) => f64::from(mantissa) * pow2(1 - bias - mantissa_bits),
            (field, mantissa) => {
                f64::from(per_binade + mantissa) * pow2(field - bias - mantissa_bits)
            }
        };
        (0..count).map(value).collect()
    };
    let float = |exponent_bits: i32, mantissa_bits: i32, count: i32| {
        of_bias((1 << (exponent_bits - 1)) - 1, mantissa_bits, count)
    };
    let fixed = |max: i32, step: f64| (0..=max).map(|n| f64::from(n) * step).collect();
    match element.to_string().as_str() {
        "fp8_e5m2" => float(5, 2, 31 * 4),
        "fp8_e4m3" => float(4, 3, 16 * 8 - 1),
        "fp6_e3m2" => float(3, 2, 8 * 4),
        "fp6_e2m3" => float(2, 3, 4 * 8),
        "fp4_e2m1" => vec![0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
        "int8" => fixed(127, 1.0 / 64.0),
        "int6" => fixed(31, 1.0 / 16.0),
        "int5" => fixed(15, 1.0 / 8.0),
        "int3" => fixed(3, 1.0 / 2.0),
        "int4" => fixed(7, 0.25),
        "int2" => fixed(1, 1.0),
        "float16" => (0..0x7c00)
            .map(|c| half::f16::from_bits(c).to_f64())
            .collect(),
        "bfloat16" => (0..0x7f80)
            .map(|c| half::bf16::from_bits(c).to_f64())
            .collect(),
        "fp8_e3m4" => float(3, 4, 7 * 16),
        "fp8_e2m5" => float(2, 5, 4 * 32),
        "fp8_e4m3fnuz" => of_bias(8, 3, 128),
        "fp8_e4m3b11fnuz" => of_bias(11, 3, 128),
        "fp8_e5m2fnuz" => of_bias(16, 2, 128),
        "fp5_e3m1" => float(3, 1, 16),
        "fp5_e2m2" => vec![
            0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0,
        ],
        "fp4_e3m0" => vec![0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0],
        "fp4_e1m2" => fixed(7, 0.25),
        "fp3_e2m0" => vec![0.0, 1.0, 2.0, 4.0],
        other => unimplemented!("{other} is not known here"),
    }
}

/// Which of two neighbours a magnitude between them becomes: true for the upper one. `fraction` is
/// how far from the lower to the upper it lies, in 0 … 1.
pub(crate) fn goes_up(fraction: f64, lower_is_even: bool, rounding: Rounding, draw: u32) -> bool {
    match rounding {
        Rounding::NearestAway => fraction >= 0.5,
        Rounding::NearestEven => fraction > 0.5 || (fraction == 0.5 && !lower_is_even),
        Rounding::TowardZero => false,
        Rounding::Stochastic => (fraction * pow2(31)).floor() + f64::from(draw >> 1) >= pow2(31),
    }
}

/// Rounds a magnitude to a table of magnitudes, saturating.
pub(crate) fn round_to_table(x: f64, table: &[f64], rounding: Rounding, draw: u32) -> f64 {
    let upper = table.partition_point(|value| *value <= x);
    let lower = upper - 1;
    if upper == table.len() {
        return table[lower];
    }
    let step = table[upper] - table[lower];
    let fraction = (x - table[lower]) / step;
    table[if goes_up(fraction, lower % 2 == 0, rounding, draw) {
        upper
    } else {
        lower
    }]
}

/// The scale modes that know a block by its largest magnitude.
pub(crate) const MODES: [ScaleMode; 4] = [
    ScaleMode::Floor,
    ScaleMode::Ceil,
    ScaleMode::Even,
    ScaleMode::Rceil,
];

/// No headroom, the literature's, and the largest and the smallest.
pub(crate) fn headrooms() -> Vec<Headroom> {
    let headrooms = [(1, 1), (4, 3), (17, 16), (3, 2), (255, 128), (255, 254)];
    headrooms
        .map(|(numerator, denominator)| Headroom::new(numerator, denominator).unwrap())
        .into()
}

/// A positive number n / d for comparisons, with n and d exact and few bits long.
#[derive(Clone, Copy)]
struct Fraction(f64, f64);

impl Fraction {
    /// floor(log2(n / d)).
    fn floor_log2(self) -> i32 {
        let Self(above, below) = self;
        let mut exponent = floor_log2(above) - floor_log2(below) - 1;
        while below * pow2(exponent + 1) <= above {
            exponent += 1;
        }
        exponent
    }

    /// ceil(log2(n / d)).
    fn ceil_log2(self) -> i32 {
        let exponent = self.floor_log2();
        exponent + i32::from(self.1 * pow2(exponent) < self.0)
    }

    /// To a multiple of a power of two, half up.
    fn round_to(self, ulp: f64) -> f64 {
        ((2.0 * self.0 + self.1 * ulp) / (2.0 * self.1 * ulp)).floor() * ulp
    }
}

/// [`scale_exponent`] before it is limited, of a block with headroom that is not zero.
fn exponent_with_headroom(emax: i32, max: f64, format: &BlockFormat, amax: f32) -> i32 {
    let times = |x: f32| {
        let [above, below] = [format.headroom.numerator(), format.headroom.denominator()];
        Fraction(f64::from(x) * f64::from(above), f64::from(below))
    };
    match format.scale_mode {
        ScaleMode::Floor => times(amax).floor_log2() - emax,
        ScaleMode::Ceil => times(amax).ceil_log2() - emax,
        ScaleMode::Even => {
            let ulp = pow2(times(amax).floor_log2() - format.element.mantissa_bits() as i32);
            floor_log2(times(amax).round_to(ulp)) - emax
        }
        ScaleMode::Rceil => match amax * (1.0 / max as f32) {
            0.0 => -127,
            quotient => times(quotient).ceil_log2(),
        },
        other => unimplemented!("{other} is not known here"),
    }
}

/// The exponent of the scale of a block, in scale mode `rms`, from its definition: the largest one that is not too large.
pub(crate) fn rms_exponent(format: &BlockFormat, block: &[f32]) -> Option<i32> {
    ieee(|| {
        let limit = (1 << (format.scale.bits() - 1)) - 1;
        if block.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let amax = block
            .iter()
            .fold(0.0_f64, |max, x| max.max(f64::from(x.abs())));
        if amax == 0.0 {
            return Some((-128).max(-limit));
        }
        let unit = floor_log2(amax) - 15;
        let squares = block.iter().map(|x| {
            let multiples = (f64::from(x.abs()) / pow2(unit)).floor() as u128;
            multiples * multiples
        });
        let mean = (squares.sum::<u128>() / block.len() as u128).max(1);
        // 2^s ≤ h · c · √mean, squared.
        let above = u128::from(format.headroom.numerator()) * 292_247_856;
        let below = u128::from(format.headroom.denominator()) * 600_000_000;
        let fits = |s: u32| (below << s) * (below << s) <= mean * above * above * 16;
        // Two bits more, lest s be negative.
        let s = (0..20).rev().find(|s| fits(*s)).unwrap() as i32 - 2;
        let exponent = s + unit;
        (exponent <= limit).then_some(exponent.max(-limit))
    })
}

/// The exponent of a block's scale, or `None` for NaN; `table` are the element's magnitudes.
pub(crate) fn scale_exponent(table: &[f64], format: &BlockFormat, amax: f32) -> Option<i32> {
    ieee(|| {
        let max = *table.last().unwrap();
        let emax = floor_log2(max);
        let limit = (1 << (format.scale.bits() - 1)) - 1;
        if !amax.is_finite() {
            return None;
        }
        let wide = f64::from(amax);
        let exponent = if amax == 0.0 {
            -126 - emax
        } else if !format.headroom.is_none() {
            exponent_with_headroom(emax, max, format, amax)
        } else {
            match format.scale_mode {
                ScaleMode::Floor => floor_log2(wide) - emax,
                ScaleMode::Ceil => ceil_log2(wide) - emax,
                ScaleMode::Even => {
                    let mantissa_bits = format.element.mantissa_bits() as i32;
                    let ulp = pow2(floor_log2(wide).max(-126) - mantissa_bits);
                    let rounded = (wide / ulp + 0.5).floor() * ulp;
                    // A number that rounds to zero is far below the smallest scale.
                    if rounded == 0.0 {
                        -127 - emax
                    } else {
                        floor_log2(rounded) - emax
                    }
                }
                // The one place where f32 arithmetic is the rule itself.
                ScaleMode::Rceil => match amax * (1.0 / max as f32) {
                    0.0 => -127,
                    quotient => ceil_log2(f64::from(quotient)),
                },
                other => unimplemented!("{other} is not known here"),
            }
        };
        (exponent <= limit).then_some(exponent.max(-limit))
    })
}

/// One element of a block with the given scale; `table` are the element's magnitudes.
pub(crate) fn round_element(
    table: &[f64],
    scale: Option<i32>,
    x: f32,
    rounding: Rounding,
    draw: u32,
) -> f32 {
    ieee(|| {
        let Some(scale) = scale else { return f32::NAN };
        let magnitude = f64::from(x.abs()) / pow2(scale);
        let rounded = round_to_table(magnitude, below_top(table, scale), rounding, draw);
        ((rounded * pow2(scale)) as f32).copysign(x)
    })
}

/// The magnitudes that are less than 2^128 with the given scale: no float32 is larger.
fn below_top(table: &[f64], scale: i32) -> &[f64] {
    &table[..table.partition_point(|number| number * pow2(scale) < pow2(128))]
}

/// The largest number of a block of the given scale.
pub(crate) fn largest(element: ElementFormat, scale: i32) -> f64 {
    let table = magnitudes(element);
    below_top(&table, scale).last().expect("zero is one") * pow2(scale)
}

/// bfloatN and fpN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Float {
    pub(crate) exponent_bits: u32,
    pub(crate) mantissa_bits: u32,
    pub(crate) subnormals: bool,
}

impl Float {
    pub(crate) fn round(self, x: f32, rounding: Rounding, draw: u32) -> f32 {
        ieee(|| {
            let bias = (1 << (self.exponent_bits - 1)) - 1;
            let max = (2.0 - pow2(-(self.mantissa_bits as i32))) * pow2(bias);
            let magnitude = f64::from(x.abs());
            if !x.is_finite() || x == 0.0 {
                return x;
            }
            if !self.subnormals && magnitude < pow2(1 - bias) {
                return 0.0_f32.copysign(x);
            }
            let exponent = floor_log2(magnitude);
            let step = pow2(exponent.max(1 - bias) - self.mantissa_bits as i32);
            let lower = (magnitude / step).floor();
            let up = goes_up(magnitude / step - lower, lower % 2.0 == 0.0, rounding, draw);
            let rounded = (lower + f64::from(u8::from(up))) * step;
            (if rounded > max {
                f64::INFINITY
            } else {
                rounded
            } as f32)
                .copysign(x)
        })
    }
}

/// The same number, with −0 told from 0, or both NaN.
pub(crate) fn identical(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Every bfloat16 and every float16 as float32.
pub(crate) fn all_16_bit_floats() -> Vec<f32> {
    let bf16 = (0..=u16::MAX).map(|bits| half::bf16::from_bits(bits).to_f32());
    let f16 = (0..=u16::MAX).map(|bits| half::f16::from_bits(bits).to_f32());
    bf16.chain(f16).collect()
}
