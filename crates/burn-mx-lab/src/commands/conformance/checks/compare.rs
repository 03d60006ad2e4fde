//! When a computed tensor agrees with a golden one.

use std::fmt;

use microscaling::FloatFormat;

use super::golden::Array;

/// How closely two tensors have to agree.
#[derive(Clone, Debug)]
pub(crate) enum AgreementRule {
    /// Every element has the expected bits; −0 equals 0 and any NaN any other.
    Bits,
    /// As [`Bits`](Self::Bits), but a share of the elements may be a neighbour of the expected
    /// number in `format`.
    OneStep { format: FloatFormat, share: f64 },
    /// Every element lies within this share of the largest expected magnitude.
    OfLargest(f64),
    /// As [`OfLargest`](Self::OfLargest), but a share of the elements may be off by a step of `format` at the expected number.
    MostOfLargest {
        distance: f64,
        format: FloatFormat,
        share: f64,
    },
    /// Every element lies within this share of the expected one.
    Relative(f64),
    /// Every element lies within its own distance, the sum of its possible rounding errors.
    Within { allowed: Vec<f64> },
}

impl AgreementRule {
    /// The rule without what differs from case to case.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::OneStep { share, .. } => {
                format!(
                    "one step of the format on ≤ {} % of the elements",
                    100.0 * share
                )
            }
            Self::MostOfLargest {
                distance, share, ..
            } => {
                let percent = 100.0 * share;
                format!(
                    "within {distance:e} of the largest magnitude, or one step of the format on ≤ {percent} % of the \
                     elements"
                )
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for AgreementRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits => write!(f, "equal bits"),
            Self::OneStep { format, share } => {
                let (format, percent) = (name(*format), 100.0 * share);
                write!(f, "one step of {format} on ≤ {percent} % of the elements")
            }
            Self::Within { .. } => write!(f, "within what its roundings can add up to"),
            Self::MostOfLargest {
                distance,
                format,
                share,
            } => {
                let (format, percent) = (name(*format), 100.0 * share);
                write!(
                    f,
                    "within {distance:e} of the largest magnitude, or one step of {format} on ≤ {percent} % of the elements"
                )
            }
            Self::OfLargest(share) => write!(f, "within {share:e} of the largest magnitude"),
            Self::Relative(share) => write!(f, "within {share:e} of the value"),
        }
    }
}

fn name(format: FloatFormat) -> String {
    let family = match format.exponent_bits() {
        8 => "bfloat",
        _ => "fp",
    };
    format!("{family}{}", format.bits())
}

/// A tensor that does not agree.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    pub(crate) tensor: String,
    pub(crate) message: String,
}

impl Mismatch {
    pub(crate) fn new(tensor: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            tensor: tensor.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tensor, self.message)
    }
}

/// How far an element is off.
#[derive(Clone, Copy, PartialEq)]
enum Distance {
    None,
    OneStep,
    More,
}

/// Compares a computed tensor with the golden one; `None` if they agree.
pub(crate) fn compare(
    tensor: &str,
    got: &Array<f32>,
    expected: &Array<f32>,
    rule: AgreementRule,
) -> Option<Mismatch> {
    if got.shape != expected.shape {
        let message = format!("got shape {:?}, expected {:?}", got.shape, expected.shape);
        return Some(Mismatch::new(tensor, message));
    }
    let largest = expected
        .values
        .iter()
        .filter(|x| x.is_finite())
        .fold(0.0_f64, |max, &x| max.max(f64::from(x).abs()));
    let count = expected.values.len();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for (i, (&got, &expected)) in got.values.iter().zip(&expected.values).enumerate() {
        match distance(got, expected, &rule, i, largest) {
            Distance::None => {}
            Distance::OneStep => near.push(i),
            Distance::More => far.push(i),
        }
    }
    let allowed = match rule {
        AgreementRule::OneStep { share, .. } | AgreementRule::MostOfLargest { share, .. } => {
            (share * count as f64).floor() as usize
        }
        _ => 0,
    };
    if far.is_empty() && near.len() <= allowed {
        return None;
    }
    let first = *far.first().unwrap_or_else(|| &near[0]);
    let mut message = format!(
        "at {:?} got {}, expected {}; {} of {count} elements are off",
        index(first, &expected.shape),
        number(got.values[first]),
        number(expected.values[first]),
        near.len() + far.len(),
    );
    if let AgreementRule::OneStep { .. } | AgreementRule::MostOfLargest { .. } = rule {
        let (near, far) = (near.len(), far.len());
        message += &format!(", {near} by one step ({allowed} allowed), {far} by more");
    }
    if let AgreementRule::Within { allowed } = &rule {
        let share = |i: usize| {
            let (got, expected) = (f64::from(got.values[i]), f64::from(expected.values[i]));
            (got - expected).abs() / allowed[i]
        };
        let farthest = far.iter().map(|&i| share(i)).fold(0.0, f64::max);
        message += &format!(", by up to {farthest:.2} times what is allowed");
    }
    message += &format!("; rule: {rule}");
    Some(Mismatch::new(tensor, message))
}

