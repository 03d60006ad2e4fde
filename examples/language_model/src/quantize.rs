//! Post-training quantization of a decoder.

use burn::backend::Flex;
use burn::prelude::*;
use burn_mx::ptq::{Activations, Gptq, QuantConfig, Quantized, Quantizer};
use burn_mx::{Hadamard, HadamardSigns, MxBackend, MxSpecs, SlotFormat};

use crate::{Decoder, Error};

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

/// The configuration of this name, one of [`QuantConfig::named`], or `NVFP4` with the same suffixes. The head stays float32.
///
/// # Errors
///
/// If there is none of this name, or it does not go with the scope.
pub fn named(name: &str, scope: Scope) -> Result<QuantConfig, Error> {
    let mut config = match name.strip_prefix("NVFP4") {
        None => QuantConfig::named(name)?,
        Some(suffix) => nvfp4(QuantConfig::named(&format!("MXFP4E2M1{suffix}"))?),
    };
    match scope {
        Scope::Weights => config.specs.a_elem_format = None::<SlotFormat>,
        Scope::Dynamic => {}
        Scope::Static => config.activations = Activations::Static,
    }
    Quantizer::new(config.clone())?;
    Ok(config)
}

fn nvfp4(mxfp4: QuantConfig) -> QuantConfig {
    let transform = mxfp4.specs.hadamard_forward.map(|_| Hadamard {
        block_size: 16,
        signs: HadamardSigns::Given(0),
    });
    QuantConfig {
        specs: MxSpecs {
            bfloat: 0,
            hadamard_forward: transform,
            ..MxSpecs::nvfp4()
        },
        ..mxfp4
    }
}

/// The model in this configuration. `progress(done, all)` counts layers of GPTQ, or steps of fast fine-tuning.
///
/// # Errors
///
/// If quantization fails.
pub fn quantize(
    model: Decoder<B>,
    config: QuantConfig,
    calibration: &[Tensor<B, 2, Int>],
    progress: impl FnMut(usize, usize),
) -> Result<Quantized<Decoder<B>>, Error> {
    let exclude = match &model.lm_head {
        Some(_) => vec!["lm_head".to_owned()],
        None => Vec::new(),
    };
    let quantizer = Quantizer::new(QuantConfig { exclude, ..config })?;
    let forward = |model: &Decoder<B>, tokens: &Tensor<B, 2, Int>| model.forward(tokens.clone());
    Ok(quantizer.quantize_with_progress(model, calibration, forward, progress)?)
}

/// Whether a configuration is GPTQ's, and with what options.
pub fn gptq(config: &mut QuantConfig) -> Option<&mut Gptq> {
    config.gptq.as_mut()
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
