//! Rows of interleaved blocks as lines of memory.

use crate::quantize::layout::{Layout, Pool};
use crate::round::bits::ABS;
use core::ops::Range;
use microscaling_processor::instruction_set::Kernel;

/// Shorter rows than this are worked on several at a time.
const NARROW: usize = 64;

/// Rows of interleaved blocks as lines of memory: a line is one row, or several where rows are short.
#[derive(Clone)]
pub(crate) struct Lines {
    /// Elements of a row: the columns.
    pub(super) inner: usize,
    /// Which of them share blocks.
    pub(super) pool: Option<Pool>,
    /// Elements of a line, a multiple of `inner`; the last line may be shorter.
    pub(crate) width: usize,
}

impl Lines {
    #[inline(always)]
    pub(crate) fn of(layout: &Layout, rows: usize) -> Self {
        let inner = layout.inner;
        // A power of two, so that they can be folded into one by halves.
        let together = 1 << NARROW.div_ceil(inner).min(rows).ilog2();
        Self {
            inner,
            pool: layout.pool,
            width: inner * together,
        }
    }

    /// How many lines some rows are.
    pub(crate) fn count(&self, data: &[f32]) -> usize {
        data.len().div_ceil(self.width)
    }

    /// Where some rows are divided between lines: how many elements come before, 0 if there is one line.
    pub(crate) fn middle(&self, data: &[f32]) -> usize {
        self.count(data) / 2 * self.width
    }

    /// The columns of the lines, in tiles of a width, or a little less or as much more as whole blocks take. Lines of more
    /// than one row are narrow, hence one tile.
    #[inline(always)]
    pub(crate) fn tiles(&self, tile: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let width = self.width;
        let together = self.pool.map_or(1, |pool| pool.width());
        let tile = (tile / together).max(1) * together;
        (0..width)
            .step_by(tile)
            .map(move |first| first..width.min(first + tile))
    }
}

/// Takes the magnitudes of some columns of some lines into the largest ones. Four lines at a time, because otherwise every
/// element costs a store of its column's maximum, and stores keep the processor from reading ahead.
pub(crate) struct ColumnMax<'a> {
    pub(crate) maxima: &'a mut [u32],
    pub(crate) data: &'a [f32],
    pub(crate) lines: &'a Lines,
    pub(crate) columns: Range<usize>,
}

impl Kernel for ColumnMax<'_> {
    #[inline(always)]
    fn run(self) {
        let width = self.lines.width;
        let fours = self.data.chunks_exact(4 * width);
        let rest = fours.remainder();
        for four in fours {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| &four[i * width..][self.columns.clone()]);
            let elements = a.iter().zip(b).zip(c.iter().zip(d));
            for (max, ((a, b), (c, d))) in self.maxima.iter_mut().zip(elements) {
                let [a, b, c, d] = [a, b, c, d].map(|x| x.to_bits() & ABS);
                *max = (*max).max(a.max(b).max(c.max(d)));
            }
        }
        for line in rest.chunks(width) {
            let line = &line[self.columns.start..self.columns.end.min(line.len())];
            for (max, x) in self.maxima.iter_mut().zip(line) {
                *max = (*max).max(x.to_bits() & ABS);
            }
        }
    }
}
