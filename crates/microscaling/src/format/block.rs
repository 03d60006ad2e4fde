//! One type over all block formats.

use super::parameters::{Parameters, impl_serde_by_text};
use crate::{
    BfpFormat, ElementFormat, FormatError, MicroexponentFormat, MxFormat, NameError, Nvfp4Format,
    ParseFormatError, ScaleMode, SharedExpMethod,
};
use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;
use core::str::FromStr;

/// Any block format, with all its parameters.
///
/// As text (`FromStr`, `Display`, serde) it is one of [`NAMES`](Self::NAMES), Quark's name for it (`MXFP8E4M3`,
/// `MX6`, `BFP16`, …), or a format with parameters of its own:
/// * `mx(element=int4,block_size=16,scale_mode=rceil)`, where all but the element may be left out: `block_size`
///   (32), `scale_bits` (8), `scale_mode`, `shared_exp_method`, `flush_fp32_subnorms`, `square`;
/// * `bfp(bit_width=12,block_size=16)`, where what is left out is as in `bfp16`;
/// * `microexponent(bit_width=13,block_size=32,sub_block_size=4,shift_bits=2)`, else as in `mx9`;
/// * `nvfp4(tensor_scale=true,square=true)`, where what is left out is as in `nvfp4`.
///
/// `block` and `sub_block` are understood too.
///
/// ```
/// use microscaling::{BlockFormat, ElementFormat, MxFormat};
///
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// assert_eq!(mxfp4, BlockFormat::Mx(MxFormat::new(ElementFormat::Fp4E2M1, 32)));
/// assert_eq!(mxfp4.bits_per_element(), 4.25);
/// # Ok::<(), microscaling::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockFormat {
    /// An MX block (OCP MX v1.0, or with other parameters).
    Mx(MxFormat),
    /// A microexponent format.
    Microexponent(MicroexponentFormat),
    /// A block floating point format.
    Bfp(BfpFormat),
    /// NVFP4.
    Nvfp4(Nvfp4Format),
}

