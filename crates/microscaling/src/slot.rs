//! What stands in one slot of the specs: a format by its name alone.

use crate::parameters::{Parameters, impl_serde_by_text};
use crate::{
    BfpFormat, BlockFormat, ElementFormat, FormatError, MicroexponentFormat, MxFormat, NameError,
    Nvfp4Format, ParseFormatError,
};
use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;
use core::str::FromStr;

/// A block format without the parameters that several slots of a model share: what a field like
/// `w_elem_format` holds.
///
/// As text (`FromStr`, `Display`, serde) it is
/// * the name of an [`ElementFormat`], for an MX block of such elements: `fp8_e4m3`;
/// * a preset: `mx4`, `mx6`, `mx9`, `bfp16`, `nvfp4` (aliases: the same in capitals, Quark's names);
/// * one with parameters of its own: `bfp(bit_width=12,block_size=16)`,
///   `microexponent(bit_width=13,block_size=32,sub_block_size=4,shift_bits=2)`,
///   `nvfp4(tensor_scale=true)`. Those that are left out are as in `bfp16`, `mx9` and `nvfp4`; `block`
///   and `sub_block` are understood too.
///
/// ```
/// use microscaling::{ElementFormat, MxFormat, SlotFormat};
///
/// let shared = MxFormat::new(ElementFormat::Int8, 64); // the element does not matter
/// let slot: SlotFormat = "fp4".parse()?;
/// assert_eq!(slot.block_format(&shared).to_string(), "mx(element=fp4_e2m1,block_size=64)");
/// let slot: SlotFormat = "bfp(bit_width=12)".parse()?;
/// assert_eq!(slot.block_format(&shared).to_string(), "bfp(bit_width=12,block_size=8)");
/// # Ok::<(), microscaling::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotFormat {
    /// An MX block, of which the slot says the element.
    Element(ElementFormat),
    /// A microexponent format.
    Microexponent(MicroexponentFormat),
    /// A block floating point format.
    Bfp(BfpFormat),
    /// NVFP4.
    Nvfp4(Nvfp4Format),
}

/// The presets that are no MX blocks: name, alias, format.
const PRESETS: [(&str, &str, SlotFormat); 5] = [
    (
        "mx4",
        "MX4",
        SlotFormat::Microexponent(MicroexponentFormat::MX4),
    ),
    (
        "mx6",
        "MX6",
        SlotFormat::Microexponent(MicroexponentFormat::MX6),
    ),
    (
        "mx9",
        "MX9",
        SlotFormat::Microexponent(MicroexponentFormat::MX9),
    ),
    ("bfp16", "BFP16", SlotFormat::Bfp(BfpFormat::BFP16)),
    (
        "nvfp4",
        "NVFP4",
        SlotFormat::Nvfp4(Nvfp4Format {
            tensor_scale: false,
        }),
    ),
];

/// Families with parameters.
const BFP: (&str, &[&str]) = ("bfp", &["bit_width", "block_size"]);
const MICROEXPONENT: (&str, &[&str]) = (
    "microexponent",
    &["bit_width", "block_size", "sub_block_size", "shift_bits"],
);
const NVFP4: (&str, &[&str]) = ("nvfp4", &["tensor_scale"]);

impl SlotFormat {
    /// The names without parameters, aliases not among them: those of the element formats, then the
    /// presets.
    pub const NAMES: [&'static str; ElementFormat::ALL.len() + PRESETS.len()] = {
        let mut names = [""; ElementFormat::ALL.len() + PRESETS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = if i < ElementFormat::ALL.len() {
                ElementFormat::ALL[i].name()
            } else {
                PRESETS[i - ElementFormat::ALL.len()].0
            };
            i += 1;
        }
        names
    };

    /// The presets that are no MX blocks, by name.
    pub(crate) fn presets() -> impl Iterator<Item = (&'static str, Self)> {
        PRESETS.into_iter().map(|(name, _, slot)| (name, slot))
    }

    /// The block format of this slot, given the parameters that slots share.
    ///
    /// All of `shared` but its element applies to [`Element`](Self::Element): block size, scale bits,
    /// scale mode, method and flush. Nothing of it applies to the others. They say their own block size,
    /// their scales have 8 bits and one rule, and subnormals are handled as each documents.
    pub const fn block_format(&self, shared: &MxFormat) -> BlockFormat {
        match *self {
            Self::Element(element) => BlockFormat::Mx(MxFormat { element, ..*shared }),
            Self::Microexponent(format) => BlockFormat::Microexponent(format),
            Self::Bfp(format) => BlockFormat::Bfp(format),
            Self::Nvfp4(format) => BlockFormat::Nvfp4(format),
        }
    }

