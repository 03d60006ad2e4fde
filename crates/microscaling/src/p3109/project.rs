//! The projection of a number onto a format: round, saturate, encode.

use super::{P3109Error, P3109Format, ParseP3109Error};
use crate::names;
use core::fmt;
use core::str::FromStr;

/// How a number is projected onto a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Projection {
    /// How a number between two neighbours is rounded.
    pub rounding: P3109Rounding,
    /// The results for numbers beyond the largest and the smallest one, and for infinities.
    pub saturation: Saturation,
}

/// P3109Rounding modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum P3109Rounding {
    /// Toward zero.
    TowardZero,
    /// Toward +∞.
    TowardPositive,
    /// Toward −∞.
    TowardNegative,
    /// To nearest, ties away from zero.
    NearestTiesToAway,
    /// To nearest, ties to the even code.
    NearestTiesToEven,
    /// An inexact number becomes the neighbour with the odd code.
    ToOdd,
    /// Stochastic rounding with few random bits.
    Stochastic(RandomBits),
}

/// Stochastic rounding by a random number of N bits: the larger neighbour if N bits of the fraction between both neighbours and the
/// random number add up to 1 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RandomBits {
    variant: StochasticVariant,
    random_bits: u32,
    random: u32,
}

/// How the fraction is cut to N bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StochasticVariant {
    /// Toward zero: with few bits, results are too small on average.
    A,
    /// With one bit more, and the random number half a unit higher.
    B,
    /// To nearest, ties to even.
    C,
}

/// The results for numbers that a format does not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Saturation {
    /// The extreme finite number, for infinities, too.
    SatFinite,
    /// The extreme finite number for finite ones. Infinities stay, where the format has them.
    SatPropagate,
    /// ±Inf or the extreme finite number, by the direction of rounding.
    SatNone,
}

/// Most random bits.
const MOST_RANDOM_BITS: u32 = 31;

impl RandomBits {
    /// Stochastic rounding with a random number of 1 to 31 bits.
    ///
    /// # Errors
    /// [`P3109Error`], if there are more bits, or the number has more of them.
    pub const fn new(
        variant: StochasticVariant,
        random_bits: u32,
        random: u32,
    ) -> Result<Self, P3109Error> {
        if random_bits < 1 || random_bits > MOST_RANDOM_BITS {
            return Err(P3109Error::Range {
                field: "random_bits",
                min: 1,
                max: MOST_RANDOM_BITS,
                got: random_bits,
            });
        }
        if random >> random_bits != 0 {
            return Err(P3109Error::Random {
                random_bits,
                got: random,
            });
        }
        Ok(Self {
            variant,
            random_bits,
            random,
        })
    }

    /// The same mode with another random number of these bits.
    ///
    /// # Errors
    /// [`P3109Error::Random`], if the number has more bits.
    pub const fn with(self, random: u32) -> Result<Self, P3109Error> {
        Self::new(self.variant, self.random_bits, random)
    }

    /// Whether the fraction goes up.
    fn is_up(self, fraction: Fraction) -> bool {
        let (bits, random) = (self.random_bits, u64::from(self.random));
        match self.variant {
            StochasticVariant::A => fraction.floor(bits) + random >= 1 << bits,
            StochasticVariant::B => fraction.floor(bits + 1) + 2 * random + 1 >= 1 << (bits + 1),
            StochasticVariant::C => {
                let twice = fraction.floor(bits + 1);
                let (floor, half) = (twice >> 1, twice & 1 == 1);
                let up = half && (fraction.has_rest(bits + 1) || floor & 1 == 1);
                floor + u64::from(up) + random >= 1 << bits
            }
        }
    }
}

/// A fraction of 1: numerator / 2^shift.
#[derive(Clone, Copy)]
struct Fraction {
    numerator: u64,
    shift: u32,
}

impl Fraction {
    /// ⌊fraction · 2^bits⌋, for at most 32 bits.
    fn floor(self, bits: u32) -> u64 {
        let scaled = u128::from(self.numerator) << bits;
        scaled.checked_shr(self.shift).unwrap_or(0) as u64
    }

    /// Whether fraction · 2^bits has a part behind the point.
    fn has_rest(self, bits: u32) -> bool {
        let scaled = u128::from(self.numerator) << bits;
        scaled.trailing_zeros() < self.shift && scaled != 0
    }

    /// The fraction against one half.
    fn half(self) -> core::cmp::Ordering {
        match self.floor(1) {
            0 => core::cmp::Ordering::Less,
            _ if self.has_rest(1) => core::cmp::Ordering::Greater,
            _ => core::cmp::Ordering::Equal,
        }
    }
}