/// The formats with a name: name, Quark's name if it has one, format.
const NAMED: [(&str, Option<&str>, BlockFormat); 12] = {
    use ElementFormat::{Fp4E2M1, Fp6E2M3, Fp6E3M2, Fp8E4M3, Fp8E5M2, Int8};
    use ScaleMode::{Floor, Rceil};
    [
        ("mxfp8_e5m2", Some("MXFP8E5M2"), mx(Fp8E5M2, Floor)),
        ("mxfp8_e4m3", Some("MXFP8E4M3"), mx(Fp8E4M3, Floor)),
        ("mxfp6_e3m2", Some("MXFP6E3M2"), mx(Fp6E3M2, Floor)),
        ("mxfp6_e2m3", Some("MXFP6E2M3"), mx(Fp6E2M3, Floor)),
        ("mxfp4", Some("MXFP4E2M1"), mx(Fp4E2M1, Floor)),
        ("mxint8", Some("MXINT8"), mx(Int8, Floor)),
        ("mxfp8_rceil", None, mx(Fp8E4M3, Rceil)),
        ("mx4", Some("MX4"), microexponent(MicroexponentFormat::MX4)),
        ("mx6", Some("MX6"), microexponent(MicroexponentFormat::MX6)),
        ("mx9", Some("MX9"), microexponent(MicroexponentFormat::MX9)),
        ("bfp16", Some("BFP16"), BlockFormat::Bfp(BfpFormat::BFP16)),
        ("nvfp4", Some("NVFP4"), BlockFormat::Nvfp4(NVFP4)),
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
];

/// The parameters of NVFP4.
const NVFP4_FIELDS: &[&str] = &["tensor_scale", "square"];

/// The parameters of a microexponent format.
const MICROEXPONENT_FIELDS: &[&str] = &["bit_width", "block_size", "sub_block_size", "shift_bits"];

/// A family whose formats have parameters: its name, its parameters, how they make a format.
type Family = (
    &'static str,
    &'static [&'static str],
    fn(Parameters<'_>) -> Result<BlockFormat, ParseFormatError>,
);

const FAMILIES: [Family; 4] = [
    ("mx", MX_FIELDS, parse_mx),
    ("bfp", &["bit_width", "block_size"], parse_bfp),
    ("microexponent", MICROEXPONENT_FIELDS, parse_microexponent),
    ("nvfp4", NVFP4_FIELDS, parse_nvfp4),
];

impl BlockFormat {
    /// The names without parameters: the concrete formats of OCP MX v1.0, NVIDIA's recipe for MXFP8
    /// (E4M3, scale mode `rceil`), the microexponents, BFP16 and NVFP4 without a tensor scale.
    pub const NAMES: [&'static str; NAMED.len()] = {
        let mut names = [""; NAMED.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = NAMED[i].0;
            i += 1;
        }
        names
    };

    /// What an error lists as allowed: the names, then the families.
    pub(crate) fn expected() -> impl Iterator<Item = &'static str> {
        let families = ["mx(…)", "bfp(…)", "microexponent(…)", "nvfp4(…)"];
        Self::NAMES.into_iter().chain(families)
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Those of the format's own `validate`; NVFP4 is always valid.
    pub fn validate(&self) -> Result<(), FormatError> {
        match self {
            Self::Mx(format) => format.validate(),
            Self::Microexponent(format) => format.validate(),
            Self::Bfp(format) => format.validate(),
            Self::Nvfp4(_) => Ok(()),
        }
    }

    /// Elements in a block along its axis, or along either of the two that a [square](Self::is_square) one lies along; 0
    /// makes the whole axis one block.
    pub const fn block_size(&self) -> usize {
        match self {
            Self::Mx(format) => match format.shared_exp_method {
                SharedExpMethod::Max => format.block_size,
                SharedExpMethod::None => 1,
            },
            Self::Microexponent(format) => format.block_size,
            Self::Bfp(format) => format.block_size,
            Self::Nvfp4(_) => Nvfp4Format::BLOCK_SIZE,
        }
    }

    /// Whether blocks are square, see [`MxFormat::square`]: those of MX and NVFP4 may be.
    pub const fn is_square(&self) -> bool {
        match self {
            Self::Mx(format) => format.square,
            Self::Nvfp4(format) => format.square,
            Self::Microexponent(_) | Self::Bfp(_) => false,
        }
    }

    /// Whether the tensor has a scale of its own: NVFP4 may.
    pub const fn has_tensor_scale(&self) -> bool {
        match self {
            Self::Nvfp4(format) => format.tensor_scale,
            _ => false,
        }
    }

    /// Bits of an element's own code, without any scale.
    ///
    /// The format must be [valid](Self::validate).
    pub const fn element_bits(&self) -> u32 {
        match self {
            Self::Mx(format) => format.element.bits(),
            // With the sign.
            Self::Microexponent(format) => 1 + format.mantissa_bits(),
            Self::Bfp(format) => 1 + format.mantissa_bits(),
            Self::Nvfp4(_) => ElementFormat::Fp4E2M1.bits(),
        }
    }

    /// Significant bits of a quantized value at most, as a float's significand has them, whatever the block's scale; a
    /// tensor scale, which is any float32, is left out. Values of at most 8 are bfloat16 numbers, if they are not too
    /// small.
    ///
    /// The format must be [valid](Self::validate).
    pub const fn significant_bits(&self) -> u32 {
        match self {
            Self::Mx(format) if format.element.is_integer() => format.element.bits() - 1,
            Self::Mx(format) => format.element.mantissa_bits() + 1,
            Self::Microexponent(format) => format.mantissa_bits(),
            Self::Bfp(format) => format.mantissa_bits(),
            // An element of 2 bits times a scale of 4.
            Self::Nvfp4(_) => 6,
        }
    }

    /// Bits that an element takes in a full block, with its part of the block's scale and shifts. A
    /// tensor scale is not counted, nor is the scale of a block as long as its axis (block size 0).
    ///
    /// The format must be [valid](Self::validate).
    pub fn bits_per_element(&self) -> f64 {
        let block_size = self.block_size();
        let scale_bits = match self {
            Self::Mx(format) => f64::from(format.scale_bits),
            Self::Microexponent(format) => {
                let sub_blocks = block_size.div_ceil(format.sub_block_size);
                8.0 + f64::from(format.shift_bits) * sub_blocks as f64
            }
            Self::Bfp(_) | Self::Nvfp4(_) => 8.0,
        };
        let elements = match self.is_square() {
            true => block_size as f64 * block_size as f64,
            false => block_size as f64,
        };
        let scale_bits = match block_size {
            0 => 0.0,
            _ => scale_bits / elements,
        };
        f64::from(self.element_bits()) + scale_bits
    }
}

/// What the value of a parameter that has names may be.
fn one_of(names: impl IntoIterator<Item = &'static str>) -> String {
    let mut text = String::from("one of ");
    for (i, name) in names.into_iter().enumerate() {
        text += if i == 0 { "" } else { ", " };
        text += name;
    }
    text
}

fn parse_mx(mut parameters: Parameters<'_>) -> Result<BlockFormat, ParseFormatError> {
    let base = MxFormat::new(ElementFormat::Fp8E4M3, 32);
    let scale_bits = || "1 to 8".to_string();
    let elements = || one_of(ElementFormat::ALL.map(ElementFormat::name));
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
        element: parameters.take("element", "", base.element, elements)?,
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
    };
    parameters.finish()?;
    Ok(BlockFormat::Nvfp4(format))
}

