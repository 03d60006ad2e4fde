//! Element formats: the numbers that an element of a block may have.

mod kind;
mod named;
mod p3109;
pub(crate) mod places;
mod special_codes;
pub(crate) mod table;
mod text;

use crate::format::FormatError;
use crate::round::bits::{self, BIAS};
use kind::Kind;
pub use special_codes::SpecialCodes;
use table::Tables;

/// The format of one element: a small float, a fixed-point number, or a table of numbers. Named formats are constants; any
/// other format is made by [`float`](Self::float), [`fixed`](Self::fixed) or [`tables`](Self::tables).
///
/// A float element is `(−1)^sign · 2^(exponent − bias) · 1.mantissa`, with subnormals below exponent
/// field 1. A fixed-point element is a two's complement; its most negative code is never produced, so that the range is
/// symmetric.
///
/// Elements of a block saturate: a value beyond [`max`](Self::max) becomes ±max. No element becomes NaN or Inf, even if
/// the format has codes for them. The scale marks a block that holds a NaN or an Inf.
///
/// The text form (`FromStr`, `Display`, serde) is a [name](Self::NAMES), or `float(exponent_bits=3,mantissa_bits=4,bias=3,specials=none)`, `fixed(bits=7,fraction_bits=5)`, `table(-1 -0.5 0 0.5 1)`,
/// `table(0 1 2 -1/0 1 3 -1)` (two tables), `table(nf4)`. Two parameters are optional: the bias (2^(exponent bits − 1) − 1, or 1 for a single exponent bit) and the specials (none).
///
/// ```
/// use microscaling::{ElementFormat, SpecialCodes};
///
/// let e3m4 = ElementFormat::float(3, 4, 3, SpecialCodes::None)?;
/// assert_eq!((e3m4.bits(), e3m4.max(), e3m4.min_subnormal()), (8, 31.0, 1.0 / 64.0));
/// assert_eq!("float(exponent_bits=3,mantissa_bits=4)".parse(), Ok(e3m4));
/// assert_eq!("e2m1".parse(), Ok(ElementFormat::FP4_E2M1));
/// # Ok::<(), microscaling::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementFormat {
    // Not a part of the kind, so that a format takes 16 bytes: a format of blocks has up to three of them.
    tables: Option<Tables>,
    /// The bits of the exponent field, and the special codes, of a float.
    float: Option<(u8, SpecialCodes)>,
    mantissa_bits: u8,
    /// Exponent of the smallest normal number.
    emin: i16,
    /// Whether codes of a float have no sign bit.
    unsigned: bool,
}

impl ElementFormat {
    const fn of_float(
        exponent_bits: u8,
        mantissa_bits: u8,
        bias: i16,
        specials: SpecialCodes,
    ) -> Self {
        Self {
            tables: None,
            float: Some((exponent_bits, specials)),
            mantissa_bits,
            emin: 1 - bias,
            unsigned: false,
        }
    }

    const fn of_fixed(bits: u8, fraction_bits: i16) -> Self {
        Self {
            tables: None,
            float: None,
            mantissa_bits: bits - 2,
            emin: bits as i16 - 2 - fraction_bits,
            unsigned: false,
        }
    }

    /// A sign and a magnitude of 1 to 23 bits, in steps of 2^(1 − bits): as a float, `bits` − 1 mantissa bits below one exponent bit.
    pub(crate) const fn sign_magnitude(bits: u32) -> Self {
        Self::of_float(1, bits as u8 - 1, 1, SpecialCodes::None)
    }

