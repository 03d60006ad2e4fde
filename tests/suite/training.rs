//! Training and inference agree, and the phase is right on every thread; plain `Autodiff` is refused.

use std::thread;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::nn::LinearConfig;
use burn::nn::conv::Conv2dConfig;
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::Tensor;
use burn_mx::ElementFormat;
use burn_mx::{MxBackend, MxSpecs};

use crate::models::*;
use crate::support::*;

/// Emulation of all kinds: products and elementwise, either alone, and another elementwise format.
pub(crate) fn emulations() -> [(&'static str, MxSpecs); 5] {
    let fp16 = MxSpecs {
        bfloat: 0,
        fp: 16,
        vec_use_exp2: true,
        vec_use_recip: true,
        softmax_exp2: true,
        ..MxSpecs::mxfp6_e3m2()
    };
    let forward_only = MxSpecs {
        quantize_backprop: false,
        ..MxSpecs::mxfp8_e4m3()
    };
    [
        ("mxfp8_e4m3", MxSpecs::mxfp8_e4m3()),
        ("MX only", mx_only(MxSpecs::mxfp8_e4m3())),
        ("bfloat16 only", bfloat16_only()),
        ("mxfp6_e3m2 and fp16 with exp2 and recip", fp16),
        ("forward only", forward_only),
    ]
}

fn assert_valid_equals_training<A: Architecture>() {
    for (name, specs) in emulations() {
        let device = mx_device(&specs);
        let model = model::<A, Mx>(&device);
        let training = values(model.outputs(&device));
        let inference = values(model.valid().outputs(&device));
        assert_same_bits(&inference, &training, &format!("{name}: output"));

        let exact =
            values(self::model::<A, Plain>(&TestDevice::default()).outputs(&TestDevice::default()));
        assert_ne!(training, exact, "{name}: something is emulated");
    }
}

macro_rules! valid_tests {
    ($($name:ident: $architecture:ty;)*) => { $(
        #[test]
        fn $name() {
            assert_valid_equals_training::<$architecture>();
        }
    )* };
}

valid_tests! {
    valid_equals_the_training_forward_of_an_mlp: Mlp;
    valid_equals_the_training_forward_with_an_embedding_first: Embedder;
    valid_equals_the_training_forward_of_a_transformer: Transformer;
    valid_equals_the_training_forward_of_convolutions: Convolutions;
    valid_equals_the_training_forward_of_recurrent_layers: Recurrent;
}

/// Functions whose values differ between training and inference.
fn functions_that_differ<B: Exact>(device: &B::Device) -> Vec<&'static str> {
    let model = model::<Functions, B>(device);
    let inference = model.valid().functions();
    let both = model.functions().into_iter().zip(inference);
    let both =
        both.map(|((name, training), (_, inference))| (name, values(training), values(inference)));
    both.filter(|(name, training, inference)| {
        assert!(
            training.iter().all(|value| value.is_finite()),
            "{name}: {training:?}"
        );
        training != inference
    })
    .map(|(name, ..)| name)
    .collect()
}

#[test]
#[cfg_attr(
    test_backend = "tch",
    ignore = "burn-tch 0.21 takes no weight for prelu"
)]
fn valid_equals_the_training_forward_of_every_function() {
    // Burn's autodiff itself computes products of elements by logarithms, the backend directly.
    const BY_LOGARITHMS: [&str; 2] = ["prod", "prod_dim"];
    let of_burn_alone = functions_that_differ::<Plain>(&TestDevice::default());
    assert!(
        BY_LOGARITHMS
            .iter()
            .all(|name| of_burn_alone.contains(name))
    );
    for (name, specs) in emulations() {
        let differing = functions_that_differ::<Mx>(&mx_device(&everywhere(specs.clone())));
        match specs.bfloat + specs.fp {
            0 => assert_eq!(
                differing, BY_LOGARITHMS,
                "{name}: elementwise as Burn alone"
            ),
            _ => assert!(differing.is_empty(), "{name}: {differing:?}"),
        }
    }
}

/// Losses of some SGD steps; forward and backward formats are far apart, so that a wrong phase shows.
pub(crate) fn losses<A: Architecture>(specs: &MxSpecs, steps: usize) -> Vec<f32> {
    trained::<A>(specs, steps).0
}

/// The loss of every step, and the parameters after the last one.
pub(crate) fn trained<A: Architecture>(specs: &MxSpecs, steps: usize) -> (Vec<f32>, Vec<Vec<f32>>) {
    let device = mx_device(specs);
    let mut model = model::<A, Mx>(&device);
    let mut optimizer = SgdConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..steps {
        let outputs = model.outputs(&device);
        let target = noise_tensor(outputs.dims(), 31, &device);
        let loss = (outputs - target).square().mean();
        losses.push(values(loss.clone())[0]);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.05, model, grads);
    }
    (losses, weights(&model))
}

