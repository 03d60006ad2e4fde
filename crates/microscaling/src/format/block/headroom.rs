//! Headroom: how much larger a block is taken to be when its scale is chosen.

use crate::format::{FormatError, ParseFormatError};
use crate::names::impl_serde_by_text;
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

/// A factor h of at least 1/2 and less than 2: a block's scale is chosen as if its magnitudes were multiplied by h.
///
/// Headroom changes only the choice of the scale, not the elements. A larger scale leaves more room between the largest
/// element and the largest number of the format. So rounding up, which stochastic rounding does for any number,
/// saturates less or not at all. The recipes of the literature use the inverse, a margin: elements are multiplied by the
/// margin after the scale is chosen, and divided by it after the product. A margin of ¾ (arXiv 2502.20586, algorithm 2)
/// leaves the room of a headroom of 4/3; 16/17 (arXiv 2601.22813, section 3.1) leaves the room of 17/16. Under NVFP4's
/// tensor scale both are the same. In MX blocks a margin of ¾ makes every grid coarser by 4/3, while headroom doubles
/// the scale of only the blocks that need a larger one.
///
/// Less than 1 is allowed where the scale is a float: the largest elements saturate, and all others have a finer grid.
///
/// Headroom is a fraction in lowest terms. The text form (`FromStr`, `Display`, serde) is `4/3`, and `1` means no
/// headroom.
///
/// ```
/// use microscaling::{BlockFormat, Headroom};
///
/// let headroom: Headroom = "4/3".parse()?;
/// assert_eq!(headroom, Headroom::new(4, 3)?);
/// let format: BlockFormat = "mx(element=fp4_e2m1,headroom=4/3)".parse()?;
/// assert_eq!(format.to_string(), "mx(element=fp4_e2m1,block_size=32,headroom=4/3)");
/// # Ok::<(), microscaling::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Headroom {
    numerator: u16,
    denominator: u16,
}

impl Headroom {
    /// None: h = 1.
    pub const NONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// The allowed values that an error lists.
    pub(crate) const EXPECTED: &'static str = "1, or a fraction of at least 1/2 and less than 2 of whole numbers up to 65535, such as 4/3";

    /// h = `numerator` / `denominator`.
    ///
    /// # Errors
    /// [`FormatError::Headroom`] unless that is at least 1/2 and less than 2.
    pub const fn new(numerator: u16, denominator: u16) -> Result<Self, FormatError> {
        let (half, twice) = (denominator as u32, 4 * denominator as u32);
        let doubled = 2 * numerator as u32;
        if denominator == 0 || doubled < half || doubled >= twice {
            return Err(FormatError::Headroom {
                numerator,
                denominator,
            });
        }
        let (mut divisor, mut rest) = (numerator, denominator);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Ok(Self {
            numerator: numerator / divisor,
            denominator: denominator / divisor,
        })
    }

    /// Of the fraction in lowest terms.
    pub const fn numerator(self) -> u16 {
        self.numerator
    }

    /// Of the fraction in lowest terms.
    pub const fn denominator(self) -> u16 {
        self.denominator
    }

    /// Whether h is 1.
    pub const fn is_none(self) -> bool {
        self.numerator == self.denominator
    }

    /// Whether h is less than 1.
    pub const fn is_below_one(self) -> bool {
        self.numerator < self.denominator
    }

    /// h as the nearest float32.
    pub const fn value(self) -> f32 {
        self.numerator as f32 / self.denominator as f32
    }
}

impl Default for Headroom {
    fn default() -> Self {
        Self::NONE
    }
}

impl FromStr for Headroom {
    type Err = ParseFormatError;

    /// The fraction that the text says: `4/3`, or `1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || ParseFormatError::FieldValue {
            format: "scale",
            field: "headroom",
            value: text.to_string(),
            allowed: Self::EXPECTED.to_string(),
        };
        let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
        let [Ok(numerator), Ok(denominator)] = [numerator, denominator].map(str::parse) else {
            return Err(syntax());
        };
        Self::new(numerator, denominator).map_err(|_| syntax())
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.pad("1");
        }
        f.pad(&alloc::format!("{}/{}", self.numerator, self.denominator))
    }
}

impl_serde_by_text!(Headroom, "a fraction such as 4/3");
