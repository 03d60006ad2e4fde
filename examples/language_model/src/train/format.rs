//! The formats of a run: of operands, and of the optimizer's states.

use core::fmt::Display;
use std::{fs, path::Path};

use burn::{
    backend::{Flex, flex::FlexDevice},
    prelude::*,
};
use burn_mx::{
    FusedLayers, MxBackend, MxDevice, MxSpecs, QatBackward, Recipe, ResolvedSpecs, Slot,
    module::{
        ColumnRanksError, LoraConfig, MxTensorOps, set_exemptions, set_recipe_layers, set_specs_at,
        share_tensor_scales, specs_of,
    },
    optim::OptimizerStates,
};

use super::{
    Device,
    exchange::{self, Exchange},
    optimizer,
};
use crate::{Decoder, Error, Folder};

/// The routers of all mixtures of experts.
const ROUTERS: &str = "model.layers.*.block_sparse_moe.gate.weight";

/// The format of a run.
#[derive(Clone, Debug)]
pub struct Format {
    /// Its name: `fp32`, `bfloat16`, a preset of [`MxSpecs`], or the name of a recipe's file.
    pub name: String,
    pub(super) recipe: Recipe,
    /// Whether Muon steps the layers' matrices. AdamW steps all other parameters.
    pub(super) is_muon: bool,
    pub(super) states: OptimizerStates,
    pub(super) exchange: Option<Exchange>,
}

