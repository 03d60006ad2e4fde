//! Attention in INT8 in both passes. `python/published.py` computed the figures from the definitions, in float64.

use std::error::Error;

use burn::backend::{Flex, flex::FlexDevice};
use burn::tensor::{Tensor, TensorData, module::attention};
use burn_mx::{AttentionSpecs, MxAutodiff, MxDevice, MxSpecs, Rounding};

use super::super::random::error;
use super::PublishedFigures;
use super::Tolerance::Relative;
use super::columns::reproducible;
use super::recipes::figure;

type InTraining = MxAutodiff<Flex>;

const ROWS: usize = 256;
const FEATURES: usize = 64;

/// Output and gradients of query, key and value.
fn passes(specs: AttentionSpecs, inputs: &[Vec<f32>; 4]) -> Result<[Vec<f32>; 4], Box<dyn Error>> {
    let specs = MxSpecs {
        attention: Some(specs),
        round: Rounding::NearestEven,
        ..MxSpecs::none()
    };
    let device = MxDevice::new(FlexDevice, &specs)?;
    let [q, k, v, g] = inputs.each_ref().map(|values| {
        let data = TensorData::new(values.clone(), [1, 1, ROWS, FEATURES]);
        Tensor::<InTraining, 4>::from_data(data, &device)
    });
    let leaves = [q, k, v].map(Tensor::require_grad);
    let [q, k, v] = leaves.clone();
    let out = attention(q, k, v, None, None, Default::default());
    let grads = (out.clone() * g).sum().backward();
    let mut results = vec![out.into_data().into_vec::<f32>()?];
    for leaf in leaves {
        let gradient = leaf.grad(&grads).ok_or("a leaf has no gradient")?;
        results.push(gradient.into_data().into_vec::<f32>()?);
    }
    results.try_into().map_err(|_| "there are not four".into())
}

/// SageBwd on normal numbers; the features of keys have means.
pub(super) fn sagebwd() -> PublishedFigures {
    let mut inputs = [6, 7, 8, 9].map(|seed| reproducible(seed, ROWS * FEATURES));
    let means = reproducible(10, FEATURES);
    for key in inputs[1].chunks_mut(FEATURES) {
        let pairs = key.iter_mut().zip(&means);
        pairs.for_each(|(k, mean)| *k = (f64::from(*k) + 2.0 * f64::from(*mean)) as f32);
    }
    let exact = passes(AttentionSpecs::default(), &inputs)?;
    let got = passes(AttentionSpecs::sagebwd(), &inputs)?;
    let cases = [
        ("`sagebwd`, squared error of the output", 3.6016e-4),
        ("… of the gradient of the query", 2.1405e-3),
        ("… of the gradient of the key", 2.1635e-3),
        ("… of the gradient of the value", 1.6116e-3),
    ];
    let errors = exact.iter().zip(&got).map(|(exact, got)| error(exact, got));
    let figures = cases.into_iter().zip(errors);
    let figures =
        figures.map(|((case, published), ours)| figure(case, published, Relative(0.01), ours));
    Ok(figures.collect())
}
