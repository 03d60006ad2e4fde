//! How tools compute the bytes of a block, as scalar code in exact arithmetic.

use crate::format::{BlockFormat, ElementFormat, ScaleMode};
use crate::pack::codes::bitstream::Writer;
use crate::quantize::PowerScale;
use crate::quantize::largest::largest;
use crate::quantize::rules::ElementRow;
use crate::round::bits::{self, ABS, BIAS, IMPLICIT, MANTISSA_BITS, SIGN};
use crate::round::words::{Int, Word};
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
    /// The sign bit of a number that is rounded to this magnitude.
    #[inline(always)]
    pub(super) fn of<W: Word>(self, x: W, magnitude: W) -> W {
        let (sign, zero) = (x & SIGN.into(), (x & ABS.into()).equals(0.into()));
        match self {
            Self::Kept => sign,
            Self::OfNumbers => W::select(zero, 0.into(), sign),
            Self::NoNegativeZero => W::select(magnitude.equals(0.into()), 0.into(), sign),
            Self::ZeroIsNegative => W::select(zero, SIGN.into(), sign),
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

    pub(super) fn code(&self, x: u32, scaled: f64, ties: Ties, signs: Signs) -> u32 {
        let magnitude = self.magnitude(scaled, ties);
        magnitude | signs.of(x, magnitude) >> (32 - self.bits)
    }
}

/// How the exponent of a block's scale follows from its largest magnitude.
#[derive(Clone, Copy)]
pub(super) enum ScaleRule {
    /// One of ours.
    Power(PowerScale),
    /// ceil(log2(amax / max)), in float32.
    CeilLog2,
    /// floor(log2(amax)) − emax, in float32.
    FloorLog2,
    /// ceil(log2(amax / max)) of the float32 quotient; −126 for a subnormal quotient.
    RoundUp,
}

impl ScaleRule {
    /// A scale mode of ours for an element.
    pub(super) const fn mode(scale_mode: ScaleMode, element: ElementFormat) -> Self {
        let format = BlockFormat {
            scale_mode,
            ..BlockFormat::mx(element, 0)
        };
        let power = format.power_scale();
        Self::Power(power.expect("the scale follows from the largest magnitude"))
    }

    /// From −127 on, of a finite magnitude.
    #[inline(always)]
    pub(super) fn exponent<W: Word>(self, element: &ElementRow, amax: W) -> W::Int {
        let exponent = match self {
            Self::Power(power) => power.exponent(amax, element),
            Self::CeilLog2 => log2(
                amax.quotient(element.max.into()),
                #[inline(always)]
                |exponent, fraction| {
                    let is_above = W::from(0).is_below(fraction);
                    let is_above = is_above & !rounds_to::<W>(exponent, fraction + fraction, true);
                    exponent + W::Int::select(is_above, 1.into(), 0.into())
                },
            ),
            Self::FloorLog2 => {
                let floor = log2(
                    amax,
                    #[inline(always)]
                    |exponent, fraction| {
                        let (rest, next) = (W::from(IMPLICIT) - fraction, exponent + 1.into());
                        W::Int::select(rounds_to::<W>(next, rest, false), next, exponent)
                    },
                );
                floor - element.emax.into()
            }
            Self::RoundUp => {
                // Any bit of the mantissa carries into the exponent.
                let quotient = amax.quotient(element.max.into());
                let field = (quotient + (IMPLICIT - 1).into()) >> (MANTISSA_BITS as u32).into();
                field.to_int() - BIAS.into()
            }
        };
        let least = W::Int::from(-BIAS);
        W::Int::select(amax.equals(0.into()), least, exponent.larger(least))
    }
}

/// Calls `then` with the exponent and the fraction, in units of 2^−23, of a normal number. Smaller numbers are far from
/// every scale but the least.
#[inline(always)]
fn log2<W: Word>(abs: W, then: impl Fn(W::Int, W) -> W::Int) -> W::Int {
    let exponent = (abs >> (MANTISSA_BITS as u32).into()).to_int() - BIAS.into();
    let normal = then(exponent, abs & (IMPLICIT - 1).into());
    W::Int::select(abs.is_below(IMPLICIT.into()), (-2 * BIAS).into(), normal)
}

/// Whether the float32 logarithm of 2^exponent · (1 ± steps · 2^−24) is the exponent.
#[inline(always)]
fn rounds_to<W: Word>(exponent: W::Int, steps: W, up: bool) -> W::Condition {
    // ln 2 in units of 2^−16. Half a spacing is 64 at most.
    const LN_2: u32 = 45_426;
    let is_negative = exponent.is_below(0.into());
    let abs = W::Int::select(is_negative, W::Int::from(0) - exponent, exponent).to_word();
    let is_zero = abs.equals(0.into());
    let abs = abs.larger(1.into());
    let is_power = (abs & (abs - 1.into())).equals(0.into());
    // Toward zero of a power of two numbers are twice as dense.
    let is_denser = is_power & if up { is_negative } else { !is_negative };
    let twice = abs.log2() + W::Int::select(is_denser, 0.into(), 1.into());
    // steps · log2(e) < 2^(twice − 1).
    let most = (W::from(LN_2) << twice.to_word()) >> 17.into();
    !is_zero & !most.is_below(steps)
}

/// The bytes of a tensor.
pub(super) struct Blocks {
    pub(super) scales: Vec<u8>,
    pub(super) elements: Vec<u8>,
}

/// A tool's way to MX blocks of 32.
#[derive(Clone, Copy)]
pub(super) struct MxEncoding {
    pub(super) element: ElementRow,
    pub(super) scale: ScaleRule,
    /// Elements are divided by 2^this at least, with any scale.
    pub(super) least_exponent: i32,
    pub(super) ties: Ties,
    pub(super) signs: Signs,
}

impl MxEncoding {
    /// Of finite numbers, a whole number of blocks. `element` is the encoding's own.
    pub(super) fn encode(self, element: ElementFormat, data: &[f32], bytes: usize) -> Blocks {
        let numbers = Elements::of(element);
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

    /// The exponent of a block's scale, and the codes.
    fn block(self, numbers: &Elements, block: &[f32; MX_BLOCK]) -> (i32, [u32; MX_BLOCK]) {
        let exponent = self.scale.exponent(&self.element, largest(block));
        // Exact, and normal.
        let unit = 1.0 / power_of_two(exponent.max(self.least_exponent));
        let codes = block.map(|x| {
            let scaled = bits::widen(x.to_bits() & ABS) * unit;
            numbers.code(x.to_bits(), scaled, self.ties, self.signs)
        });
        (exponent, codes)
    }
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
