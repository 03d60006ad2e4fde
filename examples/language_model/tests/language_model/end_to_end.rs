//! A small model is trained, resumed, quantized, exported, and writes text.

use std::{fs, path::Path, sync::Mutex};

use burn::backend::flex::FlexDevice;
use burn::prelude::*;
use burn_mx::module::ColumnRanks;
use burn_mx::optim::OscillationReset;
use burn_mx::ptq::QuantConfig;
use burn_mx::{MxDevice, MxSpecs, Recipe, Slot};
use language_model::{
    Decoder, DecoderConfig, Error, Folder, RotaryConfig, RotaryScaling,
    evaluate::held_out,
    export::{Engine, export},
    folder,
    generate::{Choice, generate},
    quantize::{Scope, named, quantize, scoped},
    text,
    text::Tokens,
    train::{Curve, Data, Format, Training},
};
use tokenizers::Tokenizer;

use super::B;

fn device() -> MxDevice<FlexDevice> {
    MxDevice::new(FlexDevice, "none").unwrap()
}

fn config() -> DecoderConfig {
    DecoderConfig {
        model_type: "llama".into(),
        vocabulary: 256,
        width: 64,
        hidden: 96,
        experts: None,
        heads: 4,
        kv_heads: 2,
        head: 16,
        context: 32,
        epsilon: 1e-5,
        rotary: RotaryConfig {
            theta: 10_000.0,
            scaling: RotaryScaling::None,
        },
        is_tied: true,
        has_qkv_bias: false,
        has_output_bias: false,
        has_qk_norm: false,
        windows: vec![None; 2],
        special_tokens: DecoderConfig::no_special_tokens(),
    }
}

const TRAINING: Training = Training {
    batch: 8,
    steps: 200,
    learning_rate: 3e-3,
    interval: 100,
    seed: 3,
    window: None,
    reset: None,
    columns: ColumnRanks {
        start: 501,
        steps: 50,
        period: 0,
    },
};

/// A run that is stopped and goes on.
const STOPPED: Training = Training {
    steps: 60,
    interval: 30,
    ..TRAINING
};

/// Steps 16 to 25 and 29 to 38 rank columns: a run that is saved after 30 steps goes on within a window.
const RANKING: Training = Training {
    columns: ColumnRanks {
        start: 15,
        steps: 10,
        period: 13,
    },
    ..STOPPED
};

/// Runs that rank columns go one at a time: each sees the layers of all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// The specs of hot columns in a layer of this test's width.
const HOT_COLUMNS: &str = "hot_columns(chosen=fixed,percent=25,format=mxfp8_e4m3)";

/// A window of watched steps begins at step 26: the run is stopped within.
const RESETTING: Training = Training {
    reset: Some(OscillationReset {
        start: 0,
        period: 13,
        window: 10,
        threshold: 1.0,
    }),
    ..STOPPED
};

struct Corpus {
    tokenizer: Tokenizer,
    parts: [Tokens; 2],
}

impl Corpus {
    fn new() -> Self {
        let text = text::read(None).unwrap();
        let [train, validation] = text::split(&text[..200_000]);
        let tokenizer = text::train_tokenizer(train, 256).unwrap();
        let parts = [train, validation].map(|text| Tokens::of(&tokenizer, text, "it", 32).unwrap());
        Self { tokenizer, parts }
    }

    fn train(
        &self,
        settings: Training,
        format: &str,
        path: &Path,
        report: impl FnMut(usize, &Curve),
    ) -> Curve {
        let [training, validation] = &self.parts;
        let data = Data {
            training,
            validation,
            tokenizer: &self.tokenizer,
            tuning: None,
        };
        // `FORMAT+STATES`, `FORMAT+reset` or `FORMAT+ranks`
        let (name, states) = format.split_once('+').unwrap_or((format, "float32"));
        let format = Format::named("--formats", name).unwrap();
        let (format, settings) = match states {
            "reset" => (format, RESETTING),
            "columns" => (hot(&path.with_extension("recipes")), RANKING),
            "ranks" => {
                let ranks =
                    format.with_ranks("--communication", "sdp4bit_gradients+sdp4bit_weights", 4);
                (ranks.unwrap(), settings)
            }
            _ => {
                let format = match states.starts_with("muon") {
                    true => format.with_muon(),
                    false => format,
                };
                let states = format.with_states("--optimizer-states", states);
                (states.unwrap(), settings)
            }
        };
        let (_, curve) = settings
            .run(&config(), &format, data, path, report)
            .unwrap();
        curve
    }
}

