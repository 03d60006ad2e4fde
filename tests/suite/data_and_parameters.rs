//! Elementwise emulation is of activations: data stays float32 until a parameter meets it, parameters stay float32 in every
//! arithmetic on them alone, and activations are rounded in both passes.
//!
//! The independent source is Burn alone, and arithmetic in Rust.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::module::{AutodiffModule, Module, ModuleMapper, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::{activation, linalg};
use burn_mx::module::as_activation;
use burn_mx::{MxBackend, MxDevice, MxSpecs};

use crate::support::*;

type Inference = MxBackend<Flex>;
type Device = MxDevice<FlexDevice>;

pub(super) fn preset(name: &str) -> Device {
    MxDevice::new(FlexDevice, name).expect("it is a preset")
}

/// Asserts that two functions give the same bits.
fn assert_float32<B: Backend<Device = Device>, P: Backend<Device = FlexDevice>, const D: usize>(
    what: &str,
    mx: impl Fn(&Device) -> Tensor<B, D>,
    plain: impl Fn(&FlexDevice) -> Tensor<P, D>,
) {
    let expected = values(plain(&FlexDevice));
    for name in ["mxfp8_e4m3", "mxfp4"] {
        assert_same_bits(&values(mx(&preset(name))), &expected, what);
    }
}

macro_rules! assert_stays_float32 {
    ($($function:ident),+) => { $(
        // burn-autodiff composes some functions that Flex has as one.
        assert_float32(stringify!($function), $function::<Mx>, $function::<Plain>);
        assert_float32(stringify!($function), $function::<Inference>, $function::<Flex>);
    )+ };
}

fn pixels<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let data = [[0, 7, 35_682], [65_535, 255, 1_000_001]];
    Tensor::<B, 2, Int>::from_data(data, device).float()
}

/// A batcher's normalization by constants of the data set.
fn normalized<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    (pixels::<B>(device) / 255.0 - 0.1307) / 0.3081
}

fn normalized_by_tensors<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let [mean, std] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]
        .map(|data| Tensor::<B, 2>::from_data([data], device));
    (pixels::<B>(device) - mean) / std
}

fn standardized<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let (variance, mean) = noise_tensor::<B, 2>([64, 5], 1, device).var_mean(0);
    (noise_tensor::<B, 2>([64, 5], 1, device) - mean) / (variance + 1e-5).sqrt()
}

/// Smoothed labels, picked weights of classes, and averaged masks of lengths.
fn targets<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let labels = Tensor::<B, 1, Int>::from_data([1, 0, 4, 2], device);
    let smoothed = labels.clone().one_hot::<2>(5).float() * 0.9 + 0.1 / 5.0;
    let weights = noise_tensor::<B, 1>([5], 2, device).gather(0, labels.clone());
    let share = weights.clone() / weights.sum();
    let mask = labels.greater_elem(0).float() / 3.0;
    smoothed * (share + mask).unsqueeze_dim::<2>(1)
}

fn mixed_up<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let x = noise_tensor::<B, 2>([8, 5], 3, device);
    activation::softmax(x.clone() * 0.7 + x.flip([0]) * 0.3, 1)
}

/// Positions of data: an encoding of times.
fn encoded<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let times = Tensor::<B, 1, Int>::from_data([1001, 2003, 4007], device).float();
    let rates = (Tensor::<B, 1, Int>::arange(0..4, device).float() * -0.3).exp();
    (times.unsqueeze_dim::<2>(1) * rates.unsqueeze_dim(0)).sin()
}

#[test]
fn data_stays_float32() {
    assert_stays_float32!(
        normalized,
        normalized_by_tensors,
        standardized,
        targets,
        mixed_up,
        encoded
    );
    let kept = values(pixels::<Mx>(&preset("mxfp8_e4m3")) * 1.0);
    assert_eq!(kept, [0.0, 7.0, 35_682.0, 65_535.0, 255.0, 1_000_001.0]);
    let x = values(normalized::<Mx>(&preset("mxfp4")));
    let by_hand = (35_682.0_f32 / 255.0 - 0.1307) / 0.3081;
    assert_same_bits(&x[2..3], &[by_hand], "by hand");
}

