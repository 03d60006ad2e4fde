//! Adapters on frozen packed weights.

use core::fmt::Display;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use burn::{backend::Flex, module::Param, nn::Linear, prelude::*};
use burn_mx::{
    FusedLayers, MxBackend, MxSpecs, Slot,
    checkpoint::packed_weights,
    module::{
        Adapter, LoraConfig, Merged, PackedLinear, label_parameters, set_specs, set_specs_at,
        share_tensor_scales, specs_of,
    },
};
use safetensors::tensor::{Dtype, View};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{B, Format};
use crate::{Decoder, Error, Folder, Projection};

type Inner = MxBackend<Flex>;

/// The errors of the merge of adapters into packed weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merge {
    /// The layers that had an adapter.
    pub layers: usize,
    /// The largest magnitude of a difference between a merged weight and its float sum.
    pub largest: f64,
    /// The largest relative squared error of a layer's weight.
    pub relative_squared: f64,
    /// The layer with this relative squared error.
    pub worst: String,
    /// The loss of the merged model on the windows of the last validation, in nats a token.
    pub loss: f32,
}

/// The model of a folder with packed frozen weights and new adapters. A weight that is packed in the folder keeps its bytes. Any other
/// weight is packed as the format's forward product quantizes the weight, fused layers with one tensor scale. A layer without a format stays
/// frozen in float32, without an adapter.
pub(super) fn adapted(
    from: &Folder,
    format: &Format,
    config: LoraConfig,
    seed: u64,
) -> Result<Decoder<B>, Error> {
    let device = format.device()?;
    B::seed(&device, seed);
    let mut bytes = packed_weights(from.path())?;
    // The specs of a burn-mx folder would win.
    let model = set_specs(from.load::<B>(&device)?, &format.specs()?);
    let mut model = format.set_layers(label_parameters(model))?;
    if bytes.is_empty() {
        let shared = share_tensor_scales(model, &FusedLayers::default());
        (model, _) = shared.map_err(|error| Error::Other(format!("{}: {error}", format.name)))?;
    }
    let mut model = model.no_grad();
    let mut all = Vec::new();
    let failed =
        |path: &str, error: &dyn Display| Error::Other(format!("{}: {path}: {error}", format.name));
    for (path, projection) in model.projections_mut() {
        let Projection::Float(linear) = &*projection else {
            continue;
        };
        let (weight, bias) = (linear.weight.val(), linear.bias.as_ref().map(Param::val));
        let specs = specs_of(&weight);
        let Some(specs) = specs.filter(|specs| specs.block_format(Slot::W).is_some()) else {
            continue;
        };
        let packed = match bytes.remove(&format!("{path}.weight")) {
            Some(packed) => PackedLinear::new(packed, bias, &weight.device()),
            None => PackedLinear::from_weight(weight, bias),
        };
        let packed = packed.and_then(|packed| packed.with_adapter(config));
        let packed = packed.map_err(|error| failed(&path, &error))?;
        *projection = Projection::Packed(Box::new(packed));
        all.push((path, specs));
    }
    if all.is_empty() {
        return Err(Error::Option {
            option: "--lora",
            value: config.rank.to_string(),
            allowed: format!(
                "with formats that have one for weights; '{}' has none",
                format.name
            ),
        });
    }
    // Records have no specs: parameters of a layer with other specs than the device's keep them by path. PEFT computes adapters in
    // float32.
    let float = MxSpecs::none().resolve()?;
    all.into_iter().try_fold(model, |model, (path, specs)| {
        let model = set_specs_at(model, &path, &specs);
        let model = model.and_then(|model| set_specs_at(model, &format!("{path}.adapter"), &float));
        model.map_err(|error| failed(&path, &error))
    })
}

