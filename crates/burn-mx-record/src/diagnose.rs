//! Whether a recipe's gradients are biased.
//!
//! Rounding makes gradients wrong; that is harmless as long as the errors of many steps cancel. [`gradient_bias`] computes the
//! forward pass in full precision, then many quantized backward passes, each with random numbers of its own, and compares
//! their mean with the exact gradient g: ‖mean − g‖² / ‖g‖² of N passes falls as 1/N if the recipe is unbiased, and comes to
//! a halt at the square of its bias if it is not. Rounding to nearest gives the same error in every pass; stochastic rounding
//! is unbiased, unless block scales let the largest elements saturate.
//!
//! ```
//! # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; pub use burn_mx_record::{self as record, diagnose}; }
//! use burn_core as burn;
//! use burn_core::module::{Module, Param};
//! use burn_core::tensor::{Distribution, Tensor, backend::Backend};
//! use burn_flex::{Flex, FlexDevice};
//! use burn_mx::diagnose::{GradientBias, Products, Verdict, gradient_bias};
//! use burn_mx::{MxAutodiff, MxDevice, MxSpecs};
//!
//! type B = MxAutodiff<Flex>;
//!
//! let device = MxDevice::new(FlexDevice, "mxfp4")?; // rounds to nearest even
//! let normal = |shape| Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
//! let model = vec![Param::from_tensor(normal([64, 32]))];
//! let loss = |model: &Vec<Param<Tensor<B, 2>>>, x: &Tensor<B, 2>| {
//!     x.clone().matmul(model[0].val()).powi_scalar(2).mean()
//! };
//! let config = GradientBias { backward_passes: 16, ..GradientBias::default() };
//! let biases = gradient_bias(&model, &normal([32, 64]), loss, &config)?;
//! assert_eq!(biases.parameters[0].of(Products::All).verdict, Verdict::Biased);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bias;
mod chart;
mod passes;
mod substitution;

use burn_backend::AutodiffBackend;
use burn_core::module::Module;
use burn_core::tensor::Tensor;
use serde::{Deserialize, Serialize};

pub use bias::{Bias, Biases, ParameterBias, Verdict};
use burn_mx_core::MxTensorOps;
use burn_mx_core::hooks::ProductKind as Kind;
pub use chart::chart;
use substitution::Substitution;

/// Which products of the backward pass are quantized; all others are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Products {
    /// Those that the specs quantize.
    All,
    /// Of these the ones that compute gradients of activations, which are handed on from layer to layer.
    InputGradients,
    /// Of these the ones that compute gradients of weights.
    WeightGradients,
}

impl Products {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::All, Self::InputGradients, Self::WeightGradients];

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all gradient products",
            Self::InputGradients => "input gradients",
            Self::WeightGradients => "weight gradients",
        }
    }

    fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Forward => false,
            Kind::InputGradient => self != Self::WeightGradients,
            Kind::WeightGradient => self != Self::InputGradients,
        }
    }
}

/// How gradients are tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GradientBias {
    /// Number of quantized backward passes, for each choice of products; 8 or more. 256 by default.
    pub backward_passes: usize,
    /// Which products are quantized, one choice after another; all three by default.
    pub products: Vec<Products>,
    /// Of the random numbers of the quantized passes.
    pub seed: u64,
}

impl Default for GradientBias {
    fn default() -> Self {
        Self {
            backward_passes: 256,
            products: Products::ALL.to_vec(),
            seed: 0,
        }
    }
}

/// Why the bias of gradients was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GradientBiasError {
    /// A field of the configuration that cannot be used.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    Config {
        /// The field of [`GradientBias`].
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The loss has no gradient.
    #[error("the loss depends on no parameter of the model: there is no gradient to compare with")]
    NoGradient,
    /// Two exact passes differ.
    #[error(
        "the gradient of `{parameter}` differs between two passes in full precision: the loss is not the same each time \
         (dropout?)"
    )]
    Random {
        /// The parameter's path.
        parameter: String,
    },
    /// No pass quantized anything.
    #[error(
        "no backward product of the model is quantized by its specs: give its parameters, or the batch, specs with formats \
         for the backward pass"
    )]
    NotQuantized,
}

/// The bias of the gradients of `loss(model, batch)` by the specs that model and batch carry, parameter by parameter.
///
/// The forward pass is computed in full precision, elementwise ops of the backward pass, too: what is tried are the block
/// formats, roundings and transforms of the gradient products. The model's own random numbers are left alone. In a rayon task
/// `loss` runs on a thread of the crate's own, so that no other task runs in between by the specs that are tried.
///
/// # Errors
///
/// See [`GradientBiasError`].
pub fn gradient_bias<B, M, T>(
    model: &M,
    batch: &T,
    loss: impl Fn(&M, &T) -> Tensor<B, 1> + Sync,
    config: &GradientBias,
) -> Result<Biases, GradientBiasError>
where
    B: AutodiffBackend + MxTensorOps,
    M: Module<B> + Sync,
    T: Sync,
{
    gradient_bias_with_progress(model, batch, loss, config, |_, _| ())
}

/// [`gradient_bias`], which calls `progress(done, all)` after each backward pass.
///
/// # Errors
///
/// See [`GradientBiasError`].
pub fn gradient_bias_with_progress<B, M, T>(
    model: &M,
    batch: &T,
    loss: impl Fn(&M, &T) -> Tensor<B, 1> + Sync,
    config: &GradientBias,
    progress: impl FnMut(usize, usize),
) -> Result<Biases, GradientBiasError>
where
    B: AutodiffBackend + MxTensorOps,
    M: Module<B> + Sync,
    T: Sync,
{
    let error = |field, value: String, allowed| GradientBiasError::Config {
        field,
        value,
        allowed,
    };
    if config.backward_passes < bias::GROUPS {
        let passes = config.backward_passes.to_string();
        return Err(error("backward_passes", passes, "8 or more"));
    }
    if config.products.is_empty() {
        return Err(error("products", "empty".into(), "one choice at least"));
    }
    passes::run::<B, M>(model, || loss(model, batch), config, progress)
}
