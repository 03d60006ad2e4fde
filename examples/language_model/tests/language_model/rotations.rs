//! QuaRot's rotations change nothing but what quantization loses.

use burn::prelude::*;
use burn_mx::{
    module::clear_specs_at,
    ptq::{PtqError, QuantConfig, Quantizer},
};
use language_model::{
    Decoder, Folder,
    quantize::{Scope, named, quantize, rotations},
};

use super::transformers::{MODELS, difference, load, reference, values};
use super::{B, fixture};

/// Logits stay the same to 1e-5 of the largest, with a tied head, biases and norms of heads, too.
#[test]
fn rotated_models_have_the_same_logits() {
    for name in MODELS {
        let (tokens, wanted) = reference(name);
        let decoder = Folder::open(fixture(name)).unwrap().config;
        let config = named("MXFP4E2M1_QUAROT", Scope::Weights, &decoder).unwrap();
        let before = load(name);
        let rotated = quantize(
            before.clone(),
            config,
            std::slice::from_ref(&tokens),
            None,
            |_, _| (),
        );
        let rotated = rotated.unwrap().model;
        let logits = |model: &Decoder<B>| values(model.forward(tokens.clone()));
        // In MXFP4, and then in float32 by the same weights.
        let quantized = difference(&logits(&rotated), &wanted);
        assert!(quantized > 1e-3, "{name}: {quantized:.1e}");
        let float = clear_specs_at(rotated, "*").unwrap();
        let layer = |model: &Decoder<B>| values(model.model.layers[0].self_attn.o_proj.weight());
        let moved = difference(&layer(&float), &layer(&before));
        assert!(moved > 0.1, "{name}: {moved}");
        let difference = difference(&logits(&float), &wanted);
        println!("{name}: {difference:.1e}");
        assert!(difference < 1e-5, "{name}: {difference:.1e}");
    }
}

/// Rotations that would change the model, or name a missing parameter, are refused.
#[test]
fn wrong_rotations_are_refused() {
    let (tokens, _) = reference("llama_tied");
    let decoder = Folder::open(fixture("llama_tied")).unwrap().config;
    let error = |model: Decoder<B>, change: fn(&mut QuantConfig)| {
        let mut config = QuantConfig {
            rotations: rotations(&decoder),
            ..QuantConfig::named("MXFP4E2M1").unwrap()
        };
        change(&mut config);
        let forward =
            |model: &Decoder<B>, tokens: &Tensor<B, 2, Int>| model.forward(tokens.clone());
        let quantizer = Quantizer::new(config).unwrap();
        quantizer
            .quantize(model, std::slice::from_ref(&tokens), forward)
            .unwrap_err()
    };
    let model = || load("llama_tied").untied();
    let tied = error(load("llama_tied"), |_| ());
    assert!(tied.to_string().contains("`lm_head.weight`"), "{tied}");
    let incomplete = error(model(), |config| {
        let stream = config.rotations.last_mut().unwrap();
        stream
            .writers
            .retain(|path| path != "model.layers.1.mlp.down_proj");
    });
    assert!(matches!(incomplete, PtqError::Rotation { distance } if distance > 0.01));
    let without_norm = error(model(), |config| {
        let stream = config.rotations.last_mut().unwrap();
        stream.norms.remove("model.norm");
    });
    assert!(matches!(without_norm, PtqError::Rotation { .. }));
    let size = error(model(), |config| config.rotations[0].size = Some(7));
    let size = size.to_string();
    assert!(
        size.contains("v_proj") && size.contains("parts of 7"),
        "{size}"
    );
}
