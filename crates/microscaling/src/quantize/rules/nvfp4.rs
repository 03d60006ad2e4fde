//! The scalar rules of [`Nvfp4Format`].

use crate::quantize::block_rule::{BlockRule, Words};
use crate::round::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::round::{RoundingRule, round_magnitude, round_normal};
use crate::{BlockFormat, Nvfp4Format, Rounding};
use core::ops::Range;

/// 6, the largest element.
pub(crate) const ELEMENT_MAX: u32 = 0x40c0_0000;
/// 448 · 6.
const TENSOR_MAX: u32 = 0x4528_0000;
/// 2^−6 and 448, the smallest and the largest scale of a block.
const SCALE_MIN: u32 = 0x3c80_0000;
const SCALE_MAX: u32 = 0x43e0_0000;
/// 2^−80, see [`Nvfp4Rule`].
const LARGE: u32 = 0x1780_0000;
/// Whether a tensor scale is so large that [`Nvfp4Rule`] need not be `TINY`.
pub(crate) fn is_large(tensor_scale: f32) -> bool {
    tensor_scale.to_bits() >= LARGE
}

/// E4M3's code of NaN.
const NAN_CODE: u8 = 0x7f;

impl BlockFormat {
    /// The tensor scale where there is one, of a tensor whose largest magnitude has the float32 pattern that `amax`
    /// gives.
    pub(crate) fn tensor_scale(&self, amax: impl FnOnce() -> u32) -> Option<f32> {
        match self {
            Self::Nvfp4(format) if self.has_tensor_scale() => Some(format.tensor_scale_of(amax())),
            _ => None,
        }
    }
}

impl Nvfp4Format {
    /// The tensor scale t of a tensor whose largest magnitude has the float32 pattern `amax`: 1 without
    /// one, NaN for a NaN or Inf, 0 for zeros and numbers close to the smallest subnormal. The sign bit
    /// of `amax` is ignored.
    pub fn tensor_scale_of(&self, amax: u32) -> f32 {
        f32::from_bits(match self.tensor_scale {
            false => ONE,
            true if amax & ABS >= INFINITY => NAN,
            true => bits::quotient(amax & ABS, TENSOR_MAX),
        })
    }

    /// The E4M3 code of the scale c of a block whose largest magnitude has the float32 pattern `amax`,
    /// in a tensor with the scale `tensor_scale`: 0x08 (2^−6) to 0x7e (448), or 0x7f, NaN, if either is
    /// NaN or Inf. A tensor scale of 0 gives 0x08. The sign bit of `amax` is ignored.
    pub fn block_scale(&self, amax: u32, tensor_scale: f32) -> u8 {
        Nvfp4Rule::<true>::of(tensor_scale).block_scale_code(amax & ABS)
    }

    /// One element of a block whose largest magnitude has the float32 pattern `amax`, in a tensor with
    /// the scale `tensor_scale`: scaled, rounded, saturated and scaled back. `draw` matters only to
    /// [`Rounding::Stochastic`].
    pub fn round_element(
        &self,
        x: f32,
        amax: u32,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        Nvfp4Rule::<true>::of(tensor_scale).round_element(x, [amax; 2], rounding, draw)
    }
}

/// An [`Nvfp4Format`] and its tensor scale as the loops hold them.
///
/// If not `TINY`, the tensor scale must be at least 2^−80. No result depends on a subnormal number then,
/// so that float arithmetic may be used whatever the thread's flush-to-zero state is: a block scale made
/// of subnormals is below 2^−6, and a subnormal element is below 2^−40 steps.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Rule<const TINY: bool> {
    /// t, and 1 / t, as patterns.
    tensor_scale: u32,
    inverse: u32,
    /// By what a block's scale is multiplied in its results: t, or 1 if they are in units of t.
    result_scale: u32,
}

/// What the elements of a block need to know, as patterns.
#[derive(Clone, Copy)]
pub(crate) struct ScalePair {
    /// t · c, or NaN.
    scale: u32,
    /// (1 / t) / c; Inf if that is too large.
    inverse: u32,
}

impl ScalePair {
    /// Whether everything becomes NaN.
    #[inline(always)]
    pub(crate) fn is_nan(self) -> bool {
        self.scale >= INFINITY
    }
}

impl Words for ScalePair {
    #[inline(always)]
    fn words(self) -> [u32; 2] {
        [self.scale, self.inverse]
    }

    #[inline(always)]
    fn of([scale, inverse]: [u32; 2]) -> Self {
        Self { scale, inverse }
    }
}

impl<const TINY: bool> Nvfp4Rule<TINY> {
    pub(crate) fn of(tensor_scale: f32) -> Self {
        let tensor_scale = tensor_scale.to_bits();
        let inverse = match tensor_scale {
            0 | INFINITY.. => 0,
            _ => bits::quotient(ONE, tensor_scale),
        };
        Self {
            tensor_scale,
            inverse,
            result_scale: tensor_scale,
        }
    }

