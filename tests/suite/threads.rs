//! Models that train on several threads of one process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use burn::nn::{LayerNormConfig, Linear, LinearConfig};
use burn::tensor::module::conv2d;
use burn::tensor::{Tensor, activation, ops::ConvOptions};
use burn_mx::MxSpecs;
use burn_mx::module::{emulated, full_precision, rms_norm};

use crate::support::*;

type Op = fn(Tensor<Mx, 2>) -> Tensor<Mx, 2>;

/// Ops of every kind of backward step.
const OPS: [(&str, Op); 11] = [
    ("exp", |x| x.exp()),
    ("mul", |x| x.clone().log() * x),
    ("gelu", activation::gelu),
    ("softmax", |x| activation::softmax(x, 1)),
    ("layer norm", |x| {
        LayerNormConfig::new(x.dims()[1])
            .init(&x.device())
            .forward(x)
    }),
    ("rms norm", |x| {
        let gamma = Tensor::ones([x.dims()[1]], &x.device());
        rms_norm(x, gamma, None, 1e-5)
    }),
    ("linear", |x| linear(&x, 3).forward(x)),
    ("matmul", |x| x.clone().exp().matmul(x.transpose())),
    ("conv2d", |x| {
        let [rows, columns] = x.dims();
        let weight = noise_tensor([4, 4, 3, 3], 4, &x.device());
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let x = x.reshape([1, 4, rows / 4, columns]);
        conv2d(x, weight, None, options).reshape([rows, columns])
    }),
    ("full precision", |x| emulated(full_precision(x).exp())),
    ("slice", |x| x.narrow(0, 1, 8)),
];

fn linear(x: &Tensor<Mx, 2>, seed: u64) -> Linear<Mx> {
    let columns = x.dims()[1];
    let linear = LinearConfig::new(columns, columns).init(&x.device());
    with_noise_weights(linear, seed)
}

/// burn-autodiff forgets what a tensor comes from once nobody holds the tensor, and any thread's backward pass looks for such.
#[test]
fn backward_passes_of_other_threads_take_no_gradient_away() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let x = noise_tensor::<Mx, 2>([64, 256], 1, &device).abs();
    let weight = noise_tensor::<Mx, 2>([256, 256], 2, &device);
    let weight = weight.abs().detach().require_grad();
    let gradient = |op: Op| {
        let y = op(x.clone().matmul(weight.clone()).div_scalar(256.0));
        let gradient = weight.grad(&y.sum().backward());
        gradient.map_or_else(Vec::new, values)
    };
    let alone = OPS.map(|(_, op)| gradient(op));
    assert!(alone.iter().all(|gradient| gradient.len() == 256 * 256));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let leaf = Tensor::<Plain, 1>::ones([1], &TestDevice::default()).require_grad();
                leaf.sum().backward();
            }
        });
        let all = || {
            for ((name, op), alone) in OPS.iter().zip(&alone) {
                for _ in 0..40 {
                    assert_same_bits(&gradient(*op), alone, name);
                }
            }
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
