//! Post-training quantization of a decoder.

use std::path::Path;

use burn::backend::Flex;
use burn::prelude::*;
use burn_mx::ptq::{Activations, Gptq, QuantConfig, Quantized, Quantizer, Rotation, ScaleSearch};
use burn_mx::{FusedLayers, Hadamard, HadamardSigns, MxBackend, MxSpecs};

use crate::{Decoder, DecoderConfig, Error};

type B = MxBackend<Flex>;

/// The tensors of a linear layer to quantize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Weights; inputs stay float32.
    Weights,
    /// Weights, and inputs by their own values.
    Dynamic,
    /// Weights, and inputs with scales of the calibration data.
    Static,
}

/// The path of the head.
const HEAD: &str = "lm_head";

/// The part of a name that folds rotations into the weights first.
const QUAROT: &str = "_QUAROT";

/// The configuration of this name for a decoder: one of [`QuantConfig::named`], or `NVFP4` with the same suffixes. After the format
/// there may be `_QUAROT`, which adds [`rotations`]. The head and the routers of experts
/// stay float32.
///
/// # Errors
///
/// If there is none of this name, or it does not go with the scope.
pub fn named(name: &str, scope: Scope, decoder: &DecoderConfig) -> Result<QuantConfig, Error> {
    let plain = name.replacen(QUAROT, "", 1);
    let mut config = match plain.strip_prefix("NVFP4") {
        None => QuantConfig::named(&plain)?,
        Some(suffix) => nvfp4(QuantConfig::named(&format!("MXFP4E2M1{suffix}"))?),
    };
    if plain != name {
        config.rotations = rotations(decoder);
    }
    scoped(config, scope)
}

/// The configuration for these tensors.
///
/// # Errors
///
/// If the configuration does not go with the scope.
pub fn scoped(config: QuantConfig, scope: Scope) -> Result<QuantConfig, Error> {
    let config = match scope {
        Scope::Weights => config.weights_only(),
        Scope::Dynamic => config,
        Scope::Static => QuantConfig {
            activations: Activations::Static,
            ..config
        },
    };
    Quantizer::new(config.clone())?;
    Ok(config)
}

/// The rotations that QuaRot ([2404.00456](https://arxiv.org/abs/2404.00456)) folds into weights: of the residual stream, and of
/// the values of each head. The decoder must have a separate head.
pub fn rotations(decoder: &DecoderConfig) -> Vec<Rotation> {
    let mut stream = Rotation {
        writers: vec!["model.embed_tokens".into()],
        readers: vec!["lm_head".into()],
        norms: [("model.norm".into(), vec!["lm_head".into()])].into(),
        ..Rotation::default()
    };
    let mut all = Vec::new();
    for layer in 0..decoder.windows.len() {
        let at = |name: &str| format!("model.layers.{layer}.{name}");
        let attention = ["q_proj", "k_proj", "v_proj"].map(|name| at(&format!("self_attn.{name}")));
        let [feed_forward, feed_forward_outputs] = feed_forward(decoder);
        let feed_forward: Vec<_> = feed_forward.iter().map(|name| at(name)).collect();
        let [values, output] = ["self_attn.v_proj", "self_attn.o_proj"].map(at);
        stream.readers.extend(attention.clone());
        stream.readers.extend(feed_forward.clone());
        stream.writers.push(output.clone());
        let outputs = feed_forward_outputs.iter().map(|name| at(name));
        stream.writers.extend(outputs);
        let norms = [
            (at("input_layernorm"), attention.to_vec()),
            (at("post_attention_layernorm"), feed_forward),
        ];
        stream.norms.extend(norms);
        all.push(Rotation {
            writers: vec![values],
            readers: vec![output],
            size: Some(decoder.head),
            seed: 1 + layer as u64,
            ..Rotation::default()
        });
    }
    all.push(stream);
    all
}

