//! The scales of blocks that are floats.

use crate::format::element::places::CodePlaces;
use crate::format::{BlockFormat, ElementFormat, ScaleFormat, ScaleMode};
use crate::round::bits::{self, BIAS, IMPLICIT, INFINITY, MANTISSA_BITS, NAN};
use crate::round::mode::{Even, Stochastic};
use crate::round::{RoundingRule, round_magnitude};

/// The numbers that a block's scale can be.
#[derive(Clone, Copy)]
pub(crate) struct ScaleRow {
    /// Bits of a float32's mantissa that a scale does not have.
    dropped: u32,
    /// The smallest and the largest scale, and the smallest normal one, as patterns.
    pub(super) min: u32,
    pub(super) max: u32,
    smallest_normal: u32,
    /// The lowest kept bit of a pattern, if the lowest bit of the code is another. Without mantissa bits it is, where the smallest
    /// normal scale, whose code is 1, has an even exponent field.
    parity: u32,
    /// Added and subtracted again, rounds a number to the multiples of the smallest subnormal scale.
    to_subnormal: f32,
    /// The codes; `None` stands for float32's bit patterns.
    places: Option<CodePlaces>,
    /// The float whose smallest normal number is a subnormal float32. Then [`smallest_normal`](Self::smallest_normal) is 0, as if float32 had
    /// one more normal binade, and only larger scales are rounded as patterns.
    exact: Option<ElementFormat>,
    /// The code of NaN.
    nan_code: u32,
    /// Bits of a code.
    pub(super) bits: u32,
}

impl ScaleRow {
    /// The scales of a format's blocks.
    pub(super) fn of(format: &BlockFormat) -> Self {
        let min = match format.scale_mode {
            // A scale may be 0.
            ScaleMode::MaxAbsFinite => 0.0,
            ScaleMode::Floor
            | ScaleMode::Ceil
            | ScaleMode::Even
            | ScaleMode::Rceil
            | ScaleMode::Rms => format.scale_min(),
        };
        Self::from_least(format.scale, min)
    }

    /// All numbers of a scale's format.
    pub(super) fn of_all(scale: ScaleFormat) -> Self {
        Self::from_least(scale, scale.min())
    }

    fn from_least(scale: ScaleFormat, min: f32) -> Self {
        let dropped = MANTISSA_BITS as u32 - scale.mantissa_bits();
        let exact = scale.float().filter(|float| float.emin() < 1 - BIAS);
        let smallest_normal = match exact {
            Some(_) => 0,
            None => bits::pow2(scale.emin()),
        };
        Self {
            dropped,
            min: min.to_bits(),
            max: scale.max().to_bits(),
            smallest_normal,
            parity: match scale.mantissa_bits() {
                0 => !smallest_normal & IMPLICIT,
                _ => 0,
            },
            to_subnormal: f32::from_bits(bits::pow2(scale.emin() + dropped as i32)),
            places: scale.float().map(CodePlaces::of_element),
            exact,
            nan_code: match scale {
                ScaleFormat::FLOAT32 => NAN,
                _ => (1 << scale.bits()) - 1,
            },
            bits: scale.bits(),
        }
    }

    /// Limits a scale, and rounds it stochastically, each number of the format from 0 on.
    #[inline(always)]
    pub(crate) fn round_stochastically(&self, scale: u32, draw: u32) -> u32 {
        let mantissa_bits = (MANTISSA_BITS as u32 - self.dropped) as i32;
        let emin = match self.exact {
            Some(float) => float.emin(),
            None => bits::exponent(self.smallest_normal),
        };
        let rounded =
            round_magnitude::<Stochastic, _>(scale.min(self.max), mantissa_bits, emin, draw);
        rounded.max(self.min)
    }

    /// [`round`](Self::round), of any scale.
    #[inline(always)]
    pub(super) fn round_any(&self, scale: u32) -> u32 {
        match self.exact {
            Some(float) => {
                let scale = scale.clamp(self.min, self.max);
                let mantissa_bits = float.mantissa_bits() as i32;
                round_magnitude::<Even, _>(scale, mantissa_bits, float.emin(), 0)
            }
            None => self.round(scale),
        }
    }

    /// Limits a scale, and rounds it half to the even code; no carry leads beyond the limits.
    #[inline(always)]
    pub(super) fn round(&self, scale: u32) -> u32 {
        let scale = scale.clamp(self.min, self.max);
        let addend = Even::addend(scale ^ self.parity, self.dropped, 0);
        let normal = (scale + addend) & !((1 << self.dropped) - 1);
        let subnormal = (f32::from_bits(scale) + self.to_subnormal) - self.to_subnormal;
        if scale < self.smallest_normal {
            subnormal.to_bits()
        } else {
            normal
        }
    }

    /// The code of a scale.
    #[inline(always)]
    pub(crate) fn code(&self, scale: u32) -> u32 {
        match self.places {
            _ if scale >= INFINITY => self.nan_code,
            _ if scale < 2 * IMPLICIT && self.exact.is_some() => self.exact_code(scale),
            Some(places) => places.code(self.smallest_normal, scale),
            None => scale,
        }
    }

    /// [`code`](Self::code) of a scale that is a subnormal float32, or nearly.
    fn exact_code(&self, scale: u32) -> u32 {
        let Some(float) = self.exact else {
            return 0;
        };
        let unit = float.emin() - float.mantissa_bits() as i32;
        let (significand, own) = bits::parts(scale);
        // The codes of the first two binades count units.
        significand << (own - unit).clamp(0, 31) >> (unit - own).clamp(0, 31)
    }

    /// The code of the scale of a block of zeros.
    #[inline(always)]
    pub(crate) fn zero_code(&self) -> u32 {
        self.code(self.min)
    }

    /// The scale of a code, as a pattern, and its sign: codes of a byte may have one.
    #[inline(always)]
    pub(crate) fn decode(&self, code: u32) -> u32 {
        match self.places {
            _ if self.exact.is_some() => self.exact.map_or(0, |float| float.decode(code).to_bits()),
            Some(places) => places.number(self.smallest_normal, code),
            None => code,
        }
    }
}
