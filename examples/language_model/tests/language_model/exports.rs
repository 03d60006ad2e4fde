//! An export copies special tokens and templates, and replaces its own files alone.

use std::{fs, path::Path};

use burn_mx::{MxDevice, Slot, WeightLayout};
use language_model::{
    Decoder, Folder,
    export::{Engine, export},
    quantize::{Scope, named, quantize},
    train::{Format, Training},
};
use serde_json::{Value, json};

use super::B;
use super::transformers::{MODELS, difference, load, reference, values};

/// A copy of a fixture with what a model of a hub has beside its weights.
fn of_a_hub(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(super::fixture(name)).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    let mut config = json(&folder.path().join("config.json"));
    config["bos_token_id"] = json!(7);
    config["eos_token_id"] = json!([9, 11]);
    config["pad_token_id"] = json!(3);
    write("config.json", config.to_string());
    write(
        "generation_config.json",
        json!({"eos_token_id": [9, 11]}).to_string(),
    );
    write("chat_template.jinja", "{{ messages }}".into());
    let class = json!({"tokenizer_class": "TheirTokenizer", "add_bos_token": true});
    write("tokenizer_config.json", class.to_string());
    folder
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The fixture in NVFP4 or MXFP4, by the nearest numbers.
fn quantized(name: &str, format: &str, source: &Folder) -> (Decoder<B>, burn_mx::BlockFormat) {
    let config = named(format, Scope::Weights, &source.config).unwrap();
    let specs = config.specs.resolve().unwrap();
    let model = quantize(load(name), config, &[], None, |_, _| ()).unwrap();
    (model.model, specs.block_format(Slot::W).unwrap())
}

#[test]
fn special_tokens_and_templates_are_taken_along() {
    let hub = of_a_hub("llama");
    let source = Folder::open(hub.path()).unwrap();
    let (model, format) = quantized("llama", "NVFP4", &source);
    for engine in [Engine::ModelOpt, Engine::CompressedTensors] {
        let out = tempfile::tempdir().unwrap();
        let layout = engine.layout(format).unwrap();
        export(out.path(), &source, &model, layout).unwrap();
        let config = json(&out.path().join("config.json"));
        assert_eq!(config["bos_token_id"], 7);
        assert_eq!(config["eos_token_id"], json!([9, 11]));
        assert_eq!(config["pad_token_id"], 3);
        for name in [
            "generation_config.json",
            "chat_template.jinja",
            "tokenizer_config.json",
        ] {
            let [theirs, ours] =
                [hub.path(), out.path()].map(|path| fs::read(path.join(name)).unwrap());
            assert!(theirs == ours, "{name}");
        }
    }
}

/// The number of a key of a GGUF file, which is a u32 or a truth value.
fn number(gguf: &[u8], key: &str) -> u32 {
    let at = gguf
        .windows(key.len())
        .position(|part| part == key.as_bytes())
        .expect(key);
    let rest = &gguf[at + key.len()..];
    match rest[0] {
        4 => u32::from_le_bytes(rest[4..8].try_into().unwrap()),
        7 => rest[4].into(),
        kind => panic!("{key} has type {kind}"),
    }
}

#[test]
fn a_gguf_file_has_the_special_tokens() {
    let hub = of_a_hub("llama");
    // The fixture's tokenizer splits at nothing, which GGUF files that are written here do not have.
    let tokenizer = hub.path().join("tokenizer.json");
    let mut of_bytes = json(&tokenizer);
    of_bytes["pre_tokenizer"] = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true
    });
    fs::write(tokenizer, of_bytes.to_string()).unwrap();
    let source = Folder::open(hub.path()).unwrap();
    let model = load("llama");
    let file = hub.path().join("model.gguf");
    export(&file, &source, &model, WeightLayout::GgufMxfp4).unwrap();
    let gguf = fs::read(&file).unwrap();
    for (key, value) in [
        ("bos_token_id", 7),
        ("eos_token_id", 9),
        ("padding_token_id", 3),
    ] {
        assert_eq!(number(&gguf, &format!("tokenizer.ggml.{key}")), value);
    }
    assert_eq!(number(&gguf, "tokenizer.ggml.add_bos_token"), 1);
    let template = b"tokenizer.chat_template\x08\0\0\0\x0e\0\0\0\0\0\0\0{{ messages }}";
    assert!(gguf.windows(template.len()).any(|part| part == template));
    // A token that the tokenizer's own configuration names comes first, as with llama.cpp's converter.
    let name = source.tokenizer.id_to_token(5).unwrap();
    let class = json!({"eos_token": {"content": name}});
    fs::write(hub.path().join("tokenizer_config.json"), class.to_string()).unwrap();
    export(&file, &source, &model, WeightLayout::GgufMxfp4).unwrap();
    assert_eq!(
        number(&fs::read(&file).unwrap(), "tokenizer.ggml.eos_token_id"),
        5
    );
}

