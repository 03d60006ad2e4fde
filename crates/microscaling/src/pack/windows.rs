//! Contiguous blocks packed sixteen together, as [`contiguous`](crate::quantize::contiguous) quantizes them: first the largest
//! magnitudes of all, then their scales, then all codes, a byte each, and at last those bytes joined.
//!
//! The codecs are the specification, and pack whatever is left: blocks of other lengths, a window with a block that is very
//! large or very small, has a NaN, or is one of the last few.

use super::blocks::Encode;
use super::codes::BlockCodec;
use super::eights;
use super::tame::TameCodec;
use crate::RandomStream;
use crate::quantize::block_rule::BlockRule;
use crate::quantize::blocks::each_grid;
use crate::quantize::contiguous::{LANES, TOGETHER, across, lanes, largest, look_twice};
use crate::quantize::instruction_set::{Kernel, dispatch};
use crate::round::RoundingRule;
use crate::round::bits::MANTISSA_BITS;
use crate::round::draws::Draws;
use core::hint::black_box;

/// Elements of the longest blocks that are packed together, so many.
const LONGEST: usize = 32 * TOGETHER;

/// Packs consecutive runs of whole blocks.
pub(crate) fn encode<C: BlockCodec, R: RoundingRule>(part: Encode<'_, C, R>) {
    let layout = part.job.layout;
    // No block is shorter than the others, and the records are as many as the blocks.
    let contiguous =
        layout.inner == 1 && layout.pool.is_none() && layout.axis.is_multiple_of(layout.block);
    match part.job.codec.tame() {
        Some(tame) if contiguous => match layout.block {
            8 if C::Tame::OF_8 => encode_windows::<_, _, _, 8>(part, tame),
            16 if C::Tame::OF_16 => encode_windows::<_, _, _, 16>(part, tame),
            32 if C::Tame::OF_32 => encode_windows::<_, _, _, 32>(part, tame),
            _ => dispatch(part),
        },
        _ => dispatch(part),
    }
}

/// Packs contiguous blocks of B elements.
fn encode_windows<W, C, R, const B: usize>(part: Encode<'_, C, R>, tame: W)
where
    W: TameCodec,
    C: BlockCodec,
    R: RoundingRule,
{
    let Encode {
        job,
        rule,
        stream,
        at,
        start,
        ..
    } = part;
    let (records, bytes) = (TOGETHER * job.record, TOGETHER * B / 8 * job.bits as usize);
    let count = part.scales.len() / job.record * B;
    let (mut data, mut scales, mut elements) = (&part.data[..count], part.scales, part.elements);
    let mut position = 0;
    while !data.is_empty() {
        let mut done = 0;
        dispatch(Windows::<_, _, B> {
            tame,
            rule,
            stream,
            bits: job.bits,
            record: job.record,
            data,
            start: start + position as u64,
            scales: &mut *scales,
            elements: &mut *elements,
            done: &mut done,
        });
        let (whole, rest) = data.split_at(done * TOGETHER * B);
        (scales, elements) = (&mut scales[done * records..], &mut elements[done * bytes..]);
        position += whole.len();
        // The window that was refused, or less than one.
        let (window, rest) = rest.split_at(rest.len().min(TOGETHER * B));
        let (window_scales, other_scales) = scales.split_at_mut(window.len() / B * job.record);
        let (window_elements, other_elements) =
            elements.split_at_mut(window.len() / 8 * job.bits as usize);
        if !window.is_empty() {
            dispatch(Encode {
                job,
                rule,
                stream,
                data: window,
                at: (at + position) % job.layout.axis,
                start: start + position as u64,
                scales: window_scales,
                elements: window_elements,
            });
        }
        position += window.len();
        (data, scales, elements) = (rest, other_scales, other_elements);
    }
}

/// Packs windows of [`TOGETHER`] contiguous blocks of B elements, until one has a block that is not tame.
struct Windows<'a, W, R, const B: usize> {
    tame: W,
    rule: R,
    stream: RandomStream,
    /// Bits of a code.
    bits: u32,
    /// Bytes of a block's record.
    record: usize,
    data: &'a [f32],
    /// Position of the data in the tensor.
    start: u64,
    /// Zeros.
    scales: &'a mut [u8],
    elements: &'a mut [u8],
    /// How many windows were packed.
    done: &'a mut usize,
}

