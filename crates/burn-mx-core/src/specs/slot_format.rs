//! The value of one slot of the specs: an element or a whole format.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    str::FromStr,
};

use microscaling::{
    BlockFormat, ElementFormat, FormatError, MxFormat, NameError, ParseFormatError,
};
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
/// use microscaling::{ElementFormat, MxFormat};
///
/// let shared = MxFormat::new(ElementFormat::INT8, 64); // the element does not matter
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
    pub const fn block_format(&self, shared: &MxFormat) -> Option<BlockFormat> {
        match *self {
            Self::Element(element) => Some(BlockFormat::Mx(MxFormat { element, ..*shared })),
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
            Self::Element(element) => MxFormat::new(*element, 32).validate(),
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

#[cfg(test)]
mod tests {
    use microscaling::ScaleMode;

    use super::*;

    #[test]
    fn every_name() {
        let shared = MxFormat {
            scale_bits: 3,
            scale_mode: ScaleMode::Rceil,
            ..MxFormat::new(ElementFormat::FP8_E4M3, 48)
        };
        let mut names = Vec::new();
        for element in ElementFormat::NAMED {
            assert_eq!(element.to_string().parse(), Ok(SlotFormat::from(element)));
            assert_eq!(SlotFormat::from(element).to_string(), element.to_string());
            let block = SlotFormat::from(element).block_format(&shared);
            assert_eq!(block, Some(BlockFormat::Mx(MxFormat { element, ..shared })));
            names.push(element.name().unwrap());
        }
        for name in BlockFormat::NAMES {
            let format: BlockFormat = name.parse().unwrap();
            assert_eq!(name.parse(), Ok(SlotFormat::from(format)));
            assert_eq!(SlotFormat::from(format).block_format(&shared), Some(format));
            assert_eq!(SlotFormat::from(format).to_string(), name);
            names.push(name);
        }
        assert_eq!(SlotFormat::NAMES.to_vec(), names);
        let fp4 = Ok(SlotFormat::Element(ElementFormat::FP4_E2M1));
        assert_eq!("fp4".parse(), fp4);
    }

    #[test]
    fn json_is_the_text() {
        for text in ["fp6_e3m2", "mx6", "mx(element=int4,block_size=16)"] {
            let slot: SlotFormat = text.parse().unwrap();
            let json = serde_json::to_string(&slot).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<SlotFormat>(&json).unwrap(), slot);
        }
        assert!(serde_json::from_str::<SlotFormat>("3").is_err());
    }

    #[test]
    fn errors_list_elements_and_blocks() {
        let error = "fp5".parse::<SlotFormat>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown format `fp5`: expected one of fp8_e5m2, fp8_e4m3, fp6_e3m2, fp6_e2m3, fp4_e2m1, int8, int4, \
             int2, float16, bfloat16, fp8_e3m4, fp8_e2m5, fp8_e4m3fnuz, fp8_e4m3b11fnuz, fp8_e5m2fnuz, fp5_e3m1, \
             fp5_e2m2, fp4_e3m0, fp4_e1m2, fp3_e2m0, int6, float(…), fixed(…), table(…), mxfp8_e5m2, mxfp8_e4m3, mxfp6_e3m2, \
             mxfp6_e2m3, mxfp4, mxint8, mxfp8_rceil, mx4, mx6, mx9, bfp16, nvfp4, mxint4, nvint4, amdfp4, amdfp4_g32, \
             nf4, if4, razer, hif4, \
             mx(…), bfp(…), \
             microexponent(…), nvfp4(…), block(…)"
        );
        assert!(matches!(
            "bfp(bit_width=12".parse::<SlotFormat>(),
            Err(ParseFormatError::Syntax { .. })
        ));
        let invalid = SlotFormat::Block(BlockFormat::Mx(MxFormat {
            scale_bits: 9,
            ..MxFormat::new(ElementFormat::INT8, 32)
        }));
        assert!(invalid.validate().is_err());
    }
}
