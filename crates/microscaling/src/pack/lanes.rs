//! Eight elements at a time: the way from codes to numbers for blocks that are contiguous in memory and need none of the
//! care that [`BlockCodec::value`] takes, because all of their numbers are normal or zero.
//!
//! The scalar codec is the specification: blocks with a scale near either end of float32, or with NaN for one, are its own.

use super::bitstream;
use super::codes::{BlockCodec, MxCodec, Nvfp4Codec};
use super::number::DecodeNumber;
use crate::quantize::instruction_set::Kernel;
use crate::round::bits::{self, BIAS, MANTISSA_BITS, SIGN};
use crate::{ElementFormat, MicroexponentFormat, MxFormat, Nvfp4Format};

/// Such a way.
pub(crate) trait Lanes: Copy + Sync {
    /// The specification.
    type Codec: BlockCodec;
    /// What the elements of a block share.
    type Tame: Copy;

    /// The codec of the blocks that it leaves.
    fn codec(&self) -> &Self::Codec;

    /// What the elements of this block share, if all of their numbers are normal or zero; `None` leaves the block to
    /// [`codec`](Self::codec).
    fn tame(&self, record: &[u8]) -> Option<Self::Tame>;

    /// The numbers of the eight elements at place `eight` of the block.
    fn eight<const BITS: usize>(
        &self,
        tame: Self::Tame,
        eight: usize,
        bytes: &[u8; BITS],
    ) -> [f32; 8];
}

/// The numbers of all codes of an element of at most 8 bits, whatever is above these.
const fn numbers(element: ElementFormat) -> [f32; 256] {
    let mut numbers = [0.0; 256];
    let mut code = 0;
    while code < numbers.len() {
        numbers[code] = element.decode(code as u32);
        code += 1;
    }
    numbers
}

static FP8_E5M2: [f32; 256] = numbers(ElementFormat::Fp8E5M2);
static FP8_E4M3: [f32; 256] = numbers(ElementFormat::Fp8E4M3);
static FP6_E3M2: [f32; 256] = numbers(ElementFormat::Fp6E3M2);
static FP6_E2M3: [f32; 256] = numbers(ElementFormat::Fp6E2M3);

/// The two FP4 numbers of a byte.
static FP4_PAIRS: [[f32; 2]; 256] = {
    let mut pairs = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        let fp4 = ElementFormat::Fp4E2M1;
        pairs[byte] = [fp4.decode(byte as u32), fp4.decode(byte as u32 >> 4)];
        byte += 1;
    }
    pairs
};

/// Eight FP4 numbers times a factor.
#[inline(always)]
fn fp4<const BITS: usize>(bytes: &[u8; BITS], factor: f32) -> [f32; 8] {
    let mut numbers = [0.0; 8];
    for (pair, byte) in numbers.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        let [low, high] = FP4_PAIRS[usize::from(*byte)];
        *pair = [low * factor, high * factor];
    }
    numbers
}

/// MX blocks of float elements of at most 8 bits.
#[derive(Clone, Copy)]
pub(crate) struct MxLanes {
    codec: MxCodec<false>,
    /// `None` for FP4, whose numbers are in [`FP4_PAIRS`].
    numbers: Option<&'static [f32; 256]>,
    /// Exponents of the smallest positive number, and of the largest.
    exponents: [i32; 2],
}

impl MxLanes {
    /// `None` for other elements.
    pub(crate) fn of(format: &MxFormat) -> Option<Self> {
        let element = format.element;
        let numbers = match element {
            ElementFormat::Fp8E5M2 => Some(&FP8_E5M2),
            ElementFormat::Fp8E4M3 => Some(&FP8_E4M3),
            ElementFormat::Fp6E3M2 => Some(&FP6_E3M2),
            ElementFormat::Fp6E2M3 => Some(&FP6_E2M3),
            ElementFormat::Fp4E2M1 => None,
            _ => return None,
        };
        Some(Self {
            codec: MxCodec::of(format),
            numbers,
            exponents: [
                element.emin() - element.mantissa_bits() as i32,
                element.emax(),
            ],
        })
    }
}

impl Lanes for MxLanes {
    type Codec = MxCodec<false>;
    type Tame = f32;

    fn codec(&self) -> &Self::Codec {
        &self.codec
    }

    #[inline(always)]
    fn tame(&self, record: &[u8]) -> Option<f32> {
        let exponent = i32::from(record[0]) - BIAS;
        let [lowest, highest] = self.exponents;
        let normal = exponent > -BIAS && exponent + lowest > -BIAS && exponent + highest <= BIAS;
        normal.then(|| f32::from_bits(u32::from(record[0]) << MANTISSA_BITS))
    }

