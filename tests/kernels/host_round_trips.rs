//! Counts tensors that pass through the host's memory because a kernel is missing: a training step has none, on the
//! backend that `MX_TEST_BACKEND` names. The count belongs to the process, so the case has a process: this test binary again.

use std::env::current_exe;
use std::process::Command;

use burn::module::{AutodiffModule, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn_backend::ops::FloatTensorOps;
use burn_mx::process::host_round_trips;
use burn_mx::{BlockFormat, Dialect, ElementFormat, RandomStream, Rounding, ScaleMode};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};

use crate::backend::{TestBackend, TestDevice};

#[derive(Module, Debug)]
struct Network<B: Backend> {
    patches: Conv2d<B>,
    encoder: TransformerEncoder<B>,
}

impl<B: Backend> Network<B> {
    /// For images of one channel: an encoder over patches of 4 × 4.
    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 3> {
        let patches = self.patches.forward(images).flatten::<3>(2, 3);
        let input = TransformerEncoderInput::new(patches.swap_dims(1, 2));
        self.encoder.forward(input)
    }
}

/// The tensors that go through the host's memory in two training steps and one pass of inference.
fn round_trips(specs: &MxSpecs) -> u64 {
    let specs = specs.resolve().expect("the specs are sound");
    let device = MxDevice::new(TestDevice::default(), &specs).expect("resolved specs");
    let patches = Conv2dConfig::new([1, 32], [4, 4]).with_stride([4, 4]);
    let encoder = TransformerEncoderConfig::new(32, 64, 2, 1).with_dropout(0.0);
    let mut network = Network::<MxAutodiff<TestBackend>> {
        patches: patches.init(&device),
        encoder: encoder.init(&device),
    };
    let images = Tensor::random([2, 1, 8, 8], Distribution::Default, &device);
    let mut optimizer = AdamConfig::new().init();
    let before = host_round_trips();
    for _ in 0..2 {
        let loss = network.forward(images.clone()).square().mean();
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(1e-3, network, grads);
    }
    let outputs = network.valid().forward(images.inner());
    let counted = host_round_trips() - before;
    assert!(outputs.into_data().iter::<f32>().all(f32::is_finite));
    counted
}

/// Operands by another tool's rules.
fn of_a_tool() -> MxSpecs {
    MxSpecs {
        dialect_w: Some(Dialect::ModelOpt),
        dialect_a: Some(Dialect::ModelOpt),
        ..MxSpecs::mxfp4()
    }
}

#[test]
fn a_training_step_stays_on_its_device() {
    let mut command = Command::new(current_exe().expect("this process has a file"));
    command.args([
        "--exact",
        "kernels::host_round_trips::case",
        "--ignored",
        "--nocapture",
    ]);
    let output = command.output().expect("the process runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{all}"
    );
}

#[test]
#[ignore = "the case of the test above"]
fn case() {
    let presets = ["mxfp8_e4m3", "nvfp4", "mx9", "mxfp4_sr_rht", "quartet2"];
    let presets = presets.map(|name| (name, MxSpecs::preset(name).expect("a preset")));
    // Tables for weights, sub-scales for the other operands.
    let if4_and_hif4 = MxSpecs {
        w_elem_format: Some("if4".parse().expect("a format")),
        ..MxSpecs::preset("hif4").expect("a format")
    };
    let more = [("if4, hif4", if4_and_hif4), ("modelopt", of_a_tool())];
    for (name, specs) in presets.into_iter().chain(more) {
        assert_eq!(round_trips(&specs), 0, "{name}");
    }

    let is_native = cfg!(any(
        test_backend = "flex",
        test_backend = "ndarray",
        test_backend = "tch"
    ));

    // The ops that have no kernel on a device of CubeCL, and go through the host's memory there, as the documentation says.
    let format = BlockFormat {
        scale_mode: ScaleMode::Rms,
        ..BlockFormat::mx(ElementFormat::FP4_E2M1, 1 << 14)
    };
    let device = TestDevice::default();
    let long = TestBackend::float_from_data(TensorData::zeros::<f32, _>([1 << 14]), &device);
    let before = host_round_trips();
    let stream = RandomStream::new(0, 0);
    let quantized = TestBackend::mx_quantize(long, 0, format, Rounding::NearestEven, stream);
    let values = burn_backend::read_sync(TestBackend::float_into_data(quantized));
    assert!(
        values
            .expect("the device computes")
            .iter::<f32>()
            .all(|x| x == 0.0)
    );
    assert_eq!(host_round_trips() - before, u64::from(!is_native));
    of_accumulators(is_native);
}

/// Products by accumulators stay on the device, but for those whose order is of no device.
fn of_accumulators(is_native: bool) {
    for (name, accumulator, expected) in [
        ("mxfp8_e4m3", "hopper", 0),
        (
            "mxfp8_e4m3",
            "hopper(promote_every=32,scale_at=promotion)",
            0,
        ),
        ("nvfp4", "blackwell", 0),
        (
            "mxfp8_e5m2",
            "accumulator(order=late,terms=8,fraction_bits=24)",
            0,
        ),
        ("mxfp6_e2m3", "accumulator(order=pairs,terms=4)", 0),
        ("mxfp4", "accumulator(order=fma)", 0),
        (
            "mxint8",
            "accumulator(order=integer,bits=24,promote_every=32)",
            0,
        ),
        ("mxfp8_e4m3", "accumulator(order=exact,terms=4)", 2),
    ] {
        let specs = MxSpecs {
            accumulator: Some(accumulator.parse().expect("it is an accumulator")),
            ..MxSpecs::preset(name).expect("a preset")
        };
        let specs = specs.resolve().expect("the specs are sound");
        let device = MxDevice::new(TestDevice::default(), &specs).expect("resolved specs");
        let [lhs, rhs] = [[5, 40], [40, 3]].map(|shape| {
            Tensor::<MxBackend<TestBackend>, 2>::random(shape, Distribution::Default, &device)
        });
        let [x, weight] = [[2, 40, 3, 4], [5, 40, 2, 3]].map(|shape| {
            Tensor::<MxBackend<TestBackend>, 4>::random(shape, Distribution::Default, &device)
        });
        let products: [(&str, &dyn Fn() -> TensorData); 2] = [
            ("matmul", &|| lhs.clone().matmul(rhs.clone()).into_data()),
            ("conv2d", &|| {
                let options = ConvOptions::new([1; 2], [0; 2], [1; 2], 1);
                conv2d(x.clone(), weight.clone(), None, options).into_data()
            }),
        ];
        let expected = if is_native { 0 } else { expected };
        for (op, product) in products {
            let before = host_round_trips();
            assert!(product().iter::<f32>().all(|x| x > 0.0));
            assert_eq!(host_round_trips() - before, expected, "{op}, {accumulator}");
        }
    }
}