    /// The element of an MX block; `None` for the other formats.
    pub const fn element(&self) -> Option<ElementFormat> {
        match *self {
            Self::Element(element) => Some(element),
            _ => None,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Those of the format's own `validate`; elements and NVFP4 are always valid.
    pub fn validate(&self) -> Result<(), FormatError> {
        match self {
            Self::Element(_) | Self::Nvfp4(_) => Ok(()),
            Self::Microexponent(format) => format.validate(),
            Self::Bfp(format) => format.validate(),
        }
    }

    /// The preset or the format with parameters that `text` says; `None` if it is neither.
    pub(crate) fn parse_own(text: &str) -> Option<Result<Self, ParseFormatError>> {
        let named = PRESETS
            .into_iter()
            .find(|(name, alias, _)| *name == text || *alias == text);
        if let Some((_, _, slot)) = named {
            return Some(Ok(slot));
        }
        let families: [(_, fn(Parameters<'_>) -> _); 3] =
            [(BFP, bfp), (MICROEXPONENT, microexponent), (NVFP4, nvfp4)];
        families.into_iter().find_map(|((family, fields), parse)| {
            Some(Parameters::of(text, family, fields)?.and_then(parse))
        })
    }
}

/// What to say of a number that is none.
fn range((min, max): (usize, usize)) -> String {
    format!("{min} to {max}")
}

/// As [`range`], of a length.
pub(crate) fn at_least(min: usize) -> String {
    format!("a number of at least {min}")
}

fn bfp(mut parameters: Parameters<'_>) -> Result<SlotFormat, ParseFormatError> {
    let preset = BfpFormat::BFP16;
    let bit_widths = || range(BfpFormat::BIT_WIDTHS);
    let format = BfpFormat {
        bit_width: parameters.take("bit_width", "", preset.bit_width, bit_widths)?,
        block_size: parameters.take("block_size", "block", preset.block_size, || at_least(1))?,
    };
    parameters.finish()?;
    format.validate()?;
    Ok(SlotFormat::Bfp(format))
}

fn microexponent(mut parameters: Parameters<'_>) -> Result<SlotFormat, ParseFormatError> {
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
    Ok(SlotFormat::Microexponent(format))
}

fn nvfp4(mut parameters: Parameters<'_>) -> Result<SlotFormat, ParseFormatError> {
    let allowed = || "true or false".to_string();
    let format = Nvfp4Format {
        tensor_scale: parameters.take("tensor_scale", "", false, allowed)?,
    };
    parameters.finish()?;
    Ok(SlotFormat::Nvfp4(format))
}

impl FromStr for SlotFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(element) = text.parse() {
            return Ok(Self::Element(element));
        }
        Self::parse_own(text).unwrap_or_else(|| {
            let families = ["bfp(…)", "microexponent(…)", "nvfp4(…)"];
            Err(ParseFormatError::Unknown(NameError {
                kind: "block format",
                value: text.to_string(),
                allowed: Self::NAMES.into_iter().chain(families).collect(),
            }))
        })
    }
}

impl fmt::Display for SlotFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::presets().find(|(_, slot)| slot == self) {
            return f.pad(name);
        }
        let text = match self {
            Self::Element(element) => return f.pad(element.name()),
            Self::Microexponent(format) => format!(
                "microexponent(bit_width={},block_size={},sub_block_size={},shift_bits={})",
                format.bit_width, format.block_size, format.sub_block_size, format.shift_bits
            ),
            Self::Bfp(format) => format!(
                "bfp(bit_width={},block_size={})",
                format.bit_width, format.block_size
            ),
            Self::Nvfp4(format) => format!("nvfp4(tensor_scale={})", format.tensor_scale),
        };
        f.pad(&text)
    }
}

impl From<ElementFormat> for SlotFormat {
    /// An MX block of these elements.
    fn from(element: ElementFormat) -> Self {
        Self::Element(element)
    }
}

impl_serde_by_text!(SlotFormat, "the name of a block format");
