//! Which parameters make up a block format.

mod conversion;

use super::BlockFormat;
use crate::format::{
    ElementFormat, FieldValue, FormatError, NonFinite, OuterScale, ScaleFormat, ScaleMode,
    SharedExpMethod, Shifts, SubScales, Subnormals,
};
use crate::round::bits;

/// Scales from here on leave no room for a tensor scale or an outer scale.
const LARGE_SCALE: f32 = 4_294_967_296.0;

impl BlockFormat {
    /// Checks the fields.
    ///
    /// # Errors
    /// A format whose scale is a power of two has these errors:
    /// * [`FormatError::MxHeadroom`] if `headroom` is less than 1;
    /// * [`FormatError::TableElement`] if the element is a [table](ElementFormat::tables);
    /// * [`FormatError::SquareBlocks`] if square blocks have no size, or no scale that their elements share;
    /// * [`FormatError::ScaleModeElement`] if `scale_mode` is [`Rms`](ScaleMode::Rms) and the element not
    ///   [`FP4_E2M1`](ElementFormat::FP4_E2M1);
    /// * [`FormatError::Field`]: shifts that do not fit the block, or blocks without a size, of microexponents or block floating
    ///   point.
    ///
    /// A format whose scale is a float has these:
    /// * [`FormatError::FloatScaleElement`]: an element of more than 8 bits, or one with very large or very small numbers.
    /// * [`FormatError::FloatScaleField`]: a tensor scale beside scales of at least 2^32, four over six for other elements or
    ///   scales than NVFP4's, or square blocks as long as the axis. MS-EDEN is an error without a tensor scale, for tables, for
    ///   square blocks, with four over six, and for blocks that do not divide its group.
    /// * [`FormatError::SubScales`]: sub-scales that do not divide the blocks, or beside a field that excludes them.
    /// * [`FormatError::OuterScale`]: an outer scale whose parts are not whole blocks, or beside a field that excludes an outer scale.
    ///
    /// Both have [`FormatError::WithoutEffect`]: a field differs from its default, and formats with such a scale lack the field. Scales by
    /// sign are such a field beside others that exclude them.
    pub fn validate(&self) -> Result<(), FormatError> {
        if self.has_fixed_steps() {
            self.validate_fixed_steps()?;
        } else if self.has_exponent() {
            self.validate_exponent()?;
        } else {
            self.validate_float_scale()?;
        }
        self.validate_effects()?;
        self.validate_sign_scales()?;
        self.validate_conversion()
    }

    /// The other fields beside scales by sign.
    fn validate_sign_scales(&self) -> Result<(), FormatError> {
        let has_signs = !self.element.is_table() && !self.element.is_unsigned();
        let is_by_largest = !matches!(self.scale_mode, ScaleMode::Rms | ScaleMode::MaxAbsFinite);
        let is_of_blocks = self.shared_exp_method == SharedExpMethod::Max
            && self.non_finite == NonFinite::OfBlock
            && !self.square;
        let is_alone =
            self.sub_scales.is_none() && self.outer.is_none() && !self.four_over_six && !self.eden;
        if !self.sign_scales || (has_signs && is_by_largest && is_of_blocks && is_alone) {
            return Ok(());
        }
        Err(FormatError::WithoutEffect {
            field: "sign_scales",
            got: true.into(),
            allowed: "false",
            kind: "tables, elements without a sign, square, shared_exp_method=none, non_finite=elements, the scale modes rms and max_abs_finite, sub_scales, outer_size, four_over_six and eden",
        })
    }

    /// The fields that only some formats have are as in the formats that lack them.
    fn validate_effects(&self) -> Result<(), FormatError> {
        let kind = match (self.has_fixed_steps(), self.has_exponent()) {
            (true, _) => "microexponents and block floating point",
            (false, true) => "a scale that is a power of two",
            (false, false) => "a scale that is a float",
        };
        let first = self
            .effects_of_names()
            .or_else(|| self.effects_of_options());
        match first {
            Some((field, got, allowed)) => Err(FormatError::WithoutEffect {
                field,
                got,
                allowed,
                kind,
            }),
            None => Ok(()),
        }
    }

