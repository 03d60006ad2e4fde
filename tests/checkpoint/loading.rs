//! Loading checkpoints: a weight keeps its packed values, modules that are not Burn's load their weights, and
//! inconsistent files are errors.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use burn::module::{AutodiffModule, Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn_mx::checkpoint::{Checkpoint, CheckpointError, CheckpointLayout, inspect};
use burn_mx::module::{
    clear_specs_at, emulated, full_precision, label_parameters, load_checkpoint, save_checkpoint,
    set_specs, set_specs_at, with_specs,
};
use burn_mx::{BlockFormat, Packed, StoredType, WeightLayout};
use burn_mx::{GradientOperands, MxBackend, MxDevice, MxSpecs};
use microscaling::safetensors::PackedFile;
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use crate::support::*;

type B = MxBackend<TestBackend>;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is room for temporary files")
}

fn linear<B: Backend>(inputs: usize, outputs: usize, seed: u64, device: &B::Device) -> Linear<B> {
    let layer = LinearConfig::new(inputs, outputs).with_bias(false);
    with_noise_weights(layer.init(device), seed)
}

/// A file of ModelOpt's with NVFP4 codes none of whose blocks has a 6: quantizing the values finds other scales.
fn small_codes(path: &Path, outputs: usize, inputs: usize) {
    let layout = WeightLayout::ModelOptNvfp4;
    let mut state = 7_u32;
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % below) as u8
    };
    let elements: Vec<u8> = (0..outputs * inputs / 2)
        .map(|_| next(6) | (next(6) | next(2) << 3) << 4)
        .collect();
    let scales = (0..outputs * inputs / 16)
        .map(|_| 0x30 + next(0x20))
        .collect();
    let shape = [outputs, inputs];
    let packed = Packed::from_parts(layout.format(), &shape, 1, Some(0.013), scales, elements);
    let stored = layout
        .store("weight", &packed.unwrap().view(), None)
        .unwrap();
    let views = stored.iter().map(|tensor| {
        let dtype = match tensor.dtype {
            StoredType::U8 => Dtype::U8,
            StoredType::F8E4M3 => Dtype::F8_E4M3,
            StoredType::F8E8M0 => Dtype::F8_E8M0,
            StoredType::F32 => Dtype::F32,
            other => unreachable!("{other:?}"),
        };
        let view = TensorView::new(dtype, tensor.shape.clone(), &tensor.bytes);
        (tensor.name.clone(), view.unwrap())
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn bytes_of<B: burn_mx::module::MxTensorOps>(layer: &Linear<B>, path: &Path) -> Vec<u8> {
    let layout = WeightLayout::ModelOptNvfp4;
    save_checkpoint(layer, path, layout.into()).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn nothing_but_an_optimizer_makes_a_loaded_weight_forget_that_it_is_quantized() {
    let folder = folder();
    let [path, again] = ["a", "b"].map(|name| folder.path().join(format!("{name}.safetensors")));
    small_codes(&path, 32, 64);
    let specs = mx_only(MxSpecs::nvfp4());
    let resolved = specs.resolve().unwrap();
    let device = mx_device(&specs);
    let model = load_checkpoint(linear::<Mx>(64, 32, 150, &device), &path).unwrap();
    let x = || noise_tensor::<Mx, 2>([5, 64], 151, &device);
    let inner_x = || noise_tensor::<B, 2>([5, 64], 151, &device);
    let wanted = values(model.valid().forward(inner_x()));
    let bytes = bytes_of(&model, &again);

    // The same values in a tensor without marks, which must not happen below.
    let mut strange = linear::<B>(64, 32, 150, &device);
    let data = model.weight.val().into_data();
    strange.weight = strange
        .weight
        .map(|tensor| Tensor::from_data(data, &tensor.device()).set_require_grad(false));
    assert_ne!(values(strange.forward(inner_x())), wanted, "the codes tell");

    let specs_set = || set_specs_at(model.clone(), "weight", &resolved).unwrap();
    let forgotten = || {
        let other = set_specs(model.clone(), &MxSpecs::mxfp4().resolve().unwrap());
        set_specs(other, &resolved)
    };
    let ways: [(&str, Linear<Mx>); 9] = [
        ("as it is", model.clone()),
        ("label_parameters", label_parameters(model.clone())),
        ("set_specs_at", specs_set()),
        ("set_specs", set_specs(model.clone(), &resolved)),
        ("other specs, and back", forgotten()),
        (
            "clear_specs_at",
            clear_specs_at(specs_set(), "weight").unwrap(),
        ),
        ("train", model.valid().train::<Mx>()),
        ("fork", model.clone().fork(&device)),
        ("no_grad", model.clone().no_grad()),
    ];
    for (way, layer) in ways {
        assert_same_bits(&values(layer.valid().forward(inner_x())), &wanted, way);
        assert_same_bits(&values(layer.forward(x())), &wanted, way);
        assert_eq!(bytes_of(&layer, &again), bytes, "{way}: saved again");
    }
    let record = model.clone().into_record();
    let from_record = label_parameters(linear::<Mx>(64, 32, 152, &device)).load_record(record);
    assert_same_bits(&values(from_record.forward(x())), &wanted, "record");

    // Pieces of a model by other rules, and back.
    let weight = || model.weight.val();
    let pieces: [(&str, Tensor<Mx, 2>); 3] = [
        ("with_specs", with_specs(weight(), &resolved)),
        ("full_precision", emulated(full_precision(weight()))),
        ("detach", weight().detach()),
    ];
    for (way, weight) in pieces {
        assert_same_bits(&values(x().matmul(weight)), &wanted, way);
    }
}

/// Gradients that read the weight as the forward product used it read the loaded values.
#[test]
fn gradients_of_forward_operands_read_a_loaded_weight_as_it_is() {
    let folder = folder();
    let path = folder.path().join("a.safetensors");
    small_codes(&path, 32, 64);
    let gradient = |gradient_operands| {
        let specs = MxSpecs {
            gradient_operands,
            ..mx_only(MxSpecs::nvfp4())
        };
        let device = mx_device(&specs);
        let model = load_checkpoint(linear::<Mx>(64, 32, 153, &device), &path).unwrap();
        let x = noise_tensor::<Mx, 2>([5, 64], 154, &device).require_grad();
        let y = model.forward(x.clone());
        let g = noise_tensor::<Mx, 2>([5, 32], 155, &device);
        let grads = Mx::loss_with_gradient(y, g).backward();
        values(x.grad(&grads).unwrap())
    };
    // Both are the same for values that are quantized already.
    let [original, forward] = [GradientOperands::Original, GradientOperands::Forward].map(gradient);
    assert_same_bits(&forward, &original, "dx");
}

/// A matrix unit takes the elements and scales of the file, not those that quantizing the values would give.
#[test]
fn an_accumulator_takes_a_loaded_weight_as_it_is() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    small_codes(&path, 32, 64);
    let output = |accumulator: Option<&str>| {
        let specs = MxSpecs {
            accumulator: accumulator.map(|text| text.parse().unwrap()),
            ..mx_only(MxSpecs::nvfp4())
        };
        let device = mx_device(&specs);
        let model = load_checkpoint(linear::<B>(64, 32, 156, &device), &path).unwrap();
        values(model.forward(noise_tensor::<B, 2>([5, 64], 157, &device)))
    };
    let [own, exact] = [None, Some("accumulator(order=exact,terms=64)")].map(output);
    let largest = own.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    for (i, (own, exact)) in own.iter().zip(&exact).enumerate() {
        assert!(
            (own - exact).abs() <= 1e-5 * largest,
            "{i}: {own} and {exact}"
        );
    }
}

/// Modules of somebody else's that are called as Burn's.
mod theirs {
    use super::*;

    /// `[out, in]`, as PyTorch's.
    #[derive(Module, Debug)]
    pub(super) struct Linear<B: Backend> {
        pub(super) weight: Param<Tensor<B, 2>>,
    }

    impl<B: Backend> Linear<B> {
        pub(super) fn new(outputs: usize, inputs: usize, seed: u64, device: &B::Device) -> Self {
            let weight = noise_tensor([outputs, inputs], seed, device);
            Self {
                weight: Param::from_tensor(weight),
            }
        }

        pub(super) fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
            x.matmul(self.weight.val().transpose())
        }
    }

    /// `[experts, out, in]`.
    #[derive(Module, Debug)]
    pub(super) struct Conv1d<B: Backend> {
        pub(super) weight: Param<Tensor<B, 3>>,
    }

    #[derive(Module, Debug)]
    pub(super) struct Net<B: Backend> {
        pub(super) proj: Linear<B>,
        pub(super) head: burn::nn::Linear<B>,
    }
}

#[test]
fn a_module_that_is_called_linear_is_not_taken_for_burns() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let specs = mx_only(MxSpecs::mxfp4());
    let device = mx_device(&specs);
    // Of a square shape nothing but the module tells.
    for outputs in [64, 96] {
        let net = |seed| theirs::Net::<B> {
            proj: theirs::Linear::new(outputs, 64, seed, &device),
            head: linear(outputs, 64, seed + 1, &device),
        };
        let model = net(160);
        let error = Checkpoint::new(&path).save(&model).unwrap_err();
        assert!(
            matches!(&error, CheckpointError::UnknownLayer { weight } if weight == "proj.weight"),
            "{error}"
        );
        assert!(error.to_string().contains("summed_axis"), "{error}");

        // Said, it is packed as the product multiplies with it.
        let checkpoint = Checkpoint::new(&path).summed_axis("proj", 1);
        let saved = checkpoint.save(&model).unwrap();
        let shapes: Vec<_> = saved
            .packed
            .iter()
            .map(|weight| &weight.shape[..])
            .collect();
        assert_eq!(shapes, [[outputs, 64], [64, outputs]]);
        let multiplied = values(model.proj.forward(Tensor::eye(64, &device)).transpose());
        let bytes = fs::read(&path).unwrap();
        let packed = PackedFile::read(&bytes).unwrap().get("proj.weight");
        let mut decoded = packed.unwrap().unwrap().decode();
        for x in &mut decoded {
            *x += 0.0;
        }
        assert_same_bits(&multiplied, &decoded, "what is packed");
        let x = || noise_tensor::<B, 2>([3, 64], 162, &device);
        let forward = |net: &theirs::Net<B>| values(net.head.forward(net.proj.forward(x())));
        let loaded = checkpoint.load(net(163)).unwrap().model;
        assert_same_bits(&forward(&loaded), &forward(&model), "said");

        // Not said, a matrix is what its shape says, if that says something.
        let unsaid = Checkpoint::new(&path).load(net(163));
        match outputs {
            64 => {
                let error = unsaid.unwrap_err().to_string();
                assert!(
                    error.contains("proj.weight") && error.contains("summed_axis"),
                    "{error}"
                );
            }
            _ => assert_same_bits(&forward(&unsaid.unwrap().model), &forward(&model), "unsaid"),
        }

        // Left out, it is stored as it lies, by PyTorch's names, too: nothing is known to transpose.
        for layout in [
            CheckpointLayout::Microscaling,
            WeightLayout::Mxfp4PackQuantized.into(),
        ] {
            let checkpoint = Checkpoint::new(&path).layout(layout).leave_unpacked("proj");
            checkpoint.save(&model).unwrap();
            let bytes = fs::read(&path).unwrap();
            let stored = PackedFile::read(&bytes)
                .unwrap()
                .tensor("proj.weight")
                .unwrap();
            assert_eq!(stored.shape, [outputs, 64], "{layout}");
            let of_model: Vec<u8> = values(model.proj.weight.val())
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect();
            assert_eq!(stored.bytes, of_model, "{layout}");
            let loaded = load_checkpoint(net(163), &path).unwrap();
            assert_same_bits(&forward(&loaded), &forward(&model), "left out");
        }
    }
}