    /// A float of 2 to 16 bits. Float32 has all of its numbers.
    ///
    /// # Errors
    /// [`FormatError::Element`] names the argument that is out of range:
    /// * `exponent_bits`: 1 to 8, with [`Ieee`](SpecialCodes::Ieee), [`Extended`](SpecialCodes::Extended) and
    ///   [`NanInf`](SpecialCodes::NanInf) at least 2;
    /// * `mantissa_bits`: 0 to 10, with [`Nan`](SpecialCodes::Nan) and [`NanInf`](SpecialCodes::NanInf) at least 1, and at most 16 bits together with sign
    ///   and exponent;
    /// * `bias`: the smallest normal number is 2^−126 to 1, the largest number at least 1 and less than 2^128.
    pub const fn float(
        exponent_bits: u32,
        mantissa_bits: u32,
        bias: i32,
        specials: SpecialCodes,
    ) -> Result<Self, FormatError> {
        let (least_exponent, least_mantissa) = match specials {
            SpecialCodes::Ieee => (2, 0),
            SpecialCodes::Nan => (1, 1),
            SpecialCodes::NanInf => (2, 1),
            SpecialCodes::Extended => (2, 0),
            SpecialCodes::None | SpecialCodes::Fnuz => (1, 0),
        };
        if exponent_bits < least_exponent || exponent_bits > 8 {
            return Err(out_of_range(
                "float",
                "exponent_bits",
                exponent_bits as i32,
                least_exponent as i32,
                8,
            ));
        }
        let most_mantissa = if exponent_bits > 5 {
            15 - exponent_bits
        } else {
            10
        };
        if mantissa_bits < least_mantissa || mantissa_bits > most_mantissa {
            return Err(out_of_range(
                "float",
                "mantissa_bits",
                mantissa_bits as i32,
                least_mantissa as i32,
                most_mantissa as i32,
            ));
        }
        // The largest exponent field of a number.
        let top = (1 << exponent_bits)
            - if matches!(specials, SpecialCodes::Ieee)
                || matches!(specials, SpecialCodes::Extended) && mantissa_bits == 0
                || matches!(specials, SpecialCodes::NanInf) && mantissa_bits == 1
            {
                2
            } else {
                1
            };
        let least = if top > BIAS { top - BIAS } else { 1 };
        let most = if top < BIAS { top } else { BIAS };
        if bias < least || bias > most {
            return Err(out_of_range("float", "bias", bias, least, most));
        }
        Ok(Self::of_float(
            exponent_bits as u8,
            mantissa_bits as u8,
            bias as i16,
            specials,
        ))
    }

    /// Multiples of 2^−`fraction_bits` of 2 to 16 bits, sign included.
    ///
    /// # Errors
    /// [`FormatError::Element`]: unless there are 2 to 16 bits, and the fraction has 2 bits less to 6 bits more: a block's scale makes any others of them.
    pub const fn fixed(bits: u32, fraction_bits: i32) -> Result<Self, FormatError> {
        if bits < 2 || bits > 16 {
            return Err(out_of_range("fixed", "bits", bits as i32, 2, 16));
        }
        let least = bits as i32 - 2;
        let most = bits as i32 + 6;
        if fraction_bits < least || fraction_bits > most {
            return Err(out_of_range(
                "fixed",
                "fraction_bits",
                fraction_bits,
                least,
                most,
            ));
        }
        Ok(Self::of_fixed(bits as u8, fraction_bits as i16))
    }

    /// Tables of any numbers, in the order of their codes, all with the same number of bits. Each block takes the table with the
    /// least squared error, the first one if errors are equal. An error is measured as
    /// [`BlockFormat::block_scale_of`](crate::BlockFormat::block_scale_of) does, but in units of 2^(e − 15). Tables need blocks
    /// whose scale is a float.
    ///
    /// A table has a 0. Numbers are rounded as magnitudes. A tie is at the mean of two neighbours, rounded to float32. 0 is even, and so
    /// is every other magnitude from there on. [`Rounding::Stochastic`](crate::Rounding::Stochastic) looks at
    /// (x − below) / (above − below), computed in float32 and cut to 24 bits.
    ///
    /// ```
    /// use microscaling::{BlockFormat, ElementFormat, Rounder, ScaleFormat};
    ///
    /// let thirds = ElementFormat::tables(&[&[0.0, 1.0 / 3.0, 1.0, -1.0]])?;
    /// let format = BlockFormat::float_scale(thirds, ScaleFormat::FLOAT32, 32);
    /// let mut x = [6.0, 2.5, -2.5, -3.5];
    /// format.quantize(&mut x, &[4], 0, Rounder::NearestEven)?;
    /// assert_eq!(x, [6.0, 2.0, 0.0, -6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * [`FormatError::Field`]: unless there are 1 to 16 tables of 3 to 256 numbers.
    /// * [`FormatError::TableNumber`]: a number occurs twice, or is neither 0 nor a magnitude of at least 2^−32 and less than 2^32; or
    ///   the table has no 0, or no number of at least 1.
    /// * [`FormatError::TableBits`]: codes of different numbers of bits.
    pub fn tables(tables: &[&[f32]]) -> Result<Self, FormatError> {
        Ok(Self::of_tables(Tables::new(tables)?))
    }

