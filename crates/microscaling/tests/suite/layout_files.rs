//! Packed weights as other tools store them, and what those tools read out of them: `layouts.safetensors`, of `layouts.py`.

use crate::golden_file::{Golden, floats};
use half::bf16;
use microscaling::{Packed, StoredTensor, StoredType, StoredView, WeightLayout};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Case {
    id: String,
    layout: WeightLayout,
    weight: String,
    stored: Vec<String>,
    config: Option<Value>,
}

impl Case {
    /// The tensors of the tool's file, by its names.
    fn stored(&self, tensors: &SafeTensors<'_>) -> Vec<StoredTensor> {
        let tensor = |name: &String| {
            let view = tensors.tensor(&format!("{}/{name}", self.id)).unwrap();
            StoredTensor {
                name: name.clone(),
                dtype: match view.dtype() {
                    Dtype::U8 => StoredType::U8,
                    Dtype::F8_E4M3 => StoredType::F8E4M3,
                    Dtype::F32 => StoredType::F32,
                    other => panic!("{name} is {other:?}"),
                },
                shape: view.shape().to_vec(),
                bytes: view.data().to_vec(),
            }
        };
        self.stored.iter().map(tensor).collect()
    }

    fn load(&self, stored: &[StoredTensor]) -> Packed {
        let find = |name: &str| {
            let tensor = stored.iter().find(|tensor| tensor.name == name)?;
            Some(StoredView {
                dtype: tensor.dtype,
                shape: &tensor.shape,
                bytes: &tensor.bytes,
            })
        };
        self.layout.load(&self.weight, find).unwrap()
    }

    fn decoded(&self, tensors: &SafeTensors<'_>, by: &str) -> (Vec<f32>, Vec<usize>) {
        floats(tensors, &format!("{}: {by}", self.id))
    }
}

fn cases(golden: &Golden) -> Vec<Case> {
    let cases: Vec<Case> = golden.cases();
    for layout in WeightLayout::ALL {
        assert!(cases.iter().any(|case| case.layout == layout), "{layout}");
    }
    assert_eq!(cases.len(), 16);
    cases
}

/// Names, types, shapes and bytes are the tool's, and the numbers are those that it reads.
#[test]
fn tensors_of_the_tools() {
    let golden = Golden::open("layouts.safetensors");
    let tensors = golden.tensors();
    for case in cases(&golden) {
        let Case { id, layout, .. } = &case;
        let stored = case.stored(&tensors);
        let packed = case.load(&stored);
        // The divisor that the file has is one of several with this reciprocal.
        let divisor = stored.last().and_then(|tensor| {
            let bytes = tensor.bytes.as_slice().try_into().ok()?;
            (tensor.dtype == StoredType::F32).then(|| f32::from_le_bytes(bytes))
        });
        let again = layout.store(&case.weight, &packed.view(), divisor).unwrap();
        assert_eq!(again, stored, "{id}");
        let own = packed.decode();
        let (expected, shape) = case.decoded(&tensors, "tool");
        assert_eq!(packed.shape(), shape, "{id}");
        for (i, (own, expected)) in own.iter().zip(&expected).enumerate() {
            let same = match layout {
                // The tool rounds decoded numbers to bfloat16, which loses nothing of MX.
                WeightLayout::Nvfp4PackQuantized => {
                    bf16::from_f32(*own).to_f32().to_bits() == expected.to_bits()
                }
                // Their tables have 0 for the code of −0.
                WeightLayout::GgufMxfp4 | WeightLayout::ModelOptNvfp4 => own == expected,
                _ => own.to_bits() == expected.to_bits(),
            };
            assert!(
                same,
                "{id}: element {i} is {own:e}, the tool's {expected:e}"
            );
        }
    }
}

/// The numbers that the codes of `ml_dtypes` are: of MX to the bit, of NVFP4 but for the rounding of a product of scales.
#[test]
fn codes_of_ml_dtypes() {
    let golden = Golden::open("layouts.safetensors");
    let tensors = golden.tensors();
    for case in cases(&golden) {
        let packed = case.load(&case.stored(&tensors));
        let (expected, _) = case.decoded(&tensors, "ml_dtypes");
        // A divisor's reciprocal, its product with a scale, and that with an element.
        let roundings = if packed.tensor_scale().is_some() {
            3.0
        } else {
            0.0
        };
        for (i, (own, expected)) in packed.decode().iter().zip(&expected).enumerate() {
            let signs = own.is_sign_negative() == expected.is_sign_negative();
            let near = (own - expected).abs() <= roundings * f32::EPSILON * expected.abs();
            assert!(
                signs && near,
                "{}: element {i} is {own:e}, not {expected:e}",
                case.id
            );
        }
    }
}

/// A config without what says nothing (null, and objects without fields) and without the name and the version of the tool.
fn said(config: &Value) -> Value {
    match config {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !["version", "producer"].contains(&name.as_str()))
            .filter(|(_, value)| !value.is_null() && *value != &serde_json::json!({}))
            .map(|(name, value)| (name.clone(), said(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Every field of the tool's is ours and has our value. Left out are what [`said`] drops: `input_activations`,
/// `output_activations`, `kv_cache_scheme`, `global_compression_ratio`, `moe_sparsity_config`, `sparsity_config` and
/// `transform_config`, all of them null or empty of weights alone, and the tool's `version` or `producer`, which we are not.
#[test]
fn configs_of_the_tools() {
    let golden = Golden::open("layouts.safetensors");
    for case in cases(&golden) {
        let Some(config) = case.config else {
            assert_eq!(case.layout.quantization_config(&[]), None);
            continue;
        };
        let ignored = config
            .get("ignore")
            .or(config.get("modules_to_not_convert"));
        let ignored: Vec<&str> = Deserialize::deserialize(ignored.unwrap()).unwrap();
        let own = case.layout.quantization_config(&ignored).unwrap();
        assert_eq!(own, said(&config), "{}", case.id);
    }
}
