//! The scalar rules of [`Nvfp4Format`].

use super::scale_pair::ScalePair;
use crate::float_state::ieee;
use crate::quantize::block_rule::{BlockRule, Sight, Words};
use crate::round::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::round::mode::Even;
use crate::round::{RoundingRule, round_magnitude, round_normal, with_rule};
use crate::{BlockFormat, Nvfp4Format, Rounding};
use core::ops::Range;

/// 6, the largest element.
pub(crate) const ELEMENT_MAX: u32 = 0x40c0_0000;
/// 448 · 6.
const TENSOR_MAX: u32 = 0x4528_0000;
/// 256 · 6, of four over six: 1.5 · 256 is an E4M3 number, 1.5 · 448 is larger than all of them.
const TENSOR_MAX_OF_TWO: u32 = 0x44c0_0000;
/// 6 / 4.
const SIX_OVER_FOUR: u32 = 0x3fc0_0000;
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
            true => {
                let max = match self.four_over_six {
                    false => TENSOR_MAX,
                    true => TENSOR_MAX_OF_TWO,
                };
                let headroom = self.headroom.value().to_bits();
                ieee(|| bits::product(bits::quotient(amax & ABS, max), headroom))
            }
        })
    }

    /// The E4M3 code of the scale c of a block whose largest magnitude has the float32 pattern `amax`,
    /// in a tensor with the scale `tensor_scale`: 0x08 (2^−6) to 0x7e (448), or 0x7f, NaN, if either is
    /// NaN or Inf. A tensor scale of 0 gives 0x08. The sign bit of `amax` is ignored.
    ///
    /// With [`four_over_six`](Self::four_over_six) it is the first of the two candidates;
    /// [`block_scale_of`](Self::block_scale_of) knows which one a block has.
    pub fn block_scale(&self, amax: u32, tensor_scale: f32) -> u8 {
        let block_rule = Nvfp4Rule::<true, false>::of(self, tensor_scale);
        ieee(|| block_rule.block_scale_code([amax & ABS, 0]))
    }

    /// The E4M3 code of the scale c of a block of these elements, as [`block_scale`](Self::block_scale).
    ///
    /// With [`four_over_six`](Self::four_over_six), c is c₆ or c₄, and c₄ if the block's error is less. The error with a
    /// scale is the sum of d², where d is the float32 difference of x and what it becomes, rounded half to even whatever
    /// the rounding mode, in units of 2^(e − 17), rounded down to a whole number, of 2^16 − 1 at most; 2^e is the power of
    /// two of the block's largest magnitude. Both sums are of integers: no order matters.
    pub fn block_scale_of(&self, block: &[f32], tensor_scale: f32) -> u8 {
        let elements = block.iter().copied();
        ieee(|| match self.four_over_six {
            false => {
                let block_rule = Nvfp4Rule::<true, false>::of(self, tensor_scale);
                block_rule.block_scale_code(block_rule.maxima(elements))
            }
            true => {
                let block_rule = Nvfp4Rule::<true, true>::of(self, tensor_scale);
                block_rule.block_scale_code(block_rule.maxima(elements))
            }
        })
    }

    /// One element of a block whose largest magnitude has the float32 pattern `amax`, in a tensor with
    /// the scale `tensor_scale`: scaled, rounded, saturated and scaled back. `draw` matters only to
    /// [`Rounding::Stochastic`]. Not with [`four_over_six`](Self::four_over_six), where the scale follows from
    /// all elements: [`round_scaled`](Self::round_scaled) is.
    pub fn round_element(
        &self,
        x: f32,
        amax: u32,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        Nvfp4Rule::<true, false>::of(self, tensor_scale).round_element(x, [amax; 2], rounding, draw)
    }

    /// One element of a block whose scale c has the E4M3 code `block_scale`, one that
    /// [`block_scale_of`](Self::block_scale_of) gives, in a tensor with the scale `tensor_scale`: scaled, rounded,
    /// saturated and scaled back. `draw` matters only to [`Rounding::Stochastic`].
    pub fn round_scaled(
        &self,
        x: f32,
        block_scale: u8,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let block_rule = Nvfp4Rule::<true, false>::of(self, tensor_scale);
        let scale = match block_scale {
            NAN_CODE => NAN,
            code => (u32::from(code) << 20) + (SCALE_MIN - (8 << 20)),
        };
        ieee(|| {
            let grid = block_rule.pair(scale, block_rule.result_scale);
            with_rule!(rounding, rule => block_rule.round(grid, rule, x, draw))
        })
    }
}

/// An [`Nvfp4Format`] and its tensor scale as the loops hold them.
///
/// If not `TINY`, the tensor scale must be at least 2^−80. No quotient and no product is rounded twice then, nor does any
/// overflow that matters, so that plain float arithmetic may be used, in [IEEE's default state](crate::float_state).
///
/// `FOUR` is to be the format's `four_over_six`: the second look at a block compares its two scales.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Rule<const TINY: bool, const FOUR: bool> {
    /// t, and 1 / t, as patterns.
    tensor_scale: u32,
    inverse: u32,
    /// By what a block's scale is multiplied in its results: t, or 1 if they are in units of t.
    result_scale: u32,
    /// h as a pattern.
    headroom: u32,
}

