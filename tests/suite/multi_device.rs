//! burn-train's strategies for several devices run unchanged. One device is given twice: there are two workers, each with
//! its own thread, fork of the model and half of the data. On a backend of CubeCL this needs the settings of `cubecl.toml`.

use burn::data::dataloader::split::split_dataloader;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use burn::train::metric::LossMetric;
use burn::train::{ExecutionStrategy, Learner, MultiDeviceOptim, SupervisedTraining};
use burn_mx::module::{set_specs_at, specs_of};
use burn_mx::{MxDevice, MxSpecs, ResolvedSpecs};

use super::learner::{Regressor, Silent, loader};
use crate::support::*;

const LEARNING_RATE: f64 = 0.02;
const EPOCHS: usize = 2;
const STRATEGIES: [MultiDeviceOptim; 2] = [
    MultiDeviceOptim::OptimMainDevice,
    MultiDeviceOptim::OptimSharded,
];

fn two_devices() -> [TestDevice; 2] {
    [TestDevice::default(), TestDevice::default()]
}

fn resolved(specs: MxSpecs) -> ResolvedSpecs {
    specs.resolve().expect("the specs are sound")
}

/// Trains by burn-train's strategy for several devices.
fn trained<B: AutodiffBackend>(
    regressor: Regressor<B>,
    devices: &[B::Device],
    optim: MultiDeviceOptim,
) -> Regressor<B::InnerBackend> {
    let train = loader::<B>(5, &devices[0]);
    let valid = loader::<B::InnerBackend>(6, &devices[0]);
    let directory = tempfile::tempdir().expect("a directory can be made");
    let training = SupervisedTraining::new(directory.path(), train, valid)
        .metrics((LossMetric::new(),))
        .with_application_logger(None)
        .renderer(Silent)
        .with_training_strategy(ExecutionStrategy::multi(devices.to_vec(), optim).into())
        .num_epochs(EPOCHS);
    let learner = Learner::new(regressor, AdamConfig::new().init(), LEARNING_RATE);
    training.launch(learner).model
}

/// Gradients for a model on Burn alone, in the order of its parameters.
fn as_gradients(model: &Regressor<Plain>, values: Vec<Vec<f32>>) -> GradientsParams {
    struct Register(std::vec::IntoIter<Vec<f32>>, GradientsParams);
    impl ModuleVisitor<Plain> for Register {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Plain, D>>) {
            let values = self.0.next().expect("a gradient for each parameter");
            let grad = TensorData::new(values, param.dims());
            let grad = Tensor::<TestBackend, D>::from_data(grad, &TestDevice::default());
            self.1.register(param.id, grad);
        }
    }
    let mut register = Register(values.into_iter(), GradientsParams::new());
    model.visit(&mut register);
    register.1
}

/// Training on several devices by hand: each device computes the gradients of a fork on its share of the data. The
/// gradients are summed in float32, and Burn's optimizer updates float32 parameters. The model is on the device `home`.
fn by_hand(
    mut regressor: Regressor<Mx>,
    home: &MxDevice<TestDevice>,
    devices: &[MxDevice<TestDevice>],
    pinned: Option<&ResolvedSpecs>,
) -> Vec<Vec<f32>> {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let shares = split_dataloader(loader::<Mx>(5, &devices[0]), devices);
    let mut master = Regressor::<Plain>::new(&TestDevice::default());
    let mut optimizer = AdamConfig::new().init();
    for _ in 0..EPOCHS {
        let batches = shares.iter().map(|share| share.iter());
        let batches: Vec<Vec<_>> = batches.map(|share| share.collect()).collect();
        for step in 0..batches[0].len() {
            let of_device = |(device, batches): (&MxDevice<TestDevice>, &Vec<_>)| {
                let fork = regressor.clone().fork(device);
                let batch: &super::learner::Batch<Mx> = &batches[step];
                let grads = fork.regress(batch.clone()).loss.backward();
                gradients::<Mx, _>(&fork, &grads)
            };
            let mut grads = devices.iter().zip(&batches).map(of_device);
            let mut sum = grads.next().expect("there is a device");
            for other in grads {
                let elements = sum.iter_mut().flatten().zip(other.iter().flatten());
                elements.for_each(|(sum, other)| *sum += other);
            }
            let grads = as_gradients(&master, sum);
            master = optimizer.step(LEARNING_RATE, master, grads);
            let record = master.clone().into_record();
            let bytes = Recorder::<Plain>::record(&recorder, record, ()).expect("it saves");
            let record = Recorder::<Mx>::load(&recorder, bytes, home).expect("it loads");
            regressor = regressor.load_record(record);
            assert_eq!(specs_of(&regressor.head.weight.val()).as_ref(), pinned);
        }
    }
    weights(&master)
}