impl Format {
    /// The format of this name: `fp32`, `bfloat16`, a preset, or the path of a [`Recipe`] as JSON. Errors name the `option` of the
    /// command line.
    ///
    /// # Errors
    ///
    /// If there is none, or the file is not a recipe.
    pub fn named(option: &'static str, name: &str) -> Result<Self, Error> {
        let path = Path::new(name);
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            return Self::of_file(option, path);
        }
        let recipe = Recipe::preset(name).map_err(|_| Error::Option {
            option,
            value: name.to_owned(),
            allowed: format!(
                "fp32, bfloat16, {}, or a recipe's file, whose name ends with .json",
                MxSpecs::PRESETS.join(", ")
            ),
        })?;
        recipe.specs.resolve()?;
        Ok(Self {
            name: name.to_owned(),
            recipe,
            is_muon: false,
            states: OptimizerStates::default(),
            exchange: None,
        })
    }

    fn of_file(option: &'static str, path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::io(path))?;
        let recipe = serde_json::from_str::<Recipe>(&text).map_err(|error| Error::Option {
            option,
            value: path.display().to_string(),
            allowed: format!("a recipe as JSON: {error}"),
        })?;
        recipe.specs.resolve()?;
        let name = path.file_stem().unwrap_or(path.as_os_str());
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            recipe,
            is_muon: false,
            states: OptimizerStates::default(),
            exchange: None,
        })
    }

    /// The same format with Muon for the matrices of the layers, and AdamW for embeddings, norms and head. The run's name ends with `-muon`. States of
    /// the optimizer that were set before are AdamW's, so [`with_states`](Self::with_states) comes after.
    #[must_use]
    pub fn with_muon(mut self) -> Self {
        self.is_muon = true;
        self.states = OptimizerStates::default();
        self.name.push_str("-muon");
        self
    }

    /// The same format with these states of the optimizer, by the name of a preset of [`OptimizerStates`] or the path of its fields as JSON. With Muon
    /// they are Muon's alone.
    /// The run's name ends with the name of the states, unless that is `float32`.
    ///
    /// # Errors
    ///
    /// If neither a preset nor a file has this name, or a field has a value that AdamW or Muon refuses.
    pub fn with_states(mut self, option: &'static str, name: &str) -> Result<Self, Error> {
        let path = Path::new(name);
        let refused = |allowed: String| Error::Option {
            option,
            value: name.to_owned(),
            allowed,
        };
        let is_file = path
            .extension()
            .is_some_and(|extension| extension == "json");
        self.states = if is_file {
            let text = fs::read_to_string(path).map_err(Error::io(path))?;
            serde_json::from_str(&text)
                .map_err(|error| refused(format!("fields of OptimizerStates as JSON: {error}")))?
        } else {
            let allowed = OptimizerStates::PRESETS.join(", ");
            OptimizerStates::preset(name)
                .map_err(|_| refused(format!("{allowed}, or a file whose name ends with .json")))?
        };
        // An optimizer refuses more than the fields themselves do.
        optimizer::check(self.is_muon, &self.states).map_err(|error| refused(error.to_string()))?;
        if name != "float32" {
            let stem = path.file_stem().unwrap_or(path.as_os_str());
            self.name = format!("{}-{}", self.name, stem.to_string_lossy());
        }
        Ok(self)
    }

    /// The same format on several ranks, each of which has a part of the batch. The sums of gradients are as a preset of
    /// [`Communication`](burn_mx::optim::communication::Communication) says, or in a format on the wire, in `float32`, or as the fields in
    /// a JSON file say. A second such name after a `+` says how ranks gather the weights that they own parts of. The run's name ends with the name of the communication, unless that is `float32`.
    ///
    /// # Errors
    ///
    /// If no communication has this name, [`Communication::check`](burn_mx::optim::communication::Communication::check) refuses a field, or `ranks` is 0.
    pub fn with_ranks(
        mut self,
        option: &'static str,
        name: &str,
        ranks: usize,
    ) -> Result<Self, Error> {
        self.exchange = Some(Exchange::named(option, name, ranks)?);
        if name != "float32" {
            self.name = format!("{}-{}", self.name, exchange::run_name(name));
        }
        Ok(self)
    }

    /// The same format forward, with a straight-through gradient: quantization-aware training. The run's name ends with `-qat`.
    #[must_use]
    pub fn quantization_aware(mut self) -> Self {
        let specs = core::iter::once(&mut self.recipe.specs).chain(self.recipe.layers.values_mut());
        specs.for_each(|specs| *specs = specs.clone().straight_through());
        self.name.push_str("-qat");
        self
    }

    /// [`quantization_aware`](Self::quantization_aware) with another backward pass. The run's name ends with `-qat-` and the kind.
    ///
    /// # Errors
    ///
    /// If specs of the recipe contradict the kind.
    pub fn with_backward(mut self, kind: QatBackward) -> Result<Self, Error> {
        let specs = core::iter::once(&mut self.recipe.specs).chain(self.recipe.layers.values_mut());
        for specs in specs {
            let own = kind.apply(specs.clone());
            *specs = own.map_err(|error| Error::Other(format!("{}: {error}", self.name)))?;
        }
        self.name = format!("{}-qat-{kind}", self.name);
        Ok(self)
    }

    /// The same format for adapters beside frozen weights. The run's name ends with `-lora` or `-dora`.
    #[must_use]
    pub fn with_adapters(mut self, config: LoraConfig) -> Self {
        self.name
            .push_str(if config.dora { "-dora" } else { "-lora" });
        self
    }

    /// The model of a folder in this format, to predict with. Fixed hot columns are those that the folder's training run has chosen.
    ///
    /// # Errors
    ///
    /// If the folder cannot be loaded, or the recipe names a layer that the model does not have.
    pub fn load(&self, folder: &Folder) -> Result<Decoder<MxBackend<Flex>>, Error> {
        let model = self.set_layers(folder.load(&self.device()?)?)?;
        let Some(record) = folder.columns()? else {
            return Ok(model);
        };
        match record.rank(model.clone()) {
            // A format without fixed hot columns.
            Err(ColumnRanksError::NoLayer) => Ok(model),
            ranked => ranked.map_err(|error| Error::Other(format!("{}: {error}", self.name))),
        }
    }

    /// The specs of layers that the recipe neither exempts nor names.
    ///
    /// # Errors
    ///
    /// None after [`named`](Self::named).
    pub fn specs(&self) -> Result<ResolvedSpecs, Error> {
        Ok(self.recipe.specs.resolve()?)
    }

    /// The specs of the layers that the recipe names, each with a path or a pattern.
    ///
    /// # Errors
    ///
    /// If specs contradict themselves.
    pub fn layers(&self) -> Result<Vec<(&str, ResolvedSpecs)>, Error> {
        let layers = self.recipe.layers.iter();
        let resolved = layers.map(|(path, specs)| Ok((path.as_str(), specs.resolve()?)));
        resolved.collect()
    }

    /// The model of a folder with the weights that an engine serves: [`load`](Self::load), and layers that the engine fuses share a tensor
    /// scale.
    ///
    /// # Errors
    ///
    /// As of [`load`](Self::load). If the head has a format, which engines keep in float32, or fused layers cannot share a scale.
    pub fn served(
        &self,
        folder: &Folder,
        fused: &FusedLayers,
    ) -> Result<Decoder<MxBackend<Flex>>, Error> {
        let model = self.load(folder)?;
        let (path, head) = match &model.lm_head {
            Some(head) => ("lm_head.weight", head.weight.val()),
            None => (
                "model.embed_tokens.weight",
                model.model.embed_tokens.weight.val(),
            ),
        };
        let format = specs_of(&head).and_then(|specs| specs.block_format(Slot::W));
        if let Some(format) = format {
            return Err(Error::Option {
                option: "--format",
                value: format!("{}: the head in {format}", self.name),
                allowed: format!(
                    "a recipe with \"exemptions\": {{\"head\": true, \"last_percent\": 0}}, or with specs without formats for `{path}`"
                ),
            });
        }
        let shared = share_tensor_scales(model, fused);
        let (model, _) = shared.map_err(|error| Error::Other(format!("{}: {error}", self.name)))?;
        Ok(model)
    }

    /// The decoder with the formats of the layers that the recipe exempts or names. The routers of experts stay in float32 unless the
    /// recipe names one.
    pub(super) fn set_layers<B: MxTensorOps>(
        &self,
        model: Decoder<B>,
    ) -> Result<Decoder<B>, Error> {
        let other = |error: &dyn Display| Error::Other(format!("{}: {error}", self.name));
        let two = Tensor::zeros([1, 2], &model.devices()[0]);
        let (model, _) = set_exemptions(model, &self.recipe, |model| model.loss(two))
            .map_err(|error| other(&error))?;
        let model = match self.leaves_out_routers(&model) {
            true => set_specs_at(model, ROUTERS, &MxSpecs::none().resolve()?)
                .map_err(|error| other(&error))?,
            false => model,
        };
        set_recipe_layers(model, &self.recipe).map_err(|error| other(&error))
    }

    fn leaves_out_routers<B: MxTensorOps>(&self, model: &Decoder<B>) -> bool {
        let mut layers = model.model.layers.iter();
        let has_routers = layers.any(|layer| layer.block_sparse_moe.is_some());
        let mut named = self.recipe.layers.keys();
        has_routers && !named.any(|path| path.contains("block_sparse_moe.gate"))
    }

    /// A device of this format.
    ///
    /// # Errors
    ///
    /// None after [`named`](Self::named).
    pub fn device(&self) -> Result<Device, Error> {
        Ok(MxDevice::new(FlexDevice, &self.recipe.specs)?)
    }
}
