//! Blocks along a strided axis, interleaved in memory.

mod lines;
mod sub_rows;
mod tile;

use super::contiguous::{LANES, Line};
use super::exchange::exchange_at;
use super::table_lanes::{InterleavedTables, has_table_registers};
use super::{Job, Units, Way};
use crate::quantize::layout::Layout;
use crate::quantize::rules::ElementRule;
use crate::round::draws::{Draws, PartStream, WINDOW};
use alloc::vec;
use core::ops::Range;
pub(crate) use lines::ColumnMax;
pub(crate) use lines::Lines;
use microscaling_processor::instruction_set::{Kernel, Level};
use sub_rows::{SubRows, has_few_sub_blocks};
pub(crate) use tile::Tile;

/// Columns that are worked on together in most cases: so few that 16 rows of them stay in the nearest cache.
const COLUMNS: usize = 512;

/// A run of interleaved blocks.
pub(crate) struct Run<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) layout: &'a Layout,
    /// Position in the tensor.
    pub(crate) start: u64,
    /// Whether another run lies behind in memory, which will be worked on next.
    pub(crate) goes_on: bool,
}

/// Sees the columns of some blocks, and the scales by which [`Run::quantize`] divided their results.
pub(crate) type SeeUnits<'a> = &'a mut dyn FnMut(Range<usize>, &Units);

impl Run<'_> {
    /// Works on the blocks. With `units` the results are divided by the scales of their blocks, and the work ends at a block
    /// that is not ordinary. Returns whether all blocks were worked on.
    pub(crate) fn quantize<R: ElementRule>(
        self,
        job: &Job<R>,
        level: Level,
        tile: &mut Tile,
        draws: &mut Draws,
        mut units: Option<SeeUnits<'_>>,
    ) -> bool {
        let (data, layout, start) = (self.data, self.layout, self.start);
        let inner = layout.inner;
        let rows = data.len() / inner;
        let sub_rows = job.rule.sub_block().min(rows);
        let has_sub_blocks = sub_rows < rows;
        debug_assert!(
            !has_sub_blocks || layout.pool.is_none(),
            "no format of square blocks has sub-blocks"
        );
        debug_assert!(
            units.is_none() || job.rule.first_sub_block().is_none(),
            "the scales of two levels of sub-blocks are not seen"
        );
        let by_tables = job.rule.has_short_tables() && layout.pool.is_none();
        let lines = Lines::of(layout, sub_rows);
        let by_sub_rows = has_sub_blocks
            && units.is_none()
            && !R::USES_DRAWS
            && lines.width == inner
            && has_few_sub_blocks(&job.rule);
        let has_levels = job.rule.first_sub_block().is_some() && !by_sub_rows;
        if (by_tables || has_levels) && units.is_none() {
            by_registers_or_columns(job, level, data, inner, start);
            return true;
        }
        // Draws are made by the window. Microexponents take a tenth longer with fewer columns, and packing gains nothing.
        let together = match by_sub_rows || R::USES_DRAWS || units.is_some() {
            true => WINDOW,
            false => COLUMNS,
        };
        for columns in lines.tiles(together) {
            // Otherwise memory has nothing to do while these columns are rounded.
            let ahead = match self.goes_on {
                _ if columns.end < lines.width => columns.len(),
                true => data.len() - columns.start,
                false => 0,
            };
            let mut seen = units.is_some().then(Units::default);
            tile.reset(columns.len());
            tile.see(level, data, &lines, columns.clone());
            if has_sub_blocks {
                tile.keep_for_blocks(&lines, &mut seen);
                if by_sub_rows && let Some(of_blocks) = tile.ordinary_blocks(&job.rule, level) {
                    level.run(SubRows {
                        job,
                        of_blocks,
                        data: &mut *data,
                        inner,
                        columns,
                        ahead,
                    });
                    continue;
                }
                if job.rule.first_sub_block().is_some() {
                    by_columns(job, level, data, inner, columns, start);
                    continue;
                }
                let all = columns.clone();
                if !tile.sub_blocks(job, level, data, start, &lines, all, draws, &mut seen) {
                    return false;
                }
            } else {
                tile.make_grids(&job.rule, level, data, &lines, columns.clone(), &mut seen);
                if seen.is_some() && tile.way == Way::Any {
                    return false;
                }
                tile.apply(
                    job,
                    level,
                    data,
                    start,
                    &lines,
                    columns.clone(),
                    ahead,
                    draws,
                );
            }
            if let (Some(units), Some(seen)) = (&mut units, seen) {
                units(columns.start % inner..columns.end.min(inner), &seen);
            }
        }
        true
    }
}

