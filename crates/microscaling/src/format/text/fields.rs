//! The parameters of block formats in text, each once, and the families that have them.

mod switches;

use super::one_of;
use super::parameters::Parameters;
use crate::format::{
    BlockFormat, ElementFormat, FormatError, Headroom, OuterScale, ParseFormatError, ScaleFormat,
    ScaleMode, SharedExpMethod, Shifts, SubScales, Subnormals,
};
use alloc::format;
use alloc::string::{String, ToString};
use core::str::FromStr;
use switches::{
    FLUSH_INPUTS, FLUSH_OUTPUTS, NEGATIVE_ZERO, NON_FINITE, OVERFLOW, RANDOM_BITS, ROUNDING,
};

/// A parameter.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Another name that is understood; empty for none.
    alias: &'static str,
    /// The allowed values, for an error.
    allowed: fn() -> String,
    /// The value in a format.
    get: fn(&BlockFormat) -> String,
    /// Reads the value into a format.
    set: fn(&mut BlockFormat, &str) -> Result<(), Refusal>,
}

/// The reason why a text is refused as the value of a parameter.
pub(super) enum Refusal {
    /// The text is none of the allowed values.
    Value,
    /// Something else would be allowed here.
    Expected(&'static str),
    Other(ParseFormatError),
}

/// Reads any value.
fn read<T: FromStr>(value: &mut T, text: &str) -> Result<(), Refusal> {
    *value = text.parse().map_err(|_| Refusal::Value)?;
    Ok(())
}

/// Reads a format, whose own parameters have errors of their own.
fn read_format<T: FromStr<Err = ParseFormatError>>(
    value: &mut T,
    text: &str,
) -> Result<(), Refusal> {
    *value = text.parse().map_err(|error| match error {
        ParseFormatError::Unknown(_) => Refusal::Value,
        error => Refusal::Other(error),
    })?;
    Ok(())
}

/// A scale that is a float.
fn read_float(value: &mut ScaleFormat, text: &str) -> Result<(), Refusal> {
    read_format(value, text)?;
    match value.is_exponent() {
        true => Err(Refusal::Value),
        false => Ok(()),
    }
}

fn read_shifts(
    format: &mut BlockFormat,
    text: &str,
    of: fn(&mut Shifts, &str) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let shifts = format.shifts.as_mut();
    of(shifts.expect("the family has shifts"), text)
}

fn either() -> String {
    "true or false".to_string()
}

fn floats() -> String {
    one_of(ScaleFormat::expected().filter(|name| *name != "e8m0"))
}

fn range((min, max): (usize, usize)) -> String {
    format!("{min} to {max}")
}

fn at_least(min: usize) -> String {
    format!("a number of at least {min}")
}

/// A parameter that is a field of its name, true or false.
macro_rules! flag {
    ($field:ident) => {
        Field {
            name: stringify!($field),
            alias: "",
            allowed: either,
            get: |format| format.$field.to_string(),
            set: |format, text| read(&mut format.$field, text),
        }
    };
}

const ELEMENT: Field = Field {
    name: "element",
    alias: "",
    allowed: || one_of(ElementFormat::expected()),
    get: |format| format.element.to_string(),
    set: |format, text| read_format(&mut format.element, text),
};
const BLOCK_SIZE: Field = Field {
    name: "block_size",
    alias: "block",
    allowed: || at_least(0),
    get: |format| format.block_size.to_string(),
    set: |format, text| read(&mut format.block_size, text),
};
const WHOLE_BLOCK_SIZE: Field = Field {
    allowed: || at_least(1),
    ..BLOCK_SIZE
};
const SCALE: Field = Field {
    name: "scale",
    alias: "",
    allowed: || one_of(ScaleFormat::expected()),
    get: |format| format.scale.to_string(),
    set: |format, text| {
        read_format(&mut format.scale, text)?;
        format.subnormal_scales = !format.has_exponent();
        Ok(())
    },
};
const FLOAT_SCALE: Field = Field {
    allowed: floats,
    set: |format, text| read_float(&mut format.scale, text),
    ..SCALE
};
const SCALE_BITS: Field = Field {
    name: "scale_bits",
    alias: "",
    allowed: || range((1, 8)),
    get: |format| format.scale.bits().to_string(),
    set: |format, text| {
        let mut bits = 0;
        read(&mut bits, text)?;
        let scale = ScaleFormat::exponent(bits);
        format.scale = scale.map_err(|error| Refusal::Other(error.into()))?;
        Ok(())
    },
};
const SCALE_MODE: Field = Field {
    name: "scale_mode",
    alias: "",
    allowed: || one_of(ScaleMode::ALL.map(ScaleMode::name)),
    get: |format| format.scale_mode.to_string(),
    set: |format, text| read(&mut format.scale_mode, text),
};
const POWER_SCALE_MODE: Field = Field {
    allowed: || one_of(ScaleMode::POWERS.map(ScaleMode::name)),
    ..SCALE_MODE
};
const SHARED_EXP_METHOD: Field = Field {
    name: "shared_exp_method",
    alias: "",
    allowed: || one_of(SharedExpMethod::ALL.map(SharedExpMethod::name)),
    get: |format| format.shared_exp_method.to_string(),
    set: |format, text| read(&mut format.shared_exp_method, text),
};
const FLUSH_FP32_SUBNORMS: Field = Field {
    name: "flush_fp32_subnorms",
    alias: "",
    allowed: either,
    get: |format| (format.subnormals == Subnormals::FlushBlocks).to_string(),
    set: |format, text| {
        let mut flushes = false;
        read(&mut flushes, text)?;
        format.subnormals = match flushes {
            true => Subnormals::FlushBlocks,
            false => Subnormals::Kept,
        };
        Ok(())
    },
};
const HEADROOM: Field = Field {
    name: "headroom",
    alias: "",
    allowed: || Headroom::EXPECTED.to_string(),
    get: |format| format.headroom.to_string(),
    set: |format, text| read(&mut format.headroom, text),
};
const SUB_SCALES: Field = Field {
    name: "sub_scales",
    alias: "",
    allowed: || SubScales::EXPECTED.to_string(),
    get: |format| {
        format
            .sub_scales
            .map_or_else(String::new, |sub| sub.to_string())
    },
    set: |format, text| {
        let sub_scales = text.parse().map_err(|_| Refusal::Value)?;
        format.sub_scales = Some(sub_scales);
        Ok(())
    },
};
const OUTER_SIZE: Field = Field {
    name: "outer_size",
    alias: "",
    allowed: || at_least(0),
    get: |format| {
        format
            .outer
            .map_or_else(String::new, |outer| outer.size.to_string())
    },
    set: |format, text| {
        let mut outer = OuterScale::new(0);
        read(&mut outer.size, text)?;
        format.outer = Some(outer);
        Ok(())
    },
};
const OUTER_SCALE: Field = Field {
    name: "outer_scale",
    alias: "",
    allowed: floats,
    get: |format| {
        let scale = format
            .outer
            .map_or(ScaleFormat::FLOAT32, |outer| outer.scale);
        scale.to_string()
    },
    set: |format, text| {
        let mut scale = ScaleFormat::FLOAT32;
        read_float(&mut scale, text)?;
        let outer = format.outer.as_mut();
        outer
            .ok_or(Refusal::Expected("nothing without outer_size"))?
            .scale = scale;
        Ok(())
    },
};
const BIT_WIDTH: Field = Field {
    name: "bit_width",
    alias: "",
    allowed: || range(BlockFormat::BIT_WIDTHS),
    get: |format| format.bit_width().to_string(),
    set: |format, text| {
        let mut bit_width = 0;
        read(&mut bit_width, text)?;
        let with_width = format.with_bit_width(bit_width);
        *format = with_width.map_err(|error| Refusal::Other(error.into()))?;
        Ok(())
    },
};
const SUB_BLOCK_SIZE: Field = Field {
    name: "sub_block_size",
    alias: "sub_block",
    allowed: || at_least(1),
    get: |format| {
        format
            .shifts
            .map_or(0, |shifts| shifts.block_size)
            .to_string()
    },
    set: |format, text| {
        read_shifts(format, text, |shifts, text| {
            read(&mut shifts.block_size, text)
        })
    },
};
const SHIFT_BITS: Field = Field {
    name: "shift_bits",
    alias: "",
    allowed: || range(Shifts::BITS),
    get: |format| format.shifts.map_or(0, |shifts| shifts.bits).to_string(),
    set: |format, text| read_shifts(format, text, |shifts, text| read(&mut shifts.bits, text)),
};

/// A family whose formats have parameters.
pub(super) struct Family {
    pub(super) name: &'static str,
    /// The name as errors list it.
    pub(super) with_parameters: &'static str,
    /// Parameters that are left out have the values of this format.
    base: BlockFormat,
    /// How many of the parameters must be given.
    required: usize,
    /// How many of the parameters are always shown. The others are where they differ from the base.
    always: usize,
    fields: &'static [Field],
    /// The names of the parameters.
    pub(super) names: &'static [&'static str],
}