impl P3109Format {
    /// The code of a number: rounded, saturated, encoded. Float32 and float16 numbers are float64 numbers, too. NaN has the code of
    /// NaN, and ±0 the code 0.
    pub fn project(self, x: f64, projection: Projection) -> u32 {
        if x.is_nan() {
            return self.nan();
        }
        let negative = x.is_sign_negative();
        if x.is_infinite() {
            return self.saturate_infinity(negative, projection.saturation);
        }
        let (significand, exponent) = parts(x);
        self.project_finite(negative, significand, exponent, projection)
    }

    /// The code of ±significand · 2^exponent. The last bit of a significand with 62 bits may stand for all bits below.
    pub(super) fn project_finite(
        self,
        negative: bool,
        significand: u64,
        exponent: i32,
        projection: Projection,
    ) -> u32 {
        let Projection {
            rounding,
            saturation,
        } = projection;
        let magnitude = self.rounded(negative, (significand, exponent), rounding);
        let is_beyond = match negative && !self.is_signed() {
            true => magnitude > 0,
            false => magnitude > u64::from(self.largest()),
        };
        match (is_beyond, magnitude) {
            (true, _) => self.saturate(negative, rounding, saturation),
            (false, 0) => 0,
            (false, magnitude) => magnitude as u32 + self.sign(negative),
        }
    }

    /// The code of the magnitude of a finite number, if the exponent field had no end.
    fn rounded(
        self,
        negative: bool,
        (significand, exponent): (u64, i32),
        rounding: P3109Rounding,
    ) -> u64 {
        if significand == 0 {
            return 0;
        }
        let own = 63 - significand.leading_zeros() as i32 + exponent;
        let unit = own.max(1 - self.bias()) - self.precision() as i32 + 1;
        let (whole, fraction) = match exponent - unit {
            up @ 0.. => (
                significand << up,
                Fraction {
                    numerator: 0,
                    shift: 0,
                },
            ),
            down => {
                let shift = down.unsigned_abs();
                let whole = significand.checked_shr(shift).unwrap_or(0);
                let cut = whole.checked_shl(shift).unwrap_or(0);
                let numerator = significand - cut;
                (whole, Fraction { numerator, shift })
            }
        };
        let is_odd = match self.precision() {
            // The code, and not the significand, is even or odd. The code 0 is even.
            1 => whole > 0 && (unit + self.bias()) & 1 != 0,
            _ => whole & 1 == 1,
        };
        let is_inexact = fraction.numerator != 0;
        let up = is_inexact
            && match rounding {
                P3109Rounding::TowardZero => false,
                P3109Rounding::TowardPositive => !negative,
                P3109Rounding::TowardNegative => negative,
                P3109Rounding::NearestTiesToAway => fraction.half().is_ge(),
                P3109Rounding::NearestTiesToEven => {
                    fraction.half().is_gt() || fraction.half().is_eq() && is_odd
                }
                P3109Rounding::ToOdd => !is_odd,
                P3109Rounding::Stochastic(stochastic) => stochastic.is_up(fraction),
            };
        // A carry runs into the exponent field, as in the code.
        let field = unit + self.bias() + self.precision() as i32 - 1;
        // The implicit bit counts as one in the exponent field; a subnormal number has the field 1, less its implicit bit.
        let base = (field as u64 - 1) << (self.precision() - 1);
        base + whole + u64::from(up)
    }

    /// The code for a finite number beyond the largest or the smallest one.
    fn saturate(self, negative: bool, rounding: P3109Rounding, saturation: Saturation) -> u32 {
        let extreme = self.extreme(negative);
        if saturation != Saturation::SatNone {
            return extreme;
        }
        let stays = match (rounding, negative) {
            (P3109Rounding::TowardZero, _) => true,
            (P3109Rounding::TowardNegative, false) | (P3109Rounding::TowardPositive, true) => true,
            (P3109Rounding::ToOdd, false) => !self.is_signed() && self.is_extended(),
            _ => false,
        };
        match (stays, self.infinity(negative)) {
            (true, _) => extreme,
            (false, Some(infinity)) => infinity,
            (false, None) if negative && !self.is_signed() => self.nan(),
            (false, None) => extreme,
        }
    }

