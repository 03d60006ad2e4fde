//! The scalar rules of [`Nvfp4Format`].

use super::BlockRule;
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use crate::float_state::ieee;
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
/// Whether a tensor scale is so large that [`Nvfp4Rule`] need not be exact.
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
        let rule = Nvfp4Rule::of(self, tensor_scale);
        ieee(|| rule.block_scale_code([amax & ABS, 0]))
    }

    /// The E4M3 code of the scale c of a block of these elements, as [`block_scale`](Self::block_scale).
    ///
    /// With [`four_over_six`](Self::four_over_six), c is c₆ or c₄, and c₄ if the block's error is less. The error with a
    /// scale is the sum of d², where d is the float32 difference of x and what it becomes, rounded half to even whatever
    /// the rounding mode, in units of 2^(e − 17), rounded down to a whole number, of 2^16 − 1 at most; 2^e is the power of
    /// two of the block's largest magnitude. Both sums are of integers: no order matters.
    pub fn block_scale_of(&self, block: &[f32], tensor_scale: f32) -> u8 {
        let rule = Nvfp4Rule::of(self, tensor_scale);
        let elements = block.iter().copied();
        ieee(|| rule.block_scale_code(BlockRule::Nvfp4(rule).maxima(elements)))
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
        let rule = BlockRule::Nvfp4(Nvfp4Rule::of(self, tensor_scale));
        rule.round_element(x, [amax, 0], rounding, draw)
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
        let rule = Nvfp4Rule::of(self, tensor_scale);
        let scale = match block_scale {
            NAN_CODE => NAN,
            code => (u32::from(code) << 20) + (SCALE_MIN - (8 << 20)),
        };
        ieee(|| {
            let pair = rule.pair::<EXACT>(scale);
            with_rule!(rounding, R => rule.round::<R>(pair, x, draw))
        })
    }
}

/// Any tensor scale: with the cases of its own that a very small one has.
const EXACT: bool = true;
/// Tensor scales that are [large](is_large): nothing overflows that matters.
const PLAIN: bool = false;

/// An [`Nvfp4Format`] and its tensor scale as the loops hold them.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Rule {
    /// t, and 1 / t, as patterns.
    tensor_scale: u32,
    inverse: u32,
    /// By what a block's scale is multiplied in its results: t, or 1 if they are in units of t.
    result_scale: u32,
    /// h as a pattern.
    headroom: u32,
    /// Whether a second look at a block compares its two scales.
    pub(super) four_over_six: bool,
}

impl Nvfp4Rule {
    pub(crate) fn of(format: &Nvfp4Format, tensor_scale: f32) -> Self {
        let tensor_scale = tensor_scale.to_bits();
        let inverse = match tensor_scale {
            0 | INFINITY.. => 0,
            _ => ieee(|| bits::quotient(ONE, tensor_scale)),
        };
        Self {
            tensor_scale,
            inverse,
            result_scale: tensor_scale,
            headroom: format.headroom.value().to_bits(),
            four_over_six: format.four_over_six,
        }
    }

    /// The same rule with results in units of the tensor scale: q · c instead of q · (t · c).
    pub(crate) fn in_units_of_the_scale(self) -> Self {
        Self {
            result_scale: ONE,
            ..self
        }
    }

    /// c as a pattern; NaN if the block or the tensor scale is not finite. With `four`, that which makes of the largest
    /// magnitude 4, not 6.
    #[inline(always)]
    fn block_scale<const EXACT: bool>(&self, amax: u32, four: bool) -> u32 {
        if amax >= INFINITY || self.tensor_scale >= INFINITY {
            return NAN;
        }
        if EXACT && self.tensor_scale == 0 {
            return SCALE_MIN;
        }
        let sixth = bits::quotient(amax, ELEMENT_MAX);
        let scale = bits::quotient(sixth, self.tensor_scale);
        let scale = bits::product(scale, self.headroom);
        let scale = bits::product(scale, if four { SIX_OVER_FOUR } else { ONE });
        let scale = scale.clamp(SCALE_MIN, SCALE_MAX);
        // To 3 mantissa bits, half to even; no carry leads beyond the limits.
        (scale + 0x7_ffff + ((scale >> 20) & 1)) & !0xf_ffff
    }

    /// c as an E4M3 code.
    #[inline(always)]
    pub(crate) fn block_scale_code(&self, [amax, verdict]: [u32; 2]) -> u8 {
        match self.block_scale::<EXACT>(amax, self.is_four(verdict)) {
            INFINITY.. => NAN_CODE,
            scale => Self::scale_code(scale),
        }
    }

    /// The E4M3 code of a scale c, given as a pattern.
    #[inline(always)]
    pub(super) fn scale_code(scale: u32) -> u8 {
        // Both formats have an implicit bit, and the limits are normal numbers of both.
        ((scale - (SCALE_MIN - (8 << 20))) >> 20) as u8
    }

    /// q as a pattern without a sign. `abs` must be finite.
    #[inline(always)]
    pub(crate) fn round_unit<R: RoundingRule>(&self, pair: ScalePair, abs: u32, draw: u32) -> u32 {
        let scaled = if pair.scale == 0 {
            0
        } else if pair.inverse >= INFINITY {
            bits::quotient(abs, pair.scale)
        } else {
            bits::product(abs, pair.inverse)
        };
        round_magnitude::<R>(scaled.min(ELEMENT_MAX), 1, 0, draw)
    }

    #[inline(always)]
    fn is_four(&self, verdict: u32) -> bool {
        self.four_over_six && verdict == FOUR_VERDICT
    }

