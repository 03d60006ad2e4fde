//! Quantizes models.

use std::path::PathBuf;

use burn_backend::TensorMetadata;
use burn_core::module::Module;
use microscaling::BlockFormat;

use crate::calibration;
use crate::config::{Activations, QuantConfig};
use crate::error::PtqError;
use crate::fold::{self, FoldedNorm};
use crate::fused::Fused;
use crate::gptq::{self, GptqLayer, GptqRun};
use crate::parameters::{self, WEIGHT};
use crate::passes::{Chosen, Passes};
use crate::resume::Folder;
use crate::tuning::{TunedLayer, tune};
use burn_mx_core::internal::{unset_on_purpose, warn};
use burn_mx_core::{MxBackend, MxKernels, MxSpecs, ResolvedSpecs, Slot};
use burn_mx_module::{
    Pattern, initialize, label_parameters, layers, nearest, parameter_of, set_specs, set_specs_at,
};

/// Quantizes trained models by a configuration.
#[derive(Clone, Debug)]
pub struct Quantizer {
    config: QuantConfig,
    /// The default specs of layers.
    specs: ResolvedSpecs,
    /// The folder of finished layers.
    folder: Option<Folder>,
}

/// A quantized model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Quantized<M> {
    /// The model. Its layers carry their specs, and each product quantizes the weights. The weights themselves are trained or
    /// tuned values; weights of GPTQ, and of `fused` layers that share a tensor scale, are quantized values.
    pub model: M,
    /// The folded batch norms, in the model's order. Empty without folding.
    pub folded: Vec<FoldedNorm>,
    /// The tuned layers, in the order in which the model calls them. Empty without tuning.
    pub tuned: Vec<TunedLayer>,
    /// The layers that GPTQ quantized, in the order in which the model calls them. Empty without GPTQ.
    pub gptq: Vec<GptqLayer>,
    /// The quantized layers, in the model's order, with the formats of their weights.
    pub layers: Vec<QuantizedLayer>,
}

/// A quantized layer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QuantizedLayer {
    /// The layer's path.
    pub layer: String,
    /// The format of the weight; `None` if only activations are quantized.
    pub format: Option<BlockFormat>,
    /// Elements of the weight.
    pub elements: usize,
}

impl<M> Quantized<M> {
    /// The mean bits of a weight of the quantized layers, scales included. A weight without a format counts 32.
    pub fn weight_bits(&self) -> f64 {
        let elements = |layer: &QuantizedLayer| layer.elements as f64;
        let bits = self.layers.iter().map(|layer| {
            let format = layer.format.as_ref();
            format.map_or(32.0, BlockFormat::bits_per_element) * elements(layer)
        });
        bits.sum::<f64>() / self.layers.iter().map(elements).sum::<f64>()
    }
}

impl Quantizer {
    /// # Errors
    ///
    /// If a field of the configuration is not valid.
    pub fn new(config: QuantConfig) -> Result<Self, PtqError> {
        let specs = config.resolve()?;
        Ok(Self {
            config,
            specs,
            folder: None,
        })
    }

    /// Saves each layer that fast fine-tuning or GPTQ has finished in this folder, and reuses layers that it has saved for the
    /// same model, data and settings. The folder is created if it is missing. An interrupted run continues with the layer that
    /// it was working on, and ends with the same bits as an uninterrupted run. The file of a layer is safetensors,
    /// `<place>-<path>.safetensors`. A file is complete or absent. A file for other data is replaced.
    ///
    /// A layer is recognized by everything that it is computed from, including its inputs and wanted outputs, or its Hessian. So
    /// the passes over the calibration data are repeated.
    ///
    /// # Errors
    ///
    /// If the configuration has neither fast fine-tuning nor GPTQ, or the folder cannot be created. [`quantize`](Self::quantize) fails later
    /// if a file cannot be written.
    pub fn resumable(self, folder: impl Into<PathBuf>) -> Result<Self, PtqError> {
        if self.config.fast_finetune.is_none() && self.config.gptq.is_none() {
            return Err(PtqError::Field {
                field: "fast_finetune",
                value: "missing".into(),
                allowed: "a `FastFinetune`, or `gptq`, because nothing else can be resumed",
            });
        }
        Ok(Self {
            folder: Some(Folder::open(folder.into())?),
            ..self
        })
    }