    const fn of_tables(tables: Tables) -> Self {
        Self {
            tables: Some(tables),
            float: None,
            mantissa_bits: tables.significant_bits() as u8 - 1,
            emin: bits::exponent(tables.min()) as i16,
            unsigned: false,
        }
    }

    /// Whether [`tables`](Self::tables) made the format.
    pub const fn is_table(self) -> bool {
        self.tables.is_some()
    }

    /// The tables, if there are any.
    pub(crate) const fn as_tables(self) -> Option<Tables> {
        self.tables
    }

    /// The name, for example `fp8_e4m3`, of a named format.
    pub fn name(self) -> Option<&'static str> {
        let row = Self::ROWS.iter().find(|(.., format)| *format == self);
        row.map(|(name, ..)| *name)
    }

    /// Bits of one element, with the sign if there is one.
    pub const fn bits(self) -> u32 {
        match self.kind() {
            Kind::Fixed => self.mantissa_bits as u32 + 2,
            Kind::Table(tables) => tables.0[0].bits(),
            Kind::Float { exponent_bits, .. } => {
                let sign = !self.unsigned as u32;
                sign + exponent_bits as u32 + self.mantissa_bits as u32
            }
        }
    }

    /// Whether the format lacks negative numbers, as the unsigned formats of P3109 do.
    pub const fn is_unsigned(self) -> bool {
        self.unsigned
    }

    /// The sign bit of a code, as a number; above all bits of a code that has none. Not of tables.
    pub const fn sign_bit(self) -> u32 {
        1 << (self.bits() - 1 + self.unsigned as u32)
    }

    /// Bits of the exponent field; 0 for fixed point and tables.
    pub const fn exponent_bits(self) -> u32 {
        match self.kind() {
            Kind::Fixed | Kind::Table(_) => 0,
            Kind::Float { exponent_bits, .. } => exponent_bits as u32,
        }
    }

    /// Explicit mantissa bits. Fixed point counts the bits below the highest bit of a magnitude, two less than
    /// [`bits`](Self::bits). A table counts the bits of its longest significand.
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits as u32
    }

    /// True for fixed point.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind(), Kind::Fixed)
    }

    /// Exponent of the largest normal number: floor(log2([`max`](Self::max))).
    pub const fn emax(self) -> i32 {
        match self.kind() {
            Kind::Fixed => self.emin as i32,
            Kind::Table(tables) => bits::exponent(tables.0[0].max()),
            Kind::Float { .. } => (self.largest_code() >> self.mantissa_bits) as i32 - self.bias(),
        }
    }

    /// Exponent of the smallest normal number. For fixed point it is [`emax`](Self::emax): the numbers below are spaced
    /// like subnormals. Tables have the exponent of their smallest magnitude.
    pub const fn emin(self) -> i32 {
        self.emin as i32
    }

    const fn bias(self) -> i32 {
        1 - self.emin as i32
    }

    /// The largest number. For tables: the largest magnitude of the first table.
    pub const fn max(self) -> f32 {
        if let Kind::Table(tables) = self.kind() {
            return f32::from_bits(tables.0[0].max());
        }
        // The significand counts units of 2^-mantissa_bits.
        let implicit = 1 << self.mantissa_bits;
        let significand: u32 = implicit | (self.largest_code() & (implicit - 1));
        let significand = (significand as f32).to_bits();
        f32::from_bits(bits::scale(
            significand,
            self.emax() - self.mantissa_bits as i32,
        ))
    }

    /// The smallest positive number: 2^(emin − mantissa bits). For fixed point this is its step, for tables the smallest
    /// magnitude.
    pub const fn min_subnormal(self) -> f32 {
        if let Kind::Table(tables) = self.kind() {
            return f32::from_bits(tables.min());
        }
        f32::from_bits(bits::pow2(self.emin() - self.mantissa_bits as i32))
    }

    /// Whether there is a −0, in each table if there are several.
    pub const fn has_negative_zero(self) -> bool {
        match self.kind() {
            _ if self.unsigned => false,
            Kind::Fixed => false,
            Kind::Table(tables) => tables.have_negative_zeros(),
            Kind::Float { specials, .. } => {
                !matches!(specials, SpecialCodes::Fnuz | SpecialCodes::Extended)
            }
        }
    }

    /// The kind of codes of a float that stand for NaN or Inf; `None` for fixed point and tables.
    pub const fn special_codes(self) -> Option<SpecialCodes> {
        match self.kind() {
            Kind::Fixed | Kind::Table(_) => None,
            Kind::Float { specials, .. } => Some(specials),
        }
    }

    /// The value of an element code, exactly; bits of `code` above [`bits`](Self::bits) are ignored.
    ///
    /// Float codes are sign and magnitude (0x80 of an fp8 is −0), but for the [special](SpecialCodes) ones; any NaN code gives
    /// [`f32::NAN`]. Fixed-point codes are two's complement; quantization never produces the most negative one. With several
    /// tables the first one gives the value.
    pub const fn decode(self, code: u32) -> f32 {
        if let Kind::Table(tables) = self.kind() {
            let mask = (1 << self.bits()) - 1;
            return f32::from_bits(tables.0[0].number(code & mask));
        }
        let mantissa_bits = self.mantissa_bits as i32;
        let Kind::Float { exponent_bits, .. } = self.kind() else {
            let unused = 32 - self.bits();
            let steps = ((code << unused) as i32) >> unused;
            // At most 16 bits and a power of two: exact, and never subnormal.
            return steps as f32 * self.min_subnormal();
        };
        let negative = code & self.sign_bit() != 0 && !self.unsigned;
        let sign = if negative { bits::SIGN } else { 0 };
        let field = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
        let mantissa = code & ((1 << mantissa_bits) - 1);
        let magnitude = code & (self.sign_bit() - 1);
        let is_infinite = match self.infinity_code() {
            Some(infinity) => magnitude == infinity,
            None => false,
        };
        if is_infinite {
            return f32::from_bits(sign | bits::INFINITY);
        }
        let is_negative_zero = negative && magnitude == 0;
        if magnitude > self.largest_code() || is_negative_zero && !self.has_negative_zero() {
            return f32::from_bits(bits::NAN);
        }
        let (significand, exponent) = if field == 0 {
            (mantissa, self.emin())
        } else {
            (mantissa | (1 << mantissa_bits), field as i32 - self.bias())
        };
        if significand == 0 {
            return f32::from_bits(sign);
        }
        let significand = (significand as f32).to_bits();
        f32::from_bits(sign | bits::scale(significand, exponent - mantissa_bits))
    }

    /// The allowed values that an error lists: the names, then the families.
    pub(crate) fn expected() -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .chain(["float(…)", "fixed(…)", "table(…)", "binary8p4se (P3109)"])
    }
}

const fn out_of_range(
    format: &'static str,
    field: &'static str,
    got: i32,
    min: i32,
    max: i32,
) -> FormatError {
    FormatError::Element {
        format,
        field,
        min,
        max,
        got,
    }
}
