//! The codes of elements: bits and the numbers that they mean, for any block.

use crate::format::{BlockFormat, ElementFormat, ElementOverflow, NonFinite};
use crate::round::bits::{ABS, BIAS, INFINITY, NAN, SIGN};
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
    /// The codes for elements that overflow to Inf and to NaN; `None` where no element does.
    beyond: Option<[u32; 2]>,
    /// Whether a block with NaN or Inf has the scale 2^128.
    pub(super) top_exponent: bool,
}

impl ElementCodes {
    /// The codes of a format whose elements are not of tables.
    pub(crate) fn of(format: &BlockFormat) -> Self {
        let element = format.element;
        Self {
            beyond: match (format.conversion.overflow, format.non_finite) {
                (_, NonFinite::Elements)
                | (ElementOverflow::Infinity | ElementOverflow::Nan, _) => {
                    let nan = element.nan_code().unwrap_or(0);
                    Some([element.infinity_code().unwrap_or(nan), nan])
                }
                (
                    ElementOverflow::Saturate
                    | ElementOverflow::Propagate
                    | ElementOverflow::Renormalize,
                    _,
                ) => None,
            },
            top_exponent: format.non_finite == NonFinite::TopExponent,
            ..Self::of_element(element)
        }
    }

    /// The codes of numbers of an element format without tables.
    pub fn of_element(element: ElementFormat) -> Self {
        let sign = element.sign_bit();
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
            beyond: None,
            top_exponent: false,
        }
    }

    /// The code of x, a number of the format times 2^scale, given as a pattern; ±Inf stands for ±2^128.
    /// The inverse of [`value`](Self::value).
    #[inline(always)]
    pub fn code<W: Word>(&self, x: W, scale: W::Int) -> W {
        let abs = x & ABS.into();
        // With the exponent of Inf each NaN has one code, beside the sign.
        let counted = match self.top_exponent {
            true => W::select(abs.is_nan(), NAN.into(), abs),
            false => abs,
        };
        let (significand, unit) = counted.parts();
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
        let is_positive = x.is_below(SIGN.into());
        let code = W::select(is_positive, magnitude, negative);
        let Some([infinity, nan]) = self.beyond else {
            return code;
        };
        let of_infinity = W::from(infinity);
        let signed = W::select(is_positive, of_infinity, of_infinity | self.sign.into());
        let beyond = W::select(x.is_nan(), nan.into(), signed);
        W::select(abs.is_below(INFINITY.into()), code, beyond)
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
            let number = signed(magnitude.fixed(lowest));
            if !self.top_exponent {
                return number;
            }
            let is_top = !scale.is_below((BIAS + 1).into());
            let is_nan = is_top & W::from(1 << self.mantissa_bits).is_below(magnitude);
            return W::select(is_nan, NAN.into(), number);
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

    /// The two's complement of a code or a magnitude, which may have more bits where the result is not looked at.
    #[inline(always)]
    fn complement<W: Word>(&self, code: W) -> W {
        let bits = W::from(2 * self.sign - 1);
        (W::from(2 * self.sign) - (code & bits)) & bits
    }
}
