//! A model that is trained in the numbers of an engine is exported with these numbers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use burn_mx::{Dialect, MxDevice};
use language_model::{
    Decoder, DecoderConfig, Folder,
    export::{Engine, Target, export},
    folder,
    train::Format,
};
use serde_json::Value;

use super::B;
use super::transformers::{load, reference, values};

/// The file of a recipe of the comparison with engines.
fn recipe_file(name: &str) -> PathBuf {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/engines/recipes");
    recipes.join(name).with_extension("json")
}

fn recipe(name: &str) -> Format {
    Format::named("--format", recipe_file(name).to_str().unwrap()).unwrap()
}

/// A recipe with other values of some fields of its specs.
fn changed(name: &str, fields: &[(&str, Value)]) -> Format {
    with(name, |recipe| {
        for (field, value) in fields {
            recipe["specs"][*field] = value.clone();
        }
    })
}

/// A recipe after a change.
fn with(name: &str, change: impl Fn(&mut Value)) -> Format {
    let text = fs::read(recipe_file(name)).unwrap();
    let mut json: Value = serde_json::from_slice(&text).unwrap();
    change(&mut json);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("changed.json");
    fs::write(&file, json.to_string()).unwrap();
    Format::named("--format", file.to_str().unwrap()).unwrap()
}

fn target(engine: Engine, format: &Format) -> Result<Target, String> {
    Target::of(engine, format).map_err(|error| error.to_string())
}

/// A model with random weights, whose rows are whole blocks, and the fixture's tokens as bytes.
fn random(is_tied: bool) -> tempfile::TempDir {
    let source = Folder::open(super::fixture("llama")).unwrap();
    let config = DecoderConfig {
        width: 64,
        hidden: 128,
        heads: 4,
        kv_heads: 2,
        head: 16,
        is_tied,
        ..source.config.clone()
    };
    // GGUF files that are written here have tokens of bytes.
    let tokenizer = source.tokenizer.to_string(false).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&tokenizer).unwrap();
    tokenizer["pre_tokenizer"] = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true
    });
    let tokenizer = tokenizer.to_string().parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let model: Decoder<B> = config.init(&MxDevice::default());
    folder::save(folder.path(), &config, &tokenizer, &model).unwrap();
    folder
}

/// Bit for bit: a loaded folder computes what the model computed, whose fused layers share a scale. Without quantized inputs, and with them.
#[test]
fn a_folder_computes_what_was_trained() {
    for name in ["mxfp4_w4a16", "mxfp4_w4a4", "nvfp4_w4a16", "nvfp4_w4a4"] {
        for is_tied in [false, true] {
            let random = random(is_tied);
            let source = Folder::open(random.path()).unwrap();
            let format = recipe(name);
            let target = target(Engine::CompressedTensors, &format).unwrap();
            let model = format.served(&source, &target.fused()).unwrap();
            let out = tempfile::tempdir().unwrap();
            export(out.path(), &source, &model, target).unwrap();

            let again = Folder::open(out.path()).unwrap();
            let again: Decoder<B> = again.load(&MxDevice::default()).unwrap();
            let float: Decoder<B> = source.load(&MxDevice::default()).unwrap();
            let logits = |model: &Decoder<B>| values(model.forward(reference("llama").0));
            let wanted = logits(&model);
            assert!(logits(&again) == wanted, "{name}, {is_tied}");
            assert!(logits(&float) != wanted);

            let text = fs::read(out.path().join("config.json")).unwrap();
            let config: Value = serde_json::from_slice(&text).unwrap();
            let group = &config["quantization_config"]["config_groups"]["group_0"];
            let inputs = &group["input_activations"];
            let dynamic = match name {
                "mxfp4_w4a4" => Value::Bool(true),
                "nvfp4_w4a4" => "local".into(),
                _ => Value::Null,
            };
            assert_eq!(inputs["dynamic"], dynamic, "{name}");
            let file = fs::read(out.path().join("model.safetensors")).unwrap();
            let file = safetensors::SafeTensors::deserialize(&file).unwrap();
            let divisors = file.names().into_iter();
            let divisors = divisors.filter(|name| name.ends_with(".input_global_scale"));
            let count = if name == "nvfp4_w4a4" { 14 } else { 0 };
            assert_eq!(divisors.count(), count, "{name}");
        }
    }
}

/// A file without the specs, as another tool writes it: nothing would quantize the inputs.
#[test]
fn divisors_of_inputs_without_specs_are_refused() {
    let random = random(false);
    let source = Folder::open(random.path()).unwrap();
    let format = recipe("nvfp4_w4a4");
    let target = target(Engine::CompressedTensors, &format).unwrap();
    let model = format.served(&source, &target.fused()).unwrap();
    let out = tempfile::tempdir().unwrap();
    export(out.path(), &source, &model, target).unwrap();
    let path = out.path().join("model.safetensors");
    let file = fs::read(&path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    fs::write(
        &path,
        safetensors::serialize(tensors.tensors(), None).unwrap(),
    )
    .unwrap();

    let folder = Folder::open(out.path()).unwrap();
    let loaded = folder.load::<B>(&MxDevice::default());
    let error = loaded.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(".input_global_scale"), "{error}");
}

