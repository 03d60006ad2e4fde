//! Mixtures of experts: which formats they get, and experts that no token chooses.

use std::{fs, process::Command};

use burn::backend::Flex;
use burn::prelude::*;
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs, ResolvedSpecs, module::specs_of};
use language_model::{DecoderConfig, Folder, balance_loss, train::Format};
use safetensors::{Dtype, SafeTensors};

use super::fixture;
use super::transformers::{difference, reference, values};

/// The formats of the router and of each expert of a layer, by a name of a preset or the path of a recipe.
fn formats(format: &str) -> (Option<ResolvedSpecs>, Vec<Option<ResolvedSpecs>>) {
    let format = Format::named("--formats", format).unwrap();
    let model = format.load(&Folder::open(fixture("mixtral")).unwrap());
    let layer = &model.unwrap().model.layers[1];
    let experts = layer.block_sparse_moe.as_ref().unwrap();
    let of_experts = experts.experts.iter();
    let of_experts = of_experts.map(|expert| specs_of(&expert.w1.weight()));
    (specs_of(&experts.gate.weight.val()), of_experts.collect())
}

fn resolved(specs: MxSpecs) -> Option<ResolvedSpecs> {
    Some(specs.resolve().unwrap())
}

#[test]
fn routers_stay_in_float32_unless_a_recipe_names_them() {
    let (router, experts) = formats("mxfp4");
    assert_eq!(router, resolved(MxSpecs::none()));
    assert_eq!(experts, vec![resolved(MxSpecs::mxfp4()); 5]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recipe.json");
    let recipe = serde_json::json!({
        "specs": MxSpecs::mxfp8_e4m3(),
        "layers": {
            "model.layers.*.block_sparse_moe.gate.weight": MxSpecs::mxfp8_e4m3(),
            "model.layers.*.block_sparse_moe.experts.2.*": MxSpecs::mxfp4(),
        },
    });
    fs::write(&file, recipe.to_string()).unwrap();
    let (router, experts) = formats(file.to_str().unwrap());
    assert_eq!(router, resolved(MxSpecs::mxfp8_e4m3()));
    let mut wanted = vec![resolved(MxSpecs::mxfp8_e4m3()); 5];
    wanted[2] = resolved(MxSpecs::mxfp4());
    assert_eq!(experts, wanted);
}

/// Each token alone gives the logits that it has among others; two of five experts compute one token, so three are empty.
#[test]
fn experts_without_tokens_compute_nothing() {
    type B = MxAutodiff<Flex>;
    let folder = Folder::open(fixture("mixtral")).unwrap();
    let device = MxDevice::new(Default::default(), MxSpecs::mxfp4()).unwrap();
    let model = folder.load::<B>(&device).unwrap();
    let tokens = Tensor::<B, 2, Int>::from_data([[7, 3]], &device);
    // The first token alone passes the layers; the second one is its target.
    let gradients = model.loss(tokens).backward();
    let experts = &model.model.layers[0].block_sparse_moe.as_ref().unwrap();
    let has_gradient = experts.experts.iter().map(|expert| {
        let gradient = expert.w2.weight().grad(&gradients);
        gradient.is_some_and(|gradient| gradient.abs().max().into_scalar() > 0.0)
    });
    assert_eq!(has_gradient.filter(|has| *has).count(), 2);
    assert!(experts.gate.weight.grad(&gradients).is_some());

    let (tokens, _) = reference("mixtral");
    let model = folder
        .load::<MxBackend<Flex>>(&MxDevice::default())
        .unwrap();
    let all = model.forward(tokens.clone()).slice([0..1, 0..1]);
    let first = model.forward(tokens.slice([0..1, 0..1]));
    assert_eq!(values(all), values(first));
}

type Training = MxAutodiff<Flex>;

/// The balance and its gradient for the logits of all tokens, written out in float64.
fn written_out(logits: &[Vec<f32>], per_token: usize) -> (f64, Vec<f64>) {
    let (tokens, experts) = (logits.len() as f64, logits[0].len());
    let mut shares = vec![0.0; experts];
    let mut probabilities = Vec::new();
    for row in logits {
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        order[..per_token]
            .iter()
            .for_each(|expert| shares[*expert] += 1.0 / tokens);
        let exponentials: Vec<f64> = row.iter().map(|x| f64::from(*x).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        probabilities.push(exponentials.iter().map(|x| x / sum).collect::<Vec<_>>());
    }
    let weighted = |row: &Vec<f64>| row.iter().zip(&shares).map(|(p, f)| p * f).sum::<f64>();
    let sum: f64 = probabilities.iter().map(weighted).sum();
    let factor = experts as f64 / tokens;
    let gradient = probabilities.iter().flat_map(|row| {
        let mean = weighted(row);
        let both: Vec<_> = row.iter().zip(&shares).collect();
        both.into_iter().map(move |(p, f)| factor * p * (f - mean))
    });
    let gradient = gradient.collect();
    (factor * sum, gradient)
}

#[test]
fn the_balance_equals_a_written_out_one() {
    for (layers, tokens, experts, per_token) in
        [(1, 1, 1, 1), (1, 7, 4, 2), (3, 20, 5, 1), (2, 9, 8, 8)]
    {
        // The formats of a device do not reach the loss.
        let device = MxDevice::new(Default::default(), MxSpecs::mxfp4()).unwrap();
        let number = |at: usize| ((at * 7919 % 1009) as f32 / 1009.0 - 0.5) * 6.0;
        let numbers: Vec<f32> = (0..layers * tokens * experts).map(number).collect();
        let logits: Vec<Tensor<Training, 2>> = (numbers.chunks(tokens * experts))
            .map(|layer| {
                let data = TensorData::new(layer.to_vec(), [tokens, experts]);
                Tensor::from_data(data, &device).require_grad()
            })
            .collect();
        let loss = balance_loss(logits.clone(), per_token);
        let rows: Vec<Vec<f32>> = numbers.chunks(experts).map(<[f32]>::to_vec).collect();
        let (wanted, gradient) = written_out(&rows, per_token);
        let got = f64::from(loss.clone().into_scalar());
        assert!((got / wanted - 1.0).abs() < 1e-6, "{got} {wanted}");
        let gradients = loss.backward();
        let got = logits
            .iter()
            .map(|layer| values(layer.grad(&gradients).unwrap()));
        let got: Vec<f32> = got.collect::<Vec<_>>().concat();
        for (got, wanted) in got.iter().zip(&gradient) {
            assert!((f64::from(*got) - wanted).abs() < 1e-7, "{got} {wanted}");
        }
    }
}

#[test]
fn the_balance_and_its_gradients_are_those_of_transformers() {
    let bytes = fs::read(fixture("mixtral").join("balance.bin")).unwrap();
    let wanted = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x));
    let wanted: Vec<f32> = wanted.collect();
    let folder = Folder::open(fixture("mixtral")).unwrap();
    let model = folder.load::<Training>(&MxDevice::default()).unwrap();
    let (tokens, _) = reference("mixtral");
    let tokens = Tensor::from_data(tokens.into_data(), &MxDevice::default());
    let (_, routed) = model.forward_routed(tokens);
    let loss = balance_loss(routed, 2);
    let value = loss.clone().into_scalar();
    assert!(
        (value / wanted[0] - 1.0).abs() < 1e-5,
        "{value} {}",
        wanted[0]
    );
    let gradients = loss.backward();
    let of_layers = model.model.layers.iter().map(|layer| {
        let gate = &layer.block_sparse_moe.as_ref().unwrap().gate;
        values(gate.weight.grad(&gradients).unwrap().transpose())
    });
    let of_layers = of_layers.collect::<Vec<_>>().concat();
    let difference = difference(&of_layers, &wanted[1..]);
    assert!(difference < 1e-4, "{difference:.1e}");
}