/// The output of a validation: an accuracy, and the average of large losses.
#[test]
fn averages_of_a_validation_are_float32s() {
    fn averages<B: Backend>(device: &B::Device) -> Vec<f32> {
        let hits = (0..1000).map(|i| i64::from(i % 333 != 5)).collect();
        let hits = TensorData::new::<i64, _>(hits, [1000]);
        let hits = Tensor::<B, 1, Int>::from_data(hits, device);
        let linear = with_noise_weights::<B, _>(LinearConfig::new(6, 5).init(device), 3);
        let output = linear.forward(noise_tensor::<B, 2>([1000, 6], 4, device));
        let labels = output.clone().detach().argmax(1);
        let right = output.clone().argmax(1).equal(labels).squeeze_dim::<1>(1);
        let right = right.int() * hits.clone();
        let losses = (0..10).map(|i| {
            let loss = Tensor::<B, 1>::from_data([1000.3 + 1.7 * i as f32], device);
            loss + output.clone().sum() * 0.0
        });
        let losses = Tensor::cat(losses.collect(), 0);
        vec![
            values(hits.clone().float().mean())[0],
            values(right.float().mean())[0],
            values(right_share(hits))[0],
            values(losses.mean())[0],
        ]
    }
    fn right_share<B: Backend>(hits: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        hits.sum().float() / 1000.0
    }
    for name in ["mxfp8_e4m3", "mxfp4"] {
        for got in [
            averages::<Mx>(&preset(name)),
            averages::<Inference>(&preset(name)),
        ] {
            assert!(got[..3].iter().all(|x| (x - 0.997).abs() < 1e-6), "{got:?}");
            // The losses are activations, rounded one by one where they were added: 1000.3 is 1000, 1015.6 is 1016.
            assert!(
                !is_bfloat16(got[3]) && (got[3] - 1007.95).abs() < 2.0,
                "{got:?}"
            );
        }
    }
}

/// Burn's dqn-agent example: `soft_update_tensor`.
fn soft_update<B: Backend, const D: usize>(
    this: &Param<Tensor<B, D>>,
    that: &Param<Tensor<B, D>>,
    tau: f64,
) -> Param<Tensor<B, D>> {
    let new_weight = this.val() * (1.0 - tau) + that.val() * tau;
    Param::initialized(ParamId::new(), new_weight.no_grad())
}

#[test]
fn a_soft_update_by_hand_moves() {
    fn updated<B: Backend>(device: &B::Device) -> Vec<f32> {
        let leaf = |value: f32| {
            Param::from_tensor(Tensor::<B, 1>::from_data([value, 0.3 * value], device))
        };
        let (mut target, online) = (leaf(1.0), leaf(2.0));
        for _ in 0..400 {
            target = soft_update(&target, &online, 0.005);
        }
        values(target.val())
    }
    let expected = updated::<Flex>(&FlexDevice);
    // 2 − 0.995^400, by hand.
    assert!((expected[0] - 1.8653).abs() < 1e-4, "{expected:?}");
    for name in ["mxfp8_e4m3", "mxfp4"] {
        assert_same_bits(&updated::<Inference>(&preset(name)), &expected, name);
        assert_same_bits(&updated::<Mx>(&preset(name)), &expected, name);
    }
}

/// Scales, shifts and clips each parameter.
struct Scale;

impl<B: Backend> ModuleMapper<B> for Scale {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let required = tensor.is_require_grad();
            let tensor = (tensor * 0.9 + 0.01).clamp(-1.1, 1.1);
            let norm = (tensor.clone() * tensor.clone()).sum().sqrt();
            let tensor = tensor / (norm + 1e-6).unsqueeze();
            tensor.detach().set_require_grad(required)
        })
    }
}

