//! Folding of one part of a model into another, which keeps the model's output.

mod batch_norms;
mod norms;
mod rotations;

use core::any::Any;

use burn_backend::tensor::{Device, FloatTensor};
use burn_backend::{Shape, TensorData};
use burn_core::tensor::Tensor;

use crate::parameters::values;
pub use batch_norms::FoldedNorm;
pub(super) use batch_norms::fold;
use burn_mx_core::{MxBackend, MxKernels, to_f32};
pub(super) use norms::BETA;
pub(super) use rotations::rotate;

fn tensor<B: MxKernels>(values: Vec<f32>, shape: Shape, device: &Device<B>) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape), device)
}

/// The values of a float tensor, of any rank that a Burn module returns.
fn floats_of<B: MxKernels>(output: &dyn Any) -> Option<Vec<f32>> {
    macro_rules! ranks {
        ($($rank:literal)*) => { $(
            if let Some(tensor) = output.downcast_ref::<Tensor<MxBackend<B>, $rank>>() {
                return Some(values::<B>(to_f32::<B>(tensor.clone().into_primitive().tensor().into_inner())));
            }
        )* };
    }
    ranks!(1 2 3 4 5 6 7 8);
    None
}

/// ‖a − b‖ / ‖b‖, or ‖a − b‖ where b is zero.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let squares = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>();
    let pairs = a.iter().zip(b);
    let apart = squares(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let all = squares(&mut b.iter().map(|b| f64::from(*b)));
    match all > 0.0 {
        true => (apart / all).sqrt(),
        false => apart.sqrt(),
    }
}