impl<W: TameCodec, R: RoundingRule, const B: usize> Kernel for Windows<'_, W, R, B> {
    #[inline(always)]
    fn run(self) {
        let (tame, rule) = (self.tame, self.rule);
        let block_rule = tame.rule();
        let range = block_rule.tame();
        let mut draws = Draws::new(self.stream, self.start + self.data.len() as u64);
        let mut codes = [0; LONGEST];
        let codes = &mut codes[..TOGETHER * B];
        let windows = self.data.chunks_exact(TOGETHER * B);
        let windows = windows.zip(self.scales.chunks_exact_mut(TOGETHER * self.record));
        let bytes = TOGETHER * B / 8 * self.bits as usize;
        let windows = windows.zip(self.elements.chunks_exact_mut(bytes));
        for (i, ((window, records), bytes)) in windows.enumerate() {
            let mut maxima = [0; TOGETHER];
            for (amax, block) in maxima.iter_mut().zip(window.chunks_exact(B)) {
                // Hidden, lest blocks become lanes, each element a load of its own.
                *amax = black_box(if B < LANES {
                    largest::<W::Rule, 8>(block.as_chunks().0)
                } else {
                    largest::<W::Rule, LANES>(block.as_chunks().0)
                });
            }
            // All are looked at, without a branch.
            let all = maxima.iter().fold(true, |all, amax| {
                all & (*amax < range.end) & ((*amax >= range.start) | (*amax == 0))
            });
            if !all {
                return;
            }
            let seconds = if W::Rule::LOOKS_TWICE {
                look_twice::<W::Rule, B>(block_rule, &maxima, window)
            } else {
                maxima
            };
            let (mut first, mut second) = ([0; TOGETHER], [0; TOGETHER]);
            let mut scales = [0; TOGETHER];
            for block in 0..TOGETHER {
                let (scale, grid) = tame.block([maxima[block], seconds[block]]);
                scales[block] = scale;
                [first[block], second[block]] = grid;
            }
            for (record, scale) in records.chunks_exact_mut(self.record).zip(scales) {
                record[0] = scale;
            }
            let start = self.start + (i * TOGETHER * B) as u64;
            let draws = draws.get::<R>(start, window.len()).as_chunks::<LANES>().0;
            let vectors = window.as_chunks::<LANES>().0.iter().zip(draws);
            let vectors = vectors.zip(codes.as_chunks_mut::<LANES>().0);
            for (j, ((vector, draws), codes)) in vectors.enumerate() {
                // Hidden for the same reason.
                let block = black_box(j) * LANES / B;
                let (mut first, mut second) =
                    (lanes::<B>(&first, block), lanes::<B>(&second, block));
                if W::Rule::HAS_SUB_BLOCKS {
                    let (maxima, pairs) =
                        (lanes::<B>(&maxima, block), across::<W::Rule, 2>(vector));
                    each_grid(block_rule, true, &maxima, &pairs, [&mut first, &mut second]);
                    records[block * self.record + 1] = shifts(&maxima, &pairs);
                }
                for lane in 0..LANES {
                    let grid = [first[lane], second[lane]];
                    codes[lane] = tame.code(grid, rule, vector[lane], draws[lane]) as u8;
                }
            }
            eights::pack(self.bits, codes, bytes);
            *self.done += 1;
        }
    }
}