    /// What the elements need to know of a block with the scale c.
    #[inline(always)]
    fn pair<const EXACT: bool>(&self, scale: u32) -> ScalePair {
        self.pair_with::<EXACT>(scale, self.result_scale)
    }

    /// [`pair`](Self::pair), with results in these units.
    #[inline(always)]
    fn pair_with<const EXACT: bool>(&self, scale: u32, result_scale: u32) -> ScalePair {
        if scale >= INFINITY {
            return ScalePair {
                scale: NAN,
                inverse: 0,
            };
        }
        ScalePair {
            scale: bits::product(result_scale, scale),
            inverse: if EXACT && self.inverse >= INFINITY {
                INFINITY
            } else {
                bits::quotient(self.inverse, scale)
            },
        }
    }

    /// The pair of any block.
    #[inline(always)]
    pub(super) fn grid(&self, amax: u32, verdict: u32) -> ScalePair {
        self.pair::<EXACT>(self.block_scale::<EXACT>(amax, self.is_four(verdict)))
    }

    /// Rounds an element of any block.
    #[inline(always)]
    pub(super) fn round<R: RoundingRule>(&self, pair: ScalePair, x: f32, draw: u32) -> f32 {
        if pair.is_nan() {
            return f32::from_bits(NAN);
        }
        let unit = self.round_unit::<R>(pair, x.to_bits() & ABS, draw);
        f32::from_bits((x.to_bits() & SIGN) | bits::product(unit, pair.scale))
    }

    pub(super) fn unit_element(&self) -> UnitElement {
        UnitElement {
            mantissa_bits: 1,
            emin: 0,
            max: ELEMENT_MAX,
            flush_below: 0,
        }
    }

    pub(super) fn tame(&self) -> Range<u32> {
        match LARGE <= self.tensor_scale && self.tensor_scale < INFINITY {
            true => 0..INFINITY,
            false => 0..0,
        }
    }

    /// The pair of a tame block.
    #[inline(always)]
    pub(super) fn tame_pair(&self, amax: u32, four: bool) -> ScalePair {
        self.pair::<PLAIN>(self.block_scale::<PLAIN>(amax, four))
    }
}

/// What the second look at a block says where the scale that makes of the largest magnitude 4 is better; else 0.
pub(super) const FOUR_VERDICT: u32 = 1;

/// What the second look at a block needs to know.
#[derive(Clone, Copy)]
pub(super) struct Candidates {
    six: ScalePair,
    four: ScalePair,
    /// Exponent of the unit of their errors.
    unit: i32,
}

impl Candidates {
    /// As words, so that there can be arrays of each.
    #[inline(always)]
    pub(super) fn words(self) -> [u32; 5] {
        let [six, four] = [self.six, self.four].map(ScalePair::words);
        [six[0], six[1], four[0], four[1], self.unit as u32]
    }

    #[inline(always)]
    pub(super) fn of([six, six_inverse, four, four_inverse, unit]: [u32; 5]) -> Self {
        Self {
            six: ScalePair::of([six, six_inverse]),
            four: ScalePair::of([four, four_inverse]),
            unit: unit as i32,
        }
    }
}

/// Four over six: the second look.
impl Nvfp4Rule {
    /// Both scales of a block, and the unit of their errors.
    #[inline(always)]
    pub(super) fn candidates<const EXACT: bool>(&self, amax: u32) -> Candidates {
        // Of a block that becomes NaN, anything but that.
        let amax = if amax >= INFINITY { 0 } else { amax };
        let [six, four] = [false, true].map(
            #[inline(always)]
            |four| {
                let scale = self.block_scale::<EXACT>(amax, four);
                self.pair_with::<EXACT>(scale, self.tensor_scale)
            },
        );
        let unit = bits::exponent(amax) - 17;
        Candidates { six, four, unit }
    }

    /// By how much the squared error of an element is larger with the second scale.
    #[inline(always)]
    pub(super) fn difference<const EXACT: bool>(&self, candidates: Candidates, x: f32) -> i64 {
        let Candidates { six, four, unit } = candidates;
        let abs = x.to_bits() & ABS;
        // A block with a NaN or Inf becomes NaN anyway.
        let abs = if EXACT && (abs >= INFINITY || six.is_nan()) {
            0
        } else {
            abs
        };
        let [four, six] = [four, six].map(
            #[inline(always)]
            |pair| self.square_of_error::<EXACT>(pair, abs, unit),
        );
        i64::from(four) - i64::from(six)
    }

    /// The square of the error of a magnitude, in units of 2^unit.
    #[inline(always)]
    fn square_of_error<const EXACT: bool>(&self, pair: ScalePair, abs: u32, unit: i32) -> u32 {
        let q = if EXACT {
            self.round_unit::<Even>(pair, abs, 0)
        } else {
            let scaled = bits::product(abs, pair.inverse);
            round_normal::<Even>(scaled.min(ELEMENT_MAX), 1, ONE)
        };
        let value = bits::product(q, pair.scale);
        let difference = bits::sum(value, abs | SIGN);
        let error = bits::fixed_point(difference & ABS, unit);
        error * error
    }
}

// The patterns that are written as numbers.
const _: () = {
    assert!(TENSOR_MAX == (448.0_f32 * 6.0).to_bits() && ELEMENT_MAX == 6.0_f32.to_bits());
    assert!(SCALE_MIN == bits::pow2(-6) && SCALE_MAX == 448.0_f32.to_bits());
    assert!(LARGE == bits::pow2(-80));
    assert!(TENSOR_MAX_OF_TWO == (256.0_f32 * 6.0).to_bits() && SIX_OVER_FOUR == 1.5_f32.to_bits());
};
