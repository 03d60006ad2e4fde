//! Specs that are set, changed, cleared and loaded between optimizer steps: the next step computes as a model that was built with
//! the final specs does.

use burn::grad_clipping::GradientClippingConfig;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdaGradConfig, AdamConfig, AdamWConfig, AdanConfig, GradientsAccumulator, GradientsParams,
    MuonConfig, Optimizer, RmsPropConfig, SgdConfig,
};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Record, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, activation};
use burn_mx::module::{
    clear_specs_at, label_of, label_parameters, set_specs, set_specs_at, specs_of,
};
use burn_mx::{MxSpecs, ResolvedSpecs};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::optimizers::{InOnePass, decay, optimizers};
use crate::support::*;

type Device = burn_mx::MxDevice<TestDevice>;

#[derive(Module, Debug)]
pub(crate) struct Net<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl Net<Mx> {
    fn new(bias: bool, device: &Device) -> Self {
        let layer = |inputs, outputs| LinearConfig::new(inputs, outputs).with_bias(bias);
        let layers = [layer(36, 24), layer(24, 40), layer(40, 3)];
        let layers = layers.map(|config| config.init(device)).into();
        label_parameters(with_noise_weights(Self { layers }, 1))
    }

    fn outputs(&self) -> Tensor<Mx, 2> {
        let x = noise_tensor([5, 36], 7, &device(0));
        let layers = self.layers.iter();
        layers.fold(x, |x, layer| activation::relu(layer.forward(x)) + 0.1)
    }

    fn gradients(&self) -> GradientsParams {
        GradientsParams::from_grads(self.outputs().powi_scalar(2).sum().backward(), self)
    }

    fn parameters(&self) -> Vec<Parameter> {
        struct Collect(Vec<Parameter>, Vec<String>);
        impl ModuleVisitor<Mx> for Collect {
            fn enter_module(&mut self, name: &str, _: &str) {
                self.1.push(name.to_owned());
            }
            fn exit_module(&mut self, _: &str, _: &str) {
                self.1.pop();
            }
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Mx, D>>) {
                let tensor = param.val();
                self.0.push(Parameter {
                    path: self.1.join("."),
                    label: label_of(&tensor).map(str::to_owned),
                    specs: specs_of(&tensor),
                    of_device: tensor.device().specs().cloned(),
                });
            }
        }
        let mut collect = Collect(Vec::new(), Vec::new());
        self.visit(&mut collect);
        collect.0
    }
}

/// The emulation's knowledge of a parameter.
#[derive(Clone, Debug, PartialEq)]
struct Parameter {
    path: String,
    label: Option<String>,
    specs: Option<ResolvedSpecs>,
    of_device: Option<ResolvedSpecs>,
}

const SPECS: [fn() -> MxSpecs; 5] = [
    MxSpecs::mxint8,
    MxSpecs::mxfp4,
    MxSpecs::mxfp8_e4m3,
    MxSpecs::nvfp4,
    MxSpecs::none,
];

fn resolved(specs: usize) -> ResolvedSpecs {
    SPECS[specs]().resolve().expect("the specs are sound")
}

/// A device of these specs, or of none.
fn device(specs: usize) -> Device {
    match SPECS.get(specs) {
        Some(specs) => mx_device(&specs()),
        None => Device::default(),
    }
}

const PATTERNS: [&str; 4] = ["*", "layers.0", "layers.1", "layers.2.weight"];

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A backward pass, whose gradients wait for a step.
    Gradients,
    /// A step with the gradients that wait, and new ones.
    Step,
    /// A step with the gradients that wait.
    StepWithOld,
    Set(usize, usize),
    Clear(usize),
    /// A move to a device: a plain `to_device` would end the leaves that Burn's optimizers update.
    Fork(usize),
    /// The model's record, loaded on a device.
    Load(usize),
    /// The record of another model with other specs, which was never written to bytes.
    LoadOther,
    /// The optimizer's record, loaded on a device.
    LoadOptimizer(usize),
    /// The record of an optimizer that stepped the other model.
    LoadOtherOptimizer,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (specs, devices, patterns) = (0..SPECS.len(), 0..=SPECS.len(), 0..PATTERNS.len());
    let event = prop_oneof![
        2 => Just(Event::Gradients),
        6 => Just(Event::Step),
        1 => Just(Event::StepWithOld),
        3 => (patterns.clone(), specs).prop_map(|(pattern, specs)| Event::Set(pattern, specs)),
        3 => patterns.prop_map(Event::Clear),
        2 => devices.clone().prop_map(Event::Fork),
        1 => devices.clone().prop_map(Event::Load),
        1 => Just(Event::LoadOther),
        1 => devices.prop_map(Event::LoadOptimizer),
        1 => Just(Event::LoadOtherOptimizer),
    ];
    proptest::collection::vec(event, 1..14)
}

/// A record after a save to bytes and a load on a device.
fn reloaded<R: Record<Mx>>(record: R, device: &Device) -> R {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Mx>::record(&recorder, record, ()).expect("it saves");
    recorder.load(bytes, device).expect("it loads")
}

/// The specs that a model has after all events: each parameter's own, and its device's.
struct Expected {
    set: Vec<(String, Option<usize>)>,
    device: usize,
}

