//! ggml's Q8_0: integers from −127 to 127 with a scale in float16.

use super::encoding::Blocks;
use crate::format::ElementFormat;
use crate::pack::codes::ElementCodes;
use crate::quantize::largest::largest;
use crate::round::bits::{ABS, INFINITY, MANTISSA_BITS};
use crate::round::magnitude::round_magnitude;
use crate::round::mode::Even;
use crate::round::words::Word;
use alloc::vec::Vec;

/// Elements of a block.
const BLOCK: usize = 32;
/// The largest integer, as a pattern.
const LARGEST: u32 = 127.0_f32.to_bits();
const FLOAT16: ElementFormat = ElementFormat::FLOAT16;
const FLOAT16_MAX: u32 = FLOAT16.max().to_bits();
const FLOAT16_MANTISSA_BITS: i32 = FLOAT16.mantissa_bits() as i32;
const FLOAT16_EMIN: i32 = FLOAT16.emin();

/// The bytes of finite numbers, a whole number of blocks.
pub(super) fn encode(data: &[f32]) -> Blocks {
    let codes = ElementCodes::of_element(FLOAT16);
    let infinity = FLOAT16.infinity_code().expect("float16 has Inf");
    let (mut scales, mut elements) = (Vec::new(), Vec::with_capacity(data.len()));
    for data in data.as_chunks().0 {
        let (scale, integers) = block(data);
        let code = match scale {
            INFINITY => infinity,
            scale => codes.code(scale, 0),
        };
        scales.extend((code as u16).to_le_bytes());
        elements.extend(integers.map(|integer| integer as u8));
    }
    Blocks { scales, elements }
}

/// The scale of finite numbers, as a pattern, and their integers.
fn block(data: &[f32; BLOCK]) -> (u32, [i8; BLOCK]) {
    let (scale, factor) = scales(largest(data));
    let integers = data.map(|x| {
        let integer = f32::from_bits(integer(x.to_bits() & ABS, factor)) as i8;
        if x.to_bits() & !ABS == 0 {
            integer
        } else {
            -integer
        }
    });
    (scale, integers)
}

/// The scale of a block with this largest magnitude, and the factor of its elements, as patterns.
#[inline(always)]
pub(super) fn scales<W: Word>(amax: W) -> (W, W) {
    let scale = amax.quotient(LARGEST.into());
    let scale = nearest(scale, FLOAT16_MANTISSA_BITS, FLOAT16_EMIN);
    let is_beyond = W::from(FLOAT16_MAX).is_below(scale);
    // Inf of a number whose scale is 0 in float16.
    let factor = W::from(LARGEST).quotient(amax.larger(1.into()));
    (
        W::select(is_beyond, INFINITY.into(), scale),
        factor.smaller((INFINITY - 1).into()),
    )
}

/// The integer of a magnitude, as a pattern.
#[inline(always)]
pub(super) fn integer<W: Word>(abs: W, factor: W) -> W {
    let scaled = abs.product(factor).smaller(LARGEST.into());
    nearest(scaled, MANTISSA_BITS, MANTISSA_BITS)
}

/// The nearest number with these mantissa bits, not finer than at exponent `emin`, and the even one of two.
#[inline(always)]
fn nearest<W: Word>(abs: W, mantissa_bits: i32, emin: i32) -> W {
    round_magnitude::<Even, W>(abs, mantissa_bits, emin.into(), 0.into())
}
