//! Mixtures of experts: which formats they get, and experts that no token chooses.

use std::{fs, process::Command};

use burn::backend::Flex;
use burn::prelude::*;
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs, ResolvedSpecs, module::specs_of};
use language_model::{Folder, train::Format};
use safetensors::{Dtype, SafeTensors};

use super::fixture;
use super::transformers::{reference, values};

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
        "train {model} --experts 4 --formats fp32 mxfp4 --out trained"
    ));
    assert!(success, "{text}");
    for format in ["fp32", "mxfp4"] {
        let trained = Folder::open(folder.path().join("trained").join(format)).unwrap();
        let experts = trained.config.experts.clone().unwrap();
        assert_eq!((experts.count, experts.per_token), (4, 2));
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
