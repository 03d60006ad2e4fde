//! Adapters from PEFT's files.

use std::{collections::BTreeMap, fs, path::Path};

use burn::{
    backend::Flex,
    module::{AutodiffModule, ModuleMapper, Param},
    prelude::*,
};
use burn_mx::{MxBackend, module::LoraConfig};
use safetensors::{SafeTensors, tensor::Dtype};
use serde::Deserialize;

use super::{B, Format, lora::adapted};
use crate::{Decoder, Error, Folder};

/// The fields of `adapter_config.json` that decide what an adapter computes.
#[derive(Deserialize)]
struct Settings {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    use_rslora: bool,
}

/// The end of a parameter's path here, and of its name in PEFT.
const PARTS: [(&str, &str); 3] = [
    (".adapter.a", "lora_A.weight"),
    (".adapter.b", "lora_B.weight"),
    (".adapter.magnitude", "lora_magnitude_vector"),
];

impl Format {
    /// The model of a folder with packed weights, as for `train --lora`, and with the adapters of a folder of PEFT beside them, to predict
    /// with.
    ///
    /// # Errors
    ///
    /// As of [`load`](Self::load). If the adapters are not LoRA or DoRA in float32 for exactly the layers with packed weights.
    pub fn load_adapted(
        &self,
        folder: &Folder,
        adapter: &Path,
    ) -> Result<Decoder<MxBackend<Flex>>, Error> {
        let refused = |reason: String| Error::Option {
            option: "--adapter",
            value: format!("{}: {reason}", adapter.display()),
            allowed: "adapters of `train --lora` from this folder, in this format".to_owned(),
        };
        let read = |name: &str| {
            let file = adapter.join(name);
            fs::read(&file).map_err(Error::io(file))
        };
        let settings = read("adapter_config.json")?;
        let settings: Settings = serde_json::from_slice(&settings)
            .map_err(|error| refused(format!("adapter_config.json: {error}")))?;
        if settings.peft_type != "LORA" || settings.use_rslora {
            return Err(refused(
                "adapter_config.json is not of LoRA or DoRA".to_owned(),
            ));
        }
        let bytes = read("adapter_model.safetensors")?;
        let mut tensors = tensors(&bytes).map_err(refused)?;
        let config = LoraConfig {
            rank: settings.r,
            alpha: settings.lora_alpha,
            dora: settings.use_dora,
        };
        let model = adapted(folder, self, config, 0)?;
        let mut put = Put {
            path: Vec::new(),
            tensors: &mut tensors,
            refused: None,
        };
        let model = model.map(&mut put);
        let left = put.tensors.keys().next();
        let left = left.map(|name| format!("the model has no layer for {name}"));
        match put.refused.or(left) {
            None => Ok(model.valid()),
            Some(reason) => Err(refused(reason)),
        }
    }
}

/// The tensors of a file, by their names without PEFT's prefix.
fn tensors(bytes: &[u8]) -> Result<BTreeMap<String, TensorData>, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let tensors = file.iter().map(|(name, tensor)| {
        if tensor.dtype() != Dtype::F32 {
            return Err(format!("{name} is {:?}, not F32", tensor.dtype()));
        }
        let words = tensor.data().as_chunks().0.iter();
        let values: Vec<f32> = words.map(|word| f32::from_le_bytes(*word)).collect();
        let data = TensorData::new(values, tensor.shape().to_vec());
        let name = name.strip_prefix("base_model.model.").unwrap_or(name);
        Ok((name.to_owned(), data))
    });
    tensors.collect()
}

/// Puts tensors into the adapters' parameters.
struct Put<'a> {
    path: Vec<String>,
    tensors: &'a mut BTreeMap<String, TensorData>,
    refused: Option<String>,
}

impl ModuleMapper<B> for Put<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let path = self.path.join(".");
        let name = PARTS.iter().find_map(|(end, part)| {
            let layer = path.strip_suffix(end)?;
            Some(format!("{layer}.{part}"))
        });
        let Some(name) = name else {
            return param;
        };
        let shape = param.dims().to_vec();
        match self.tensors.remove(&name) {
            Some(data) if *data.shape == shape[..] => {
                let tensor = Tensor::from_data(data, &param.device());
                let id = param.id;
                param.transform_for_load(tensor, id)
            }
            found => {
                let found = found.map_or("missing".to_owned(), |data| {
                    format!("{:?}", data.shape.to_vec())
                });
                let reason = format!("{name} is {found}; the layer has {shape:?}");
                self.refused.get_or_insert(reason);
                param
            }
        }
    }
}
