//! Outer scales: each is of several blocks.

use crate::format::ScaleFormat;
use core::fmt;

/// A scale of several blocks along an axis: of a tile, or of a whole channel.
///
/// [`BlockFormat`](crate::BlockFormat) quantizes this part as if it were a tensor with a tensor scale. So the
/// part's largest magnitude gives t. t is limited to the range of its format, subnormal numbers included, and rounded to its
/// numbers, half to even. A part with a NaN or Inf becomes NaN.
///
/// As parameters of a format it is `outer_size` and `outer_scale` (float32 if left out).
///
/// ```
/// use microscaling::{BlockFormat, Rounder};
///
/// // Of an activation each row is a token, and has a scale of its own.
/// let per_token: BlockFormat = "block(element=e2m1,scale=ue4m3,block_size=16,outer_size=0)".parse()?;
/// let mut x = [1.0, 6.0, 3000.0, 448.0];
/// per_token.quantize(&mut x, &[2, 2], 1, Rounder::NearestEven)?;
/// assert_eq!(x, [1.0, 6.0, 3000.0, 500.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OuterScale {
    /// Elements along the axis that share the scale, a multiple of the block size; 0 is the whole axis.
    pub size: usize,
    /// The format of the scale.
    pub scale: ScaleFormat,
}

impl OuterScale {
    /// A float32 for each `size` elements along the axis, or for the whole axis if `size` is 0.
    pub const fn new(size: usize) -> Self {
        Self {
            size,
            scale: ScaleFormat::FLOAT32,
        }
    }
}

/// `outer_size=128`, `outer_size=0,outer_scale=bfloat16`.
impl fmt::Display for OuterScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outer_size={}", self.size)?;
        match self.scale {
            ScaleFormat::FLOAT32 => Ok(()),
            scale => write!(f, ",outer_scale={scale}"),
        }
    }
}
