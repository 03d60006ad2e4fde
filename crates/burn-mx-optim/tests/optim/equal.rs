//! Without a format every bit is Burn's.

use burn_core::{module::Param, tensor::Tensor};
use burn_flex::Flex;
use burn_mx_optim::{OptimizerStates, state_bytes};
use burn_optim::{
    AdamConfig, AdamWConfig, AdjustLrFn, GradientsParams, MuonConfig, Optimizer, SgdConfig,
    SimpleOptimizer, decay::WeightDecayConfig, grad_clipping::GradientClippingConfig,
    momentum::MomentumConfig,
};

use crate::{B, Net, all_bits, bits, gradients, net, tensor};

/// Both take 20 steps with the same gradients.
fn same(mut own: impl Optimizer<Net<B>, B>, mut burn: impl Optimizer<Net<B>, B>, what: &str) {
    let (mut a, mut b) = (net(), net());
    let start = all_bits(&a);
    for step in 0..20 {
        let rate = 1e-2 / (1.0 + step as f64);
        let of_a = gradients(&a, step);
        a = own.step(rate, a, of_a);
        let of_b = gradients(&b, step);
        b = burn.step(rate, b, of_b);
        assert!(all_bits(&a) == all_bits(&b), "{what}: step {step}");
    }
    assert_ne!(start, all_bits(&a), "{what}");
}

#[test]
fn adam_equals_burns() {
    let none = OptimizerStates::default();
    let decay = Some(WeightDecayConfig::new(0.05));
    let clipping = Some(GradientClippingConfig::Norm(1.0));
    let configs = [
        AdamConfig::new(),
        AdamConfig::new().with_amsgrad(true).with_beta_2(0.9),
        AdamConfig::new()
            .with_weight_decay(decay)
            .with_grad_clipping(clipping),
    ];
    for config in configs {
        let own = none.adam(&config).unwrap();
        same(own, config.init(), &format!("{config}"));
    }
}

#[test]
fn adamw_equals_burns() {
    let none = OptimizerStates::default();
    let clipping = Some(GradientClippingConfig::Value(0.1));
    let configs = [
        AdamWConfig::new().with_weight_decay(0.1),
        AdamWConfig::new().with_amsgrad(true).with_beta_2(0.9),
        AdamWConfig::new()
            .with_cautious_weight_decay(true)
            .with_grad_clipping(clipping),
    ];
    for config in configs {
        let own = none.adamw(&config).unwrap();
        same(own, config.init(), &format!("{config}"));
    }
}

#[test]
fn sgd_equals_burns() {
    let none = OptimizerStates::default();
    let decay = Some(WeightDecayConfig::new(0.05));
    let clipping = Some(GradientClippingConfig::Norm(1.0));
    let nesterov = MomentumConfig::new()
        .with_nesterov(true)
        .with_momentum(0.83);
    let configs = [
        SgdConfig::new(),
        SgdConfig::new().with_momentum(Some(MomentumConfig::new())),
        SgdConfig::new()
            .with_momentum(Some(nesterov))
            .with_weight_decay(decay)
            .with_gradient_clipping(clipping),
    ];
    for config in configs {
        let own = none.sgd(&config).unwrap();
        same(own, config.init(), &format!("{config}"));
    }
}

#[test]
fn muon_equals_burns() {
    let nesterov = MomentumConfig::new().with_nesterov(true);
    let configs = [
        MuonConfig::new(),
        MuonConfig::new()
            .with_momentum(nesterov)
            .with_weight_decay(Some(WeightDecayConfig::new(0.1)))
            .with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW),
    ];
    for config in configs {
        for shape in [[48, 32], [32, 48]] {
            let none = OptimizerStates::default();
            let own = none.muon::<B, Net<B>>(&config).unwrap();
            let own = own.optim();
            let burn = config.build::<Flex>();
            let [mut a, mut b] = [(); 2].map(|()| tensor::<Flex, 2>(shape, 1));
            let (mut of_own, mut of_burn) = (None, None);
            for step in 0..20 {
                let grad = tensor::<Flex, 2>(shape, 10 + step);
                (a, of_own) = own.step(0.02, a, grad.clone(), of_own);
                (b, of_burn) = burn.step(0.02, b, grad, of_burn);
                assert!(bits(a.clone()) == bits(b.clone()), "step {step}");
            }
        }
    }
}

#[test]
fn formats_change_the_bits_and_the_memory() {
    // Parameters of 5000, 5040, 4440 and 432 elements: the last one stays float32.
    let packed = 5000 + 5040 + 4440;
    let float32 = 2 * 4 * (packed + 432);
    let expect = [
        ("float32", float32),
        // A byte each, and a float32 for each 256.
        ("bitsandbytes", 2 * (packed + 4 * (20 + 20 + 18)) + 8 * 432),
        ("deepseek_v3", float32 / 2),
        // A third bfloat16 number.
        ("bfloat16_kahan", float32 / 4 * 3),
        ("mxfp8_e4m3", 2 * (packed + 157 + 158 + 139) + 8 * 432),
        // Two scales of the rows and columns of matrices, [3·40, 37] for the volume.
        (
            "adam4",
            packed / 2 * 2 + 4 * (40 + 40 + 35) + 4 * (40 + 72 + 70 + 120 + 37) + 8 * 432,
        ),
    ];
    let config = AdamWConfig::new();
    let mut before = Vec::new();
    for (name, kept) in expect {
        let states = OptimizerStates::preset(name).unwrap();
        let mut optimizer = states.adamw::<B, Net<B>>(&config).unwrap();
        let mut net = net();
        for step in 0..2 {
            let of_net = gradients(&net, step);
            net = optimizer.step(1e-2, net, of_net);
        }
        let bytes = state_bytes(&optimizer);
        assert_eq!((bytes.kept, bytes.float32), (kept, float32), "{name}");
        let bits = all_bits(&net);
        assert!(!before.contains(&bits), "{name}");
        before.push(bits);
    }
}

/// The first step's update uses the moments before rounding.
#[test]
fn the_update_uses_moments_before_rounding() {
    let config = AdamWConfig::new();
    let start = net();
    let mut results = ["float32", "coat"].map(|name| {
        let states = OptimizerStates::preset(name).unwrap();
        let mut optimizer = states.adamw::<B, Net<B>>(&config).unwrap();
        optimizer.step(1e-2, start.clone(), gradients(&start, 0))
    });
    assert_eq!(all_bits(&results[0]), all_bits(&results[1]));
    // A parameter without a gradient stays, and has no state.
    let mut optimizer = OptimizerStates::preset("coat")
        .unwrap()
        .adamw::<B, Net<B>>(&config)
        .unwrap();
    let one = results[0].clone();
    let mut only = GradientsParams::new();
    only.register(
        one.vector.id,
        Tensor::<Flex, 1>::zeros([5000], &crate::DEVICE),
    );
    results[0] = optimizer.step(1e-2, one.clone(), only);
    assert_eq!(optimizer.to_record().len(), 1);
    let matrix = |net: &Net<B>| bits(Param::val(&net.matrix));
    assert_eq!(matrix(&one), matrix(&results[0]));
}
