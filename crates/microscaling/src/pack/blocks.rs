//! The loops over memory that pack and unpack blocks.

use super::bitstream::{Reader, Writer};
use super::codes::BlockCodec;
use crate::RandomStream;
use crate::quantize::instruction_set::Kernel;
use crate::quantize::layout::Layout;
use crate::round::RoundingRule;
use crate::round::bits::ABS;
use crate::round::draws::{Draws, WINDOW};
use alloc::{vec, vec::Vec};

/// What is the same for all blocks of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Job<C> {
    /// By value: loops without branches need what they look at in registers.
    pub(crate) codec: C,
    pub(crate) layout: Layout,
    /// Bytes of a block's record in the scales.
    pub(crate) record: usize,
    /// Bits of a code.
    pub(crate) bits: u32,
}

/// Packs consecutive runs of whole blocks. A run is `inner` columns of interleaved blocks.
pub(crate) struct Encode<'a, C, R> {
    pub(crate) job: Job<C>,
    pub(crate) rule: R,
    pub(crate) stream: RandomStream,
    /// Begins with the elements of the first run.
    pub(crate) data: &'a [f32],
    /// Position of the data on the axis, a multiple of the block length.
    pub(crate) at: usize,
    /// Position of the data in the tensor.
    pub(crate) start: u64,
    /// The records of all runs, zeros.
    pub(crate) scales: &'a mut [u8],
    /// The codes of all runs.
    pub(crate) elements: &'a mut [u8],
}

impl<C: BlockCodec, R: RoundingRule> Kernel for Encode<'_, C, R> {
    #[inline(always)]
    fn run(self) {
        let Job {
            codec,
            layout,
            record,
            bits,
        } = self.job;
        let inner = layout.inner;
        let mut draws = Draws::new(self.stream, self.start + self.data.len() as u64);
        let mut out = Codes::new(self.elements, bits, self.data.len());
        let (mut at, mut start, mut rest) = (self.at, self.start, self.data);
        let mut kept = Kept::default();
        for records in self.scales.chunks_exact_mut(layout.blocks(inner) * record) {
            let length = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at(length * inner);
            let sub_rows = codec.sub_block().min(length);
            if inner == 1 && sub_rows == 2 && length <= WINDOW {
                // The codes of a block at once: pairs are too short for anything by the pair.
                let amax = magnitude_max(run);
                let draws = draws.get::<R>(start, length);
                let codes = out.next(length);
                let pairs = run.chunks(2).zip(codes.chunks_mut(2)).zip(draws.chunks(2));
                for (index, ((elements, codes), draws)) in pairs.enumerate() {
                    let second = codec.second(amax, elements.iter().copied());
                    let second = second.unwrap_or_else(|| magnitude_max(elements));
                    let scale = codec.scale([amax, second], index, records);
                    for ((code, x), draw) in codes.iter_mut().zip(elements).zip(draws) {
                        *code = codec.code(scale, self.rule, *x, *draw);
                    }
                }
            } else if inner == 1 {
                let amax = magnitude_max(run);
                for (index, elements) in run.chunks(sub_rows).enumerate() {
                    let second = codec.second(amax, elements.iter().copied());
                    let second = second.unwrap_or_else(|| magnitude_max(elements));
                    let scale = codec.scale([amax, second], index, records);
                    let start = start + (index * sub_rows) as u64;
                    for (i, piece) in elements.chunks(WINDOW).enumerate() {
                        let draws = draws.get::<R>(start + (i * WINDOW) as u64, piece.len());
                        let codes = out.next(piece.len());
                        for ((code, x), draw) in codes.iter_mut().zip(piece).zip(draws) {
                            *code = codec.code(scale, self.rule, *x, *draw);
                        }
                    }
                }
            } else {
                // Row by row: codes are in the order of memory.
                largest_of_columns(run, &layout, &mut kept.maxima);
                for (index, rows) in run.chunks(sub_rows * inner).enumerate() {
                    kept.scales(
                        &codec,
                        rows,
                        &layout,
                        index,
                        records.chunks_exact_mut(record),
                    );
                    let start = start + (index * sub_rows * inner) as u64;
                    for (i, row) in rows.chunks(inner).enumerate() {
                        let pieces = row.chunks(WINDOW).zip(kept.scales.chunks(WINDOW));
                        for (j, (piece, scales)) in pieces.enumerate() {
                            let position = start + (i * inner + j * WINDOW) as u64;
                            let draws = draws.get::<R>(position, piece.len());
                            let elements = piece.iter().zip(scales).zip(draws);
                            let codes = out.next(piece.len());
                            for (code, ((x, scale), draw)) in codes.iter_mut().zip(elements) {
                                *code = codec.code(*scale, self.rule, *x, *draw);
                            }
                        }
                    }
                }
            }
            start += run.len() as u64;
            at = (at + length) % layout.axis;
            rest = tail;
        }
        out.finish();
    }
}

/// The largest magnitude of some elements as a pattern: of a NaN or Inf if there is one.
#[inline(always)]
fn magnitude_max(data: &[f32]) -> u32 {
    data.iter().fold(0, |amax, x| amax.max(x.to_bits() & ABS))
}

/// What is known of interleaved blocks, those of a row.
struct Kept<S> {
    maxima: Vec<u32>,
    sub_maxima: Vec<u32>,
    scales: Vec<S>,
}

