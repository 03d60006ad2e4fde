//! A model after some steps in full precision, and its gradient.

use std::error::Error;

use burn::{
    backend::{Flex, flex::FlexDevice},
    module::{Module, ModuleVisitor, Param},
    optim::{AdamWConfig, GradientsParams, Optimizer},
    tensor::{
        Tensor,
        backend::{AutodiffBackend, Backend},
    },
};
use burn_mx::{MxAutodiff, MxDevice};

use super::{
    models::{Model, ModelName, Sizes},
    tasks::{Batch, Item, Split},
};

pub(crate) type Train = MxAutodiff<Flex>;

/// Items of the training data for a step, the same for a seed.
pub(crate) fn items(split: &Split, seed: u64, batch_size: usize, step: usize) -> Vec<Item> {
    let count = split.train.len();
    let first = (seed as usize).wrapping_add(step * batch_size) % count;
    let places = (0..batch_size).map(|i| (first + i * 7919) % count);
    places.filter_map(|place| split.train.get(place)).collect()
}

/// The model after its steps in full precision.
pub(crate) fn trained(
    name: ModelName,
    split: &Split,
    seed: u64,
    batch_size: usize,
    steps: usize,
) -> Result<Model<Train>, Box<dyn Error>> {
    let device = MxDevice::new(FlexDevice, "none")?;
    Train::seed(&device, seed);
    let mut model = name.of(Sizes::default())?.init::<Train>(&device);
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..steps {
        let items = items(split, seed, batch_size, step);
        let loss = model.output(name.task().batch(&items, &device)).loss;
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(name.learning_rate(), model, grads);
    }
    Ok(model)
}

/// The gradient of the loss, of all parameters one after another.
pub(crate) fn gradient<B: AutodiffBackend>(model: &Model<B>, batch: Batch<B>) -> Vec<f32> {
    struct Collect<'a, B: AutodiffBackend>(&'a B::Gradients, Vec<f32>);
    impl<B: AutodiffBackend> ModuleVisitor<B> for Collect<'_, B> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            if let Some(gradient) = param.val().grad(self.0) {
                self.1.extend(gradient.into_data().iter::<f32>());
            }
        }
    }
    let grads = model.output(batch).loss.backward();
    let mut collect = Collect::<B>(&grads, Vec::new());
    model.visit(&mut collect);
    collect.1
}

/// Norm of the difference over the norm of `exact`.
pub(crate) fn distance(got: &[f32], exact: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let pairs = got.iter().zip(exact);
    let error: f64 = pairs
        .map(|(a, b)| square(f64::from(*a) - f64::from(*b)))
        .sum();
    let power: f64 = exact.iter().map(|x| square(f64::from(*x))).sum();
    (error / power).sqrt()
}
