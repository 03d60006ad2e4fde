//! Blocks as codes: what the bits of each format mean.

use crate::bits::{self, ABS, BIAS, INFINITY, NAN, SIGN};
use crate::bitstream;
use crate::block::BlockRule;
use crate::groups::GroupRule;
use crate::nvfp4::{NAN_CODE, Nvfp4Rule};
use crate::round::Rule;
use crate::{BfpFormat, ElementFormat, MicroexponentFormat, MxFormat};

/// The code of the scale NaN, where a scale is an exponent.
const NAN_EXPONENT: u8 = 255;

/// A block format as codes. A block is a record of bytes, its scale and what belongs to it, and one
/// code an element.
pub(crate) trait BlockCodec {
    /// Rounds a block and writes its record, over zeros, and its codes.
    fn encode<R: Rule>(&self, rule: R, block: Block<'_>, record: &mut [u8], codes: &mut [u32]);

    /// The values of a block.
    fn decode(&self, record: &[u8], codes: &[u32], values: &mut [f32]);
}

/// What is rounded: the elements of a block and their draws.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) elements: &'a [f32],
    pub(crate) draws: &'a [u32],
}

impl Block<'_> {
    fn amax(&self) -> u32 {
        amax(self.elements)
    }

    /// Sets the codes to a function of the elements and their draws.
    fn write(&self, codes: &mut [u32], mut code: impl FnMut(f32, u32) -> u32) {
        for ((x, draw), out) in self.elements.iter().zip(self.draws).zip(codes) {
            *out = code(*x, *draw);
        }
    }
}

fn amax(elements: &[f32]) -> u32 {
    let abs = elements.iter().map(|x| x.to_bits() & ABS);
    abs.max().unwrap_or(0)
}

/// How many times 2^exponent a finite pattern is; it must be a whole number below 2^24.
fn steps(abs: u32, exponent: i32) -> u32 {
    let (significand, unit) = bits::parts(abs);
    match unit - exponent {
        _ if significand == 0 => 0,
        up @ 0.. => significand << up,
        down => significand >> -down,
    }
}

/// The code of x, a number of the format times 2^scale, given as a pattern; ±Inf stands for ±2^128. The
/// inverse of [`ElementFormat::decode`].
pub(crate) fn element_code(element: ElementFormat, x: u32, scale: i32) -> u32 {
    let abs = x & ABS;
    let mantissa_bits = element.mantissa_bits() as i32;
    let exponent = if abs == 0 {
        element.emin()
    } else {
        let (significand, unit) = bits::parts(abs);
        (bits::log2(significand) + unit - scale).max(element.emin())
    };
    let steps = steps(abs, exponent - mantissa_bits + scale);
    // The implicit bit counts as one more in the exponent field.
    let magnitude = steps + (((exponent - element.emin()) as u32) << mantissa_bits);
    let negative = x & SIGN != 0;
    let sign = 1 << (element.bits() - 1);
    if element.is_integer() {
        let code = if negative {
            magnitude.wrapping_neg()
        } else {
            magnitude
        };
        return code & (2 * sign - 1);
    }
    magnitude | if negative { sign } else { 0 }
}

/// A decoded element times 2^scale, toward zero where that is too fine for float32.
fn scaled(x: f32, scale: i32) -> f32 {
    let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
    let (significand, unit) = bits::parts(abs);
    f32::from_bits(if abs > INFINITY {
        NAN
    } else if abs == INFINITY {
        sign | INFINITY
    } else {
        sign | bits::fixed(significand, unit + scale)
    })
}

/// MX blocks: a byte of E8M0, then the element's own codes.
pub(crate) struct MxCodec {
    rule: BlockRule,
    element: ElementFormat,
}

impl MxCodec {
    pub(crate) fn of(format: &MxFormat) -> Self {
        Self {
            rule: BlockRule::of(format),
            element: format.element,
        }
    }
}

impl BlockCodec for MxCodec {
    fn encode<R: Rule>(&self, rule: R, block: Block<'_>, record: &mut [u8], codes: &mut [u32]) {
        let amax = block.amax();
        let (scale, nan) = self.rule.scale(amax);
        if nan {
            record[0] = NAN_EXPONENT;
            return codes.fill(0);
        }
        record[0] = (scale + BIAS) as u8;
        let grid = self.rule.grid(amax, amax);
        let mantissa_bits = self.rule.row.mantissa_bits;
        block.write(codes, |x, draw| {
            let rounded = grid.round(rule, mantissa_bits, x, draw);
            element_code(self.element, rounded.to_bits(), scale)
        });
    }

    fn decode(&self, record: &[u8], codes: &[u32], values: &mut [f32]) {
        if record[0] == NAN_EXPONENT {
            return values.fill(f32::NAN);
        }
        let scale = i32::from(record[0]) - BIAS;
        for (value, code) in values.iter_mut().zip(codes) {
            *value = scaled(self.element.decode(*code), scale);
        }
    }
}

/// Fixed-point elements: a sign above magnitude bits.
#[derive(Clone, Copy)]
struct SignMagnitude {
    mantissa_bits: u32,
    /// The numbers are multiples of 2^exponent.
    exponent: i32,
}

impl SignMagnitude {
    /// With the largest number just below 2^(exponent + 1).
    fn new(mantissa_bits: u32, exponent: i32) -> Self {
        Self {
            mantissa_bits,
            exponent: exponent + 1 - mantissa_bits as i32,
        }
    }

