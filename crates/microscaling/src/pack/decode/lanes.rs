//! Decodes vectors of elements at a time, from blocks whose numbers are all normal or zero. The elements of a block, or of blocks side
//! by side, are contiguous in memory. Other numbers need the care of [`BlockCodec::value`].
//!
//! The scalar codec is the specification, and alone decodes blocks whose scale is NaN or near either end of float32.

use crate::format::element::places::CodePlaces;
use crate::format::{BlockFormat, ElementFormat, Shifts};
use crate::pack::codes::{BlockCodec, ExponentCodec, FloatScaleCodec, TensorFactor, bitstream};
use crate::pack::number::DecodeNumber;
use crate::pack::plan::{PackJob, spread};
use crate::quantize::blocks::contiguous::LANES;
use crate::quantize::layout::Layout;
use crate::round::bits::{self, BIAS, MANTISSA_BITS, ONE};
use alloc::vec::Vec;
use microscaling_processor::instruction_set::Kernel;

/// Such a way.
pub(crate) trait Lanes: Copy + Sync {
    /// The specification.
    type Codec: BlockCodec;
    /// Data that the elements of a block share.
    type Ordinary: Copy;

    /// The data of a block whose elements the codec decodes afterwards.
    const LEFT: Self::Ordinary;
    /// Whether numbers have at most 8 significant bits.
    const SHORT: bool;

    /// The codec of the blocks that it leaves.
    fn codec(&self) -> &Self::Codec;

    /// The data that the elements of this block share, if all of their numbers are normal or zero; `None` leaves the
    /// block to [`codec`](Self::codec).
    fn ordinary(&self, record: &[u8]) -> Option<Self::Ordinary>;

    /// The number of the element at that place of the block, as a pattern.
    fn number<const BITS: usize>(&self, ordinary: Self::Ordinary, place: usize, code: u32) -> u32;
}

/// Blocks whose scale is a power of two, without shifts, of elements of at most 8 bits.
#[derive(Clone, Copy)]
pub(crate) struct ExponentLanes {
    codec: ExponentCodec<false>,
    places: CodePlaces,
    /// The scales of ordinary blocks, from the first one to the last.
    ordinary: [i32; 2],
    emin: i32,
}

impl ExponentLanes {
    /// `None` for other formats, other elements, and for integers of fewer bits.
    pub(crate) fn of(format: &BlockFormat) -> Option<Self> {
        let element = format.element;
        if !format.has_exponent() || format.shifts.is_some() || format.other_scales().is_some() {
            return None;
        }
        let places = CodePlaces::of_element(element);
        if element.bits() > 8 || (element.bits() < 8 && !places.is_plain()) {
            return None;
        }
        // The largest magnitude of a two's complement is beyond the largest number.
        let highest = element.emax() + i32::from(element.is_integer());
        Some(Self {
            codec: ExponentCodec::of(format),
            places,
            ordinary: [
                (1 - BIAS - element.emin() + element.mantissa_bits() as i32).max(1 - BIAS),
                (BIAS - highest).min(BIAS),
            ],
            emin: element.emin(),
        })
    }
}

impl Lanes for ExponentLanes {
    type Codec = ExponentCodec<false>;
    /// The pattern of the smallest number with all its mantissa bits.
    type Ordinary = u32;

    const LEFT: u32 = ONE;
    const SHORT: bool = true;

    fn codec(&self) -> &Self::Codec {
        &self.codec
    }

    #[inline(always)]
    fn ordinary(&self, record: &[u8]) -> Option<u32> {
        let scale = i32::from(record[0]) - BIAS;
        let [first, last] = self.ordinary;
        let field = i32::from(record[0]) + self.emin;
        (first <= scale && scale <= last).then_some((field << MANTISSA_BITS) as u32)
    }

    #[inline(always)]
    fn number<const BITS: usize>(&self, smallest: u32, _: usize, code: u32) -> u32 {
        if BITS == 8 {
            self.places.number(smallest, code)
        } else {
            self.places.plain_number(smallest, code)
        }
    }
}

/// NVFP4.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Lanes {
    codec: FloatScaleCodec,
}

/// The elements of NVFP4.
const FP4: CodePlaces = CodePlaces::of_element(ElementFormat::FP4_E2M1);

impl Nvfp4Lanes {
    /// `None` for other formats.
    pub(crate) fn of(format: &BlockFormat, tensor: TensorFactor) -> Option<Self> {
        format.is_nvfp4().then(|| Self {
            codec: FloatScaleCodec::of(format, tensor),
        })
    }
}