#[test]
fn several_devices_without_specs_train_as_burn_alone() {
    for optim in STRATEGIES {
        let plain = Regressor::<Plain>::new(&TestDevice::default());
        let plain = weights(&trained(plain, &two_devices(), optim));
        for device in [MxDevice::default(), mx_device(&MxSpecs::none())] {
            let regressor = Regressor::<Mx>::new(&device);
            let got = weights(&trained(regressor, &[device.clone(), device], optim));
            assert_all_same_bits(&got, &plain, &format!("{optim:?}: weight"));
        }
    }
}

#[test]
fn each_device_computes_by_its_specs_and_those_of_layers_and_the_optimizer_exactly() {
    let main = mx_device(&MxSpecs::mxfp8_e4m3());
    let coarse = resolved(MxSpecs::mxfp4());
    let mut all = Vec::new();
    let int8 = || mx_device(&MxSpecs::mxint8());
    for devices in [
        [main.clone(), main.clone()],
        [main.clone(), int8()],
        // Moves to a device without specs leave a model's as they are.
        [MxDevice::default(), int8()],
    ] {
        let specs = devices.clone().map(|device| device.specs().cloned());
        for pinned in [None, Some(&coarse)] {
            let mut regressor = Regressor::<Mx>::new(&main);
            if let Some(specs) = pinned {
                regressor = set_specs_at(regressor, "head", specs).expect("there is a head");
            }
            let head = pinned.or(main.specs());
            let expected = by_hand(regressor.clone(), &main, &devices, head);
            for optim in STRATEGIES {
                let what = format!("{optim:?}, devices {specs:?}, head {pinned:?}");
                let got = trained(regressor.clone(), &devices, optim);
                assert_all_same_bits(&weights(&got), &expected, &format!("{what}: weight"));
                let specs_of_head = specs_of(&got.head.weight.val());
                assert_eq!(specs_of_head.as_ref(), head, "{what}: head");
                let hidden = specs_of(&got.hidden.weight.val());
                assert_eq!(hidden.as_ref(), main.specs(), "{what}: hidden");
            }
            all.push(expected);
        }
    }
    // Emulation, the second device's specs and the head's all show.
    let plain = Regressor::<Plain>::new(&TestDevice::default());
    all.push(weights(&trained(plain, &two_devices(), STRATEGIES[0])));
    let [same, same_pinned, other, other_pinned, .., plain] = &all[..] else {
        panic!("there are seven");
    };
    for (a, b) in [
        (same, plain),
        (same, same_pinned),
        (same, other),
        (other, other_pinned),
        (same_pinned, other_pinned),
    ] {
        assert_ne!(a, b);
    }
}

#[test]
fn a_step_keeps_a_parameters_specs_whatever_the_device_of_its_gradient() {
    let main = mx_device(&MxSpecs::mxfp8_e4m3());
    let other = mx_device(&MxSpecs::mxint8());
    for (device, specs) in [(&main, main.specs()), (&MxDevice::default(), None)] {
        let regressor = Regressor::<Mx>::new(device);
        let fork = regressor.clone().fork(&other);
        let batch = loader::<Mx>(5, &other).iter().next().expect("there is one");
        let grads = fork.regress(batch).loss.backward();
        let grads = GradientsParams::from_grads(grads, &fork);
        let mut optimizer = AdamConfig::new().init();
        let stepped = optimizer.step(LEARNING_RATE, regressor, grads);
        assert_eq!(specs_of(&stepped.hidden.weight.val()).as_ref(), specs);
    }
}

#[test]
fn stochastic_training_repeats_if_each_device_has_a_seed_of_its_own() {
    let devices = [11, 12].map(|seed| {
        let specs = MxSpecs {
            round: burn_mx::Rounding::Stochastic,
            seed,
            ..MxSpecs::mxfp8_e4m3()
        };
        mx_device(&specs)
    });
    for optim in STRATEGIES {
        let run = |seed: u64| {
            let regressor = Regressor::<Mx>::new(&devices[0]);
            for (device, seed) in devices.iter().zip(seed..) {
                Mx::seed(device, seed);
            }
            weights(&trained(regressor, &devices, optim))
        };
        let first = run(1);
        assert_all_same_bits(&run(1), &first, &format!("{optim:?}: weight"));
        assert_ne!(run(3), first, "{optim:?}: the rounding draws");
    }
}