/// compressed-tensors stores the reciprocal of a tensor's scale, which not every scale is.
#[test]
fn nvfp4_of_every_fixture_for_compressed_tensors() {
    let (layout, device) = (WeightLayout::Nvfp4PackQuantized, MxDevice::default());
    for name in MODELS {
        let source = Folder::open(super::fixture(name)).unwrap();
        let (model, _) = quantized(name, "NVFP4", &source);
        let out = tempfile::tempdir().unwrap();
        export(out.path(), &source, &model, layout).unwrap();
        let config = json(&out.path().join("config.json"));
        let group = &config["quantization_config"];
        assert_eq!(group["format"], "nvfp4-pack-quantized", "{name}");
        let ignored = group["ignore"].as_array().unwrap();
        assert!(ignored.contains(&json!("lm_head")), "{name}: {ignored:?}");
        let again = Folder::open(out.path())
            .unwrap()
            .load::<B>(&device)
            .unwrap();
        let (tokens, float) = reference(name);
        let [wanted, got] = [model, again].map(|model| values(model.forward(tokens.clone())));
        let difference_to_float = difference(&wanted, &float);
        let difference = difference(&got, &wanted);
        // One unit in the last place of each scale; the format itself is coarse.
        assert!(difference < 2e-6, "{name}: {difference:.1e}");
        assert!(
            difference_to_float > 1e-3,
            "{name}: {difference_to_float:.1e}"
        );
    }
}

#[test]
fn an_export_replaces_its_own_files_alone() {
    let hub = of_a_hub("llama");
    let source = Folder::open(hub.path()).unwrap();
    let (model, format) = quantized("llama", "NVFP4", &source);
    let layout = Engine::ModelOpt.layout(format).unwrap();
    let before = fs::read(hub.path().join("config.json")).unwrap();
    let error = export(hub.path(), &source, &model, layout).unwrap_err();
    assert!(error.to_string().contains("which is read"), "{error}");
    assert_eq!(fs::read(hub.path().join("config.json")).unwrap(), before);

    for name in [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
    ] {
        let out = tempfile::tempdir().unwrap();
        fs::write(out.path().join(name), "mine").unwrap();
        let error = export(out.path(), &source, &model, layout).unwrap_err();
        assert!(
            error.to_string().contains(&format!("{name}' is there")),
            "{error}"
        );
        assert_eq!(fs::read(out.path().join(name)).unwrap(), b"mine");
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
    }
    let out = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        export(out.path(), &source, &model, layout).unwrap();
    }
}

/// A folder with a model that no run wrote is not trained over.
#[test]
fn a_run_replaces_its_own_files_alone() {
    let hub = of_a_hub("llama");
    let source = Folder::open(hub.path()).unwrap();
    let text = "ab ".repeat(2_000);
    let [training, validation] = [(), ()]
        .map(|()| language_model::text::Tokens::of(&source.tokenizer, &text, "it", 16).unwrap());
    let data = language_model::train::Data {
        training: &training,
        validation: &validation,
        tokenizer: &source.tokenizer,
        tuning: None,
    };
    let short = Training {
        batch: 1,
        steps: 1,
        learning_rate: 1e-3,
        interval: 1,
        seed: 0,
        window: None,
        reset: None,
        columns: Default::default(),
    };
    let before = fs::read(hub.path().join("config.json")).unwrap();
    let format = Format::named("--formats", "fp32").unwrap();
    let run = short.run(&source.config, &format, data, hub.path(), |_, _| ());
    let error = run.map(|_| ()).expect_err("it is refused").to_string();
    assert!(error.contains("no run.json"), "{error}");
    assert_eq!(fs::read(hub.path().join("config.json")).unwrap(), before);
}
