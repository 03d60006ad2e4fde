//! Packed tensors: the bytes that a format really takes.

use super::bitstream;
use super::blocks::{Decode, Encode, Job};
use super::codes::{MxCodec, Nvfp4Codec};
use crate::quantize::instruction_set::dispatch;
use crate::quantize::largest::largest;
use crate::quantize::layout::{Layout, Runs, check_length, count, layout};
use crate::quantize::rules::is_large;
use crate::quantize::threads::{PARALLEL_THRESHOLD, join, threads};
use crate::round::bits::{ABS, INFINITY};
use crate::round::with_rule;
use crate::{BlockFormat, PackError, RandomStream, Rounding};
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// A tensor as scales and packed element codes, in any [`BlockFormat`]. The byte layout is in the
/// crate's README.
///
/// What [`decode`](Self::decode) gives is what [`BlockFormat::quantize`] makes of the tensor, bit for bit,
/// with one exception: the integer elements, two's complement, have no −0; where quantizing gives −0 they
/// give 0. And one format cannot say all: [`encode`](Self::encode) refuses a NaN or Inf in BFP.
///
/// ```
/// use microscaling::{BlockFormat, Packed, RandomStream, Rounding};
///
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// let tensor = [1.0, 2.4, -5.1, 7.9];
/// let packed = Packed::encode(mxfp4, &tensor, &[4], 0, Rounding::Even, RandomStream::new(0, 0))?;
/// assert_eq!(packed.scales(), [127]); // 2^0
/// assert_eq!(packed.elements(), [0x42, 0x7f]); // codes 2, 4, f, 7
/// assert_eq!(packed.decode(), [1.0, 2.0, -6.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Packed {
    format: BlockFormat,
    shape: Vec<usize>,
    axis: usize,
    /// As a pattern.
    tensor_scale: Option<u32>,
    scales: Vec<u8>,
    elements: Vec<u8>,
}

/// Where the codes of a tensor lie.
struct Plan {
    /// Number of elements. None of the other numbers means anything if it is 0.
    count: usize,
    layout: Layout,
    /// Bytes of a block's record in the scales.
    record: usize,
    scales_len: usize,
    elements_len: usize,
}

impl Plan {
    fn new(format: &BlockFormat, shape: &[usize], axis: usize) -> Result<Self, PackError> {
        format.validate().map_err(crate::QuantizeError::from)?;
        let layout = layout(shape, axis, format.block_size())?;
        let count = count(shape)?;
        let overflow = || PackError::SizeOverflow {
            shape: shape.to_vec(),
        };
        let elements_len =
            bitstream::byte_len(count, format.element_bits()).ok_or_else(overflow)?;
        let record = record_len(format, layout.block).ok_or_else(overflow)?;
        let scales_len = if count == 0 {
            0
        } else {
            let blocks = count / layout.axis * layout.axis.div_ceil(layout.block);
            blocks.checked_mul(record).ok_or_else(overflow)?
        };
        Ok(Self {
            count,
            layout,
            record,
            scales_len,
            elements_len,
        })
    }

    /// How many bytes the records before a position have that begins a run.
    fn records_before(&self, start: usize) -> usize {
        let Layout { axis, inner, block } = self.layout;
        let (outer, at) = (start / (axis * inner), start / inner % axis);
        (outer * axis.div_ceil(block) + at / block) * inner * self.record
    }

    fn job<C>(&self, codec: C, bits: u32) -> Job<C> {
        Job {
            codec,
            layout: self.layout,
            record: self.record,
            bits,
        }
    }
}

/// What pieces of a tensor are written to.
struct Bytes<'a> {
    scales: &'a mut [u8],
    elements: &'a mut [u8],
}

