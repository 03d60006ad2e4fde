//! Dot products of packed rows.

use super::packed::with_codec;
use super::plan::Plan;
use super::rows::DecodeRange;
use super::view::PackedView;
use crate::quantize::instruction_set::{Kernel, dispatch};
use crate::quantize::rules::is_large;
use crate::round::bits::{self, ABS, INFINITY, SIGN};
use crate::{BlockFormat, PackError};
use core::ops::Range;

/// Elements that are decoded at a time: whole blocks of the usual lengths.
const PIECE: usize = 512;

/// Sums that go on side by side.
const SUMS: usize = 8;

impl PackedView<'_> {
    /// The dot product of a row of this tensor and a row, as long, of another tensor, of any format. Blocks of both must lie
    /// along their last axes, and not be square.
    ///
    /// It is Dot of OCP MX v1.0, section 6.1, whose internal precision and order the implementation
    /// defines. Here the elements are the numbers that [`decode`](Self::decode) gives, scales included. Their products are
    /// exact in float64. The product of elements i is added to sum number i mod 8, in the order of i, from +0 on, in float64.
    /// The eight sums are joined as ((s₀ + s₄) + (s₂ + s₆)) + ((s₁ + s₅) + (s₃ + s₇)), and that is rounded to float32, half to
    /// even, with subnormals, beyond the largest number to ±Inf. Results do not depend on the processor.
    ///
    /// The result is NaN (`f32::NAN`) if an element is NaN, or an Inf meets a 0, or Infs of both signs are added.
    ///
    /// # Errors
    /// * [`PackError::Rows`]: one of the tensors does not have the row.
    /// * [`PackError::DotAxis`]: blocks of one of the tensors do not lie along its last axis alone.
    /// * [`PackError::DotWidth`]: one of the rows is longer.
    pub fn dot_rows(
        &self,
        row: usize,
        other: &PackedView<'_>,
        other_row: usize,
    ) -> Result<f32, PackError> {
        let lhs = Row::of(self, row)?;
        let rhs = Row::of(other, other_row)?;
        if lhs.width != rhs.width {
            return Err(PackError::DotWidth {
                lhs: lhs.width,
                rhs: rhs.width,
            });
        }
        let mut sums = [0.0; SUMS];
        let mut pieces = [[0.0; PIECE]; 2];
        for start in (0..lhs.width).step_by(PIECE) {
            let columns = start..lhs.width.min(start + PIECE);
            let [a, b] = pieces.each_mut().map(|piece| &mut piece[..columns.len()]);
            lhs.decode(columns.clone(), a);
            rhs.decode(columns, b);
            dispatch(Add {
                lhs: a,
                rhs: b,
                sums: &mut sums,
            });
        }
        let [a, b, c, d, e, f, g, h] = sums;
        let sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
        if sum.is_nan() {
            return Ok(f32::NAN);
        }
        let sign = if sum.is_sign_negative() { SIGN } else { 0 };
        Ok(f32::from_bits(sign | bits::narrow(sum.abs())))
    }
}

/// A row of blocks.
struct Row<'a> {
    view: &'a PackedView<'a>,
    plan: Plan,
    /// Position of its first element in the tensor.
    start: usize,
    width: usize,
}

impl<'a> Row<'a> {
    fn of(view: &'a PackedView<'a>, row: usize) -> Result<Self, PackError> {
        if row >= view.rows() {
            return Err(PackError::Rows {
                start: row,
                end: row.saturating_add(1),
                rows: view.rows(),
            });
        }
        let last = view.shape.len() - 1;
        if view.axis != last || view.format.is_square() {
            return Err(PackError::DotAxis {
                shape: view.shape.to_vec(),
                axis: view.axis,
            });
        }
        let width = view.shape[last];
        Ok(Self {
            view,
            plan: view.plan(),
            start: row * width,
            width,
        })
    }

    /// The numbers of some columns.
    fn decode(&self, columns: Range<usize>, out: &mut [f32]) {
        let (view, plan) = (self.view, &self.plan);
        let block = plan.layout.block;
        let whole = |column: usize| column == self.width || column.is_multiple_of(block);
        let start = self.start + columns.start;
        if whole(columns.start)
            && whole(columns.end)
            && view.decode_eights(plan, out, columns.start, start)
        {
            return;
        }
        with_codec!(view.format, view.tensor_scale().unwrap_or(1.0), codec => dispatch(DecodeRange {
            job: plan.job(codec, view.format.element_bits()),
            range: start..self.start + columns.end,
            data: out,
            scales: view.scales,
            elements: view.elements,
        }));
    }
}

/// Adds products to the sums.
struct Add<'a> {
    lhs: &'a [f32],
    rhs: &'a [f32],
    sums: &'a mut [f64; SUMS],
}

impl Kernel for Add<'_> {
    #[inline(always)]
    fn run(self) {
        let (lhs, lhs_rest) = self.lhs.as_chunks::<SUMS>();
        let (rhs, rhs_rest) = self.rhs.as_chunks::<SUMS>();
        let mut sums = *self.sums;
        for (lhs, rhs) in lhs.iter().zip(rhs) {
            for lane in 0..SUMS {
                sums[lane] += widened(lhs[lane]) * widened(rhs[lane]);
            }
        }
        for ((sum, a), b) in sums.iter_mut().zip(lhs_rest).zip(rhs_rest) {
            *sum += widened(*a) * widened(*b);
        }
        *self.sums = sums;
    }
}

/// The float64 of a number. Not by a conversion, which would see the thread's flush-to-zero state.
#[inline(always)]
fn widened(x: f32) -> f64 {
    let abs = x.to_bits() & ABS;
    let magnitude = if abs > INFINITY {
        f64::NAN
    } else if abs == INFINITY {
        f64::INFINITY
    } else {
        bits::widen(abs)
    };
    let sign = u64::from(x.to_bits() & SIGN) << 32;
    f64::from_bits(magnitude.to_bits() | sign)
}
