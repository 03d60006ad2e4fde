//! The scales of blocks that are floats.

use crate::format::element::places::CodePlaces;
use crate::format::{BlockFormat, ScaleFormat};
use crate::round::bits::{self, INFINITY, NAN};
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
    /// The code of NaN.
    nan_code: u32,
    /// Bits of a code.
    pub(super) bits: u32,
}

impl ScaleRow {
    /// The scales of a format's blocks.
    pub(super) fn of(format: &BlockFormat) -> Self {
        Self::from_least(format.scale, format.scale_min())
    }

    /// All numbers of a scale's format.
    pub(super) fn of_all(scale: ScaleFormat) -> Self {
        Self::from_least(scale, scale.min())
    }

    fn from_least(scale: ScaleFormat, min: f32) -> Self {
        Self {
            mantissa_bits: scale.mantissa_bits() as i32,
            emin: scale.emin(),
            min: min.to_bits(),
            max: scale.max().to_bits(),
            smallest_normal: bits::pow2(scale.emin()),
            places: scale.float().map(CodePlaces::of_element),
            nan_code: match scale {
                ScaleFormat::FLOAT32 => NAN,
                _ => (1 << scale.bits()) - 1,
            },
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
            Some(places) => places.code(self.smallest_normal, scale),
            None => scale,
        }
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
            Some(places) => places.number(self.smallest_normal, code),
            None => code,
        }
    }
}
