//! How tools compute the bytes of a block, as scalar code in exact arithmetic.

use crate::format::{BlockFormat, ElementFormat, ScaleMode};
use crate::pack::codes::bitstream::Writer;
use crate::quantize::largest::largest;
use crate::round::bits::{self, ABS, BIAS, IMPLICIT, MANTISSA_BITS};
use alloc::{vec, vec::Vec};

/// The rounding of a number halfway between two.
#[derive(Clone, Copy)]
pub(super) enum Ties {
    Even,
    TowardZero,
}

/// The signs of codes.
#[derive(Clone, Copy)]
pub(super) enum Signs {
    /// The signs of the numbers, also of −0.
    Kept,
    /// Numbers below 0 are negative, also if they become 0.
    OfNumbers,
    /// Zeros are positive, also the results that underflow.
    NoNegativeZero,
    /// Positive are numbers above 0 alone.
    ZeroIsNegative,
}

impl Signs {
    fn negative(self, x: u32, magnitude: u32) -> bool {
        let (sign, zero) = (x & !ABS != 0, x & ABS == 0);
        match self {
            Self::Kept => sign,
            Self::OfNumbers => sign && !zero,
            Self::NoNegativeZero => sign && magnitude != 0,
            Self::ZeroIsNegative => sign || zero,
        }
    }
}

/// Elements in a block of MX, in each tool.
pub(super) const MX_BLOCK: usize = 32;

/// The numbers of an element format.
pub(super) struct Elements {
    pub(super) bits: u32,
    /// Not negative, in the order of their codes, which is the order of the numbers, too.
    magnitudes: Vec<f64>,
}

impl Elements {
    pub(super) fn of(element: ElementFormat) -> Self {
        let sign = 1 << (element.bits() - 1);
        let numbers = (0..sign).map(|code| element.decode(code));
        let magnitudes = numbers.take_while(|x| x.is_finite()).map(f64::from);
        Self {
            bits: element.bits(),
            magnitudes: magnitudes.collect(),
        }
    }

    /// The code of the nearest number; larger values saturate.
    pub(super) fn magnitude(&self, x: f64, ties: Ties) -> u32 {
        let above = self.magnitudes.partition_point(|number| *number <= x);
        let below = above - 1;
        let Some(next) = self.magnitudes.get(above) else {
            return below as u32;
        };
        // Exact: the numbers have few bits.
        let middle = (self.magnitudes[below] + next) / 2.0;
        let odd = below % 2 == 1;
        let up = x > middle || (x == middle && odd && matches!(ties, Ties::Even));
        (below + usize::from(up)) as u32
    }

    /// The number of a code.
    pub(super) fn number(&self, code: u32) -> f64 {
        let sign = 1 << (self.bits - 1);
        let magnitude = self.magnitudes[(code & (sign - 1)) as usize];
        if code & sign == 0 {
            magnitude
        } else {
            -magnitude
        }
    }

    pub(super) fn code(&self, x: u32, scaled: f64, ties: Ties, signs: Signs) -> u32 {
        let magnitude = self.magnitude(scaled, ties);
        magnitude | u32::from(signs.negative(x, magnitude)) << (self.bits - 1)
    }
}

/// How the exponent of a block's scale follows from its largest magnitude.
#[derive(Clone, Copy)]
pub(super) enum ScaleRule {
    /// One of ours.
    Mode(ScaleMode),
    /// `even` as for FP4, with any element.
    EvenAsFp4,
    /// ceil(log2(amax / max)), in float32.
    CeilLog2,
    /// floor(log2(amax)) − emax, in float32.
    FloorLog2,
    /// ceil(log2(amax / max)) of the float32 quotient; −126 for a subnormal quotient.
    RoundUp,
}

