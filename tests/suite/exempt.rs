//! Layers that a path rule exempts from the emulation: float32 in both passes, between layers that are emulated.
//!
//! The independent source is Burn alone, on the same inputs and for the same gradient of the output.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::conv::{
    Conv1dConfig, Conv2dConfig, Conv3dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig,
    ConvTranspose3dConfig, DeformConv2dConfig,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, EmbeddingConfig, GroupNormConfig, InstanceNormConfig,
    LayerNormConfig, Linear, LinearConfig, PReluConfig, RmsNormConfig,
};
use burn::prelude::*;
use burn_mx::module::{set_specs, set_specs_at};
use burn_mx::{MxSpecs, module};

use crate::models::{Mlp, model};
use crate::support::*;

/// Emulates every op that can be emulated.
fn device() -> burn_mx::MxDevice<burn::backend::flex::FlexDevice> {
    mx_device(&everywhere(MxSpecs::mxfp4()))
}

fn exempt<M: Module<Mx>>(module: M) -> M {
    let none = MxSpecs::none().resolve().expect("no specs are sound");
    set_specs(module, &none)
}

/// Output, gradient of the input and gradients of all parameters, for a gradient of the output that is fed exactly. The
/// output goes on to an emulated op, and so does its gradient come from one.
fn pass<B: Exact, M: Module<B>, const I: usize, const O: usize>(
    module: &M,
    shape: [usize; I],
    forward: impl FnOnce(&M, Tensor<B, I>) -> Tensor<B, O>,
    device: &B::Device,
) -> Vec<Vec<f32>> {
    let x = noise_tensor::<B, I>(shape, 1, device).require_grad();
    let out = forward(module, x.clone());
    let grad = noise_tensor::<B, O>(out.dims(), 2, device);
    let grads = B::loss_with_gradient(out.clone(), grad).backward();
    let dx = x.grad(&grads).map_or_else(Vec::new, values);
    let mut all = vec![values(out), dx];
    all.extend(gradients::<B, M>(module, &grads));
    all
}

/// Asserts that a layer with exempt parameters gives the bits of Burn alone, and that it would not without.
macro_rules! assert_exempt {
    ($name:literal, $shape:expr, $config:expr, $forward:expr) => {{
        let plain = Default::default();
        let module = with_noise_weights::<Plain, _>($config.init(&plain), 5);
        let expected = pass::<Plain, _, _, _>(&module, $shape, $forward, &plain);
        let mx = device();
        let emulated = with_noise_weights::<Mx, _>($config.init(&mx), 5);
        let got = pass::<Mx, _, _, _>(&emulated, $shape, $forward, &mx);
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_ne!(got, expected, "{}: {i} is emulated", $name);
        }
        let got = pass::<Mx, _, _, _>(&exempt(emulated), $shape, $forward, &mx);
        assert_all_same_bits(&got, &expected, $name);
    }};
}

#[test]
fn exempt_layers_are_float32_in_both_passes() {
    assert_exempt!("linear", [3, 5, 40], LinearConfig::new(40, 6), |m, x| m
        .forward(x));
    assert_exempt!(
        "layer norm",
        [3, 5, 40],
        LayerNormConfig::new(40),
        |m, x| m.forward(x)
    );
    assert_exempt!(
        "prelu",
        [3, 5, 40],
        PReluConfig::new().with_num_parameters(5),
        |m, x| { m.forward(x) }
    );
    assert_exempt!("conv1d", [2, 3, 9], Conv1dConfig::new(3, 4, 3), |m, x| m
        .forward(x));
    assert_exempt!(
        "conv2d",
        [2, 3, 9, 7],
        Conv2dConfig::new([3, 4], [3, 2]),
        |m, x| { m.forward(x) }
    );
    assert_exempt!(
        "conv3d",
        [2, 3, 5, 4, 3],
        Conv3dConfig::new([3, 4], [3, 2, 2]),
        |m, x| { m.forward(x) }
    );
    assert_exempt!(
        "conv_transpose1d",
        [2, 3, 9],
        ConvTranspose1dConfig::new([3, 4], 3),
        |m, x| { m.forward(x) }
    );
    assert_exempt!(
        "conv_transpose2d",
        [2, 3, 9, 7],
        ConvTranspose2dConfig::new([3, 4], [3, 2]),
        |m, x| m.forward(x)
    );
    assert_exempt!(
        "conv_transpose3d",
        [2, 3, 5, 4, 3],
        ConvTranspose3dConfig::new([3, 4], [3, 2, 2]),
        |m, x| m.forward(x)
    );
    assert_exempt!(
        "deform_conv2d",
        [2, 3, 9, 7],
        DeformConv2dConfig::new([3, 4], [3, 2]),
        |m, x| {
            let [batch, _, height, width] = x.dims();
            let offset = [batch, 12, height - 2, width - 1];
            let offset = noise_tensor(offset, 6, &x.device());
            m.forward(x, offset, None)
        }
    );
}