impl<S> Default for Kept<S> {
    fn default() -> Self {
        Self {
            maxima: Vec::new(),
            sub_maxima: Vec::new(),
            scales: Vec::new(),
        }
    }
}

impl<S: Copy> Kept<S> {
    /// From the largest magnitudes of the blocks to the scales of sub-blocks, whose elements `rows` are.
    #[inline(always)]
    fn scales<'r, C: BlockCodec<Scale = S>>(
        &mut self,
        codec: &C,
        rows: &[f32],
        layout: &Layout,
        index: usize,
        records: impl Iterator<Item = &'r mut [u8]>,
    ) {
        largest_of_columns(rows, layout, &mut self.sub_maxima);
        self.scales.clear();
        let maxima = self.maxima.iter().zip(&self.sub_maxima);
        for ((block, (amax, sub_amax)), record) in maxima.enumerate().zip(records) {
            let (columns, step) = layout.columns(block);
            let rows = rows.chunks_exact(layout.inner);
            let elements = rows.flat_map(|row| row[columns.clone()].iter().step_by(step).copied());
            let second = codec.second(*amax, elements);
            let maxima = [*amax, second.unwrap_or(*sub_amax)];
            self.scales.push(codec.scale(maxima, index, record));
        }
        spread(&mut self.scales, layout);
    }
}

/// Codes on their way to memory, many at a time.
struct Codes<'a> {
    writer: Writer<'a>,
    codes: Vec<u32>,
    len: usize,
}

impl<'a> Codes<'a> {
    #[inline(always)]
    fn new(bytes: &'a mut [u8], bits: u32, count: usize) -> Self {
        Self {
            writer: Writer::new(bytes, bits),
            codes: vec![0; count.min(2 * WINDOW)],
            len: 0,
        }
    }

    /// Room for the next codes, at most [`WINDOW`], which must all be set.
    #[inline(always)]
    fn next(&mut self, count: usize) -> &mut [u32] {
        if self.len >= WINDOW {
            self.writer.put(&self.codes[..self.len]);
            self.len = 0;
        }
        let first = self.len;
        self.len += count;
        &mut self.codes[first..self.len]
    }

    #[inline(always)]
    fn finish(mut self) {
        self.writer.put(&self.codes[..self.len]);
        self.writer.finish();
    }
}

/// From what each block has to what each column's block has.
#[inline(always)]
fn spread<T: Copy>(of_blocks: &mut Vec<T>, layout: &Layout) {
    if let Some(pool) = layout.pool {
        of_blocks.resize(layout.inner, of_blocks[0]);
        pool.spread(of_blocks);
    }
}

/// The largest magnitude of each block of some rows.
#[inline(always)]
fn largest_of_columns(rows: &[f32], layout: &Layout, maxima: &mut Vec<u32>) {
    maxima.clear();
    maxima.resize(layout.inner, 0);
    for row in rows.chunks_exact(layout.inner) {
        for (max, x) in maxima.iter_mut().zip(row) {
            *max = (*max).max(x.to_bits() & ABS);
        }
    }
    if let Some(pool) = layout.pool {
        let blocks = pool.fold(maxima, u32::max);
        maxima.truncate(blocks);
    }
}

/// Unpacks consecutive runs of whole blocks.
pub(crate) struct Decode<'a, C> {
    pub(crate) job: Job<C>,
    pub(crate) data: &'a mut [f32],
    /// Position of the data on the axis, a multiple of the block length.
    pub(crate) at: usize,
    /// Begins with the records of the first run.
    pub(crate) scales: &'a [u8],
    /// The codes of the whole tensor.
    pub(crate) elements: &'a [u8],
    /// Position of the data in the tensor.
    pub(crate) start: usize,
}

impl<C: BlockCodec> Kernel for Decode<'_, C> {
    #[inline(always)]
    fn run(self) {
        let Job {
            codec,
            layout,
            record,
            bits,
        } = self.job;
        let inner = layout.inner;
        let mut codes = vec![0; WINDOW.min(self.data.len())];
        let mut reader = Reader::new(self.elements, self.start, bits);
        let mut units = Vec::new();
        let (mut at, mut rest) = (self.at, self.data);
        for records in self.scales.chunks_exact(layout.blocks(inner) * record) {
            if rest.is_empty() {
                break;
            }
            let length = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at_mut(length * inner);
            let sub_rows = codec.sub_block().min(length);
            for (index, rows) in run.chunks_mut(sub_rows * inner).enumerate() {
                units.clear();
                units.extend(records.chunks_exact(record).map(
                    #[inline(always)]
                    |record| codec.unit(record, index),
                ));
                spread(&mut units, &layout);
                if inner == 1 {
                    let unit = units[0];
                    for piece in rows.chunks_mut(WINDOW) {
                        let codes = &mut codes[..piece.len()];
                        reader.get(codes);
                        for (x, code) in piece.iter_mut().zip(codes) {
                            *x = codec.value(unit, *code);
                        }
                    }
                } else {
                    for row in rows.chunks_mut(inner) {
                        for (piece, units) in row.chunks_mut(WINDOW).zip(units.chunks(WINDOW)) {
                            let codes = &mut codes[..piece.len()];
                            reader.get(codes);
                            for ((x, unit), code) in piece.iter_mut().zip(units).zip(codes) {
                                *x = codec.value(*unit, *code);
                            }
                        }
                    }
                }
            }
            at = (at + length) % layout.axis;
            rest = tail;
        }
    }
}