#[test]
fn axes_that_are_said() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&MxSpecs::mxfp4());
    let weight = |seed| noise_tensor::<B, 3>([4, 32, 64], seed, &device);
    let experts = |seed| theirs::Conv1d::<B> {
        weight: Param::from_tensor(weight(seed)),
    };
    let save = |axis| {
        let checkpoint = Checkpoint::new(&path).summed_axis("weight", axis);
        checkpoint.save(&experts(164)).map(|_| checkpoint)
    };
    for axis in [0, 1] {
        let checkpoint = save(axis).unwrap();
        let bytes = fs::read(&path).unwrap();
        let packed: Packed = PackedFile::read(&bytes)
            .unwrap()
            .get("weight")
            .unwrap()
            .unwrap();
        assert_eq!((packed.shape(), packed.axis()), (&[4, 32, 64][..], axis));
        let loaded = checkpoint.load(experts(165)).unwrap().model;
        assert_same_bits(&values(loaded.weight.val()), &packed.decode(), "three axes");
    }
    let error = save(2).err().unwrap().to_string();
    for part in ["weight", "axis is 2", "[4, 32, 64]", "0 or 1"] {
        assert!(error.contains(part), "{error}: no {part}");
    }
    let none = Checkpoint::new(&path).summed_axis("wieght", 1);
    let error = none.save(&experts(164)).unwrap_err().to_string();
    assert!(error.contains("wieght"), "{error}");

    // Burn's own layers need no word, and a given word counts.
    let layer = linear::<B>(64, 32, 166, &device);
    let own = Checkpoint::new(&path).save(&layer).unwrap();
    assert_eq!(own.packed[0].shape, [32, 64]);
    let said = Checkpoint::new(&path).summed_axis("weight", 1);
    assert_eq!(said.save(&layer).unwrap().packed[0].shape, [64, 32]);
}