/// Specs whose phases differ: backward coarse, backward fine, backward not at all.
pub(crate) fn phased_specs() -> [MxSpecs; 3] {
    let coarse_backward = MxSpecs {
        a_elem_format_bp_os: Some(ElementFormat::INT2.into()),
        a_elem_format_bp_ex: Some(ElementFormat::INT2.into()),
        ..MxSpecs::mxfp8_e4m3()
    };
    let fine_backward = MxSpecs {
        w_elem_format_bp: Some(ElementFormat::FP8_E4M3.into()),
        a_elem_format_bp: Some(ElementFormat::FP8_E4M3.into()),
        ..MxSpecs::mxfp4()
    };
    let forward_only = MxSpecs {
        quantize_backprop: false,
        ..MxSpecs::mxfp4()
    };
    [coarse_backward, fine_backward, forward_only]
}

#[test]
fn threads_with_different_specs_train_as_if_alone() {
    let runs: Vec<MxSpecs> = [phased_specs(), phased_specs()].concat();
    fn all<A: Architecture>(specs: &MxSpecs) -> [Vec<f32>; 2] {
        [losses::<A>(specs, 12), losses::<Convolutions>(specs, 4)]
    }
    let alone: Vec<_> = runs.iter().map(all::<Transformer>).collect();
    assert_ne!(alone[0], alone[1]);
    assert_ne!(alone[1], alone[2]);
    for _ in 0..2 {
        let together: Vec<_> = thread::scope(|scope| {
            let threads = runs
                .iter()
                .map(|specs| scope.spawn(|| all::<Transformer>(specs)));
            let threads: Vec<_> = threads.collect();
            let results = threads.into_iter().map(|thread| thread.join());
            results.collect::<Result<_, _>>().expect("no thread panics")
        });
        assert_eq!(together, alone);
    }
}

#[test]
fn the_phase_is_forward_again_after_a_panic_in_a_backward_pass() {
    let specs = MxSpecs {
        quantize_backprop: false,
        ..MxSpecs::mxfp8_e4m3()
    };
    let device = mx_device(&specs);
    let before = values(model::<Mlp, Mx>(&device).outputs(&device));
    let thread = thread::spawn(move || {
        let device = mx_device(&specs);
        let caught = std::panic::catch_unwind(|| {
            let device = mx_device(&MxSpecs::mxfp8_e4m3());
            let x = noise_tensor::<Mx, 2>([2, 3], 1, &device).require_grad();
            let loss = (x.clone() * x).sum();
            loss.clone().backward();
            // The graph is gone.
            loss.backward();
        });
        let after = values(model::<Mlp, Mx>(&device).outputs(&device));
        (caught.is_err(), after)
    });
    let (panicked, after) = thread.join().expect("the thread itself goes on");
    assert!(panicked);
    assert_same_bits(&after, &before, "output");
}

type Refused = Autodiff<MxBackend<TestBackend>>;

#[test]
#[should_panic(expected = "use `MxAutodiff<B>` instead of `Autodiff<MxBackend<B>>`")]
fn plain_autodiff_is_refused_at_the_first_backward_of_a_linear_layer() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let layer = LinearConfig::new(4, 3).init::<Refused>(&device);
    let x = Tensor::<Refused, 2>::ones([2, 4], &device);
    layer.forward(x).sum().backward();
}

#[test]
#[should_panic(expected = "use `MxAutodiff<B>` instead of `Autodiff<MxBackend<B>>`")]
fn plain_autodiff_is_refused_at_the_first_backward_of_a_convolution() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let layer = Conv2dConfig::new([2, 3], [2, 2]).init::<Refused>(&device);
    let x = Tensor::<Refused, 4>::ones([1, 2, 3, 3], &device);
    layer.forward(x).sum().backward();
}

/// The gradient of a product is another product there, in the forward formats: nothing distinguishes it from an
/// inference's product.
#[test]
fn plain_autodiff_of_products_alone_computes_gradients_as_forward_products() {
    let specs = MxSpecs {
        a_elem_format: Some(ElementFormat::FP4_E2M1.into()),
        a_elem_format_bp: Some(ElementFormat::FP8_E4M3.into()),
        a_elem_format_bp_os: Some(ElementFormat::FP8_E4M3.into()),
        ..MxSpecs::mx()
    };
    let device = mx_device(&specs);
    let [x, y] = [1, 2].map(|seed| noise_tensor::<Refused, 2>([6, 6], seed, &device));
    let leaf = x.clone().require_grad();
    let grads = leaf.clone().matmul(y.clone()).sum().backward();
    let gradient = values(leaf.grad(&grads).expect("it is a leaf"));
    let forward = x.ones_like().matmul(y.transpose());
    assert_same_bits(&gradient, &values(forward), "gradient");
}

#[test]
fn plain_autodiff_without_specs_trains_as_burn_alone() {
    let (outputs, grads) = training_pass::<Mlp, Refused>(&Default::default());
    let (expected, expected_grads) = training_pass::<Mlp, Plain>(&TestDevice::default());
    assert_same_bits(&outputs, &expected, "output");
    assert_all_same_bits(&grads, &expected_grads, "gradient");
}