impl Expected {
    fn set(&mut self, pattern: usize, specs: Option<usize>) {
        let pattern = PATTERNS[pattern];
        for (path, set) in &mut self.set {
            if pattern == "*" || path.starts_with(pattern) {
                *set = specs;
            }
        }
    }

    fn moved(&mut self, device: usize) {
        if device < SPECS.len() {
            self.device = device;
        }
    }

    /// A model that was built so, with the weights of `net`.
    fn built(&self, bias: bool, net: &Net<Mx>) -> Net<Mx> {
        struct Copy<'a>(std::slice::Iter<'a, Vec<f32>>);
        impl ModuleMapper<Mx> for Copy<'_> {
            fn map_float<const D: usize>(
                &mut self,
                param: Param<Tensor<Mx, D>>,
            ) -> Param<Tensor<Mx, D>> {
                let values = self.0.next().expect("both have the same parameters");
                param.map(|tensor| {
                    let data = burn::tensor::TensorData::new(values.clone(), tensor.shape());
                    Tensor::from_data(data, &tensor.device()).require_grad()
                })
            }
        }
        let layers = Net::new(bias, &device(self.device));
        let built = layers.map(&mut Copy(weights(net).iter()));
        let built = label_parameters(built);
        self.set.iter().fold(built, |built, (path, set)| match set {
            Some(specs) => set_specs_at(built, path, &resolved(*specs)).expect("it matches"),
            None => built,
        })
    }
}

fn check<O: Optimizer<Net<Mx>, Mx>>(new: impl Fn() -> O, bias: bool, events: &[Event]) {
    let mut net = Net::new(bias, &device(0));
    let paths = net.parameters().into_iter().map(|parameter| parameter.path);
    let mut expected = Expected {
        set: paths.map(|path| (path, None)).collect(),
        device: 0,
    };
    let mut optimizer = new();
    let mut waiting = GradientsAccumulator::new();
    let mut waits = false;

    let other = net.clone().to_device(&device(2));
    let mut other = set_specs(other, &resolved(3));
    let mut other_optimizer = new();
    for _ in 0..2 {
        let grads = other.gradients();
        other = other_optimizer.step(1e-3, other, grads);
    }

    for (number, event) in events.iter().chain([&Event::Step]).enumerate() {
        match *event {
            Event::Gradients => {
                waiting.accumulate(&net, net.gradients());
                waits = true;
            }
            Event::Step => {
                waiting.accumulate(&net, net.gradients());
                net = optimizer.step(1e-3, net, waiting.grads());
                waits = false;
            }
            Event::StepWithOld if waits => {
                net = optimizer.step(1e-3, net, waiting.grads());
                waits = false;
            }
            Event::StepWithOld => {}
            Event::Set(pattern, specs) => {
                net = match PATTERNS[pattern] {
                    "*" => set_specs(net, &resolved(specs)),
                    path => set_specs_at(net, path, &resolved(specs)).expect("it matches"),
                };
                expected.set(pattern, Some(specs));
            }
            Event::Clear(pattern) => {
                net = clear_specs_at(net, PATTERNS[pattern]).expect("it matches");
                expected.set(pattern, None);
            }
            Event::Fork(to) => {
                net = net.fork(&device(to));
                expected.moved(to);
            }
            Event::Load(on) => {
                let record = reloaded(net.clone().into_record(), &device(on));
                net = net.load_record(record);
                expected.device = on;
            }
            Event::LoadOther => {
                net = net.load_record(other.clone().into_record());
                expected.device = 2;
            }
            Event::LoadOptimizer(on) => {
                let record = reloaded(optimizer.to_record(), &device(on));
                optimizer = new().load_record(record);
            }
            Event::LoadOtherOptimizer => {
                optimizer = new().load_record(other_optimizer.to_record());
            }
        }
        let what = format!("after event {number}, {event:?}, of {events:?}");
        let built = expected.built(bias, &net);
        assert_eq!(net.parameters(), built.parameters(), "{what}");
    }

    let what = format!("after {events:?}");
    let built = expected.built(bias, &net);
    let results = |net: &Net<Mx>| {
        let outputs = net.outputs();
        let grads = outputs.clone().powi_scalar(2).sum().backward();
        let mut results = gradients::<Mx, _>(net, &grads);
        results.push(values(outputs));
        results
    };
    assert_all_same_bits(&results(&net), &results(&built), &what);
}

fn check_random<O: Optimizer<Net<Mx>, Mx>>(new: impl Fn() -> O, bias: bool) {
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&events(), |events| {
        check(&new, bias, &events);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// Two formats in turn and none at last, with two steps each.
const IN_TURN: [Event; 7] = [
    Event::Set(0, 1),
    Event::Step,
    Event::Step,
    Event::Set(0, 2),
    Event::Step,
    Event::Step,
    Event::Clear(0),
];

macro_rules! optimizer_tests {
    ($($name:ident, bias $bias:literal: $config:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn specs_cleared_between_steps_stay_cleared() {
                check(|| $config.init::<Mx, Net<Mx>>(), $bias, &IN_TURN);
            }

            #[test]
            fn specs_at_random_steps_are_those_of_a_model_built_so() {
                check_random(|| $config.init::<Mx, Net<Mx>>(), $bias);
            }
        }
    )* };
}

optimizers!(optimizer_tests);
