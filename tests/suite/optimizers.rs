//! Optimizers compute on untouched float32 master values: with the same gradients, parameters equal Burn's alone bit
//! for bit, also across a save and load of the optimizer's record.

use burn::backend::flex::FlexDevice;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::{AutodiffModule, Module, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::lr_scheduler::LrScheduler;
use burn::optim::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdaGradConfig, AdamConfig, AdamWConfig, AdanConfig, GradientsAccumulator, GradientsParams,
    LBFGSConfig, LineSearchFn, MultiGradientsParams, MuonConfig, Optimizer, RmsPropConfig,
    SgdConfig,
};
use burn::prelude::DeviceOps;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Record, Recorder};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_mx::module::MxModelOps;
use burn_mx::optim::AdamW;
use burn_mx::{MxDevice, MxSpecs};

use crate::support::*;

/// Parameters and nothing else.
#[derive(Module, Debug)]
pub(crate) struct Params<B: Backend> {
    tall: Param<Tensor<B, 2>>,
    wide: Param<Tensor<B, 2>>,
    /// Absent for Muon, which takes matrices only.
    bias: Option<Param<Tensor<B, 1>>>,
}

impl<B: Exact> Params<B> {
    fn new(with_bias: bool, device: &B::Device) -> Self {
        let params = Self {
            tall: Param::from_tensor(Tensor::zeros([7, 4], device)),
            wide: Param::from_tensor(Tensor::zeros([3, 33], device)),
            bias: with_bias.then(|| Param::from_tensor(Tensor::zeros([5], device))),
        };
        with_noise_weights(params, 1)
    }

    /// Gradients with these exact values, as they leave the backward pass of a step.
    fn gradients(&self, step: u64, device: &B::Device) -> GradientsParams {
        let tall = self.tall.val();
        let wide = self.wide.val();
        let tall_grad = noise_tensor::<B, 2>(tall.dims(), 100 + step, device);
        let wide_grad = noise_tensor::<B, 2>(wide.dims(), 200 + step, device);
        let mut loss =
            B::loss_with_gradient(tall, tall_grad.clone()) + B::loss_with_gradient(wide, wide_grad);
        if let Some(bias) = &self.bias {
            let grad = noise_tensor::<B, 1>(bias.dims(), 300 + step, device);
            loss = loss + B::loss_with_gradient(bias.val(), grad);
        }
        let grads = loss.backward();
        let left = self.tall.val().grad(&grads).expect("the loss has it");
        assert_same_bits(&values(left), &values(tall_grad), "gradient as fed");
        GradientsParams::from_grads(grads, self)
    }
}

const LEARNING_RATE: f64 = 0.013;

fn step<B: Exact, O: Optimizer<Params<B>, B>>(
    optimizer: &mut O,
    params: Params<B>,
    step: u64,
    device: &B::Device,
) -> Params<B> {
    let grads = params.gradients(step, device);
    optimizer.step(LEARNING_RATE, params, grads)
}

/// A record after a save to bytes and a load on `device` of another device.
fn reloaded<B: Backend, R: Record<B>>(record: R, device: &B::Device) -> R {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<B>::record(&recorder, record, ()).expect("the record saves");
    recorder.load(bytes, device).expect("the record loads")
}

/// Parameters after ten steps; after the fourth, optimizer and parameters go through their records, loaded on
/// `reload`, into new ones.
fn ten_steps<B: Exact, O: Optimizer<Params<B>, B>>(
    new: impl Fn() -> O,
    with_bias: bool,
    device: &B::Device,
    reload: Option<&B::Device>,
) -> Vec<Vec<f32>> {
    let mut optimizer = new();
    let mut params = Params::<B>::new(with_bias, device);
    for i in 0..10 {
        params = step(&mut optimizer, params, i, device);
        if let Some(reload) = reload
            && i == 3
        {
            optimizer = new().load_record(reloaded::<B, _>(optimizer.to_record(), reload));
            let record = reloaded::<B, _>(params.clone().into_record(), reload);
            params = Params::new(with_bias, device).load_record(record);
        }
    }
    weights(&params)
}

