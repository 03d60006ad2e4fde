//! Block formats as text: names, and families with parameters.

mod display;
mod name_with_parameters;
pub(crate) mod parameters;
mod scales;

use crate::format::{
    BfpFormat, BlockFormat, ElementFormat, FloatScaleFormat, Headroom, MicroexponentFormat,
    MxFormat, Nvfp4Format, ParseFormatError, ScaleFormat, ScaleMode, SharedExpMethod, SubScales,
};
use crate::names::{NameError, impl_serde_by_text};
use alloc::{
    format,
    string::{String, ToString},
};
use core::str::FromStr;
use parameters::Parameters;
use scales::{take_outer_scale, take_scale};

/// The formats with a name: name, Quark's name if it has one, format.
const NAMED: [(&str, Option<&str>, BlockFormat); 20] = {
    type E = ElementFormat;
    use ScaleMode::{Floor, Rceil};
    [
        ("mxfp8_e5m2", Some("MXFP8E5M2"), mx(E::FP8_E5M2, Floor)),
        ("mxfp8_e4m3", Some("MXFP8E4M3"), mx(E::FP8_E4M3, Floor)),
        ("mxfp6_e3m2", Some("MXFP6E3M2"), mx(E::FP6_E3M2, Floor)),
        ("mxfp6_e2m3", Some("MXFP6E2M3"), mx(E::FP6_E2M3, Floor)),
        ("mxfp4", Some("MXFP4E2M1"), mx(E::FP4_E2M1, Floor)),
        ("mxint8", Some("MXINT8"), mx(E::INT8, Floor)),
        ("mxfp8_rceil", None, mx(E::FP8_E4M3, Rceil)),
        ("mx4", Some("MX4"), microexponent(MicroexponentFormat::MX4)),
        ("mx6", Some("MX6"), microexponent(MicroexponentFormat::MX6)),
        ("mx9", Some("MX9"), microexponent(MicroexponentFormat::MX9)),
        ("bfp16", Some("BFP16"), BlockFormat::Bfp(BfpFormat::BFP16)),
        ("nvfp4", Some("NVFP4"), BlockFormat::Nvfp4(NVFP4)),
        ("mxint4", None, mx(E::INT4, Floor)),
        ("nvint4", None, float_scale(FloatScaleFormat::NVINT4)),
        ("amdfp4", None, float_scale(FloatScaleFormat::AMDFP4)),
        (
            "amdfp4_g32",
            None,
            float_scale(FloatScaleFormat::AMDFP4_G32),
        ),
        ("nf4", None, float_scale(FloatScaleFormat::NF4)),
        ("if4", None, float_scale(FloatScaleFormat::IF4)),
        ("razer", None, float_scale(FloatScaleFormat::RAZER)),
        ("hif4", None, float_scale(FloatScaleFormat::HIF4)),
    ]
};

/// An MX block with a name: 32 elements, 8 scale bits.
const fn mx(element: ElementFormat, scale_mode: ScaleMode) -> BlockFormat {
    BlockFormat::Mx(MxFormat {
        scale_mode,
        ..MxFormat::new(element, 32)
    })
}

const fn microexponent(format: MicroexponentFormat) -> BlockFormat {
    BlockFormat::Microexponent(format)
}

const fn float_scale(format: FloatScaleFormat) -> BlockFormat {
    BlockFormat::FloatScale(format)
}

const NVFP4: Nvfp4Format = Nvfp4Format::new(false);

/// The parameters of an MX block.
const MX_FIELDS: &[&str] = &[
    "element",
    "block_size",
    "scale_bits",
    "scale_mode",
    "shared_exp_method",
    "flush_fp32_subnorms",
    "square",
    "headroom",
];

/// The parameters of NVFP4.
const NVFP4_FIELDS: &[&str] = &[
    "tensor_scale",
    "square",
    "headroom",
    "four_over_six",
    "block_size",
    "scale",
    "eden",
    "outer_size",
    "outer_scale",
];

/// The scale of MX, by its OCP name.
const E8M0: &str = "e8m0";

/// The parameters of a block of any element with any scale.
const BLOCK_FIELDS: &[&str] = &[
    "element",
    "scale",
    "block_size",
    "square",
    "headroom",
    "scale_mode",
    "tensor_scale",
    "subnormal_scales",
    "four_over_six",
    "sub_scales",
    "eden",
    "outer_size",
    "outer_scale",
];

/// The parameters of a microexponent format.
const MICROEXPONENT_FIELDS: &[&str] = &["bit_width", "block_size", "sub_block_size", "shift_bits"];