/// The linear layers that read the residual stream after attention, and those that write it, by their names in a layer.
fn feed_forward(decoder: &DecoderConfig) -> [Vec<String>; 2] {
    let Some(experts) = &decoder.experts else {
        let readers = ["mlp.gate_proj", "mlp.up_proj"].map(String::from);
        return [readers.into(), vec!["mlp.down_proj".into()]];
    };
    let of_experts = |name: &'static str| {
        (0..experts.count).map(move |expert| format!("block_sparse_moe.experts.{expert}.{name}"))
    };
    let router = ["block_sparse_moe.gate".to_owned()];
    let readers = router.into_iter().chain(of_experts("w1"));
    [
        readers.chain(of_experts("w3")).collect(),
        of_experts("w2").collect(),
    ]
}

fn nvfp4(mxfp4: QuantConfig) -> QuantConfig {
    let transform = mxfp4.specs.hadamard_forward.map(|_| Hadamard {
        block_size: 16,
        signs: HadamardSigns::Given(0),
    });
    QuantConfig {
        // As the engines have them that read NVFP4.
        fused: FusedLayers::default().kinds().to_vec(),
        specs: MxSpecs {
            bfloat: 0,
            hadamard_forward: transform,
            ..MxSpecs::nvfp4()
        },
        ..mxfp4
    }
}

/// The model in this configuration. Finished layers of GPTQ and fast fine-tuning are kept in the folder `resume`, and taken from
/// there. `progress(done, all)` counts layers of GPTQ, or steps of fast fine-tuning. A rotated decoder gets a separate head. The head and the
/// routers of experts stay float32, unless a key of [`QuantConfig::layers`] is the path of the layer.
///
/// # Errors
///
/// If quantization fails.
pub fn quantize(
    model: Decoder<B>,
    config: QuantConfig,
    calibration: &[Tensor<B, 2, Int>],
    resume: Option<&Path>,
    progress: impl FnMut(usize, usize),
) -> Result<Quantized<Decoder<B>>, Error> {
    let model = match config.rotations.is_empty() {
        true => model,
        false => model.untied(),
    };
    let head = model.lm_head.iter().map(|_| HEAD.to_owned());
    let is_named = |path: &String| {
        let names = [path.clone(), format!("{path}.weight")];
        names.iter().any(|name| config.layers.contains_key(name))
    };
    let exclude = head.chain(model.routers()).filter(|path| !is_named(path));
    let exclude = exclude.collect();
    let mut quantizer = Quantizer::new(QuantConfig { exclude, ..config })?;
    if let Some(folder) = resume {
        quantizer = quantizer.resumable(folder)?;
    }
    let forward = |model: &Decoder<B>, tokens: &Tensor<B, 2, Int>| model.forward(tokens.clone());
    Ok(quantizer.quantize_with_progress(model, calibration, forward, progress)?)
}

/// Whether a configuration computes layers one by one, so that it can be resumed.
pub fn is_resumable(config: &QuantConfig) -> bool {
    config.gptq.is_some() || config.fast_finetune.is_some()
}

/// Whether other calibration data make another model. Rotations only compare outputs on the data, and scales of the least squared error
/// do not need data.
pub fn depends_on_data(config: &QuantConfig) -> bool {
    let by_gptq = |gptq: &Gptq| gptq.error_feedback || gptq.scales == ScaleSearch::Hessian;
    config.fast_finetune.is_some()
        || config.gptq.as_ref().is_some_and(by_gptq)
        || config.activations == Activations::Static
}

/// ‖y‖² / ‖q − y‖² in dB.
pub fn sqnr<const D: usize>(got: Tensor<B, D>, wanted: Tensor<B, D>) -> f64 {
    let [got, wanted] = [got, wanted].map(|tensor| {
        let data = tensor.into_data();
        data.iter::<f64>().collect::<Vec<_>>()
    });
    let noise: f64 = got.iter().zip(&wanted).map(|(q, y)| (q - y).powi(2)).sum();
    let signal: f64 = wanted.iter().map(|y| y * y).sum();
    10.0 * (signal / noise).log10()
}