/// The scales whose products with every FP4 number are normal: from 2^−125 below 2^125.
const NVFP4_TAME: core::ops::Range<u32> = bits::pow2(-125)..bits::pow2(125);

impl Lanes for Nvfp4Lanes {
    type Codec = FloatScaleCodec;
    /// The scale.
    type Ordinary = f32;

    const LEFT: f32 = 1.0;
    const SHORT: bool = false;

    fn codec(&self) -> &Self::Codec {
        &self.codec
    }

    #[inline(always)]
    fn ordinary(&self, record: &[u8]) -> Option<f32> {
        let [scale, sign, _] = self.codec.unit(record, 0);
        let ordinary = scale == 0 || NVFP4_TAME.contains(&scale);
        ordinary.then_some(f32::from_bits(scale | sign))
    }

    #[inline(always)]
    fn number<const BITS: usize>(&self, scale: f32, _: usize, code: u32) -> u32 {
        (f32::from_bits(FP4.plain_number(ONE, code)) * scale).to_bits()
    }
}

/// Microexponents of 16 elements in pairs, with a shift of one bit.
#[derive(Clone, Copy)]
pub(crate) struct PairLanes {
    codec: ExponentCodec<true>,
    places: CodePlaces,
    magnitude_bits: i32,
}

impl PairLanes {
    /// `None` for other ones, and for elements of more than 8 bits.
    pub(crate) fn of(format: &BlockFormat) -> Option<Self> {
        let pairs = Shifts {
            block_size: 2,
            bits: 1,
        };
        let has_pairs = (format.block_size, format.shifts) == (16, Some(pairs));
        (has_pairs && format.element.bits() <= 8).then(|| Self {
            codec: ExponentCodec::of(format),
            places: CodePlaces::of_element(format.element),
            magnitude_bits: format.element.bits() as i32 - 1,
        })
    }
}

impl Lanes for PairLanes {
    type Codec = ExponentCodec<true>;
    /// The pattern of 2^(shared exponent), and the shifts.
    type Ordinary = (u32, u32);

    const LEFT: (u32, u32) = (ONE, 0);
    const SHORT: bool = true;

    fn codec(&self) -> &Self::Codec {
        &self.codec
    }

    #[inline(always)]
    fn ordinary(&self, record: &[u8]) -> Option<(u32, u32)> {
        let step = i32::from(record[0]) + 1 - self.magnitude_bits;
        // With a shift the step is half of that.
        let ordinary = record[0] != u8::MAX && step > 1;
        ordinary.then_some((u32::from(record[0]) << MANTISSA_BITS, u32::from(record[1])))
    }

    #[inline(always)]
    fn number<const BITS: usize>(
        &self,
        (exponent, shifts): (u32, u32),
        place: usize,
        code: u32,
    ) -> u32 {
        let shift = shifts >> (place / 2) & 1;
        self.places
            .plain_number(exponent - (shift << MANTISSA_BITS), code)
    }
}

/// Decodes whole blocks of a multiple of eight elements, which follow each other in memory.
pub(crate) struct DecodeEights<'a, C, T, const BITS: usize> {
    pub(crate) lanes: C,
    /// Length of the axis.
    pub(crate) axis: usize,
    /// Elements in a block, a multiple of eight; the last one of an axis may be shorter by such a multiple.
    pub(crate) block: usize,
    /// Bytes of a block's record.
    pub(crate) record: usize,
    pub(crate) data: &'a mut [T],
    /// Position of the data on the axis, a multiple of the block length.
    pub(crate) at: usize,
    /// Begins with the record of the first block.
    pub(crate) scales: &'a [u8],
    /// Begins with the codes of the first block.
    pub(crate) elements: &'a [u8],
}

impl<C: Lanes, T: DecodeNumber, const BITS: usize> Kernel for DecodeEights<'_, C, T, BITS> {
    #[inline(always)]
    fn run(self) {
        match self.block {
            16 if self.axis.is_multiple_of(16) => self.whole::<16>(),
            32 if self.axis.is_multiple_of(32) => self.whole::<32>(),
            _ => self.any(),
        }
    }
}

