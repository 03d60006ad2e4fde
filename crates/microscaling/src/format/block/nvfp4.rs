//! NVFP4: FP4 elements, an FP8 scale a block and possibly a float32 scale a tensor.

use crate::format::Headroom;

/// NVIDIA's NVFP4 (as torchao computes it): blocks of 16 `fp4_e2m1` elements with a scale in
/// `fp8_e4m3`, and optionally a float32 scale of the whole tensor.
///
/// Without a tensor scale t is 1, otherwise t = amax(tensor) / (448 · 6). A block's scale c is (amax(block) / 6) / t,
/// limited to 2^−6 … 448 and rounded to E4M3, half to even in every rounding mode. An element x becomes `q · (t · c)`
/// with q = round(x · ((1 / t) / c)) among the FP4 numbers, saturating at ±6. Each of these operations rounds to
/// float32.
///
/// With [`headroom`](Self::headroom) h, t = (amax(tensor) / (448 · 6)) · h, and c follows from ((amax(block) / 6) / t) · h, with
/// h as a float32, and with 1 in place of t without a tensor scale. With a tensor scale, the codes of the blocks' scales hardly
/// change, and t is h times as large. In arXiv 2601.22813, section 3.1, h is 17/16: E4M3 rounds a scale down by at most this
/// factor, except for scales below 2^−6, which this format does not have.
///
/// With [`four_over_six`](Self::four_over_six) (arXiv 2512.02010 and its code) there are two candidates. c₆ is c as above. c₄
/// follows from ((amax(block) / 6) / t) · h · 1.5, so that the largest magnitude becomes about 4, where the grid is finer than
/// next to 6. The block has c₄ if its squared error is less, else c₆; [`block_scale_of`](Self::block_scale_of) defines the
/// error. t is amax(tensor) / (256 · 6), as 1.5 · 256 is an E4M3 number. Both errors are computed with rounding half to even,
/// in every rounding mode. So the draws of stochastic rounding do not choose the scale, and the result stays unbiased. (In the
/// authors' code the draws choose the scale.)
///
/// Blocks lie along one axis, or are [square](Self::square); the last block of an axis may be shorter.
///
/// Without a tensor scale a block with a NaN or an Inf is all NaN. With a tensor scale the whole tensor is NaN, because
/// all blocks share t. A tensor of zeros stays zero (torchao makes it NaN), and so does one so small that t or t · c is
/// zero. −0 stays −0, and a negative number that rounds to zero becomes −0. Where (1 / t) / c overflows, in tensors below
/// about 2^−116, q is round(x / (t · c)). The product q · (t · c) overflows to ±Inf in one case only: headroom or four
/// over six lets an element round up in a tensor in the highest two binades of float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Nvfp4Format {
    /// Whether the tensor has a scale.
    pub tensor_scale: bool,
    /// Makes the blocks square, 16 × 16 elements, see [`MxFormat::square`](crate::MxFormat::square).
    pub square: bool,
    /// h: both scales are chosen as if every magnitude were multiplied by h.
    pub headroom: Headroom,
    /// Whether the scale of a block is the better one of two, under which its largest magnitude becomes 6 or 4.
    pub four_over_six: bool,
}

impl Nvfp4Format {
    /// Elements in a block.
    pub const BLOCK_SIZE: usize = 16;

    /// The format with or without a tensor scale: blocks along one axis, no headroom, one candidate for a scale.
    pub const fn new(tensor_scale: bool) -> Self {
        Self {
            tensor_scale,
            square: false,
            headroom: Headroom::NONE,
            four_over_six: false,
        }
    }
}
