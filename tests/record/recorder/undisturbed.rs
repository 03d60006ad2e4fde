//! Recording changes nothing, and its figures depend on neither backend nor threads.

use std::fs;

use burn::backend::ndarray::NdArrayDevice;
use burn::backend::{Flex, NdArray};
use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_mx::Rounding;
use burn_mx::module::{MxTensorOps, label_parameters};
use burn_mx::record::{OperandRecord, RECORDS, RecorderConfig, StepRecord};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs};

#[cfg(not(test_backend = "flex"))]
use super::figures::CLOSE;
use super::{folder, record_here, steps};
use crate::models::{
    Architecture, Convolutions, Forward as _, Mlp, Recurrent, Transformer, Wide, model,
};
use crate::support::{assert_all_same_bits, noise_tensor, values, weights};
#[cfg(not(test_backend = "flex"))]
use burn_mx::record::Figures;

/// The specs with the most random numbers: gradients stochastically, elementwise values too.
///
/// Separate specs, because other tests of this process draw by their own specs.
fn stochastic() -> MxSpecs {
    MxSpecs {
        round: Rounding::Stochastic,
        seed: 41,
        ..MxSpecs::mxfp4_sr_rht()
    }
}

/// Losses and weights of three steps, recorded or not.
fn trained<A: Architecture, B: MxKernels>(
    specs: &MxSpecs,
    inner: B::Device,
    recorded: bool,
) -> (Vec<Vec<f32>>, usize)
where
    MxAutodiff<B>: AutodiffBackend<Device = MxDevice<B::Device>> + MxTensorOps,
{
    let device = MxDevice::new(inner, specs).expect("the specs are sound");
    MxAutodiff::<B>::seed(&device, 5);
    let folder = folder();
    let config = RecorderConfig {
        elementwise: true,
        ..RecorderConfig::default()
    };
    let config = config.what_if(["mxfp4_sr_rht", "nvfp4", "mxfp8_rceil"]);
    let recording = recorded.then(|| record_here(config, &folder));
    let mut model = label_parameters(model::<A, MxAutodiff<B>>(&device));
    let mut optimizer = SgdConfig::new().init();
    let mut all = Vec::new();
    for _ in 0..3 {
        let outputs = model.outputs(&device);
        let target = noise_tensor(outputs.dims(), 31, &device);
        let loss = (outputs - target).square().mean();
        all.push(values(loss.clone()));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.05, model, grads);
    }
    // An evaluation does not belong to a step, and its copies are kept.
    for _ in 0..3 {
        all.push(values(model.valid().outputs(&device)));
    }
    all.extend(weights(&model));
    let count = recording.map_or(0, |recording| {
        let report = recording.finish().expect("the records are whole");
        steps(&report).len()
    });
    (all, count)
}

fn is_undisturbed<A: Architecture>() {
    for specs in [
        MxSpecs::mxfp8_e4m3(),
        MxSpecs::nvfp4(),
        MxSpecs::mx6(),
        MxSpecs {
            seed: 42,
            ..MxSpecs::mxfp4_sr_rht()
        },
        stochastic(),
        MxSpecs {
            accumulator: Some(
                "accumulator(order=exact,terms=16,output=f32_rne)"
                    .parse()
                    .unwrap(),
            ),
            ..stochastic()
        },
    ] {
        let (off, _) = trained::<A, Flex>(&specs, Default::default(), false);
        let (on, recorded) = trained::<A, Flex>(&specs, Default::default(), true);
        assert_eq!(recorded, 3);
        assert_all_same_bits(&on, &off, &format!("flex, {specs:?}"));
    }
    let specs = stochastic();
    let (off, _) = trained::<A, NdArray>(&specs, NdArrayDevice::Cpu, false);
    let (on, _) = trained::<A, NdArray>(&specs, NdArrayDevice::Cpu, true);
    assert_all_same_bits(&on, &off, "ndarray");
}

#[cfg(test_backend = "flex")]
#[test]
fn recording_changes_no_bit() {
    is_undisturbed::<Mlp>();
    is_undisturbed::<Wide>();
    is_undisturbed::<Transformer>();
    is_undisturbed::<Convolutions>();
    is_undisturbed::<Recurrent>();
}

