//! The scales of blocks that are floats.

use crate::format::element::places::CodePlaces;
use crate::format::{BlockFormat, ElementFormat, ScaleFormat, ScaleMode};
use crate::round::bits::{self, BIAS, IMPLICIT, INFINITY};
use crate::round::mode::{Even, Stochastic};
use crate::round::round_magnitude;
use crate::round::words::Word;

/// The numbers that a block's scale can be.
#[derive(Clone, Copy)]
pub(crate) struct ScaleRow {
    mantissa_bits: i32,
    emin: i32,
    /// The smallest and the largest scale, and the smallest normal one, as patterns.
    pub(super) min: u32,
    pub(super) max: u32,
    smallest_normal: u32,
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
        let exact = scale.float().filter(|float| float.emin() < 1 - BIAS);
        let smallest_normal = match exact {
            Some(_) => 0,
            None => bits::pow2(scale.emin()),
        };
        Self {
            mantissa_bits: scale.mantissa_bits() as i32,
            emin: scale.emin(),
            min: min.to_bits(),
            max: scale.max().to_bits(),
            smallest_normal,
            places: scale.float().map(CodePlaces::of_element),
            exact,
            nan_code: scale.nan_code(),
            bits: scale.bits(),
        }
    }

    /// Limits a scale, and rounds it stochastically, each number of the format from 0 on.
    #[inline(always)]
    pub(crate) fn round_stochastically<W: Word>(&self, scale: W, draw: W) -> W {
        let limited = scale.smaller(self.max.into());
        let emin = self.emin.into();
        let rounded = round_magnitude::<Stochastic, _>(limited, self.mantissa_bits, emin, draw);
        rounded.larger(self.min.into())
    }

    /// Limits a scale, and rounds it half to the even code; no carry leads beyond the limits.
    #[inline(always)]
    pub(super) fn round<W: Word>(&self, scale: W) -> W {
        let limited = scale.larger(self.min.into()).smaller(self.max.into());
        let emin = self.emin.into();
        round_magnitude::<Even, _>(limited, self.mantissa_bits, emin, 0.into())
    }

    /// The code of a scale.
    #[inline(always)]
    pub(crate) fn code(&self, scale: u32) -> u32 {
        match self.places {
            _ if scale >= INFINITY => self.nan_code,
            _ if scale < IMPLICIT && self.exact.is_some() => self.exact_code(scale),
            Some(places) => places.code(self.smallest_normal, scale),
            None => scale,
        }
    }

    /// [`code`](Self::code) of a scale that is a subnormal float32.
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
