//! The facts that a kernel knows before it looks at a block.

use cubecl::prelude::*;

/// The facts that a kernel knows, as its argument.
#[derive(CubeType, CubeLaunch)]
pub(in crate::cube) struct Known {
    /// The tensor's largest magnitude, if the format has a scale that follows from it.
    pub(in crate::cube::quantize) tensor_amax: ComptimeOption<Array<u32>>,
    /// The [words](super::tables::words) of the elements' tables, if there are any.
    pub(in crate::cube::quantize) tables: ComptimeOption<Array<u32>>,
}

/// The tensor's largest magnitude; 0 where it does not matter.
#[cube]
pub(in crate::cube) fn tensor_amax(known: &Known) -> u32 {
    word_or_zero(&known.tensor_amax, 0usize)
}

/// A word of the tables.
#[cube]
pub(super) fn table_word(known: &Known, at: usize) -> u32 {
    word_or_zero(&known.tables, at)
}

#[cube]
fn word_or_zero(words: &ComptimeOption<Array<u32>>, at: usize) -> u32 {
    #[comptime]
    match words {
        ComptimeOption::Some(words) => words[at],
        ComptimeOption::None => 0u32.runtime(),
    }
}
