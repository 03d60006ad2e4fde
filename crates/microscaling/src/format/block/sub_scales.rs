//! Scales of parts of a block: bits that double the block's scale, and shifts that make it smaller.

use crate::format::ParseFormatError;
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

/// Two levels of sub-blocks, each with a bit that doubles the scale, as HiF4 (arXiv 2602.11287) has them.
///
/// Let s be the block's scale and 2^e the power of two above the largest element. A sub-block of the first level has its bit
/// set where its largest magnitude is at least 2 · 2^e · s; then s₁ = 2 · s, else s₁ = s. Within it, a sub-block of the second
/// level has its bit set where its largest magnitude is at least 2^e · s₁.
///
/// As text (`FromStr`, `Display`) it is the two lengths: `8/4`.
///
/// ```
/// use microscaling::{BlockFormat, SubScales};
///
/// assert_eq!(BlockFormat::HIF4.sub_scales, Some("8/4".parse::<SubScales>()?));
/// let hif4: BlockFormat = "block(element=e1m2,scale=ue6m2,block_size=64,sub_scales=8/4)".parse()?;
/// assert_eq!(hif4, BlockFormat::HIF4);
/// assert_eq!(hif4.bits_per_element(), 4.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubScales {
    blocks: [u8; 2],
}

impl SubScales {
    /// The allowed values that an error lists.
    pub(crate) const EXPECTED: &'static str =
        "two lengths of 1 to 255, the second of which divides the first, such as 8/4";

    /// Sub-blocks of these lengths; `None` unless they are at least 1 and the second divides the first.
    pub const fn new(first: u8, second: u8) -> Option<Self> {
        if second == 0 || first == 0 || !first.is_multiple_of(second) {
            return None;
        }
        Some(Self {
            blocks: [first, second],
        })
    }

    /// Elements in a sub-block of the first and of the second level.
    pub const fn block_sizes(self) -> [usize; 2] {
        [self.blocks[0] as usize, self.blocks[1] as usize]
    }

    /// The number of bits of each level, in a block with this number of elements.
    pub(crate) const fn bits(self, block: usize) -> [usize; 2] {
        let [first, second] = self.block_sizes();
        [block.div_ceil(first), block.div_ceil(second)]
    }
}

impl FromStr for SubScales {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lengths = text.split_once('/');
        let lengths = lengths.and_then(|(a, b)| a.parse().ok().zip(b.parse().ok()));
        lengths
            .and_then(|(first, second)| Self::new(first, second))
            .ok_or_else(|| ParseFormatError::FieldValue {
                format: "block",
                field: "sub_scales",
                value: text.to_string(),
                allowed: Self::EXPECTED.to_string(),
            })
    }
}

impl fmt::Display for SubScales {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.blocks;
        f.pad(&alloc::format!("{first}/{second}"))
    }
}

/// A shift for each sub-block, as microexponents have them: d of 0 to 2^bits − 1 divides the block's scale by 2^d.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shifts {
    /// Elements in a sub-block, 1 to the block's. The last sub-block of a block may be shorter.
    pub block_size: usize,
    /// Bits of a shift, 0 to 8.
    pub bits: u32,
}

impl Shifts {
    /// Allowed values of [`bits`](Self::bits).
    pub(crate) const BITS: (usize, usize) = (0, 8);

    /// The largest shift.
    pub const fn largest(self) -> u32 {
        (1 << self.bits) - 1
    }
}
