//! The loops over memory that pack blocks.
//!
//! An ordinary block is quantized, and [divided by its scale](Units). A few operations, the same for every element, make codes of
//! the results. The codecs are the specification. They pack all other blocks: blocks with a very large or very small number, and
//! blocks that begin within a byte.

use super::bitstream::Writer;
use super::blocks::{Job, spread};
use super::codes::{BlockCodec, with_codec};
use super::contiguous::Windows;
use super::eights;
use super::places::Places;
use super::plan::{Bytes, Plan, scale_bytes};
use crate::quantize::blocks::{Job as Quantization, Units};
use crate::quantize::contiguous::{Line, TOGETHER, is_usual};
use crate::quantize::instruction_set::{Kernel, Level, at_level, dispatch};
use crate::quantize::interleaved::{Run, Tile};
use crate::quantize::layout::Layout;
use crate::quantize::rules::BlockRule;
use crate::round::bits::{MANTISSA_BITS, pow2};
use crate::round::draws::{Draws, WINDOW};
use crate::round::{RoundingRule, with_rule};
use crate::{BlockFormat, ElementFormat, RandomStream, Rounder};
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Range;

/// Elements of contiguous blocks that are packed together.
const PIECE: usize = 2 * WINDOW;

/// How a tensor is packed.
pub(crate) struct Encoder {
    format: BlockFormat,
    tensor_scale: f32,
    rounder: Rounder,
    /// In units of the tensor scale.
    rule: BlockRule,
    /// The codes of elements of at most 8 bits.
    places: Option<Places>,
    job: Job<()>,
    /// Bytes of a scale's code.
    scale_bytes: usize,
    /// Bits of a sub-block's shift, 0 if there are none.
    shift_bits: u32,
}

impl Encoder {
    pub(crate) fn new(
        format: &BlockFormat,
        tensor_scale: Option<f32>,
        plan: &Plan,
        rounder: Rounder,
    ) -> Self {
        let bits = format.element_bits();
        let places = match format {
            _ if bits > 8 => None,
            BlockFormat::FloatScale(format) if format.element.is_table() => None,
            BlockFormat::Mx(format) => Some(Places::of_element(format.element)),
            BlockFormat::Nvfp4(_) => Some(Places::of_element(ElementFormat::FP4_E2M1)),
            BlockFormat::FloatScale(format) => Some(Places::of_element(format.element)),
            BlockFormat::Microexponent(_) | BlockFormat::Bfp(_) => {
                Some(Places::of_fixed_point(bits - 1))
            }
        };
        let shift_bits = match format {
            BlockFormat::Microexponent(format) => format.shift_bits,
            _ => 0,
        };
        Self {
            format: *format,
            tensor_scale: tensor_scale.unwrap_or(1.0),
            rounder,
            rule: BlockRule::of(format, tensor_scale).in_units_of_the_tensor_scale(),
            places,
            job: plan.job((), bits),
            scale_bytes: scale_bytes(format),
            shift_bits,
        }
    }

    /// Packs consecutive runs, whose elements `data` are.
    pub(crate) fn encode(&self, data: &[f32], bytes: Bytes<'_>) {
        let part = Part {
            data,
            at: bytes.runs.at(bytes.range.start),
            start: bytes.start() as u64,
            scales: bytes.scales,
            elements: bytes.elements,
        };
        with_rule!(self.rounder.rounding(), R => self.encode_part(R, part));
    }

    fn encode_part<R: RoundingRule>(&self, rule: R, part: Part<'_>) {
        let Layout {
            axis, inner, block, ..
        } = self.job.layout;
        // Whole bytes for every run, and for windows of contiguous blocks that are all alike.
        let whole = |elements: usize| (elements * self.job.bits as usize).is_multiple_of(8);
        // A record has bytes for shifts also if its only sub-block is the whole block, which no loop of whole blocks writes.
        let has_loop = self.rule.sub_block() < block || self.job.record == self.scale_bytes;
        let contiguous = inner == 1
            && has_loop
            && axis.is_multiple_of(block)
            && is_usual(block, self.rule.sub_block().min(block));
        match self.places {
            Some(places) if contiguous => self.encode_contiguous(rule, places, part),
            Some(places) if inner > 1 && whole(block * inner) && whole(axis * inner) => {
                self.encode_interleaved(rule, places, part);
            }
            _ => self.encode_any(rule, part),
        }
    }

    fn quantization<R: RoundingRule>(&self, rule: R) -> Quantization<R> {
        Quantization {
            rule: self.rule,
            element_rule: rule,
            stream: self.rounder.stream(),
        }
    }