/// Parameters of every kind of number.
#[derive(Module, Debug)]
struct Kinds<B: Backend> {
    linear: Linear<B>,
    norm: LayerNorm<B>,
    counts: Param<Tensor<B, 1, Int>>,
    flags: Param<Tensor<B, 1, Bool>>,
}

fn kinds(seed: u64, device: &MxDevice<TestDevice>) -> Kinds<B> {
    let kinds = Kinds {
        linear: linear(64, 32, seed, device),
        norm: LayerNormConfig::new(8).init(device),
        counts: Param::initialized(
            burn::module::ParamId::new(),
            Tensor::from_ints([1, 2, 3, 4, 5, 6, 7, 8], device),
        ),
        flags: Param::initialized(
            burn::module::ParamId::new(),
            Tensor::from_bool([true, false, true, true].into(), device),
        ),
    };
    with_noise_weights(kinds, seed)
}

/// The header of a file, changed, before the same bytes.
fn with_header(path: &Path, change: impl FnOnce(&mut Value)) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    change(&mut header);
    let header = header.to_string();
    let parts = [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        &bytes[8 + length..],
    ];
    fs::write(path, parts.concat()).unwrap();
}

/// The message of the error that loading is.
#[track_caller]
fn refused<M: Module<B>>(model: M, path: &Path, parts: &[&str]) {
    let Err(error) = load_checkpoint::<B, M>(model, path) else {
        panic!("{} was loaded, no {parts:?}", path.display());
    };
    let error = error.to_string();
    for part in parts {
        assert!(error.contains(part), "{error}: no {part}");
    }
}