    // Inf and NaN stay what they are in a product with a positive number.
    #[inline(always)]
    fn eight<const BITS: usize>(&self, factor: f32, _: usize, bytes: &[u8; BITS]) -> [f32; 8] {
        let Some(numbers) = self.numbers else {
            return fp4(bytes, factor);
        };
        let codes = bitstream::eight(bytes);
        core::array::from_fn(
            #[inline(always)]
            |lane| numbers[codes[lane] as usize & 0xff] * factor,
        )
    }
}

/// NVFP4.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Lanes<const TINY: bool> {
    codec: Nvfp4Codec<TINY, false>,
}

impl<const TINY: bool> Nvfp4Lanes<TINY> {
    pub(crate) fn of(format: &Nvfp4Format, tensor_scale: f32) -> Self {
        Self {
            codec: Nvfp4Codec::of(format, tensor_scale),
        }
    }
}

/// The scales whose products with every FP4 number are normal: from 2^−125 below 2^125.
const NVFP4_TAME: core::ops::Range<u32> = bits::pow2(-125)..bits::pow2(125);

impl<const TINY: bool> Lanes for Nvfp4Lanes<TINY> {
    type Codec = Nvfp4Codec<TINY, false>;
    /// The scale.
    type Tame = f32;

    fn codec(&self) -> &Self::Codec {
        &self.codec
    }

    #[inline(always)]
    fn tame(&self, record: &[u8]) -> Option<f32> {
        let [scale, sign] = self.codec.unit(record, 0);
        let tame = scale == 0 || NVFP4_TAME.contains(&scale);
        tame.then_some(f32::from_bits(scale | sign))
    }

    #[inline(always)]
    fn eight<const BITS: usize>(&self, scale: f32, _: usize, bytes: &[u8; BITS]) -> [f32; 8] {
        fp4(bytes, scale)
    }
}

/// Microexponents of 16 elements in pairs, with a shift of one bit.
#[derive(Clone, Copy)]
pub(crate) struct PairLanes(MicroexponentFormat);

impl PairLanes {
    pub(crate) fn of(format: &MicroexponentFormat) -> Option<Self> {
        let pairs = (format.block_size, format.sub_block_size, format.shift_bits) == (16, 2, 1);
        pairs.then_some(Self(*format))
    }
}

impl Lanes for PairLanes {
    type Codec = MicroexponentFormat;
    /// The pattern of a step without a shift, and the shifts.
    type Tame = (u32, u32);

    fn codec(&self) -> &Self::Codec {
        &self.0
    }

    #[inline(always)]
    fn tame(&self, record: &[u8]) -> Option<(u32, u32)> {
        let step = i32::from(record[0]) + 1 - self.0.mantissa_bits() as i32;
        // With a shift the step is half of that.
        let tame = record[0] != u8::MAX && step > 1;
        tame.then_some(((step.max(0) as u32) << MANTISSA_BITS, u32::from(record[1])))
    }

    #[inline(always)]
    fn eight<const BITS: usize>(
        &self,
        (step, shifts): (u32, u32),
        eight: usize,
        bytes: &[u8; BITS],
    ) -> [f32; 8] {
        let codes = bitstream::eight(bytes);
        core::array::from_fn(
            #[inline(always)]
            |lane| {
                let shift = shifts >> (4 * eight + lane / 2) & 1;
                let steps = (codes[lane] & ((1 << (BITS - 1)) - 1)) as i32 as f32;
                let product = steps * f32::from_bits(step - (shift << MANTISSA_BITS));
                f32::from_bits(product.to_bits() | (codes[lane] << (32 - BITS)) & SIGN)
            },
        )
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
        let lanes = self.lanes;
        let codec = lanes.codec();
        let (mut at, mut rest, mut elements) = (self.at, self.data, self.elements);
        for record in self.scales.chunks_exact(self.record) {
            if rest.is_empty() {
                break;
            }
            let length = self.block.min(self.axis - at);
            let (run, tail) = rest.split_at_mut(length);
            let (codes, behind) = elements.split_at(length / 8 * BITS);
            let eights = run.as_chunks_mut::<8>().0.iter_mut();
            let eights = eights.zip(codes.as_chunks::<BITS>().0).enumerate();
            if let Some(tame) = lanes.tame(record) {
                for (eight, (out, bytes)) in eights {
                    let numbers = lanes.eight(tame, eight, bytes);
                    *out = core::array::from_fn(
                        #[inline(always)]
                        |lane| T::from_pattern(numbers[lane].to_bits()),
                    );
                }
            } else {
                let sub_block = codec.sub_block();
                for (eight, (out, codes)) in eights {
                    let codes = bitstream::eight(codes);
                    for (i, (x, code)) in out.iter_mut().zip(codes).enumerate() {
                        let unit = codec.unit(record, (8 * eight + i) / sub_block);
                        *x = T::from_pattern(codec.value(unit, code).to_bits());
                    }
                }
            }
            at = if at + length == self.axis {
                0
            } else {
                at + length
            };
            rest = tail;
            elements = behind;
        }
    }
}
