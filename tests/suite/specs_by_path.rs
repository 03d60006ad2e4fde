//! Specs set by path, set again, and taken back.

use std::thread;

use burn::backend::flex::FlexDevice;
use burn::module::Module;
use burn::nn::{LinearConfig, LinearLayout};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn_mx::module::{PathError, clear_specs_at, set_specs, set_specs_at, specs_of};
use burn_mx::{MxDevice, MxSpecs, ResolvedSpecs};

use crate::models::*;
use crate::support::*;

type Device = MxDevice<FlexDevice>;

fn resolved(specs: MxSpecs) -> ResolvedSpecs {
    specs.resolve().expect("the specs are sound")
}

fn device() -> Device {
    mx_device(&MxSpecs::mxfp8_e4m3())
}

/// The contents of a record, as if loaded on `device`.
fn reloaded<M: Module<Mx>>(module: M, device: &Device) -> M {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Mx>::record(&recorder, module.clone().into_record(), ());
    let bytes = bytes.expect("it saves");
    let record = Recorder::<Mx>::load(&recorder, bytes, device).expect("it loads");
    module.load_record(record)
}

fn head_specs(mlp: &MlpModel<Mx>) -> Option<ResolvedSpecs> {
    let weight = specs_of(&mlp.head.weight.val());
    let bias = mlp.head.bias.as_ref().expect("the head has a bias");
    assert_eq!(specs_of(&bias.val()), weight);
    weight
}

/// A load that went through every earlier setting would overflow this thread's stack.
#[test]
fn specs_that_are_set_ten_thousand_times_load_as_those_set_once() {
    let small_stack = thread::Builder::new().stack_size(1 << 20);
    let test = || {
        let formats = [MxSpecs::mxfp4, MxSpecs::mxint8].map(|specs| resolved(specs()));
        let mut layer = LinearConfig::new(2, 2).init::<Mx>(&device());
        for i in 0..10_000 {
            layer = match i % 5 {
                4 => clear_specs_at(layer, "*").expect("it matches"),
                i => set_specs_at(layer, "weight", &formats[i % 2]).expect("it matches"),
            };
        }
        layer = set_specs(layer, &formats[1]);
        let loaded = reloaded(layer, &device());
        assert_eq!(specs_of(&loaded.weight.val()).as_ref(), Some(&formats[1]));
    };
    let thread = small_stack.spawn(test).expect("a thread can be started");
    thread.join().expect("the stack is large enough");
}

#[test]
fn what_was_set_last_holds_for_what_is_loaded() {
    let mlp = model::<Mlp, Mx>(&device());
    let mlp = set_specs_at(mlp, "head", &resolved(MxSpecs::mxfp4())).expect("it matches");
    let mlp = set_specs_at(mlp, "head", &resolved(MxSpecs::mxint8())).expect("it matches");
    let loaded = reloaded(mlp, &mx_device(&MxSpecs::nvfp4()));
    assert_eq!(head_specs(&loaded), Some(resolved(MxSpecs::mxint8())));
    assert_eq!(
        specs_of(&loaded.up.weight.val()),
        Some(resolved(MxSpecs::nvfp4()))
    );
}