    /// The code for an infinity.
    pub(super) fn saturate_infinity(self, negative: bool, saturation: Saturation) -> u32 {
        let extreme = self.extreme(negative);
        match (saturation, self.infinity(negative)) {
            (Saturation::SatFinite, _) | (Saturation::SatPropagate, None) => extreme,
            (_, Some(infinity)) => infinity,
            (Saturation::SatNone, None) if negative && !self.is_signed() => self.nan(),
            (Saturation::SatNone, None) => extreme,
        }
    }

    /// The code of the largest, or of the smallest number.
    const fn extreme(self, negative: bool) -> u32 {
        match (negative, self.is_signed()) {
            (true, false) => 0,
            _ => self.largest() + self.sign(negative),
        }
    }
}

/// Significand and exponent of the magnitude of a finite number.
pub(super) fn parts(x: f64) -> (u64, i32) {
    let bits = x.to_bits();
    let (field, trailing) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    match field {
        0 => (trailing, -1074),
        field => (trailing | 1 << 52, field - 1075),
    }
}

/// The report's names of the modes without random numbers.
const ROUNDINGS: [(&str, P3109Rounding); 6] = [
    ("TowardZero", P3109Rounding::TowardZero),
    ("TowardPositive", P3109Rounding::TowardPositive),
    ("TowardNegative", P3109Rounding::TowardNegative),
    ("NearestTiesToAway", P3109Rounding::NearestTiesToAway),
    ("NearestTiesToEven", P3109Rounding::NearestTiesToEven),
    ("ToOdd", P3109Rounding::ToOdd),
];

/// The report's names of the stochastic modes.
const VARIANTS: [(&str, StochasticVariant); 3] = [
    ("StochasticA", StochasticVariant::A),
    ("StochasticB", StochasticVariant::B),
    ("StochasticC", StochasticVariant::C),
];

const SATURATIONS: [(&str, Saturation); 3] = [
    ("SatFinite", Saturation::SatFinite),
    ("SatPropagate", Saturation::SatPropagate),
    ("SatNone", Saturation::SatNone),
];

impl P3109Rounding {
    /// The mode of a name of the report, such as `NearestTiesToEven` or `StochasticB`, with its random number. Modes without random
    /// numbers have `random_bits` 0 and `random` 0.
    ///
    /// # Errors
    /// [`ParseP3109Error`], for another name, and for random bits that the mode does not have.
    pub fn named(name: &str, random_bits: u32, random: u32) -> Result<Self, ParseP3109Error> {
        if let Some((_, variant)) = VARIANTS.iter().find(|(own, _)| *own == name) {
            let stochastic = RandomBits::new(*variant, random_bits, random)?;
            return Ok(Self::Stochastic(stochastic));
        }
        let found = ROUNDINGS.iter().find(|(own, _)| *own == name);
        let Some((_, rounding)) = found else {
            let all = ROUNDINGS.iter().map(|(own, _)| *own);
            let all = all.chain(VARIANTS.iter().map(|(own, _)| *own)).collect();
            return Err(crate::NameError::new("rounding mode of P3109", name, all).into());
        };
        if random_bits != 0 {
            return Err(P3109Error::Range {
                field: "random_bits",
                min: 0,
                max: 0,
                got: random_bits,
            }
            .into());
        }
        Ok(rounding.with_random(random)?)
    }

    /// The same mode with another random number; modes without random numbers take 0 alone.
    ///
    /// # Errors
    /// [`P3109Error::Random`], if the number has more bits than the mode draws.
    pub const fn with_random(self, random: u32) -> Result<Self, P3109Error> {
        match self {
            Self::Stochastic(bits) => match bits.with(random) {
                Ok(bits) => Ok(Self::Stochastic(bits)),
                Err(error) => Err(error),
            },
            mode if random == 0 => Ok(mode),
            _ => Err(P3109Error::Random {
                random_bits: 0,
                got: random,
            }),
        }
    }

    /// The report's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stochastic(stochastic) => {
                let variant = stochastic.variant;
                let found = VARIANTS.iter().find(|(_, own)| *own == variant);
                found.map_or("", |(name, _)| name)
            }
            mode => {
                let found = ROUNDINGS.iter().find(|(_, own)| *own == mode);
                found.map_or("", |(name, _)| name)
            }
        }
    }
}

impl fmt::Display for Saturation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = SATURATIONS.iter().find(|(_, own)| own == self);
        f.pad(found.map_or("", |(name, _)| name))
    }
}

impl FromStr for Saturation {
    type Err = ParseP3109Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(names::parse(
            "saturation mode of P3109",
            &SATURATIONS,
            name,
        )?)
    }
}
