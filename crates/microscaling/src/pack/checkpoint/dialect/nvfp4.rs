//! How tools compute the bytes of NVFP4, as scalar code in exact arithmetic.

use super::encoding::{Elements, Signs, Ties};
use crate::format::{BlockFormat, ElementFormat};
use crate::pack::codes::bitstream::Writer;
use crate::quantize::largest::largest;
use crate::round::bits::{self, ABS, IMPLICIT, MANTISSA_BITS, ONE};
use crate::round::magnitude::round_magnitude;
use crate::round::mode::Even;
use crate::round::words::Word;
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
/// Elements and their scales.
const FP4: Limits = Limits::of(ElementFormat::FP4_E2M1);
const E4M3: Limits = Limits::of(ElementFormat::FP8_E4M3);
/// The largest finite pattern.
const LARGEST: u32 = bits::INFINITY - 1;

/// The scale of a tensor of NVFP4.
#[derive(Clone, Copy)]
pub(super) struct Nvfp4Tensor<W = u32> {
    /// The scale as a factor, as a pattern: 0 if the tool makes NaN of the tensor.
    pub(super) of_tensor: W,
    encoding: TensorEncoding<W>,
}

/// The other number that a tool takes of a tensor, as a pattern.
#[derive(Clone, Copy)]
enum TensorEncoding<W> {
    /// The divisor that compressed-tensors stores in the factor's place.
    Divisor(W),
    /// None.
    ModelOpt,
    /// The factor that brings TransformerEngine's blocks to the range of their scales.
    Encode(W),
    /// The same, for numbers and factors of elements in bfloat16.
    EncodeBfloat16(W),
}

impl Nvfp4Encoding {
    /// The number that the tool reads in place of this one.
    #[inline(always)]
    pub(super) fn source<W: Word>(self, abs: W) -> W {
        match self {
            Self::TransformerEngineFastMath => to_bfloat16(abs),
            _ => abs,
        }
    }

    /// Whether elements are multiplied by a factor, and not divided by the scale.
    #[inline(always)]
    pub(super) fn multiplies(self) -> bool {
        matches!(
            self,
            Self::TransformerEngine | Self::TransformerEngineFastMath
        )
    }

    /// The scale of a tensor whose largest magnitude has this pattern.
    #[inline(always)]
    pub(super) fn tensor<W: Word>(self, amax: W) -> Nvfp4Tensor<W> {
        let (of_tensor, encoding) = match self {
            Self::ModelOpt => (amax.quotient(BOTH_MAX.into()), TensorEncoding::ModelOpt),
            Self::TransformerEngine => {
                let (of_tensor, encode) = transformer_engine(amax);
                (of_tensor, TensorEncoding::Encode(encode))
            }
            Self::TransformerEngineFastMath => {
                let (of_tensor, encode) = transformer_engine(to_bfloat16(amax));
                (of_tensor, TensorEncoding::EncodeBfloat16(encode))
            }
            Self::CompressedTensors => {
                let inverse = W::from(ONE).quotient(amax.larger(IMPLICIT.into()));
                let divisor = W::from(BOTH_MAX).product(inverse);
                let fits = divisor.is_below(bits::INFINITY.into());
                let divisor = W::select(fits, divisor, ONE.into());
                let of_tensor = W::from(ONE).quotient(divisor);
                (of_tensor, TensorEncoding::Divisor(divisor))
            }
        };
        Nvfp4Tensor {
            of_tensor,
            encoding,
        }
    }
}

/// TransformerEngine's scale of a tensor with this largest magnitude, and the factor that brings blocks to the range of their scales.
#[inline(always)]
fn transformer_engine<W: Word>(amax: W) -> (W, W) {
    // Zeros have no scale that matters.
    let is_zero = amax.equals(0.into());
    let factor = W::from(BOTH_MAX).quotient(amax.larger(1.into()));
    (
        W::select(is_zero, ONE.into(), amax.product(INVERSE_BOTH_MAX.into())),
        W::select(is_zero, ONE.into(), factor.smaller(LARGEST.into())),
    )
}

/// The nearest bfloat16, the even one of two: Inf beyond the largest.
#[inline(always)]
pub(super) fn to_bfloat16<W: Word>(abs: W) -> W {
    const DROPPED: u32 = MANTISSA_BITS as u32 - ElementFormat::BFLOAT16.mantissa_bits();
    let odd = (abs >> DROPPED.into()) & 1.into();
    let dropped = W::from(DROPPED);
    (abs + ((1 << (DROPPED - 1)) - 1).into() + odd) >> dropped << dropped
}

/// The properties of an element format that rounding needs.
struct Limits {
    max: u32,
    mantissa_bits: i32,
    emin: i32,
}