/// A format with hot columns that are chosen by a window of steps.
fn hot(folder: &Path) -> Format {
    fs::create_dir_all(folder).unwrap();
    let file = folder.join("hot.json");
    let specs = MxSpecs {
        hot_columns: Some(HOT_COLUMNS.parse().unwrap()),
        ..MxSpecs::mxfp4()
    };
    let recipe = serde_json::json!({ "specs": specs });
    fs::write(&file, recipe.to_string()).unwrap();
    Format::named("--formats", file.to_str().unwrap()).unwrap()
}

fn logits(model: &Decoder<B>, tokens: &Tensor<B, 2, Int>) -> Vec<f32> {
    model.forward(tokens.clone()).into_data().to_vec().unwrap()
}

/// A run that is stopped and goes on has the bits of one that is not, and other settings are refused.
#[test]
fn a_resumed_run_is_the_same() {
    assert_eq!(resume("mxfp8_e4m3"), None);
}

/// Also one whose optimizer rounds its states stochastically.
#[test]
fn a_resumed_run_with_packed_states_is_the_same() {
    assert_eq!(resume("fp32+bfloat16_stochastic"), None);
}

/// Also one whose matrices have Muon with a momentum of 4 bits, split by a power iteration.
#[test]
fn a_resumed_run_with_muon_is_the_same() {
    assert_eq!(resume("mxfp8_e4m3+muonq"), None);
}

/// Also one that resets oscillating weights.
#[test]
fn a_resumed_run_with_resets_is_the_same() {
    let resets = resume("mxfp4+reset");
    assert!(resets.is_some_and(|resets| resets > 0), "{resets:?}");
}

/// Also one on ranks whose random numbers depend on earlier exchanges.
#[test]
fn a_resumed_run_on_ranks_is_the_same() {
    assert_eq!(resume("fp32+ranks"), None);
}

/// Also one that is stopped within a window that ranks columns.
#[test]
fn a_resumed_run_with_hot_columns_is_the_same() {
    let _alone = ALONE.lock();
    assert_eq!(resume("mxfp4+columns"), None);
}

/// Returns the number of weights that were reset.
fn resume(name: &str) -> Option<u64> {
    let corpus = Corpus::new();
    let temporary = tempfile::tempdir().unwrap();
    let [whole, stopped] = ["whole", "stopped"].map(|name| temporary.path().join(name));
    let curve = corpus.train(STOPPED, name, &whole, |step, _| {
        if step == 45 {
            // The files of a run that is killed here.
            fs::create_dir(&stopped).unwrap();
            for file in fs::read_dir(&whole).unwrap() {
                let file = file.unwrap().path();
                fs::copy(&file, stopped.join(file.file_name().unwrap())).unwrap();
            }
        }
    });
    let mut steps = Vec::new();
    let resumed = corpus.train(STOPPED, name, &stopped, |step, _| steps.push(step));
    assert_eq!(steps, (31..=60).collect::<Vec<_>>());
    assert_eq!(
        (curve.training, curve.validation, curve.resets),
        (resumed.training, resumed.validation, resumed.resets)
    );
    let [one, other] =
        [&whole, &stopped].map(|path| fs::read(path.join("model.safetensors")).unwrap());
    assert!(one == other);
    let [training, validation] = &corpus.parts;
    let data = Data {
        training,
        validation,
        tokenizer: &corpus.tokenizer,
        tuning: None,
    };
    let other = Training {
        learning_rate: 1e-3,
        ..STOPPED
    };
    let format = Format::named("--formats", "mxfp8_e4m3").unwrap();
    let refused = other.run(&config(), &format, data, &whole, |_, _| ());
    assert!(refused.is_err_and(|error| error.to_string().contains("the same settings")));
    curve.resets
}

