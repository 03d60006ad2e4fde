//! Converts between codes and numbers of ordinary blocks, by the places of a code's bits. A handful of operations, the same
//! for every code, converts either way.

use crate::format::{ElementFormat, SpecialCodes};
use crate::round::bits::{ABS, IMPLICIT, INFINITY, MANTISSA_BITS, NAN, SIGN};

/// The places of the fields of a code: of an element format, or of a sign above a magnitude.
///
/// The numbers of a grid are multiples of `smallest` · 2^−(mantissa bits), with this number of mantissa bits from `smallest`
/// on. All of them are normal float32 numbers or zero; `smallest` is a normal power of two.
#[derive(Clone, Copy)]
pub(crate) struct CodePlaces {
    /// Bits of a code, with a sign.
    bits: u32,
    mantissa_bits: u32,
    /// All bits of two's complements, else 0.
    complement: u32,
    /// Whether −0 is 0: its code is NaN's.
    no_negative_zero: bool,
    /// The lowest magnitude code for NaN or Inf, and its pattern; all codes above are NaN.
    special: u32,
    lowest_special: u32,
}

impl CodePlaces {
    /// Of an element format of at most 8 bits.
    pub(crate) const fn of_element(element: ElementFormat) -> Self {
        let mut places = Self::new(element.mantissa_bits(), element.sign_bit().ilog2() + 1);
        if element.is_integer() {
            places.complement = places.all();
            return places;
        }
        places.no_negative_zero = !element.has_negative_zero();
        match element.special_codes() {
            Some(SpecialCodes::Ieee) => {
                places.special = ((1 << element.exponent_bits()) - 1) << element.mantissa_bits();
                places.lowest_special = INFINITY;
            }
            Some(SpecialCodes::Nan) => places.special = places.all() >> 1,
            Some(SpecialCodes::Extended) => {
                places.special = places.all() >> 1;
                places.lowest_special = INFINITY;
            }
            Some(SpecialCodes::NanInf) => {
                places.special = (places.all() >> 1) - 1;
                places.lowest_special = INFINITY;
            }
            Some(SpecialCodes::None | SpecialCodes::Fnuz) | None => {}
        }
        places
    }

    const fn new(mantissa_bits: u32, bits: u32) -> Self {
        Self {
            bits,
            mantissa_bits,
            complement: 0,
            no_negative_zero: false,
            special: u32::MAX,
            lowest_special: NAN,
        }
    }

    #[inline(always)]
    const fn all(self) -> u32 {
        (1 << self.bits) - 1
    }

    /// The code of a number of the grid, given as a pattern.
    #[inline(always)]
    pub(crate) fn code(self, smallest: u32, x: u32) -> u32 {
        let abs = x & ABS;
        // One binade up. Less than `smallest` gets its exponent instead, and has its own bits for a mantissa: the sum is exact.
        let subnormal = f32::from_bits(abs) + f32::from_bits(smallest);
        let raised = if abs < smallest {
            subnormal.to_bits()
        } else {
            abs + IMPLICIT
        };
        let magnitude = (raised - smallest) >> (MANTISSA_BITS as u32 - self.mantissa_bits);
        let signs = ((x as i32) >> 31) as u32;
        let complement = signs & self.complement;
        let sign = signs & !self.complement & (1 << (self.bits - 1));
        let sign = if self.no_negative_zero && magnitude == 0 {
            0
        } else {
            sign
        };
        ((magnitude ^ complement).wrapping_sub(complement) & self.all()) | sign
    }

    /// The number of a code, as a pattern: the inverse of [`code`](Self::code). The codes of ±Inf and NaN give ±Inf and NaN. No
    /// number may be 2^129 or more.
    #[inline(always)]
    pub(crate) fn number(self, smallest: u32, code: u32) -> u32 {
        let signs = ((code << (32 - self.bits)) as i32 >> 31) as u32;
        let complement = signs & self.complement;
        let fields = (self.all() >> 1) | self.complement;
        let magnitude = (code ^ complement).wrapping_sub(complement) & fields;
        let number = self.magnitude(smallest, magnitude);
        let special = if magnitude == self.special {
            self.lowest_special
        } else {
            NAN
        };
        if self.no_negative_zero && magnitude == 0 && signs != 0 {
            return NAN;
        }
        let sign = if magnitude < self.special || special == INFINITY {
            signs & SIGN
        } else {
            0
        };
        sign | if magnitude < self.special {
            number
        } else {
            special
        }
    }

    /// [`number`](Self::number) of a sign above a magnitude, where every code is a number.
    #[inline(always)]
    pub(crate) fn plain_number(self, smallest: u32, code: u32) -> u32 {
        let sign = (code << (32 - self.bits)) & SIGN;
        sign | self.magnitude(smallest, code & (self.all() >> 1))
    }

    /// Whether [`plain_number`](Self::plain_number) is enough.
    pub(crate) fn is_plain(self) -> bool {
        self.complement == 0 && !self.no_negative_zero && self.special > self.all()
    }

    #[inline(always)]
    fn magnitude(self, smallest: u32, magnitude: u32) -> u32 {
        // One binade up, as there.
        let raised = (magnitude << (MANTISSA_BITS as u32 - self.mantissa_bits)) + smallest;
        let subnormal = f32::from_bits(raised) - f32::from_bits(smallest);
        if magnitude >> self.mantissa_bits == 0 {
            subnormal.to_bits()
        } else {
            raised - IMPLICIT
        }
    }
}