/// Shares consecutive runs among threads: calls `work` with the position of a piece on its axis and in the
/// tensor, and with its bytes.
fn share(
    plan: &Plan,
    runs: Runs,
    range: Range<usize>,
    bits: u32,
    bytes: Bytes<'_>,
    work: &(impl Fn(usize, usize, Bytes<'_>) + Sync),
) {
    let start = runs.start(range.start);
    let large = runs.start(range.end) - start >= PARALLEL_THRESHOLD && threads() > 1;
    let byte = |run: &usize| (runs.start(*run) - start).is_multiple_of(8) || bits.is_multiple_of(8);
    // Where a code begins a byte.
    let mut middles = range.start + range.len() / 2..range.end;
    let Some(middle) = middles
        .find(byte)
        .filter(|middle| large && *middle > range.start)
    else {
        return work(runs.at(range.start), start, bytes);
    };
    let records = plan.records_before(runs.start(middle)) - plan.records_before(start);
    let (low_scales, high_scales) = bytes.scales.split_at_mut(records);
    let codes = bitstream::byte_len(runs.start(middle) - start, bits)
        .expect("less than what all elements take");
    let (low_elements, high_elements) = bytes.elements.split_at_mut(codes);
    let low = Bytes {
        scales: low_scales,
        elements: low_elements,
    };
    let high = Bytes {
        scales: high_scales,
        elements: high_elements,
    };
    join(
        || share(plan, runs, range.start..middle, bits, low, work),
        || share(plan, runs, middle..range.end, bits, high, work),
    );
}

/// Bytes of the record of a block of `block` elements; `None` if it overflows.
fn record_len(format: &BlockFormat, block: usize) -> Option<usize> {
    match format {
        BlockFormat::Microexponent(format) => {
            let sub_blocks = block.div_ceil(format.sub_block_size);
            bitstream::byte_len(sub_blocks, format.shift_bits)?.checked_add(1)
        }
        _ => Some(1),
    }
}

/// Runs `$body` with `$codec` bound to the [`BlockCodec`](crate::pack::codes::BlockCodec) of a [`BlockFormat`].
macro_rules! with_codec {
    ($format:expr, $tensor_scale:expr, $codec:ident => $body:expr) => {
        match $format {
            BlockFormat::Mx(format) => {
                let $codec = MxCodec::of(&format);
                $body
            }
            BlockFormat::Microexponent(format) => {
                let $codec = format;
                $body
            }
            BlockFormat::Bfp(format) => {
                let $codec = format;
                $body
            }
            BlockFormat::Nvfp4(_) if is_large($tensor_scale) => {
                let $codec = Nvfp4Codec::<false>::of($tensor_scale);
                $body
            }
            BlockFormat::Nvfp4(_) => {
                let $codec = Nvfp4Codec::<true>::of($tensor_scale);
                $body
            }
        }
    };
}

impl Packed {
    /// Quantizes and packs a tensor; `data` stay as they are. The arguments are those of
    /// [`BlockFormat::quantize`].
    ///
    /// # Errors
    /// * [`PackError::Quantize`]: what [`BlockFormat::quantize`] refuses.
    /// * [`PackError::NotFinite`]: a NaN or Inf in BFP, which passes them but has no code for them.
    /// * [`PackError::SizeOverflow`]: the number of bytes overflows.
    pub fn encode(
        format: BlockFormat,
        data: &[f32],
        shape: &[usize],
        axis: usize,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<Self, PackError> {
        let plan = Plan::new(&format, shape, axis)?;
        check_length(data, shape)?;
        if let BlockFormat::Bfp(_) = format
            && largest(data) >= INFINITY
            && let Some(position) = data.iter().position(|x| !x.is_finite())
        {
            return Err(PackError::NotFinite {
                format: "bfp",
                position,
            });
        }
        let tensor_scale = match format {
            BlockFormat::Nvfp4(format) if format.tensor_scale => {
                Some(format.tensor_scale_of(largest(data) & ABS))
            }
            _ => None,
        };
        let mut packed = Self {
            format,
            shape: shape.to_vec(),
            axis,
            tensor_scale: tensor_scale.map(f32::to_bits),
            scales: vec![0; plan.scales_len],
            elements: vec![0; plan.elements_len],
        };
        if plan.count == 0 {
            return Ok(packed);
        }
        let runs = Runs::of(plan.layout);
        let bytes = Bytes {
            scales: &mut packed.scales,
            elements: &mut packed.elements,
        };
        with_codec!(format, tensor_scale.unwrap_or(1.0), codec => with_rule!(rounding, rule => {
            let job = plan.job(codec, format.element_bits());
            share(&plan, runs, runs.all(data), job.bits, bytes, &|at, start, bytes| {
                dispatch(Encode {
                    job,
                    rule,
                    stream,
                    data: &data[start..],
                    at,
                    start: start as u64,
                    scales: bytes.scales,
                    elements: bytes.elements,
                });
            });
        }));
        Ok(packed)
    }

    /// The tensor, in row-major order. The length is the product of the shape.
    ///
    /// Every code has a value, also those that [`encode`](Self::encode) does not write: an exponent of
    /// 255 and E4M3's NaN make their block NaN, as does a tensor scale that is negative or not finite;
    /// element codes mean what [`ElementFormat::decode`](crate::ElementFormat::decode) says. A product
    /// beyond float32 is ±Inf; one too fine for it is truncated in MX blocks.
    pub fn decode(&self) -> Vec<f32> {
        let plan = Plan::new(&self.format, &self.shape, self.axis)
            .expect("what a packed tensor is made of was checked when it was made");
        let mut data = vec![0.0; plan.count];
        if plan.count == 0 {
            return data;
        }
        let runs = Runs::of(plan.layout);
        let all = runs.all(&data);
        with_codec!(self.format, self.tensor_scale().unwrap_or(1.0), codec => {
            let job = plan.job(codec, self.format.element_bits());
            runs.share(&mut data, all, &|data, at, start| {
                dispatch(Decode {
                    job,
                    data,
                    at,
                    scales: &self.scales[plan.records_before(start as usize)..],
                    elements: &self.elements,
                    start: start as usize,
                });
            });
        });
        data
    }

    /// A packed tensor from its parts, for example from a file.
    ///
    /// Nothing is allocated but a copy of the shape, and what [`decode`](Self::decode) will is at most 16
    /// times `elements`.
    ///
    /// # Errors
    /// * [`PackError::Quantize`]: the format, the axis or the shape are not valid.
    /// * [`PackError::SizeOverflow`]: a number of bytes overflows.
    /// * [`PackError::ScalesLength`], [`PackError::ElementsLength`]: there are more or fewer bytes than
    ///   the format needs for the shape.
    /// * [`PackError::TensorScale`]: there is one although the format has none, or the other way round.
    pub fn from_parts(
        format: BlockFormat,
        shape: &[usize],
        axis: usize,
        tensor_scale: Option<f32>,
        scales: Vec<u8>,
        elements: Vec<u8>,
    ) -> Result<Self, PackError> {
        Self::check_parts(&format, shape, axis, scales.len(), elements.len())?;
        let expected = matches!(format, BlockFormat::Nvfp4(format) if format.tensor_scale);
        if tensor_scale.is_some() != expected {
            return Err(PackError::TensorScale { expected });
        }
        Ok(Self {
            format,
            shape: shape.to_vec(),
            axis,
            tensor_scale: tensor_scale.map(f32::to_bits),
            scales,
            elements,
        })
    }

    /// That so many bytes are a tensor of this format and shape.
    pub(crate) fn check_parts(
        format: &BlockFormat,
        shape: &[usize],
        axis: usize,
        scales: usize,
        elements: usize,
    ) -> Result<(), PackError> {
        let plan = Plan::new(format, shape, axis)?;
        if scales != plan.scales_len {
            return Err(PackError::ScalesLength {
                shape: shape.to_vec(),
                expected: plan.scales_len,
                got: scales,
            });
        }
        if elements != plan.elements_len {
            return Err(PackError::ElementsLength {
                shape: shape.to_vec(),
                expected: plan.elements_len,
                got: elements,
            });
        }
        Ok(())
    }

    /// The format.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// The lengths of the tensor's axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The axis that blocks lie along.
    pub const fn axis(&self) -> usize {
        self.axis
    }

    /// The tensor scale, of NVFP4 with one.
    pub fn tensor_scale(&self) -> Option<f32> {
        self.tensor_scale.map(f32::from_bits)
    }

    /// The scales: one record a block, in row-major order of the tensor with a block as one element.
    pub fn scales(&self) -> &[u8] {
        &self.scales
    }

    /// The shape of the scales: that of the tensor with the number of blocks for the length of the axis,
    /// and one more axis for the record of a block where that is more than a byte.
    pub fn scales_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        let block = match self.format.block_size() {
            0 => shape[self.axis],
            size => size.min(shape[self.axis]),
        };
        shape[self.axis] = shape[self.axis].div_ceil(block.max(1));
        match record_len(&self.format, block) {
            Some(record) if record > 1 => shape.push(record),
            _ => {}
        }
        shape
    }

    /// The element codes in row-major order, low bits first, without gaps; the last byte is filled up
    /// with zeros.
    pub fn elements(&self) -> &[u8] {
        &self.elements
    }
}