/// What a parameter of two values may be.
fn either() -> String {
    "true or false".to_string()
}

/// What to say of a number that is none.
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
        Err(ParseFormatError::Unknown(NameError {
            kind: "block format",
            value: text.to_string(),
            allowed: Self::expected().collect(),
        }))
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, ..)) = NAMED.iter().find(|(.., format)| format == self) {
            return f.pad(name);
        }
        f.pad(&match self {
            Self::Mx(format) => mx_text(format),
            Self::Microexponent(format) => format!(
                "microexponent(bit_width={},block_size={},sub_block_size={},shift_bits={})",
                format.bit_width, format.block_size, format.sub_block_size, format.shift_bits
            ),
            Self::Bfp(format) => format!(
                "bfp(bit_width={},block_size={})",
                format.bit_width, format.block_size
            ),
            Self::Nvfp4(format) => nvfp4_text(format),
        })
    }
}

fn mx_text(format: &MxFormat) -> String {
    let usual = MxFormat::new(format.element, format.block_size);
    let mut text = format!(
        "mx(element={},block_size={}",
        format.element, format.block_size
    );
    if format.scale_bits != usual.scale_bits {
        text += &format!(",scale_bits={}", format.scale_bits);
    }
    if format.scale_mode != usual.scale_mode {
        text += &format!(",scale_mode={}", format.scale_mode);
    }
    if format.shared_exp_method != usual.shared_exp_method {
        text += &format!(",shared_exp_method={}", format.shared_exp_method);
    }
    if format.flush_fp32_subnorms {
        text += ",flush_fp32_subnorms=true";
    }
    if format.square {
        text += ",square=true";
    }
    text.push(')');
    text
}

fn nvfp4_text(format: &Nvfp4Format) -> String {
    let mut text = format!("nvfp4(tensor_scale={}", format.tensor_scale);
    if format.square {
        text += ",square=true";
    }
    text.push(')');
    text
}

impl From<MxFormat> for BlockFormat {
    fn from(format: MxFormat) -> Self {
        Self::Mx(format)
    }
}

impl From<MicroexponentFormat> for BlockFormat {
    fn from(format: MicroexponentFormat) -> Self {
        Self::Microexponent(format)
    }
}

impl From<BfpFormat> for BlockFormat {
    fn from(format: BfpFormat) -> Self {
        Self::Bfp(format)
    }
}

impl From<Nvfp4Format> for BlockFormat {
    fn from(format: Nvfp4Format) -> Self {
        Self::Nvfp4(format)
    }
}

impl_serde_by_text!(BlockFormat, "the name of a block format");