/// llama.cpp rounds inputs itself, so the file has weights alone. NVFP4's scales and codes have the bytes of Model Optimizer's dialect.
#[test]
fn nvfp4_for_llama_cpp() {
    let format = recipe("nvfp4_q8_0");
    let target = target(Engine::Gguf, &format).unwrap();
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("model.gguf");
    // The fixture's rows are too short for four blocks.
    let source = Folder::open(super::fixture("llama")).unwrap();
    let error = export(&file, &source, &load("llama"), target).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("multiples of 64 for NVFP4"), "{error}");
    assert!(!file.exists());

    let random = random(true);
    let source = Folder::open(random.path()).unwrap();
    let model = format.served(&source, &target.fused()).unwrap();
    export(&file, &source, &model, target).unwrap();
    let gguf = fs::read(&file).unwrap();

    let down = &model.model.layers[0].mlp.as_ref().unwrap().down_proj;
    let weight = values(down.weight().transpose());
    let packed = Dialect::ModelOpt.encode(
        "nvfp4(tensor_scale=true)".parse().unwrap(),
        &weight,
        &[source.config.width, source.config.hidden],
    );
    let packed = packed.unwrap().packed;
    let has = |bytes: &[u8]| gguf.windows(bytes.len()).any(|part| part == bytes);
    assert!(has(b"blk.0.ffn_down.weight") && has(b"blk.0.ffn_down.scale"));
    assert!(has(&packed.tensor_scale().unwrap().to_le_bytes()));
    // The first row: the scales of four blocks, then codes j and j + 8 of each.
    let code = |i: usize| packed.elements()[i / 2] >> (4 * (i % 2)) & 15;
    let codes = (0..32).map(|i| code(i / 8 * 16 + i % 8) | code(i / 8 * 16 + i % 8 + 8) << 4);
    let row: Vec<u8> = packed.scales()[..4].iter().copied().chain(codes).collect();
    assert!(has(&row));
}

#[test]
fn numbers_that_an_engine_does_not_have() {
    for (engine, name, fields, wanted) in [
        (
            Engine::CompressedTensors,
            "nvfp4_w4a4",
            &[("a_elem_format", "nvfp4(tensor_scale=true)".into())][..],
            "or block(element=fp4_e2m1,scale=ue4m3,block_size=16) with dialect_a compressed-tensors",
        ),
        (
            Engine::CompressedTensors,
            "mxfp4_w4a4",
            &[("dialect_a", Value::Null)],
            "dialect_a none'; allowed: none, or mxfp4 with dialect_a compressed-tensors",
        ),
        (Engine::Gguf, "mxfp4_w4a4", &[], "with dialect_a ggml"),
        (
            Engine::ModelOpt,
            "nvfp4_q8_0",
            &[],
            "allowed: none for this engine",
        ),
        (
            Engine::Gguf,
            "mxfp4_q8_0",
            &[
                ("w_elem_format", "mxfp8_e4m3".into()),
                ("dialect_w", Value::Null),
            ],
            "allowed: for this engine: mxfp4",
        ),
        (
            Engine::CompressedTensors,
            "mxfp4_w4a4",
            &[("quantize_matmul", true.into())],
            "quantize_matmul true, attention in mxfp4'; allowed: quantize_matmul false",
        ),
        (
            Engine::Gguf,
            "mxfp4_q8_0",
            &[("attention", "sageattention3".into())],
            "and no attention",
        ),
    ] {
        let error = target(engine, &changed(name, fields)).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
    let source = Folder::open(super::fixture("llama_tied")).unwrap();
    let format = Format::named("--format", "mxfp4").unwrap();
    let target = target(Engine::CompressedTensors, &changed("mxfp4_w4a16", &[])).unwrap();
    let error = format
        .served(&source, &target.fused())
        .unwrap_err()
        .to_string();
    assert!(error.contains("the head in mxfp4"), "{error}");
}

/// An engine's files describe the same inputs for all layers with packed weights.
#[test]
fn layers_of_their_own() {
    let down = "model.layers.0.mlp.down_proj.weight";
    let of_layer = |fields: &[(&str, Value)]| {
        let format = with("mxfp4_w4a4", |recipe| {
            let mut specs = recipe["specs"].clone();
            for (field, value) in fields {
                specs[*field] = value.clone();
            }
            recipe["layers"] = serde_json::json!({ down: specs });
        });
        target(Engine::CompressedTensors, &format)
    };
    let none = Value::Null;
    let no_weights = [("w_elem_format", none.clone()), ("dialect_w", none.clone())];
    let no_inputs = [("a_elem_format", none.clone()), ("dialect_a", none)];
    assert_eq!(
        of_layer(&[]),
        target(Engine::CompressedTensors, &recipe("mxfp4_w4a4"))
    );
    assert!(of_layer(&[no_weights.clone(), no_inputs.clone()].concat()).is_ok());
    let error = of_layer(&no_inputs).unwrap_err();
    assert!(error.contains(down) && error.contains("or none"), "{error}");
    let mxfp8 = [("a_elem_format", "mxfp8_e4m3".into())];
    let error = of_layer(&mxfp8).unwrap_err();
    assert!(error.contains("inputs in mxfp8_e4m3"), "{error}");
    let error = of_layer(&no_weights).unwrap_err();
    assert!(error.contains("a format for weights"), "{error}");
}

/// The engine computes inputs as the model, so nothing warns that they differ.
#[test]
fn no_warning_of_inputs() {
    let random = random(true);
    for (engine, name) in [("compressed-tensors", "mxfp4_w4a4"), ("gguf", "nvfp4_q8_0")] {
        let out = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_language_model"))
            .arg("export")
            .arg(random.path())
            .args(["--engine", engine, "--format"])
            .arg(recipe_file(name))
            .arg("--out")
            .arg(out.path().join("out"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        assert!(!text.contains("activations"), "{text}");
    }
}