    /// Packs contiguous blocks, none of which is shorter than the others.
    fn encode_contiguous<R: RoundingRule>(&self, rule: R, places: Places, part: Part<'_>) {
        let length = self.job.layout.block;
        if self.rule.sub_block() < length {
            return self.encode_sub_blocks(rule, places, part);
        }
        let window = TOGETHER * length;
        let mut draws = Draws::new(self.rounder.stream(), part.start + part.data.len() as u64);
        let quantization = self.quantization(rule);
        let mut rest = part;
        while rest.data.len() >= window {
            let done = at_level(|level| {
                let windows = Windows {
                    job: &quantization,
                    level,
                    places,
                    bits: self.job.bits,
                    scale_bytes: self.scale_bytes,
                    data: rest.data,
                    start: rest.start,
                    draws: &mut draws,
                    scales: rest.scales,
                    elements: rest.elements,
                };
                windows.run(length)
            });
            rest.split_off(&self.job, done);
            if rest.data.len() >= window {
                let piece = rest.split_off(&self.job, window);
                self.encode_any(rule, piece);
            }
        }
        self.encode_any(rule, rest);
    }

    /// Packs contiguous blocks with sub-blocks, none of which is shorter than the others.
    fn encode_sub_blocks<R: RoundingRule>(&self, rule: R, places: Places, part: Part<'_>) {
        let length = self.job.layout.block;
        let window = TOGETHER * length;
        let mut draws = Draws::new(self.rounder.stream(), part.start + part.data.len() as u64);
        let quantization = self.quantization(rule);
        let mut units = Units::default();
        let mut buffer = [0.0; PIECE];
        let mut rest = part;
        while rest.data.len() >= window {
            let count = rest.data.len().min(PIECE) / window * window;
            let buffer = &mut buffer[..count];
            buffer.copy_from_slice(&rest.data[..count]);
            units.maxima.clear();
            units.scales.clear();
            let start = rest.start;
            let done = at_level(|level| {
                let mut line = Line {
                    job: &quantization,
                    level,
                    draws: &mut draws,
                };
                line.windows(buffer, length, start, Some(&mut units))
            });
            let piece = rest.split_off(&self.job, done);
            at_level(|level| {
                // Each element has a scale.
                let sub_block = self.rule.sub_block();
                let sub_blocks = length.div_ceil(sub_block);
                self.records(piece.scales, &units, sub_blocks, [length, sub_block]);
                self.codes(level, places, &buffer[..done], piece.elements);
            });
            if done < count {
                let piece = rest.split_off(&self.job, window);
                self.encode_any(rule, piece);
            }
        }
        self.encode_any(rule, rest);
    }

    /// Packs runs of interleaved blocks that are whole bytes each.
    fn encode_interleaved<R: RoundingRule>(&self, rule: R, places: Places, part: Part<'_>) {
        let layout = &self.job.layout;
        let (inner, record) = (layout.inner, self.job.record);
        let mut draws = Draws::new(self.rounder.stream(), part.start + part.data.len() as u64);
        let quantization = self.quantization(rule);
        let mut tile = Tile::new();
        let mut buffer = Vec::new();
        let mut rest = part;
        while !rest.data.is_empty() {
            let length = layout.block.min(layout.axis - rest.at) * inner;
            let run = rest.split_off(&self.job, length);
            buffer.clear();
            buffer.extend_from_slice(run.data);
            let tame = at_level(|level| {
                let mut see = |columns: Range<usize>, units: &Units| {
                    let first = match layout.pool {
                        Some(pool) => pool.blocks(columns.start),
                        None => columns.start,
                    };
                    let blocks = units.maxima.len();
                    let records = &mut run.scales[first * record..][..blocks * record];
                    let sub_blocks = units.scales.len() / blocks;
                    self.records(records, units, sub_blocks, [1, blocks]);
                };
                let quantized = Run {
                    data: &mut buffer,
                    layout,
                    start: run.start,
                };
                quantized.quantize(&quantization, level, &mut tile, &mut draws, Some(&mut see))
            });
            if tame {
                at_level(|level| self.codes(level, places, &buffer, run.elements));
            } else {
                run.scales.fill(0);
                self.encode_any(rule, run);
            }
        }
    }

