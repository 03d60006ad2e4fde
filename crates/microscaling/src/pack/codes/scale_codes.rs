//! Scales of blocks from their codes.

use crate::format::BlockFormat;
use crate::pack::plan::scale_bytes;
use crate::quantize::rules::FloatScaleRule;
use crate::round::bits::pow2;

/// The codes of scales that are one number for a block.
pub(crate) struct ScaleCodes {
    bytes: usize,
    /// `None`: E8M0.
    float: Option<FloatScaleRule>,
}

impl ScaleCodes {
    /// `None` for formats with other scales.
    pub(crate) fn of(format: &BlockFormat) -> Option<Self> {
        let float = match format {
            BlockFormat::Mx(_) => None,
            format => Some(FloatScaleRule::of(&format.float_scale()?, 1.0)),
        };
        Some(Self {
            bytes: scale_bytes(format),
            float,
        })
    }

    /// Bytes of a code.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of a code with this number of bytes.
    pub(crate) fn number(&self, bytes: &[u8]) -> f32 {
        let code = bytes
            .iter()
            .rev()
            .fold(0, |code, byte| code << 8 | u64::from(*byte));
        match &self.float {
            Some(rule) => f32::from_bits(rule.scale.decode(code as u32)),
            None if code == 0xff => f32::NAN,
            None => f32::from_bits(pow2(code as i32 - 127)),
        }
    }
}
