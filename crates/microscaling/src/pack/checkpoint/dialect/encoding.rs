//! How tools compute the bytes of a block, as scalar code in exact arithmetic.

use crate::format::{BlockFormat, ElementFormat, ScaleMode};
use crate::pack::codes::bitstream::Writer;
use crate::quantize::largest::largest;
use crate::round::bits::{self, ABS, BIAS, IMPLICIT, MANTISSA_BITS, ONE};
use alloc::{vec, vec::Vec};

/// The rounding of a number halfway between two.
#[derive(Clone, Copy)]
pub(super) enum Ties {
    Even,
    TowardZero,
}

/// The signs of codes.
#[derive(Clone, Copy)]
pub(super) enum Signs {
    /// The signs of the numbers, also of −0.
    Kept,
    /// Numbers below 0 are negative, also if they become 0.
    OfNumbers,
    /// Zeros are positive, also the results that underflow.
    NoNegativeZero,
    /// Positive are numbers above 0 alone.
    ZeroIsNegative,
}

impl Signs {
    fn negative(self, x: u32, magnitude: u32) -> bool {
        let (sign, zero) = (x & !ABS != 0, x & ABS == 0);
        match self {
            Self::Kept => sign,
            Self::OfNumbers => sign && !zero,
            Self::NoNegativeZero => sign && magnitude != 0,
            Self::ZeroIsNegative => sign || zero,
        }
    }
}

/// Elements in a block of MX, in each tool.
pub(super) const MX_BLOCK: usize = 32;
/// Elements in a block of NVFP4.
pub(super) const NVFP4_BLOCK: usize = BlockFormat::NVFP4.block_size;

/// The numbers of an element format.
struct Elements {
    bits: u32,
    /// Not negative, in the order of their codes, which is the order of the numbers, too.
    magnitudes: Vec<f64>,
}

impl Elements {
    fn of(element: ElementFormat) -> Self {
        let sign = 1 << (element.bits() - 1);
        let numbers = (0..sign).map(|code| element.decode(code));
        let magnitudes = numbers.take_while(|x| x.is_finite()).map(f64::from);
        Self {
            bits: element.bits(),
            magnitudes: magnitudes.collect(),
        }
    }

    /// The code of the nearest number; larger values saturate.
    fn magnitude(&self, x: f64, ties: Ties) -> u32 {
        let above = self.magnitudes.partition_point(|number| *number <= x);
        let below = above - 1;
        let Some(next) = self.magnitudes.get(above) else {
            return below as u32;
        };
        // Exact: the numbers have few bits.
        let middle = (self.magnitudes[below] + next) / 2.0;
        let odd = below % 2 == 1;
        let up = x > middle || (x == middle && odd && matches!(ties, Ties::Even));
        (below + usize::from(up)) as u32
    }

    /// The number of a code.
    fn number(&self, code: u32) -> f64 {
        let sign = 1 << (self.bits - 1);
        let magnitude = self.magnitudes[(code & (sign - 1)) as usize];
        if code & sign == 0 {
            magnitude
        } else {
            -magnitude
        }
    }

    fn code(&self, x: u32, scaled: f64, ties: Ties, signs: Signs) -> u32 {
        let magnitude = self.magnitude(scaled, ties);
        magnitude | u32::from(signs.negative(x, magnitude)) << (self.bits - 1)
    }
}

/// How the exponent of a block's scale follows from its largest magnitude.
#[derive(Clone, Copy)]
pub(super) enum ScaleRule {
    /// One of ours.
    Mode(ScaleMode),
    /// `even` as for FP4, with any element.
    EvenAsFp4,
    /// ceil(log2(amax / max)), in float32.
    CeilLog2,
    /// floor(log2(amax)) − emax, in float32.
    FloorLog2,
    /// ceil(log2(amax / max)) of the float32 quotient; −126 for a subnormal quotient.
    RoundUp,
}

impl ScaleRule {
    /// From −127 on.
    fn exponent(self, element: ElementFormat, amax: u32) -> i32 {
        let by_mode = |element, scale_mode| {
            let format = BlockFormat {
                scale_mode,
                ..BlockFormat::mx(element, 0)
            };
            format
                .scale_exponent(amax)
                .expect("of finite numbers a scale is one")
        };
        let exponent = match self {
            _ if amax == 0 => return -BIAS,
            Self::Mode(mode) => by_mode(element, mode),
            Self::EvenAsFp4 => {
                let fp4 = ElementFormat::FP4_E2M1;
                by_mode(fp4, ScaleMode::Even) + fp4.emax() - element.emax()
            }
            Self::CeilLog2 => {
                let quotient = bits::quotient(amax, element.max().to_bits());
                log2(quotient, |exponent, fraction| {
                    exponent + i32::from(fraction > 0 && !rounds_to(exponent, 2 * fraction, true))
                })
            }
            Self::FloorLog2 => {
                let floor = log2(amax, |exponent, fraction| {
                    let rest = IMPLICIT - fraction;
                    exponent + i32::from(rounds_to(exponent + 1, rest, false))
                });
                floor - element.emax()
            }
            Self::RoundUp => {
                let quotient = bits::quotient(amax, element.max().to_bits());
                // Any bit of the mantissa carries into the exponent.
                ((quotient + (IMPLICIT - 1)) >> MANTISSA_BITS) as i32 - BIAS
            }
        };
        exponent.max(-BIAS)
    }
}

/// Calls `then` with the exponent and the fraction, in units of 2^−23, of a normal number. Smaller numbers are far from
/// every scale but the least.
fn log2(abs: u32, then: impl Fn(i32, u32) -> i32) -> i32 {
    match abs < IMPLICIT {
        true => -2 * BIAS,
        false => then(bits::exponent(abs), abs & (IMPLICIT - 1)),
    }
}