fn linear<B: Backend>(seed: u64, device: &B::Device) -> Linear<B> {
    with_noise_weights(LinearConfig::new(8, 4).init(device), seed)
}

#[test]
fn a_map_of_parameters_is_float32s() {
    let expected = weights(&linear::<Flex>(3, &FlexDevice).map(&mut Scale));
    for name in ["mxfp8_e4m3", "mxfp4"] {
        let device = preset(name);
        let mapped = linear::<Mx>(3, &device).map(&mut Scale);
        assert_all_same_bits(&weights(&mapped), &expected, name);
        let again = linear::<Inference>(3, &device).map(&mut Scale);
        assert_all_same_bits(&weights(&again), &expected, name);
        // Inference of a model that was trained.
        let valid = linear::<Mx>(3, &device).valid().map(&mut Scale);
        assert_all_same_bits(&weights(&valid), &expected, name);
        // Scaled parameters are parameters: they have blocks as weights have them.
        let x = noise_tensor::<Mx, 2>([3, 8], 5, &device);
        let fresh =
            |values: &Vec<f32>, shape: &[usize]| TensorData::new(values.clone(), shape.to_vec());
        let fresh = Linear::<Mx> {
            weight: Param::from_data(fresh(&expected[0], &[8, 4]), &device),
            bias: Some(Param::from_data(fresh(&expected[1], &[4]), &device)),
        };
        assert_same_bits(
            &values(mapped.forward(x.clone())),
            &values(fresh.forward(x)),
            "output",
        );
    }
}

#[test]
fn a_moving_average_of_weights_is_float32s() {
    fn averaged<B: Backend>(device: &B::Device) -> Vec<f32> {
        let mut average = linear::<B>(1, device).weight.val().detach();
        for seed in 2..50 {
            average = average * 0.99 + linear::<B>(seed, device).weight.val().detach() * 0.01;
        }
        values(average)
    }
    let expected = averaged::<Flex>(&FlexDevice);
    let device = preset("mxfp8_e4m3");
    assert_same_bits(&averaged::<Mx>(&device), &expected, "training");
    assert_same_bits(&averaged::<Inference>(&device), &expected, "inference");
}

/// By hand, as a program without Burn's optimizers clips: the norm of all gradients.
#[test]
fn gradients_clipped_by_hand_are_float32s() {
    fn stepped<B: Exact>(device: &B::Device) -> Vec<Vec<f32>> {
        let linear = linear::<B>(3, device);
        let loss = B::loss_with_gradient(linear.weight.val(), noise_tensor([8, 4], 6, device));
        let bias = linear.bias.as_ref().expect("it has one").val();
        let loss = loss + B::loss_with_gradient(bias.clone(), noise_tensor([4], 7, device));
        let grads = loss.backward();
        let weight = linear.weight.val();
        let (gw, gb) = (
            weight.grad(&grads).expect("a leaf"),
            bias.grad(&grads).expect("a leaf"),
        );
        let norm = (gw.clone().square().sum() + gb.clone().square().sum()).sqrt();
        let factor = (norm + 1e-6).recip() * 0.7;
        let clipped = gb.clamp(-0.31, 0.31);
        vec![
            values(weight.inner() - gw * factor.unsqueeze() * 0.1),
            values(bias.inner() - clipped * 0.1),
        ]
    }
    let expected = stepped::<Plain>(&FlexDevice);
    assert_all_same_bits(
        &stepped::<Mx>(&preset("mxfp8_e4m3")),
        &expected,
        "parameters",
    );
}