    /// The first field with formats or names that has another value than the formats which lack the field, and the allowed values.
    fn effects_of_names(&self) -> Option<(&'static str, FieldValue, &'static str)> {
        let (fixed, exponent) = (self.has_fixed_steps(), self.has_exponent());
        let name = FieldValue::Name;
        if fixed {
            let bits = self.element.bits();
            let (is_usual, elements) = match self.non_finite {
                NonFinite::TopExponent => (
                    ElementFormat::fixed(bits, bits as i32 - 2) == Ok(self.element),
                    "a two's complement in steps of 2^(2 - bits)",
                ),
                _ => (
                    self.element == ElementFormat::sign_magnitude(bits - 1),
                    "a sign and a magnitude",
                ),
            };
            if !is_usual {
                return Some(("element", FieldValue::Element(self.element), elements));
            }
            if self.scale != ScaleFormat::E8M0 {
                return Some(("scale", FieldValue::Scale(self.scale), "e8m0"));
            }
        }
        let is_floor = self.scale_mode == ScaleMode::Floor;
        let is_largest = self.scale_mode == ScaleMode::MaxAbsFinite;
        let (is_mode, modes) = match (fixed, exponent) {
            (true, _) => (is_floor, "floor"),
            (false, true) => (!is_largest, "floor, ceil, even, rceil or rms"),
            (false, false) => (is_floor || is_largest, "floor or max_abs_finite"),
        };
        if !is_mode {
            return Some(("scale_mode", name(self.scale_mode.name()), modes));
        }
        if exponent && self.non_finite == NonFinite::Elements {
            return Some(("non_finite", name("elements"), "block"));
        }
        let method = self.shared_exp_method;
        let has_methods = exponent && !fixed;
        (!has_methods && method != SharedExpMethod::Max)
            .then(|| ("shared_exp_method", name(method.name()), "max"))
    }

    /// The same of fields that are on or off, or absent.
    fn effects_of_options(&self) -> Option<(&'static str, FieldValue, &'static str)> {
        let (fixed, exponent) = (self.has_fixed_steps(), self.has_exponent());
        let flags = [
            ("square", fixed && self.square),
            ("sign_scales", fixed && self.sign_scales),
            ("subnormal_scales", exponent && self.subnormal_scales),
            ("four_over_six", exponent && self.four_over_six),
            ("eden", exponent && self.eden),
            ("tensor_scale", exponent && self.tensor_scale),
        ];
        if let Some((field, _)) = flags.into_iter().find(|(_, is_set)| *is_set) {
            return Some((field, true.into(), "false"));
        }
        if fixed && !self.headroom.is_none() {
            return Some(("headroom", FieldValue::Headroom(self.headroom), "1"));
        }
        let has_shifts = self.non_finite == NonFinite::OfBlock;
        let parts = [
            (
                "sub_scales",
                self.sub_scales
                    .map(FieldValue::SubScales)
                    .filter(|_| exponent),
            ),
            (
                "outer",
                self.outer.map(FieldValue::Outer).filter(|_| exponent),
            ),
            (
                "shifts",
                self.shifts.map(FieldValue::Shifts).filter(|_| !has_shifts),
            ),
        ];
        let part = parts
            .into_iter()
            .find_map(|(field, got)| Some((field, got?, "none")));
        let flushes = self.shifts.is_some() || self.non_finite == NonFinite::TopExponent;
        let (is_usual, allowed) = match (fixed, exponent, self.subnormals) {
            (false, true, _) => (true, ""),
            (false, false, own) => (own != Subnormals::FlushBlocks, "Kept or FlushElements"),
            (true, _, own) if flushes => (own == Subnormals::FlushElements, "FlushElements"),
            (true, _, own) => (own == Subnormals::Kept, "Kept"),
        };
        let got = FieldValue::Name(match self.subnormals {
            Subnormals::Kept => "Kept",
            Subnormals::FlushBlocks => "FlushBlocks",
            Subnormals::FlushElements => "FlushElements",
        });
        part.or_else(|| (!is_usual).then_some(("subnormals", got, allowed)))
    }

    fn validate_exponent(&self) -> Result<(), FormatError> {
        if self.element.is_table() {
            return Err(FormatError::TableElement {
                format: "MX format",
                got: self.element,
            });
        }
        if self.headroom.is_below_one() {
            return Err(FormatError::MxHeadroom { got: self.headroom });
        }
        if self.scale_mode == ScaleMode::Rms && self.element != ElementFormat::FP4_E2M1 {
            return Err(FormatError::ScaleModeElement {
                scale_mode: self.scale_mode,
                expected: ElementFormat::FP4_E2M1,
                got: self.element,
            });
        }
        let refused = |field, got, allowed| {
            Err(FormatError::SquareBlocks {
                field,
                got,
                allowed,
            })
        };
        match (self.square, self.block_size, self.shared_exp_method) {
            (true, 0, _) => refused("block_size", "0", "a number of at least 1"),
            (true, _, method @ SharedExpMethod::None) => refused(
                "shared_exp_method",
                method.name(),
                SharedExpMethod::Max.name(),
            ),
            _ => Ok(()),
        }
    }

