//! Packed tensors with borrowed bytes.

use super::codes::bitstream::Reader;
use super::codes::{TensorFactor, with_codec};
use super::decode::Decode;
use super::decode::lanes::{
    DecodeEights, DecodeLines, ExponentLanes, Lanes, Nvfp4Lanes, PairLanes,
};
use super::decode::rows::DecodeRange;
use super::number::DecodeNumber;
use super::packed::Packed;
use super::plan::{Plan, elements_shape, scales_shape};
use crate::format::BlockFormat;
use crate::pack::PackError;
use crate::quantize::layout::{Layout, Runs};
use alloc::{vec, vec::Vec};
use core::ops::Range;
use microscaling_processor::instruction_set::dispatch;

/// A packed tensor with borrowed bytes, for example from a mapped file: a [`Packed`] without a copy.
///
/// ```
/// use microscaling::{BlockFormat, PackedView};
///
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// // Two rows of 32: 1 and then zeros, times 1 and times 2^2.
/// let (mut elements, scales) = ([0; 32], [127, 129]);
/// (elements[0], elements[16]) = (0x02, 0x02);
/// let packed = PackedView::new(mxfp4, &[2, 32], 1, None, &scales, &elements)?;
/// let mut row = [0.0_f32; 32];
/// packed.decode_into(1..2, &mut row)?;
/// assert_eq!(row[..2], [4.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackedView<'a> {
    pub(super) format: BlockFormat,
    pub(super) shape: &'a [usize],
    pub(super) axis: usize,
    /// As a pattern.
    pub(super) tensor_scale: Option<u32>,
    /// As a pattern, see [`Packed::with_divisor`].
    pub(super) divisor: Option<u32>,
    pub(super) scales: &'a [u8],
    pub(super) elements: &'a [u8],
}

impl<'a> PackedView<'a> {
    /// A packed tensor of these parts. They are checked here, once; every element code and every scale has a value.
    ///
    /// # Errors
    /// The errors of [`Packed::from_parts`].
    pub fn new(
        format: BlockFormat,
        shape: &'a [usize],
        axis: usize,
        tensor_scale: Option<f32>,
        scales: &'a [u8],
        elements: &'a [u8],
    ) -> Result<Self, PackError> {
        let plan = Plan::new(&format, shape, axis)?;
        if scales.len() != plan.scales_len {
            return Err(PackError::ScalesLength {
                shape: shape.to_vec(),
                expected: plan.scales_len,
                got: scales.len(),
            });
        }
        if elements.len() != plan.elements_len {
            return Err(PackError::ElementsLength {
                shape: shape.to_vec(),
                expected: plan.elements_len,
                got: elements.len(),
            });
        }
        plan.check_padding(&format, scales, elements)?;
        let expected = format.tensor_scale;
        if tensor_scale.is_some() != expected {
            return Err(PackError::TensorScale { expected });
        }
        Ok(Self {
            format,
            shape,
            axis,
            tensor_scale: tensor_scale.map(f32::to_bits),
            divisor: None,
            scales,
            elements,
        })
    }

    /// The format.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// The lengths of the tensor's axes.
    pub const fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The axis along which blocks lie.
    pub const fn axis(&self) -> usize {
        self.axis
    }

    /// The tensor scale, if the format has one.
    pub fn tensor_scale(&self) -> Option<f32> {
        self.tensor_scale.map(f32::from_bits)
    }

    /// The number that scales are divided by, see [`Packed::with_divisor`].
    pub fn divisor(&self) -> Option<f32> {
        self.divisor.map(f32::from_bits)
    }

    /// How the tensor scales the scales of its blocks.
    fn tensor_factor(&self) -> TensorFactor {
        match (self.divisor, self.tensor_scale) {
            (Some(divisor), _) => TensorFactor::Divisor(divisor),
            (None, Some(factor)) => TensorFactor::Factor(factor),
            (None, None) => TensorFactor::ONE,
        }
    }