impl Limits {
    const fn of(element: ElementFormat) -> Self {
        Self {
            max: element.max().to_bits(),
            mantissa_bits: element.mantissa_bits() as i32,
            emin: element.emin(),
        }
    }

    /// The nearest number, the even one of two; larger values saturate.
    #[inline(always)]
    fn nearest<W: Word>(self, abs: W) -> W {
        let limited = abs.smaller(self.max.into());
        round_magnitude::<Even, W>(limited, self.mantissa_bits, self.emin.into(), 0.into())
    }
}

/// The nearest element.
#[inline(always)]
pub(super) fn fp4<W: Word>(abs: W) -> W {
    FP4.nearest(abs)
}

impl Nvfp4Tensor {
    /// For finite numbers, a whole number of blocks.
    pub(super) fn encode(self, data: &[f32], bytes: usize) -> Nvfp4Blocks {
        let numbers = Nvfp4Numbers::new();
        let mut elements = vec![0; bytes];
        let mut writer = Writer::new(&mut elements, numbers.fp4.bits);
        let mut scales = Vec::with_capacity(data.len() / NVFP4_BLOCK);
        for block in data.as_chunks().0 {
            let (scale, codes) = self.block(&numbers, block);
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

    /// The code of a block's scale, and the codes.
    fn block(
        self,
        numbers: &Nvfp4Numbers,
        block: &[f32; NVFP4_BLOCK],
    ) -> (u32, [u32; NVFP4_BLOCK]) {
        let Nvfp4Numbers { fp4, e4m3 } = numbers;
        let scale = self.scale(self.source(largest(block)));
        let unit = self.unit(scale);
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
        let code = e4m3.magnitude(bits::widen(scale), Ties::Even);
        (code, codes)
    }
}

impl<W: Word> Nvfp4Tensor<W> {
    /// The scale of a tensor without one, for compressed-tensors: the divisor is 1.
    #[inline(always)]
    pub(super) fn unscaled() -> Self {
        Self {
            of_tensor: ONE.into(),
            encoding: TensorEncoding::Divisor(ONE.into()),
        }
    }

    /// The scale of a block with this largest magnitude, an E4M3 number.
    #[inline(always)]
    pub(super) fn scale(self, amax: W) -> W {
        // 2^−3, and the smallest number of E4M3.
        const OF_ZERO: u32 = 0.125_f32.to_bits();
        const SMALLEST: u32 = 0.001_953_125_f32.to_bits();
        match self.encoding {
            TensorEncoding::Divisor(divisor) => {
                let scale = E4M3.nearest(divisor.product(amax.quotient(ELEMENT_MAX.into())));
                W::select(scale.equals(0.into()), OF_ZERO.into(), scale)
            }
            TensorEncoding::ModelOpt => {
                let both = W::from(ELEMENT_MAX).product(self.of_tensor);
                let scale = amax.quotient(both.larger(1.into()));
                let scale = W::select(scale.equals(0.into()), ONE.into(), scale);
                E4M3.nearest(scale).larger(SMALLEST.into())
            }
            TensorEncoding::Encode(encode) | TensorEncoding::EncodeBfloat16(encode) => {
                E4M3.nearest(amax.product(encode.product(INVERSE_ELEMENT_MAX.into())))
            }
        }
    }

    /// The scale of a block with the tensor's.
    #[inline(always)]
    pub(super) fn unit(self, scale: W) -> W {
        match self.encoding {
            TensorEncoding::Divisor(divisor) => scale.quotient(divisor),
            _ => scale.product(self.of_tensor),
        }
    }

    /// The number that the tool reads in place of this one.
    #[inline(always)]
    pub(super) fn source(self, abs: W) -> W {
        match self.encoding {
            TensorEncoding::EncodeBfloat16(_) => to_bfloat16(abs),
            _ => abs,
        }
    }

    /// The factor of the elements of a block with this scale, of the tool that multiplies by one.
    #[inline(always)]
    pub(super) fn factor(self, scale: W) -> Option<W> {
        match self.encoding {
            TensorEncoding::Encode(encode) => {
                let unit = scale.product(W::from(ONE).quotient(encode));
                Some(limited_quotient(ONE.into(), unit, LARGEST))
            }
            TensorEncoding::EncodeBfloat16(encode) => {
                const MOST: u32 = ElementFormat::BFLOAT16.max().to_bits();
                Some(to_bfloat16(limited_quotient(encode, scale, MOST)))
            }
            TensorEncoding::Divisor(_) | TensorEncoding::ModelOpt => None,
        }
    }
}

/// A quotient of finite patterns, at most a limit, as the quotient by 0 is.
#[inline(always)]
fn limited_quotient<W: Word>(of: W, by: W, most: u32) -> W {
    let quotient = of.quotient(by.larger(1.into())).smaller(most.into());
    W::select(by.equals(0.into()), most.into(), quotient)
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