    fn code(self, x: f32) -> u32 {
        let sign = x.to_bits() >> 31;
        steps(x.to_bits() & ABS, self.exponent) | sign << self.mantissa_bits
    }

    fn value(self, code: u32) -> f32 {
        let sign = code >> self.mantissa_bits << 31;
        let steps = code & ((1 << self.mantissa_bits) - 1);
        f32::from_bits(sign | bits::fixed(steps, self.exponent))
    }
}

impl BlockCodec for BfpFormat {
    /// The elements must be finite.
    fn encode<R: Rule>(&self, rule: R, block: Block<'_>, record: &mut [u8], codes: &mut [u32]) {
        let group = crate::bfp::BfpRule::of(self);
        let amax = block.amax();
        let grid = group.grid(amax, amax);
        record[0] = self.shared_exponent(amax);
        let numbers = SignMagnitude::new(self.mantissa_bits(), i32::from(record[0]) - BIAS);
        block.write(codes, |x, draw| {
            numbers.code(group.round(grid, rule, x, draw))
        });
    }

    fn decode(&self, record: &[u8], codes: &[u32], values: &mut [f32]) {
        if record[0] == NAN_EXPONENT {
            return values.fill(f32::NAN);
        }
        let numbers = SignMagnitude::new(self.mantissa_bits(), i32::from(record[0]) - BIAS);
        for (value, code) in values.iter_mut().zip(codes) {
            *value = numbers.value(*code);
        }
    }
}

impl BlockCodec for MicroexponentFormat {
    fn encode<R: Rule>(&self, rule: R, block: Block<'_>, record: &mut [u8], codes: &mut [u32]) {
        let group = crate::microexponent::MicroexponentRule::of(self);
        let amax = block.amax();
        let (exponent, shifts) = record.split_at_mut(1);
        let Some(shared) = self.shared_exponent(amax) else {
            exponent[0] = NAN_EXPONENT;
            return codes.fill(0);
        };
        exponent[0] = shared;
        let size = self.sub_block_size;
        let parts = block.elements.chunks(size).zip(block.draws.chunks(size));
        for (i, ((elements, draws), codes)) in parts.zip(codes.chunks_mut(size)).enumerate() {
            let sub_amax = self::amax(elements);
            let shift = self.shift(amax, sub_amax);
            bitstream::put(shifts, i, self.shift_bits, shift);
            let grid = group.grid(amax, sub_amax);
            let exponent = i32::from(shared) - BIAS - shift as i32;
            let numbers = SignMagnitude::new(self.mantissa_bits(), exponent);
            Block { elements, draws }.write(codes, |x, draw| {
                numbers.code(group.round(grid, rule, x, draw))
            });
        }
    }

    fn decode(&self, record: &[u8], codes: &[u32], values: &mut [f32]) {
        let (exponent, shifts) = record.split_at(1);
        if exponent[0] == NAN_EXPONENT {
            return values.fill(f32::NAN);
        }
        let size = self.sub_block_size;
        let parts = values.chunks_mut(size).zip(codes.chunks(size));
        for (i, (values, codes)) in parts.enumerate() {
            let shift = bitstream::get(shifts, i, self.shift_bits) as i32;
            let exponent = i32::from(exponent[0]) - BIAS - shift;
            let numbers = SignMagnitude::new(self.mantissa_bits(), exponent);
            for (value, code) in values.iter_mut().zip(codes) {
                *value = numbers.value(*code);
            }
        }
    }
}

/// NVFP4: a byte of E4M3, then FP4 codes.
pub(crate) struct Nvfp4Codec {
    rule: Nvfp4Rule<true>,
    tensor_scale: f32,
}

impl Nvfp4Codec {
    pub(crate) fn of(tensor_scale: f32) -> Self {
        Self {
            rule: Nvfp4Rule::of(tensor_scale),
            tensor_scale,
        }
    }
}

impl BlockCodec for Nvfp4Codec {
    fn encode<R: Rule>(&self, rule: R, block: Block<'_>, record: &mut [u8], codes: &mut [u32]) {
        let amax = block.amax();
        record[0] = self.rule.block_scale_code(amax);
        if record[0] == NAN_CODE {
            return codes.fill(0);
        }
        let grid = self.rule.grid(amax, amax);
        block.write(codes, |x, draw| {
            let unit = self.rule.round_unit(grid, rule, x.to_bits() & ABS, draw);
            let signed = (x.to_bits() & SIGN) | unit;
            element_code(ElementFormat::Fp4E2M1, signed, 0)
        });
    }

    fn decode(&self, record: &[u8], codes: &[u32], values: &mut [f32]) {
        let scale = ElementFormat::Fp8E4M3.decode(u32::from(record[0]));
        if scale.is_nan() || self.tensor_scale.to_bits() >= INFINITY {
            return values.fill(f32::NAN);
        }
        let sign = scale.to_bits() & SIGN;
        let scale = bits::product(self.tensor_scale.to_bits(), scale.to_bits() & ABS);
        // Inf only of a tensor scale that no tensor has.
        let units: [u32; 8] = core::array::from_fn(|code| {
            let unit = ElementFormat::Fp4E2M1.decode(code as u32).to_bits();
            match scale {
                INFINITY => NAN,
                _ => bits::product(unit, scale),
            }
        });
        for (value, code) in values.iter_mut().zip(codes) {
            *value = f32::from_bits(units[(code & 7) as usize] | (sign ^ (code >> 3 & 1) << 31));
        }
    }
}
