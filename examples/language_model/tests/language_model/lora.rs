//! Adapters on frozen packed weights: trained, killed and resumed, merged, evaluated.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use burn_mx::checkpoint::packed_weights;
use microscaling::{BlockFormat, Packed, Rounder};
use safetensors::SafeTensors;
use serde_json::Value;

use super::tuning::run;

pub(super) const TRAIN: &str = "train --text text.txt --batch 4 --interval 5";

/// A folder with a text, and a small model that was trained in float32.
pub(super) fn trained() -> tempfile::TempDir {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let text = language_model::text::read(None).unwrap();
    fs::write(folder.join("text.txt"), &text[..12_000]).unwrap();
    let model = "--layers 1 --width 32 --heads 2 --kv-heads 1 --context 16 --steps 20 --lr 0.01";
    run(
        folder,
        &format!("{TRAIN} {model} --formats fp32 --out float"),
    )
    .unwrap();
    temporary
}

pub(super) fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn floats(file: &[u8], name: &str) -> Vec<f64> {
    let file = SafeTensors::deserialize(file).unwrap();
    let tensor = file.tensor(name).unwrap();
    let numbers = tensor.data().as_chunks::<4>().0.iter();
    numbers
        .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
        .collect()
}

fn bfloat16(x: f64) -> f32 {
    let bits = (x as f32).to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// In MXFP4 as a forward product of the preset quantizes a weight.
fn pack(weight: &[f64], shape: [usize; 2]) -> Packed {
    let rounded: Vec<f32> = weight.iter().map(|x| bfloat16(*x)).collect();
    let format: BlockFormat = "mxfp4".parse().unwrap();
    Packed::encode(format, &rounded, &shape, 1, Rounder::NearestEven).unwrap()
}

/// Starts a training run, and kills the process after the first steps that it saves in `run`.
fn kill_after_first_save(folder: &Path, arguments: &str, run: &Path) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_language_model"))
        .current_dir(folder)
        .args(arguments.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !run.join("progress.json").exists() && child.try_wait().unwrap().is_none() {
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn adapters_are_trained_resumed_and_merged() {
    let temporary = trained();
    let folder = temporary.path();
    let command = format!(
        "{TRAIN} --from float/fp32 --formats mxfp4 --qat --lora 4 --alpha 12 --dora --lr 0.1 --steps 20"
    );
    let text = run(folder, &format!("{command} --out whole")).unwrap();
    let whole = folder.join("whole/mxfp4-qat-dora");

    // Killed after the first steps that were saved.
    let stopped = folder.join("stopped/mxfp4-qat-dora");
    kill_after_first_save(folder, &format!("{command} --out stopped"), &stopped);
    assert!(!stopped.join("model.safetensors").exists());
    let lines = run(folder, &format!("{command} --out stopped")).unwrap();
    assert!(
        !lines.contains("step 5:") && lines.contains("step 20:"),
        "{lines}"
    );
    for file in ["model.safetensors", "adapter/adapter_model.safetensors"] {
        let [one, other] = [&whole, &stopped].map(|run| fs::read(run.join(file)).unwrap());
        assert!(one == other, "{file}");
    }
    let curve = |out: &str| json(&folder.join(out).join("loss.json"))["mxfp4-qat-dora"].clone();
    let (curve, resumed) = (curve("whole"), curve("stopped"));
    for part in ["training", "validation", "merge"] {
        assert_eq!(curve[part], resumed[part]);
    }
    let losses = curve["validation"].as_array().unwrap();
    let loss = |point: &Value| point[1].as_f64().unwrap();
    assert!(loss(&losses[3]) < loss(&losses[0]) - 0.01, "{losses:?}");

    // The merge, computed anew from the float model and the adapters.
    let float = fs::read(folder.join("float/fp32/model.safetensors")).unwrap();
    let adapters = fs::read(whole.join("adapter/adapter_model.safetensors")).unwrap();
    let merged = packed_weights(whole.join("model.safetensors")).unwrap();
    let settings = json(&whole.join("adapter/adapter_config.json"));
    assert_eq!(
        (
            &settings["r"],
            &settings["lora_alpha"],
            &settings["use_dora"]
        ),
        (&4.into(), &12.0.into(), &true.into())
    );
    let layers = settings["target_modules"].as_array().unwrap();
    assert_eq!((layers.len(), merged.len()), (7, 7));
    let (mut largest, mut worst): (f64, f64) = (0.0, 0.0);
    for layer in layers {
        let layer = layer.as_str().unwrap();
        let weight = format!("{layer}.weight");
        let shape = [merged[&weight].shape()[0], merged[&weight].shape()[1]];
        let base = pack(&floats(&float, &weight), shape).decode();
        let part = |part: &str| floats(&adapters, &format!("base_model.model.{layer}.{part}"));
        let (a, b) = (part("lora_A.weight"), part("lora_B.weight"));
        let magnitude = part("lora_magnitude_vector");
        let sum = |out: usize, i: usize| {
            let products = (0..4).map(|r| b[out * 4 + r] * a[r * shape[1] + i]);
            f64::from(base[out * shape[1] + i]) + 3.0 * products.sum::<f64>()
        };
        let rows = (0..shape[0]).flat_map(|out| {
            let row: Vec<f64> = (0..shape[1]).map(|i| sum(out, i)).collect();
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            let factor = magnitude[out] / norm;
            row.into_iter().map(move |x| x * factor)
        });
        let rows: Vec<f64> = rows.collect();
        let (own, wanted) = (merged[&weight].decode(), pack(&rows, shape).decode());
        let same = own.iter().zip(&wanted).filter(|(x, y)| x == y).count();
        assert!(same as f64 >= 0.999 * own.len() as f64, "{layer}: {same}");
        assert!(own != base, "{layer}");
        let differences = own.iter().zip(&rows).map(|(x, y)| f64::from(*x) - y);
        let squares: f64 = differences.clone().map(|x| x * x).sum();
        largest = differences.fold(largest, |largest, x| largest.max(x.abs()));
        worst = worst.max(squares / rows.iter().map(|x| x * x).sum::<f64>());
    }
    let merge = &curve["merge"];
    for (field, wanted) in [("largest", largest), ("relative_squared", worst)] {
        let got = merge[field].as_f64().unwrap();
        assert!(
            (got - wanted).abs() < 1e-4 * wanted,
            "{field}: {got} {wanted}"
        );
    }
    assert!(text.contains("adapters of 7 layers are merged"), "{text}");

    // The folder has the merged model, which the table has.
    let score = run(
        folder,
        "evaluate whole/mxfp4-qat-dora --format mxfp4 --text text.txt",
    );
    let score = score.unwrap();
    let loss = score.split(' ').nth(1).unwrap();
    assert!(
        text.contains(&format!("| mxfp4-qat-dora | {loss} |")),
        "{text}{score}"
    );

    // The adapters beside their base predict better than the base, and fit no other layers.
    let evaluate = |adapter: &str| {
        let model = "evaluate float/fp32 --format mxfp4 --text text.txt";
        run(folder, &format!("{model}{adapter}"))
    };
    let loss = |adapter: &str| {
        let score = evaluate(adapter).unwrap();
        score.split(' ').nth(1).unwrap().parse::<f64>().unwrap()
    };
    assert!(loss(" --adapter whole/mxfp4-qat-dora/adapter") < loss("") - 0.01);
    let other = folder.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("adapter_model.safetensors"), &adapters).unwrap();
    for (field, value, expected) in [
        (
            "r",
            2.into(),
            "lora_A.weight is [4, 32]; the layer has [2, 32]",
        ),
        (
            "use_dora",
            false.into(),
            "the model has no layer for model.layers.0.mlp.down_proj.lora_magnitude_vector",
        ),
        ("peft_type", "IA3".into(), "is not of LoRA or DoRA"),
        ("r", 999.into(), "rank is 999"),
    ] {
        let mut settings = settings.clone();
        settings[field] = value;
        fs::write(other.join("adapter_config.json"), settings.to_string()).unwrap();
        let error = evaluate(" --adapter other").unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    // Its packed weights are the next base.
    let next = format!("{TRAIN} --from whole/mxfp4-qat-dora --lora 2 --steps 1 --lr 1e-12");
    run(folder, &format!("{next} --formats mxfp4 --out next")).unwrap();
    let next_weights = packed_weights(folder.join("next/mxfp4-lora/model.safetensors")).unwrap();
    for (name, weight) in &merged {
        let decoded = next_weights[name].decode();
        assert!(
            decoded
                .iter()
                .zip(weight.decode())
                .all(|(x, y)| (x - y).abs() < 1e-6)
        );
    }
    let error = run(folder, &format!("{next} --formats nvfp4 --out no")).unwrap_err();
    assert!(
        error.contains("packed as mxfp4, and its specs quantize it to nvfp4"),
        "{error}"
    );
    assert!(!folder.join("no").exists());

    // Layers that engines fuse have one tensor scale.
    let tune = format!("{TRAIN} --from float/fp32 --formats nvfp4 --lora 2 --steps 2 --lr 1");
    run(folder, &format!("{tune} --out fused")).unwrap();
    let weights = packed_weights(folder.join("fused/nvfp4-lora/model.safetensors")).unwrap();
    let scale = |name: &str| {
        let weight = &weights[&format!("model.layers.0.{name}_proj.weight")];
        weight.tensor_scale().unwrap()
    };
    let attention = ["q", "k", "v"].map(|name| scale(&format!("self_attn.{name}")));
    assert!(attention == [attention[0]; 3], "{attention:?}");
    assert!(scale("mlp.gate") == scale("mlp.up") && scale("mlp.gate") != scale("mlp.down"));
}

/// Layers have their own formats: an exempt one stays frozen in float32, and a resumed adapter keeps the format of its layer.
#[test]
fn layers_of_a_recipe() {
    let temporary = trained();
    let folder = temporary.path();
    let recipe = serde_json::json!({
        "specs": burn_mx::MxSpecs::mxfp4().straight_through(),
        "layers": {
            "model.layers.0.mlp.down_proj": burn_mx::MxSpecs::mxfp8_e4m3().straight_through(),
            "model.layers.0.self_attn.o_proj": burn_mx::MxSpecs::none(),
        },
    });
    fs::write(folder.join("mixed.json"), recipe.to_string()).unwrap();
    let command = format!("{TRAIN} --from float/fp32 --formats mixed.json --lora 4 --lr 0.1");
    run(folder, &format!("{command} --steps 10 --out whole")).unwrap();
    let whole = folder.join("whole/mixed-lora");
    let stopped = folder.join("stopped/mixed-lora");
    fs::create_dir_all(&stopped).unwrap();
    // The files after 5 steps of the same run.
    kill_after_first_save(
        folder,
        &format!("{command} --steps 10 --out stopped"),
        &stopped,
    );
    run(folder, &format!("{command} --steps 10 --out stopped")).unwrap();
    let [one, other] =
        [&whole, &stopped].map(|run| fs::read(run.join("model.safetensors")).unwrap());
    assert!(one == other);
    let weights = packed_weights(whole.join("model.safetensors")).unwrap();
    assert_eq!(weights.len(), 6);
    let format = |name: &str| {
        weights[&format!("model.layers.0.{name}.weight")]
            .format()
            .to_string()
    };
    assert_eq!(format("mlp.down_proj"), "mxfp8_e4m3");
    assert_eq!(format("mlp.up_proj"), "mxfp4");
    let float = fs::read(folder.join("float/fp32/model.safetensors")).unwrap();
    let name = "model.layers.0.self_attn.o_proj.weight";
    assert_eq!(floats(&one, name), floats(&float, name));
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let temporary = trained();
    let folder = temporary.path();
    let from = "--from float/fp32 --formats mxfp4";
    for (arguments, parts) in [
        ("--formats mxfp4 --lora 4", ["--lora", "--from"]),
        (&format!("{from} --alpha 8"), ["--alpha", "--lora"]),
        (&format!("{from} --dora"), ["--dora", "--lora"]),
        (
            &format!("{from} --lora 0"),
            ["--lora '0'", "allowed: 1 to 16"],
        ),
        (
            &format!("{from} --lora 17"),
            ["--lora '17'", "1 to 16, the smallest side"],
        ),
        (
            &format!("{from} --lora 4 --alpha nan"),
            ["--alpha 'NaN'", "a finite number"],
        ),
        (
            "--from float/fp32 --formats mxfp4 fp32 --lora 4",
            ["--lora '4'", "'fp32-lora' has none"],
        ),
        (
            "--from float/fp32 --formats quartet --lora 4",
            ["quartet-lora", "hadamard_forward"],
        ),
    ] {
        let error = run(folder, &format!("{TRAIN} {arguments} --steps 1 --out no")).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{arguments}: {error}");
        }
        assert!(!folder.join("no").exists(), "{arguments}");
    }

    // The base of a run was replaced by another model.
    let tune = format!("{TRAIN} {from} --lora 4 --steps 5 --out tuned");
    run(folder, &tune).unwrap();
    let model = "--layers 1 --width 32 --heads 2 --kv-heads 1 --context 16 --steps 1 --seed 9";
    run(
        folder,
        &format!("{TRAIN} {model} --formats fp32 --out other"),
    )
    .unwrap();
    let files = ["other", "float"].map(|out| folder.join(out).join("fp32/model.safetensors"));
    fs::copy(&files[0], &files[1]).unwrap();
    let before = fs::read(folder.join("tuned/mxfp4-lora/model.safetensors")).unwrap();
    let error = run(folder, &tune).unwrap_err();
    assert!(
        error.contains("the record's adapter belongs to a packed weight"),
        "{error}"
    );
    let after = fs::read(folder.join("tuned/mxfp4-lora/model.safetensors")).unwrap();
    assert!(before == after);
}