#[test]
fn tensors_of_another_kind_are_refused_by_name() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&MxSpecs::mxfp4());
    let save = || save_checkpoint(&kinds(170, &device), &path, CheckpointLayout::Microscaling);
    let retyped = |name: &str, dtype: &str, width: u64| {
        save().unwrap();
        with_header(&path, |header| {
            let entry = &mut header[name];
            let offsets = entry["data_offsets"].as_array().unwrap();
            let bytes = offsets[1].as_u64().unwrap() - offsets[0].as_u64().unwrap();
            entry["dtype"] = dtype.into();
            entry["shape"] = json!([bytes / width]);
        });
    };
    save().unwrap();
    let loaded = load_checkpoint(kinds(171, &device), &path).unwrap();
    assert_eq!(
        loaded.flags.val().into_data(),
        kinds(170, &device).flags.val().into_data()
    );

    // A byte that is not a bool.
    let mut bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let at = header["flags"]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[8 + length + at + 1] = 2;
    fs::write(&path, bytes).unwrap();
    refused(
        kinds(171, &device),
        &path,
        &["`flags`", "byte 1 is 2", "0 and 1"],
    );

    // The bytes of one kind for another.
    retyped("norm.gamma", "BOOL", 1);
    refused(kinds(171, &device), &path, &["norm.gamma"]);
    retyped("flags", "U8", 1);
    refused(kinds(171, &device), &path, &["`flags`", "U8", "Bool"]);
    save().unwrap();
    let width = {
        let bytes = fs::read(&path).unwrap();
        let file = PackedFile::read(&bytes).unwrap();
        file.tensor("counts").unwrap().bytes.len() as u64 / 8
    };
    let float = if width == 8 { "F64" } else { "F32" };
    retyped("counts", float, width);
    refused(kinds(171, &device), &path, &["`counts`", float]);
}