/// The model with its adapters in its packed weights, and the errors, but for the loss. Layers that engines fuse get one tensor scale.
pub(super) fn merged(mut model: Decoder<Inner>) -> Result<(Decoder<Inner>, Merge), Error> {
    let mut layers: BTreeMap<_, _> = model.projections_mut().into_iter().collect();
    let groups = FusedLayers::default().groups(layers.keys().map(String::as_str));
    let mut groups: Vec<Vec<String>> = groups.into_iter().map(|group| group.members).collect();
    let fused: BTreeSet<&String> = groups.iter().flatten().collect();
    let alone = layers.keys().filter(|path| !fused.contains(path));
    let alone: Vec<Vec<String>> = alone.map(|path| vec![path.clone()]).collect();
    groups.extend(alone);
    let mut all = Merge::default();
    for group in groups {
        for (path, merged) in merge_group(&group, &layers)? {
            all.layers += 1;
            all.largest = all.largest.max(merged.largest);
            if merged.relative_squared >= all.relative_squared {
                (all.relative_squared, all.worst) = (merged.relative_squared, path.clone());
            }
            let layer = merged.layer;
            let merged = Projection::Float(Linear {
                weight: Param::from_tensor(layer.weight()),
                bias: layer.bias().map(Param::from_tensor),
            });
            layers.entry(path).and_modify(|layer| **layer = merged);
        }
    }
    Ok((model, all))
}

/// The packed layers of a group, merged. Layers of one format share its tensor scale, if the format has one.
fn merge_group(
    group: &[String],
    layers: &BTreeMap<String, &mut Projection<Inner>>,
) -> Result<Vec<(String, Merged<Inner>)>, Error> {
    let packed = group.iter().filter_map(|path| match &**layers.get(path)? {
        Projection::Packed(packed) => Some((path.clone(), &**packed)),
        Projection::Float(_) => None,
    });
    let (paths, packed): (Vec<String>, Vec<&PackedLinear<Inner>>) = packed.unzip();
    let format = |layer: &&PackedLinear<Inner>| layer.packed().format();
    let is_one = packed
        .windows(2)
        .all(|pair| format(&pair[0]) == format(&pair[1]));
    let merged = match is_one {
        true => PackedLinear::merge_fused(&packed),
        false => packed.iter().map(|layer| layer.merge()).collect(),
    };
    let failed = |error| Error::Other(format!("{}: {error}", paths.join(", ")));
    let merged = merged.map_err(failed)?;
    Ok(paths.into_iter().zip(merged).collect())
}

/// A tensor of an adapter's file.
struct Values {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Values {
    fn of<const D: usize>(parameter: &Param<Tensor<Inner, D>>) -> Self {
        let values: Vec<f32> = parameter.val().into_data().iter().collect();
        Self {
            shape: parameter.dims().to_vec(),
            bytes: values.into_iter().flat_map(f32::to_le_bytes).collect(),
        }
    }
}

impl View for Values {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        (&self.bytes).into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes the adapters as a folder of PEFT.
pub(super) fn save(
    path: &Path,
    from: &Folder,
    config: LoraConfig,
    model: &mut Decoder<Inner>,
) -> Result<(), Error> {
    let mut tensors = Vec::new();
    let mut layers = Vec::new();
    for (path, projection) in model.projections_mut() {
        let Projection::Packed(packed) = projection else {
            continue;
        };
        let Some(Adapter { a, b, magnitude }) = packed.adapter() else {
            continue;
        };
        let name = |part: &str| format!("base_model.model.{path}.{part}");
        tensors.push((name("lora_A.weight"), Values::of(a)));
        tensors.push((name("lora_B.weight"), Values::of(b)));
        let magnitude = magnitude.iter();
        tensors.extend(magnitude.map(|m| (name("lora_magnitude_vector"), Values::of(m))));
        layers.push(path);
    }
    let settings = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": from.path(),
        "r": config.rank,
        "lora_alpha": config.alpha,
        "use_dora": config.dora,
        "target_modules": layers,
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": true,
    });
    fs::create_dir_all(path).map_err(Error::io(path))?;
    let bytes = safetensors::serialize(tensors, None);
    let bytes = bytes.map_err(|error| Error::Other(error.to_string()))?;
    let files = [
        ("adapter_model.safetensors", bytes),
        (
            "adapter_config.json",
            format!("{settings:#}\n").into_bytes(),
        ),
    ];
    for (name, bytes) in files {
        let file = path.join(name);
        fs::write(&file, bytes).map_err(Error::io(file))?;
    }
    Ok(())
}
