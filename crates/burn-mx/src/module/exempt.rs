//! The layers that a recipe leaves without block formats, by their kind.

use burn_core::module::Module;
use burn_core::tensor::backend::Backend;
use thiserror::Error;

use super::by_path::set_specs_at;
use super::layers::layers;
use super::pattern::PathError;
use super::tensor_ops::MxTensorOps;
use crate::specs::{Exemptions, Recipe, SpecsError};

/// Why a model could not be given a recipe's exemptions.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ExemptError {
    /// The specs of the exempt layers do not resolve.
    #[error(transparent)]
    Specs(#[from] SpecsError),
    /// A layer was not found again.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// The paths of a model's layers that are [exempt](Exemptions), in order.
pub fn exempt_layers<B: Backend, M: Module<B>>(model: &M, exemptions: Exemptions) -> Vec<String> {
    let mut layers = layers(model);
    let exempt = exemptions.count(layers.len());
    layers.split_off(layers.len() - exempt)
}

/// The model with the specs of exempt layers set for those that `recipe` names; the others go by their device's, which are to
/// be the recipe's.
///
/// ```
/// # use burn_core::module::Module;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::module::{exempt_layers, set_exemptions};
/// # use burn_mx::{MxBackend, MxDevice, Recipe};
/// # fn example<M: Module<MxBackend<Flex>>>(init: impl Fn(&MxDevice<FlexDevice>) -> M) -> Result<(), Box<dyn std::error::Error>> {
/// let recipe = Recipe::preset("nvfp4_pretraining")?;
/// let device = MxDevice::new(FlexDevice, &recipe.specs.resolve()?);
/// let model = set_exemptions(init(&device), &recipe)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the recipe's specs do not resolve.
pub fn set_exemptions<B: MxTensorOps, M: Module<B>>(
    model: M,
    recipe: &Recipe,
) -> Result<M, ExemptError> {
    let specs = recipe.exempt_specs().resolve()?;
    let layers = exempt_layers::<B, M>(&model, recipe.exemptions);
    let set = |model, path: &String| set_specs_at(model, path, &specs);
    Ok(layers.iter().try_fold(model, set)?)
}
