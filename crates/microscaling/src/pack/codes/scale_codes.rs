//! Scales of blocks from their codes.

use crate::format::{BlockFormat, NonFinite};
use crate::pack::plan::scale_bytes;
use crate::quantize::rules::FloatScaleRule;
use crate::round::bits::pow2;
use alloc::vec::Vec;

impl BlockFormat {
    /// The scales of blocks by their codes, which are the bytes of [`Packed::scales`](crate::Packed::scales): 256 numbers, with NaN or
    /// Inf for a code that has no number. The Inf of `bfp16ebs8` stands for 2^128, the scale of a block with NaN or Inf. A bit that names the block's table does not change the scale. `None` if a scale takes more
    /// than a byte, or if the byte also has shifts or sub-scales, or the format an outer scale.
    ///
    /// ```
    /// use microscaling::{BlockFormat, Packed, Rounder};
    ///
    /// let amdfp4: BlockFormat = "amdfp4".parse()?;
    /// let packed = Packed::encode(amdfp4, &[60.0], &[1], 0, Rounder::NearestEven)?;
    /// let scales = amdfp4.scale_values().unwrap();
    /// assert_eq!(scales[usize::from(packed.scales()[0])], 10.0);
    /// assert_eq!(scales[0xfe], 114688.0);
    /// assert!(scales[0xff].is_nan());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scale_values(&self) -> Option<Vec<f32>> {
        let codes = ScaleCodes::of(self)?;
        let is_alone = self.sub_scales.is_none() && self.outer.is_none() && codes.bytes == 1;
        is_alone.then(|| (0..=u8::MAX).map(|code| codes.number(&[code])).collect())
    }
}

/// The codes of scales that are one number for a block.
pub(crate) struct ScaleCodes {
    bytes: usize,
    /// `None`: E8M0.
    float: Option<FloatScaleRule>,
    /// The number of 255 in E8M0.
    top: f32,
}

impl ScaleCodes {
    /// `None` for formats with other scales.
    pub(crate) fn of(format: &BlockFormat) -> Option<Self> {
        if format.shifts.is_some() {
            return None;
        }
        let float = !format.has_exponent();
        let float = float.then(|| FloatScaleRule::of(format, 1.0));
        Some(Self {
            bytes: scale_bytes(format),
            float,
            top: match format.non_finite {
                NonFinite::TopExponent => f32::INFINITY,
                _ => f32::NAN,
            },
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
            Some(rule) => f32::from_bits(rule.scale.decode(rule.split(code).0)),
            None if code == 0xff => self.top,
            None => f32::from_bits(pow2(code as i32 - 127)),
        }
    }
}