/// A family, with the names of its parameters.
macro_rules! family {
    ($name:literal, $base:expr, required: $required:expr, always: $always:expr, [$($field:expr),* $(,)?]) => {{
        const FIELDS: &[Field] = &[$($field),*];
        const NAMES: [&str; FIELDS.len()] = {
            let mut names = [""; FIELDS.len()];
            let mut i = 0;
            while i < names.len() {
                names[i] = FIELDS[i].name;
                i += 1;
            }
            names
        };
        Family {
            name: $name,
            with_parameters: concat!($name, "(…)"),
            base: $base,
            required: $required,
            always: $always,
            fields: FIELDS,
            names: &NAMES,
        }
    }};
}

pub(super) static FAMILIES: [Family; 6] = [
    family!("mx", BlockFormat::mx(ElementFormat::FP8_E4M3, 32), required: 1, always: 2, [
        ELEMENT, BLOCK_SIZE, SCALE_BITS, POWER_SCALE_MODE, SHARED_EXP_METHOD, FLUSH_FP32_SUBNORMS,
        flag!(square), HEADROOM, flag!(sign_scales), ROUNDING, RANDOM_BITS, OVERFLOW, FLUSH_INPUTS,
        FLUSH_OUTPUTS, NEGATIVE_ZERO,
    ]),
    family!("bfp16ebs8", BlockFormat::BFP16EBS8, required: 0, always: 1, [
        ROUNDING, BIT_WIDTH, WHOLE_BLOCK_SIZE,
    ]),
    family!("bfp", BlockFormat::BFP16, required: 0, always: 2, [BIT_WIDTH, WHOLE_BLOCK_SIZE]),
    family!("microexponent", BlockFormat::MX9, required: 0, always: 4, [
        BIT_WIDTH, WHOLE_BLOCK_SIZE, SUB_BLOCK_SIZE, SHIFT_BITS,
    ]),
    family!("nvfp4", BlockFormat::NVFP4, required: 0, always: 1, [
        flag!(tensor_scale), flag!(square), HEADROOM, flag!(four_over_six), BLOCK_SIZE,
        FLOAT_SCALE, flag!(eden), OUTER_SIZE, OUTER_SCALE,
    ]),
    family!(
        "block",
        BlockFormat::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::FLOAT32, 32),
        required: 2,
        always: 3,
        [
            ELEMENT, SCALE, BLOCK_SIZE, flag!(tensor_scale), flag!(square), flag!(four_over_six),
            flag!(eden), OUTER_SIZE, OUTER_SCALE, SUB_SCALES, flag!(sign_scales), flag!(subnormal_scales), HEADROOM,
            SCALE_MODE, NON_FINITE, ROUNDING, RANDOM_BITS, OVERFLOW, FLUSH_INPUTS,
            FLUSH_OUTPUTS, NEGATIVE_ZERO,
        ]
    ),
];