/// The records of one training pass.
fn records_of_a_pass<A: Architecture, B: MxKernels>(inner: B::Device) -> String
where
    MxAutodiff<B>: AutodiffBackend<Device = MxDevice<B::Device>> + MxTensorOps,
{
    let specs = MxSpecs::mxfp6_e3m2().resolve().expect("a preset");
    let device = MxDevice::new(inner, &specs).expect("resolved specs");
    let folder = folder();
    let config = RecorderConfig {
        elementwise: true,
        ..RecorderConfig::default()
    };
    let recording = record_here(config.what_if(["mx9"]), &folder);
    let model = label_parameters(model::<A, MxAutodiff<B>>(&device));
    model.outputs(&device).sum().backward();
    recording.finish().expect("the records are whole");
    fs::read_to_string(folder.path().join(RECORDS)).expect("it was written")
}

/// The operands of the first product of a step; later operands have passed sums in another order.
fn first_operands(records: &str) -> (String, Vec<OperandRecord>) {
    let line = records.lines().nth(1).expect("a step");
    let step: StepRecord = serde_json::from_str(line).expect("a record");
    let product = step.products.into_iter().next().expect("a product");
    (product.layer, product.operands)
}

/// Compares the figures that are sums, and takes them out of both.
#[cfg(not(test_backend = "flex"))]
fn without_sums(figures: &mut Figures, expected: &mut Figures) {
    let sums = |figures: &mut Figures| {
        let blocks = figures.block_sqnr.take().unwrap_or_default();
        [
            figures.mse.take(),
            figures.sqnr.take(),
            figures.slope.take(),
            blocks[0],
            blocks[1],
            blocks[2],
        ]
    };
    for (got, expected) in sums(figures).into_iter().zip(sums(expected)) {
        let both = got.zip(expected);
        let is_close = both.is_some_and(|(a, b)| (a - b).abs() <= CLOSE * b.abs());
        assert!(is_close || got == expected, "{got:?}, not {expected:?}");
    }
}

/// Figures that a device sums up are close to a CPU's, the others are equal, and no result changes.
#[cfg(not(test_backend = "flex"))]
#[test]
fn a_device_has_the_same_figures_and_bits() {
    use crate::backend::TestBackend;

    #[cfg(not(any(test_backend = "ndarray", test_backend = "tch")))]
    burn_mx::process::reproducible_products(true);
    for specs in [MxSpecs::mxfp8_e4m3(), stochastic()] {
        let (off, _) = trained::<Mlp, TestBackend>(&specs, Default::default(), false);
        let (on, recorded) = trained::<Mlp, TestBackend>(&specs, Default::default(), true);
        assert_eq!(recorded, 3);
        assert_all_same_bits(&on, &off, &format!("{specs:?}"));
    }
    let here = records_of_a_pass::<Wide, TestBackend>(Default::default());
    let flex = records_of_a_pass::<Wide, Flex>(Default::default());
    let [(layer, mut here), (same_layer, mut flex)] =
        [here, flex].map(|records| first_operands(&records));
    for (here, flex) in here.iter_mut().zip(&mut flex) {
        without_sums(&mut here.figures, &mut flex.figures);
        for (here, flex) in here.what_if.values_mut().zip(flex.what_if.values_mut()) {
            without_sums(here, flex);
        }
    }
    assert_eq!((layer, here), (same_layer, flex));
}

#[cfg(test_backend = "flex")]
#[test]
fn backends_and_threads_have_the_same_figures() {
    let on = |threads: usize, flex: bool| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads can be started")
            .install(|| match flex {
                true => records_of_a_pass::<Wide, Flex>(Default::default()),
                false => records_of_a_pass::<Wide, NdArray>(NdArrayDevice::Cpu),
            })
    };
    let one = on(1, true);
    assert!(one.contains("input_gradient"));
    assert_eq!(on(3, true), one);
    // Outside of a pool figures are computed by its threads while the pass goes on.
    assert_eq!(records_of_a_pass::<Wide, Flex>(Default::default()), one);
    assert_eq!(first_operands(&on(2, false)), first_operands(&one));
}
