//! Blocks (section 5 of the report): a scale and elements, the conversion of numbers to a block, and the product of two blocks.

use super::project::parts;
use super::{CodeValue, P3109Error, P3109Format, Projection};
use alloc::{vec, vec::Vec};

/// A block: the codes of elements, and the code of the scale that they share. An element's value is scale times element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct P3109Block<'a> {
    /// The format of the scale.
    pub scale_format: P3109Format,
    /// The code of the scale.
    pub scale: u32,
    /// The format of the elements.
    pub element_format: P3109Format,
    /// The codes of the elements.
    pub codes: &'a [u32],
}

/// A finite number: ±significand · 2^exponent.
#[derive(Clone, Copy)]
struct FiniteValue {
    negative: bool,
    significand: u64,
    exponent: i32,
}

/// A value, of which only the finite ones are computed with.
enum BlockValue {
    Nan,
    Infinite { negative: bool },
    Finite(FiniteValue),
}

impl BlockValue {
    fn of(value: CodeValue) -> Self {
        match value {
            CodeValue::Nan => Self::Nan,
            CodeValue::Infinite { negative } => Self::Infinite { negative },
            CodeValue::Finite {
                negative,
                significand,
                exponent,
            } => Self::Finite(FiniteValue {
                negative,
                significand: significand.into(),
                exponent,
            }),
        }
    }

    /// The exact product of two values of codes: 0 times Inf is NaN.
    fn times(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Finite(a), Self::Finite(b)) => Self::Finite(FiniteValue {
                negative: a.negative != b.negative,
                significand: a.significand * b.significand,
                exponent: a.exponent + b.exponent,
            }),
            (Self::Infinite { negative }, Self::Infinite { negative: other }) => Self::Infinite {
                negative: negative != other,
            },
            (Self::Infinite { negative }, Self::Finite(x))
            | (Self::Finite(x), Self::Infinite { negative }) => match x.significand {
                0 => Self::Nan,
                _ => Self::Infinite {
                    negative: negative != x.negative,
                },
            },
        }
    }
}

impl P3109Block<'_> {
    /// `BlockDotProduct`: the exact sum of the exact products of both blocks' values, rounded once. The sum of a NaN, or of +Inf and
    /// −Inf, is NaN.
    ///
    /// ```
    /// use microscaling::p3109::{P3109Block, P3109Format, P3109Rounding, Projection, Saturation};
    ///
    /// let [e4m3, scales]: [P3109Format; 2] = ["binary8p4se".parse()?, "binary8p1uf".parse()?];
    /// let one = P3109Block { scale_format: scales, scale: 0x80, element_format: e4m3, codes: &[0x40, 0xc8, 0x38] };
    /// let projection = Projection { rounding: P3109Rounding::NearestTiesToEven, saturation: Saturation::SatFinite };
    /// // 1 · 1 + 2 · 2 + ½ · ½, rounded from 5.25 to 5.
    /// let code = one.dot_product(one, e4m3, projection)?;
    /// assert_eq!(e4m3.decode(code).to_f64(), Some(5.0));
    /// # Ok::<(), microscaling::p3109::ParseP3109Error>(())
    /// ```
    ///
    /// # Errors
    /// [`P3109Error::Length`], if the blocks have different numbers of elements.
    pub fn dot_product(
        self,
        other: P3109Block<'_>,
        result: P3109Format,
        projection: Projection,
    ) -> Result<u32, P3109Error> {
        if self.codes.len() != other.codes.len() {
            return Err(P3109Error::Length {
                expected: self.codes.len(),
                got: other.codes.len(),
            });
        }
        let mut sum = BlockSum::default();
        for (a, b) in self.codes.iter().zip(other.codes) {
            let [a, b] = [(self, *a), (other, *b)].map(|(block, code)| {
                let scale = BlockValue::of(block.scale_format.decode(block.scale));
                scale.times(BlockValue::of(block.element_format.decode(code)))
            });
            sum.terms.push(match a.times(b) {
                BlockValue::Nan => return Ok(result.nan()),
                BlockValue::Infinite { negative } => {
                    sum.infinite[usize::from(negative)] = true;
                    continue;
                }
                BlockValue::Finite(number) => number,
            });
        }
        Ok(match sum.infinite {
            [true, true] => result.nan(),
            [positive, negative] if positive || negative => {
                result.saturate_infinity(negative, projection.saturation)
            }
            _ => {
                let FiniteValue {
                    negative,
                    significand,
                    exponent,
                } = sum.exact();
                result.project_finite(negative, significand, exponent, projection)
            }
        })
    }
}

