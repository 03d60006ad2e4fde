//! Blocks with an outer scale as codes.

use super::{BlockCodec, FloatScaleCodec, TensorFactor};
use crate::format::BlockFormat;
use crate::pack::plan::outer_scale_bytes;
use crate::quantize::rules::{BlockRule, Grid, OuterScaleRule};
use crate::round::RoundingRule;

/// The bytes of the outer scale's code, then the bytes of each block's scale, low bytes first; then the elements' own codes.
#[derive(Clone, Copy)]
pub(crate) struct OuterScaleCodec {
    rule: BlockRule,
    outer: OuterScaleRule,
    /// Of a block, for any t.
    block: FloatScaleCodec,
    /// Bytes of the outer scale's code.
    outer_bytes: usize,
    /// Bytes of a block's code.
    scale_bytes: usize,
}

impl OuterScaleCodec {
    pub(crate) fn of(format: &BlockFormat) -> Option<Self> {
        let outer = OuterScaleRule::of(format)?;
        Some(Self {
            rule: BlockRule::OuterScale(outer),
            outer,
            block: FloatScaleCodec::of(format, TensorFactor::ONE),
            outer_bytes: outer_scale_bytes(format.outer?),
            scale_bytes: format.scale_bits().div_ceil(8) as usize,
        })
    }

    /// Where the code of a block's scale begins.
    #[inline(always)]
    fn place(&self, index: usize) -> usize {
        self.outer_bytes + index * self.scale_bytes
    }
}

impl BlockCodec for OuterScaleCodec {
    type Scale = Grid;
    type Unit = [u32; 3];

    #[inline(always)]
    fn rule(&self) -> &BlockRule {
        &self.rule
    }

    fn scale(&self, [amax, own]: [u32; 2], index: usize, record: &mut [u8]) -> Grid {
        let scale = self.outer.above.scale(amax);
        let code = self.outer.outer().code(scale).to_le_bytes();
        record[..self.outer_bytes].copy_from_slice(&code[..self.outer_bytes]);
        let own_record = &mut record[self.place(index)..][..self.scale_bytes];
        let block = self.block.with_tensor_scale(scale);
        block.scale([own, own], 0, own_record)
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> u32 {
        self.block.code::<R>(grid, x, draw)
    }

    #[inline(always)]
    fn unit(&self, record: &[u8], index: usize) -> [u32; 3] {
        let code = record[..self.outer_bytes].iter().rev();
        let code = code.fold(0, |code, byte| code << 8 | u32::from(*byte));
        let scale = self.outer.outer().decode(code);
        let own_record = &record[self.place(index)..][..self.scale_bytes];
        self.block.with_tensor_scale(scale).unit(own_record, 0)
    }

    #[inline(always)]
    fn value(&self, unit: [u32; 3], code: u32) -> f32 {
        self.block.value(unit, code)
    }
}