/// BOOL bytes of the shape that a float parameter has.
#[test]
fn bools_are_no_floats() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&MxSpecs::none());
    for byte in [1_u8, 7] {
        let bytes = [byte; 8];
        let view = TensorView::new(Dtype::BOOL, vec![8], &bytes).unwrap();
        let views = [("gamma", view.clone()), ("beta", view)];
        fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        let norm = LayerNormConfig::new(8).init::<B>(&device);
        refused(norm, &path, &["gamma", "Bool"]);
    }
}

/// A model in a file whose `burn_mx` says these scales of the weight's input.
fn with_inputs(path: &Path, specs: &MxSpecs, input: Value) -> Linear<B> {
    let device = mx_device(specs);
    let layer = linear::<B>(64, 32, 172, &device);
    save_checkpoint(&layer, path, CheckpointLayout::Microscaling).unwrap();
    with_header(path, |header| {
        let text = &mut header["__metadata__"]["burn_mx"];
        let mut written: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        written["inputs"] = json!({ "weight": input });
        *text = written.to_string().into();
    });
    layer
}

#[test]
fn static_scales_of_another_length_are_refused() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let one = 1f32.to_bits();
    let mxfp4 = MxSpecs::mxfp4();
    let whole_axis: BlockFormat = "mx(element=fp4_e2m1,block_size=0)".parse().unwrap();
    let whole_axis = MxSpecs {
        a_elem_format: Some(whole_axis.into()),
        ..mxfp4.clone()
    };
    let layer = with_inputs(&path, &mxfp4, json!({ "length": 64, "amax": [one, one] }));
    let loaded = load_checkpoint(layer, &path).unwrap();
    let x = noise_tensor::<B, 2>([2, 64], 173, &mx_device(&mxfp4));
    assert_eq!(loaded.forward(x).dims(), [2, 32]);
    let layer = with_inputs(&path, &whole_axis, json!({ "length": 64, "amax": [one] }));
    load_checkpoint(layer, &path).unwrap();

    for (specs, input) in [
        (&whole_axis, json!({ "length": 0, "amax": [] })),
        (&mxfp4, json!({ "length": 0, "amax": [] })),
        (&mxfp4, json!({ "length": 64, "amax": [one] })),
        (
            &mxfp4,
            json!({ "length": 64, "amax": [one, f32::NAN.to_bits()] }),
        ),
        (
            &mxfp4,
            json!({ "length": 64, "amax": [one, (-1f32).to_bits()] }),
        ),
        // Right by itself, and not for this weight: it panicked in the forward pass.
        (&mxfp4, json!({ "length": 96, "amax": [one, one, one] })),
        (
            &mxfp4,
            json!({ "length": 128, "amax": [one, one, one, one] }),
        ),
        (&whole_axis, json!({ "length": 32, "amax": [one] })),
        (&whole_axis, json!({ "length": u64::MAX, "amax": [one] })),
    ] {
        let layer = with_inputs(&path, specs, input);
        refused(layer, &path, &["`weight`'s input", "do not fit"]);
    }
}

