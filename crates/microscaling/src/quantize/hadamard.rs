//! The random Hadamard transform: a rotation that spreads outliers over their block.

mod blocks;
mod signs;

pub use self::signs::Signs;

use self::blocks::Transform;
use super::layout::{BlockShape, Layout, Runs, checked_layout};
use crate::format::FormatError;
use crate::quantize::QuantizeError;
use crate::round::bits::{MANTISSA_BITS, ONE};
use crate::round::words::{Int, Word};
use alloc::vec::Vec;
use core::f32::consts::FRAC_1_SQRT_2;
use core::ops::Range;
use microscaling_processor::instruction_set::{Level, at_level};

/// The random Hadamard transform of both operands of a product along the axis that they share (Tseng, Yu and Park,
/// "Training LLMs with MXFP4", AISTATS 2025). The transform spreads outliers over their block, so quantization loses
/// less. In exact arithmetic the product does not change.
///
/// A block x of n consecutive elements along an axis becomes H · (s ∘ x). H is the Hadamard matrix of
/// order n in Sylvester's order, times 1/√n, which makes it orthonormal. s are [`Signs`], random or the same
/// for every block. The [inverse](Self::inverse) makes it s ∘ (H · x), with the transposed matrix.
///
/// If the block size does not divide the axis, the axis ends with one block for each power of two in the rest, the
/// largest first: 24 = 16 + 8. The product does not change, because both operands have this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RandomHadamard {
    /// Elements in a block, one of [`BLOCK_SIZES`](Self::BLOCK_SIZES).
    pub block_size: usize,
}

impl RandomHadamard {
    /// Allowed values of [`block_size`](Self::block_size).
    pub const BLOCK_SIZES: [usize; 4] = [16, 32, 64, 128];

    /// Checks the block size.
    ///
    /// # Errors
    /// [`FormatError::OneOf`] unless it is one of [`BLOCK_SIZES`](Self::BLOCK_SIZES).
    pub const fn validate(&self) -> Result<(), FormatError> {
        match self.block_size {
            16 | 32 | 64 | 128 => Ok(()),
            got => Err(FormatError::OneOf {
                format: "random Hadamard transform",
                field: "block_size",
                allowed: &Self::BLOCK_SIZES,
                got,
            }),
        }
    }

    /// Transforms a tensor in place along `axis`. `data` are the elements in row-major order without
    /// gaps, `shape` the lengths of the axes.
    ///
    /// In float32: an element is multiplied by its sign and the 1/√n of its block, then sums and
    /// differences are formed at distance 1, 2, 4 … n/2. That order is fixed, so that results depend
    /// neither on the number of threads nor on the processor, nor on whether the thread flushes subnormal numbers.
    /// Large tensors are worked on by the threads of the current rayon pool (feature `rayon`). NaN and Inf make every element of their
    /// block NaN or Inf.
    ///
    /// # Errors
    /// The errors of [`BlockFormat::quantize`](crate::BlockFormat::quantize). After an error the data are unchanged.
    pub fn transform(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        signs: impl Into<Signs>,
    ) -> Result<(), QuantizeError> {
        self.apply(data, shape, axis, signs.into(), false)
    }

    /// Undoes [`transform`](Self::transform) by the same signs: multiplies by the transposed matrix, the inverse in exact
    /// arithmetic.
    ///
    /// In float32: an element is multiplied by the 1/√n of its block, then sums and differences are formed in the same order,
    /// then the element takes its sign. Everything else is as in `transform`.
    ///
    /// # Errors
    /// The errors of [`transform`](Self::transform). After an error the data are unchanged.
    pub fn inverse(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        signs: impl Into<Signs>,
    ) -> Result<(), QuantizeError> {
        self.apply(data, shape, axis, signs.into(), true)
    }