impl Family {
    /// The format that these parameters say. The parameters may contradict each other: `validate` tells.
    pub(super) fn read(
        &self,
        mut parameters: Parameters<'_>,
    ) -> Result<BlockFormat, ParseFormatError> {
        for field in &self.fields[..self.required] {
            if !parameters.has(field.name) {
                return Err(self.refused(field, "", Refusal::Value));
            }
        }
        let mut format = self.base;
        for field in self.fields {
            if let Some(text) = parameters.take_text(field.name, field.alias) {
                let set = (field.set)(&mut format, text);
                set.map_err(|why| self.refused(field, text, why))?;
            }
        }
        parameters.finish()?;
        Ok(format)
    }

    fn refused(&self, field: &Field, value: &str, why: Refusal) -> ParseFormatError {
        let allowed = match why {
            Refusal::Value => (field.allowed)(),
            Refusal::Expected(allowed) => allowed.to_string(),
            Refusal::Other(error) => return error,
        };
        ParseFormatError::FieldValue {
            format: self.name,
            field: field.name,
            value: value.to_string(),
            allowed,
        }
    }

    /// An error of a format, with the value of a parameter that has no effect.
    pub(super) fn with_value(&self, format: &BlockFormat, error: FormatError) -> ParseFormatError {
        let FormatError::WithoutEffect { field, kind, .. } = error else {
            return error.into();
        };
        let Some(field) = self.fields.iter().find(|own| own.name == field) else {
            return error.into();
        };
        let [value, usual] = [format, &self.base].map(field.get);
        let usual = match usual.is_empty() {
            true => "no value".to_string(),
            false => format!("`{usual}`"),
        };
        ParseFormatError::FieldValue {
            format: self.name,
            field: field.name,
            value,
            allowed: format!("{usual} beside {kind}"),
        }
    }

    /// The parameters that say a format, and their values.
    pub(super) fn shown(
        &self,
        format: &BlockFormat,
    ) -> impl Iterator<Item = (&'static str, String)> {
        self.from(format, self.always)
    }

    /// The parameters that the family needs to say this format beside others, and their values. The first one is always there.
    pub(super) fn needed(
        &self,
        format: &BlockFormat,
    ) -> impl Iterator<Item = (&'static str, String)> {
        self.from(format, self.required.max(1))
    }

    /// The first parameters, and those that differ from the base.
    fn from(
        &self,
        format: &BlockFormat,
        first: usize,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let fields = self.fields.iter().enumerate();
        fields.filter_map(move |(i, field)| {
            let value = (field.get)(format);
            (i < first || value != (field.get)(&self.base)).then_some((field.name, value))
        })
    }
}