/// Weights `[8, 4]` that are computed of parameters, and the gradients of these.
fn composed<B: Exact>(
    compose: fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>,
    device: &B::Device,
) -> [Vec<f32>; 3] {
    let [v, g] = [([8, 4], 3), ([1, 4], 4)]
        .map(|(shape, seed)| noise_tensor::<B, 2>(shape, seed, device).require_grad());
    let w = compose(v.clone(), g.clone());
    let gradient = noise_tensor::<B, 2>(w.dims(), 5, device);
    let grads = B::loss_with_gradient(w.clone(), gradient).backward();
    [
        w,
        v.grad(&grads).map(Tensor::from_inner).expect("a leaf"),
        g.grad(&grads).map(Tensor::from_inner).expect("a leaf"),
    ]
    .map(values)
}

type Composition<B> = fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>;

fn compositions<B: Backend>() -> Vec<(&'static str, Composition<B>)> {
    vec![
        ("weight norm", |v, g| {
            v.clone() * g / (v.clone() * v).sum_dim(0).sqrt()
        }),
        ("standardized", |v, g| {
            let (variance, mean) = v.clone().var_mean(0);
            (v - mean) / (variance + 1e-5).sqrt() * g
        }),
        ("normalized", |v, g| {
            linalg::l2_norm(v.clone(), 0).recip() * v * g
        }),
        ("scaled", |v, g| v * 0.37 + g / 3.0),
        ("masked", |v, g| {
            let lower = Tensor::<B, 2>::ones([8, 4], &v.device()).tril(0);
            let small = v.clone().abs().lower_elem(0.1);
            v.mask_fill(small, 0.0) * lower * g
        }),
        ("bounded", |v, g| {
            activation::tanh(v) * activation::sigmoid(g)
        }),
        ("exponential", |v, g| v * g.exp()),
        ("sum of several uses", |v, g| {
            v.clone() * g.clone() + v * (g * 1.1)
        }),
    ]
}

#[test]
fn weights_computed_of_parameters_are_float32s_in_both_passes() {
    for ((what, plain), (_, mx)) in compositions::<Plain>()
        .into_iter()
        .zip(compositions::<Mx>())
    {
        let expected = composed::<Plain>(plain, &FlexDevice);
        for name in ["mxfp8_e4m3", "mxfp4"] {
            let got = composed::<Mx>(mx, &preset(name));
            assert_all_same_bits(&got, &expected, what);
        }
    }
}

/// A weight and its adapter: their sum is quantized as a weight, and the sum's gradient does not change.
#[test]
fn the_sum_of_a_weight_and_an_adapter_is_a_weight() {
    let specs = MxSpecs {
        w_elem_format: MxSpecs::mxfp4().w_elem_format,
        ..MxSpecs::mxfp8_e4m3()
    };
    let device = mx_device(&specs);
    let leaf = |shape, seed| noise_tensor::<Mx, 2>(shape, seed, &device).require_grad();
    let (w, a, b) = (leaf([32, 8], 1), leaf([2, 8], 2), leaf([32, 2], 3));
    let x = || as_activation(noise_tensor::<Mx, 2>([16, 32], 4, &device).require_grad());
    let gradient = || noise_tensor::<Mx, 2>([16, 8], 5, &device);
    let sum = w.clone() + b.matmul(a) * 0.5;
    let numbers = sum.clone().into_data();
    assert!(
        !values(sum.clone()).iter().all(|x| is_bfloat16(*x)),
        "the sum is a parameter's"
    );
    let out = x().matmul(sum);
    let alone = Tensor::<Mx, 2>::from_data(numbers.clone(), &device).require_grad();
    let expected = x().matmul(alone.clone());
    assert_same_bits(&values(out.clone()), &values(expected.clone()), "output");
    let as_input = x().matmul(as_activation(Tensor::from_data(numbers, &device)));
    assert_ne!(values(as_input), values(expected.clone()), "another format");
    let grads = Mx::loss_with_gradient(out, gradient()).backward();
    let got = values(w.grad(&grads).expect("a leaf"));
    let grads = Mx::loss_with_gradient(expected, gradient()).backward();
    let expected = values(alone.grad(&grads).expect("a leaf"));
    assert_same_bits(&got, &expected, "gradient");
}
