//! Common code of the slice API's checks.

use std::{
    fmt::{Debug, Display},
    str::FromStr,
};

use microscaling::{BlockFormat, Packed, RandomStream, Rounding};
use serde::{Deserialize, de::DeserializeOwned};

use super::compare::{AgreementRule, Mismatch, compare, compare_codes};
use super::golden::{Array, Golden, GoldenError};
use super::report::{CheckReport, Outcome};

/// The parameters of a case.
#[derive(Debug, Deserialize)]
struct SliceCase<P> {
    input: String,
    axis: isize,
    /// The format, and how to round to it.
    #[serde(flatten)]
    format: P,
}

/// The checks of a case.
pub(crate) enum Checked {
    Values,
    /// Three checks: the values, the codes of the scales, and the codes of the elements.
    ValuesAndCodes,
}

/// Checks every case. `format` gives its format and rounding, or the kind of case that is unknown.
pub(crate) fn check_cases<P: DeserializeOwned + Debug>(
    file: &Golden,
    name: &str,
    checked: Checked,
    format: impl Fn(&P) -> Result<(BlockFormat, Rounding), String>,
) -> Result<CheckReport, GoldenError> {
    let mut report = CheckReport::new(name, "slice");
    for case in file.cases::<SliceCase<P>>()? {
        let (id, params) = (&case.id, &case.params);
        let input = file.floats(&format!("in/{}", params.input))?;
        let values = file.floats(&format!("out/{id}"))?;
        let axis = input
            .axis(params.axis)
            .ok_or_else(|| file.bad_case(id, "`axis` is out of range"))?;
        let case = format!("case {id}: {params:?}");
        let (format, rounding) = match format(&params.format) {
            Ok(format) => format,
            Err(kind) => {
                report.add(&case, Outcome::Skipped(kind));
                continue;
            }
        };
        report.add(&case, check_quantize(format, rounding, input, axis, values));
        if let Checked::ValuesAndCodes = checked {
            let scales = file.bytes(&format!("scale/{id}"))?;
            let elements = file.bytes(&format!("bits/{id}"))?;
            for outcome in check_packed(format, rounding, input, axis, scales, elements) {
                report.add(&case, outcome);
            }
        }
    }
    Ok(report)
}

/// The value called `name`, or the kind of case that needs it.
pub(crate) fn named<T: FromStr>(field: &str, name: &str) -> Result<T, String> {
    name.parse().map_err(|_| format!("{field} `{name}`"))
}

/// Quantizes a copy of `input` along `axis` and compares the bits.
fn check_quantize(
    format: BlockFormat,
    rounding: Rounding,
    input: &Array<f32>,
    axis: usize,
    expected: &Array<f32>,
) -> Outcome {
    let mut got = input.clone();
    match format.quantize(&mut got.values, &got.shape, axis, rounding.with(NO_STREAM)) {
        Ok(()) => compare("out", &got, expected, AgreementRule::Bits).into(),
        Err(error) => refused(error),
    }
}

/// Packs `input` along `axis` and compares the bytes of its scales, one a block, and of its elements.
fn check_packed(
    format: BlockFormat,
    rounding: Rounding,
    input: &Array<f32>,
    axis: usize,
    scales: &Array<u8>,
    elements: &Array<u8>,
) -> [Outcome; 2] {
    let encoded = Packed::encode(
        format,
        &input.values,
        &input.shape,
        axis,
        rounding.with(NO_STREAM),
    );
    let format_bits = format.element_bits() as usize;
    let packed = match encoded {
        Ok(packed) => packed,
        Err(error) => return [refused(&error), refused(&error)],
    };
    let bytes = |values: &[u8], like: &Array<u8>| Array {
        shape: like.shape.clone(),
        values: values.to_vec(),
    };
    let codes = |tensor, got: &[u8], expected: &Array<u8>| {
        if got.len() != expected.values.len() {
            let message = format!(
                "got {} bytes, expected {}",
                got.len(),
                expected.values.len()
            );
            return Outcome::Failed(vec![Mismatch::new(tensor, message)]);
        }
        compare_codes(tensor, &bytes(got, expected), expected).into()
    };
    [
        codes("scale", packed.scales(), scales),
        // Six-bit codes stand one a byte in the golden file.
        match elements.values.len() == input.values.len() {
            true => codes(
                "bits",
                &one_a_byte(packed.elements(), format_bits),
                elements,
            ),
            false => codes("bits", packed.elements(), elements),
        },
    ]
}

/// Codes of `bits` bits, packed low bits first, as a byte each.
fn one_a_byte(packed: &[u8], bits: usize) -> Vec<u8> {
    let bit = |at: usize| packed[at / 8] >> (at % 8) & 1;
    (0..packed.len() * 8 / bits)
        .map(|i| (0..bits).fold(0, |code, place| code | bit(i * bits + place) << place))
        .collect()
}

/// The outcome where the library does not take a case that it should.
pub(crate) fn refused(error: impl Display) -> Outcome {
    Outcome::Failed(vec![Mismatch::new("out", error.to_string())])
}

/// No golden rounding is stochastic: nothing is drawn.
pub(crate) const NO_STREAM: RandomStream = RandomStream::new(0, 0);