    /// The configuration.
    pub fn config(&self) -> &QuantConfig {
        &self.config
    }

    /// Quantizes the [layers] of a trained model, except those that the configuration excludes. `forward` calls the model on a
    /// batch of calibration data. Fast fine-tuning, GPTQ, static activations and folding need this data; without them
    /// `calibration` may be empty.
    ///
    /// Layers are observed on the thread of `forward`: the caller's thread, or a separate thread in a rayon task, so that no
    /// other task's layers are observed.
    ///
    /// The output that tuning aims at is the layer's output without emulation. Everything outside of quantized layers follows
    /// the specs of the device. Create the model on a device with `MxSpecs::none()` to leave everything else in float32. Specs
    /// that emulate something get a warning in the log, or on stderr.
    ///
    /// # Errors
    ///
    /// See [`PtqError`].
    pub fn quantize<B, M, T, R>(
        &self,
        model: M,
        calibration: &[T],
        forward: impl Fn(&M, &T) -> R + Sync,
    ) -> Result<Quantized<M>, PtqError>
    where
        B: MxKernels,
        M: Module<MxBackend<B>> + Sync,
        T: Sync,
        R: 'static,
    {
        self.quantize_with_progress(model, calibration, forward, |_, _| ())
    }

    /// Like [`quantize`](Self::quantize). Calls `progress(done, all)` with the number of finished steps of fast fine-tuning, or of
    /// finished layers of GPTQ.
    ///
    /// # Errors
    ///
    /// See [`PtqError`].
    pub fn quantize_with_progress<B, M, T, R>(
        &self,
        model: M,
        calibration: &[T],
        forward: impl Fn(&M, &T) -> R + Sync,
        progress: impl FnMut(usize, usize),
    ) -> Result<Quantized<M>, PtqError>
    where
        B: MxKernels,
        M: Module<MxBackend<B>> + Sync,
        T: Sync,
        R: 'static,
    {
        let of_model = layers(&model);
        let mut chosen = self.choose(&of_model)?;
        let fused = Fused::of::<B, M>(&self.config, &model, &of_model, &chosen)?;
        check_device::<B, M>(&model);
        let QuantConfig {
            rotations,
            fast_finetune,
            gptq,
            fold_batch_norm,
            ..
        } = &self.config;
        let is_static = self.config.activations == Activations::Static;
        let needs_original = fast_finetune.is_some() || *fold_batch_norm || is_static;
        let needs_data = needs_original || gptq.is_some() || !rotations.is_empty();
        if needs_data && calibration.is_empty() {
            return Err(PtqError::NoCalibration);
        }
        let mut quantized = model;
        if !rotations.is_empty() {
            quantized = fold::rotate::<B, M, T, R>(quantized, rotations, calibration, &forward)?;
        }
        let mut original = None;
        let mut folded = Vec::new();
        if needs_original {
            initialize::<MxBackend<B>, M>(&quantized);
            let none = MxSpecs::none().resolve()?;
            let mut float = label_parameters(set_specs(quantized.clone(), &none));
            if *fold_batch_norm {
                let layers: Vec<&str> = chosen.iter().map(|chosen| &*chosen.layer).collect();
                // A part may have labels from another model.
                quantized = label_parameters(quantized);
                (quantized, float, folded) = fold::fold::<B, M, T, R>(
                    quantized,
                    float,
                    &layers,
                    &self.config,
                    calibration,
                    &forward,
                )?;
            }
            if is_static {
                let layers = chosen.iter().map(|chosen| (&*chosen.layer, &chosen.specs));
                let layers = layers.collect();
                let specs =
                    calibration::calibrated::<B, M, T, R>(&float, layers, calibration, &forward)?;
                for (chosen, specs) in chosen.iter_mut().zip(specs) {
                    chosen.specs = specs;
                }
            }
            // Nothing else needs the weights as they were.
            original = fast_finetune.is_some().then_some(float);
        }
        // A part may have labels from another model.
        quantized = label_parameters(quantized);
        let layers = quantized_layers(&quantized, &chosen);
        let folder = self.folder.as_ref();
        let passes = Passes {
            calibration,
            forward,
        };
        let (mut tuned, mut by_gptq) = (Vec::new(), Vec::new());
        if let Some(config) = gptq {
            let config = GptqRun::new(config, folder, &fused.groups);
            (quantized, by_gptq) = gptq::quantize(quantized, chosen, &passes, config, progress)?;
        } else {
            for Chosen { layer, specs } in &chosen {
                quantized = set_specs_at(quantized, layer, specs)?;
            }
            if let (Some(original), Some(config)) = (original, fast_finetune) {
                let layers = (chosen, &*folded);
                let config = (config, folder);
                (quantized, tuned) = tune(quantized, original, layers, &passes, config, progress)?;
            }
            quantized = fused.share(quantized)?;
        }
        Ok(Quantized {
            model: quantized,
            folded,
            tuned,
            gptq: by_gptq,
            layers,
        })
    }

