//! Fast fine-tuning over a model, layer by layer.

use burn_backend::{FloatDType, TensorMetadata};
use burn_core::module::Module;

use super::adaquant::AdaQuant;
use super::adaround::AdaRound;
use super::{Algorithm, Parameters, TunedLayer, Tuner, saved};
use crate::calls::KeptSide;
use crate::config::{FastFinetune, OptimAlgorithm};
use crate::error::PtqError;
use crate::fold::{BETA, FoldedNorm};
use crate::parameters::{self, BIAS, WEIGHT};
use crate::passes::{Chosen, Passes};
use crate::resume::{Folder, LayerPlace, resumed};
use burn_mx_core::hooks::{self, SharedSpecs};
use burn_mx_core::{MxBackend, MxKernels};
use burn_mx_module::parameter_of;

/// Tunes the layers one after another, in the order in which the model calls them. Each layer's inputs come from the layers
/// tuned before.
pub(crate) fn tune<B, M, T, R, F>(
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
        let inputs = calls(&model, KeptSide::Input);
        let wanted = calls(&original, KeptSide::Output);
        let specs = SharedSpecs::of(specs);
        let tuner = Tuner::new(layer, config, specs, (&start, has_bias), inputs, wanted)?;
        let done = number * config.num_iterations;
        let seed = config.fixed_seed.wrapping_add(number as u64);
        let (tuned, report) = resumed(
            folder,
            LayerPlace(number, layer),
            start,
            |start| saved::fingerprint(&tuner, start, seed),
            |start, report, file| saved::read(layer, start, report, file),
            |start| {
                let algorithm = algorithm(config, &tuner, &start, layer)?;
                let progress = |steps| progress(done + steps, all);
                Ok(tuner.tune(start, algorithm, seed, progress))
            },
            |(tuned, report)| saved::finished::<B>(tuned, report),
        )?;
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