impl<const TINY: bool, const FOUR: bool> Nvfp4Rule<TINY, FOUR> {
    pub(crate) fn of(format: &Nvfp4Format, tensor_scale: f32) -> Self {
        let tensor_scale = tensor_scale.to_bits();
        let inverse = match tensor_scale {
            0 | INFINITY.. => 0,
            _ => bits::quotient(ONE, tensor_scale),
        };
        Self {
            tensor_scale,
            inverse,
            result_scale: tensor_scale,
            headroom: format.headroom.value().to_bits(),
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

    /// c as a pattern; NaN if the block or the tensor scale is not finite. With `four`, that which makes of the largest
    /// magnitude 4, not 6.
    #[inline(always)]
    fn block_scale(&self, amax: u32, four: bool) -> u32 {
        if amax >= INFINITY || self.tensor_scale >= INFINITY {
            return NAN;
        }
        if TINY && self.tensor_scale == 0 {
            return SCALE_MIN;
        }
        let scale = Self::quotient(Self::quotient(amax, ELEMENT_MAX), self.tensor_scale);
        let scale = Self::product(scale, self.headroom);
        let scale = if FOUR {
            Self::product(scale, if four { SIX_OVER_FOUR } else { ONE })
        } else {
            scale
        };
        let scale = scale.clamp(SCALE_MIN, SCALE_MAX);
        // To 3 mantissa bits, half to even; no carry leads beyond the limits.
        (scale + 0x7_ffff + ((scale >> 20) & 1)) & !0xf_ffff
    }

    /// c as an E4M3 code.
    #[inline(always)]
    pub(crate) fn block_scale_code(&self, [amax, verdict]: [u32; 2]) -> u8 {
        let scale = self.block_scale(amax, FOUR && verdict == FOUR_VERDICT);
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

/// What the second look at a block says where the scale that makes of the largest magnitude 4 is better; else 0.
const FOUR_VERDICT: u32 = 1;

impl<const TINY: bool, const FOUR: bool> Nvfp4Rule<TINY, FOUR> {
    /// What the elements need to know of a block with the scale c, if its results are in these units.
    #[inline(always)]
    fn pair(&self, scale: u32, result_scale: u32) -> ScalePair {
        if scale >= INFINITY {
            return ScalePair {
                scale: NAN,
                inverse: 0,
            };
        }
        ScalePair {
            scale: Self::product(result_scale, scale),
            inverse: if TINY && self.inverse >= INFINITY {
                INFINITY
            } else {
                Self::quotient(self.inverse, scale)
            },
        }
    }

    /// The square of the error of a magnitude, in units of 2^unit.
    #[inline(always)]
    fn square_of_error(&self, grid: ScalePair, abs: u32, unit: i32) -> u32 {
        let value = Self::product(self.round_unit(grid, Even, abs, 0), grid.scale);
        let difference = if TINY && value >= INFINITY {
            INFINITY
        } else if TINY {
            bits::sum(value, abs | SIGN)
        } else {
            (f32::from_bits(value) - f32::from_bits(abs)).to_bits()
        };
        let error = bits::fixed_point(difference & ABS, unit);
        error * error
    }
}

impl<const TINY: bool, const FOUR: bool> BlockRule for Nvfp4Rule<TINY, FOUR> {
    type Grid = ScalePair;

    const LOOKS_TWICE: bool = FOUR;

    /// Both scales, and the unit of their errors.
    #[inline(always)]
    fn sight(&self, amax: u32) -> Sight {
        // Of a block that becomes NaN, anything but that.
        let amax = if amax >= INFINITY { 0 } else { amax };
        let [six, four] = [false, true].map(|four| {
            let scale = self.block_scale(amax, four);
            self.pair(scale, self.tensor_scale).words()
        });
        let unit = bits::exponent(amax) - 17;
        [six[0], six[1], four[0], four[1], unit as u32]
    }

    #[inline(always)]
    fn weight(&self, sight: Sight, x: f32) -> i64 {
        let [six, six_inverse, four, four_inverse, unit] = sight;
        let abs = x.to_bits() & ABS;
        // A block with a NaN or Inf becomes NaN anyway.
        let nan = abs >= INFINITY || six >= INFINITY;
        let abs = if nan { 0 } else { abs };
        let [four, six] = [[four, four_inverse], [six, six_inverse]]
            .map(|grid| self.square_of_error(ScalePair::of(grid), abs, unit as i32));
        i64::from(four) - i64::from(six)
    }

    #[inline(always)]
    fn verdict(&self, _: u32, sum: i64, _: usize) -> u32 {
        if sum < 0 { FOUR_VERDICT } else { 0 }
    }

    #[inline(always)]
    fn grid(&self, amax: u32, verdict: u32) -> ScalePair {
        let scale = self.block_scale(amax, FOUR && verdict == FOUR_VERDICT);
        self.pair(scale, self.result_scale)
    }

    #[inline(always)]
    fn largest(&self, grid: ScalePair) -> u32 {
        if grid.is_nan() {
            NAN
        } else {
            bits::product(grid.scale, ELEMENT_MAX)
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
    fn tame_grid(&self, amax: u32, verdict: u32) -> [u32; 2] {
        self.grid(amax, verdict).words()
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
    assert!(TENSOR_MAX_OF_TWO == (256.0_f32 * 6.0).to_bits() && SIX_OVER_FOUR == 1.5_f32.to_bits());
};