#[test]
fn an_exempt_embedding_sums_its_gradient_in_float32() {
    fn gradient<B: Exact>(embedding: &burn::nn::Embedding<B>, device: &B::Device) -> Vec<Vec<f32>> {
        let ids = Tensor::from_data([[1, 7, 3, 10, 7], [0, 2, 7, 9, 5]], device);
        let out = embedding.forward(ids);
        let grad = noise_tensor::<B, 3>(out.dims(), 2, device);
        gradients::<B, _>(embedding, &B::loss_with_gradient(out, grad).backward())
    }
    let plain = Default::default();
    let config = EmbeddingConfig::new(11, 6);
    let expected = gradient(
        &with_noise_weights::<Plain, _>(config.init(&plain), 5),
        &plain,
    );
    let emulated = with_noise_weights::<Mx, _>(config.init(&device()), 5);
    assert_ne!(gradient(&emulated, &device()), expected);
    assert_all_same_bits(
        &gradient(&exempt(emulated), &device()),
        &expected,
        "gradient",
    );
}

#[test]
fn the_formula_of_an_exempt_rms_norm_is_burns_own() {
    let forward = |m: &burn::nn::RmsNorm<Mx>, x: Tensor<Mx, 2>| {
        module::rms_norm(x, m.gamma.val(), None, m.epsilon)
    };
    let plain = Default::default();
    let expected = with_noise_weights::<Plain, _>(RmsNormConfig::new(40).init(&plain), 5);
    let expected = pass::<Plain, _, _, _>(&expected, [6, 40], |m, x| m.forward(x), &plain);
    let norm = with_noise_weights::<Mx, _>(RmsNormConfig::new(40).init(&device()), 5);
    assert_ne!(pass(&norm, [6, 40], forward, &device()), expected);
    let got = pass(&exempt(norm), [6, 40], forward, &device());
    assert_all_same_bits(&got, &expected, "rms norm");
}

/// Scales of one and shifts of zero.
struct Unit(String);

impl<B: Backend> ModuleMapper<B> for Unit {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.0 = name.to_owned();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let value = f32::from(u8::from(self.0 == "gamma"));
        param.map(|old| old.full_like(value).require_grad())
    }
}

/// Norms that Burn composes: their statistics are of activations alone and are emulated as those are; scaling and shifting
/// is exempt, and so are the gradients of the parameters.
#[test]
fn parameters_of_composed_norms_are_float32_in_both_passes() {
    let (plain, mx) = (Default::default(), device());
    let shape = [6, 4, 5, 5];
    macro_rules! assert_affine {
        ($name:literal, $config:expr, $axis:literal) => {{
            let norm = exempt(with_noise_weights::<Mx, _>($config.init(&mx), 5));
            let got = pass::<Mx, _, 4, 4>(&norm, shape, |m, x| m.forward(x), &mx);
            let parameters = weights::<Mx, _>(&norm);
            // The normalized tensor, without scale and shift.
            let unit = exempt(norm.map(&mut Unit(String::new())));
            let unit = pass::<Mx, _, 4, 4>(&unit, shape, |m, x| m.forward(x), &mx);
            assert!(unit[0].iter().all(|x| is_bfloat16(*x)), "{}", $name);

            let mut dims = [1; 4];
            dims[$axis] = shape[$axis];
            let leaf =
                |values: &[f32]| Tensor::<Plain, 1>::from_floats(values, &plain).require_grad();
            let leaves: Vec<_> = parameters
                .iter()
                .take(2)
                .map(|values| leaf(values))
                .collect();
            let n = Tensor::<Plain, 4>::from_data(TensorData::new(unit[0].clone(), shape), &plain);
            let mut out = n * leaves[0].clone().reshape(dims);
            if let Some(beta) = leaves.get(1) {
                out = out + beta.clone().reshape(dims);
            }
            assert_same_bits(&got[0], &values(out.clone()), $name);
            let grad = noise_tensor::<Plain, 4>(shape, 2, &plain);
            let grads = Plain::loss_with_gradient(out, grad).backward();
            for (leaf, got) in leaves.iter().zip(&got[2..]) {
                let expected = leaf.grad(&grads).expect("it is a leaf");
                assert_same_bits(got, &values(expected), $name);
            }
        }};
    }
    assert_affine!("batch norm", BatchNormConfig::new(4), 1);
    assert_affine!("group norm", GroupNormConfig::new(2, 4), 1);
    assert_affine!("instance norm", InstanceNormConfig::new(4), 1);
    assert_affine!("rms norm", RmsNormConfig::new(5), 3);
}

