//! The layers that a recipe leaves without block formats, by their kind.

use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::Tensor;
use burn_core::tensor::backend::Backend;
use thiserror::Error;

use super::by_path::set_specs_at;
use super::pattern::PathError;
use super::tensor_ops::MxTensorOps;
use crate::specs::{Exemptions, Recipe, SpecsError};

/// Modules with a product of their own, as Burn's modules are called.
const LAYERS: [&str; 8] = [
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeformConv2d",
];

/// Why a model could not be given a recipe's exemptions.
#[derive(Clone, Debug, Error)]
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
    let mut finder = Finder::default();
    model.visit(&mut finder);
    let exempt = exemptions.count(finder.layers.len());
    finder.layers.split_off(finder.layers.len() - exempt)
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

/// Finds layers.
#[derive(Default)]
struct Finder {
    path: Vec<String>,
    /// Where on the path the layers are that the walk is in.
    within: Vec<usize>,
    layers: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Finder {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_owned());
        let kind = container_type.strip_prefix("Struct:");
        if kind.is_some_and(|kind| LAYERS.contains(&kind)) {
            self.within.push(self.path.len());
        }
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        if self.within.last() == Some(&self.path.len()) {
            self.within.pop();
        }
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<B, D>>) {
        // The path has the parameter's own name, too; what a layer itself is called stands before it.
        let Some(&layer) = self.within.last() else {
            return;
        };
        let layer = match &self.path[..layer - 1] {
            // The model is a layer itself.
            [] => "*".to_owned(),
            path => path.join("."),
        };
        if self.layers.last() != Some(&layer) {
            self.layers.push(layer);
        }
    }
}
