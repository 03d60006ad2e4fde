//! Where the bytes of a packed tensor lie.

use super::codes::bitstream;
use crate::format::{BlockFormat, OuterScale};
use crate::pack::PackError;
use crate::quantize::layout::{Layout, Runs, count, layout};
use alloc::{vec, vec::Vec};
use core::ops::Range;
use microscaling_processor::threads::Divide;

/// Properties that all blocks of a tensor share.
#[derive(Clone, Copy)]
pub(crate) struct PackJob<C> {
    /// By value, because loops without branches need these fields in registers.
    pub(crate) codec: C,
    pub(crate) layout: Layout,
    /// Bytes of a block's record in the scales.
    pub(crate) record: usize,
    /// Bits of a code.
    pub(crate) bits: u32,
}

/// From what each block has to what each column's block has.
#[inline(always)]
pub(super) fn spread<T: Copy>(of_blocks: &mut Vec<T>, layout: &Layout) {
    if let Some(pool) = layout.pool {
        of_blocks.resize(layout.inner, of_blocks[0]);
        pool.spread(of_blocks);
    }
}

/// Where the codes of a tensor lie.
pub(crate) struct Plan {
    /// Number of elements. None of the other numbers means anything if it is 0.
    pub(crate) count: usize,
    pub(crate) layout: Layout,
    /// Bytes of a block's record in the scales.
    record: usize,
    pub(crate) scales_len: usize,
    pub(crate) elements_len: usize,
}

impl Plan {
    pub(crate) fn new(
        format: &BlockFormat,
        shape: &[usize],
        axis: usize,
    ) -> Result<Self, PackError> {
        format
            .validate()
            .map_err(crate::quantize::QuantizeError::from)?;
        let layout = layout(shape, axis, format.block_shape())?;
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
            let Layout {
                axis, inner, block, ..
            } = layout;
            let runs = count / (axis * inner) * axis.div_ceil(block);
            let blocks = runs * layout.blocks(inner);
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
    pub(crate) fn records_before(&self, start: usize) -> usize {
        let Layout {
            axis, inner, block, ..
        } = self.layout;
        let (outer, at) = (start / (axis * inner), start / inner % axis);
        let runs = outer * axis.div_ceil(block) + at / block;
        runs * self.layout.blocks(inner) * self.record
    }

    /// That all bits are zero which no code and no shift has.
    pub(crate) fn check_padding(
        &self,
        format: &BlockFormat,
        scales: &[u8],
        elements: &[u8],
    ) -> Result<(), PackError> {
        let used = |codes: usize, bits: u32| (codes % 8 * bits as usize % 8) as u32;
        if let Some(last) = elements.len().checked_sub(1) {
            check_high_bits(
                "elements",
                elements,
                last,
                used(self.count, format.element_bits()),
            )?;
        }
        let shifts = format.shifts.map(|shifts| {
            let sub_blocks = self.layout.block.div_ceil(shifts.block_size);
            (sub_blocks, shifts.bits)
        });
        let sub_scales = format.sub_scales.map(|sub_scales| {
            let [first, second] = sub_scales.bits(format.block_size);
            (first + second, 1)
        });
        let sub_bits = shifts.or(sub_scales);
        if let Some((count, bits)) = sub_bits {
            let used = used(count, bits);
            for record in 1..=scales.len() / self.record {
                check_high_bits("scales", scales, record * self.record - 1, used)?;
            }
        }
        Ok(())
    }

    pub(crate) fn job<C>(&self, codec: C, bits: u32) -> PackJob<C> {
        PackJob {
            codec,
            layout: self.layout,
            record: self.record,
            bits,
        }
    }
}

/// Consecutive runs of a tensor, and the bytes that they become.
pub(crate) struct Bytes<'a> {
    pub(crate) plan: &'a Plan,
    /// Bits of a code.
    pub(crate) bits: u32,
    pub(crate) runs: Runs,
    pub(crate) range: Range<usize>,
    pub(crate) scales: &'a mut [u8],
    pub(crate) elements: &'a mut [u8],
}

impl Bytes<'_> {
    /// Position of the first run in the tensor.
    pub(crate) fn start(&self) -> usize {
        self.runs.start(self.range.start)
    }
}

