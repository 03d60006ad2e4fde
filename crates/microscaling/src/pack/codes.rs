//! Blocks as codes: the meaning of each format's bits.

pub mod bitstream;
pub mod eights;
mod element_codes;
mod float_scale;
mod outer_scale;
pub(super) mod scale_codes;

use crate::format::BlockFormat;
use crate::quantize::rules::{AnyNumbers, BlockRule, Grid, StepElement, Steps};
use crate::round::RoundingRule;
use crate::round::bits::{BIAS, INFINITY};
pub use element_codes::ElementCodes;
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

    /// Rounds an element. NaN blocks have zeros for codes, or NaN where NaN is an element.
    fn code<R: RoundingRule>(&self, scale: Self::Scale, x: f32, draw: u32) -> u32;

    /// Reads what sub-block number `index` has in the record of its block.
    fn unit(&self, record: &[u8], index: usize) -> Self::Unit;

    /// The value of a code.
    fn value(&self, unit: Self::Unit, code: u32) -> f32;
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
        unit.map_or(f32::NAN, |exponent| {
            f32::from_bits(self.codes.value(code, exponent))
        })
    }
}

/// Blocks with scales by sign: the bytes of the positive elements' scale, the bytes of the negative elements' scale, then the elements'
/// own codes. The highest bit of a code is the sign. The codec of one sign reads and writes the rest.
#[derive(Clone, Copy)]
pub(crate) struct SignScalesCodec<C> {
    rule: BlockRule,
    of_sign: C,
    /// Bytes of each scale.
    scale_bytes: usize,
    /// The place of the sign in an element's code.
    sign_place: u32,
}

impl<C: BlockCodec> SignScalesCodec<C> {
    /// From the codec of the format without scales by sign.
    pub(crate) fn of(of_sign: C, format: &BlockFormat) -> Self {
        Self {
            rule: of_sign.rule().by_sign(),
            of_sign,
            scale_bytes: format.scale_bits().div_ceil(8) as usize,
            sign_place: format.element_bits() - 1,
        }
    }
}

impl<C: BlockCodec> BlockCodec for SignScalesCodec<C> {
    type Scale = [C::Scale; 2];
    type Unit = [C::Unit; 2];

    #[inline(always)]
    fn rule(&self) -> &BlockRule {
        &self.rule
    }

    fn scale(&self, maxima: [u32; 2], index: usize, record: &mut [u8]) -> [C::Scale; 2] {
        let [positive, negative] = self.rule.of_signs(maxima);
        let (of_positive, of_negative) = record.split_at_mut(self.scale_bytes);
        [
            self.of_sign.scale([positive; 2], index, of_positive),
            self.of_sign.scale([negative; 2], index, of_negative),
        ]
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, scales: [C::Scale; 2], x: f32, draw: u32) -> u32 {
        let scale = scales[usize::from(x.is_sign_negative())];
        self.of_sign.code::<R>(scale, x, draw)
    }

    #[inline(always)]
    fn unit(&self, record: &[u8], index: usize) -> [C::Unit; 2] {
        let (of_positive, of_negative) = record.split_at(self.scale_bytes);
        [of_positive, of_negative].map(
            #[inline(always)]
            |record| self.of_sign.unit(record, index),
        )
    }

    #[inline(always)]
    fn value(&self, units: [C::Unit; 2], code: u32) -> f32 {
        let sign = code >> self.sign_place & 1;
        self.of_sign.value(units[sign as usize], code)
    }
}

/// Runs `$body` with `$codec` bound to the [`BlockCodec`](crate::pack::codes::BlockCodec) of a [`BlockFormat`], in a tensor with
/// this scale if the format has tensor scales.
macro_rules! with_codec {
    ($format:expr, $tensor_factor:expr, $codec:ident => $body:expr) => {{
        use $crate::pack::codes::{
            ExponentCodec, FloatScaleCodec, OuterScaleCodec, SignScalesCodec,
        };
        let format = $format;
        let of_sign = $crate::format::BlockFormat {
            sign_scales: false,
            ..format
        };
        if format.sign_scales && format.has_exponent() {
            let codec = ExponentCodec::<false>::of(&of_sign);
            let $codec = SignScalesCodec::of(codec, &format);
            $body
        } else if format.sign_scales {
            let codec = FloatScaleCodec::of(&of_sign, $tensor_factor);
            let $codec = SignScalesCodec::of(codec, &format);
            $body
        } else if format.shifts.is_some() {
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