/// Running statistics are not parameters: a rule for the norm leaves them emulated, like their activations.
#[test]
fn running_statistics_of_an_exempt_norm_go_by_the_activations() {
    let mx = device();
    let statistics = |norm: BatchNorm<Mx>| {
        for seed in 1..4 {
            norm.forward(noise_tensor::<Mx, 4>([6, 4, 5, 5], seed, &mx));
        }
        [norm.running_mean, norm.running_var].map(|state| values(state.value_sync()))
    };
    let config = BatchNormConfig::new(4);
    let expected = statistics(config.init(&mx));
    assert_all_same_bits(
        &statistics(exempt(config.init(&mx))),
        &expected,
        "statistic",
    );
    let none = MxSpecs::none().resolve().expect("no specs are sound");
    let error = set_specs_at(config.init::<Mx>(&mx), "running_mean", &none);
    let error = error.expect_err("it is no parameter").to_string();
    assert!(error.ends_with("gamma, beta"), "{error}");
}

#[test]
fn a_layer_before_an_exempt_one_has_emulated_gradients() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let none = MxSpecs::none().resolve().expect("no specs are sound");
    let mlp = model::<Mlp, Mx>(&device);
    let mlp = set_specs_at(mlp, "norm", &none).expect("there is a norm");
    let outputs = crate::models::Forward::outputs(&mlp, &device);
    let grad = noise_tensor::<Mx, 2>(outputs.dims(), 30, &device);
    let grads = Mx::loss_with_gradient(outputs, grad).backward();
    for (path, gradient) in named_gradients::<Mx, _>(&mlp, &grads) {
        let rounded = gradient.iter().all(|x| is_bfloat16(*x));
        assert_eq!(rounded, !path.starts_with("norm"), "{path}");
    }
}

/// A parameter that several ops take: its gradients are added in float32, too.
#[test]
fn gradients_of_an_exempt_parameter_are_added_in_float32() {
    #[derive(Module, Debug)]
    struct Tied<B: Backend> {
        scale: Param<Tensor<B, 2>>,
        layer: Linear<B>,
    }
    fn tied<B: Backend>(device: &B::Device) -> Tied<B> {
        let tied = Tied {
            scale: Param::from_tensor(Tensor::ones([1, 8], device)),
            layer: LinearConfig::new(8, 8).init(device),
        };
        with_noise_weights(tied, 3)
    }
    fn forward<B: Backend>(m: &Tied<B>, x: Tensor<B, 2>) -> Tensor<B, 2> {
        // A leaf that requires gradients passes for a weight, which would decide.
        let x = -(-x);
        let scale = m.scale.val();
        let y = m.layer.forward(x * scale.clone()) + scale.clone();
        m.layer.forward(y / scale.clone() - scale)
    }
    let plain = Default::default();
    let expected = pass::<Plain, _, _, _>(&tied(&plain), [5, 8], forward, &plain);
    let mx = device();
    let got = pass::<Mx, _, _, _>(&exempt(tied(&mx)), [5, 8], forward, &mx);
    assert_all_same_bits(&got, &expected, "tied");
}
