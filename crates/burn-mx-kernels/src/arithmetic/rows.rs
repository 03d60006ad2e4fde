//! Rows of numbers: the operations that a reduction needs beside the arithmetic of numbers.

use core::marker::PhantomData;

use super::Arithmetic;

/// Rows, along the axis that a function reduces. Nothing is rounded here but by the closures.
///
/// For slices a row is a run of memory and a value one number. For tensors both are tensors, a value has length 1
/// along the axis and broadcasts, and a closure is called once for all rows.
pub trait Rows {
    /// A number, or one for each row.
    type Value: Clone;
    /// A row that is ours to overwrite.
    type Row;
    /// A row to read.
    type View: ?Sized;
    /// Where a new row goes: memory of its length, or nothing where there is more.
    type Room;

    /// The row, to be read.
    fn view(row: &Self::Row) -> &Self::View;

    /// Replaces every element.
    fn map(&self, row: Self::Row, f: impl Fn(Self::Value) -> Self::Value) -> Self::Row;

    /// Replaces every element by a function of the element and of its counterpart in `other`.
    fn zip(
        &self,
        row: Self::Row,
        other: &Self::View,
        f: impl Fn(Self::Value, Self::Value) -> Self::Value,
    ) -> Self::Row;

    /// A new row of a function of the elements of two.
    fn zip_new(
        &self,
        room: Self::Room,
        lhs: &Self::View,
        rhs: &Self::View,
        f: impl Fn(Self::Value, Self::Value) -> Self::Value,
    ) -> Self::Row;

    /// The sum of `f(x)` in `f32`.
    fn sum(&self, row: &Self::View, f: impl Fn(Self::Value) -> Self::Value) -> Self::Value;

    /// The sum of `f(x, y)` in `f32`.
    fn sum_of_two(
        &self,
        lhs: &Self::View,
        rhs: &Self::View,
        f: impl Fn(Self::Value, Self::Value) -> Self::Value,
    ) -> Self::Value;

    /// The largest element. Rows with a NaN may give any element: callers have to make their results NaN by other ways.
    fn max(&self, row: &Self::View) -> Self::Value;

    /// The number of elements.
    fn length(&self, row: &Self::View) -> usize;

    /// The rounded sum, divided by the count, rounded again.
    #[inline(always)]
    fn mean<A: Arithmetic<Value = Self::Value>>(
        &self,
        arith: &A,
        row: &Self::View,
        f: impl Fn(Self::Value) -> Self::Value,
    ) -> Self::Value {
        let sum = arith.round(self.sum(row, f));
        arith.div_scalar(sum, self.length(row) as f32)
    }

    /// [`mean`](Self::mean) of `f(x, y)`.
    #[inline(always)]
    fn mean_of_two<A: Arithmetic<Value = Self::Value>>(
        &self,
        arith: &A,
        lhs: &Self::View,
        rhs: &Self::View,
        f: impl Fn(Self::Value, Self::Value) -> Self::Value,
    ) -> Self::Value {
        let sum = arith.round(self.sum_of_two(lhs, rhs, f));
        arith.div_scalar(sum, self.length(lhs) as f32)
    }
}

/// Rows that are slices of memory.
#[derive(Default)]
pub(crate) struct SliceRows<'a>(PhantomData<&'a mut [f32]>);

impl<'a> Rows for SliceRows<'a> {
    type Value = f32;
    type Row = &'a mut [f32];
    type View = [f32];
    type Room = &'a mut [f32];

    #[inline(always)]
    fn view<'r>(row: &'r &'a mut [f32]) -> &'r [f32] {
        row
    }

    #[inline(always)]
    fn map(&self, row: &'a mut [f32], f: impl Fn(f32) -> f32) -> &'a mut [f32] {
        for x in row.iter_mut() {
            *x = f(*x);
        }
        row
    }

    #[inline(always)]
    fn zip(&self, row: &'a mut [f32], other: &[f32], f: impl Fn(f32, f32) -> f32) -> &'a mut [f32] {
        debug_assert_eq!(row.len(), other.len());
        for (x, y) in row.iter_mut().zip(other) {
            *x = f(*x, *y);
        }
        row
    }

    #[inline(always)]
    fn zip_new(
        &self,
        room: &'a mut [f32],
        lhs: &[f32],
        rhs: &[f32],
        f: impl Fn(f32, f32) -> f32,
    ) -> &'a mut [f32] {
        debug_assert!(room.len() == lhs.len() && room.len() == rhs.len());
        for (new, (x, y)) in room.iter_mut().zip(lhs.iter().zip(rhs)) {
            *new = f(*x, *y);
        }
        room
    }

    #[inline(always)]
    fn sum(&self, row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
        self.sum_of_two(
            row,
            row,
            #[inline(always)]
            |x, _| f(x),
        )
    }

    #[inline(always)]
    fn sum_of_two(&self, lhs: &[f32], rhs: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
        debug_assert_eq!(lhs.len(), rhs.len());
        match lanes(lhs.len()) {
            SHORT => sum_in_lanes::<SHORT>(lhs, rhs, f),
            MIDDLE => sum_in_lanes::<MIDDLE>(lhs, rhs, f),
            _ => sum_in_lanes::<LONG>(lhs, rhs, f),
        }
    }

    #[inline(always)]
    fn max(&self, row: &[f32]) -> f32 {
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let mut lanes = [f32::NEG_INFINITY; SHORT];
        let (chunks, rest) = row.as_chunks::<SHORT>();
        for chunk in chunks {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane = larger(*lane, *x);
            }
        }
        let lanes = lanes.into_iter().chain(rest.iter().copied());
        lanes.fold(f32::NEG_INFINITY, larger)
    }

    #[inline(always)]
    fn length(&self, row: &[f32]) -> usize {
        row.len()
    }
}

const SHORT: usize = 16;
const MIDDLE: usize = 64;
const LONG: usize = 256;

/// The partial sums of a row of this length, which are as many units of a device. Sum `l` has the elements `l`,
/// `l + lanes`, `l + 2 lanes` and so on, in this order. Then the sums are added in pairs, the first half and the second,
/// until one is left. Vectors and devices add in this order, so the bits are the same everywhere.
pub(crate) fn lanes(length: usize) -> usize {
    match length {
        0..=256 => SHORT,
        257..=1024 => MIDDLE,
        _ => LONG,
    }
}

/// The sum of `f(x, y)` in a number of [`lanes`]. A few lanes at a time, which stay in registers, read the whole row.
#[inline(always)]
fn sum_in_lanes<const LANES: usize>(lhs: &[f32], rhs: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    for (group, lanes) in lanes.as_chunks_mut::<SHORT>().0.iter_mut().enumerate() {
        // Written out: an array's `map` is a dozen functions to compile, for each sum.
        let mut left = lhs.get(group * SHORT..).unwrap_or(&[]);
        let mut right = rhs.get(group * SHORT..).unwrap_or(&[]);
        while let (Some(x), Some(y)) = (left.first_chunk::<SHORT>(), right.first_chunk::<SHORT>()) {
            for (sum, (x, y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
                *sum += f(*x, *y);
            }
            left = left.get(LANES..).unwrap_or(&[]);
            right = right.get(LANES..).unwrap_or(&[]);
        }
        for (sum, (x, y)) in lanes.iter_mut().zip(left.iter().zip(right)) {
            *sum += f(*x, *y);
        }
    }
    sum_of_lanes(lanes)
}

/// By value: what adds them up in place slows the loops before it.
#[inline(always)]
fn sum_of_lanes<const LANES: usize>(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}