/// The shifts of eight pairs, one bit each, from the largest magnitudes of their block and of each, in both lanes of a pair.
#[inline(always)]
fn shifts(maxima: &[u32; LANES], pairs: &[u32; LANES]) -> u8 {
    let mut bits = [0; LANES];
    for (lane, bit) in bits.iter_mut().enumerate() {
        let below = maxima[lane] >> MANTISSA_BITS > pairs[lane] >> MANTISSA_BITS;
        *bit = u32::from(below) << (lane / 2);
    }
    bits.into_iter().fold(0, |joined, bit| joined | bit) as u8
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::pack::codes::with_codec;
    use crate::pack::plan::Plan;
    use crate::quantize::instruction_set::{Level, with_level};
    use crate::quantize::rules::is_large;
    use crate::round::bits::{ABS, INFINITY};
    use crate::round::with_rule;
    use crate::{BlockFormat, RandomStream, Rounding};
    use alloc::{vec, vec::Vec};
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Of blocks that are packed together, and of others.
    const FORMATS: [&str; 25] = [
        "mxfp8_e5m2",
        "mxfp8_e4m3",
        "mxfp6_e3m2",
        "mxfp6_e2m3",
        "mxfp4",
        "mxint8",
        "mxfp8_rceil",
        "mx4",
        "mx6",
        "mx9",
        "bfp16",
        "nvfp4",
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,four_over_six=true)",
        "mx(element=fp4_e2m1,block_size=16,scale_mode=even)",
        "mx(element=fp6_e2m3,block_size=16,scale_mode=ceil,headroom=4/3)",
        "mx(element=fp4_e2m1,scale_mode=rms)",
        "mx(element=fp8_e4m3,block_size=8,scale_bits=5)",
        "mx(element=fp8_e5m2,flush_fp32_subnorms=true)",
        "mx(element=int4)",
        "mx(element=int2,block_size=8)",
        "mx(element=float16)",
        "mx(element=fp4_e2m1,block_size=24)",
        "bfp(bit_width=12,block_size=16)",
        "microexponent(bit_width=13,block_size=16,sub_block_size=4,shift_bits=2)",
    ];

    /// The bytes of blocks along an axis of that length, from both ways.
    fn assert_same(format: BlockFormat, data: &[f32], axis: usize, rounding: Rounding) {
        let amax = data.iter().fold(0, |amax, x| amax.max(x.to_bits() & ABS));
        let plan = Plan::new(&format, &[data.len() / axis, axis], 1).unwrap();
        let scale = format.tensor_scale(|| amax).unwrap_or(1.0);
        let pack = |windows: bool| {
            let (mut scales, mut elements) = (vec![0; plan.scales_len], vec![0; plan.elements_len]);
            with_codec!(format, scale, codec => with_rule!(rounding, rule => {
                let part = Encode {
                    job: plan.job(codec, format.element_bits()),
                    rule,
                    stream: RandomStream::new(7, 8),
                    data,
                    at: 0,
                    start: 1000,
                    scales: &mut scales,
                    elements: &mut elements,
                };
                match windows {
                    true => encode(part),
                    false => dispatch(part),
                }
            }));
            (scales, elements)
        };
        let expected = with_level(Level::Baseline, || pack(false));
        for level in Level::available() {
            let got = with_level(level, || pack(true));
            assert!(
                got == expected,
                "{format} {rounding} {level:?}, axis {axis}"
            );
        }
    }

    /// Numbers around 2^exponent, zeros, ties, and maybe special ones.
    fn numbers(seed: u64, exponent: i32, special: bool, count: usize) -> Vec<f32> {
        let stream = RandomStream::new(seed, 0);
        let number = |i: u64| {
            let (word, kind) = (stream.draw(2 * i), stream.draw(2 * i + 1));
            let short = if kind & 3 == 0 {
                0xff80_0000 >> (kind >> 2 & 15)
            } else {
                u32::MAX
            };
            let field = (exponent + 127 + (word >> 23 & 15) as i32 - 8).clamp(0, 254) as u32;
            f32::from_bits(match kind >> 8 {
                0..2_000 if special => INFINITY | (word & 0x8000_0000),
                2_000..4_000 if special => word | 0x7fc0_0000,
                ..3_000_000 => word & 0x8000_0000,
                3_000_000..3_100_000 => word & 0x807f_ffff,
                _ => (word & 0x807f_ffff & (short | 1 << 31)) | field << 23,
            })
        };
        (0..count as u64).map(number).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn windows_are_the_codec(
            format in select(FORMATS.to_vec()),
            rows in prop_oneof![Just(1_usize), 1..6_usize],
            axis in prop_oneof![
                3 => (1..70_usize).prop_map(|blocks| 32 * blocks),
                1 => (1..90_usize).prop_map(|blocks| 8 * blocks),
                1 => 1..700_usize,
            ],
            exponent in prop_oneof![4 => -20..20_i32, 1 => -149..127_i32],
            zero_blocks: bool,
            special: bool,
            seed: u64,
        ) {
            let format: BlockFormat = format.parse().unwrap();
            let special = special && !matches!(format, BlockFormat::Bfp(_));
            let mut data = numbers(seed, exponent, special, rows * axis);
            if zero_blocks {
                for block in data.chunks_mut(32).step_by(3) {
                    block.fill(0.0);
                }
            }
            for rounding in Rounding::ALL {
                assert_same(format, &data, axis, rounding);
            }
        }
    }

    /// Every number of 8 significant bits in the twelve binades below the largest one of its block, which is near the ends of
    /// what is tame, and around 1.
    #[test]
    fn every_tie_of_every_element() {
        for name in FORMATS {
            let format: BlockFormat = name.parse().unwrap();
            for exponent in [-126, -100, -99, -80, -1, 0, 1, 99, 100, 101, 125, 126] {
                for fraction in [0, 0x40_0000, 0x60_0000, 0x7f_ffff] {
                    let amax = ((exponent + 127) as u32) << 23 | fraction;
                    let lowest = amax.saturating_sub(12 << 23) >> 16;
                    let magnitudes = lowest..=amax >> 16;
                    let mut patterns =
                        magnitudes.flat_map(|upper| [upper << 16, upper << 16 | 1 << 31]);
                    let mut data = Vec::new();
                    loop {
                        let block = patterns.by_ref().take(7).map(f32::from_bits);
                        data.push(f32::from_bits(amax));
                        data.extend(block);
                        if !data.len().is_multiple_of(8) {
                            break;
                        }
                    }
                    data.resize(data.len().next_multiple_of(512), 0.0);
                    for rounding in [
                        Rounding::NearestAway,
                        Rounding::NearestEven,
                        Rounding::TowardZero,
                    ] {
                        assert_same(format, &data, data.len(), rounding);
                    }
                }
            }
        }
    }
}
