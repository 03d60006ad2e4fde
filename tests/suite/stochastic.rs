//! Stochastic rounding: a run that is resumed from a record gives the bits of one that was never stopped.

use burn::module::{AutodiffModule, Module};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Record, Recorder};
use burn::tensor::backend::Backend;
use burn_mx::MxSpecs;
use burn_mx::microscaling::Rounding;

use super::digit_models::{Classify, Cnn, digits};
use super::support::*;

type Device = burn_mx::MxDevice<burn::backend::flex::FlexDevice>;

/// Steps of Adam with the random numbers of `epoch`, then an evaluation, as a training loop does it.
fn train_epoch<O: Optimizer<Cnn<Mx>, Mx>>(
    mut model: Cnn<Mx>,
    optimizer: &mut O,
    epoch: u64,
    device: &Device,
) -> (Vec<f32>, Cnn<Mx>) {
    Mx::seed(device, epoch);
    let loss_function = CrossEntropyLossConfig::new().init(device);
    let mut losses = Vec::new();
    for _ in 0..3 {
        let (images, labels) = digits::<Mx>(device);
        let loss = loss_function.forward(model.logits(images), labels);
        losses.extend(values(loss.clone()));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.01, model, grads);
    }
    losses.extend(values(model.valid().logits(digits(device).0)));
    (losses, model)
}

fn through_a_recorder<R: Record<Mx>>(record: R, device: &Device) -> R {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Mx>::record(&recorder, record, ()).expect("it saves");
    Recorder::<Mx>::load(&recorder, bytes, device).expect("it loads")
}

/// The running statistics of batch norm are known to be rounded until they are in a record, and a tensor that is known to
/// be is not rounded again.
#[test]
fn a_resumed_run_of_batch_norm_draws_the_numbers_of_an_uninterrupted_one() {
    let specs = MxSpecs {
        round: Rounding::Stochastic,
        seed: 4711,
        ..MxSpecs::mxfp8_e4m3()
    };
    let device = mx_device(&specs);
    let mut optimizer = AdamConfig::new().init::<Mx, Cnn<Mx>>();
    let (_, model) = train_epoch(Cnn::new(&device), &mut optimizer, 1, &device);

    let record = through_a_recorder(model.clone().into_record(), &device);
    let mut resumed_optimizer = AdamConfig::new().init::<Mx, Cnn<Mx>>();
    resumed_optimizer =
        resumed_optimizer.load_record(through_a_recorder(optimizer.to_record(), &device));
    let resumed = Cnn::<Mx>::new(&device).load_record(record);

    let (expected, model) = train_epoch(model, &mut optimizer, 2, &device);
    let (got, resumed) = train_epoch(resumed, &mut resumed_optimizer, 2, &device);
    assert_same_bits(&got, &expected, "losses and logits");
    assert_all_same_bits(&weights(&resumed), &weights(&model), "parameter");
    let (other, _) = train_epoch(resumed, &mut resumed_optimizer, 3, &device);
    assert_ne!(other, got, "rounding is random");
}