    /// Checks the blocks and shifts of microexponents and block floating point.
    pub(super) const fn validate_fixed_steps(&self) -> Result<(), FormatError> {
        let family = self.fixed_family();
        let whole = (1, usize::MAX);
        if let Err(error) = FormatError::check(family, "block_size", self.block_size, whole) {
            return Err(error);
        }
        let Some(Shifts { block_size, bits }) = self.shifts else {
            return Ok(());
        };
        let allowed = (1, self.block_size);
        match FormatError::check(family, "sub_block_size", block_size, allowed) {
            Ok(()) => FormatError::check(family, "shift_bits", bits as usize, Shifts::BITS),
            Err(error) => Err(error),
        }
    }

    fn validate_float_scale(&self) -> Result<(), FormatError> {
        let Self { element, scale, .. } = *self;
        let is_too_fine = element.min_subnormal() < f32::from_bits(bits::pow2(-32));
        if element.bits() > 8 || is_too_fine || !(0..=32).contains(&element.emax()) {
            return Err(FormatError::FloatScaleElement { got: element });
        }
        let refused = |field, allowed| Err(FormatError::FloatScaleField { field, allowed });
        if let Some(outer) = self.outer {
            self.validate_outer_scale(outer)?;
        }
        if self.tensor_scale && scale.max() >= LARGE_SCALE {
            return refused(
                "tensor_scale",
                "false with a scale that is as large as float32's",
            );
        }
        let is_nvfp4 = element == ElementFormat::FP4_E2M1 && scale == ScaleFormat::UE4M3;
        if self.four_over_six && !is_nvfp4 {
            return refused(
                "four_over_six",
                "false; true is for element fp4_e2m1 with scale ue4m3",
            );
        }
        if self.square && self.block_size == 0 {
            return refused("square", "false with block_size 0");
        }
        let divides = self.block_size > 0 && Self::EDEN_GROUP.is_multiple_of(self.block_size);
        let has_eden = self.tensor_scale && !self.square && !self.four_over_six && divides;
        if self.eden && (!has_eden || element.is_table() || self.sub_scales.is_some()) {
            return refused(
                "eden",
                "false; true is for a tensor_scale, a block_size that divides 128, and no square, table, four_over_six or sub_scales",
            );
        }
        self.sub_scales
            .map_or(Ok(()), |sub| self.validate_sub_scales(sub))
    }

    fn validate_outer_scale(&self, got: OuterScale) -> Result<(), FormatError> {
        let is_of_blocks = self.block_size > 0 && got.size.is_multiple_of(self.block_size);
        let alone = !self.tensor_scale && !self.square && !self.four_over_six && !self.eden;
        if is_of_blocks
            && alone
            && self.sub_scales.is_none()
            && !self.element.is_table()
            && !got.scale.is_exponent()
            && self.scale.max() < LARGE_SCALE
        {
            return Ok(());
        }
        Err(FormatError::OuterScale {
            got,
            allowed: "a multiple of block_size, or 0 for the whole axis, of elements that are no table, beside a scale below 2^32 and no tensor_scale, square, four_over_six, sub_scales or eden",
        })
    }

    fn validate_sub_scales(&self, got: SubScales) -> Result<(), FormatError> {
        let [first, second] = got.block_sizes();
        let divides = self.block_size.is_multiple_of(first) && first.is_multiple_of(second);
        let alone = !self.tensor_scale && !self.square && !self.four_over_six;
        if (1..=1024).contains(&self.block_size)
            && divides
            && alone
            && !self.element.is_table()
            && self.scale.mantissa_bits() <= 7
        {
            return Ok(());
        }
        Err(FormatError::SubScales {
            got,
            allowed: "two lengths that divide block_size, which is at most 1024, and the one before, of elements that are no table, beside a scale of at most 7 mantissa bits and no tensor_scale, square or four_over_six",
        })
    }
}