/// [`PartStream::fill_rows`] as a kernel: of a few words of many rows, between which [`Draws`] would make all words.
struct FillRows<'a> {
    stream: PartStream,
    first: u64,
    row: u64,
    rows: &'a mut [[u32; LANES]],
}

impl Kernel for FillRows<'_> {
    #[inline(always)]
    fn run(self) {
        self.stream.fill_rows(self.first, self.row, self.rows);
    }
}

/// Works on blocks whose tables are registers, or as if the blocks were contiguous.
fn by_registers_or_columns<R: ElementRule>(
    job: &Job<R>,
    level: Level,
    data: &mut [f32],
    inner: usize,
    start: u64,
) {
    let has_registers = job.rule.has_short_tables() && has_table_registers(level);
    match data.len() / inner {
        16 if has_registers => by_lanes::<_, 16>(job, level, data, inner, start),
        32 if has_registers => by_lanes::<_, 32>(job, level, data, inner, start),
        64 if has_registers => by_lanes::<_, 64>(job, level, data, inner, start),
        _ => by_columns(job, level, data, inner, 0..inner, start),
    }
}

/// Works on blocks of B elements that are of tables with few numbers.
fn by_lanes<R: ElementRule, const B: usize>(
    job: &Job<R>,
    level: Level,
    data: &mut [f32],
    inner: usize,
    start: u64,
) {
    let mut first = 0;
    while first < inner {
        level.run(InterleavedTables::<_, B> {
            job,
            data: &mut *data,
            inner,
            first: &mut first,
            start,
        });
        // Too few columns, or not ordinary ones.
        let few = first..inner.min(first + LANES);
        if !few.is_empty() {
            by_columns(job, level, data, inner, few.clone(), start);
        }
        first = few.end;
    }
}

/// Works on some columns of interleaved blocks as if the blocks were contiguous, some neighbouring columns at a time.
fn by_columns<R: ElementRule>(
    job: &Job<R>,
    level: Level,
    data: &mut [f32],
    inner: usize,
    all: Range<usize>,
    start: u64,
) {
    let rows = data.len() / inner;
    let mut turned = vec![0.0; LANES * rows];
    let count = if R::USES_DRAWS { LANES * rows } else { 0 };
    let (mut words, mut of_rows) = (vec![0; count], vec![0; count]);
    for first in all.clone().step_by(LANES) {
        let columns = LANES.min(all.end - first);
        let shape = [rows, columns];
        exchange_at(level, &data[first..], [inner, rows], shape, &mut turned);
        level.run(FillRows {
            stream: job.stream,
            first: start + first as u64,
            row: inner as u64,
            rows: of_rows.as_chunks_mut().0,
        });
        let shape = [count / LANES, columns];
        exchange_at(level, &of_rows, [LANES, rows], shape, &mut words);
        let mut turned_draws = Draws::of(core::mem::take(&mut words));
        let mut line = Line {
            job,
            level,
            draws: &mut turned_draws,
        };
        line.quantize(&mut turned[..columns * rows], rows, 0);
        words = turned_draws.into_words();
        let shape = [columns, rows];
        exchange_at(level, &turned, [rows, inner], shape, &mut data[first..]);
    }
}
