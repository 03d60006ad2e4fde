//! Which switches of hardware a format can have.

use crate::format::{
    BlockFormat, ElementConversion, ElementOverflow, FormatError, NonFinite, ScaleMode,
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
            return match conversion {
                ElementConversion {
                    rounding,
                    random_bits: ElementConversion::MOST_RANDOM_BITS,
                    overflow: ElementOverflow::Renormalize,
                    flush_outputs: false,
                    negative_zero: false,
                } if rounding.is_some_and(|own| !own.is_stochastic()) => Ok(()),
                _ => refused(
                    "conversion",
                    "another one",
                    "a rounding that is not stochastic, overflow renormalize and no −0 beside non_finite TopExponent",
                ),
            };
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

    /// The other fields beside the switches.
    fn validate_neighbours(&self) -> Result<(), FormatError> {
        let has_elements = self.non_finite == NonFinite::Elements;
        let is_plain = !self.element.is_table() && !self.four_over_six && !self.eden;
        let of_library = self.conversion.is_of_library() && !has_elements;
        if !of_library && (!is_plain || self.has_fixed_steps()) {
            return refused(
                "conversion",
                "not the library's",
                "the library's beside tables, four_over_six, eden, microexponents and block floating point",
            );
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
                "saturate, as the elements have no such code, or the block is NaN beforehand",
            );
        }
        if conversion.flush_outputs && (element.is_integer() || element.mantissa_bits() == 0) {
            return refused(
                "flush_outputs",
                "true",
                "false, as the elements have no subnormal numbers",
            );
        }
        match (conversion.most_random_bits(), conversion.random_bits) {
            (None, ElementConversion::MOST_RANDOM_BITS) => Ok(()),
            (None, _) => Err(FormatError::WithoutEffect {
                field: "random_bits",
                kind: "a rounding that draws no random numbers",
            }),
            (Some(most), got) => {
                let allowed = (1, most as usize);
                FormatError::check("block format", "random_bits", got as usize, allowed)
            }
        }
    }
}