#[test]
fn specs_taken_back_are_those_of_the_device_also_for_what_is_loaded() {
    let on_device = Some(resolved(MxSpecs::mxfp8_e4m3()));
    let others = mx_device(&MxSpecs::mxint8());
    let expected = values(model::<Mlp, Mx>(&device()).outputs(&device()));
    let pinned = || {
        let mlp = set_specs(model::<Mlp, Mx>(&device()), &resolved(MxSpecs::mxfp4()));
        set_specs_at(mlp, "head", &resolved(MxSpecs::mxfp6_e2m3())).expect("it matches")
    };
    assert_ne!(values(pinned().outputs(&device())), expected);
    let cleared = || clear_specs_at(pinned(), "head").expect("it matches");
    assert_eq!(head_specs(&cleared()), on_device);
    let up = specs_of(&cleared().up.weight.val());
    assert_eq!(
        up,
        Some(resolved(MxSpecs::mxfp4())),
        "the other layers keep theirs"
    );

    let all = clear_specs_at(pinned(), "*").expect("it matches");
    assert_same_bits(&values(all.outputs(&device())), &expected, "output");
    assert_same_bits(
        &values(reloaded(all, &device()).outputs(&device())),
        &expected,
        "loaded",
    );

    let others_specs = others.specs().cloned();
    assert_eq!(
        head_specs(&cleared().to_device(&others)),
        others_specs,
        "moved"
    );
    assert_eq!(
        head_specs(&reloaded(cleared(), &others)),
        others_specs,
        "loaded"
    );
    let moved = clear_specs_at(pinned().to_device(&others), "head").expect("it matches");
    assert_eq!(head_specs(&moved), others_specs, "moved before");
    let grads =
        GradientsParams::from_grads(cleared().outputs(&device()).sum().backward(), &cleared());
    let stepped = SgdConfig::new().init().step(0.1, cleared(), grads);
    assert_eq!(head_specs(&stepped), on_device, "after a step");
    let again = set_specs_at(cleared(), "head", &resolved(MxSpecs::mxfp4())).expect("it matches");
    assert_eq!(
        head_specs(&reloaded(again, &others)),
        Some(resolved(MxSpecs::mxfp4()))
    );
}

#[test]
fn taking_back_what_was_never_set_changes_nothing_and_a_path_must_match() {
    let mlp = model::<Mlp, Mx>(&device());
    let expected = values(mlp.outputs(&device()));
    let cleared = clear_specs_at(mlp.clone(), "head").expect("it matches");
    assert_same_bits(&values(cleared.outputs(&device())), &expected, "output");
    let error = clear_specs_at(mlp.clone(), "tail").expect_err("there is none");
    assert!(matches!(error, PathError::NoMatch { .. }), "{error}");
    let error = clear_specs_at(mlp, "head.[").expect_err("it is no glob");
    assert!(matches!(error, PathError::Pattern { .. }), "{error}");
}

/// A linear layer of columns transposes by its own mappers on save and load.
#[test]
fn a_layers_own_way_to_load_is_kept() {
    let config = LinearConfig::new(3, 5).with_layout(LinearLayout::Col);
    let layer = with_noise_weights(config.init::<Mx>(&device()), 1);
    let expected = values(layer.weight.val());
    let assert_loads = |layer: burn::nn::Linear<Mx>, what: &str| {
        let loaded = reloaded(layer, &device());
        assert_eq!(loaded.weight.dims(), [3, 5], "{what}");
        assert_same_bits(&values(loaded.weight.val()), &expected, what);
        loaded
    };
    let mut layer = assert_loads(layer, "nothing set");
    for specs in [MxSpecs::mxfp4(), MxSpecs::mxint8()] {
        let set = set_specs_at(layer, "weight", &resolved(specs)).expect("it matches");
        layer = assert_loads(set, "set");
    }
    let cleared = clear_specs_at(layer, "weight").expect("it matches");
    assert_loads(cleared, "taken back");
}

#[test]
fn a_clone_has_its_own_specs() {
    let [first, second] = [MxSpecs::mxfp4(), MxSpecs::mxint8()].map(resolved);
    let mlp = set_specs_at(model::<Mlp, Mx>(&device()), "head", &first).expect("it matches");
    let other = set_specs_at(mlp.clone(), "head", &second).expect("it matches");
    let cleared = clear_specs_at(mlp.clone(), "head").expect("it matches");
    assert_eq!(head_specs(&reloaded(mlp, &device())), Some(first));
    assert_eq!(head_specs(&reloaded(other, &device())), Some(second));
    let on_device = device().specs().cloned();
    assert_eq!(head_specs(&reloaded(cleared, &device())), on_device);
}
