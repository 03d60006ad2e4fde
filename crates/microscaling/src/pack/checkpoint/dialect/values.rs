//! Tensors in the numbers that other tools serve.

use super::encoding::{MX_BLOCK, MxEncoding};
use super::nvfp4::{NVFP4_BLOCK, Nvfp4Tensor};
use super::{Dialect, DialectError, q8_0};
use crate::format::BlockFormat;
use crate::pack::PackError;
use crate::quantize::largest::largest;
use crate::quantize::layout::checked_layout;
use alloc::{vec, vec::Vec};
use microscaling_processor::float_state::ieee;
use microscaling_processor::threads::{Divide, share_all};

impl Dialect {
    /// Quantizes a tensor of any shape in place, in blocks along `axis`, to the numbers of the bytes that [`encode`](Self::encode) gives:
    /// what the tool computes with when it serves the tensor.
    ///
    /// Training meets tensors that [`encode`](Self::encode) refuses. A last block that is shorter than the others is padded with zeros. A
    /// block with a NaN or an Inf becomes NaN, and so does a tensor with a tensor scale. A tensor that the tool would make NaN of,
    /// because its largest magnitude is zero or tiny, becomes zeros.
    ///
    /// # Errors
    /// * [`DialectError::Format`]: the dialect does not have the format.
    /// * [`DialectError::Pack`]: the data do not fit the shape, or the shape does not have the axis.
    pub fn quantize(
        self,
        format: BlockFormat,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
    ) -> Result<(), DialectError> {
        self.check(format)?;
        if let Some(rounder) = self.is_ours(&format) {
            let quantized = format.quantize(data, shape, axis, rounder);
            return Ok(quantized.map_err(PackError::from)?);
        }
        checked_layout(data, shape, axis, format.block_shape()).map_err(PackError::from)?;
        let encoding = if format.has_exponent() {
            BlockEncoding::Mx(self.mx(format.element))
        } else if self == Self::Ggml {
            BlockEncoding::Q8_0
        } else {
            let amax = largest(data);
            if format.tensor_scale && !self.is_finite(amax) {
                data.fill(f32::NAN);
                return Ok(());
            }
            match ieee(|| self.nvfp4_tensor(format, amax)) {
                Some(tensor) => BlockEncoding::Nvfp4(tensor),
                None => {
                    data.fill(0.0);
                    return Ok(());
                }
            }
        };
        let inner: usize = shape[axis + 1..].iter().product();
        let length = shape[axis];
        if inner == 1 && length.is_multiple_of(encoding.block()) {
            share_all(WholeBlocks { data, encoding }, &WholeBlocks::quantize);
            return Ok(());
        }
        let mut lines = PaddedLines::of(data, length, inner, encoding.block());
        let blocks = WholeBlocks {
            data: &mut lines.padded,
            encoding,
        };
        share_all(blocks, &WholeBlocks::quantize);
        lines.write(data);
        Ok(())
    }
}

/// A tool's way to the numbers of a block.
#[derive(Clone, Copy)]
enum BlockEncoding {
    Mx(MxEncoding),
    Nvfp4(Nvfp4Tensor),
    Q8_0,
}

impl BlockEncoding {
    /// Elements of a block.
    const fn block(self) -> usize {
        match self {
            Self::Mx(_) => MX_BLOCK,
            Self::Nvfp4(_) => NVFP4_BLOCK,
            Self::Q8_0 => q8_0::BLOCK,
        }
    }
}

/// A whole number of blocks, one after another.
struct WholeBlocks<'a> {
    data: &'a mut [f32],
    encoding: BlockEncoding,
}

impl Divide for WholeBlocks<'_> {
    fn elements(&self) -> usize {
        self.data.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let Self { data, encoding } = self;
        let blocks = data.len() / encoding.block();
        if blocks < 2 {
            return Err(Self { data, encoding });
        }
        let (first, second) = data.split_at_mut(blocks / 2 * encoding.block());
        Ok([first, second].map(|data| WholeBlocks { data, encoding }))
    }
}

impl WholeBlocks<'_> {
    fn quantize(self) {
        let Self { data, encoding } = self;
        ieee(|| match encoding {
            BlockEncoding::Mx(encoding) => encoding.quantize(data),
            BlockEncoding::Nvfp4(tensor) => tensor.quantize(data),
            BlockEncoding::Q8_0 => q8_0::quantize(data),
        });
    }
}

/// The lines of a tensor along an axis, one after another, each padded with zeros to whole blocks.
struct PaddedLines {
    padded: Vec<f32>,
    length: usize,
    inner: usize,
    /// Elements of a line with its padding.
    stride: usize,
}

impl PaddedLines {
    fn of(data: &[f32], length: usize, inner: usize, block: usize) -> Self {
        let stride = length.next_multiple_of(block);
        let lines = data.len().checked_div(length).unwrap_or(0);
        let mut lines = Self {
            padded: vec![0.0; lines * stride],
            length,
            inner,
            stride,
        };
        lines.each(|padded, at| *padded = data[at]);
        lines
    }

    fn write(mut self, data: &mut [f32]) {
        self.each(|padded, at| data[at] = *padded);
    }

    /// Calls `visit` for each element with its position in the tensor.
    fn each(&mut self, mut visit: impl FnMut(&mut f32, usize)) {
        let Self {
            length,
            inner,
            stride,
            ..
        } = *self;
        for (number, line) in self.padded.chunks_mut(stride.max(1)).enumerate() {
            let first = number / inner * length * inner + number % inner;
            for (i, x) in line[..length].iter_mut().enumerate() {
                visit(x, first + i * inner);
            }
        }
    }
}