/// A packed layer, and tensors that Burn and PyTorch name and lay out in their own ways.
#[derive(Module, Debug)]
struct Mixed<B: Backend> {
    packed: Linear<B>,
    norm: LayerNorm<B>,
    plain: Linear<B>,
}

/// `microscaling convert` changes the layout. The specs, and the names of the other tensors, stay.
#[test]
fn a_converted_checkpoint_is_the_same_model() {
    let folder = folder();
    let file = |name: &str| folder.path().join(name);
    let specs = MxSpecs {
        a_elem_format: "mxfp8_e4m3".parse().ok(),
        ..MxSpecs::mxfp4()
    };
    let [specs, exact] = [specs, MxSpecs::default()].map(|specs| specs.resolve().unwrap());
    let mixed = |seed| {
        let device = mx_device(&MxSpecs::mxfp4());
        let mixed = Mixed {
            packed: linear::<B>(64, 32, seed, &device),
            norm: LayerNormConfig::new(32).init(&device),
            plain: linear(32, 48, seed + 1, &device),
        };
        let mixed = set_specs_at::<B, _>(with_noise_weights(mixed, seed), "packed", &specs);
        set_specs_at::<B, _>(mixed.unwrap(), "plain", &exact).unwrap()
    };
    let outputs = |model: Mixed<B>| {
        let x = noise_tensor::<B, 2>([3, 64], 181, &mx_device(&MxSpecs::mxfp4()));
        values(
            model
                .plain
                .forward(model.norm.forward(model.packed.forward(x))),
        )
    };
    let layout = CheckpointLayout::Weights(WeightLayout::Mxfp4PackQuantized);
    for (saved, other) in [
        (CheckpointLayout::Microscaling, layout),
        (layout, CheckpointLayout::Microscaling),
    ] {
        save_checkpoint(&mixed(182), file("saved"), saved).unwrap();
        for (from, to, layout) in [("saved", "there", other), ("there", "back", saved)] {
            let [from, to] = [from, to].map(|name| file(name).into_os_string());
            let layout = layout.name().into();
            let args = [
                "microscaling".into(),
                "convert".into(),
                from,
                to,
                "--to".into(),
                layout,
                "--force".into(),
            ];
            assert_eq!(microscaling_cli::run(args), 0);
        }
        for name in ["saved", "there", "back"] {
            let loaded = load_checkpoint(mixed(190), file(name)).unwrap();
            assert_eq!(outputs(loaded), outputs(mixed(182)), "{saved}: {name}");
        }
        let [one, two] = ["saved", "back"].map(|name| inspect(file(name)).unwrap());
        assert_eq!(format!("{:?}", one.weights), format!("{:?}", two.weights));
    }
}

/// Layers without inputs or outputs, in every layout: an error, or the model.
#[test]
fn an_empty_weight_is_no_panic() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    for layout in CheckpointLayout::ALL {
        let specs = match layout {
            CheckpointLayout::Weights(WeightLayout::Mxfp6PackQuantized) => MxSpecs::mxfp6_e2m3(),
            CheckpointLayout::Weights(WeightLayout::Mxfp8Quantized) => MxSpecs::mxfp8_e4m3(),
            CheckpointLayout::Weights(
                WeightLayout::ModelOptNvfp4 | WeightLayout::Nvfp4PackQuantized,
            ) => MxSpecs::nvfp4(),
            _ => MxSpecs::mxfp4(),
        };
        let device = mx_device(&specs);
        for shape in [[0, 32], [32, 0], [0, 0]] {
            let layer = || {
                let layer = LinearConfig::new(32, 32)
                    .with_bias(false)
                    .init::<B>(&device);
                let empty =
                    Tensor::<B, 2>::from_data(TensorData::new(Vec::<f32>::new(), shape), &device);
                Linear {
                    weight: Param::from_tensor(empty),
                    ..layer
                }
            };
            let what = format!("{layout}, {shape:?}");
            if save_checkpoint(&layer(), &path, layout).is_ok() {
                let loaded = load_checkpoint(layer(), &path);
                let dims = loaded.map(|layer| layer.weight.dims());
                assert_eq!(dims.unwrap_or(shape), shape, "{what}");
            }
            // The bytes of a file with this header, for any model.
            let fits = linear::<B>(32, 32, 174, &device);
            save_checkpoint(&fits, &path, CheckpointLayout::Microscaling).unwrap();
            let bytes = fs::read(&path).unwrap();
            let file = PackedFile::read(&bytes).unwrap();
            let views: HashMap<&str, TensorView<'_>> = file
                .names()
                .into_iter()
                .map(|name| {
                    let tensor = file.tensor(name).unwrap();
                    let shape = tensor.shape.iter().map(|_| 0).collect();
                    (name, TensorView::new(Dtype::U8, shape, &[]).unwrap())
                })
                .collect();
            let metadata = file.metadata("microscaling").map(str::to_owned);
            let metadata = metadata.map(|text| HashMap::from([("microscaling".to_owned(), text)]));
            fs::write(&path, safetensors::serialize(views, metadata).unwrap()).unwrap();
            let _ = Checkpoint::new(&path).layout(layout).load(layer());
        }
    }
}