/// The factor is in the config as transformers has it, and the term in the training loss alone.
#[test]
fn the_factor_of_the_balance_is_transformers() {
    let json = fs::read_to_string(fixture("mixtral").join("config.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let with = |fields: serde_json::Value| {
        let mut json = json.clone();
        for (name, value) in fields.as_object().unwrap() {
            json[name] = value.clone();
        }
        DecoderConfig::from_json(&json.to_string())
    };
    let factor = |fields| with(fields).unwrap().experts.unwrap().balance;
    assert_eq!(factor(serde_json::json!({})), 0.0);
    let on = serde_json::json!({"output_router_logits": true});
    assert_eq!(factor(on), 0.001);
    let on = serde_json::json!({"output_router_logits": true, "router_aux_loss_coef": null});
    assert_eq!(factor(on), 0.001);
    let half = serde_json::json!({"output_router_logits": true, "router_aux_loss_coef": 0.5});
    let config = with(half).unwrap();
    assert_eq!(
        DecoderConfig::from_json(&config.to_json().to_string()).unwrap(),
        config
    );
    let error = with(serde_json::json!({"router_aux_loss_coef": -1.0})).unwrap_err();
    let error = error.to_string();
    for part in ["router_aux_loss_coef", "-1", "0, or a positive number"] {
        assert!(error.contains(part), "{error}");
    }

    let device = MxDevice::default();
    let tokens = || Tensor::<Training, 2, Int>::from_data([[7, 3, 9, 11], [1, 2, 3, 4]], &device);
    let folder = Folder::open(fixture("mixtral")).unwrap();
    let mut model = folder.load::<Training>(&device).unwrap();
    let plain = model.loss(tokens()).into_scalar();
    assert_eq!(
        model.training_loss(tokens()).into_scalar().to_bits(),
        plain.to_bits()
    );
    for layer in &mut model.model.layers {
        layer.block_sparse_moe.as_mut().unwrap().balance = 0.5;
    }
    assert_eq!(
        model.loss(tokens()).into_scalar().to_bits(),
        plain.to_bits()
    );
    let inputs = tokens().narrow(1, 0, 3);
    let balance = balance_loss(model.forward_routed(inputs).1, 2).into_scalar();
    let whole = model.training_loss(tokens()).into_scalar();
    assert!(
        (whole - plain - 0.5 * balance).abs() < 1e-5,
        "{whole} {plain} {balance}"
    );
}

#[test]
fn a_mixture_trains_in_formats_and_loads_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_language_model"))
            .current_dir(folder.path())
            .args(arguments.split(' '))
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    };
    let text = language_model::text::read(None).unwrap();
    fs::write(folder.path().join("text.txt"), &text[..60_000]).unwrap();
    let model =
        "--layers 1 --width 32 --heads 2 --context 16 --text text.txt --steps 20 --interval 20";
    let (success, text) = run(&format!(
        "train {model} --experts 4 --balance 0.02 --formats fp32 mxfp4 --out trained"
    ));
    assert!(success, "{text}");
    for (options, part) in [
        ("--experts 4 --balance NaN", "--balance"),
        ("--experts 4 --balance -1", "router_aux_loss_coef"),
        ("--balance 1", "--experts"),
    ] {
        let (success, text) = run(&format!("train {model} {options} --out wrong"));
        assert!(!success && text.contains(part), "{options}: {text}");
    }
    for format in ["fp32", "mxfp4"] {
        let trained = Folder::open(folder.path().join("trained").join(format)).unwrap();
        let experts = trained.config.experts.clone().unwrap();
        assert_eq!((experts.count, experts.per_token), (4, 2));
        assert_eq!(experts.balance, 0.02);
        trained
            .load::<MxBackend<Flex>>(&MxDevice::default())
            .unwrap();
    }
    // Routers stay float32 for engines, too.
    let (success, text) =
        run("export trained/fp32 --engine compressed-tensors --config NVFP4 --out packed");
    assert!(success, "{text}");
    let file = fs::read(folder.path().join("packed/model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let layer = "model.layers.0.block_sparse_moe";
    let types = [
        ("gate.weight", Dtype::F32),
        ("experts.3.w2.weight_packed", Dtype::U8),
    ];
    for (name, dtype) in types {
        let tensor = tensors.tensor(&format!("{layer}.{name}")).unwrap();
        assert_eq!(tensor.dtype(), dtype, "{name}");
    }
    let config = fs::read_to_string(folder.path().join("packed/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let ignored = config["quantization_config"]["ignore"].as_array().unwrap();
    assert!(
        ignored.contains(&format!("{layer}.gate").into()),
        "{ignored:?}"
    );
    let (success, text) =
        run("export trained/fp32 --engine gguf --config MXFP4E2M1 --out model.gguf");
    assert!(!success);
    assert!(
        text.contains("`model_type` is mixtral; allowed: llama or mistral"),
        "{text}"
    );
    let (success, text) = run(&format!(
        "train {model} --experts 4 --experts-per-token 5 --out wrong"
    ));
    assert!(!success);
    for part in ["num_experts_per_tok", "5", "1 to num_local_experts, 4"] {
        assert!(text.contains(part), "{text}");
    }
}
