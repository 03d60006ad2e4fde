//! Element formats: what one number of a block may be.

use super::names::impl_by_name;
use crate::round::bits;

/// The format of one element (OCP MX v1.0 section 5.3; `int4`, `int2`, `float16` and `bfloat16` are
/// those of the reference emulation library).
///
/// A float element is `(−1)^sign · 2^(exponent − bias) · 1.mantissa`, with subnormals below exponent
/// field 1. An integer element is a fixed-point number in two's complement with one integer bit
/// before its fraction bits; its most negative code is never produced, so that the range is
/// symmetric.
///
/// As elements of a block all of them saturate: a value beyond [`max`](Self::max) becomes ±max, and
/// neither NaN nor Inf is ever produced, even where the format has codes for them. A block that
/// holds a NaN or an Inf says so in its scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementFormat {
    /// `fp8_e5m2`: 5 exponent bits, 2 mantissa bits, with Inf and NaN. Max 57344.
    Fp8E5M2,
    /// `fp8_e4m3`: 4 exponent bits, 3 mantissa bits, one NaN code for each sign, no Inf. Max 448.
    Fp8E4M3,
    /// `fp6_e3m2`: 3 exponent bits, 2 mantissa bits, every code a number. Max 28.
    Fp6E3M2,
    /// `fp6_e2m3`: 2 exponent bits, 3 mantissa bits, every code a number. Max 7.5.
    Fp6E2M3,
    /// `fp4_e2m1` (alias `fp4`): 2 exponent bits, 1 mantissa bit, every code a number. Max 6.
    Fp4E2M1,
    /// `int8`: 6 fraction bits. Max 127/64.
    Int8,
    /// `int4`: 2 fraction bits. Max 7/4.
    Int4,
    /// `int2`: no fraction bits. Max 1.
    Int2,
    /// `float16` (alias `fp16`): IEEE binary16. Max 65504.
    Float16,
    /// `bfloat16` (alias `bf16`): the upper half of an IEEE binary32. Max 2^127 · (2 − 2^−7).
    BFloat16,
}

/// What the codes with the largest exponent field mean.
#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    /// Fixed point, two's complement: there is no exponent field.
    Fixed,
    /// Inf and NaN, as in IEEE 754.
    Ieee,
    /// Numbers, but for the one with all mantissa bits set: NaN.
    OneNan,
    /// Numbers.
    Finite,
}

/// All there is to know of a format; everything else follows from it.
struct Row {
    name: &'static str,
    aliases: &'static [&'static str],
    bits: u32,
    exponent_bits: u32,
    mantissa_bits: u32,
    encoding: Encoding,
}

