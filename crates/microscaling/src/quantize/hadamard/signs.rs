//! The signs of a random Hadamard transform.

use crate::round::bits::SIGN;
use crate::round::random::RandomStream;
use alloc::{vec, vec::Vec};

/// The signs of a [`RandomHadamard`](crate::RandomHadamard) transform: one for each index of the axis, the same along the
/// other axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signs {
    /// The uppermost bit of word number i of the stream is the sign of the element at index i, one for minus.
    Random(RandomStream),
    /// The same signs for every block: bit i is the sign of the elements whose index modulo the block size is i, one for
    /// minus. Bits from the block size on have no effect. `Repeated(0)` gives the plain Hadamard transform.
    ///
    /// NVIDIA's TransformerEngine trains NVFP4 with `0xd7e8` and blocks of 16 (`get_wgrad_sign_vector`, arXiv 2509.25149
    /// section 4.2).
    Repeated(u128),
}

impl From<RandomStream> for Signs {
    fn from(stream: RandomStream) -> Self {
        Self::Random(stream)
    }
}

impl Signs {
    /// The signs of an axis, as the sign bits of patterns.
    pub(super) fn bits(self, axis: usize, block_size: usize) -> Vec<u32> {
        match self {
            Self::Random(stream) => {
                let mut words = vec![0; axis];
                stream.fill(0, &mut words);
                words.iter_mut().for_each(|word| *word &= SIGN);
                words
            }
            Self::Repeated(signs) => {
                let bit = |i: usize| ((signs >> (i % block_size)) as u32 & 1) << 31;
                (0..axis).map(bit).collect()
            }
        }
    }
}
