//! The backward passes.

use std::collections::HashMap;

use burn_backend::{AutodiffBackend, read_sync};
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::Tensor;

use super::bias::{Biases, Deviations, ParameterBias};
use super::{GradientBias, GradientBiasError, Products, Substitution};
use burn_mx_core::MxTensorOps;

/// Gradients by the paths of their parameters, in the model's order.
type Gradients = Vec<(String, Vec<f32>)>;

pub(super) fn run<B, M>(
    model: &M,
    loss: impl Fn() -> Tensor<B, 1> + Sync,
    config: &GradientBias,
    mut progress: impl FnMut(usize, usize),
) -> Result<Biases, GradientBiasError>
where
    B: AutodiffBackend + MxTensorOps,
    M: Module<B>,
{
    let pass = |substitution| {
        let grads = Substitution::enter(substitution, || loss().backward());
        gradients::<B, M>(model, &grads)
    };
    let exact = || pass(Substitution::new(None, config.seed));
    let wanted = exact();
    if wanted.is_empty() {
        return Err(GradientBiasError::NoGradient);
    }
    if let Some(parameter) = differing(&wanted, &exact()) {
        return Err(GradientBiasError::Random { parameter });
    }
    let all = config.products.len() * config.backward_passes;
    let mut done = 0;
    let mut quantized = 0;
    let mut found: HashMap<Products, Vec<Deviations>> = HashMap::new();
    for &products in &config.products {
        let substitution = Substitution::new(Some(products), config.seed);
        let deviations = wanted
            .iter()
            .map(|(_, gradient)| Deviations::new(gradient, config.backward_passes));
        let mut deviations: Vec<Deviations> = deviations.collect();
        let mut last = None;
        for _ in 0..config.backward_passes {
            // Without random numbers every pass is the same.
            let gradients = last
                .take()
                .filter(|_| !substitution.is_random())
                .unwrap_or_else(|| pass(substitution.clone()));
            for (deviations, (_, gradient)) in deviations.iter_mut().zip(&gradients) {
                deviations.add(gradient);
            }
            last = Some(gradients);
            done += 1;
            progress(done, all);
        }
        quantized += substitution.quantized();
        found.insert(products, deviations);
    }
    if quantized == 0 {
        return Err(GradientBiasError::NotQuantized);
    }
    let parameters = wanted.iter().enumerate().map(|(at, (path, gradient))| {
        let biases = config.products.iter();
        let biases = biases.map(|&products| found[&products][at].bias(products));
        ParameterBias {
            parameter: path.clone(),
            elements: gradient.len(),
            biases: biases.collect(),
        }
    });
    Ok(Biases {
        config: config.clone(),
        parameters: parameters.collect(),
    })
}

/// The first parameter whose gradients differ.
fn differing(one: &Gradients, other: &Gradients) -> Option<String> {
    let mut pairs = one.iter().zip(other);
    let differs = |a: &[f32], b: &[f32]| a.iter().zip(b).any(|(a, b)| a.to_bits() != b.to_bits());
    let found = pairs.find(|((_, a), (_, b))| differs(a, b));
    found.map(|((path, _), _)| path.clone())
}

fn gradients<B, M>(model: &M, grads: &B::Gradients) -> Gradients
where
    B: AutodiffBackend,
    M: Module<B>,
{
    struct Collect<'a, B: AutodiffBackend> {
        grads: &'a B::Gradients,
        path: Vec<String>,
        gradients: Gradients,
    }
    impl<B: AutodiffBackend> ModuleVisitor<B> for Collect<'_, B> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let Some(gradient) = param.val().grad(self.grads) else {
                return;
            };
            let values = read_sync(gradient.into_data_async())
                .unwrap_or_else(|error| panic!("burn-mx: reading a gradient failed: {error}"));
            let values = values.convert::<f32>().into_vec();
            let values = values.expect("they were converted");
            self.gradients.push((self.path.join("."), values));
        }
    }
    let mut collect = Collect::<B> {
        grads,
        path: Vec::new(),
        gradients: Vec::new(),
    };
    model.visit(&mut collect);
    collect.gradients
}