impl ElementFormat {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Fp8E5M2,
        Self::Fp8E4M3,
        Self::Fp6E3M2,
        Self::Fp6E2M3,
        Self::Fp4E2M1,
        Self::Int8,
        Self::Int4,
        Self::Int2,
        Self::Float16,
        Self::BFloat16,
    ];

    #[rustfmt::skip] // one row per format
    const fn row(self) -> Row {
        use Encoding::{Fixed, Ieee, OneNan, Finite};
        let (name, aliases, bits, exponent_bits, mantissa_bits, encoding): (_, &'static [&'static str], _, _, _, _) = match self {
            Self::Fp8E5M2  => ("fp8_e5m2", &[],       8,  5, 2,  Ieee),
            Self::Fp8E4M3  => ("fp8_e4m3", &[],       8,  4, 3,  OneNan),
            Self::Fp6E3M2  => ("fp6_e3m2", &[],       6,  3, 2,  Finite),
            Self::Fp6E2M3  => ("fp6_e2m3", &[],       6,  2, 3,  Finite),
            Self::Fp4E2M1  => ("fp4_e2m1", &["fp4"],  4,  2, 1,  Finite),
            Self::Int8     => ("int8",     &[],       8,  0, 6,  Fixed),
            Self::Int4     => ("int4",     &[],       4,  0, 2,  Fixed),
            Self::Int2     => ("int2",     &[],       2,  0, 0,  Fixed),
            Self::Float16  => ("float16",  &["fp16"], 16, 5, 10, Ieee),
            Self::BFloat16 => ("bfloat16", &["bf16"], 16, 8, 7,  Ieee),
        };
        Row { name, aliases, bits, exponent_bits, mantissa_bits, encoding }
    }

    /// The name, for example `fp8_e4m3`: what `Display`, `FromStr` and serde use.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Other names that `FromStr` and serde understand.
    pub const fn aliases(self) -> &'static [&'static str] {
        self.row().aliases
    }

    /// Bits of one element, sign included.
    pub const fn bits(self) -> u32 {
        self.row().bits
    }

    /// Bits of the exponent field; 0 for the integers.
    pub const fn exponent_bits(self) -> u32 {
        self.row().exponent_bits
    }

    /// Explicit mantissa bits; for the integers, the fraction bits.
    pub const fn mantissa_bits(self) -> u32 {
        self.row().mantissa_bits
    }

    /// True for the fixed-point formats `int8`, `int4` and `int2`.
    pub const fn is_integer(self) -> bool {
        matches!(self.row().encoding, Encoding::Fixed)
    }

    /// Exponent of the largest normal number: floor(log2([`max`](Self::max))). 0 for the integers.
    pub const fn emax(self) -> i32 {
        let row = self.row();
        match row.encoding {
            Encoding::Fixed => 0,
            Encoding::Ieee => (1 << row.exponent_bits) - 2 - self.bias(),
            Encoding::OneNan | Encoding::Finite => (1 << row.exponent_bits) - 1 - self.bias(),
        }
    }

    /// Exponent of the smallest normal number. 0 for the integers, whose numbers below 1 are spaced
    /// like subnormals.
    pub const fn emin(self) -> i32 {
        if self.is_integer() {
            0
        } else {
            1 - self.bias()
        }
    }

    const fn bias(self) -> i32 {
        (1 << (self.row().exponent_bits - 1)) - 1
    }

    /// The largest number.
    pub const fn max(self) -> f32 {
        let row = self.row();
        // The significand counts units of 2^-mantissa_bits.
        let significand: u32 = match row.encoding {
            Encoding::Fixed => (1 << (row.bits - 1)) - 1,
            Encoding::Ieee | Encoding::Finite => (2 << row.mantissa_bits) - 1,
            Encoding::OneNan => (2 << row.mantissa_bits) - 2,
        };
        let significand = (significand as f32).to_bits();
        f32::from_bits(bits::scale(
            significand,
            self.emax() - row.mantissa_bits as i32,
        ))
    }

    /// The smallest positive number: 2^(emin − mantissa bits). For an integer this is its step.
    pub const fn min_subnormal(self) -> f32 {
        f32::from_bits(bits::pow2(self.emin() - self.row().mantissa_bits as i32))
    }

    /// The value of an element code, exactly; bits of `code` above [`bits`](Self::bits) are ignored.
    ///
    /// Float codes are sign and magnitude (0x80 of an fp8 is −0); `fp8_e5m2`, `float16` and
    /// `bfloat16` have IEEE's Inf and NaN, `fp8_e4m3` is NaN where all bits but the sign are set;
    /// any NaN code gives [`f32::NAN`]. Integer codes are two's complement, the most negative one
    /// is −2 though no quantization produces it.
    pub const fn decode(self, code: u32) -> f32 {
        let row = self.row();
        let mantissa_bits = row.mantissa_bits as i32;
        if self.is_integer() {
            let unused = 32 - row.bits;
            let steps = ((code << unused) as i32) >> unused;
            // At most 8 bits and a power of two: exact, and never subnormal.
            return steps as f32 * self.min_subnormal();
        }
        let sign = if (code >> (row.bits - 1)) & 1 == 1 {
            bits::SIGN
        } else {
            0
        };
        let field = (code >> row.mantissa_bits) & ((1 << row.exponent_bits) - 1);
        let mantissa = code & ((1 << row.mantissa_bits) - 1);
        let top = field == (1 << row.exponent_bits) - 1;
        let special = match row.encoding {
            Encoding::Ieee => top,
            Encoding::OneNan => top && mantissa == (1 << row.mantissa_bits) - 1,
            Encoding::Finite | Encoding::Fixed => false,
        };
        if special {
            let inf = matches!(row.encoding, Encoding::Ieee) && mantissa == 0;
            return f32::from_bits(if inf {
                sign | bits::INFINITY
            } else {
                bits::NAN
            });
        }
        let (significand, exponent) = if field == 0 {
            (mantissa, self.emin())
        } else {
            (
                mantissa | (1 << row.mantissa_bits),
                field as i32 - self.bias(),
            )
        };
        if significand == 0 {
            return f32::from_bits(sign);
        }
        let significand = (significand as f32).to_bits();
        f32::from_bits(sign | bits::scale(significand, exponent - mantissa_bits))
    }
}

impl_by_name!(ElementFormat, "element format");

// Every row must add up.
const _: () = {
    let mut i = 0;
    while i < ElementFormat::ALL.len() {
        let row = ElementFormat::ALL[i].row();
        match row.encoding {
            Encoding::Fixed => assert!(row.exponent_bits == 0 && row.bits == 2 + row.mantissa_bits),
            _ => assert!(row.bits == 1 + row.exponent_bits + row.mantissa_bits),
        }
        i += 1;
    }
};
