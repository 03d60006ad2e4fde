//! MX blocks (OCP MX v1.0).

use crate::format::{ElementFormat, FormatError, Headroom, ScaleMode, SharedExpMethod};

/// An MX format (OCP MX v1.0 section 5): blocks of elements that share a power of two.
///
/// A block is `block_size` consecutive elements along one axis, or a [square](Self::square) of `block_size` elements along each of two
/// axes. The last block of an axis may be shorter. An element x becomes `round(x / 2^s) · 2^s`, where `round` rounds to the numbers of
/// [`element`](Self::element) and saturates. The exponent s follows from the largest magnitude of the block, or from all magnitudes, see
/// [`scale_exponent`](Self::scale_exponent).
///
/// A block with a NaN or an Inf is all NaN. A block of zeros stays zero. −0 stays −0, and a negative
/// number that rounds to zero becomes −0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MxFormat {
    /// Format of the elements.
    pub element: ElementFormat,
    /// Elements in a block; 0 makes the whole axis one block.
    pub block_size: usize,
    /// Bits of the shared scale, 1 to 8; 8 is E8M0. With E = 2^(scale_bits − 1) − 1, a scale is one
    /// of 2^−E … 2^E or NaN.
    pub scale_bits: u32,
    /// How the scale follows from the largest magnitude.
    pub scale_mode: ScaleMode,
    /// Whether the elements of a block share a scale at all.
    pub shared_exp_method: SharedExpMethod,
    /// Makes a block zero if all of its inputs are float32 subnormals or zeros.
    pub flush_fp32_subnorms: bool,
    /// Makes the blocks square: `block_size` × `block_size` elements, shorter at the ends of either axis. The two axes
    /// are the axis that blocks lie along and the axis before it, or after it if there is none before. A quantized
    /// matrix is then the same along either axis, and its transpose is the quantized transpose. Recipes of the
    /// literature have square blocks for weights, which products read along both axes.
    pub square: bool,
    /// h: the scale is chosen as if every magnitude were multiplied by h, see [`scale_exponent`](Self::scale_exponent).
    pub headroom: Headroom,
}

impl MxFormat {
    /// A format of OCP MX: 8 scale bits, scale mode `floor`, method `max`, no flush, no headroom. `block_size` counts
    /// elements, 0 makes the whole axis one block. The concrete formats of OCP MX v1.0 have 32.
    pub const fn new(element: ElementFormat, block_size: usize) -> Self {
        Self {
            element,
            block_size,
            scale_bits: 8,
            scale_mode: ScaleMode::Floor,
            shared_exp_method: SharedExpMethod::Max,
            flush_fp32_subnorms: false,
            square: false,
            headroom: Headroom::NONE,
        }
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// * [`FormatError::ScaleBits`] unless `scale_bits` is 1 to 8.
    /// * [`FormatError::MxHeadroom`] if `headroom` is less than 1.
    /// * [`FormatError::TableElement`] if the element is a [table](ElementFormat::tables).
    /// * [`FormatError::SquareBlocks`] if square blocks have no size, or no scale that their elements share.
    /// * [`FormatError::ScaleModeElement`] if `scale_mode` is [`Rms`](ScaleMode::Rms) and the element not
    ///   [`FP4_E2M1`](ElementFormat::FP4_E2M1).
    pub const fn validate(&self) -> Result<(), FormatError> {
        if self.scale_bits < 1 || self.scale_bits > 8 {
            return Err(FormatError::ScaleBits {
                min: 1,
                max: 8,
                got: self.scale_bits,
            });
        }
        if self.element.is_table() {
            return Err(FormatError::TableElement {
                format: "MX format",
            });
        }
        if self.headroom.is_below_one() {
            return Err(FormatError::MxHeadroom { got: self.headroom });
        }
        if let Err(error) = self.validate_scale_mode() {
            return Err(error);
        }
        match self.square {
            true => self.validate_square(),
            false => Ok(()),
        }
    }

    /// Checks the format's elements against its scale mode.
    const fn validate_scale_mode(&self) -> Result<(), FormatError> {
        match (self.scale_mode, self.element) {
            (ScaleMode::Rms, ElementFormat::FP4_E2M1) => Ok(()),
            (scale_mode @ ScaleMode::Rms, got) => Err(FormatError::ScaleModeElement {
                scale_mode,
                expected: ElementFormat::FP4_E2M1,
                got,
            }),
            _ => Ok(()),
        }
    }

    /// Checks the fields of square blocks.
    const fn validate_square(&self) -> Result<(), FormatError> {
        if self.block_size == 0 {
            return Err(FormatError::SquareBlocks {
                field: "block_size",
                got: "0",
                allowed: "a number of at least 1",
            });
        }
        match self.shared_exp_method {
            SharedExpMethod::Max => Ok(()),
            SharedExpMethod::None => Err(FormatError::SquareBlocks {
                field: "shared_exp_method",
                got: SharedExpMethod::None.name(),
                allowed: SharedExpMethod::Max.name(),
            }),
        }
    }
}
