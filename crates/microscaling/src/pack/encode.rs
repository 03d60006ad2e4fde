//! The loops over memory that pack blocks.
//!
//! An ordinary block is quantized, and [divided by its scale](Units). A few operations, the same for every element, make codes of
//! the results. The codecs are the specification. They pack all other blocks: blocks with a very large or very small number, and
//! blocks that begin within a byte.

mod by_codec;
mod contiguous;
pub(super) mod source;

use super::codes::bitstream::Writer;
use super::codes::eights;
use super::codes::{TensorFactor, with_codec};
use super::plan::{Bytes, PackJob, Plan, scale_bytes};
use crate::format::BlockFormat;
use crate::format::element::places::CodePlaces;
use crate::quantize::blocks::contiguous::{Line, is_usual};
use crate::quantize::blocks::interleaved::{Run, Tile};
use crate::quantize::blocks::{Job, Units};
use crate::quantize::layout::Layout;
use crate::quantize::rules::{BlockRule, TOGETHER};
use crate::round::bits::{MANTISSA_BITS, pow2};
use crate::round::draws::{Draws, WINDOW};
use crate::round::mode::Rounder;
use crate::round::{RoundingRule, with_rule};
use alloc::vec::Vec;
use by_codec::ByCodec;
use contiguous::PackWindows;
use core::marker::PhantomData;
use core::ops::Range;
use microscaling_processor::instruction_set::{Kernel, Level, at_level, dispatch};

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
    places: Option<CodePlaces>,
    job: PackJob<()>,
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
        let places = (bits <= 8 && !format.element.is_table())
            .then(|| CodePlaces::of_element(format.element));
        let shift_bits = format.shifts.map_or(0, |shifts| shifts.bits);
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
        let part = EncodedRuns {
            data,
            at: bytes.runs.at(bytes.range.start),
            start: bytes.start() as u64,
            scales: bytes.scales,
            elements: bytes.elements,
        };
        with_rule!(self.rounder.rounding(), R => self.encode_part(R, part));
    }

    fn encode_part<R: RoundingRule>(&self, rule: R, part: EncodedRuns<'_>) {
        let Layout {
            axis, inner, block, ..
        } = self.job.layout;
        // Whole bytes for every run, and for windows of contiguous blocks that are all alike.
        let whole = |elements: usize| (elements * self.job.bits as usize).is_multiple_of(8);
        // A record has bytes for shifts also if its only sub-block is the whole block, which no loop of whole blocks writes.
        let has_loop = self.rule.sub_block() < block || self.job.record == self.scale_bytes;
        let contiguous =
            inner == 1 && has_loop && axis.is_multiple_of(block) && is_usual(&self.rule, block);
        match self.places {
            // Their doubled scales have bits of their own.
            _ if self.rule.first_sub_block().is_some() => self.encode_any(rule, part),
            _ if matches!(self.rule, BlockRule::OuterScale(_)) => self.encode_any(rule, part),
            Some(places) if contiguous => self.encode_contiguous(rule, places, part),
            Some(places) if inner > 1 && whole(block * inner) && whole(axis * inner) => {
                self.encode_interleaved(rule, places, part);
            }
            _ => self.encode_any(rule, part),
        }
    }

    fn quantization<R: RoundingRule>(&self, rule: R) -> Job<R> {
        Job {
            rule: self.rule,
            element_rule: rule,
            stream: self.rounder.stream().into(),
        }
    }

    /// Packs contiguous blocks, none of which is shorter than the others.
    fn encode_contiguous<R: RoundingRule>(
        &self,
        rule: R,
        places: CodePlaces,
        part: EncodedRuns<'_>,
    ) {
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
                let windows = PackWindows {
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
    fn encode_sub_blocks<R: RoundingRule>(
        &self,
        rule: R,
        places: CodePlaces,
        part: EncodedRuns<'_>,
    ) {
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
    fn encode_interleaved<R: RoundingRule>(
        &self,
        rule: R,
        places: CodePlaces,
        part: EncodedRuns<'_>,
    ) {
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
            let ordinary = at_level(|level| {
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
                    goes_on: false,
                };
                quantized.quantize(&quantization, level, &mut tile, &mut draws, Some(&mut see))
            });
            if ordinary {
                at_level(|level| self.codes(level, places, &buffer, run.elements));
            } else {
                run.scales.fill(0);
                self.encode_any(rule, run);
            }
        }
    }

    /// Writes the records of some ordinary blocks, each with this number of sub-blocks. `block` and `sub_block` are the
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
            let code = self.rule.ordinary_scale_code(*amax, *scale).to_le_bytes();
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
    fn codes(&self, level: Level, places: CodePlaces, units: &[f32], bytes: &mut [u8]) {
        level.run(Codes {
            places,
            smallest: pow2(self.rule.unit_element().emin),
            bits: self.job.bits,
            units,
            bytes,
        });
    }

    /// Packs a whole tensor as the codecs say.
    pub(super) fn encode_by_codec(&self, data: &[f32], scales: &mut [u8], elements: &mut [u8]) {
        let part = EncodedRuns {
            data,
            at: 0,
            start: 0,
            scales,
            elements,
        };
        with_rule!(self.rounder.rounding(), R => self.encode_any(R, part));
    }

    /// Packs any blocks as the codecs say.
    #[cold]
    #[inline(never)]
    fn encode_any<R: RoundingRule>(&self, _: R, part: EncodedRuns<'_>) {
        if part.data.is_empty() {
            return;
        }
        let (stream, job) = (self.rounder.stream(), &self.job);
        with_codec!(self.format, TensorFactor::Factor(self.tensor_scale.to_bits()), codec => dispatch(ByCodec {
            codec,
            rule: PhantomData::<R>,
            job,
            stream,
            part,
        }));
    }
}

/// Consecutive runs of whole blocks.
struct EncodedRuns<'a> {
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

impl<'a> EncodedRuns<'a> {
    /// The first `count` elements, which are whole runs, or several whole contiguous blocks, and whole bytes. The others stay.
    fn split_off(&mut self, job: &PackJob<()>, count: usize) -> EncodedRuns<'a> {
        let Layout {
            axis, inner, block, ..
        } = job.layout;
        let (data, rest) = self.data.split_at(count);
        let rows = count / inner;
        let records = rows.div_ceil(block) * job.layout.blocks(inner) * job.record;
        let (scales, other_scales) = core::mem::take(&mut self.scales).split_at_mut(records);
        let bytes = count * job.bits as usize / 8;
        let (elements, other_elements) = core::mem::take(&mut self.elements).split_at_mut(bytes);
        let part = EncodedRuns {
            data,
            at: self.at,
            start: self.start,
            scales,
            elements,
        };
        *self = EncodedRuns {
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
    places: CodePlaces,
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
            // The rest has whole bytes, too.
            let mut writer = Writer::new(last, self.bits);
            for code in &codes[eights..] {
                writer.put(&[u32::from(*code)]);
            }
            writer.finish();
        }
    }
}
