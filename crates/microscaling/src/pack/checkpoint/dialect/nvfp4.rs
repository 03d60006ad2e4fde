//! How tools compute the bytes of NVFP4, as scalar code in exact arithmetic.

use super::encoding::{Elements, Signs, Ties, is_finite};
use crate::format::{BlockFormat, ElementFormat};
use crate::pack::codes::bitstream::Writer;
use crate::quantize::largest::largest;
use crate::round::bits::{self, ABS, IMPLICIT, MANTISSA_BITS, ONE};
use alloc::{vec, vec::Vec};

/// Elements in a block of NVFP4.
pub(super) const NVFP4_BLOCK: usize = BlockFormat::NVFP4.block_size;

/// A tool's way to NVFP4 with a tensor scale.
#[derive(Clone, Copy)]
pub(super) enum Nvfp4Encoding {
    CompressedTensors,
    ModelOpt,
    TransformerEngine,
    TransformerEngineFastMath,
}

/// The bytes of a tensor of NVFP4.
pub(super) struct Nvfp4Blocks {
    pub(super) scales: Vec<u8>,
    pub(super) elements: Vec<u8>,
    pub(super) tensor_scale: f32,
    pub(super) divisor: Option<f32>,
}

/// 448 · 6 and 6 as patterns.
const BOTH_MAX: u32 = 2688.0_f32.to_bits();
const ELEMENT_MAX: u32 = 6.0_f32.to_bits();
/// Their reciprocals in float32.
const INVERSE_BOTH_MAX: u32 = (1.0 / 2688.0_f32).to_bits();
const INVERSE_ELEMENT_MAX: u32 = (1.0 / 6.0_f32).to_bits();
/// The largest finite pattern.
const LARGEST: u32 = bits::INFINITY - 1;

/// The scale of a tensor of NVFP4.
#[derive(Clone, Copy)]
pub(super) struct Nvfp4Tensor {
    /// The scale as a factor, as a pattern.
    of_tensor: u32,
    encoding: TensorEncoding,
}

/// The other number that a tool takes of a tensor, as a pattern.
#[derive(Clone, Copy)]
enum TensorEncoding {
    /// The divisor that compressed-tensors stores in the factor's place.
    Divisor(u32),
    /// None.
    ModelOpt,
    /// The factor that brings TransformerEngine's blocks to the range of their scales.
    Encode(u32),
    /// The same, for numbers and factors of elements in bfloat16.
    EncodeBfloat16(u32),
}

impl Nvfp4Encoding {
    /// The scale of a tensor whose largest magnitude has this pattern; `None` if the tool makes NaN of the tensor.
    pub(super) fn tensor(self, amax: u32) -> Option<Nvfp4Tensor> {
        let (of_tensor, encoding) = match self {
            Self::ModelOpt => (bits::quotient(amax, BOTH_MAX), TensorEncoding::ModelOpt),
            Self::TransformerEngine => {
                let (of_tensor, encode) = transformer_engine(amax);
                (of_tensor, TensorEncoding::Encode(encode))
            }
            Self::TransformerEngineFastMath => {
                let (of_tensor, encode) = transformer_engine(to_bfloat16(amax));
                (of_tensor, TensorEncoding::EncodeBfloat16(encode))
            }
            Self::CompressedTensors => {
                let divisor = bits::product(BOTH_MAX, bits::quotient(ONE, amax.max(IMPLICIT)));
                let divisor = if divisor >= bits::INFINITY {
                    ONE
                } else {
                    divisor
                };
                let of_tensor = bits::quotient(ONE, divisor);
                (of_tensor, TensorEncoding::Divisor(divisor))
            }
        };
        (of_tensor != 0).then_some(Nvfp4Tensor {
            of_tensor,
            encoding,
        })
    }
}

/// TransformerEngine's scale of a tensor with this largest magnitude, and the factor that brings blocks to the range of their scales.
fn transformer_engine(amax: u32) -> (u32, u32) {
    match amax {
        // Zeros have no scale that matters.
        0 => (ONE, ONE),
        amax => (
            bits::product(amax, INVERSE_BOTH_MAX),
            bits::quotient(BOTH_MAX, amax).min(LARGEST),
        ),
    }
}

/// The nearest bfloat16, the even one of two: Inf beyond the largest.
pub(super) fn to_bfloat16(abs: u32) -> u32 {
    const DROPPED: u32 = MANTISSA_BITS as u32 - ElementFormat::BFLOAT16.mantissa_bits();
    let odd = (abs >> DROPPED) & 1;
    (abs + (1 << (DROPPED - 1)) - 1 + odd) >> DROPPED << DROPPED
}

impl Nvfp4Tensor {
    /// The scale of a tensor without one, for compressed-tensors: the divisor is 1.
    pub(super) const UNSCALED: Self = Self {
        of_tensor: ONE,
        encoding: TensorEncoding::Divisor(ONE),
    };

