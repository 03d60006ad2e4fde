//! The treatment of numbers that have no place in a block.

/// The treatment of float32 subnormals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Subnormals {
    /// They are ordinary numbers.
    #[default]
    Kept,
    /// A block of float32 subnormals and zeros becomes zero.
    FlushBlocks,
    /// Each of them counts as zero, everywhere.
    FlushElements,
}

/// The effect of NaN and Inf on their block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum NonFinite {
    /// Their block is all NaN.
    #[default]
    OfBlock,
    /// They pass unchanged, and the scale does not count them.
    Kept,
}