/// The places of all values in a JSON text, as pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let name = |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                places(value, &name(field), found);
            }
        }
        Value::Array(values) => {
            for (i, value) in values.iter().enumerate() {
                places(value, &name(&i.to_string()), found);
            }
        }
        _ => {}
    }
}

/// The kinds of lies.
fn lies() -> Vec<Value> {
    let numbers = [
        json!(0),
        json!(1),
        json!(-1),
        json!(33),
        json!(u64::MAX),
        json!(0.5),
    ];
    let others = [
        json!(null),
        json!(true),
        json!([]),
        json!([0]),
        json!([0, 32]),
        json!({}),
    ];
    let texts = [
        "",
        "x",
        "BOOL",
        "U8",
        "I64",
        "F64",
        "F32",
        "F16",
        "mxfp4",
        "nvfp4(tensor_scale=true)",
        "fp4",
        "int8",
        "stochastic",
        "forward",
        "16",
        "gpt-oss",
        "modelopt-nvfp4",
    ];
    let texts = texts.map(Value::from);
    numbers.into_iter().chain(others).chain(texts).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// With any header that is still JSON, loading gives an error, or a model that computes.
    #[test]
    fn headers_that_lie_do_no_harm(
        lies in proptest::collection::vec((any::<proptest::sample::Index>(), proptest::sample::select(lies())), 1..3),
    ) {
        let folder = folder();
        let path = folder.path().join("model.safetensors");
        let device = mx_device(&MxSpecs::mxfp4());
        save_checkpoint(&kinds(180, &device), &path, CheckpointLayout::Microscaling).unwrap();
        with_header(&path, |header| {
            const METADATA: [&str; 2] = ["burn_mx", "microscaling"];
            let one = 1f32.to_bits();
            for key in METADATA {
                let text = &mut header["__metadata__"][key];
                *text = serde_json::from_str(text.as_str().unwrap()).unwrap();
            }
            header["__metadata__"]["burn_mx"]["inputs"] =
                json!({ "linear.weight": { "length": 64, "amax": [one, one] } });
            for (at, lie) in &lies {
                let mut found = Vec::new();
                places(header, "", &mut found);
                *header.pointer_mut(at.get::<String>(&found)).unwrap() = lie.clone();
            }
            for key in METADATA {
                if let Some(value) = header.pointer_mut(&format!("/__metadata__/{key}")) {
                    *value = value.to_string().into();
                }
            }
        });
        let _ = inspect(&path);
        if let Ok(model) = load_checkpoint(kinds(181, &device), &path) {
            let x = noise_tensor::<B, 2>([2, 64], 182, &device);
            prop_assert_eq!(model.linear.forward(x).into_data().shape.to_vec(), [2, 32]);
            prop_assert_eq!(model.counts.val().into_data().num_elements(), 8);
            prop_assert_eq!(model.flags.val().into_data().num_elements(), 4);
        }
    }
}
