//! Broken folders and texts: an error names the defect.

use std::{fs, path::Path};

use burn::tensor::Device;
use burn_mx::MxDevice;
use language_model::{Error, Folder, text, text::Tokens};
use serde_json::{Value, json};

use super::{B, fixture};

/// A copy of a fixture.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture(name)).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    folder
}

/// The error text of opening and loading a folder.
fn error(folder: &Path) -> String {
    let device: Device<B> = MxDevice::default();
    let loaded = Folder::open(folder).and_then(|folder| folder.load::<B>(&device).map(drop));
    loaded.expect_err("it is broken").to_string()
}

/// The error of a fixture with a change of its config.
fn with_config(name: &str, change: impl FnOnce(&mut Value)) -> String {
    let folder = copy(name);
    let file = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut config);
    fs::write(&file, config.to_string()).unwrap();
    error(folder.path())
}

#[track_caller]
fn has(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
}

#[test]
fn a_missing_shard_is_named() {
    let folder = copy("llama");
    let shard = "model-00002-of-00002.safetensors";
    fs::remove_file(folder.path().join(shard)).unwrap();
    has(&error(folder.path()), &[shard]);
}

#[test]
fn a_missing_tensor_is_named() {
    let error = with_config("llama", |config| config["num_hidden_layers"] = json!(3));
    has(&error, &["layers.2.self_attn.q_proj.weight", "missing"]);
    let error = with_config("llama_tied", |config| {
        config["tie_word_embeddings"] = json!(false)
    });
    has(&error, &["lm_head.weight", "missing"]);
}

#[test]
fn another_shape_is_named() {
    let error = with_config("qwen2", |config| config["intermediate_size"] = json!(64));
    has(&error, &["mlp", "proj.weight", "48", "64"]);
}

#[test]
fn tensors_of_another_architecture_are_named() {
    let error = with_config("llama", |config| config["num_hidden_layers"] = json!(1));
    has(&error, &["layers.1.mlp.up_proj.weight", "`llama`"]);
    let error = with_config("qwen2", |config| config["model_type"] = json!("llama"));
    has(&error, &["layers.0.self_attn.q_proj.bias"]);
}

#[test]
fn fields_of_the_config_are_checked() {
    type Case = (&'static str, Value, &'static str);
    let cases: [Case; 9] = [
        (
            "model_type",
            json!("gpt2"),
            "llama, mistral, mixtral, qwen2, qwen3",
        ),
        ("hidden_act", json!("gelu"), "silu"),
        ("mlp_bias", json!(true), "false"),
        (
            "num_key_value_heads",
            json!(3),
            "a divisor of num_attention_heads, 4",
        ),
        ("head_dim", json!(7), "an even number"),
        ("vocab_size", json!(0), "1 or more"),
        ("rms_norm_eps", json!(0.0), "a positive number"),
        (
            "rope_parameters",
            json!({ "rope_type": "yarn" }),
            "default, linear, llama3",
        ),
        (
            "layer_types",
            json!(["full_attention"]),
            "2, num_hidden_layers",
        ),
    ];
    for (field, value, allowed) in cases {
        let error = with_config("llama", |config| config[field] = value);
        let name = match field {
            "rope_parameters" => "rope_scaling.rope_type",
            field => field,
        };
        has(&error, &[&format!("`{name}`"), allowed]);
    }
    let experts = [
        ("num_local_experts", 0, "1 or more"),
        ("num_experts_per_tok", 6, "1 to num_local_experts, 5"),
    ];
    for (field, value, allowed) in experts {
        let error = with_config("mixtral", |config| config[field] = json!(value));
        has(&error, &[&format!("`{field}`"), allowed]);
    }
    let error = with_config("llama", |config| {
        config.as_object_mut().unwrap().remove("hidden_size");
    });
    has(&error, &["hidden_size"]);
}

