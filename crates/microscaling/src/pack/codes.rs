//! Blocks as codes: the meaning of each format's bits.

pub(super) mod bitstream;
pub(super) mod eights;
mod float_scale;
mod outer_scale;
pub(super) mod scale_codes;

use crate::format::{BlockFormat, ElementOverflow, NonFinite};
use crate::quantize::rules::{BlockRule, Grid, StepElement, Steps};
use crate::round::RoundingRule;
use crate::round::bits::{self, ABS, BIAS, INFINITY, NAN, SIGN};
pub(crate) use float_scale::{FloatScaleCodec, TensorFactor};
pub(crate) use outer_scale::OuterScaleCodec;

/// The code of the scale NaN, where a scale is an exponent.
const NAN_EXPONENT: u8 = 255;

/// A block format as codes. A block is a record of bytes, its scale and what belongs to it, and one
/// code an element.
pub(crate) trait BlockCodec: Copy + Sync {
    /// The data of a sub-block that encoding an element needs.
    type Scale: Copy;
    /// The data of a sub-block that decoding an element needs.
    type Unit: Copy;

    /// How elements are rounded.
    fn rule(&self) -> &BlockRule;

    /// Writes what sub-block number `index` has in the record of its block. `maxima` are the largest
    /// magnitudes of the block and of the sub-block, or what [a second look](BlockRule::refinement) says.
    fn scale(&self, maxima: [u32; 2], index: usize, record: &mut [u8]) -> Self::Scale;

    /// Rounds an element. NaN blocks have zeros for codes.
    fn code<R: RoundingRule>(&self, scale: Self::Scale, x: f32, draw: u32) -> u32;

    /// Reads what sub-block number `index` has in the record of its block.
    fn unit(&self, record: &[u8], index: usize) -> Self::Unit;

    /// The value of a code.
    fn value(&self, unit: Self::Unit, code: u32) -> f32;
}

/// How many times 2^exponent a pattern is, which must be a whole number below 2^24. The pattern of Inf
/// counts as 2^128.
#[inline(always)]
fn steps(abs: u32, exponent: i32) -> u32 {
    let (significand, unit) = bits::parts(abs);
    let up = unit - exponent;
    significand << up.clamp(0, 31) >> (-up).clamp(0, 31)
}

/// The codes of an element format, as numbers that loops without branches compute with.
#[derive(Clone, Copy)]
struct ElementCodes {
    mantissa_bits: i32,
    emin: i32,
    /// The sign bit of a code, and all bits below it.
    sign: u32,
    /// The lowest bit of the exponent field; beyond all bits where there is no such field.
    exponent_bit: u32,
    /// Whether negative codes are two's complements.
    integer: bool,
    /// Whether −0 is 0: its code is NaN's.
    no_negative_zero: bool,
    /// The lowest magnitude code for NaN or Inf, and whether this code is Inf; all codes above are NaN.
    special: u32,
    infinity: bool,
    /// The codes for elements that overflow to Inf and to NaN; `None` where no element does.
    beyond: Option<[u32; 2]>,
    /// Whether a block with NaN or Inf has the scale 2^128.
    top_exponent: bool,
}

impl ElementCodes {
    fn of(format: &BlockFormat) -> Self {
        let element = format.element;
        let sign = 1 << (element.bits() - 1);
        let integer = element.is_integer();
        let number = |code: &u32| element.decode(*code).is_finite();
        let special = (0..sign)
            .rev()
            .find(number)
            .map_or(0, |largest| largest + 1);
        let special = if integer { u32::MAX } else { special };
        Self {
            mantissa_bits: element.mantissa_bits() as i32,
            emin: element.emin(),
            sign,
            exponent_bit: if integer { 31 } else { element.mantissa_bits() },
            integer,
            no_negative_zero: !integer && !element.has_negative_zero(),
            special,
            infinity: special < sign && element.decode(special).is_infinite(),
            beyond: match (format.conversion.overflow, format.non_finite) {
                (_, NonFinite::Elements)
                | (ElementOverflow::Infinity | ElementOverflow::Nan, _) => {
                    let nan = element.nan_code().unwrap_or(0);
                    Some([element.infinity_code().unwrap_or(nan), nan])
                }
                (
                    ElementOverflow::Saturate
                    | ElementOverflow::Propagate
                    | ElementOverflow::Renormalize,
                    _,
                ) => None,
            },
            top_exponent: format.non_finite == NonFinite::TopExponent,
        }
    }

    /// The code of x, a number of the format times 2^scale, given as a pattern; ±Inf stands for ±2^128.
    /// The inverse of [`value`](Self::value).
    #[inline(always)]
    fn code(&self, x: u32, scale: i32) -> u32 {
        let abs = x & ABS;
        if let Some([infinity, nan]) = self.beyond
            && abs >= INFINITY
        {
            let negative = x & SIGN != 0 && abs == INFINITY;
            let sign = if negative { self.sign } else { 0 };
            return if abs > INFINITY { nan } else { infinity | sign };
        }
        // With the exponent of Inf each NaN has one code, beside the sign.
        let abs = if abs > INFINITY { NAN } else { abs };
        let (significand, unit) = bits::parts(abs);
        let lowest = self.emin + scale;
        let exponent = (bits::log2(significand) + unit).max(lowest);
        // The implicit bit counts as one more in the exponent field.
        let magnitude = steps(abs, exponent - self.mantissa_bits)
            + (((exponent - lowest) as u32) << self.mantissa_bits);
        let negative = if self.integer {
            magnitude.wrapping_neg() & (2 * self.sign - 1)
        } else if self.no_negative_zero && magnitude == 0 {
            0
        } else {
            magnitude | self.sign
        };
        if x & SIGN == 0 { magnitude } else { negative }
    }