    /// Writes the records of some tame blocks, each with this number of sub-blocks. `block` and `sub_block` are the
    /// distances in `units` between the scales of neighbouring blocks and of neighbouring sub-blocks.
    fn records(
        &self,
        records: &mut [u8],
        units: &Units,
        sub_blocks: usize,
        [block, sub_block]: [usize; 2],
    ) {
        let Units { maxima, scales } = units;
        let firsts = records.chunks_exact_mut(self.job.record).zip(maxima);
        for ((record, amax), scale) in firsts.zip(scales.iter().step_by(block)) {
            let code = self.rule.tame_scale_code(*amax, *scale).to_le_bytes();
            record[..self.scale_bytes].copy_from_slice(&code[..self.scale_bytes]);
        }
        if self.shift_bits == 0 {
            return;
        }
        let records = records.chunks_exact_mut(self.job.record).zip(maxima);
        for (i, (record, amax)) in records.enumerate().filter(|(_, (_, amax))| **amax > 0) {
            let shared = *amax >> MANTISSA_BITS;
            let scales = scales[i * block..]
                .iter()
                .step_by(sub_block)
                .take(sub_blocks);
            let mut shifts = scales.map(|scale| u64::from(shared - (scale >> MANTISSA_BITS)));
            // Eight shifts are as many bytes as one has bits.
            for bytes in record[1..].chunks_mut(self.shift_bits as usize) {
                let eight = shifts
                    .by_ref()
                    .zip((0..).step_by(self.shift_bits as usize))
                    .take(8);
                let joined = eight.fold(0, |joined, (shift, at): (u64, u32)| joined | shift << at);
                bytes.copy_from_slice(&joined.to_le_bytes()[..bytes.len()]);
            }
        }
    }

    /// Writes the codes of elements in units of their scales: whole bytes of them.
    fn codes(&self, level: Level, places: Places, units: &[f32], bytes: &mut [u8]) {
        level.run(Codes {
            places,
            smallest: pow2(self.rule.unit_element().emin),
            bits: self.job.bits,
            units,
            bytes,
        });
    }

    /// Packs any blocks as the codecs say.
    #[cold]
    #[inline(never)]
    fn encode_any<R: RoundingRule>(&self, _: R, part: Part<'_>) {
        if part.data.is_empty() {
            return;
        }
        let (stream, job) = (self.rounder.stream(), &self.job);
        with_codec!(self.format, self.tensor_scale, codec => dispatch(ByCodec {
            codec,
            rule: PhantomData::<R>,
            job,
            stream,
            part,
        }));
    }
}

/// Consecutive runs of whole blocks.
struct Part<'a> {
    /// Begins with the elements of the first run.
    data: &'a [f32],
    /// Position of the data on the axis, a multiple of the block length.
    at: usize,
    /// Position of the data in the tensor.
    start: u64,
    /// The records of all runs, zeros.
    scales: &'a mut [u8],
    /// The codes of all runs.
    elements: &'a mut [u8],
}

impl<'a> Part<'a> {
    /// The first `count` elements, which are whole runs, or several whole contiguous blocks, and whole bytes. The others stay.
    fn split_off(&mut self, job: &Job<()>, count: usize) -> Part<'a> {
        let Layout {
            axis, inner, block, ..
        } = job.layout;
        let (data, rest) = self.data.split_at(count);
        let rows = count / inner;
        let records = rows.div_ceil(block) * job.layout.blocks(inner) * job.record;
        let (scales, other_scales) = core::mem::take(&mut self.scales).split_at_mut(records);
        let bytes = count * job.bits as usize / 8;
        let (elements, other_elements) = core::mem::take(&mut self.elements).split_at_mut(bytes);
        let part = Part {
            data,
            at: self.at,
            start: self.start,
            scales,
            elements,
        };
        *self = Part {
            data: rest,
            at: (self.at + rows) % axis,
            start: self.start + count as u64,
            scales: other_scales,
            elements: other_elements,
        };
        part
    }
}

/// From elements in units of their scales to codes.
struct Codes<'a> {
    places: Places,
    /// The smallest number with all its mantissa bits, as a pattern.
    smallest: u32,
    bits: u32,
    units: &'a [f32],
    bytes: &'a mut [u8],
}

impl Kernel for Codes<'_> {
    #[inline(always)]
    fn run(self) {
        let mut codes = [0; WINDOW];
        let bytes = self.bytes.chunks_mut(WINDOW / 8 * self.bits as usize);
        for (units, bytes) in self.units.chunks(WINDOW).zip(bytes) {
            let codes = &mut codes[..units.len()];
            for (code, unit) in codes.iter_mut().zip(units) {
                *code = self.places.code(self.smallest, unit.to_bits()) as u8;
            }
            let eights = codes.len() / 8 * 8;
            let (bytes, last) = bytes.split_at_mut(eights / 8 * self.bits as usize);
            eights::pack(self.bits, &codes[..eights], bytes);
            // What remains are whole bytes, too.
            let mut writer = Writer::new(last, self.bits);
            for code in &codes[eights..] {
                writer.put(&[u32::from(*code)]);
            }
            writer.finish();
        }
    }
}

