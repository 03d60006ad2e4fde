//! Any consecutive elements of a packed tensor, wherever its blocks lie.

use crate::pack::codes::BlockCodec;
use crate::pack::codes::bitstream::Reader;
use crate::pack::number::DecodeNumber;
use crate::pack::plan::PackJob;
use core::ops::Range;
use microscaling_processor::instruction_set::Kernel;

/// Codes that are read at a time.
const PIECE: usize = 64;

/// Unpacks the elements of a range.
pub(crate) struct DecodeRange<'a, C, T> {
    pub(crate) job: PackJob<C>,
    /// Positions in the tensor.
    pub(crate) range: Range<usize>,
    /// As long as the range.
    pub(crate) data: &'a mut [T],
    /// The records of the whole tensor.
    pub(crate) scales: &'a [u8],
    /// The codes of the whole tensor.
    pub(crate) elements: &'a [u8],
}

impl<C: BlockCodec, T: DecodeNumber> Kernel for DecodeRange<'_, C, T> {
    #[inline(always)]
    fn run(self) {
        let PackJob {
            codec,
            layout,
            record,
            bits,
        } = self.job;
        let (axis, inner) = (layout.axis, layout.inner);
        let runs = axis.div_ceil(layout.block);
        let records = layout.blocks(inner) * record;
        let mut reader = Reader::new(self.elements, self.range.start, bits);
        let mut codes = [0; PIECE];
        let (mut position, mut rest) = (self.range.start, self.data);
        while !rest.is_empty() {
            let (line, column) = (position / inner, position % inner);
            let (outer, at) = (line / axis, line % axis);
            let (run, within) = (at / layout.block, at % layout.block);
            let records = &self.scales[(outer * runs + run) * records..][..records];
            let sub_block = codec.rule().sub_block().min(layout.block);
            let index = within / sub_block;
            let length = if inner == 1 {
                let block_end = layout.block.min(axis - run * layout.block);
                block_end.min((index + 1) * sub_block) - within
            } else {
                inner - column
            };
            let (piece, tail) = rest.split_at_mut(length.min(rest.len()).min(PIECE));
            let codes = &mut codes[..piece.len()];
            reader.get(codes);
            if inner == 1 {
                let unit = codec.unit(records, index);
                for (x, code) in piece.iter_mut().zip(codes) {
                    *x = T::from_pattern(codec.value(unit, *code).to_bits());
                }
            } else {
                for (i, (x, code)) in piece.iter_mut().zip(codes).enumerate() {
                    let block = layout.block_of(column + i);
                    let unit = codec.unit(&records[block * record..][..record], index);
                    *x = T::from_pattern(codec.value(unit, *code).to_bits());
                }
            }
            position += piece.len();
            rest = tail;
        }
    }
}
