//! The fixed scales of inputs.

use super::QuantizeArgs;
use crate::error::Error;
use half::{bf16, f16};
use microscaling::safetensors::RepackedTensor;
use microscaling::{BlockFormat, Dialect};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The largest magnitude of inputs: of all layers, or a file with one for each.
#[derive(Clone, Debug)]
pub(super) enum InputMax {
    All(f32),
    File(PathBuf),
}

impl FromStr for InputMax {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number) => checked(number).map(Self::All),
            Err(_) => Ok(Self::File(text.into())),
        }
    }
}

/// A largest magnitude from which a scale follows.
fn checked(number: f32) -> Result<f32, String> {
    let is_scale = number.is_normal() && number > 0.0;
    is_scale
        .then_some(number)
        .ok_or_else(|| format!("the largest magnitude is {number}; allowed: a number above 0"))
}

/// The largest magnitudes of the inputs of these weights, where the scheme fixes a scale.
///
/// # Errors
/// If the scheme needs numbers and there are none, or has no use for them. If a layer has no number, or a number that is not above 0.
pub(super) fn input_max(
    args: &QuantizeArgs,
    names: &[String],
) -> Result<BTreeMap<String, f32>, Error> {
    let scheme = args.scheme.filter(|scheme| scheme.input_scale().is_some());
    let given = match (scheme, &args.input_max) {
        (None, None) => return Ok(BTreeMap::new()),
        (None, Some(_)) => {
            return Err(Error::Arguments(
                "`--input-max` has no effect; allowed: with `--scheme` FP8 or NVFP4, whose inputs have a fixed scale".into(),
            ));
        }
        (Some(scheme), None) => {
            return Err(Error::Arguments(format!(
                "scheme {} fixes a scale of each layer's input, which the weights do not tell: `--input-max` has to give the largest magnitude of \
                 inputs, a number for all layers or a JSON file with one for each, as a calibration measures them. Schemes without a fixed scale: \
                 FP8_DYNAMIC, NVFP4A16",
                scheme.name
            )));
        }
        (Some(_), Some(given)) => given,
    };
    let path = match given {
        InputMax::All(number) => {
            return Ok(names.iter().map(|name| (name.clone(), *number)).collect());
        }
        InputMax::File(path) => path,
    };
    let numbers = read(path)?;
    let found = names.iter().map(|name| {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let number = numbers.get(module).copied();
        let number = number.ok_or_else(|| "there is none; allowed: a number".to_owned());
        let number = number.and_then(checked);
        number
            .map(|number| (name.clone(), number))
            .map_err(|reason| Error::Arguments(format!("{}: `{module}`: {reason}", path.display())))
    });
    found.collect()
}

fn read(path: &Path) -> Result<BTreeMap<String, f32>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
    serde_json::from_str(&text).map_err(|error| {
        let allowed = r#"{"model.layers.0.mlp.up_proj": 3.5, …}"#;
        Error::Arguments(format!("{}: {error}; allowed: {allowed}", path.display()))
    })
}

/// The tensor that fixes the scale of an input of this magnitude: of FP8 a factor in the type of the weight, of NVFP4 a divisor.
pub(super) fn stored(end: &str, weight: &str, largest: f32, dtype: &str) -> RepackedTensor {
    let module = weight.strip_suffix(".weight").unwrap_or(weight);
    let (dtype, bytes) = match end {
        "input_global_scale" => {
            let block = [largest; 16];
            let dialect = Dialect::CompressedTensors;
            let encoded = dialect.encode(BlockFormat::nvfp4(true), &block, &[1, 16]);
            let divisor = encoded.ok().and_then(|encoded| encoded.divisor);
            ("F32", divisor.unwrap_or(1.0).to_le_bytes().to_vec())
        }
        _ => {
            let scale = largest / 448.0;
            let bytes = match dtype {
                "BF16" => bf16::from_f32(scale).to_le_bytes().to_vec(),
                "F16" => f16::from_f32(scale).to_le_bytes().to_vec(),
                _ => scale.to_le_bytes().to_vec(),
            };
            (dtype, bytes)
        }
    };
    RepackedTensor {
        name: format!("{module}.{end}"),
        dtype: dtype.to_owned(),
        shape: vec![1],
        bytes,
    }
}