impl ScaleRule {
    /// From −127 on.
    fn exponent(self, element: ElementFormat, amax: u32) -> i32 {
        let by_mode = |element, scale_mode| {
            let format = BlockFormat {
                scale_mode,
                ..BlockFormat::mx(element, 0)
            };
            format
                .scale_exponent(amax)
                .expect("of finite numbers a scale is one")
        };
        let exponent = match self {
            _ if amax == 0 => return -BIAS,
            Self::Mode(mode) => by_mode(element, mode),
            Self::EvenAsFp4 => {
                let fp4 = ElementFormat::FP4_E2M1;
                by_mode(fp4, ScaleMode::Even) + fp4.emax() - element.emax()
            }
            Self::CeilLog2 => {
                let quotient = bits::quotient(amax, element.max().to_bits());
                log2(quotient, |exponent, fraction| {
                    exponent + i32::from(fraction > 0 && !rounds_to(exponent, 2 * fraction, true))
                })
            }
            Self::FloorLog2 => {
                let floor = log2(amax, |exponent, fraction| {
                    let rest = IMPLICIT - fraction;
                    exponent + i32::from(rounds_to(exponent + 1, rest, false))
                });
                floor - element.emax()
            }
            Self::RoundUp => {
                let quotient = bits::quotient(amax, element.max().to_bits());
                // Any bit of the mantissa carries into the exponent.
                ((quotient + (IMPLICIT - 1)) >> MANTISSA_BITS) as i32 - BIAS
            }
        };
        exponent.max(-BIAS)
    }
}

/// Calls `then` with the exponent and the fraction, in units of 2^−23, of a normal number. Smaller numbers are far from
/// every scale but the least.
fn log2(abs: u32, then: impl Fn(i32, u32) -> i32) -> i32 {
    match abs < IMPLICIT {
        true => -2 * BIAS,
        false => then(bits::exponent(abs), abs & (IMPLICIT - 1)),
    }
}

/// Whether the float32 logarithm of 2^exponent · (1 ± steps · 2^−24) is the exponent.
fn rounds_to(exponent: i32, steps: u32, up: bool) -> bool {
    if exponent == 0 {
        return false;
    }
    let abs = exponent.unsigned_abs();
    // Toward zero of a power of two numbers are twice as dense.
    let denser = abs.is_power_of_two() && up != (exponent > 0);
    let half_spacing = power_of_two(abs.ilog2() as i32 - i32::from(denser));
    f64::from(steps) * core::f64::consts::LOG2_E < half_spacing
}

/// The bytes of a tensor.
pub(super) struct Blocks {
    pub(super) scales: Vec<u8>,
    pub(super) elements: Vec<u8>,
}

/// A tool's way to MX blocks of 32.
#[derive(Clone, Copy)]
pub(super) struct MxEncoding {
    pub(super) element: ElementFormat,
    pub(super) scale: ScaleRule,
    /// Elements are divided by 2^this at least, with any scale.
    pub(super) least_exponent: i32,
    pub(super) ties: Ties,
    pub(super) signs: Signs,
}

impl MxEncoding {
    /// Of finite numbers, a whole number of blocks.
    pub(super) fn encode(self, data: &[f32], bytes: usize) -> Blocks {
        let numbers = Elements::of(self.element);
        let mut elements = vec![0; bytes];
        let mut writer = Writer::new(&mut elements, numbers.bits);
        let mut scales = Vec::with_capacity(data.len() / MX_BLOCK);
        for block in data.as_chunks().0 {
            let (exponent, codes) = self.block(&numbers, block);
            scales.push((exponent + BIAS) as u8);
            writer.put(&codes);
        }
        writer.finish();
        Blocks { scales, elements }
    }

    /// The numbers of these bytes in place of a whole number of blocks. A block with a NaN or Inf becomes NaN.
    pub(super) fn quantize(self, data: &mut [f32]) {
        let numbers = Elements::of(self.element);
        for block in data.as_chunks_mut().0 {
            if !is_finite(block) {
                block.fill(f32::NAN);
                continue;
            }
            let (exponent, codes) = self.block(&numbers, block);
            let scale = power_of_two(exponent);
            // Exact: an element has few bits, and no bit below the smallest subnormal.
            *block = codes.map(|code| (numbers.number(code) * scale) as f32);
        }
    }

    /// The exponent of a block's scale, and the codes.
    fn block(self, numbers: &Elements, block: &[f32; MX_BLOCK]) -> (i32, [u32; MX_BLOCK]) {
        let exponent = self.scale.exponent(self.element, largest(block));
        // Exact, and normal.
        let unit = 1.0 / power_of_two(exponent.max(self.least_exponent));
        let codes = block.map(|x| {
            let scaled = bits::widen(x.to_bits() & ABS) * unit;
            numbers.code(x.to_bits(), scaled, self.ties, self.signs)
        });
        (exponent, codes)
    }
}

pub(super) fn is_finite(block: &[f32]) -> bool {
    block.iter().all(|x| x.is_finite())
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