impl Divide for Bytes<'_> {
    fn elements(&self) -> usize {
        self.runs.start(self.range.end) - self.start()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let start = self.start();
        let Range { start: first, end } = self.range;
        // Where a code begins a byte.
        let byte = |run: &usize| {
            let elements = self.runs.start(*run) - start;
            elements.is_multiple_of(8) || self.bits.is_multiple_of(8)
        };
        let mut middles = (first + (end - first) / 2).max(first + 1)..end;
        let Some(middle) = middles.find(byte) else {
            return Err(self);
        };
        let Self {
            plan, bits, runs, ..
        } = self;
        let at = runs.start(middle);
        let records = plan.records_before(at) - plan.records_before(start);
        let codes =
            bitstream::byte_len(at - start, bits).expect("less than what all elements take");
        let (low_scales, high_scales) = self.scales.split_at_mut(records);
        let (low_elements, high_elements) = self.elements.split_at_mut(codes);
        let halves = [
            (first..middle, low_scales, low_elements),
            (middle..end, high_scales, high_elements),
        ];
        Ok(halves.map(|(range, scales, elements)| Self {
            plan,
            bits,
            runs,
            range,
            scales,
            elements,
        }))
    }
}

/// Bytes of the code of a block's scale, or of the codes of both.
pub(super) fn scale_bytes(format: &BlockFormat) -> usize {
    let each = format.scale_bits().div_ceil(8) as usize;
    if format.sign_scales { 2 * each } else { each }
}

/// Bytes of an outer scale.
pub(super) fn outer_scale_bytes(outer: OuterScale) -> usize {
    outer.scale.bits().div_ceil(8) as usize
}

/// Bytes of the record of a block of `block` elements; `None` if it overflows.
fn record_len(format: &BlockFormat, block: usize) -> Option<usize> {
    let own = scale_bytes(format);
    if let Some(shifts) = format.shifts {
        let sub_blocks = block.div_ceil(shifts.block_size);
        return bitstream::byte_len(sub_blocks, shifts.bits)?.checked_add(own);
    }
    if let Some(sub_scales) = format.sub_scales {
        // Also of a shorter block, so that the levels have their places.
        let [first, second] = sub_scales.bits(format.block_size);
        return bitstream::byte_len(first + second, 1)?.checked_add(own);
    }
    let Some(outer) = format.outer else {
        return Some(own);
    };
    let scales = block.div_ceil(format.block_size);
    scales
        .checked_mul(own)?
        .checked_add(outer_scale_bytes(outer))
}

/// That all but the low `used` bits of a byte are zero; 0 stands for all 8.
fn check_high_bits(
    part: &'static str,
    bytes: &[u8],
    position: usize,
    used: u32,
) -> Result<(), PackError> {
    let got = bytes[position];
    if used == 0 || got >> used == 0 {
        return Ok(());
    }
    Err(PackError::Padding {
        part,
        position,
        used,
        got,
    })
}

/// The shape of a tensor's codes, with this number of bytes, see
/// [`Packed::elements_shape`](crate::Packed::elements_shape).
pub fn elements_shape(shape: &[usize], bits: u32, bytes: usize) -> Vec<usize> {
    match shape.split_last() {
        // The product of the lengths is not more than 8 times the bytes: it does not overflow. The product of a length and the bits of a
        // code may.
        Some((row, rows)) if bytes > 0 && (row % 8 * bits as usize).is_multiple_of(8) => {
            let mut shape = rows.to_vec();
            shape.push(bytes / rows.iter().product::<usize>());
            shape
        }
        _ => vec![bytes],
    }
}

/// The shape of the scales of a tensor with elements, see [`Packed::scales_shape`](crate::Packed::scales_shape).
pub(crate) fn scales_shape(format: &BlockFormat, shape: &[usize], axis: usize) -> Vec<usize> {
    let mut blocks = shape.to_vec();
    let size = format.group_size();
    if let Some(axes) = format.square_axes(axis) {
        for axis in axes {
            blocks[axis] = blocks[axis].div_ceil(size);
        }
    }
    let block = match size {
        0 => shape[axis],
        size => size.min(shape[axis]),
    };
    if !format.square {
        blocks[axis] = shape[axis].div_ceil(block.max(1));
    }
    match record_len(format, block) {
        Some(record) if record > 1 => blocks.push(record),
        _ => {}
    }
    blocks
}
