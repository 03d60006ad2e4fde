//! Block floating point: one exponent a block, fixed-point elements.

use crate::bits::{self, ABS, BIAS, INFINITY, MANTISSA_BITS, ONE};
use crate::block::{Grid, round_to_grid};
use crate::groups::GroupRule;
use crate::quantize::{checked_layout, quantize_groups};
use crate::round::{NORMAL, Rule, normal};
use crate::{FormatError, QuantizeError, RandomStream, Rounding};
use core::ops::Range;

/// A block floating point format (AMD Quark's `to_bfp`): blocks of fixed-point numbers that share the
/// exponent of the largest.
///
/// With E the biased exponent of the largest finite magnitude of a block (the exponent field of its
/// float32, so 0 for a subnormal) and m = [`mantissa_bits`](Self::mantissa_bits), an element x becomes
/// `round(x / u) · u` with u = 2^(E − 127 − (m − 1)), and saturates at ±(2^m − 1) · u, which is
/// 2^(E − 126) − u.
///
/// NaN and ±Inf pass unchanged and do not count for E: they do not spoil their block. A block of zeros
/// stays zero; −0 stays −0, and a negative number that rounds to zero becomes −0. Subnormals are numbers
/// like others. There is no overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BfpFormat {
    /// Bits of one element with its sign and all 8 bits of the shared exponent, as Quark counts:
    /// 10 to 32, for 1 to 23 mantissa bits.
    pub bit_width: u32,
    /// Elements in a block, at least 1. One that is longer than the axis is one short block.
    pub block_size: usize,
}

impl BfpFormat {
    /// `bfp16`: 7 mantissa bits and a sign an element, blocks of 8 (Quark's BFP16).
    pub const BFP16: Self = Self {
        bit_width: 16,
        block_size: 8,
    };

    /// Allowed values of [`bit_width`](Self::bit_width).
    pub(crate) const BIT_WIDTHS: (usize, usize) = (10, 32);

    /// Checks the fields.
    ///
    /// # Errors
    /// [`FormatError::Field`] unless `bit_width` is 10 to 32 and `block_size` at least 1.
    pub const fn validate(&self) -> Result<(), FormatError> {
        let bit_width = self.bit_width as usize;
        if let Err(error) = FormatError::check("bfp", "bit_width", bit_width, Self::BIT_WIDTHS) {
            return Err(error);
        }
        FormatError::check("bfp", "block_size", self.block_size, (1, usize::MAX))
    }

    /// Magnitude bits of an element: `bit_width` − 9.
    pub const fn mantissa_bits(&self) -> u32 {
        self.bit_width - 9
    }

    /// The biased shared exponent E, 0 to 254, of a block whose largest finite magnitude has the
    /// float32 pattern `amax`. The sign bit of `amax` is ignored.
    pub const fn shared_exponent(&self, amax: u32) -> u8 {
        ((amax & ABS) >> MANTISSA_BITS) as u8
    }

    /// One element of a block whose largest finite magnitude has the float32 pattern `amax`: rounded,
    /// saturated and scaled back; NaN and ±Inf unchanged. `draw` matters only to
    /// [`Rounding::Stochastic`].
    ///
    /// The format must be [valid](Self::validate), `x` not finite or its magnitude at most `amax`.
    pub fn round_element(&self, x: f32, amax: u32, rounding: Rounding, draw: u32) -> f32 {
        BfpRule::of(self).round_element(x, [amax, amax], rounding, draw)
    }

    /// Replaces every element of a tensor by the value it has in this format, in place. Blocks lie
    /// along `axis`; arguments, draws, threads and errors are those of
    /// [`MxFormat::quantize`](crate::MxFormat::quantize).
    ///
    /// # Errors
    /// Those of [`MxFormat::quantize`](crate::MxFormat::quantize). The data are untouched then.
    pub fn quantize(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<(), QuantizeError> {
        self.validate()?;
        let layout = checked_layout(data, shape, axis, self.block_size)?;
        quantize_groups(BfpRule::of(self), layout, data, rounding, stream);
        Ok(())
    }
}

/// A [`BfpFormat`] as the loops hold it.
#[derive(Clone, Copy)]
pub(crate) struct BfpRule {
    /// Mantissa bits below the leading one.
    fraction_bits: i32,
    /// Pattern of the largest element of a block with exponent 0.
    max: u32,
}

impl BfpRule {
    pub(crate) fn of(format: &BfpFormat) -> Self {
        let fraction_bits = format.mantissa_bits() as i32 - 1;
        Self {
            fraction_bits,
            max: bits::fixed((2 << fraction_bits) - 1, -fraction_bits),
        }
    }
}

impl GroupRule for BfpRule {
    type Grid = Grid;

    const COUNTS_ALL: bool = false;

    #[inline(always)]
    fn counted(abs: u32) -> u32 {
        if abs < INFINITY { abs } else { 0 }
    }

    #[inline(always)]
    fn grid(&self, amax: u32, _: u32) -> Grid {
        let exponent = (amax >> MANTISSA_BITS) as i32 - BIAS;
        Grid {
            emin: exponent,
            max: bits::scale(self.max, exponent),
        }
    }

    #[inline(always)]
    fn round<R: Rule>(&self, grid: Grid, rule: R, x: f32, draw: u32) -> f32 {
        let special = x.to_bits() & ABS >= INFINITY;
        let finite = if special { 0.0 } else { x };
        let rounded = grid.round(rule, self.fraction_bits, finite, draw);
        if special { x } else { rounded }
    }

    #[inline(always)]
    fn tame(&self) -> Range<u32> {
        normal(*NORMAL.start(), NORMAL.end() + 1)
    }

    #[inline(always)]
    fn tame_grid(&self, amax: u32, _: u32) -> [u32; 2] {
        let smallest = amax & INFINITY;
        [smallest, smallest + (self.max - ONE)]
    }

    #[inline(always)]
    fn round_tame<R: Rule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32 {
        let special = x.to_bits() & ABS >= INFINITY;
        let rounded = round_to_grid(rule, self.fraction_bits, grid, x);
        if special { x } else { rounded }
    }
}
