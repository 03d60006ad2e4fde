//! The look at interleaved blocks, side by side.

use crate::round::bits::ABS;
use crate::statistics::lanes::{VECTOR, product, square_of_difference, vector};
use crate::statistics::look::Seen;
use crate::statistics::partial::Partial;
use crate::statistics::scales::Scales;
use core::ops::Range;

/// Calls `look` with the columns from some on, and how many are left, until there are none; it returns how many it looked
/// at.
#[inline(always)]
pub(super) fn each_column<'a>(
    views: Seen<'a>,
    columns: usize,
    mut look: impl FnMut(Seen<'a>, usize) -> usize,
) {
    let mut column = 0;
    while column < columns {
        column += look(views.map(|view| &view[column..]), columns - column);
    }
}

/// Blocks that lie side by side: `rows` rows, `inner` elements apart.
pub(super) struct Interleaved<'a> {
    pub(super) views: Seen<'a>,
    pub(super) rows: usize,
    pub(super) inner: usize,
}

impl Interleaved<'_> {
    /// A row of the first `W` blocks.
    #[inline(always)]
    pub(super) fn row<const W: usize>(&self, view: &[f32], row: usize) -> [f32; W] {
        let start = row * self.inner;
        *view[start..start + W].first_chunk().expect("it is as long")
    }

    /// The elements from which a block's scale follows.
    #[inline(always)]
    fn column(&self, index: usize) -> impl Iterator<Item = f32> + Clone {
        let column = self.views[2][index..].iter().step_by(self.inner);
        column.take(self.rows).copied()
    }

    /// The largest magnitudes of some rows of the first `W` blocks, from which their scales follow.
    #[inline(always)]
    fn maxima<const W: usize>(&self, rows: Range<usize>) -> [u32; W] {
        let mut amax = [0; W];
        for at in rows {
            let x = self.row::<W>(self.views[2], at);
            for (amax, x) in amax.iter_mut().zip(x) {
                *amax = (*amax).max(x.to_bits() & ABS);
            }
        }
        amax
    }

    /// Calls `look` with the rows of each sub-block of the first `W` blocks, and with the patterns of the magnitudes beyond
    /// which elements of them saturate. Returns the patterns of the blocks' scales.
    #[inline(always)]
    fn each_sub_block<const W: usize>(
        &self,
        scales: &Scales,
        mut look: impl FnMut(Range<usize>, &[u32; W]),
    ) -> [u32; W] {
        let amax = self.maxima::<W>(0..self.rows);
        let mut refinement = amax;
        if scales.0.looks_twice() {
            for (i, refinement) in refinement.iter_mut().enumerate() {
                *refinement = scales.0.refinement(amax[i], self.column(i));
            }
        }
        let sub_block = scales.0.sub_block().min(self.rows);
        let mut of_blocks = [0; W];
        let mut at = 0;
        while at < self.rows {
            let rows = at..(at + sub_block).min(self.rows);
            if scales.0.first_sub_block().is_some() {
                for (i, refinement) in refinement.iter_mut().enumerate() {
                    *refinement = scales
                        .0
                        .refinement_of_sub_block(at / sub_block, self.column(i));
                }
            } else if sub_block < self.rows {
                refinement = self.maxima::<W>(rows.clone());
            }
            let mut limits = [0; W];
            scales.limits_and_scales([&amax, &refinement], [&mut limits, &mut of_blocks]);
            at = rows.end;
            look(rows, &limits);
        }
        of_blocks
    }

    /// Looks at the first `W` blocks: at what needs the block. Returns `W`.
    #[inline(always)]
    pub(super) fn look<const W: usize>(
        &self,
        partial: &mut Partial,
        scales: Option<&Scales>,
    ) -> usize {
        let [x, q, _] = self.views;
        let [mut power, mut error] = [[0.0; W]; 2];
        if W < VECTOR {
            for at in 0..self.rows {
                let (x, q) = (self.row::<W>(x, at), self.row::<W>(q, at));
                for i in 0..W {
                    let (x, q) = (f64::from(x[i]), f64::from(q[i]));
                    power[i] += product(x, x);
                    error[i] += square_of_difference(x, q);
                }
            }
        }
        // One vector of blocks after the other: of more at once the compiler makes less.
        let vectors = power.as_chunks_mut::<VECTOR>().0.iter_mut();
        let vectors = vectors.zip(error.as_chunks_mut().0);
        for (i, (power, error)) in vectors.enumerate() {
            let [mut powers, mut errors] = [[0.0; VECTOR]; 2];
            for at in 0..self.rows {
                let start = at * self.inner + i * VECTOR;
                let (x, q) = (vector(x, start), vector(q, start));
                for i in 0..VECTOR {
                    let (x, q) = (f64::from(x[i]), f64::from(q[i]));
                    powers[i] += product(x, x);
                    errors[i] += square_of_difference(x, q);
                }
            }
            (*power, *error) = (powers, errors);
        }
        let Some(scales) = scales else {
            partial.blocks(&power, &error, None);
            return W;
        };
        let mut saturated = [0; W];
        let of_blocks = self.each_sub_block::<W>(
            scales,
            #[inline(always)]
            |rows, limits| {
                for at in rows {
                    let x = self.row::<W>(x, at);
                    for (i, limit) in limits.iter().enumerate() {
                        saturated[i] += u32::from(x[i].to_bits() & ABS > *limit);
                    }
                }
            },
        );
        partial.saturated += saturated.iter().map(|count| u64::from(*count)).sum::<u64>();
        partial.blocks(&power, &error, Some(&of_blocks));
        W
    }
}
