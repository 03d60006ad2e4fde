//! The allowed values of the fields, alone and together.

mod accumulators;
mod recipe;

use std::fmt::Display;
use std::ops::RangeInclusive;

use microscaling::{BlockFormat, ElementFormat, MxFormat, RandomHadamard};

use super::{MxSpecs, Slot, SlotFormat, SpecsError};

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
            // An element goes by the scale mode of all slots, which not all elements have.
            let shared = MxFormat {
                scale_mode: self.scale_mode,
                ..MxFormat::new(ElementFormat::FP4_E2M1, 32)
            };
            let of_slot = match format {
                SlotFormat::Element(element) => MxFormat { element, ..shared }.validate(),
                _ => format.validate(),
            };
            of_slot.map_err(|error| SpecsError::Format {
                field,
                format: format.to_string(),
                error,
            })?;
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
        let (size, bits, own) = (self.block_size, self.scale_bits, format.block_size());
        let (mode, method) = (self.scale_mode, self.shared_exp_method);
        let flush = self.mx_flush_fp32_subnorms;
        let fields: [(_, &dyn Display, _, _); 5] = [
            (
                "block_size",
                &size,
                size == 0 || size == own,
                format!("0 or {own}"),
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
#[cfg(test)]
mod tests {
    use microscaling::MicroexponentFormat;

    use super::*;

    #[test]
    fn numbers_out_of_range() {
        type Set = fn(&mut MxSpecs, u32);
        let scale_bits: Set = |specs, value| specs.scale_bits = value;
        let bfloat: Set = |specs, value| specs.bfloat = value;
        let fp: Set = |specs, value| specs.fp = value;
        for (field, set, allowed, max, text) in [
            ("scale_bits", scale_bits, 1..=8, 8, "0 (8) or 1 to 8"),
            ("bfloat", bfloat, 10..=32, 32, "0 (off) or 10 to 32"),
            ("fp", fp, 7..=29, 29, "0 (off) or 7 to 29"),
        ] {
            for value in (0..=max + 3).chain([u32::MAX]) {
                let mut specs = MxSpecs::default();
                set(&mut specs, value);
                let resolved = specs.resolve();
                if value == 0 || allowed.contains(&value) {
                    assert!(resolved.is_ok(), "{field} {value}");
                    continue;
                }
                let message = resolved.unwrap_err().to_string();
                assert_eq!(message, format!("`{field}` is {value}; allowed: {text}"));
            }
        }
    }

    #[test]
    fn sizes_of_the_hadamard_transform() {
        for size in 0..=256 {
            let specs = MxSpecs {
                hadamard_block_size: size,
                ..MxSpecs::mxfp4()
            };
            match specs.resolve() {
                Ok(specs) => {
                    assert!([0, 16, 32, 64, 128].contains(&size));
                    assert_eq!(
                        specs.hadamard_input_grad().map(|h| h.block_size),
                        (size > 0).then_some(size)
                    );
                }
                Err(error) => assert_eq!(
                    error.to_string(),
                    format!("`hadamard_block_size` is {size}; allowed: 0 (off), 16, 32, 64, 128")
                ),
            }
        }
    }

    #[test]
    fn bfloat_and_fp_exclude_each_other() {
        let specs = MxSpecs {
            fp: 12,
            ..MxSpecs::mxfp4()
        };
        let error = specs.resolve().unwrap_err();
        assert_eq!(error, SpecsError::BfloatAndFp { bfloat: 16, fp: 12 });
        let message = "`bfloat` is 16 and `fp` is 12; allowed: one of them, the other 0";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn parameters_of_a_format_out_of_range() {
        let format = MicroexponentFormat {
            block_size: 10,
            sub_block_size: 11,
            ..MicroexponentFormat::MX6
        };
        let specs = MxSpecs {
            a_elem_format_bp: Some(BlockFormat::from(format).into()),
            ..MxSpecs::mxfp4()
        };
        assert_eq!(
            specs.resolve().unwrap_err().to_string(),
            "`a_elem_format_bp` is microexponent(bit_width=13,block_size=10,sub_block_size=11,shift_bits=1); \
             microexponent: sub_block_size is 11, expected 1 to 10"
        );
        for (json, parts) in [
            (
                r#"{ "w_elem_format": "bfp(bit_width=40)" }"#,
                ["`w_elem_format`", "40", "10 to 32"],
            ),
            (
                r#"{ "w_elem_format": "mx(element=int5)" }"#,
                ["`w_elem_format`", "int5", "int4"],
            ),
            (
                r#"{ "w_elem_format": "fp8_e4m3", "scale_mode": "rms" }"#,
                ["`w_elem_format`", "fp8_e4m3", "fp4_e2m1"],
            ),
        ] {
            let specs = MxSpecs::from_json(json).and_then(|specs| specs.resolve());
            let error = specs.unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{error}: no {part}");
            }
        }
    }

    #[test]
    fn what_shapes_mx_blocks_needs_some() {
        for (field, value, allowed) in [
            ("block_size", "32", "0 or 16"),
            ("scale_bits", "4", "0 or 8"),
            ("scale_mode", "rceil", "floor"),
            ("shared_exp_method", "none", "max"),
            ("mx_flush_fp32_subnorms", "true", "false"),
        ] {
            let json_value = match value.parse::<u32>() {
                Ok(_) => value.to_string(),
                Err(_) if value == "true" => value.to_string(),
                Err(_) => format!("\"{value}\""),
            };
            let specs = |slots: &str| {
                let json = format!(r#"{{ {slots}, "{field}": {json_value} }}"#);
                MxSpecs::from_json(&json).unwrap().resolve()
            };
            let error =
                specs(r#""a_elem_format": "mx9", "w_elem_format_bp": "nvfp4""#).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "`{field}` is {value}, but applies only to slots that name an element, and \
                     `a_elem_format` is mx9; allowed: {allowed}"
                )
            );
            for good in [
                r#""w_elem_format": "mx9", "a_elem_format": "int8""#,
                r#""bfloat": 16"#,
            ] {
                assert!(specs(good).is_ok(), "{field} with {good}");
            }
        }
        let fits = MxSpecs {
            block_size: 16,
            scale_bits: 8,
            ..MxSpecs::preset("nvfp4").unwrap()
        };
        assert!(fits.resolve().is_ok());
    }
}