/// Whether the float32 logarithm of 2^exponent · (1 ± steps · 2^−24) is the exponent.
fn rounds_to(exponent: i32, steps: u32, up: bool) -> bool {
    if exponent == 0 {
        return false;
    }
    let abs = exponent.unsigned_abs();
    // Toward zero of a power of two numbers are twice as dense.
    let denser = abs.is_power_of_two() && up != (exponent > 0);
    let half_spacing = power_of_two(abs.ilog2() as i32 - i32::from(denser));
    f64::from(steps) * core::f64::consts::LOG2_E < half_spacing
}

/// The bytes of a tensor.
pub(super) struct Blocks {
    pub(super) scales: Vec<u8>,
    pub(super) elements: Vec<u8>,
}

/// A tool's way to MX blocks of 32.
#[derive(Clone, Copy)]
pub(super) struct MxEncoding {
    pub(super) element: ElementFormat,
    pub(super) scale: ScaleRule,
    /// Elements are divided by 2^this at least, with any scale.
    pub(super) least_exponent: i32,
    pub(super) ties: Ties,
    pub(super) signs: Signs,
}

impl MxEncoding {
    /// Of finite numbers, a whole number of blocks.
    pub(super) fn encode(self, data: &[f32], bytes: usize) -> Blocks {
        let numbers = Elements::of(self.element);
        let mut elements = vec![0; bytes];
        let mut writer = Writer::new(&mut elements, numbers.bits);
        let mut scales = Vec::with_capacity(data.len() / MX_BLOCK);
        for block in data.as_chunks().0 {
            let (exponent, codes) = self.block(&numbers, block);
            scales.push((exponent + BIAS) as u8);
            writer.put(&codes);
        }
        writer.finish();
        Blocks { scales, elements }
    }

    /// The numbers of these bytes in place of a whole number of blocks. A block with a NaN or Inf becomes NaN.
    pub(super) fn quantize(self, data: &mut [f32]) {
        let numbers = Elements::of(self.element);
        for block in data.as_chunks_mut().0 {
            if !is_finite(block) {
                block.fill(f32::NAN);
                continue;
            }
            let (exponent, codes) = self.block(&numbers, block);
            let scale = power_of_two(exponent);
            // Exact: an element has few bits, and no bit below the smallest subnormal.
            *block = codes.map(|code| (numbers.number(code) * scale) as f32);
        }
    }

    /// The exponent of a block's scale, and the codes.
    fn block(self, numbers: &Elements, block: &[f32; MX_BLOCK]) -> (i32, [u32; MX_BLOCK]) {
        let exponent = self.scale.exponent(self.element, largest(block));
        // Exact, and normal.
        let unit = 1.0 / power_of_two(exponent.max(self.least_exponent));
        let codes = block.map(|x| {
            let scaled = bits::widen(x.to_bits() & ABS) * unit;
            numbers.code(x.to_bits(), scaled, self.ties, self.signs)
        });
        (exponent, codes)
    }
}

pub(super) fn is_finite(block: &[f32]) -> bool {
    block.iter().all(|x| x.is_finite())
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// A tool's way to NVFP4 with a tensor scale.
#[derive(Clone, Copy)]
pub(super) enum Nvfp4Encoding {
    CompressedTensors,
    ModelOpt,
    TransformerEngine,
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
}

impl Nvfp4Encoding {
    /// The scale of a tensor whose largest magnitude has this pattern; `None` if the tool makes NaN of the tensor.
    pub(super) fn tensor(self, amax: u32) -> Option<Nvfp4Tensor> {
        let (of_tensor, encoding) = match self {
            Self::ModelOpt => (bits::quotient(amax, BOTH_MAX), TensorEncoding::ModelOpt),
            // Zeros have no scale that matters.
            Self::TransformerEngine if amax == 0 => (ONE, TensorEncoding::Encode(ONE)),
            Self::TransformerEngine => {
                let encode = bits::quotient(BOTH_MAX, amax).min(LARGEST);
                let of_tensor = bits::product(amax, INVERSE_BOTH_MAX);
                (of_tensor, TensorEncoding::Encode(encode))
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
                TensorEncoding::ModelOpt | TensorEncoding::Encode(_) => None,
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
        let amax = largest(block);
        let code = self.scale_code(e4m3, amax);
        let scale = (e4m3.number(code) as f32).to_bits();
        let unit = match self.encoding {
            TensorEncoding::Divisor(divisor) => bits::quotient(scale, divisor),
            TensorEncoding::ModelOpt | TensorEncoding::Encode(_) => {
                bits::product(scale, self.of_tensor)
            }
        };
        let factor = self.factor(scale);
        let codes = block.map(|x| {
            let abs = x.to_bits() & ABS;
            let scaled = match factor {
                Some(factor) => bits::product(abs, factor),
                None => bits::quotient(abs, unit),
            };
            let scaled = bits::widen(scaled.min(LARGEST));
            fp4.code(x.to_bits(), scaled, Ties::Even, Signs::OfNumbers)
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
            TensorEncoding::Encode(encode) => {
                let factor = bits::product(encode, INVERSE_ELEMENT_MAX);
                code(bits::product(amax, factor).min(LARGEST))
            }
        }
    }

    /// The factor of the elements of a block with this scale, of the tool that multiplies by one.
    fn factor(self, scale: u32) -> Option<u32> {
        let TensorEncoding::Encode(encode) = self.encoding else {
            return None;
        };
        let unit = bits::product(scale, bits::quotient(ONE, encode));
        Some(match unit {
            0 => LARGEST,
            unit => bits::quotient(ONE, unit).min(LARGEST),
        })
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