/// One step on both backends.
fn assert_one_step<O, P>(mx: O, plain: P, with_bias: bool)
where
    O: Optimizer<Params<Mx>, Mx>,
    P: Optimizer<Params<Plain>, Plain>,
{
    let (mut mx, mut plain) = (mx, plain);
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let got = step(&mut mx, Params::<Mx>::new(with_bias, &device), 0, &device);
    let params = Params::<Plain>::new(with_bias, &FlexDevice);
    let expected = step(&mut plain, params, 0, &FlexDevice);
    let got = weights(&got);
    assert_all_same_bits(&got, &weights(&expected), "parameter");
    let rounded = got.iter().flatten().filter(|value| is_bfloat16(**value));
    assert!(rounded.count() <= 2, "parameters are rounded to bfloat16");
    let untouched = weights(&Params::<Mx>::new(with_bias, &device));
    assert_ne!(got, untouched, "the step changes the parameters");
}

/// Ten steps, on both backends, with and without a reload.
fn assert_ten_steps<O, P>(mx: impl Fn() -> O, plain: impl Fn() -> P, with_bias: bool)
where
    O: Optimizer<Params<Mx>, Mx>,
    P: Optimizer<Params<Plain>, Plain>,
{
    let expected = ten_steps::<Plain, P>(&plain, with_bias, &FlexDevice, None);
    let reloads = ten_steps::<Plain, P>(&plain, with_bias, &FlexDevice, Some(&FlexDevice));
    assert_all_same_bits(&reloads, &expected, "Burn alone, reloaded: parameter");

    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let other = mx_device(&MxSpecs::mxfp4());
    for (reload, what) in [
        (None, "without reload: parameter"),
        (Some(&device), "loaded on the same device: parameter"),
        (Some(&other), "loaded on a device of other specs: parameter"),
        (
            Some(&MxDevice::default()),
            "loaded on a default device: parameter",
        ),
    ] {
        let got = ten_steps::<Mx, O>(&mx, with_bias, &device, reload);
        assert_all_same_bits(&got, &expected, what);
    }
}

macro_rules! optimizer_tests {
    ($($name:ident, bias $bias:literal: $config:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn one_step_is_bit_identical_to_burn_alone() {
                let mx = $config.init::<Mx, Params<Mx>>();
                let plain = $config.init::<Plain, Params<Plain>>();
                assert_one_step(mx, plain, $bias);
            }

            #[test]
            fn ten_steps_across_a_record_are_bit_identical_to_burn_alone() {
                let mx = || $config.init::<Mx, Params<Mx>>();
                let plain = || $config.init::<Plain, Params<Plain>>();
                assert_ten_steps(mx, plain, $bias);
            }
        }
    )* };
}

/// Our AdamW, which computes a step in one pass, in the form of Burn's configs.
pub(super) struct InOnePass(pub(super) AdamWConfig);

impl InOnePass {
    pub(super) fn init<B, M>(&self) -> OptimizerAdaptor<AdamW, M, B>
    where
        B: AutodiffBackend<InnerBackend: MxModelOps>,
        M: AutodiffModule<B>,
    {
        OptimizerAdaptor::from(AdamW::new(&self.0))
    }
}

pub(super) fn decay() -> Option<WeightDecayConfig> {
    Some(WeightDecayConfig::new(0.03))
}

/// Hands every optimizer but L-BFGS, with its options, to a macro.
macro_rules! optimizers {
    ($to:ident) => {
        $to! {
            adam, bias true: AdamConfig::new();
            adam_amsgrad_decay, bias true: AdamConfig::new().with_amsgrad(true).with_weight_decay(decay());
            adamw, bias true: AdamWConfig::new().with_weight_decay(0.03);
            adamw_cautious, bias true: AdamWConfig::new().with_weight_decay(0.03).with_cautious_weight_decay(true);
            adamw_in_one_pass, bias true: InOnePass(AdamWConfig::new().with_weight_decay(0.03));
            sgd, bias true: SgdConfig::new();
            sgd_momentum_decay, bias true: SgdConfig::new()
                .with_weight_decay(decay())
                .with_momentum(Some(MomentumConfig::new().with_momentum(0.87).with_nesterov(true)));
            rmsprop_momentum, bias true: RmsPropConfig::new().with_momentum(0.87).with_weight_decay(decay());
            rmsprop_centered, bias true: RmsPropConfig::new().with_centered(true);
            adagrad, bias true: AdaGradConfig::new().with_lr_decay(0.1).with_weight_decay(decay());
            adan, bias true: AdanConfig::new().with_weight_decay(0.03);
            adan_no_prox, bias true: AdanConfig::new().with_weight_decay(0.03).with_no_prox(true);
            muon, bias false: MuonConfig::new().with_weight_decay(decay());
            clipped_by_norm, bias true: AdamConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(0.7)));
            clipped_by_value, bias true: SgdConfig::new()
                .with_gradient_clipping(Some(GradientClippingConfig::Value(0.31)));
        }
    };
}
pub(super) use optimizers;