#[test]
fn a_tokenizer_of_another_vocabulary_is_refused() {
    let folder = copy("llama");
    let tokenizer = text::train_tokenizer(&text::read(None).unwrap()[..9_999], 300).unwrap();
    let file = folder.path().join("tokenizer.json");
    tokenizer.save(&file, false).unwrap();
    has(&error(folder.path()), &["tokenizer.json", "299", "64"]);
    fs::write(&file, "{}").unwrap();
    has(
        &error(folder.path()),
        &["tokenizer.json", "is not a tokenizer"],
    );
}

#[test]
fn texts_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.txt");
    fs::write(&file, "\n").unwrap();
    has(
        &text::read(Some(&file)).unwrap_err().to_string(),
        &["empty.txt", "0 tokens"],
    );
    let text = text::read(None).unwrap();
    for (vocabulary, allowed) in [(255, "256"), (100_000, "no more pairs")] {
        let refused = text::train_tokenizer(&text[..2_000], vocabulary).unwrap_err();
        has(&refused.to_string(), &["--vocabulary", allowed]);
    }
    let tokenizer = text::train_tokenizer(&text, 256).unwrap();
    let short = Tokens::of(&tokenizer, "Amen.", "the text", 64);
    assert!(matches!(
        short,
        Err(Error::Text {
            tokens: 5,
            needed: 65,
            ..
        })
    ));
}

/// Tokens become the text again, and byte pairs save tokens.
#[test]
fn a_tokenizer_of_a_text_is_reversible() {
    let text = &text::read(None).unwrap()[..40_000];
    let mut lengths = Vec::new();
    for vocabulary in [256, 512] {
        let tokenizer = text::train_tokenizer(text, vocabulary).unwrap();
        let encoded = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(encoded.get_ids(), false).unwrap(), text);
        let tokens = Tokens::of(&tokenizer, text, "the text", 64).unwrap();
        assert_eq!(tokens.characters, 40_000);
        lengths.push(tokens.len());
    }
    assert_eq!(lengths[0], 40_000);
    assert!(lengths[1] < 25_000, "{lengths:?}");
}

/// The error text of a command that fails before any work.
fn command_error(arguments: &[&str]) -> String {
    let command = env!("CARGO_BIN_EXE_language_model");
    let output = std::process::Command::new(command).args(arguments).output();
    let output = output.unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn commands_refuse_what_they_cannot_do() {
    let temporary = tempfile::tempdir().unwrap();
    let empty = temporary.path().join("empty.txt");
    fs::write(&empty, "").unwrap();
    let out = temporary.path().join("out");
    let [empty, out] = [&empty, &out].map(|path| path.to_str().unwrap());
    let llama = fixture("llama");
    let llama = llama.to_str().unwrap();
    let cases: [(&[&str], &[&str]); 9] = [
        (
            &["evaluate", llama, "--context", "65"],
            &["65 tokens", "longest is 64"],
        ),
        (
            &["evaluate", llama, "--logits", out, "--windows", "100000"],
            &[
                "--windows '100000'; allowed: 1 to",
                "as many as the text has",
            ],
        ),
        (
            &["evaluate", llama, "--text", empty],
            &["empty.txt", "0 tokens"],
        ),
        (
            &["quantize", llama, "--text", empty],
            &["empty.txt", "0 tokens"],
        ),
        (
            &["quantize", llama, "--configs", "MXFP5"],
            &["MXFP5", "MXFP4E2M1", "_GPTQ_HESSIAN"],
        ),
        (
            &["quantize", llama, "--configs", "NVFP4_ADAROUND"],
            &["adaround", "or `adaquant`"],
        ),
        (
            &["generate", llama, "--prompt", ""],
            &["the prompt has 0 tokens"],
        ),
        (
            &["train", "--text", empty, "--out", out],
            &["empty.txt", "0 tokens"],
        ),
        (
            &[
                "export",
                llama,
                "--engine",
                "gguf",
                "--config",
                "MXFP8E4M3",
                "--out",
                out,
            ],
            &["--config", "for this engine: mxfp4"],
        ),
    ];
    for (arguments, parts) in cases {
        has(&command_error(arguments), parts);
    }
    assert!(!Path::new(out).exists());
}
