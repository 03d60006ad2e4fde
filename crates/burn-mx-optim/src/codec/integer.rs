//! Integers with a scale whose rule is a collective's: ZeRO++'s, and vLLM's quick reduce.

use microscaling::Rounder;

use super::{CodedTensor, fractions, get, largest, put};

/// How a block gets the scale of its integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IntegerScale {
    /// With N bits and the largest magnitude m, the step is m/2^(N − 1). So m itself is clipped to the largest code, and −m is not (code of
    /// ZeRO++ in DeepSpeed).
    Clipped,
    /// With N bits and the number m of largest magnitude, the first of several, the step is −m/2^(N − 1), with m's sign. So m itself is exact.
    /// Blocks are interleaved: of twice the block's length, a block has the even places or the odd ones (code of quick reduce in vLLM).
    Signed,
}

/// A format of integers.
#[derive(Clone, Copy)]
pub(super) struct Integers {
    pub(super) bits: u32,
    pub(super) scale: IntegerScale,
    pub(super) block_size: usize,
}

impl Integers {
    /// Bytes of scales and of elements.
    pub(super) fn bytes(self, count: usize) -> [usize; 2] {
        let bits = count.saturating_mul(self.bits as usize);
        [self.blocks(count).saturating_mul(4), bits.div_ceil(8)]
    }

    fn blocks(self, count: usize) -> usize {
        match self.scale {
            IntegerScale::Clipped => count.div_ceil(self.block_size),
            // A last pair of blocks may have one number.
            IntegerScale::Signed => {
                let pair = 2 * self.block_size;
                2 * (count / pair) + (count % pair).min(2)
            }
        }
    }

    /// The block of a number.
    fn block(self, index: usize) -> usize {
        match self.scale {
            IntegerScale::Clipped => index / self.block_size,
            IntegerScale::Signed => 2 * (index / (2 * self.block_size)) + index % 2,
        }
    }

    /// The distance of two numbers of a block.
    fn step(self, of_block: f32) -> f64 {
        let step = f64::from(of_block) / f64::from(1u32 << (self.bits - 1));
        match self.scale {
            IntegerScale::Clipped => step,
            IntegerScale::Signed => -step,
        }
    }

    pub(super) fn encode(self, data: &[f32], rounder: Rounder) -> CodedTensor {
        let mut of_blocks = vec![0.0f32; self.blocks(data.len())];
        for (index, x) in data.iter().enumerate() {
            let so_far = &mut of_blocks[self.block(index)];
            *so_far = match largest([*so_far, *x].into_iter()) {
                most if most.is_nan() => most,
                _ if x.abs() > so_far.abs() => *x,
                _ => *so_far,
            };
        }
        if self.scale == IntegerScale::Clipped {
            of_blocks.iter_mut().for_each(|most| *most = most.abs());
        }
        let [_, elements] = self.bytes(data.len());
        let mut bytes = CodedTensor {
            elements: vec![0; elements],
            ..CodedTensor::default()
        };
        of_blocks
            .iter()
            .for_each(|most| put(&mut bytes.scales, *most));
        let draws = fractions(rounder);
        let most = (1 << (self.bits - 1)) - 1;
        for (index, x) in data.iter().enumerate() {
            let steps = f64::from(*x) / self.step(of_blocks[self.block(index)]);
            let steps = match &draws {
                Some(draw) => (steps + draw(index)).floor(),
                None => steps.round_ties_even(),
            };
            // A block of zeros has 0/0, which becomes code 0.
            let code = (steps as i32).clamp(-most - 1, most) as u32;
            for bit in 0..self.bits as usize {
                let place = index * self.bits as usize + bit;
                bytes.elements[place / 8] |= ((code >> bit & 1) as u8) << (place % 8);
            }
        }
        bytes
    }

    pub(super) fn decode(self, scales: &[u8], elements: &[u8], count: usize) -> Vec<f32> {
        let number = |index: usize| {
            let code = (0..self.bits as usize).fold(0, |code, bit| {
                let place = index * self.bits as usize + bit;
                code | u32::from(elements[place / 8] >> (place % 8) & 1) << bit
            });
            let sign = 32 - self.bits;
            let code = (code << sign) as i32 >> sign;
            let step = self.step(get(scales, self.block(index)));
            match code {
                // Without the sign of the step; a NaN is kept.
                0 => (step * 0.0).abs() as f32,
                code => (f64::from(code) * step) as f32,
            }
        };
        (0..count).map(number).collect()
    }
}
