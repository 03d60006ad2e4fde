//! Which switches of hardware a format can have.

use crate::format::{
    BlockFormat, ElementConversion, ElementOverflow, ElementRounding, FieldValue, FormatError,
    NonFinite, ScaleMode,
};

fn refused(
    field: &'static str,
    got: &'static str,
    allowed: &'static str,
) -> Result<(), FormatError> {
    Err(FormatError::Conversion {
        field,
        got,
        allowed,
    })
}

impl BlockFormat {
    /// The switches of hardware, and elements that may be NaN.
    pub(super) fn validate_conversion(&self) -> Result<(), FormatError> {
        let conversion = self.conversion;
        if self.non_finite == NonFinite::TopExponent {
            return self.validate_npu();
        }
        if conversion.overflow == ElementOverflow::Renormalize {
            return refused(
                "overflow",
                conversion.overflow.name(),
                "saturate, infinity or nan; bfp16ebs8 alone has renormalize",
            );
        }
        self.validate_neighbours()?;
        self.validate_switches()
    }

    /// The switches of `bfp16ebs8`.
    fn validate_npu(&self) -> Result<(), FormatError> {
        let ElementConversion {
            rounding,
            random_bits,
            overflow,
            flush_outputs,
            negative_zero,
        } = self.conversion;
        let Some(_) = rounding.filter(|own| !own.is_stochastic()) else {
            return refused(
                "rounding",
                rounding.map_or("that of the caller", ElementRounding::name),
                "a mode of bfp16ebs8: one without random numbers",
            );
        };
        if overflow != ElementOverflow::Renormalize {
            return refused("overflow", overflow.name(), "renormalize in bfp16ebs8");
        }
        let kind = "bfp16ebs8";
        let is_most = random_bits == ElementConversion::MOST_RANDOM_BITS;
        for (field, is_usual, got, allowed) in [
            (
                "random_bits",
                is_most,
                FieldValue::Number(random_bits),
                "31",
            ),
            (
                "flush_outputs",
                !flush_outputs,
                flush_outputs.into(),
                "false",
            ),
            (
                "negative_zero",
                !negative_zero,
                negative_zero.into(),
                "false",
            ),
        ] {
            if !is_usual {
                return Err(FormatError::WithoutEffect {
                    field,
                    got,
                    allowed,
                    kind,
                });
            }
        }
        Ok(())
    }

    /// The other fields beside the switches.
    fn validate_neighbours(&self) -> Result<(), FormatError> {
        let has_elements = self.non_finite == NonFinite::Elements;
        let is_plain = !self.element.is_table() && !self.four_over_six && !self.eden;
        if !is_plain || self.has_fixed_steps() {
            let kind = "tables, four_over_six, eden, microexponents and block floating point, which have no switches of hardware";
            let switch = match has_elements {
                true => Some(("non_finite", FieldValue::Name("elements"), "block")),
                false => self.conversion.first_switch(),
            };
            if let Some((field, got, allowed)) = switch {
                return Err(FormatError::WithoutEffect {
                    field,
                    got,
                    allowed,
                    kind,
                });
            }
            if let (true, Some(got)) = (self.element.is_unsigned(), self.element.to_p3109()) {
                let allowed = "a signed format beside four_over_six and eden";
                return Err(FormatError::P3109 {
                    role: "element",
                    got,
                    allowed,
                });
            }
        }
        let is_alone = !self.tensor_scale && self.outer.is_none() && self.sub_scales.is_none();
        if self.scale_mode == ScaleMode::MaxAbsFinite && !(is_plain && is_alone) {
            return refused(
                "scale_mode",
                self.scale_mode.name(),
                "floor beside tables, tensor_scale, outer_size, sub_scales, four_over_six and eden",
            );
        }
        if has_elements && !(is_alone && self.element.nan_code().is_some()) {
            return refused(
                "non_finite",
                "elements",
                "the default, but of elements with a code for NaN and one scale a block",
            );
        }
        Ok(())
    }

    /// The switches beside the elements, and each other.
    fn validate_switches(&self) -> Result<(), FormatError> {
        let (element, conversion) = (self.element, self.conversion);
        let is_special = match conversion.overflow {
            ElementOverflow::Saturate | ElementOverflow::Renormalize => true,
            ElementOverflow::Propagate => self.non_finite == NonFinite::Elements,
            ElementOverflow::Infinity => element.nan_code().or(element.infinity_code()).is_some(),
            ElementOverflow::Nan => element.nan_code().is_some(),
        };
        if !is_special {
            return refused(
                "overflow",
                conversion.overflow.name(),
                "saturate; infinity or nan, if elements have a code for them; propagate, with non_finite=elements",
            );
        }
        if conversion.flush_outputs && (element.is_integer() || element.mantissa_bits() == 0) {
            return refused(
                "flush_outputs",
                "true",
                "false, as the elements have no subnormal numbers",
            );
        }
        match (conversion.draws(), conversion.random_bits) {
            (false, ElementConversion::MOST_RANDOM_BITS) => Ok(()),
            (false, got) => Err(FormatError::WithoutEffect {
                field: "random_bits",
                got: FieldValue::Number(got),
                allowed: "31",
                kind: "a rounding that draws no random numbers",
            }),
            (true, got) => {
                let allowed = (1, ElementConversion::MOST_RANDOM_BITS as usize);
                FormatError::check("block format", "random_bits", got as usize, allowed)
            }
        }
    }
}