impl P3109Format {
    /// `ConvertToBlockMaxAbsFinite`: the codes of a block's elements in this format, after the code of their scale in another format. The scale
    /// is the largest finite magnitude, projected, and each element the exact quotient of number and scale, projected. Infinities do
    /// not count for the scale. The scale is NaN if all numbers are NaN, and the projected 0 if no
    /// number is finite and one is infinite.
    ///
    /// The first projection is for the scale, the second one for elements.
    pub fn convert_to_block_max_abs_finite(
        self,
        x: &[f64],
        scale_format: Self,
        [of_scale, of_elements]: [Projection; 2],
    ) -> (u32, Vec<u32>) {
        let finite = x.iter().filter(|x| x.is_finite());
        // Magnitudes compare as their patterns do, in any float state.
        let amax = finite.map(|x| x.abs().to_bits()).max();
        let scale = match amax {
            None if !x.is_empty() && x.iter().all(|x| x.is_nan()) => scale_format.nan(),
            amax => scale_format.project(f64::from_bits(amax.unwrap_or(0)), of_scale),
        };
        let codes = x
            .iter()
            .map(|x| self.project_by_scale(*x, scale_format.decode(scale), of_elements))
            .collect();
        (scale, codes)
    }

    /// The code of x by a given scale (section 5): NaN if either is NaN, 0 if the scale is 0, ±1 if the scale is infinite, else the
    /// exact quotient, rounded once.
    pub fn project_by_scale(self, x: f64, scale: CodeValue, projection: Projection) -> u32 {
        let negative = x.is_sign_negative();
        match scale {
            CodeValue::Nan => self.nan(),
            _ if x.is_nan() => self.nan(),
            CodeValue::Finite { significand: 0, .. } => 0,
            CodeValue::Infinite { negative: other } => {
                let (significand, _) = parts(x);
                let unit = u64::from(x.is_infinite() || significand > 0);
                self.project_finite(negative != other, unit, 0, projection)
            }
            CodeValue::Finite {
                negative: other, ..
            } if x.is_infinite() => {
                self.saturate_infinity(negative != other, projection.saturation)
            }
            CodeValue::Finite {
                negative: other,
                significand,
                exponent,
            } => {
                let (own, own_exponent) = parts(x);
                let divisor = u128::from(significand);
                // 60 bits of the quotient at least, of which more than 32 are behind the result's last one. The last bit tells
                // whether there is a rest.
                let shift = 62 + own.leading_zeros();
                let dividend = u128::from(own) << shift;
                let (quotient, rest) = (dividend / divisor, dividend % divisor);
                let (mut quotient, mut unit) = (quotient, own_exponent - exponent - shift as i32);
                let mut is_inexact = rest != 0;
                while quotient >= 1 << 62 {
                    is_inexact |= quotient & 1 == 1;
                    quotient >>= 1;
                    unit += 1;
                }
                let significand = quotient as u64 | u64::from(is_inexact);
                self.project_finite(negative != other, significand, unit, projection)
            }
        }
    }
}

/// An exact sum.
#[derive(Default)]
struct BlockSum {
    terms: Vec<FiniteValue>,
    /// Whether +Inf and −Inf are among the summands.
    infinite: [bool; 2],
}

impl BlockSum {
    /// The sum as the highest 62 bits, of which the last one is set if there is a rest.
    fn exact(&self) -> FiniteValue {
        let exponents = || self.terms.iter().map(|term| term.exponent);
        let (Some(lowest), Some(highest)) = (exponents().min(), exponents().max()) else {
            return FiniteValue {
                negative: false,
                significand: 0,
                exponent: 0,
            };
        };
        // Room for a significand of 64 bits, and for the carries of 2^64 terms.
        let words = (highest - lowest) as usize / 64 + 4;
        let mut sums = [vec![0_u64; words], vec![0_u64; words]];
        for term in &self.terms {
            let at = (term.exponent - lowest) as usize;
            let shifted = u128::from(term.significand) << (at % 64);
            let words = &mut sums[usize::from(term.negative)][at / 64..];
            let (mut carry, mut rest) = (false, shifted);
            for word in words {
                let (sum, first) = word.overflowing_add(rest as u64);
                let (sum, second) = sum.overflowing_add(u64::from(carry));
                (*word, carry, rest) = (sum, first | second, rest >> 64);
                if rest == 0 && !carry {
                    break;
                }
            }
        }
        let [positive, negative] = &sums;
        let is_negative = positive.iter().rev().lt(negative.iter().rev());
        let (larger, smaller) = match is_negative {
            true => (negative, positive),
            false => (positive, negative),
        };
        let mut difference = vec![0; words];
        let mut borrow = false;
        for (word, (a, b)) in difference.iter_mut().zip(larger.iter().zip(smaller)) {
            let (rest, first) = a.overflowing_sub(*b);
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            (*word, borrow) = (rest, first | second);
        }
        let (significand, exponent) = highest_bits(&difference);
        FiniteValue {
            negative: is_negative,
            significand,
            exponent: exponent + lowest,
        }
    }
}

/// The highest 62 bits of a number of words, and the exponent of their unit. The last bit is set if there is a rest.
fn highest_bits(words: &[u64]) -> (u64, i32) {
    let Some(top) = words.iter().rposition(|word| *word != 0) else {
        return (0, 0);
    };
    let length = 64 * (top as i32 + 1) - words[top].leading_zeros() as i32;
    let shift = (length - 62).max(0) as usize;
    let bit = |at: usize| words.get(at / 64).map_or(0, |word| word >> (at % 64) & 1);
    let high = (0..62).fold(0, |bits, i| bits | bit(shift + i) << i);
    let is_inexact = (0..shift).any(|at| bit(at) == 1);
    (high | u64::from(is_inexact), shift as i32)
}