    /// The number of a code times 2^scale, toward zero where that is too fine for float32.
    #[inline(always)]
    fn value(&self, code: u32, scale: i32) -> f32 {
        let negative = code & self.sign != 0;
        let complement = code.wrapping_neg() & (2 * self.sign - 1);
        let magnitude = if self.integer && negative {
            complement
        } else if self.integer {
            code
        } else {
            code & (self.sign - 1)
        };
        let field = (magnitude >> self.exponent_bit) as i32;
        let implicit = if field > 0 { field - 1 } else { 0 };
        let significand = magnitude - ((implicit as u32) << self.mantissa_bits);
        let number = bits::fixed(
            significand,
            self.emin - self.mantissa_bits + implicit + scale,
        );
        let sign = if negative { SIGN } else { 0 };
        let is_beyond = self.top_exponent && scale > BIAS && magnitude > 1 << self.mantissa_bits;
        let nan = is_beyond || self.no_negative_zero && negative && magnitude == 0;
        f32::from_bits(if nan {
            NAN
        } else if magnitude < self.special {
            sign | number
        } else if magnitude == self.special && self.infinity {
            sign | INFINITY
        } else {
            NAN
        })
    }
}

/// Blocks whose scale is a power of two: a byte for its exponent, the shifts of the sub-blocks if there are `SHIFTS`, then the element's
/// own codes.
#[derive(Clone, Copy)]
pub(crate) struct ExponentCodec<const SHIFTS: bool> {
    rule: BlockRule,
    element: StepElement,
    codes: ElementCodes,
    shift_bits: u32,
}

impl<const SHIFTS: bool> ExponentCodec<SHIFTS> {
    /// The format must have powers of two for scales.
    pub(crate) fn of(format: &BlockFormat) -> Self {
        let rule = BlockRule::of(format, None);
        Self {
            rule,
            element: rule.step_element().expect("scales are powers of two"),
            codes: ElementCodes::of(format),
            shift_bits: format.shifts.map_or(0, |shifts| shifts.bits),
        }
    }
}

impl<const SHIFTS: bool> BlockCodec for ExponentCodec<SHIFTS> {
    type Scale = (Grid, i32);
    /// The exponent of the scale, less the shift, or `None` for NaN.
    type Unit = Option<i32>;

    #[inline(always)]
    fn rule(&self) -> &BlockRule {
        &self.rule
    }

    fn scale(&self, maxima: [u32; 2], index: usize, record: &mut [u8]) -> (Grid, i32) {
        let (exponent, shift) = match &self.rule {
            BlockRule::Mx(rule) => match rule.scale(maxima) {
                (_, true) => (None, 0),
                (exponent, false) => (Some(exponent), 0),
            },
            BlockRule::FixedPoint(rule) => (rule.exponent(maxima), rule.shift(maxima)),
            BlockRule::FloatScale(_) | BlockRule::OuterScale(_) => {
                unreachable!("scales are powers of two")
            }
        };
        let shift = if exponent.is_some() { shift } else { 0 };
        record[0] = exponent.map_or(NAN_EXPONENT, |exponent| (exponent + BIAS) as u8);
        if SHIFTS {
            bitstream::put(&mut record[1..], index, self.shift_bits, shift as u32);
        }
        let grid = self.rule.grid(maxima[0], maxima[1]);
        (grid, exponent.unwrap_or(0) - shift)
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, (grid, exponent): (Grid, i32), x: f32, draw: u32) -> u32 {
        let rounded = self.element.round::<R>(grid, x, draw);
        let code = self.codes.code(rounded.to_bits(), exponent);
        if Steps::of(grid).max > INFINITY {
            0
        } else {
            code
        }
    }

    #[inline(always)]
    fn unit(&self, record: &[u8], index: usize) -> Option<i32> {
        let shift = if SHIFTS {
            bitstream::get(&record[1..], index, self.shift_bits) as i32
        } else {
            0
        };
        (record[0] != NAN_EXPONENT || self.codes.top_exponent)
            .then_some(i32::from(record[0]) - BIAS - shift)
    }

    #[inline(always)]
    fn value(&self, unit: Option<i32>, code: u32) -> f32 {
        unit.map_or(f32::NAN, |exponent| self.codes.value(code, exponent))
    }
}

/// Runs `$body` with `$codec` bound to the [`BlockCodec`](crate::pack::codes::BlockCodec) of a [`BlockFormat`], in a tensor with
/// this scale if the format has tensor scales.
macro_rules! with_codec {
    ($format:expr, $tensor_factor:expr, $codec:ident => $body:expr) => {{
        use $crate::pack::codes::{ExponentCodec, FloatScaleCodec, OuterScaleCodec};
        let format = $format;
        if format.shifts.is_some() {
            let $codec = ExponentCodec::<true>::of(&format);
            $body
        } else if format.has_exponent() {
            let $codec = ExponentCodec::<false>::of(&format);
            $body
        } else if let Some($codec) = OuterScaleCodec::of(&format) {
            $body
        } else {
            let $codec = FloatScaleCodec::of(&format, $tensor_factor);
            $body
        }
    }};
}
pub(super) use with_codec;