/// The elements of a block of some rows.
fn elements<'a>(
    rows: &'a [f32],
    layout: &Layout,
    block: usize,
) -> impl Iterator<Item = f32> + Clone + use<'a> {
    let (columns, step) = layout.columns(block);
    let rows = rows.chunks_exact(layout.inner);
    rows.flat_map(move |row| row[columns.clone()].iter().step_by(step).copied())
}

/// Packs consecutive runs of whole blocks as the specification does.
struct ByCodec<'a, C, R> {
    codec: C,
    rule: PhantomData<R>,
    job: &'a Job<()>,
    stream: RandomStream,
    part: Part<'a>,
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
                rule.second_of_sub_block(index, elements(rows, layout, block))
            };
            maxima.clear();
            maxima.extend((0..layout.blocks(inner)).map(|block| of_block(run, block)));
            for (index, rows) in run.chunks(sub_rows * inner).enumerate() {
                scales.clear();
                let records = records.chunks_exact_mut(record).zip(&maxima);
                for (block, (record, maxima)) in records.enumerate() {
                    let [amax, mut second] = *maxima;
                    if rule.has_sub_blocks(length) {
                        second = of_sub_block(run, block, index);
                    }
                    scales.push(codec.scale([amax, second], index, record));
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

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::Rounding;
    use crate::quantize::instruction_set::with_level;
    use crate::round::bits::{ABS, INFINITY};
    use alloc::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// For blocks that are packed together, and for other blocks.
    const FORMATS: [&str; 28] = [
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
        "microexponent(bit_width=13,block_size=32,sub_block_size=5,shift_bits=3)",
        "mx(element=fp4_e2m1,block_size=16,square=true)",
        "nvfp4(tensor_scale=true,square=true)",
    ];

    /// The bytes of blocks along the middle one of these axes, from both ways.
    fn assert_same(format: BlockFormat, data: &[f32], shape: [usize; 3], rounding: Rounding) {
        let amax = data.iter().fold(0, |amax, x| amax.max(x.to_bits() & ABS));
        let plan = Plan::new(&format, &shape, 1).unwrap();
        let scale = format.tensor_scale(|| amax);
        let rounder = rounding.with(RandomStream::new(7, 8));
        let encoder = Encoder::new(&format, scale, &plan, rounder);
        let pack = |by_codec: bool| {
            let (mut scales, mut elements) = (vec![0; plan.scales_len], vec![0; plan.elements_len]);
            let part = Part {
                data,
                at: 0,
                start: 1000,
                scales: &mut scales,
                elements: &mut elements,
            };
            with_rule!(rounding, R => match by_codec {
                true => encoder.encode_any(R, part),
                false => encoder.encode_part(R, part),
            });
            (scales, elements)
        };
        let expected = with_level(Level::Baseline, || pack(true));
        for level in Level::available() {
            let got = with_level(level, || pack(false));
            assert!(
                got == expected,
                "{format} {rounding} {level:?}, shape {shape:?}"
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
        fn what_is_packed_is_the_codecs(
            format in select(FORMATS.to_vec()),
            rows in prop_oneof![Just(1_usize), 1..6_usize],
            axis in prop_oneof![
                3 => (1..70_usize).prop_map(|blocks| 32 * blocks),
                1 => (1..90_usize).prop_map(|blocks| 8 * blocks),
                1 => 1..700_usize,
            ],
            inner in prop_oneof![3 => Just(1_usize), 1 => 2..9_usize, 1 => (1..20_usize).prop_map(|eights| 8 * eights)],
            exponent in prop_oneof![4 => -20..20_i32, 1 => -149..127_i32],
            zero_blocks: bool,
            special: bool,
            seed: u64,
        ) {
            let format: BlockFormat = format.parse().unwrap();
            let special = special && !matches!(format, BlockFormat::Bfp(_));
            let mut data = numbers(seed, exponent, special, rows * axis * inner);
            if zero_blocks {
                for block in data.chunks_mut(32).step_by(3) {
                    block.fill(0.0);
                }
            }
            for rounding in Rounding::ALL {
                assert_same(format, &data, [rows, axis, inner], rounding);
            }
        }
    }

    /// Every number of 8 significant bits in the twelve binades below the largest one of its block. The largest one is around 1,
    /// or near an end of the tame range.
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
                        assert_same(format, &data, [1, data.len(), 1], rounding);
                    }
                }
            }
        }
    }
}
