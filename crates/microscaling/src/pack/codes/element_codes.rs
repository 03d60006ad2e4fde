//! The codes of elements: bits and the numbers that they mean, for any block.

use crate::format::ElementFormat;
use crate::round::bits::{ABS, INFINITY, NAN, SIGN};
use crate::round::words::{Int, Word};

/// The codes of an element format, for numbers and for the words of a device's kernel.
#[derive(Clone, Copy)]
pub struct ElementCodes {
    mantissa_bits: i32,
    emin: i32,
    /// The sign bit of a code, and all bits below it.
    sign: u32,
    /// Whether negative codes are two's complements.
    integer: bool,
    /// Whether −0 is 0: its code is NaN's.
    no_negative_zero: bool,
    /// The lowest magnitude code for NaN or Inf, and its pattern; all codes above are NaN. `None` if every code is a number.
    special: Option<(u32, u32)>,
}

impl ElementCodes {
    /// The codes of a format whose elements are not of tables.
    pub fn of(element: ElementFormat) -> Self {
        let sign = 1 << (element.bits() - 1);
        let integer = element.is_integer();
        let number = |code: &u32| element.decode(*code).is_finite();
        // From above: an element may have millions of numbers, and few codes for none.
        let largest = (0..sign).rev().find(number);
        let special = largest.map_or(0, |largest| largest + 1);
        let is_code = !integer && special < sign;
        Self {
            mantissa_bits: element.mantissa_bits() as i32,
            emin: element.emin(),
            sign,
            integer,
            no_negative_zero: !integer && !element.has_negative_zero(),
            special: is_code.then(|| (special, element.decode(special).to_bits())),
        }
    }

    /// The code of x, a number of the format times 2^scale, given as a pattern; ±Inf stands for ±2^128.
    /// The inverse of [`value`](Self::value).
    #[inline(always)]
    pub fn code<W: Word>(&self, x: W, scale: W::Int) -> W {
        let (significand, unit) = (x & ABS.into()).parts();
        let lowest = W::Int::from(self.emin) + scale;
        let exponent = (significand.log2() + unit).larger(lowest);
        let up = unit + self.mantissa_bits.into() - exponent;
        let down = W::Int::from(0) - up;
        let steps = significand << up.within(0, 31).to_word() >> down.within(0, 31).to_word();
        // The implicit bit counts as one more in the exponent field.
        let field = (exponent - lowest).to_word() << (self.mantissa_bits as u32).into();
        let magnitude = steps + field;
        let negative = if self.integer {
            self.complement(magnitude)
        } else if self.no_negative_zero {
            let is_zero = magnitude.equals(0.into());
            W::select(is_zero, magnitude, magnitude | self.sign.into())
        } else {
            magnitude | self.sign.into()
        };
        W::select(x.is_below(SIGN.into()), magnitude, negative)
    }

    /// The number of a code times 2^scale, as a pattern, toward zero where that is too fine for float32.
    #[inline(always)]
    pub fn value<W: Word>(&self, code: W, scale: W::Int) -> W {
        let zero = W::from(0);
        let is_positive = (code & self.sign.into()).equals(zero);
        let lowest = W::Int::from(self.emin - self.mantissa_bits) + scale;
        let signed = |number: W| W::select(is_positive, number, number | SIGN.into());
        if self.integer {
            let magnitude = W::select(is_positive, code, self.complement(code));
            return signed(magnitude.fixed(lowest));
        }
        let magnitude = code & (self.sign - 1).into();
        let mantissa_bits = W::from(self.mantissa_bits as u32);
        let implicit = (magnitude >> mantissa_bits).larger(1.into()) - 1.into();
        let significand = magnitude - (implicit << mantissa_bits);
        let mut number = signed(significand.fixed(lowest + implicit.to_int()));
        if let Some((special, pattern)) = self.special {
            let is_number = magnitude.is_below(special.into());
            let special = match pattern {
                INFINITY => {
                    let is_infinite = magnitude.equals(special.into());
                    W::select(is_infinite, signed(INFINITY.into()), NAN.into())
                }
                _ => NAN.into(),
            };
            number = W::select(is_number, number, special);
        }
        if self.no_negative_zero {
            let is_nan = !is_positive & magnitude.equals(zero);
            number = W::select(is_nan, NAN.into(), number);
        }
        number
    }

    /// The two's complement of a code or a magnitude.
    #[inline(always)]
    fn complement<W: Word>(&self, code: W) -> W {
        (W::from(2 * self.sign) - code) & (2 * self.sign - 1).into()
    }
}
