//! Whether a recipe's gradients are biased.
//!
//! Rounding errors of gradients are harmless if they cancel over many steps. [`gradient_bias`] tests whether they do. The test
//! computes the forward pass in full precision, then many quantized backward passes with new random numbers each, and compares
//! their mean with the exact gradient g. For N passes, ‖mean − g‖² / ‖g‖² falls as 1/N if the recipe is unbiased. If the
//! recipe is biased, the error levels off at the square of the bias. Rounding to nearest gives the same error in every pass.
//! Stochastic rounding is unbiased, unless block scales let the largest elements saturate.
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
    /// All products that the specs quantize.
    All,
    /// Only the products that compute gradients of activations, which pass from layer to layer.
    InputGradients,
    /// Only the products that compute gradients of weights.
    WeightGradients,
}

impl Products {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::All, Self::InputGradients, Self::WeightGradients];

    /// The name in tables.
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

/// The configuration of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GradientBias {
    /// Number of quantized backward passes for each choice of products, at least 8. Default: 256.
    pub backward_passes: usize,
    /// The choices of quantized products, tested one after another. Default: all three.
    pub products: Vec<Products>,
    /// The seed of the random numbers of the quantized passes.
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

/// Why the bias of gradients could not be measured.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum GradientBiasError {
    /// A field of the configuration that cannot be used.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    Config {
        /// The field of [`GradientBias`].
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
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

microscaling::debug_is_display!(GradientBiasError);

/// Measures the bias of the gradients of `loss(model, batch)`, parameter by parameter, with the specs that model and batch
/// carry.
///
/// The forward pass and the elementwise ops of the backward pass run in full precision. So the test covers the block formats,
/// roundings and transforms of the gradient products. The model's own random numbers do not change. In a rayon task, `loss`
/// runs on a separate thread, so that no other task computes with the tested specs.
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
