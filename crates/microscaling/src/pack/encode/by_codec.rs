//! Packs any blocks as the codecs say: the specification.

use super::EncodedRuns;
use crate::pack::codes::BlockCodec;
use crate::pack::codes::bitstream::Writer;
use crate::pack::plan::{PackJob, spread};
use crate::quantize::layout::Layout;
use crate::round::RoundingRule;
use crate::round::draws::{Draws, WINDOW};
use crate::round::random::RandomStream;
use alloc::vec::Vec;
use core::marker::PhantomData;
use microscaling_processor::instruction_set::Kernel;

/// The elements of a block of some rows.
pub(super) fn elements<'a>(
    rows: &'a [f32],
    layout: &Layout,
    block: usize,
) -> impl Iterator<Item = f32> + Clone + use<'a> {
    let (columns, step) = layout.columns(block);
    let rows = rows.chunks_exact(layout.inner);
    rows.flat_map(move |row| row[columns.clone()].iter().step_by(step).copied())
}

/// Packs consecutive runs of whole blocks as the specification does.
pub(super) struct ByCodec<'a, C, R> {
    pub(super) codec: C,
    pub(super) rule: PhantomData<R>,
    pub(super) job: &'a PackJob<()>,
    pub(super) stream: RandomStream,
    pub(super) part: EncodedRuns<'a>,
}

impl<C: BlockCodec, R: RoundingRule> Kernel for ByCodec<'_, C, R> {
    #[inline(always)]
    fn run(self) {
        let Self {
            codec,
            job,
            stream,
            part,
            ..
        } = self;
        let (layout, record) = (&job.layout, job.record);
        let (inner, rule) = (layout.inner, codec.rule());
        let mut draws = Draws::new(stream, part.start + part.data.len() as u64);
        let mut writer = Writer::new(part.elements, job.bits);
        let mut codes = [0; WINDOW];
        let mut maxima = Vec::new();
        let mut scales = Vec::new();
        let (mut at, mut start, mut rest) = (part.at, part.start, part.data);
        for records in part.scales.chunks_exact_mut(layout.blocks(inner) * record) {
            let length = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at(length * inner);
            let sub_rows = rule.sub_block().min(length);
            let of_block = |rows: &[f32], block: usize| rule.maxima(elements(rows, layout, block));
            let of_sub_block = |rows: &[f32], block: usize, index: usize| {
                rule.refinement_of_sub_block(index, elements(rows, layout, block))
            };
            maxima.clear();
            maxima.extend((0..layout.blocks(inner)).map(|block| of_block(run, block)));
            for (index, rows) in run.chunks(sub_rows * inner).enumerate() {
                scales.clear();
                let records = records.chunks_exact_mut(record).zip(&maxima);
                for (block, (record, maxima)) in records.enumerate() {
                    let [amax, mut refinement] = *maxima;
                    if rule.has_sub_blocks(length) {
                        refinement = of_sub_block(run, block, index);
                    }
                    scales.push(codec.scale([amax, refinement], index, record));
                }
                spread(&mut scales, layout);
                // Codes are in the order of memory.
                if inner == 1 {
                    let scale = scales[0];
                    for piece in rows.chunks(WINDOW) {
                        let draws = draws.get(R::USES_DRAWS, start, piece.len());
                        let codes = &mut codes[..piece.len()];
                        for ((code, x), draw) in codes.iter_mut().zip(piece).zip(draws) {
                            *code = codec.code::<R>(scale, *x, *draw);
                        }
                        writer.put(codes);
                        start += piece.len() as u64;
                    }
                    continue;
                }
                for row in rows.chunks(inner) {
                    for (piece, scales) in row.chunks(WINDOW).zip(scales.chunks(WINDOW)) {
                        let draws = draws.get(R::USES_DRAWS, start, piece.len());
                        let codes = &mut codes[..piece.len()];
                        let elements = piece.iter().zip(scales).zip(draws);
                        for (code, ((x, scale), draw)) in codes.iter_mut().zip(elements) {
                            *code = codec.code::<R>(*scale, *x, *draw);
                        }
                        writer.put(codes);
                        start += piece.len() as u64;
                    }
                }
            }
            at = (at + length) % layout.axis;
            rest = tail;
        }
        writer.finish();
    }
}
