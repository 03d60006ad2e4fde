//! The allowed values of the fields, alone and together.

mod accumulators;
pub(crate) mod attention;
mod dialects;
mod hot_columns;
mod mean_apart;
mod recipe;

use std::fmt::Display;
use std::ops::RangeInclusive;

use microscaling::{BlockFormat, ElementFormat, RandomHadamard};

use crate::specs::{MxSpecs, Slot, SlotFormat, SpecsError};

impl MxSpecs {
    /// Checks all fields.
    pub(super) fn validate(&self) -> Result<(), SpecsError> {
        SCALE_BITS.check(self.scale_bits)?;
        BFLOAT.check(self.bfloat)?;
        FP.check(self.fp)?;
        if self.bfloat != 0 && self.fp != 0 {
            let (bfloat, fp) = (self.bfloat, self.fp);
            return Err(SpecsError::BfloatAndFp { bfloat, fp });
        }
        self.check_formats()?;
        self.check_hadamard()?;
        self.check_attention()?;
        self.check_hot_columns()?;
        self.check_mean_apart()?;
        self.check_recipe()
    }

    /// Checks the formats of the slots, and that the fields which shape MX blocks have some to shape.
    fn check_formats(&self) -> Result<(), SpecsError> {
        let slots = Slot::ALL
            .into_iter()
            .filter_map(|slot| Some((slot.field(), self.slot_format(slot)?)));
        for (field, format) in slots.clone() {
            if let SlotFormat::Unknown(name) = format
                && let Err(error) = name.parse::<SlotFormat>()
            {
                return Err(SpecsError::UnknownFormat { field, name, error });
            }
            self.check_format(field, format)?;
        }
        let mut slots = slots.peekable();
        match slots.peek().copied() {
            Some((slot, SlotFormat::Block(format)))
                if slots.all(|(_, format)| matches!(format, SlotFormat::Block(_))) =>
            {
                self.check_shapes_nothing(slot, format)
            }
            _ => Ok(()),
        }
    }

    /// Checks a format's parameters. An element has the scale mode of all slots, which not all elements allow.
    fn check_format(&self, field: &'static str, format: SlotFormat) -> Result<(), SpecsError> {
        let shared = BlockFormat {
            scale_mode: self.scale_mode,
            ..BlockFormat::mx(ElementFormat::FP4_E2M1, 32)
        };
        let of_slot = match format {
            SlotFormat::Element(element) => BlockFormat { element, ..shared }.validate(),
            _ => format.validate(),
        };
        of_slot.map_err(|error| SpecsError::Format {
            field,
            format: format.to_string(),
            error: Box::new(error),
        })
    }

    fn check_hadamard(&self) -> Result<(), SpecsError> {
        let value = self.hadamard_block_size;
        let transform = RandomHadamard { block_size: value };
        if value == 0 || transform.validate().is_ok() {
            return Ok(());
        }
        let sizes = RandomHadamard::BLOCK_SIZES.map(|size| size.to_string());
        Err(SpecsError::OutOfRange {
            field: "hadamard_block_size",
            value,
            allowed: format!("0 (off), {}", sizes.join(", ")),
        })
    }

    /// Checks the fields that shape MX blocks where none is shaped by them: all slots that are set bring
    /// their own format, the first of which is `format` in `slot`.
    fn check_shapes_nothing(
        &self,
        slot: &'static str,
        format: BlockFormat,
    ) -> Result<(), SpecsError> {
        let default = Self::default();
        let (size, bits, own) = (self.block_size, self.scale_bits, format.group_size());
        let (mode, method) = (self.scale_mode, self.shared_exp_method);
        let flush = self.mx_flush_fp32_subnorms;
        let fields: [(_, &dyn Display, _, _); 5] = [
            (
                "block_size",
                &size,
                size == 0 || size == own,
                match own {
                    0 => "0".into(),
                    _ => format!("0 or {own}"),
                },
            ),
            ("scale_bits", &bits, bits == 0 || bits == 8, "0 or 8".into()),
            (
                "scale_mode",
                &mode,
                mode == default.scale_mode,
                default.scale_mode.to_string(),
            ),
            (
                "shared_exp_method",
                &method,
                method == default.shared_exp_method,
                default.shared_exp_method.to_string(),
            ),
            ("mx_flush_fp32_subnorms", &flush, !flush, "false".into()),
        ];
        for (field, value, is_allowed, allowed) in fields {
            if !is_allowed {
                return Err(SpecsError::WithoutEffect {
                    field,
                    value: value.to_string(),
                    slot,
                    format: format.to_string(),
                    allowed,
                });
            }
        }
        Ok(())
    }
}

/// The widths in bits that a field may name; 0 always stands for its default.
pub(super) struct BitRange {
    field: &'static str,
    bits: RangeInclusive<u32>,
    zero_means: &'static str,
}

const SCALE_BITS: BitRange = BitRange {
    field: "scale_bits",
    bits: 1..=8,
    zero_means: "8",
};
/// One sign, 8 exponent and 1 to 23 mantissa bits.
pub(super) const BFLOAT: BitRange = BitRange {
    field: "bfloat",
    bits: 10..=32,
    zero_means: "off",
};
/// One sign, 5 exponent and 1 to 23 mantissa bits.
pub(super) const FP: BitRange = BitRange {
    field: "fp",
    bits: 7..=29,
    zero_means: "off",
};

impl BitRange {
    pub(super) fn check(&self, value: u32) -> Result<(), SpecsError> {
        if value == 0 || self.bits.contains(&value) {
            return Ok(());
        }
        let (min, max) = (self.bits.start(), self.bits.end());
        Err(SpecsError::OutOfRange {
            field: self.field,
            value: value as usize,
            allowed: format!("0 ({}) or {min} to {max}", self.zero_means),
        })
    }
}