/// A family whose formats have parameters: its name, its parameters, how they make a format.
type Family = (
    &'static str,
    &'static [&'static str],
    fn(Parameters<'_>) -> Result<BlockFormat, ParseFormatError>,
);

const FAMILIES: [Family; 5] = [
    ("mx", MX_FIELDS, parse_mx),
    ("bfp", &["bit_width", "block_size"], parse_bfp),
    ("microexponent", MICROEXPONENT_FIELDS, parse_microexponent),
    ("nvfp4", NVFP4_FIELDS, parse_nvfp4),
    ("block", BLOCK_FIELDS, parse_block),
];

impl BlockFormat {
    /// The names without parameters: the concrete formats of OCP MX v1.0, NVIDIA's recipe for MXFP8 (E4M3, scale mode `rceil`),
    /// the microexponents, BFP16, and NVFP4 without a tensor scale. Further names are [`mxint4`](ElementFormat::INT4) in MX
    /// blocks, and the constants of [`FloatScaleFormat`].
    pub const NAMES: [&'static str; NAMED.len()] = {
        let mut names = [""; NAMED.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = NAMED[i].0;
            i += 1;
        }
        names
    };

    /// The allowed values that an error lists: the names, then the families.
    pub(crate) fn expected() -> impl Iterator<Item = &'static str> {
        let families = [
            "mx(…)",
            "bfp(…)",
            "microexponent(…)",
            "nvfp4(…)",
            "block(…)",
        ];
        Self::NAMES.into_iter().chain(families)
    }
}

/// The allowed values of a parameter that has names.
pub(super) fn one_of(names: impl IntoIterator<Item = &'static str>) -> String {
    let mut text = String::from("one of ");
    for (i, name) in names.into_iter().enumerate() {
        text += if i == 0 { "" } else { ", " };
        text += name;
    }
    text
}

fn parse_mx(mut parameters: Parameters<'_>) -> Result<BlockFormat, ParseFormatError> {
    let base = MxFormat::new(ElementFormat::FP8_E4M3, 32);
    let scale_bits = || "1 to 8".to_string();
    let elements = || one_of(ElementFormat::expected());
    let modes = || one_of(ScaleMode::ALL.map(ScaleMode::name));
    let methods = || one_of(SharedExpMethod::ALL.map(SharedExpMethod::name));
    if !parameters.has("element") {
        return Err(ParseFormatError::FieldValue {
            format: "mx",
            field: "element",
            value: String::new(),
            allowed: elements(),
        });
    }
    let format = MxFormat {
        element: parameters.take_element("element", base.element)?,
        block_size: parameters.take("block_size", "block", base.block_size, || at_least(0))?,
        scale_bits: parameters.take("scale_bits", "", base.scale_bits, scale_bits)?,
        scale_mode: parameters.take("scale_mode", "", base.scale_mode, modes)?,
        shared_exp_method: parameters.take(
            "shared_exp_method",
            "",
            base.shared_exp_method,
            methods,
        )?,
        flush_fp32_subnorms: parameters.take("flush_fp32_subnorms", "", false, either)?,
        square: parameters.take("square", "", false, either)?,
        headroom: parameters.take("headroom", "", base.headroom, headrooms)?,
    };
    parameters.finish()?;
    format.validate()?;
    Ok(BlockFormat::Mx(format))
}

fn parse_bfp(mut parameters: Parameters<'_>) -> Result<BlockFormat, ParseFormatError> {
    let preset = BfpFormat::BFP16;
    let bit_widths = || range(BfpFormat::BIT_WIDTHS);
    let format = BfpFormat {
        bit_width: parameters.take("bit_width", "", preset.bit_width, bit_widths)?,
        block_size: parameters.take("block_size", "block", preset.block_size, || at_least(1))?,
    };
    parameters.finish()?;
    format.validate()?;
    Ok(BlockFormat::Bfp(format))
}

fn parse_microexponent(mut parameters: Parameters<'_>) -> Result<BlockFormat, ParseFormatError> {
    let preset = MicroexponentFormat::MX9;
    let bit_widths = || range(MicroexponentFormat::BIT_WIDTHS);
    let shift_bits = || range(MicroexponentFormat::SHIFT_BITS);
    let sub_block_size = preset.sub_block_size;
    let format = MicroexponentFormat {
        bit_width: parameters.take("bit_width", "", preset.bit_width, bit_widths)?,
        block_size: parameters.take("block_size", "block", preset.block_size, || at_least(1))?,
        sub_block_size: parameters.take("sub_block_size", "sub_block", sub_block_size, || {
            at_least(1)
        })?,
        shift_bits: parameters.take("shift_bits", "", preset.shift_bits, shift_bits)?,
    };
    parameters.finish()?;
    format.validate()?;
    Ok(BlockFormat::Microexponent(format))
}