impl<C: Lanes, T: DecodeNumber, const BITS: usize> DecodeEights<'_, C, T, BITS> {
    /// Blocks of any length.
    #[inline(always)]
    fn any(self) {
        let (mut at, mut rest, mut elements) = (self.at, self.data, self.elements);
        for record in self.scales.chunks_exact(self.record) {
            if rest.is_empty() {
                break;
            }
            let length = self.block.min(self.axis - at);
            let (run, tail) = rest.split_at_mut(length);
            let (codes, behind) = elements.split_at(length / 8 * BITS);
            block::<_, _, BITS>(&self.lanes, record, codes, run);
            at = if at + length == self.axis {
                0
            } else {
                at + length
            };
            rest = tail;
            elements = behind;
        }
    }

    /// Blocks of a usual length, all alike: as a constant, so that they are vectors without a loop.
    #[inline(always)]
    fn whole<const BLOCK: usize>(self) {
        let runs = self.data.as_chunks_mut::<BLOCK>().0.iter_mut();
        let records = self.scales.chunks_exact(self.record);
        let codes = self.elements.chunks_exact(BLOCK / 8 * BITS);
        for ((run, record), codes) in runs.zip(records).zip(codes) {
            block::<_, _, BITS>(&self.lanes, record, codes, run);
        }
    }
}

/// Decodes a block.
#[inline(always)]
fn block<C: Lanes, T: DecodeNumber, const BITS: usize>(
    lanes: &C,
    record: &[u8],
    codes: &[u8],
    run: &mut [T],
) {
    let Some(ordinary) = lanes.ordinary(record) else {
        return by_codec::<_, _, BITS>(lanes.codec(), record, codes, run);
    };
    let first_of_last = run.len() / LANES * LANES;
    let (vectors, eight) = run.as_chunks_mut::<LANES>();
    let (pairs, last) = codes.as_chunks::<BITS>().0.as_chunks::<2>();
    let number = |first: usize| {
        #[inline(always)]
        move |lane, code| lanes.number::<BITS>(ordinary, first + lane, code)
    };
    for (i, (out, pair)) in vectors.iter_mut().zip(pairs).enumerate() {
        *out = vector::<C, _, BITS, 2, LANES>(pair, number(i * LANES));
    }
    for (out, last) in eight.as_chunks_mut().0.iter_mut().zip(last) {
        *out = vector::<C, _, BITS, 1, 8>(&[*last], number(first_of_last));
    }
}

/// Decodes whole lines of blocks that lie side by side: each line has an element of each block. A line has a multiple of eight elements.
pub(crate) struct DecodeLines<'a, C, T, const BITS: usize> {
    pub(crate) job: PackJob<C>,
    pub(crate) data: &'a mut [T],
    /// Position of the first line on the axis.
    pub(crate) at: usize,
    /// Begins with the records of the first line's blocks.
    pub(crate) scales: &'a [u8],
    /// Begins with the codes of the first line.
    pub(crate) elements: &'a [u8],
}

impl<C: Lanes, T: DecodeNumber, const BITS: usize> Kernel for DecodeLines<'_, C, T, BITS> {
    #[inline(always)]
    fn run(self) {
        let PackJob {
            codec: lanes,
            layout,
            record,
            ..
        } = self.job;
        let (inner, bytes) = (layout.inner, layout.inner / 8 * BITS);
        let (mut at, mut rest, mut elements) = (self.at, self.data, self.elements);
        let mut ordinary = Vec::new();
        for records in self.scales.chunks_exact(layout.blocks(inner) * record) {
            if rest.is_empty() {
                break;
            }
            let first = at % layout.block;
            let end = layout.block.min(layout.axis - (at - first));
            let (run, tail) = rest.split_at_mut(((end - first) * inner).min(rest.len()));
            let (codes, behind) = elements.split_at(run.len() / 8 * BITS);
            let mut is_left = false;
            ordinary.clear();
            ordinary.extend(records.chunks_exact(record).map(
                #[inline(always)]
                |record| {
                    lanes.ordinary(record).unwrap_or_else(|| {
                        is_left = true;
                        C::LEFT
                    })
                },
            ));
            spread(&mut ordinary, &layout);
            let lines = run.chunks_exact_mut(inner).zip(codes.chunks_exact(bytes));
            for (place, (out, codes)) in (first..).zip(lines) {
                line::<_, _, BITS>(&lanes, &ordinary, place, codes, out);
            }
            if is_left {
                left_columns::<_, _, BITS>(&lanes, &layout, records, first, codes, run);
            }
            at = (at - first + end) % layout.axis;
            rest = tail;
            elements = behind;
        }
    }
}