    /// The scales, as [`Packed::scales`] are.
    pub const fn scales(&self) -> &'a [u8] {
        self.scales
    }

    /// The shape of the scales, see [`Packed::scales_shape`].
    pub fn scales_shape(&self) -> Vec<usize> {
        match self.scales {
            // Without elements the other lengths may be such that their product overflows.
            [] => vec![0],
            _ => scales_shape(&self.format, self.shape, self.axis),
        }
    }

    /// The element codes, as [`Packed::elements`] are.
    pub const fn elements(&self) -> &'a [u8] {
        self.elements
    }

    /// The codes, one for each element, in row-major order.
    pub fn codes(&self) -> Vec<u32> {
        let mut codes = vec![0; self.plan().count];
        if !codes.is_empty() {
            Reader::new(self.elements, 0, self.format.element_bits()).get(&mut codes);
        }
        codes
    }

    /// The shape of the element codes, see [`Packed::elements_shape`].
    pub fn elements_shape(&self) -> Vec<usize> {
        elements_shape(self.shape, self.format.element_bits(), self.elements.len())
    }

    /// A copy with its own bytes.
    pub fn to_packed(&self) -> Packed {
        Packed::of_view(self)
    }

    /// The number of rows: the product of all axes but the last one. 0 if the tensor has no elements.
    pub fn rows(&self) -> usize {
        match self.shape.contains(&0) {
            true => 0,
            false => self.shape[..self.shape.len() - 1].iter().product(),
        }
    }

    fn plan(&self) -> Plan {
        Plan::new(&self.format, self.shape, self.axis)
            .expect("what a packed tensor is made of was checked when it was made")
    }

    /// The tensor, in row-major order; see [`Packed::decode`].
    pub fn decode(&self) -> Vec<f32> {
        let plan = self.plan();
        let mut data = vec![0.0; plan.count];
        if plan.count == 0 {
            return data;
        }
        let runs = Runs::of(plan.layout);
        let all = runs.all(&data);
        runs.share(&mut data, all, &|data, at, start| {
            let start = start as usize;
            if self.decode_eights(&plan, data, at, start) {
                return;
            }
            with_codec!(self.format, self.tensor_factor(), codec => dispatch(Decode {
                job: plan.job(codec, self.format.element_bits()),
                data,
                at,
                scales: &self.scales[plan.records_before(start)..],
                elements: self.elements,
                start,
            }));
        });
        data
    }

    /// Decodes some rows, on the calling thread. A row lies along the last axis, and `out` gets `rows.len()` rows in
    /// row-major order. The numbers equal [`decode`](Self::decode)'s, rounded half to even if `T` is not `f32`.
    ///
    /// Vector instructions decode rows of blocks along the last axis or the axis before, if the last axis' length is a multiple of eight.
    /// They do so for MX with int8 or with float elements of at most 8 bits, for NVFP4, and for the microexponents `mx4`, `mx6` and
    /// `mx9`.
    ///
    /// # Errors
    /// * [`PackError::Rows`]: the range ends behind the last row, or before it begins.
    /// * [`PackError::RowsLength`]: `out` is not as long as those rows.
    pub fn decode_into<T: DecodeNumber>(
        &self,
        rows: Range<usize>,
        out: &mut [T],
    ) -> Result<(), PackError> {
        if rows.start > rows.end || rows.end > self.rows() {
            return Err(PackError::Rows {
                start: rows.start,
                end: rows.end,
                rows: self.rows(),
            });
        }
        let width = self.shape.last().copied().unwrap_or(0);
        // A row of no tensor may be any length.
        let expected = rows.len().checked_mul(width).unwrap_or(0);
        if out.len() != expected {
            return Err(PackError::RowsLength {
                rows: rows.len(),
                expected,
                got: out.len(),
            });
        }
        if expected == 0 {
            return Ok(());
        }
        let plan = self.plan();
        let range = rows.start * width..rows.end * width;
        let Layout { axis, inner, .. } = plan.layout;
        // Rows begin and end where blocks do, or are lines of blocks side by side.
        let whole = match inner {
            1 => width.is_multiple_of(axis),
            _ => inner == width,
        };
        let at = range.start / inner % axis;
        if whole && self.decode_eights(&plan, out, at, range.start) {
            return Ok(());
        }
        with_codec!(self.format, self.tensor_factor(), codec => dispatch(DecodeRange {
            job: plan.job(codec, self.format.element_bits()),
            range,
            data: out,
            scales: self.scales,
            elements: self.elements,
        }));
        Ok(())
    }

    /// Decodes whole blocks, or whole lines of blocks side by side, if they are such that there is a way by eights. The data begin at position
    /// `start` of the tensor and `at` of its axis.
    fn decode_eights<T: DecodeNumber>(
        &self,
        plan: &Plan,
        data: &mut [T],
        at: usize,
        start: usize,
    ) -> bool {
        let layout = plan.layout;
        let eights = match layout.inner {
            1 => {
                layout.pool.is_none()
                    && layout.axis.is_multiple_of(8)
                    && layout.block.is_multiple_of(8)
            }
            inner => inner.is_multiple_of(8),
        };
        if !eights {
            return false;
        }
        let part = BlockSpan {
            view: self,
            plan,
            data,
            at,
            start,
        };
        let format = &self.format;
        let bits = format.element_bits();
        if let Some(codec) = PairLanes::of(format) {
            match bits {
                3 => part.decode::<_, 3>(codec),
                5 => part.decode::<_, 5>(codec),
                8 => part.decode::<_, 8>(codec),
                _ => return false,
            }
        } else if let Some(codec) = ExponentLanes::of(format) {
            match bits {
                4 => part.decode::<_, 4>(codec),
                6 => part.decode::<_, 6>(codec),
                8 => part.decode::<_, 8>(codec),
                _ => return false,
            }
        } else if let Some(codec) = Nvfp4Lanes::of(format, self.tensor_factor()) {
            part.decode::<_, 4>(codec);
        } else {
            return false;
        }
        true
    }
}

/// Some blocks of a tensor that follow each other, or some lines of blocks side by side.
struct BlockSpan<'a, T> {
    view: &'a PackedView<'a>,
    plan: &'a Plan,
    data: &'a mut [T],
    at: usize,
    start: usize,
}

impl<T: DecodeNumber> BlockSpan<'_, T> {
    fn decode<C: Lanes, const BITS: usize>(self, lanes: C) {
        let job = self.plan.job(lanes, BITS as u32);
        let scales = &self.view.scales[self.plan.records_before(self.start)..];
        let elements = &self.view.elements[self.start / 8 * BITS..];
        match job.layout.inner {
            1 => dispatch(DecodeEights::<C, T, BITS> {
                lanes: job.codec,
                axis: job.layout.axis,
                block: job.layout.block,
                record: job.record,
                data: self.data,
                at: self.at,
                scales,
                elements,
            }),
            _ => dispatch(DecodeLines::<C, T, BITS> {
                job,
                data: self.data,
                at: self.at,
                scales,
                elements,
            }),
        }
    }
}