fn parse_nvfp4(mut parameters: Parameters<'_>) -> Result<BlockFormat, ParseFormatError> {
    let format = Nvfp4Format {
        tensor_scale: parameters.take("tensor_scale", "", NVFP4.tensor_scale, either)?,
        square: parameters.take("square", "", NVFP4.square, either)?,
        headroom: parameters.take("headroom", "", NVFP4.headroom, headrooms)?,
        four_over_six: parameters.take("four_over_six", "", NVFP4.four_over_six, either)?,
    };
    let usual = FloatScaleFormat::from(format);
    let format_of_blocks = FloatScaleFormat {
        block_size: parameters.take("block_size", "block", usual.block_size, || at_least(0))?,
        scale: take_scale(&mut parameters, "nvfp4", &[], usual.scale)?,
        outer: take_outer_scale(&mut parameters, "nvfp4")?,
        eden: parameters.take("eden", "", usual.eden, either)?,
        ..usual
    };
    parameters.finish()?;
    if format_of_blocks == usual {
        return Ok(BlockFormat::Nvfp4(format));
    }
    format_of_blocks.validate()?;
    Ok(BlockFormat::FloatScale(format_of_blocks))
}

fn parse_block(mut parameters: Parameters<'_>) -> Result<BlockFormat, ParseFormatError> {
    let scales = || one_of([E8M0].into_iter().chain(ScaleFormat::expected()));
    for (field, allowed) in [
        ("element", one_of(ElementFormat::expected())),
        ("scale", scales()),
    ] {
        if !parameters.has(field) {
            return Err(ParseFormatError::FieldValue {
                format: "block",
                field,
                value: String::new(),
                allowed,
            });
        }
    }
    let element = parameters.take_element("element", ElementFormat::FP4_E2M1)?;
    let base = MxFormat {
        block_size: parameters.take("block_size", "block", 32, || at_least(0))?,
        square: parameters.take("square", "", false, either)?,
        headroom: parameters.take("headroom", "", Headroom::NONE, headrooms)?,
        ..MxFormat::new(element, 32)
    };
    if parameters.is("scale", E8M0) {
        parameters.take("scale", "", String::new(), scales)?;
        let modes = || one_of(ScaleMode::ALL.map(ScaleMode::name));
        let format = MxFormat {
            scale_mode: parameters.take("scale_mode", "", ScaleMode::Floor, modes)?,
            ..base
        };
        parameters.finish()?;
        format.validate()?;
        return Ok(BlockFormat::Mx(format));
    }
    let scale = take_scale(&mut parameters, "block", &[E8M0], ScaleFormat::FLOAT32)?;
    let format = FloatScaleFormat {
        square: base.square,
        headroom: base.headroom,
        tensor_scale: parameters.take("tensor_scale", "", false, either)?,
        subnormal_scales: parameters.take("subnormal_scales", "", true, either)?,
        four_over_six: parameters.take("four_over_six", "", false, either)?,
        sub_scales: parameters.take_some("sub_scales", sub_scales)?,
        eden: parameters.take("eden", "", false, either)?,
        outer: take_outer_scale(&mut parameters, "block")?,
        ..FloatScaleFormat::new(element, scale, base.block_size)
    };
    parameters.finish()?;
    format.validate()?;
    Ok(BlockFormat::FloatScale(format))
}

/// The allowed values of a parameter with two values.
fn either() -> String {
    "true or false".to_string()
}

/// The allowed values of sub-scales.
fn sub_scales() -> String {
    SubScales::EXPECTED.to_string()
}

/// The allowed values of a headroom.
fn headrooms() -> String {
    Headroom::EXPECTED.to_string()
}

/// The allowed values of a number.
fn range((min, max): (usize, usize)) -> String {
    format!("{min} to {max}")
}

/// As [`range`], of a length.
fn at_least(min: usize) -> String {
    format!("a number of at least {min}")
}

impl FromStr for BlockFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |(name, alias, _): &(_, _, _)| *name == text || *alias == Some(text);
        if let Some((_, _, format)) = NAMED.into_iter().find(named) {
            return Ok(format);
        }
        for (family, fields, parse) in FAMILIES {
            if let Some(parameters) = Parameters::of(text, family, fields) {
                return parameters.and_then(parse);
            }
        }
        if let Some(error) = name_with_parameters::error(text) {
            return Err(error);
        }
        Err(ParseFormatError::Unknown(NameError {
            kind: "block format",
            value: text.to_string(),
            allowed: Self::expected().collect(),
        }))
    }
}

impl_serde_by_text!(BlockFormat, "the name of a block format");