/// Decodes an element of each block: the one at that place.
#[inline(always)]
fn line<C: Lanes, T: DecodeNumber, const BITS: usize>(
    lanes: &C,
    ordinary: &[C::Ordinary],
    place: usize,
    codes: &[u8],
    out: &mut [T],
) {
    let (vectors, eight) = out.as_chunks_mut::<LANES>();
    let (blocks, last_blocks) = ordinary.as_chunks::<LANES>();
    let (pairs, last) = codes.as_chunks::<BITS>().0.as_chunks::<2>();
    for ((out, blocks), pair) in vectors.iter_mut().zip(blocks).zip(pairs) {
        *out = vector::<C, _, BITS, 2, LANES>(
            pair,
            #[inline(always)]
            |lane, code| lanes.number::<BITS>(blocks[lane], place, code),
        );
    }
    let eights = last_blocks.as_chunks::<8>().0.iter().zip(last);
    for (out, (blocks, last)) in eight.as_chunks_mut().0.iter_mut().zip(eights) {
        *out = vector::<C, _, BITS, 1, 8>(
            &[*last],
            #[inline(always)]
            |lane, code| lanes.number::<BITS>(blocks[lane], place, code),
        );
    }
}

/// Decodes the columns of the blocks that are not ordinary as the specification does.
#[cold]
#[inline(never)]
fn left_columns<C: Lanes, T: DecodeNumber, const BITS: usize>(
    lanes: &C,
    layout: &Layout,
    records: &[u8],
    first: usize,
    codes: &[u8],
    run: &mut [T],
) {
    let codec = lanes.codec();
    let record = records.len() / layout.blocks(layout.inner);
    let sub_block = codec.rule().sub_block();
    for column in 0..layout.inner {
        let record = &records[layout.block_of(column) * record..][..record];
        if lanes.ordinary(record).is_some() {
            continue;
        }
        let elements = (column..run.len()).step_by(layout.inner);
        for (place, i) in (first..).zip(elements) {
            let unit = codec.unit(record, place / sub_block);
            let code = bitstream::get(codes, i, BITS as u32);
            run[i] = T::from_pattern(codec.value(unit, code).to_bits());
        }
    }
}

/// Decodes a block as the specification does.
#[cold]
#[inline(never)]
fn by_codec<C: BlockCodec, T: DecodeNumber, const BITS: usize>(
    codec: &C,
    record: &[u8],
    codes: &[u8],
    run: &mut [T],
) {
    let sub_block = codec.rule().sub_block();
    let codes = codes
        .as_chunks()
        .0
        .iter()
        .flat_map(bitstream::eight::<BITS>);
    for (i, (x, code)) in run.iter_mut().zip(codes).enumerate() {
        let unit = codec.unit(record, i / sub_block);
        *x = T::from_pattern(codec.value(unit, code).to_bits());
    }
}

/// The numbers of elements of ordinary blocks from their codes, eight for each of the codes' eights. `number` gives the number of a lane's
/// code, as a pattern.
#[inline(always)]
fn vector<C: Lanes, T: DecodeNumber, const BITS: usize, const EIGHTS: usize, const N: usize>(
    codes: &[[u8; BITS]; EIGHTS],
    number: impl Fn(usize, u32) -> u32,
) -> [T; N] {
    let bytes = codes.as_flattened();
    let words = words(codes);
    // By loops: the functions of arrays are not always inlined, and have no vectors of their own. By two, so that rounding is
    // one vector's, too.
    let mut patterns = [0; N];
    for (lane, pattern) in patterns.iter_mut().enumerate() {
        let code = match BITS {
            8 => u32::from(bytes[lane]),
            _ => (words[lane / 8] >> (BITS * (lane % 8))) as u32 & ((1 << BITS) - 1),
        };
        *pattern = number(lane, code);
    }
    let mut numbers = [T::default(); N];
    for (number, pattern) in numbers.iter_mut().zip(patterns) {
        *number = match C::SHORT {
            true => T::from_short_pattern(pattern),
            false => T::from_pattern(pattern),
        };
    }
    numbers
}

/// Words that begin with eight codes each; the remaining bits are arbitrary.
#[inline(always)]
fn words<const BITS: usize, const EIGHTS: usize>(codes: &[[u8; BITS]; EIGHTS]) -> [u64; EIGHTS] {
    let bytes = codes.as_flattened();
    let mut words = [0; EIGHTS];
    // Six bytes are two loads each.
    if let (2, 6, Some(first), Some(last)) = (EIGHTS, BITS, bytes.first_chunk(), bytes.last_chunk())
    {
        words[0] = u64::from_le_bytes(*first);
        words[EIGHTS - 1] = u64::from_le_bytes(*last) >> (64 - 8 * BITS);
        return words;
    }
    for (word, codes) in words.iter_mut().zip(codes) {
        let mut joined = [0; 8];
        joined[..BITS].copy_from_slice(codes);
        *word = u64::from_le_bytes(joined);
    }
    words
}