/// Compares codes, which have to be equal.
pub(crate) fn compare_codes(
    tensor: &str,
    got: &Array<u8>,
    expected: &Array<u8>,
) -> Option<Mismatch> {
    if got.shape != expected.shape {
        let message = format!("got shape {:?}, expected {:?}", got.shape, expected.shape);
        return Some(Mismatch::new(tensor, message));
    }
    let codes = || got.values.iter().zip(&expected.values);
    let first = codes().position(|(got, expected)| got != expected)?;
    let off = codes().filter(|(got, expected)| got != expected).count();
    let message = format!(
        "at {:?} got {:#04x}, expected {:#04x}; {off} of {} codes are off",
        index(first, &expected.shape),
        got.values[first],
        expected.values[first],
        expected.values.len(),
    );
    Some(Mismatch::new(tensor, message))
}

/// Of the element at position `i`.
fn distance(got: f32, expected: f32, rule: &AgreementRule, i: usize, largest: f64) -> Distance {
    // −0 equals 0 by this, too.
    if got == expected || (got.is_nan() && expected.is_nan()) {
        return Distance::None;
    }
    let error = (f64::from(got) - f64::from(expected)).abs();
    let close = match *rule {
        AgreementRule::Bits => false,
        AgreementRule::OneStep { format, .. } => {
            // A number that the format does not have is not a step away, it was not rounded.
            let steps = ordinal(format, got)
                .zip(ordinal(format, expected))
                .map(|(got, expected)| got.abs_diff(expected));
            if steps == Some(1) {
                return Distance::OneStep;
            }
            false
        }
        AgreementRule::MostOfLargest {
            distance, format, ..
        } => {
            if error > distance * largest && error <= unit_of(format, expected) {
                return Distance::OneStep;
            }
            error <= distance * largest
        }
        // NaN and Inf make these false.
        AgreementRule::OfLargest(share) => error <= share * largest,
        AgreementRule::Relative(share) => error <= share * f64::from(expected).abs(),
        // Where something may overflow on the way, anything may come out.
        AgreementRule::Within { ref allowed } => allowed[i].is_infinite() || error <= allowed[i],
    };
    if close {
        Distance::None
    } else {
        Distance::More
    }
}

/// Position of a number among the numbers of a format, counted from zero; `None` for other numbers. Infinity comes
/// after the largest number.
fn ordinal(format: FloatFormat, x: f32) -> Option<i64> {
    if x.is_nan() {
        return None;
    }
    let magnitude = if x.is_infinite() {
        ordinal(format, format.max())? + 1
    } else {
        let (x, least) = (f64::from(x).abs(), f64::from(format.min_normal()));
        // Numbers in a binade, which is also the number of subnormals and the zero.
        let binade = 2.0_f64.powi(format.mantissa_bits() as i32);
        let position = if x < least {
            x / least * binade
        } else {
            let exponent = binary_exponent(x) - binary_exponent(least);
            (f64::from(exponent) + x / 2.0_f64.powi(binary_exponent(x))) * binade
        };
        if position.fract() != 0.0 {
            return None;
        }
        match (format.subnormals(), x < least) {
            (true, _) => position as i64,
            (false, true) => return (x == 0.0).then_some(0),
            // Without subnormals, the least normal number comes right after zero.
            (false, false) => (position - binade) as i64 + 1,
        }
    };
    Some(if x.is_sign_negative() {
        -magnitude
    } else {
        magnitude
    })
}

/// A step of `format` at a number: the distance of the numbers that it has there.
fn unit_of(format: FloatFormat, x: f32) -> f64 {
    let x = f64::from(x).abs().max(f64::from(format.min_normal()));
    2.0_f64.powi(binary_exponent(x) - format.mantissa_bits() as i32)
}

