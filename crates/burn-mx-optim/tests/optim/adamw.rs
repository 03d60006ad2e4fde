//! AdamW in one pass has the bits of Burn's, for any numbers, layouts and types.

use burn_core::tensor::{DType, Tensor, backend::Backend};
use burn_flex::Flex;
use burn_mx_core::{
    ElementwiseScope, MxAutodiff, MxBackend, MxDevice, MxModelOps, MxSpecs, internal::AdamWStep,
};
use burn_mx_optim::AdamW;
use burn_optim::{AdamWConfig, AdamWState, AdaptiveMomentumState, SimpleOptimizer};

use crate::{DEVICE, bits, tensor};

const CONFIGS: [fn() -> AdamWConfig; 4] = [
    AdamWConfig::new,
    || AdamWConfig::new().with_weight_decay(0.0),
    || {
        AdamWConfig::new()
            .with_weight_decay(0.3)
            .with_epsilon(0.0)
            .with_beta_1(0.0)
    },
    || {
        AdamWConfig::new()
            .with_beta_1(0.95)
            .with_beta_2(0.9)
            .with_epsilon(1e-8)
    },
];

const RATES: [f64; 3] = [1e-3, 0.0, -7.0];

type State<B, const D: usize> = Option<AdamWState<B, D>>;

fn state<B: Backend, const D: usize>(time: usize, moments: [Tensor<B, D>; 2]) -> State<B, D> {
    let [first, second] = moments;
    Some(AdamWState::new(AdaptiveMomentumState::new(
        time, first, second,
    )))
}

/// The parameter and the moments, where every NaN is the same one.
fn all_bits<B: Backend, const D: usize>(
    (tensor, state): (Tensor<B, D>, State<B, D>),
) -> [Vec<u32>; 3] {
    let momentum = state.expect("AdamW has a state").momentum;
    [tensor, momentum.moment_1, momentum.moment_2].map(|tensor| {
        let of_one_nan = |bits: u32| match f32::from_bits(bits).is_nan() {
            true => f32::NAN.to_bits(),
            false => bits,
        };
        bits(tensor.cast(DType::F32))
            .into_iter()
            .map(of_one_nan)
            .collect()
    })
}

/// Compares a step with Burn's, for all configs and rates. `tensors` are a parameter, its gradient and the two moments.
fn assert_burns<B: MxModelOps, const D: usize>(
    tensors: impl Fn() -> [Tensor<B, D>; 4],
    what: &str,
) {
    for (at, config) in CONFIGS.iter().enumerate() {
        let (own, burns) = (AdamW::new(&config()), config().build());
        for rate in RATES {
            for time in [1, 2, 1000, 3_000_000_000] {
                let [tensor, grad, first, second] = tensors();
                let own = own.step(rate, tensor, grad, state(time, [first, second]));
                let [tensor, grad, first, second] = tensors();
                let burns = burns.step(rate, tensor, grad, state(time, [first, second]));
                let place = format!("{what}, config {at}, rate {rate}, step {time}");
                assert_eq!(
                    own.1.as_ref().map(|state| state.momentum.time),
                    Some(time + 1),
                    "{place}"
                );
                assert!(all_bits(own) == all_bits(burns), "{place}");
            }
        }
    }
}

const SPECIAL: [f32; 13] = [
    0.0,
    -0.0,
    1.0,
    -0.3,
    1e-45,
    -1e-40,
    f32::MIN_POSITIVE,
    1e-20,
    3e38,
    -3e38,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

#[test]
fn four_special_numbers_in_every_order() {
    let count = SPECIAL.len();
    let column = |digit: u32| -> Vec<f32> {
        let numbers = 0..count.pow(4);
        numbers
            .map(|i| SPECIAL[i / count.pow(digit) % count])
            .collect()
    };
    let tensors = || {
        [0, 1, 2, 3].map(|digit| Tensor::<Flex, 1>::from_floats(column(digit).as_slice(), &DEVICE))
    };
    assert_burns(tensors, "special numbers");
}

/// A parameter of `[rows, columns]`, its gradient and its moments, of random numbers.
fn random<B: Backend>(shape: [usize; 2]) -> [Tensor<B, 2>; 4] {
    let [parameter, gradient, first, second] = [1, 2, 3, 4].map(|seed| tensor::<B, 2>(shape, seed));
    [parameter, gradient, first, second.powi_scalar(2)]
}

/// The largest is several threads' work.
#[test]
fn random_numbers_of_any_length() {
    for shape in [[0, 3], [1, 1], [3, 17], [300, 513]] {
        assert_burns(|| random::<Flex>(shape), &format!("{shape:?}"));
    }
}

#[test]
fn tensors_in_any_layout_and_of_other_types() {
    let shape = [40, 30];
    for transposed in 0..4 {
        assert_burns(
            || {
                let mut tensors = random::<Flex>(shape);
                let [rows, columns] = shape;
                tensors[transposed] = tensor::<Flex, 2>([columns, rows], 9).abs().transpose();
                tensors
            },
            &format!("tensor {transposed} transposed"),
        );
    }
    let sliced = || random::<Flex>([60, 50]).map(|tensor| tensor.slice([7..47, 9..39]));
    assert_burns(sliced, "slices");
    let expanded = || {
        let [parameter, _, first, second] = random::<Flex>(shape);
        let gradient = tensor::<Flex, 2>([1, 30], 5).expand(shape);
        [parameter, gradient, first, second]
    };
    assert_burns(expanded, "an expanded gradient");
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        assert_burns(
            || random::<Flex>(shape).map(|tensor| tensor.cast(dtype)),
            &format!("{dtype:?}"),
        );
    }
}

