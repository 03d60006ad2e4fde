//! The Hadamard transform of a product's operands, as a field of the specs.

use std::fmt::{self, Display};
use std::str::FromStr;

use microscaling::RandomHadamard;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

/// A Hadamard transform of both operands of a product, along the summed axis, before quantization.
///
/// The text form (`FromStr`, `Display`, serde) is the block size and, optionally after a colon, the source of the signs:
/// `64`, `64:product`, `32:step`, `32:none`, `16:0xd7e8`.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_mx::{Hadamard, HadamardSigns};
///
/// let transform: Hadamard = "64:product".parse()?;
/// assert_eq!(transform, Hadamard { block_size: 64, signs: HadamardSigns::Product });
/// assert_eq!("32:none".parse::<Hadamard>()?.signs, HadamardSigns::Given(0));
/// # Ok::<(), burn_mx::ParseHadamardError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hadamard {
    /// Elements in a block, one of [`RandomHadamard::BLOCK_SIZES`].
    pub block_size: usize,
    /// The source of the signs.
    pub signs: HadamardSigns,
}

/// The source of the random signs of a [`Hadamard`] transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HadamardSigns {
    /// The seed, if the text has only a block size. The signs are the same in every product until the seed is set
    /// again.
    #[default]
    Seed,
    /// `step`: new signs for each training step, the same for all of its products. A step ends with its gradient products,
    /// and the next forward product begins the next step.
    Step,
    /// `product`: new signs for each product.
    Product,
    /// `0x…`, or `none` for 0: given signs. Bit i is the sign of the element at index i of every block, one for minus;
    /// bit 0 is the lowest.
    Given(u128),
}

/// The error for a text that is not a [`Hadamard`] transform.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not a Hadamard transform; allowed: a block size of 16, 32, 64 or 128, alone or with `:step`, `:product`, `:none` \
     or signs for the block such as `:0xd7e8`"
)]
pub struct ParseHadamardError {
    text: String,
}

microscaling::debug_is_display!(ParseHadamardError);

impl Hadamard {
    /// A transform of this block size, with signs from the seed.
    pub const fn new(block_size: usize) -> Self {
        Self {
            block_size,
            signs: HadamardSigns::Seed,
        }
    }

    /// The same transform with these signs.
    pub const fn with_signs(self, signs: HadamardSigns) -> Self {
        Self { signs, ..self }
    }

    /// Whether the block size is allowed, and the signs fit one block.
    pub(in crate::specs) fn is_valid(self) -> bool {
        let fits = match self.signs {
            HadamardSigns::Given(signs) => signs
                .checked_shr(self.block_size as u32)
                .is_none_or(|rest| rest == 0),
            _ => true,
        };
        fits && self.transform().validate().is_ok()
    }

    /// The transform itself.
    pub(crate) const fn transform(self) -> RandomHadamard {
        RandomHadamard {
            block_size: self.block_size,
        }
    }

    /// Whether every product has the same signs.
    pub(crate) const fn is_fixed(self) -> bool {
        matches!(self.signs, HadamardSigns::Seed | HadamardSigns::Given(_))
    }
}

impl FromStr for Hadamard {
    type Err = ParseHadamardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = || {
            let (size, signs) = match text.split_once(':') {
                Some((size, signs)) => (size, Some(signs)),
                None => (text, None),
            };
            let signs = match signs {
                None => HadamardSigns::Seed,
                Some("step") => HadamardSigns::Step,
                Some("product") => HadamardSigns::Product,
                Some("none") => HadamardSigns::Given(0),
                Some(mask) => {
                    let digits = mask.strip_prefix("0x")?;
                    HadamardSigns::Given(u128::from_str_radix(digits, 16).ok()?)
                }
            };
            let block_size = size.parse().ok()?;
            Some(Self { block_size, signs }).filter(|transform| transform.is_valid())
        };
        parsed().ok_or_else(|| ParseHadamardError {
            text: text.to_owned(),
        })
    }
}

impl Display for Hadamard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.block_size;
        match self.signs {
            HadamardSigns::Seed => write!(f, "{size}"),
            HadamardSigns::Step => write!(f, "{size}:step"),
            HadamardSigns::Product => write!(f, "{size}:product"),
            HadamardSigns::Given(0) => write!(f, "{size}:none"),
            HadamardSigns::Given(signs) => write!(f, "{size}:{signs:#x}"),
        }
    }
}

impl Serialize for Hadamard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hadamard {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}