    /// The layers to quantize, out of `layers`.
    fn choose(&self, layers: &[String]) -> Result<Vec<Chosen>, PtqError> {
        let pattern = |text: &String| {
            let pattern = Pattern::new(text)?;
            match layers.iter().any(|layer| is_meant(&pattern, layer)) {
                true => Ok(pattern),
                false => Err(PtqError::NoMatch {
                    pattern: text.clone(),
                    layers: nearest(text, layers.iter().map(String::as_str)),
                }),
            }
        };
        let patterns = |texts: &[String]| texts.iter().map(pattern).collect::<Result<Vec<_>, _>>();
        let include = patterns(&self.config.include)?;
        let exclude = patterns(&self.config.exclude)?;
        let mut own = Vec::new();
        for (text, specs) in &self.config.layers {
            own.push((pattern(text)?, specs.resolve()?));
        }
        let any = |patterns: &[Pattern], layer: &str| {
            patterns.iter().any(|pattern| is_meant(pattern, layer))
        };
        let wanted = layers
            .iter()
            .filter(|layer| (include.is_empty() || any(&include, layer)) && !any(&exclude, layer));
        let chosen = wanted.map(|layer| {
            let mut own = own.iter().rev();
            let own = own.find(|(pattern, _)| is_meant(pattern, layer));
            let specs = own.map_or(&self.specs, |(_, specs)| specs);
            Chosen {
                layer: layer.clone(),
                specs: specs.clone(),
            }
        });
        let chosen: Vec<Chosen> = chosen.collect();
        match chosen.is_empty() {
            true => Err(PtqError::NoLayers),
            false => Ok(chosen),
        }
    }
}

/// The layers with the formats of their weights. The model has labels.
fn quantized_layers<B: MxKernels, M: Module<MxBackend<B>>>(
    model: &M,
    chosen: &[Chosen],
) -> Vec<QuantizedLayer> {
    let layers = chosen.iter().map(|Chosen { layer, specs }| {
        let weight = parameters::value::<B, M>(model, &parameter_of(layer, WEIGHT));
        QuantizedLayer {
            layer: layer.clone(),
            format: specs.block_format(Slot::W),
            elements: weight.map_or(0, |(weight, _)| weight.shape().num_elements()),
        }
    });
    layers.collect()
}

/// Says that a device with specs emulates more than the layers that are quantized. A device without specs is on purpose here, so its
/// products get no warning.
fn check_device<B: MxKernels, M: Module<MxBackend<B>>>(model: &M) {
    match parameters::specs_of_device::<B, M>(model) {
        None => unset_on_purpose(),
        Some(specs) if specs.is_none() => {}
        Some(specs) => warn(format_args!(
            "burn-mx: the model to quantize is on a device with the specs `{specs}`: they emulate everything outside of quantized \
             layers. Create the model on `MxDevice::new(device, \"none\")?` to leave everything else in float32."
        )),
    }
}

/// Whether a pattern matches a layer, by the layer's path or by the path of its weight.
fn is_meant(pattern: &Pattern, layer: &str) -> bool {
    pattern.matches(layer) || pattern.matches(&parameter_of(layer, WEIGHT))
}