    /// Transforms a tensor in place, or undoes the transform.
    fn apply(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        signs: Signs,
        inverse: bool,
    ) -> Result<(), QuantizeError> {
        self.validate()?;
        let layout = checked_layout(data, shape, axis, BlockShape::line(self.block_size))?;
        if data.is_empty() {
            return Ok(());
        }
        let factors = self.line_factors(layout.axis, signs, inverse);
        transform_blocks(data, layout, factors.of(0..layout.axis));
        Ok(())
    }

    /// [`transform`](Self::transform) of a part of a tensor, seen as [outer, axis, inner], or [`inverse`](Self::inverse), by the
    /// [factors](Self::line_factors) of the places on the axis where the part lies. The part begins and ends where blocks do.
    #[doc(hidden)]
    pub fn transform_part(
        &self,
        data: &mut [f32],
        inner: usize,
        factors: &LineFactors,
        places: Range<usize>,
    ) {
        let axis = places.len();
        let layout = Layout {
            axis,
            inner,
            block: self.block_size.min(axis),
            pool: None,
        };
        transform_blocks(data, layout, factors.of(places));
    }

    /// The factors of the elements of an axis, for the transform or for its inverse.
    #[doc(hidden)]
    pub fn line_factors(&self, axis: usize, signs: Signs, inverse: bool) -> LineFactors {
        let mut before = self.factors(axis);
        let signs = signs.bits(axis, self.block_size).into_iter();
        let after = match inverse {
            true => signs.map(f32::from_bits).collect(),
            false => {
                for (factor, sign) in before.iter_mut().zip(signs) {
                    *factor = f32::from_bits(factor.to_bits() | sign);
                }
                Vec::new()
            }
        };
        LineFactors { before, after }
    }

    /// 1/√n of the blocks that the elements of an axis are in.
    fn factors(&self, axis: usize) -> Vec<f32> {
        let mut factors = Vec::with_capacity(axis);
        for start in (0..axis).step_by(self.block_size) {
            for piece in powers_of_two(self.block_size.min(axis - start)) {
                factors.extend(
                    piece
                        .clone()
                        .map(|_| f32::from_bits(inverse_root(piece.len() as u32))),
                );
            }
        }
        factors
    }
}

/// The factors of the elements of an axis in the order in which they apply.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct LineFactors {
    /// Before the sums and differences: 1/√n of the block, with the sign if the transform is not undone.
    before: Vec<f32>,
    /// After them: the sign if the transform is undone, else none.
    after: Vec<f32>,
}

impl LineFactors {
    /// The factors of these places, before and after.
    fn of(&self, places: Range<usize>) -> [&[f32]; 2] {
        let after = match self.after.is_empty() {
            true => &[],
            false => &self.after[places.clone()],
        };
        [&self.before[places], after]
    }
}

/// Transforms blocks by the factors of the elements of an axis before the sums and differences, and the optional signs after
/// them.
fn transform_blocks(data: &mut [f32], layout: Layout, [factors, signs]: [&[f32]; 2]) {
    let runs = Runs::of(layout);
    let all = runs.all(data);
    runs.share(data, all, &|data, at, _| {
        at_level(|level| {
            level.run(Transform {
                layout,
                factors,
                signs,
                data,
                at,
                has_long_vectors: level > Level::Baseline,
            });
        });
    });
}

/// Splits a length into powers of two, the largest first.
#[inline(always)]
fn powers_of_two(length: usize) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let power = 1 << (length - at).checked_ilog2()?;
        at += power;
        Some(at - power..at)
    })
}

/// The pattern of 1/√n of a power of two up to 2^16.
#[inline]
pub fn inverse_root<W: Word>(n: W) -> W {
    let exponent = n.log2().to_word();
    let is_even = (exponent & 1.into()).equals(0.into());
    let root = W::select(is_even, ONE.into(), FRAC_1_SQRT_2.to_bits().into());
    root - ((exponent >> 1.into()) << (MANTISSA_BITS as u32).into())
}
