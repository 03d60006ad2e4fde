//! The loop over memory that unpacks blocks.

pub(super) mod lanes;
pub(super) mod rows;

use super::codes::BlockCodec;
use super::codes::bitstream::Reader;
use super::plan::{PackJob, spread};
use crate::round::draws::WINDOW;
use alloc::{vec, vec::Vec};
use microscaling_processor::instruction_set::Kernel;

/// Unpacks consecutive runs of whole blocks.
pub(crate) struct Decode<'a, C> {
    pub(crate) job: PackJob<C>,
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
        let PackJob {
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
            let sub_rows = codec.rule().sub_block().min(length);
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
