//! From FP32 to MX in three lines: the backend's type, the specs, the device.

use burn::backend::{Flex, flex::FlexDevice};
use burn::nn::{Linear, LinearConfig, loss::MseLoss, loss::Reduction::Mean};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::{module::AutodiffModule, prelude::*, tensor::Distribution, tensor::activation::relu};
use burn_mx::{ElementFormat, MxAutodiff, MxDevice, MxSpecs, module::full_precision};

type B = MxAutodiff<Flex>; // was: Autodiff<Flex>

/// An ordinary Burn model.
#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            hidden: LinearConfig::new(32, 64).init(device),
            output: LinearConfig::new(64, 1).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.output.forward(relu(self.hidden.forward(x)))
    }
}

fn main() -> Result<(), burn_mx::SpecsError> {
    // The preset: MXFP6 operands, bfloat16 between products. Changed here: activations in MXFP8.
    let specs = MxSpecs {
        a_elem_format: Some(ElementFormat::FP8_E4M3.into()),
        ..MxSpecs::mxfp6_e3m2()
    };
    let device = MxDevice::new(FlexDevice, &specs)?; // was: FlexDevice

    B::seed(&device, 0);
    let x = Tensor::<B, 2>::random([64, 32], Distribution::Uniform(-1.0, 1.0), &device);
    let y = x.clone().narrow(1, 0, 8).mean_dim(1);
    let mut model = Mlp::<B>::new(&device);
    let mut optimizer = AdamConfig::new().init();
    for step in 0..=100 {
        let output = full_precision(model.forward(x.clone())); // the loss stays in FP32
        let loss = MseLoss::new().forward(output, y.clone(), Mean);
        if step % 10 == 0 {
            println!("step {step:3}: loss {:.5}", loss.clone().into_scalar());
        }
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.005, model, grads);
    }

    // Emulated inference, without autodiff.
    let error = model.valid().forward(x.inner()) - y.inner();
    println!("largest error: {:.5}", error.abs().max().into_scalar());
    Ok(())
}