optimizers!(optimizer_tests);

fn accumulated<B: Exact>(device: &B::Device) -> Vec<Vec<f32>> {
    let params = Params::<B>::new(true, device);
    let mut accumulator = GradientsAccumulator::new();
    for i in 0..3 {
        accumulator.accumulate(&params, params.gradients(i, device));
    }
    let mut optimizer = AdamConfig::new().init();
    weights(&optimizer.step(LEARNING_RATE, params, accumulator.grads()))
}

#[test]
fn a_step_on_accumulated_gradients_is_bit_identical_to_burn_alone() {
    let got = accumulated::<Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    assert_all_same_bits(&got, &accumulated::<Plain>(&FlexDevice), "parameter");
}

/// Gradients of two devices, which only their ids name, as in multi-device training.
fn multi_device<B: Exact>(device: &B::Device) -> Vec<Vec<f32>> {
    let mut params = Params::<B>::new(true, device);
    let mut optimizer = AdamConfig::new().init();
    for i in 0..2 {
        let [first, second] = [0, 1].map(|worker| {
            let grads = params.gradients(10 * i + worker, device);
            (grads.to_device::<B, _>(device, &params), device.to_id())
        });
        let grads = MultiGradientsParams {
            grads: vec![first, second],
        };
        params = optimizer.step_multi(LEARNING_RATE, params, grads);
    }
    weights(&params)
}

#[test]
fn a_multi_device_step_is_bit_identical_to_burn_alone() {
    let got = multi_device::<Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    assert_all_same_bits(&got, &multi_device::<Plain>(&FlexDevice), "parameter");
}

fn scheduled<B: Exact>(device: &B::Device) -> Vec<Vec<f32>> {
    let mut params = Params::<B>::new(true, device);
    let mut optimizer = SgdConfig::new().init();
    let config = CosineAnnealingLrSchedulerConfig::new(0.1, 10);
    let mut scheduler = config.init().expect("the config is sound");
    for i in 0..5 {
        let grads = params.gradients(i, device);
        params = optimizer.step(scheduler.step(), params, grads);
    }
    weights(&params)
}

#[test]
fn steps_at_scheduled_rates_are_bit_identical_to_burn_alone() {
    let got = scheduled::<Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    assert_all_same_bits(&got, &scheduled::<Plain>(&FlexDevice), "parameter");
}

/// L-BFGS evaluates the loss by itself: `Σ (w - target)² / 2` and `Σ w⁴ / 40`, so that the curvature changes.
fn lbfgs<B: Exact>(line_search: LineSearchFn, device: &B::Device) -> Vec<Vec<f32>> {
    let mut params = Params::<B>::new(true, device);
    let config = LBFGSConfig::new().with_max_iter(4);
    let mut optimizer = config.with_line_search_fn(line_search).init::<B>();
    for _ in 0..3 {
        (params, _) = optimizer.step(0.4, params, |params: Params<B>| {
            // Each parameter enters the exact piece once: outside of the piece gradients add up emulated.
            let [tall, target] = [params.tall.val(), noise_tensor([7, 4], 9, device)].map(B::exact);
            let wide = B::exact(params.wide.val());
            let bias = B::exact(params.bias.as_ref().expect("the parameters have one").val());
            let distance = tall.clone() - target;
            let loss = (distance.clone() * distance / 2.0 + tall.powi_scalar(4) / 40.0).sum()
                + (wide.clone() * wide).sum()
                + (bias.clone() * bias).sum();
            let value = f64::from(values(loss.clone())[0]);
            (value, GradientsParams::from_grads(loss.backward(), &params))
        });
    }
    weights(&params)
}

#[test]
fn lbfgs_is_bit_identical_to_burn_alone() {
    for line_search in [LineSearchFn::None, LineSearchFn::StrongWolfe] {
        let got = lbfgs::<Mx>(line_search, &mx_device(&MxSpecs::mxfp8_e4m3()));
        let expected = lbfgs::<Plain>(line_search, &FlexDevice);
        assert_all_same_bits(&got, &expected, "parameter");
    }
}
