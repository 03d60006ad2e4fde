//! Quantizes models.

use std::path::PathBuf;

use burn_backend::{FloatDType, TensorMetadata};
use burn_core::module::Module;

use super::adaquant::AdaQuant;
use super::adaround::AdaRound;
use super::calls::{self, Call, Side};
use super::gptq::{self, GptqLayer};
use super::norms::BETA;
use super::parameters;
use super::resume::{Folder, fingerprint};
use super::tuning::{Algorithm, Parameters, TunedLayer, Tuner};
use super::{
    Activations, FastFinetune, FoldedNorm, OptimAlgorithm, PtqError, QuantConfig, calibration, fold,
};
use burn_mx_core::MxBackend;
use burn_mx_core::MxKernels;
use burn_mx_core::hooks::{self, SharedSpecs};
use burn_mx_core::{MxSpecs, ResolvedSpecs, process};
use burn_mx_module::{
    Pattern, initialize, label_parameters, layers, nearest, parameter_of, set_specs, set_specs_at,
};

/// Quantizes trained models by a configuration.
#[derive(Clone, Debug)]
pub struct Quantizer {
    config: QuantConfig,
    /// The default specs of layers.
    specs: ResolvedSpecs,
    /// The folder of tuned layers.
    folder: Option<Folder>,
}

/// A quantized model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Quantized<M> {
    /// The model. Its layers carry their specs, and each product quantizes the weights. The weights themselves are trained or
    /// tuned values.
    pub model: M,
    /// The folded batch norms, in the model's order. Empty without folding.
    pub folded: Vec<FoldedNorm>,
    /// The tuned layers, in the order in which the model calls them. Empty without tuning.
    pub tuned: Vec<TunedLayer>,
    /// The layers that GPTQ quantized, in the order in which the model calls them. Empty without GPTQ.
    pub gptq: Vec<GptqLayer>,
}

/// A layer to quantize, and its specs.
pub(super) struct Chosen {
    pub(super) layer: String,
    pub(super) specs: ResolvedSpecs,
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

