//! What the checks of the slice API share.

use std::{fmt::Display, str::FromStr};

use microscaling::{MxFormat, RandomStream, Rounding};

use super::compare::{Mismatch, Rule, compare};
use super::golden::Array;
use super::report::Outcome;

/// The value called `name`, or the kind of case that needs it.
pub(crate) fn named<T: FromStr>(field: &str, name: &str) -> Result<T, String> {
    name.parse().map_err(|_| format!("{field} `{name}`"))
}

/// Quantizes a copy of `input` along `axis` and compares the bits.
pub(crate) fn check_quantize(
    format: MxFormat,
    rounding: Rounding,
    input: &Array<f32>,
    axis: usize,
    expected: &Array<f32>,
) -> Outcome {
    let mut got = input.clone();
    match format.quantize(&mut got.values, &got.shape, axis, rounding, NO_STREAM) {
        Ok(()) => compare("out", &got, expected, Rule::Bits).into(),
        Err(error) => refused(error),
    }
}

/// The outcome where the library does not take a case that it should.
pub(crate) fn refused(error: impl Display) -> Outcome {
    Outcome::Failed(vec![Mismatch::new("out", error.to_string())])
}

/// No golden rounding is stochastic: nothing is drawn.
pub(crate) const NO_STREAM: RandomStream = RandomStream::new(0, 0);
