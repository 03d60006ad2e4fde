//! Optimizers with states in formats.

mod adamw;
mod anchors;
mod codes;
mod communication;
mod equal;
mod errors;
mod low_rank;
mod master;
mod matrices;
mod oscillation;
mod resume;
mod strangers;

use burn_autodiff::Autodiff;
use burn_core as burn;
use burn_core::{
    module::{Module, Param},
    tensor::{Tensor, TensorData, backend::Backend},
};
use burn_flex::{Flex, FlexDevice};
use burn_optim::GradientsParams;
use microscaling::RandomStream;

type B = Autodiff<Flex>;

/// Presets that other optimizers refuse.
const ONLY_MUON: [&str; 2] = ["muon4", "muonq"];

/// Numbers of a standard normal distribution.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 1 << 40);
    let uniform = |at: usize| (f64::from(stream.draw(at as u64)) + 0.5) / 2f64.powi(32);
    let number = |at: usize| {
        let angle = core::f64::consts::TAU * uniform(2 * at + 1);
        ((-2.0 * uniform(2 * at).ln()).sqrt() * angle.cos()) as f32
    };
    (0..count).map(number).collect()
}

/// Parameters of one to four axes.
#[derive(Module, Debug)]
struct Net<B: Backend> {
    vector: Param<Tensor<B, 1>>,
    matrix: Param<Tensor<B, 2>>,
    volume: Param<Tensor<B, 3>>,
    kernels: Param<Tensor<B, 4>>,
}

const VECTOR: [usize; 1] = [5000];
const MATRIX: [usize; 2] = [72, 70];
const VOLUME: [usize; 3] = [3, 40, 37];
const KERNELS: [usize; 4] = [16, 3, 3, 3];

fn tensor<B: Backend, const D: usize>(shape: [usize; D], seed: u64) -> Tensor<B, D> {
    let data = TensorData::new(normal(shape.iter().product(), seed), shape);
    Tensor::from_data(data, &B::Device::default())
}

fn net() -> Net<B> {
    Net {
        vector: Param::from_tensor(tensor(VECTOR, 1)),
        matrix: Param::from_tensor(tensor(MATRIX, 2)),
        volume: Param::from_tensor(tensor(VOLUME, 3)),
        kernels: Param::from_tensor(tensor(KERNELS, 4)),
    }
}

/// Random gradients, the same for each call with this step. Every other step has large ones, which are clipped.
fn gradients(net: &Net<B>, step: u64) -> GradientsParams {
    let mut all = GradientsParams::new();
    let seed = 100 + 10 * step;
    let factor = if step.is_multiple_of(2) { 1.0 } else { 1e-3 };
    all.register(net.vector.id, tensor::<Flex, 1>(VECTOR, seed) * factor);
    all.register(net.matrix.id, tensor::<Flex, 2>(MATRIX, seed + 1) * factor);
    all.register(net.volume.id, tensor::<Flex, 3>(VOLUME, seed + 2) * factor);
    all.register(
        net.kernels.id,
        tensor::<Flex, 4>(KERNELS, seed + 3) * factor,
    );
    all
}

/// The bits of a tensor.
fn bits<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<u32> {
    let numbers = tensor.into_data().into_vec::<f32>().unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

/// The bits of all parameters.
fn all_bits(net: &Net<B>) -> Vec<u32> {
    [
        bits(net.vector.val()),
        bits(net.matrix.val()),
        bits(net.volume.val()),
        bits(net.kernels.val()),
    ]
    .concat()
}

const DEVICE: FlexDevice = FlexDevice;