    /// Saves each layer that fast fine-tuning has finished in this folder, and reuses layers that it has saved for the same
    /// model, data and settings. The folder is created if it is missing. An interrupted run continues with the layer that it
    /// was tuning, and ends with the same bits as an uninterrupted run. The file of a layer is safetensors,
    /// `<place>-<path>.safetensors`. A file is complete or absent. A file for other data is replaced.
    ///
    /// A layer is recognized by everything that it is tuned from, including its inputs and wanted outputs. So the passes over
    /// the calibration data are repeated.
    ///
    /// # Errors
    ///
    /// If the configuration has no fast fine-tuning, or the folder cannot be created. [`quantize`](Self::quantize) fails later
    /// if a file cannot be written.
    pub fn resumable(self, folder: impl Into<PathBuf>) -> Result<Self, PtqError> {
        if self.config.fast_finetune.is_none() {
            return Err(PtqError::Field {
                field: "fast_finetune",
                value: "missing".into(),
                allowed: "a `FastFinetune`, because only tuning can be resumed",
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
    /// batch of calibration data. Fast fine-tuning, static activations and the folding of batch norms need this data; without
    /// them `calibration` may be empty.
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

    /// Like [`quantize`](Self::quantize). Calls `progress(done, all)` with the number of finished steps of fast fine-tuning.
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
        let mut chosen = self.choose(&layers(&model))?;
        check_device::<B, M>(&model);
        let tuning = self.config.fast_finetune.as_ref();
        let folds = self.config.fold_batch_norm;
        let is_static = self.config.activations == Activations::Static;
        let needs_original = tuning.is_some() || folds || is_static;
        let gptq = self.config.gptq.as_ref();
        if (needs_original || gptq.is_some()) && calibration.is_empty() {
            return Err(PtqError::NoCalibration);
        }
        let mut quantized = model;
        let mut original = None;
        let mut folded = Vec::new();
        if needs_original {
            initialize::<MxBackend<B>, M>(&quantized);
            let none = MxSpecs::none().resolve()?;
            let mut float = label_parameters(set_specs(quantized.clone(), &none));
            if folds {
                let layers: Vec<&str> = chosen.iter().map(|chosen| &*chosen.layer).collect();
                // A part may have labels from a model of its own.
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
            original = Some(float);
        }
        for Chosen { layer, specs } in &chosen {
            quantized = set_specs_at(quantized, layer, specs)?;
        }
        // A part may have labels from a model of its own.
        let quantized = label_parameters(quantized);
        let passes = Passes {
            calibration,
            forward,
        };
        if let Some(config) = gptq {
            let (model, gptq) = gptq::quantize(quantized, chosen, &passes, config, progress)?;
            return Ok(Quantized {
                model,
                folded,
                tuned: Vec::new(),
                gptq,
            });
        }
        let (Some(original), Some(tuning)) = (original, tuning) else {
            return Ok(Quantized {
                model: quantized,
                folded,
                tuned: Vec::new(),
                gptq: Vec::new(),
            });
        };
        let folder = self.folder.as_ref();
        let (model, tuned) = tune(
            quantized,
            original,
            (chosen, &folded),
            &passes,
            (tuning, folder),
            progress,
        )?;
        Ok(Quantized {
            model,
            folded,
            tuned,
            gptq: Vec::new(),
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

/// Says that a device with specs emulates more than the layers that are quantized. A device without specs is on purpose here, so its
/// products get no warning.
fn check_device<B: MxKernels, M: Module<MxBackend<B>>>(model: &M) {
    match parameters::specs_of_device::<B, M>(model) {
        None => process::unset_on_purpose(),
        Some(specs) if specs.is_none() => {}
        Some(specs) => process::warn(format_args!(
            "burn-mx: the model to quantize is on a device with the specs `{specs}`: they emulate everything outside of quantized \
             layers. Create the model on `MxDevice::new(device, \"none\")?` to leave everything else in float32."
        )),
    }
}

/// Whether a pattern matches a layer, by the layer's path or by the path of its weight.
fn is_meant(pattern: &Pattern, layer: &str) -> bool {
    pattern.matches(layer) || pattern.matches(&parameter_of(layer, WEIGHT))
}

const WEIGHT: &str = "weight";
const BIAS: &str = "bias";

/// Passes over the calibration data.
pub(super) struct Passes<'a, T, F> {
    calibration: &'a [T],
    forward: F,
}

impl<T, F> Passes<'_, T, F> {
    /// One pass.
    pub(super) fn all<M, R>(&self, model: &M)
    where
        F: Fn(&M, &T) -> R,
    {
        for batch in self.calibration {
            (self.forward)(model, batch);
        }
    }

    /// Sorts the layers by the order in which the model calls them first. Layers without a call are left out, with a
    /// warning in the log.
    pub(super) fn in_order<M, R>(&self, model: &M, chosen: &mut Vec<Chosen>) -> Result<(), PtqError>
    where
        M: Sync,
        T: Sync,
        F: Fn(&M, &T) -> R + Sync,
    {
        let order = calls::order(|| self.all(model));
        let place = |chosen: &Chosen| {
            let label = parameter_of(&chosen.layer, WEIGHT);
            order.iter().position(|called| *called == label)
        };
        chosen.retain(|chosen| {
            let is_called = place(chosen).is_some();
            if !is_called {
                log::warn!(
                    "burn-mx: layer `{}` is not tuned: it computes nothing on the calibration data, or is a deformable convolution",
                    chosen.layer
                );
            }
            is_called
        });
        if chosen.is_empty() {
            return Err(PtqError::NothingCalled);
        }
        chosen.sort_by_key(place);
        Ok(())
    }

    /// One side of the calls of the layer whose weight has this label, for this many items of calibration data. A batch has as
    /// many items as the first axis of the layer's first input in it.
    fn calls<B, M, R>(
        &self,
        model: &M,
        label: &'static str,
        side: Side,
        mut items: usize,
    ) -> Vec<Call<B>>
    where
        B: MxKernels,
        M: Sync,
        T: Sync,
        F: Fn(&M, &T) -> R + Sync,
    {
        let mut all: Vec<Call<B>> = Vec::new();
        for batch in self.calibration {
            if items == 0 {
                break;
            }
            let calls = calls::calls::<B>(label, side, || {
                (self.forward)(model, batch);
            });
            let Some(count) = calls.first().map(|call| call.samples) else {
                continue;
            };
            all.extend(calls.into_iter().map(|call| Call {
                samples: call.samples.min(items),
                ..call
            }));
            items = items.saturating_sub(count);
        }
        all
    }
}

/// Tunes the layers one after another, in the order in which the model calls them. Each layer's inputs come from the layers
/// tuned before.
fn tune<B, M, T, R, F>(
    mut model: M,
    original: M,
    (mut chosen, folded): (Vec<Chosen>, &[FoldedNorm]),
    passes: &Passes<'_, T, F>,
    (config, folder): (&FastFinetune, Option<&Folder>),
    mut progress: impl FnMut(usize, usize),
) -> Result<(M, Vec<TunedLayer>), PtqError>
where
    B: MxKernels,
    M: Module<MxBackend<B>> + Sync,
    T: Sync,
    F: Fn(&M, &T) -> R + Sync,
{
    passes.in_order::<M, R>(&model, &mut chosen)?;
    let all = chosen.len() * config.num_iterations;
    let mut reports = Vec::new();
    for (number, Chosen { layer, specs }) in chosen.iter().enumerate() {
        let label = hooks::label(&parameter_of(layer, WEIGHT));
        let value = |label: &str| parameters::value(&model, label);
        let (weight, storage) = value(label).expect("a layer that is called has its weight");
        let bias_label = parameter_of(layer, BIAS);
        let own_bias = value(&bias_label).map(|(bias, _)| bias);
        // The bias of a layer that was folded without one is in its norm.
        let in_norm = || {
            let norm = folded.iter().find(|pair| pair.layer == *layer)?;
            let beta_label = parameter_of(&norm.norm, BETA);
            let (beta, _) = value(&beta_label)?;
            Some((beta_label, beta))
        };
        let in_norm = match &own_bias {
            Some(_) => None,
            None => in_norm(),
        };
        let change = in_norm.as_ref().map(|(_, beta)| {
            let (shape, device) = (beta.shape(), B::float_device(beta));
            B::float_zeros(shape, &device, FloatDType::F32)
        });
        let has_bias = own_bias.is_some();
        let start = Parameters::<B> {
            weight,
            bias: own_bias.or(change),
            storage,
        };
        let calls = |model, side| passes.calls::<B, M, R>(model, label, side, config.data_size);
        let inputs = calls(&model, Side::Input);
        let wanted = calls(&original, Side::Output);
        let specs = SharedSpecs::of(specs);
        let tuner = Tuner::new(layer, config, specs, (&start, has_bias), inputs, wanted)?;
        let done = number * config.num_iterations;
        let seed = config.fixed_seed.wrapping_add(number as u64);
        let print = folder.map(|folder| (folder, fingerprint(&tuner, &start, seed)));
        let kept = print.and_then(|(folder, print)| folder.load(number, layer, print, &start));
        let (tuned, report) = match kept {
            Some(kept) => kept,
            None => {
                let algorithm = algorithm(config, &tuner, &start, layer)?;
                let tuned = tuner.tune(start, algorithm, seed, |steps| {
                    progress(done + steps, all);
                });
                if let Some((folder, print)) = print {
                    folder.save(number, print, &tuned.0, &tuned.1)?;
                }
                tuned
            }
        };
        log::info!(
            "burn-mx: layer `{layer}`: error {:.3e}, after {} steps {:.3e}",
            report.error_before,
            report.iterations,
            report.error_after
        );
        progress(done + config.num_iterations, all);
        let weight = (label.to_owned(), tuned.weight);
        let bias = tuned.bias.map(|bias| match in_norm {
            Some((beta_label, beta)) => (beta_label, B::float_add(beta, bias)),
            None => (bias_label, bias),
        });
        model = parameters::replace(model, [weight].into_iter().chain(bias).collect());
        reports.push(report);
    }
    Ok((model, reports))
}

/// The algorithm that tunes a layer from these parameters.
fn algorithm<B: MxKernels>(
    config: &FastFinetune,
    tuner: &Tuner<'_, B>,
    start: &Parameters<B>,
    layer: &str,
) -> Result<Box<dyn Algorithm<B>>, PtqError> {
    Ok(match config.optim_algorithm {
        OptimAlgorithm::AdaQuant => Box::new(AdaQuant::new(start)),
        OptimAlgorithm::AdaRound => {
            let new = AdaRound::new(tuner, start);
            Box::new(new.ok_or_else(|| PtqError::NotFinite {
                layer: layer.to_owned(),
                what: "weight",
            })?)
        }
    })
}
