//! The value of one slot of the specs: an element or a whole format.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    str::FromStr,
};

use microscaling::{BlockFormat, ElementFormat, FormatError, NameError, ParseFormatError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The value of a field like `w_elem_format`: the element of an MX block, or a whole block format. All slots of the
/// specs share the other parameters of MX blocks; a block format has its own parameters.
///
/// The text form (`FromStr`, `Display`, serde) is the text of the [`ElementFormat`] or the [`BlockFormat`]: `fp8_e4m3`,
/// `mx6`, `nvfp4`, `mx(element=int4,block_size=16)`. A text also converts by `into`.
/// [`MxSpecs::resolve`](crate::MxSpecs::resolve) then checks whether the text names a format.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_mx::SlotFormat;
/// use microscaling::{BlockFormat, ElementFormat};
///
/// let shared = BlockFormat::mx(ElementFormat::INT8, 64); // the element does not matter
/// let slot: SlotFormat = "fp4".parse()?;
/// assert_eq!(slot.block_format(&shared).unwrap().to_string(), "mx(element=fp4_e2m1,block_size=64)");
/// let slot: SlotFormat = "bfp(bit_width=12)".parse()?;
/// assert_eq!(slot.block_format(&shared).unwrap().to_string(), "bfp(bit_width=12,block_size=8)");
/// # Ok::<(), microscaling::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlotFormat {
    /// An MX block of these elements.
    Element(ElementFormat),
    /// A block format with its own parameters.
    Block(BlockFormat),
    /// A text that names no format, as a conversion by `into` leaves it. The error of
    /// [`MxSpecs::resolve`](crate::MxSpecs::resolve) lists the allowed names.
    Unknown(&'static str),
}

impl SlotFormat {
    /// The names without parameters and aliases: first the element formats, then the block formats.
    pub const NAMES: [&'static str; ElementFormat::NAMED.len() + BlockFormat::NAMES.len()] = {
        let mut names = [""; ElementFormat::NAMED.len() + BlockFormat::NAMES.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = if i < ElementFormat::NAMED.len() {
                ElementFormat::NAMES[i]
            } else {
                BlockFormat::NAMES[i - ElementFormat::NAMED.len()]
            };
            i += 1;
        }
        names
    };

    /// The block format of this slot. An [`Element`](Self::Element) takes block size, scale bits, scale mode, method
    /// and flush from `shared`; a [`Block`](Self::Block) ignores `shared`. An [`Unknown`](Self::Unknown) text gives
    /// `None`; resolved specs have no such text.
    pub const fn block_format(&self, shared: &BlockFormat) -> Option<BlockFormat> {
        match *self {
            Self::Element(element) => Some(BlockFormat { element, ..*shared }),
            Self::Block(format) => Some(format),
            Self::Unknown(_) => None,
        }
    }

    /// Checks the parameters; an unknown name has none.
    ///
    /// # Errors
    /// A block format has the errors of [`BlockFormat::validate`]. An element has the errors of an MX block of such
    /// elements.
    pub fn validate(&self) -> Result<(), FormatError> {
        match self {
            Self::Element(element) => BlockFormat::mx(*element, 32).validate(),
            Self::Unknown(_) => Ok(()),
            Self::Block(format) => format.validate(),
        }
    }
}

impl FromStr for SlotFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let elements = match text.parse() {
            Ok(element) => return Ok(Self::Element(element)),
            Err(ParseFormatError::Unknown(elements)) => elements.allowed.into_iter(),
            // An element of which something is wrong.
            Err(error) => return Err(error),
        };
        text.parse().map(Self::Block).map_err(|error| match error {
            ParseFormatError::Unknown(blocks) => {
                let allowed = elements.chain(blocks.allowed).collect();
                ParseFormatError::Unknown(NameError::new("format", blocks.value, allowed))
            }
            error => error,
        })
    }
}

impl Display for SlotFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(element) => element.fmt(f),
            Self::Block(format) => format.fmt(f),
            Self::Unknown(text) => f.pad(text),
        }
    }
}

impl From<&'static str> for SlotFormat {
    /// The format that the text says, or [`Unknown`](Self::Unknown). For a text that is read at run time, `parse` gives the
    /// error at once.
    ///
    /// ```
    /// # extern crate burn_mx_core as burn_mx;
    /// use burn_mx::MxSpecs;
    ///
    /// let specs = MxSpecs { w_elem_format: Some("fp4".into()), block_size: 32, ..MxSpecs::none() };
    /// assert_eq!(specs.resolve()?.to_string(), "w fp4_e2m1, block 32");
    /// let specs = MxSpecs { w_elem_format: Some("fp5".into()), ..specs };
    /// let error = specs.resolve().unwrap_err().to_string();
    /// assert!(error.starts_with("`w_elem_format` is `fp5`") && error.contains("fp4_e2m1"), "{error}");
    /// # Ok::<(), burn_mx::SpecsError>(())
    /// ```
    fn from(text: &'static str) -> Self {
        text.parse().unwrap_or(Self::Unknown(text))
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

impl Serialize for SlotFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SlotFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
