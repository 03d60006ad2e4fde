//! Blocks, and their codes by the library.

use crate::compiled::mode_number;
use crate::numbers::block;
use microscaling::{BlockFormat, NonFinite, Packed, RandomStream, Rounding};

/// A block, and the library's results for the block. Numbers are patterns.
pub(crate) struct BlockCase {
    pub(crate) x: Vec<u32>,
    pub(crate) draws: Vec<u32>,
    pub(crate) mode: u32,
    pub(crate) tensor_scale: u32,
    pub(crate) scale: u32,
    /// The shift, the code and the value of each element.
    pub(crate) elements: Vec<[u32; 3]>,
}

/// The blocks of `count` tensors.
pub(crate) fn block_cases(format: &BlockFormat, count: u64) -> Vec<BlockCase> {
    let mut blocks = Vec::new();
    for case in (0..count).map(|seed| case(format, seed)) {
        let (size, packed) = (full(format), &case.packed);
        let (codes, values) = (packed.view().codes(), packed.decode());
        let (scale_bytes, shift_bytes) = record(format);
        let records = packed.scales().chunks_exact(scale_bytes + shift_bytes);
        for (i, record) in records.enumerate() {
            let (scale, shifts) = read(format, record);
            let places = i * size..case.data.len().min((i + 1) * size);
            let shift = |at: usize| match format.shifts {
                Some(sub) => shifts[at % size / sub.block_size],
                None => 0,
            };
            blocks.push(BlockCase {
                x: case.data[places.clone()]
                    .iter()
                    .map(|x| x.to_bits())
                    .collect(),
                draws: case.draws[places.clone()].to_vec(),
                mode: mode_number(case.rounding),
                tensor_scale: packed.tensor_scale().unwrap_or(1.0).to_bits(),
                scale,
                elements: places
                    .map(|at| [shift(at), codes[at], values[at].to_bits()])
                    .collect(),
            });
        }
    }
    blocks
}

impl BlockCase {
    /// Checks the words of a result: the scale, and of each element the shift, the code and the value. Returns the number of words.
    pub(crate) fn check(&self, place: &str, got: &[u32]) -> usize {
        let scale = got.first();
        assert_eq!(scale, Some(&self.scale), "{place}: scale");
        let each = got[1..].chunks_exact(3).zip(&self.elements);
        for (i, (got, wanted)) in each.enumerate() {
            let (x, mode) = (f32::from_bits(self.x[i]), self.mode);
            assert_eq!(
                got, wanted,
                "{place}, element {i}, {x:e} by mode {mode}: shift, code, value"
            );
        }
        1 + 3 * self.elements.len()
    }
}

/// A tensor of a few blocks, and its codes by the library.
struct Case {
    data: Vec<f32>,
    draws: Vec<u32>,
    rounding: Rounding,
    packed: Packed,
}

/// Elements of a full block.
pub(crate) fn full(format: &BlockFormat) -> usize {
    match (format.group_size(), format.square) {
        (0, _) => 23,
        (size, true) => size * size,
        (size, false) => size,
    }
}

fn case(format: &BlockFormat, seed: u64) -> Case {
    let size = full(format);
    let stream = RandomStream::new(seed, 3);
    let count = match (format.group_size(), format.square) {
        (0, _) | (_, true) => size,
        // Several blocks, the last one shorter.
        _ => size * 2 + 1 + stream.draw(1 << 41) as usize % size,
    };
    let mut data: Vec<f32> = (0..count.div_ceil(size) as u64)
        .flat_map(|i| block(seed * 8 + i, size, format.element))
        .take(count)
        .collect();
    if format.non_finite == NonFinite::Kept {
        // Packed tensors have no codes for others.
        data.iter_mut()
            .filter(|x| !x.is_finite())
            .for_each(|x| *x = 1.0);
    }
    let rounding = Rounding::ALL[seed as usize % 4];
    let shape = match format.square {
        true => vec![format.block_size; 2],
        false => vec![count],
    };
    let rounder = rounding.with(stream);
    let packed = Packed::encode(*format, &data, &shape, shape.len() - 1, rounder).unwrap();
    let draws = (0..count as u64).map(|i| stream.draw(i)).collect();
    Case {
        data,
        draws,
        rounding,
        packed,
    }
}

/// The number of bytes that a block's scale and shifts take.
pub(crate) fn record(format: &BlockFormat) -> (usize, usize) {
    let scale = format.scale.bits().div_ceil(8) as usize;
    let shifts = format.shifts.map_or(0, |shifts| {
        let bits = format.block_size.div_ceil(shifts.block_size) * shifts.bits as usize;
        bits.div_ceil(8)
    });
    (scale, shifts)
}

/// The scale and the shifts of a block's record.
pub(crate) fn read(format: &BlockFormat, bytes: &[u8]) -> (u32, Vec<u32>) {
    let (scale, _) = record(format);
    let code = bytes[..scale]
        .iter()
        .rev()
        .fold(0, |code, byte| code << 8 | u32::from(*byte));
    let shifts = format.shifts.map_or(vec![], |shifts| {
        let bit = |at: usize| u32::from(bytes[scale + at / 8] >> (at % 8) & 1);
        let bits = shifts.bits as usize;
        let shift = |i: usize| (0..bits).map(|k| bit(i * bits + k) << k).sum();
        (0..format.block_size.div_ceil(shifts.block_size))
            .map(shift)
            .collect()
    });
    (code, shifts)
}