/// Formats start from the same weights: the first losses are alike, and each format learns.
#[test]
fn a_trained_model_is_quantized_exported_and_writes() {
    let corpus = Corpus::new();
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("fp32");
    let curve = corpus.train(TRAINING, "fp32", &path, |_, _| ());
    let losses: Vec<f32> = curve.validation.iter().map(|(_, loss)| *loss).collect();
    assert!(losses[1] < losses[0] && losses[1] < 3.0, "{losses:?}");

    let source = Folder::open(&path).unwrap();
    let device = device();
    let float = source.load::<B>(&device).unwrap();
    let [training, validation] = &corpus.parts;
    let held_out = |model: &Decoder<B>| held_out(model, validation.in_order([64, 32], &device));
    let all = held_out(&float);
    // Of 240 windows and of all.
    assert!((all - losses[1]).abs() < 0.05, "{all} {losses:?}");

    let calibration = training.windows::<B>([64, 32], 0, &device).split(32, 0);
    let quantized = |name: &str, scope| {
        let config = named(name, scope, &config()).unwrap();
        quantize(float.clone(), config, &calibration, None, |_, _| ()).unwrap()
    };
    let probe = validation.windows::<B>([4, 32], 1, &device);
    let wanted = logits(&float, &probe);
    let error = |model: &Decoder<B>| -> f32 {
        let got = logits(model, &probe);
        got.iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum()
    };
    for name in ["MXFP4E2M1", "NVFP4"] {
        let nearest = quantized(name, Scope::Weights).model;
        let gptq = quantized(&format!("{name}_GPTQ"), Scope::Weights);
        assert_eq!(gptq.gptq.len(), 14);
        let better = gptq
            .gptq
            .iter()
            .filter(|layer| layer.error < layer.error_nearest);
        assert!(better.count() >= 13, "{:?}", gptq.gptq);
        let gptq = gptq.model;
        let errors = [error(&gptq), error(&nearest)];
        assert!(errors[0] < errors[1], "{name}: {errors:?}");
        let mr_gptq = held_out(&quantized(&format!("{name}_MRGPTQ"), Scope::Dynamic).model);
        assert!(mr_gptq < all + 0.3, "{name}: {mr_gptq}");
    }

    let rotated = ["MXFP4E2M1_QUAROT", "MXFP4E2M1_QUAROT_GPTQ"];
    let rotated = rotated.map(|name| error(&quantized(name, Scope::Weights).model));
    assert!(rotated[1] < rotated[0], "{rotated:?}");

    // The formats of a recipe, layer by layer; other layers have the formats of its specs.
    let down = "model.layers.0.mlp.down_proj.weight";
    let by_recipe = |layers: &str, method: &str| {
        let json = format!(
            r#"{{"specs": {{"w_elem_format": "mxfp8_e4m3", "a_elem_format": "mxfp4"}}, "layers": {{{layers}}}}}"#
        );
        let recipe: Recipe = serde_json::from_str(&json).unwrap();
        let config = QuantConfig::from_recipe(recipe).unwrap();
        let config = scoped(config.with_method(method).unwrap(), Scope::Weights).unwrap();
        quantize(float.clone(), config, &calibration, None, |_, _| ())
    };
    let in_mxfp4 = format!(r#""{down}": {{"w_elem_format": "mxfp4"}}"#);
    let uniform = quantized("MXFP8E4M3", Scope::Weights).model;
    assert_eq!(
        logits(&by_recipe("", "").unwrap().model, &probe),
        logits(&uniform, &probe)
    );
    let mixed = by_recipe(&in_mxfp4, "").unwrap();
    // 64 · 96 of 2 · (2 · 64 · 64 + 2 · 64 · 32 + 3 · 64 · 96) weights lose 4 bits.
    let share = 6144.0 / 61_440.0;
    assert!((mixed.weight_bits() - (8.25 - 4.0 * share)).abs() < 1e-9);
    assert!(error(&mixed.model) > error(&uniform));
    assert_eq!(by_recipe(&in_mxfp4, "_GPTQ").unwrap().gptq.len(), 14);
    let head = by_recipe(r#""lm_head.weight": {"w_elem_format": "mxfp4"}"#, "");
    assert!(head.is_err_and(|error| {
        error
            .to_string()
            .contains("`lm_head.weight` matches no layer")
    }));

    for (name, engine) in [
        ("MXFP4E2M1_GPTQ", Engine::CompressedTensors),
        ("NVFP4_GPTQ", Engine::ModelOpt),
        ("MXFP8E4M3", Engine::CompressedTensors),
    ] {
        let model = quantized(name, Scope::Weights).model;
        let out = temporary.path().join(name);
        let format = named(name, Scope::Weights, &config())
            .unwrap()
            .specs
            .resolve()
            .unwrap();
        let layout = engine
            .layout(format.block_format(Slot::W).unwrap())
            .unwrap();
        export(&out, &source, &model, layout).unwrap();
        let config: serde_json::Value =
            serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
        assert!(config["quantization_config"].is_object(), "{name}");
        let again = Folder::open(&out).unwrap().load::<B>(&device).unwrap();
        assert_eq!(logits(&model, &probe), logits(&again, &probe), "{name}");
    }
    let refused = Engine::Gguf.layout("nvfp4".parse().unwrap());
    assert!(matches!(refused, Err(Error::Option { .. })));

    let prompt = source.tokenizer.encode("And the ", false).unwrap();
    let write = |count, choice| {
        let mut tokens = Vec::new();
        let prompt = (prompt.get_ids(), count);
        let done = generate(&float, prompt, 32, choice, None, |token| tokens.push(token));
        done.map(|()| source.tokenizer.decode(&tokens, false).unwrap())
    };
    let greedy = write(25, Choice::Greedy).unwrap();
    let sampled = Choice::Sampled {
        temperature: 0.8,
        top: Some(20),
        seed: 1,
    };
    assert_eq!(write(25, sampled).unwrap(), write(25, sampled).unwrap());
    let corpus = text::read(None).unwrap();
    let words: Vec<&str> = corpus.split_whitespace().collect();
    let mut written = greedy.split_whitespace();
    assert!(written.any(|word| words.contains(&word)), "{greedy}");
    let refused = write(26, Choice::Greedy);
    assert!(matches!(
        refused,
        Err(Error::Context {
            asked: 33,
            longest: 32
        })
    ));
}

/// Also with a transform in the forward product, which no packed weight can have. In its format the folder's model predicts as the trained
/// one does, whose head is exempt in one format.
#[test]
fn a_folder_has_the_model_that_was_trained() {
    let _alone = ALONE.lock();
    let corpus = Corpus::new();
    let [training, validation] = &corpus.parts;
    for name in ["mxfp4", "quartet", "columns"] {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join(name);
        let data = Data {
            training,
            validation,
            tokenizer: &corpus.tokenizer,
            tuning: None,
        };
        let short = Training {
            steps: 2,
            interval: 2,
            columns: ColumnRanks {
                start: 0,
                steps: 1,
                period: 0,
            },
            ..TRAINING
        };
        let format = match name {
            "columns" => hot(temporary.path()),
            name => Format::named("--formats", name).unwrap(),
        };
        let run = short.run(&config(), &format, data, &path, |_, _| ());
        let (trained, _) = run.unwrap();
        let source = Folder::open(&path).unwrap();
        let predicting = format.load(&source).unwrap();
        let [one, other] = [&trained, &predicting].map(|model| {
            let device = format.device().unwrap();
            held_out(model, validation.windows([16, 32], 1, &device).split(16, 0))
        });
        assert_eq!(one, other, "{name}");
        let loaded = source.load::<B>(&device()).unwrap();
        let [trained, loaded] = [&trained, &loaded].map(|model| {
            let mlp = model.model.layers[1].mlp.as_ref().unwrap();
            mlp.down_proj.weight().into_data()
        });
        loaded.assert_eq(&trained, true);
    }
}

/// The frame of llama.cpp's file. The Python package `gguf` read the rest in a comparison by hand.
#[test]
fn a_gguf_file_has_all_tensors() {
    let temporary = tempfile::tempdir().unwrap();
    let corpus = Corpus::new();
    let device = device();
    let model = config().init::<B>(&device);
    folder::save(temporary.path(), &config(), &corpus.tokenizer, &model).unwrap();
    let source = Folder::open(temporary.path()).unwrap();
    let config = named("MXFP4E2M1", Scope::Weights, &config()).unwrap();
    let quantized = quantize(model, config, &[], None, |_, _| ()).unwrap().model;
    let layout = Engine::Gguf.layout("mxfp4".parse().unwrap()).unwrap();
    let file = temporary.path().join("model.gguf");
    export(&file, &source, &quantized, layout).unwrap();
    let bytes = fs::read(file).unwrap();
    assert_eq!(bytes[..8], *b"GGUF\x03\0\0\0");
    // The table, the last norm, and for each layer seven matrices and two norms.
    assert_eq!(bytes[8..16], 20_u64.to_le_bytes());
    let has = |name: &str| {
        bytes
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    assert!(has("blk.1.ffn_down.weight") && has("tokenizer.ggml.tokens"));
    let matrices = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96);
    let rest = 4 * (256 * 64 + 5 * 64);
    let least = matrices / 32 * 17 + rest;
    assert!(
        (least..least + 16_384).contains(&bytes.len()),
        "{least} {}",
        bytes.len()
    );
}