    /// The same rule with results in units of the tensor scale: q · c instead of q · (t · c).
    pub(crate) fn in_units_of_the_scale(self) -> Self {
        Self {
            result_scale: ONE,
            ..self
        }
    }

    #[inline(always)]
    pub(crate) fn product(a: u32, b: u32) -> u32 {
        if TINY {
            return bits::product(a, b);
        }
        (f32::from_bits(a) * f32::from_bits(b)).to_bits()
    }

    #[inline(always)]
    fn quotient(a: u32, b: u32) -> u32 {
        if TINY {
            return bits::quotient(a, b);
        }
        (f32::from_bits(a) / f32::from_bits(b)).to_bits()
    }

    /// c as a pattern; NaN if the block or the tensor scale is not finite.
    #[inline(always)]
    fn block_scale(&self, amax: u32) -> u32 {
        if amax >= INFINITY || self.tensor_scale >= INFINITY {
            return NAN;
        }
        if TINY && self.tensor_scale == 0 {
            return SCALE_MIN;
        }
        let scale = Self::quotient(Self::quotient(amax, ELEMENT_MAX), self.tensor_scale);
        let scale = scale.clamp(SCALE_MIN, SCALE_MAX);
        // To 3 mantissa bits, half to even; no carry leads beyond the limits.
        (scale + 0x7_ffff + ((scale >> 20) & 1)) & !0xf_ffff
    }

    /// c as an E4M3 code.
    #[inline(always)]
    pub(crate) fn block_scale_code(&self, amax: u32) -> u8 {
        let scale = self.block_scale(amax);
        // Both formats have an implicit bit, and the limits are normal numbers of both.
        if scale >= INFINITY {
            NAN_CODE
        } else {
            ((scale - (SCALE_MIN - (8 << 20))) >> 20) as u8
        }
    }

    /// q as a pattern without a sign. `abs` must be finite.
    #[inline(always)]
    pub(crate) fn round_unit<R: RoundingRule>(
        &self,
        grid: ScalePair,
        _: R,
        abs: u32,
        draw: u32,
    ) -> u32 {
        let scaled = if TINY && grid.scale == 0 {
            0
        } else if TINY && grid.inverse >= INFINITY {
            bits::quotient(abs, grid.scale)
        } else {
            Self::product(abs, grid.inverse)
        };
        let limited = scaled.min(ELEMENT_MAX);
        if TINY || R::USES_DRAWS {
            round_magnitude::<R>(limited, 1, 0, draw)
        } else {
            round_normal::<R>(limited, 1, ONE)
        }
    }
}

impl<const TINY: bool> BlockRule for Nvfp4Rule<TINY> {
    type Grid = ScalePair;

    #[inline(always)]
    fn grid(&self, amax: u32, _: u32) -> ScalePair {
        let scale = self.block_scale(amax);
        if scale >= INFINITY {
            return ScalePair {
                scale: NAN,
                inverse: 0,
            };
        }
        ScalePair {
            scale: Self::product(self.result_scale, scale),
            inverse: if TINY && self.inverse >= INFINITY {
                INFINITY
            } else {
                Self::quotient(self.inverse, scale)
            },
        }
    }

    #[inline(always)]
    fn round<R: RoundingRule>(&self, grid: ScalePair, rule: R, x: f32, draw: u32) -> f32 {
        let nan = grid.is_nan();
        let abs = if nan { 0 } else { x.to_bits() & ABS };
        let unit = self.round_unit(grid, rule, abs, draw);
        let value = Self::product(unit, if nan { 0 } else { grid.scale });
        f32::from_bits(if nan {
            NAN
        } else {
            (x.to_bits() & SIGN) | value
        })
    }

    #[inline(always)]
    fn tame(&self) -> Range<u32> {
        // Where the tensor scale is tiny, every operation has cases of its own.
        if TINY || self.tensor_scale >= INFINITY {
            0..0
        } else {
            0..INFINITY
        }
    }

    #[inline(always)]
    fn tame_grid(&self, amax: u32, _: u32) -> [u32; 2] {
        self.grid(amax, amax).words()
    }

    #[inline(always)]
    fn round_tame<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32 {
        let grid = ScalePair::of(grid);
        let unit = self.round_unit(grid, rule, x.to_bits() & ABS, 0);
        f32::from_bits((x.to_bits() & SIGN) | Self::product(unit, grid.scale))
    }
}

// The patterns that are written as numbers.
const _: () = {
    assert!(TENSOR_MAX == (448.0_f32 * 6.0).to_bits() && ELEMENT_MAX == 6.0_f32.to_bits());
    assert!(SCALE_MIN == bits::pow2(-6) && SCALE_MAX == 448.0_f32.to_bits());
    assert!(LARGE == bits::pow2(-80));
};