    /// For finite numbers, a whole number of blocks.
    pub(super) fn encode(self, data: &[f32], bytes: usize) -> Nvfp4Blocks {
        let numbers = Nvfp4Numbers::new();
        let mut elements = vec![0; bytes];
        let mut writer = Writer::new(&mut elements, numbers.fp4.bits);
        let mut scales = Vec::with_capacity(data.len() / NVFP4_BLOCK);
        for block in data.as_chunks().0 {
            let (scale, _, codes) = self.block(&numbers, block);
            scales.push(scale as u8);
            writer.put(&codes);
        }
        writer.finish();
        Nvfp4Blocks {
            scales,
            elements,
            tensor_scale: f32::from_bits(self.of_tensor),
            divisor: match self.encoding {
                TensorEncoding::Divisor(divisor) => Some(f32::from_bits(divisor)),
                _ => None,
            },
        }
    }

    /// The numbers of these bytes in place of a whole number of blocks. A block with a NaN or Inf becomes NaN. (With a tensor scale, the
    /// tensor does, and is not given here.)
    pub(super) fn quantize(self, data: &mut [f32]) {
        let numbers = Nvfp4Numbers::new();
        for block in data.as_chunks_mut().0 {
            if !is_finite(block) {
                block.fill(f32::NAN);
                continue;
            }
            let (_, unit, codes) = self.block(&numbers, block);
            *block = codes.map(|code| {
                let number = (numbers.fp4.number(code) as f32).to_bits();
                f32::from_bits(number & !ABS | bits::product(number & ABS, unit))
            });
        }
    }

    /// The code of a block's scale, the scale with the tensor's, and the codes.
    fn block(
        self,
        numbers: &Nvfp4Numbers,
        block: &[f32; NVFP4_BLOCK],
    ) -> (u32, u32, [u32; NVFP4_BLOCK]) {
        let Nvfp4Numbers { fp4, e4m3 } = numbers;
        let amax = self.source(largest(block));
        let code = self.scale_code(e4m3, amax);
        let scale = (e4m3.number(code) as f32).to_bits();
        let unit = match self.encoding {
            TensorEncoding::Divisor(divisor) => bits::quotient(scale, divisor),
            _ => bits::product(scale, self.of_tensor),
        };
        let factor = self.factor(scale);
        let codes = block.map(|x| {
            let abs = self.source(x.to_bits() & ABS);
            let scaled = match factor {
                Some(factor) => bits::product(abs, factor),
                None => bits::quotient(abs, unit),
            };
            let scaled = bits::widen(scaled.min(LARGEST));
            fp4.code(
                x.to_bits() & !ABS | abs,
                scaled,
                Ties::Even,
                Signs::OfNumbers,
            )
        });
        (code, unit, codes)
    }
}

impl Nvfp4Tensor {
    /// The code of the scale of a block with this largest magnitude.
    fn scale_code(self, e4m3: &Elements, amax: u32) -> u32 {
        let code = |scale| e4m3.magnitude(bits::widen(scale), Ties::Even);
        match self.encoding {
            TensorEncoding::Divisor(divisor) => {
                match code(bits::product(divisor, bits::quotient(amax, ELEMENT_MAX))) {
                    // 2^−3.
                    0 => 0x20,
                    code => code,
                }
            }
            TensorEncoding::ModelOpt => {
                let scale = bits::quotient(amax, bits::product(ELEMENT_MAX, self.of_tensor));
                // From 2^−9 on.
                code(if scale == 0 { ONE } else { scale }).max(1)
            }
            TensorEncoding::Encode(encode) | TensorEncoding::EncodeBfloat16(encode) => {
                let factor = bits::product(encode, INVERSE_ELEMENT_MAX);
                code(bits::product(amax, factor).min(LARGEST))
            }
        }
    }

    /// The number that the tool reads in place of this one.
    fn source(self, abs: u32) -> u32 {
        match self.encoding {
            TensorEncoding::EncodeBfloat16(_) => to_bfloat16(abs),
            _ => abs,
        }
    }

    /// The factor of the elements of a block with this scale, of the tool that multiplies by one.
    fn factor(self, scale: u32) -> Option<u32> {
        match self.encoding {
            TensorEncoding::Encode(encode) => {
                let unit = bits::product(scale, bits::quotient(ONE, encode));
                // Of 0 the quotient is Inf.
                Some(bits::quotient(ONE, unit).min(LARGEST))
            }
            TensorEncoding::EncodeBfloat16(encode) => {
                const LARGEST: u32 = ElementFormat::BFLOAT16.max().to_bits();
                Some(to_bfloat16(bits::quotient(encode, scale).min(LARGEST)))
            }
            TensorEncoding::Divisor(_) | TensorEncoding::ModelOpt => None,
        }
    }
}

/// The numbers of elements and scales.
struct Nvfp4Numbers {
    fp4: Elements,
    e4m3: Elements,
}

impl Nvfp4Numbers {
    fn new() -> Self {
        Self {
            fp4: Elements::of(ElementFormat::FP4_E2M1),
            e4m3: Elements::of(ElementFormat::FP8_E4M3),
        }
    }
}