/// floor(log2(x)) of a normal number.
fn binary_exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// The index along each axis of an element.
fn index(element: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = element;
    let mut index = vec![0; shape.len()];
    for (at, &length) in index.iter_mut().zip(shape).rev() {
        (*at, rest) = (rest % length, rest / length);
    }
    index
}

/// A float with its bits.
fn number(x: f32) -> String {
    format!("{x:e} ({:#010x})", x.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_count_the_numbers_of_a_format() {
        for format in [FloatFormat::bfloat(16), FloatFormat::fp(16)] {
            let format = format.unwrap();
            let at = |x: f32| ordinal(format, x).unwrap();
            let (least, max) = (format.min_normal(), format.max());
            let unit = least / 2.0_f32.powi(format.mantissa_bits() as i32);
            assert_eq!((at(0.0), at(-0.0), at(unit), at(-unit)), (0, 0, 1, -1));
            assert_eq!(at(least) - at(least - unit), 1);
            assert_eq!(at(f32::INFINITY) - at(max), 1);
            let epsilon = 2.0_f32.powi(-(format.mantissa_bits() as i32));
            assert_eq!(at(1.0) - at(1.0 - epsilon / 2.0), 1);
            assert_eq!(at(1.0 + epsilon) - at(1.0), 1);
            assert_eq!(ordinal(format, 1.0 + epsilon / 2.0), None);

            let flushed = format.with_subnormals(false);
            assert_eq!(ordinal(flushed, least), Some(1));
            assert_eq!(ordinal(flushed, unit), None);
        }
    }

    #[test]
    fn rules_allow_what_they_say() {
        let array = |values: &[f32]| Array {
            shape: vec![values.len()],
            values: values.to_vec(),
        };
        let format = FloatFormat::bfloat(16).unwrap();
        let agree = |got: &[f32], expected: &[f32], rule| {
            compare("x", &array(got), &array(expected), rule).is_none()
        };
        let half = || AgreementRule::OneStep { format, share: 0.5 };
        let step = 1.0 + 2.0_f32.powi(-7);
        assert!(agree(
            &[-0.0, f32::NAN],
            &[0.0, f32::from_bits(!0)],
            AgreementRule::Bits
        ));
        assert!(!agree(&[0.0], &[f32::NAN], AgreementRule::Bits));
        assert!(!agree(&[0.0, 1.0], &[0.0], AgreementRule::Bits));
        assert!(agree(&[step, 1.0], &[1.0, 1.0], half()));
        assert!(!agree(&[step, 1.0], &[1.0, step], half()));
        assert!(!agree(&[step + 2.0_f32.powi(-7), 1.0], &[1.0, 1.0], half()));
        assert!(agree(
            &[1.5, 100.0],
            &[1.0, 100.0],
            AgreementRule::OfLargest(0.01)
        ));
        assert!(!agree(
            &[1.5, 100.0],
            &[1.0, 100.0],
            AgreementRule::Relative(0.01)
        ));
        let most = || AgreementRule::MostOfLargest {
            distance: 1e-6,
            format,
            share: 0.5,
        };
        assert!(agree(&[step, 1.0], &[1.0, 1.0], most()));
        assert!(agree(&[1.0 + 1e-7, 1.0], &[1.0, 1.0 - 1e-7], most()));
        assert!(!agree(&[step, step], &[1.0, 1.0], most()));
        assert!(!agree(&[step * step, 1.0], &[1.0, 1.0], most()));
        assert!(!agree(&[f32::NAN, 1.0], &[1.0, 1.0], most()));
        let within = |allowed: &[f64]| AgreementRule::Within {
            allowed: allowed.to_vec(),
        };
        assert!(agree(&[step, 1.1], &[1.0, 1.0], within(&[0.01, 0.2])));
        assert!(!agree(&[step, 1.1], &[1.0, 1.0], within(&[0.2, 0.01])));
        assert!(!agree(&[f32::NAN], &[1.0], within(&[1e9])));
        assert!(agree(&[f32::NAN], &[1.0], within(&[f64::INFINITY])));
        assert!(!agree(&[f32::NAN], &[1.0], AgreementRule::OfLargest(1.0)));
        assert!(!agree(
            &[f32::INFINITY],
            &[1.0],
            AgreementRule::Relative(1.0)
        ));
    }
}
