//! The numbers of dialects as rules over words.

use super::Dialect;
use super::encoding::{MxEncoding, Signs, Ties};
use super::nvfp4::{Nvfp4Encoding, Nvfp4Tensor, fp4};
use super::q8_0;
use crate::format::BlockFormat;
use crate::round::bits::{ABS, BIAS, INFINITY, NAN, ONE, SIGN};
use crate::round::magnitude::round_magnitude;
use crate::round::mode::{Even, Nearest, Rounding};
use crate::round::words::{Int, Word};

/// The rule by which a dialect quantizes a block, for [`Dialect::quantize`]'s numbers, zeros of either sign included.
#[derive(Clone, Copy)]
pub struct DialectRule {
    pub(super) rule: ToolRule,
}

#[derive(Clone, Copy)]
pub(super) enum ToolRule {
    Mx(MxEncoding),
    /// With a tensor scale by the encoding, or without.
    Nvfp4(Option<Nvfp4Encoding>),
    Q8_0,
}

impl ToolRule {
    /// The rule for a format that is not one of ours.
    pub(super) fn of(dialect: Dialect, format: &BlockFormat) -> Self {
        match dialect {
            _ if format.has_exponent() => Self::Mx(dialect.mx(format.element)),
            Dialect::Ggml => Self::Q8_0,
            _ => Self::Nvfp4(format.tensor_scale.then(|| dialect.nvfp4())),
        }
    }
}

/// The words that round the elements of a block. The first one is NaN where the block becomes NaN.
type RuleWords<W> = (W, W, W);

impl DialectRule {
    /// The rule, or the rounding of a format that has the dialect's numbers. The format must be one of the dialect's.
    pub fn of(dialect: Dialect, format: &BlockFormat) -> Result<Self, Rounding> {
        match dialect.is_ours(format) {
            Some(rounder) => Err(rounder.rounding()),
            None => Ok(Self {
                rule: ToolRule::of(dialect, format),
            }),
        }
    }

    /// The words of a block with this largest magnitude, as a pattern, in a tensor with that one.
    #[inline(always)]
    pub fn words<W: Word>(self, amax: W, tensor_amax: W) -> RuleWords<W> {
        let is_finite = amax.is_below(INFINITY.into());
        let finite = W::select(is_finite, amax, 0.into());
        match self.rule {
            ToolRule::Mx(encoding) => {
                let exponent = encoding.scale.exponent(&encoding.element, finite);
                // Elements have a larger unit than the scale where the scale is very small.
                let unit = exponent.larger(encoding.least_exponent.into());
                let max = W::from(encoding.element.max).scale(unit);
                let emin = unit + encoding.element.emin.into();
                let factor = W::from(ONE).scale(exponent - unit);
                (
                    W::select(is_finite, max, NAN.into()),
                    emin.to_word(),
                    factor,
                )
            }
            ToolRule::Nvfp4(None) => nvfp4_words(Nvfp4Tensor::unscaled(), is_finite, finite),
            ToolRule::Nvfp4(Some(encoding)) => {
                let source = encoding.source(tensor_amax);
                let is_finite = source.is_below(INFINITY.into());
                let tensor_amax = W::select(is_finite, tensor_amax, 0.into());
                let finite = W::select(is_finite, finite, 0.into());
                nvfp4_words(encoding.tensor(tensor_amax), is_finite, finite)
            }
            ToolRule::Q8_0 => {
                let (scale, factor) = q8_0::scales(finite);
                let is_number = is_finite & scale.is_below(INFINITY.into());
                (W::select(is_number, scale, NAN.into()), factor, 0.into())
            }
        }
    }

    /// The number of an element in a block with these words.
    #[inline(always)]
    pub fn round<W: Word>(self, x: W, (first, second, third): RuleWords<W>) -> W {
        let is_nan = first.is_nan();
        let abs = W::select(is_nan, 0.into(), x & ABS.into());
        let finite = W::select(is_nan, 0.into(), first);
        let value = match self.rule {
            ToolRule::Mx(encoding) => {
                let rounded = round_mx(encoding, abs, first, second.to_int());
                let value = match encoding.least_exponent > -BIAS {
                    true => rounded.product(third),
                    false => rounded,
                };
                value | encoding.signs.of(x, rounded)
            }
            ToolRule::Nvfp4(encoding) => {
                let (abs, multiplies) = match encoding {
                    Some(encoding) => (encoding.source(abs), encoding.multiplies()),
                    None => (abs, false),
                };
                let number = fp4(match multiplies {
                    true => abs.product(second),
                    false => abs.quotient(second),
                });
                let sign = Signs::OfNumbers.of(x & SIGN.into() | abs, number);
                number.product(finite) | sign & third
            }
            ToolRule::Q8_0 => {
                let integer = q8_0::integer(abs, second);
                integer.product(finite) | Signs::NoNegativeZero.of(x, integer)
            }
        };
        W::select(is_nan, NAN.into(), value)
    }
}

/// The scale with the tensor's, the factor or divisor of elements, and the bits of signs that count.
#[inline(always)]
fn nvfp4_words<W: Word>(tensor: Nvfp4Tensor<W>, is_finite: W::Condition, amax: W) -> RuleWords<W> {
    let scale = tensor.scale(tensor.source(amax));
    // A tensor that the tool makes NaN of becomes zeros.
    let is_zeros = tensor.of_tensor.equals(0.into());
    let unit = W::select(is_zeros, 0.into(), tensor.unit(scale));
    let by = match tensor.factor(scale) {
        Some(factor) => factor,
        None => unit.larger(1.into()),
    };
    (
        W::select(is_finite, unit, NAN.into()),
        by,
        W::select(is_zeros, 0.into(), SIGN.into()),
    )
}

/// A magnitude, rounded to elements with this largest number and this exponent of the smallest number with all mantissa bits.
#[inline(always)]
fn round_mx<W: Word>(encoding: MxEncoding, abs: W, max: W, emin: W::Int) -> W {
    let bits = encoding.element.mantissa_bits;
    match encoding.ties {
        Ties::Even => round_magnitude::<Even, W>(abs.smaller(max), bits, emin, 0.into()),
        // A number above a tie is at least the tie when the next smaller number takes its place.
        Ties::TowardZero => {
            let smaller = abs - abs.smaller(1.into());
            round_magnitude::<Nearest, W>(smaller.smaller(max), bits, emin, 0.into())
        }
    }
}
