//! What stands in one slot of the specs: an element or a whole format.

use crate::format::parameters::impl_serde_by_text;
use crate::{BlockFormat, ElementFormat, FormatError, MxFormat, NameError, ParseFormatError};
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

/// What a field like `w_elem_format` holds: the element of an MX block, whose other parameters the slots of a
/// model share, or a block format that brings all of its own.
///
/// As text (`FromStr`, `Display`, serde) it is what the [`ElementFormat`] or the [`BlockFormat`] is: `fp8_e4m3`,
/// `mx6`, `nvfp4`, `mx(element=int4,block_size=16)`.
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
    /// An MX block of these elements.
    Element(ElementFormat),
    /// A block format with parameters of its own.
    Block(BlockFormat),
}

impl SlotFormat {
    /// The names without parameters, aliases not among them: those of the element formats, then those of the
    /// block formats.
    pub const NAMES: [&'static str; ElementFormat::ALL.len() + BlockFormat::NAMES.len()] = {
        let mut names = [""; ElementFormat::ALL.len() + BlockFormat::NAMES.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = if i < ElementFormat::ALL.len() {
                ElementFormat::ALL[i].name()
            } else {
                BlockFormat::NAMES[i - ElementFormat::ALL.len()]
            };
            i += 1;
        }
        names
    };

    /// The block format of this slot. All of `shared` but its element applies to an
    /// [`Element`](Self::Element): block size, scale bits, scale mode, method and flush; none of it to a
    /// [`Block`](Self::Block).
    pub const fn block_format(&self, shared: &MxFormat) -> BlockFormat {
        match *self {
            Self::Element(element) => BlockFormat::Mx(MxFormat { element, ..*shared }),
            Self::Block(format) => format,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Those of [`BlockFormat::validate`]; elements are always valid.
    pub fn validate(&self) -> Result<(), FormatError> {
        match self {
            Self::Element(_) => Ok(()),
            Self::Block(format) => format.validate(),
        }
    }
}

impl FromStr for SlotFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(element) = text.parse() {
            return Ok(Self::Element(element));
        }
        let elements = ElementFormat::ALL.into_iter().map(ElementFormat::name);
        text.parse().map(Self::Block).map_err(|error| match error {
            ParseFormatError::Unknown(_) => ParseFormatError::Unknown(NameError {
                kind: "format",
                value: text.to_string(),
                allowed: elements.chain(BlockFormat::expected()).collect(),
            }),
            error => error,
        })
    }
}

impl fmt::Display for SlotFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(element) => element.fmt(f),
            Self::Block(format) => format.fmt(f),
        }
    }
}

impl From<ElementFormat> for SlotFormat {
    fn from(element: ElementFormat) -> Self {
        Self::Element(element)
    }
}

impl From<BlockFormat> for SlotFormat {
    fn from(format: BlockFormat) -> Self {
        Self::Block(format)
    }
}

impl_serde_by_text!(
    SlotFormat,
    "the name of an element format or a block format"
);
