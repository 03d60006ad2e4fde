//! The products of a training step, whose cost in hardware is printed beside the results of the training.

use std::error::Error;

use burn::backend::{Flex, flex::FlexDevice};
use burn_mx::{
    MxBackend, MxDevice, ResolvedSpecs,
    cost::{Numbers, Product},
    record::{Pass, products},
};

use crate::training::{
    layers::Layer,
    models::{Architecture, ModelName},
    tasks::Split,
};

/// The products of a training step of this model on a batch of this number of items.
pub(crate) fn step(
    architecture: Architecture,
    model: ModelName,
    split: &Split,
    batch_size: usize,
    (specs, layers): (Option<&ResolvedSpecs>, &[Layer]),
) -> Result<Vec<Product>, Box<dyn Error>> {
    let device = match specs {
        Some(specs) => MxDevice::new(FlexDevice, specs)?,
        // Formats that show every product. Float32 is counted.
        None => MxDevice::new(FlexDevice, "mxfp8_e4m3")?,
    };
    let items: Vec<_> = (0..batch_size)
        .filter_map(|at| split.train.get(at))
        .collect();
    let batch = model.task().batch::<MxBackend<Flex>>(&items, &device);
    let model = architecture
        .init::<MxBackend<Flex>>(&device)
        .labelled()
        .with_layers(layers)?;
    let mut products = products(Pass::Training, || drop(model.output(batch)));
    if specs.is_none() {
        for product in &mut products {
            product.lhs.numbers = Numbers::float(None);
            product.rhs.numbers = Numbers::float(None);
        }
    }
    Ok(products)
}