/// Burn's optimizers leave a model alone that somebody kept a clone of.
#[test]
fn clones_stay_as_they_are() {
    let own = AdamW::new(&AdamWConfig::new());
    let tensors = random::<Flex>([64, 33]);
    let before = tensors.clone().map(bits);
    let [parameter, gradient, first, second] = tensors.clone();
    let (after, _) = own.step(0.1, parameter, gradient, state(3, [first, second]));
    assert_ne!(bits(after), before[0]);
    assert_eq!(tensors.map(bits), before);
}

/// Whether a kernel computes a step, and not Burn's ops.
fn is_one_pass<B: MxModelOps>(tensors: [Tensor<B, 2>; 4]) -> bool {
    let step = AdamWStep {
        betas: [0.9, 0.999],
        shares: [0.1, 0.001],
        corrections: [0.19, 0.002],
        epsilon: 1e-5,
        kept: 1.0,
        rate: 1e-3,
    };
    B::adamw(step, tensors.map(|tensor| tensor.into_primitive().tensor())).is_ok()
}

/// The backend rounds the ops on such tensors, as it does outside of an optimizer's arithmetic. So Burn's ops compute the step.
#[test]
fn emulated_ops_are_burns() {
    let specs = [MxSpecs::none(), MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4()];
    for specs in specs {
        let is_emulated = specs != MxSpecs::none();
        let specs = MxSpecs {
            elementwise_scope: ElementwiseScope::All,
            ..specs
        };
        let device = MxDevice::new(DEVICE, &specs).expect("the specs are sound");
        let tensors = || {
            random::<Flex>([33, 40])
                .map(|tensor| Tensor::<MxBackend<Flex>, 2>::from_data(tensor.into_data(), &device))
        };
        assert_burns(tensors, &format!("{specs:?}"));
        assert_eq!(is_one_pass(tensors()), !is_emulated, "{specs:?}");
    }
}

/// Parameters and gradients, as they leave autodiff, and plain tensors.
#[test]
fn an_optimizers_steps_take_one_pass() {
    type Mx = MxAutodiff<Flex>;
    let device = MxDevice::new(DEVICE, "mxfp8_e4m3").expect("a preset");
    let [parameter, x, ..] = random::<Flex>([33, 40]);
    let on_device =
        |tensor: Tensor<Flex, 2>| Tensor::<Mx, 2>::from_data(tensor.into_data(), &device);
    let parameter = on_device(parameter).require_grad();
    let loss = on_device(x).matmul(parameter.clone().transpose()).sum();
    let gradient = parameter.grad(&loss.backward()).expect("the loss has one");
    let moments = [gradient.clone() * 0.1, gradient.clone().powi_scalar(2)];
    let [first, second] = moments;
    let tensors = [parameter.inner(), gradient, first, second];
    assert_burns(|| tensors.clone(), "of a training step");
    assert!(is_one_pass(tensors));
    assert!(is_one_pass(random::<Flex>([33, 40])));
    let halves = random::<Flex>([33, 40]).map(|tensor| tensor.cast(DType::F16));
    assert!(!is_one_pass(halves));
}

/// Either optimizer continues the other's states.
#[test]
fn steps_in_turn_with_burns() {
    let config = AdamWConfig::new().with_weight_decay(0.1);
    let (own, burns) = (AdamW::new(&config), config.build());
    let [weights, ..] = random::<Flex>([20, 30]);
    let (mut a, mut of_a) = (weights.clone(), None);
    let (mut b, mut of_b) = (weights, None);
    for step in 0..10 {
        let grad = tensor::<Flex, 2>([20, 30], 50 + step);
        (a, of_a) = match step % 3 {
            0 => burns.step(0.01, a, grad.clone(), of_a),
            _ => own.step(0.01, a, grad.clone(), of_a),
        };
        (b, of_b) = burns.step(0.01, b, grad, of_b);
    }
    assert!(all_bits((a, of_a)) == all_bits((b, of_b)));
}
