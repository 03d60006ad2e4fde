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
    /// They are elements: NaN is NaN, and Inf is the largest number, Inf or NaN by [`ElementOverflow`](crate::ElementOverflow). The scale does
    /// not count them, as in P3109's `ConvertToBlockMaxAbsFinite`; a block of NaN alone has the scale NaN. Beside the scale 0 an Inf is 0, too.
    Elements,
    /// Their block has the exponent of Inf, as the block of XDNA2's bfp16. They have codes: ±Inf is ±2^128, and NaN is ±1.5 · 2^128.
    /// The finite numbers of the block are rounded to the steps of that exponent.
    TopExponent,
}
