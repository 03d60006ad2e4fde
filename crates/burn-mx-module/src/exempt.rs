//! The layers that a recipe leaves without block formats: the last ones of a forward pass.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_core::module::Module;
use thiserror::Error;

use super::by_path::{label_parameters, set_specs_at};
use super::layers::layers;
use super::pattern::PathError;
use burn_mx_core::MxTensorOps;
use burn_mx_core::hooks::{self, Events, Observer};
use burn_mx_core::{Exemptions, Recipe, SpecsError};

/// Why a model could not be given a recipe's exemptions.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ExemptError {
    /// The specs of the exempt layers do not resolve.
    #[error(transparent)]
    Specs(#[from] SpecsError),
    /// The model has no layer of that path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Exemptions were asked for, and the forward pass ran no layer.
    #[error(
        "the forward pass ran no product with a parameter of the model, so the last layer is unknown; allowed: a \
         forward pass of the given model, or the layers' paths (`set_exemptions_at`)"
    )]
    NoLayer,
}

microscaling::debug_is_display!(ExemptError);

/// The paths of the [exempt](Exemptions) layers of a model, in the order in which `forward` runs them. `forward` runs one
/// forward pass of the given model, on an input of any size.
///
/// A layer is anything that multiplies by a parameter. Burn's linear layers and convolutions have the module's path
/// (`blocks.0.up`), others have the parameter's path (`embedding.weight` of a model whose head is its embedding). The names
/// and the order of the fields do not matter. A layer that runs several times counts at its last run.
///
/// # Errors
///
/// [`ExemptError::NoLayer`].
///
/// # Panics
///
/// If `forward` does.
pub fn exempt_layers<B: MxTensorOps, M: Module<B>, R>(
    model: &M,
    exemptions: Exemptions,
    forward: impl FnOnce(&M) -> R + Send,
) -> Result<Vec<String>, ExemptError> {
    if exemptions == Exemptions::default() {
        return Ok(Vec::new());
    }
    let modules = layers(model);
    let model = label_parameters(model.clone());
    let ran = weights_used(move || {
        forward(&model);
    });
    let mut order: Vec<String> = Vec::new();
    for label in ran.into_iter().rev() {
        let module = label
            .rsplit_once('.')
            .map(|(module, _)| module)
            .filter(|module| modules.iter().any(|layer| layer == module));
        let layer = module.unwrap_or(label);
        if !order.iter().any(|other| other == layer) {
            order.push(layer.to_owned());
        }
    }
    if order.is_empty() {
        return Err(ExemptError::NoLayer);
    }
    order.truncate(exemptions.count(order.len()));
    order.reverse();
    Ok(order)
}

/// The labels of the weights of the products that `work` runs, in that order, one for each product.
fn weights_used(work: impl FnOnce() + Send) -> Vec<&'static str> {
    #[derive(Default)]
    struct Used(Mutex<Vec<&'static str>>);
    impl Used {
        fn labels(&self) -> MutexGuard<'_, Vec<&'static str>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
    impl Observer for Used {
        fn events(&self) -> Events {
            Events::WEIGHTS
        }

        fn weight_used(&self, label: &'static str) {
            self.labels().push(label);
        }
    }
    let used = Arc::new(Used::default());
    hooks::alone(|| {
        let _installed = hooks::install_on_this_thread(used.clone());
        work();
    });
    core::mem::take(&mut used.labels())
}

/// Sets the specs of exempt layers for the layers that `recipe` exempts. Returns the model and the paths of these layers, in
/// the order in which they run. All other layers follow the specs of their device, which should be the recipe's. `forward`
/// runs one forward pass, as for [`exempt_layers`].
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Module;
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::module::set_exemptions;
/// # use burn_mx::{MxBackend, MxDevice, Recipe};
/// # fn example<M: Module<MxBackend<Flex>>>(
/// #     init: impl Fn(&MxDevice<FlexDevice>) -> M,
/// #     forward: impl Fn(&M, Tensor<MxBackend<Flex>, 2>) -> Tensor<MxBackend<Flex>, 2> + Sync,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let recipe = Recipe::preset("nvfp4_pretraining")?;
/// let device = MxDevice::new(FlexDevice, &recipe.specs)?;
/// let one = Tensor::zeros([1, 64], &device);
/// let (model, exempt) = set_exemptions(init(&device), &recipe, |model| forward(model, one))?;
/// println!("without block formats: {}", exempt.join(", "));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the recipe's specs do not resolve, or `forward` runs no layer.
///
/// # Panics
///
/// If `forward` does.
pub fn set_exemptions<B: MxTensorOps, M: Module<B>, R>(
    model: M,
    recipe: &Recipe,
    forward: impl FnOnce(&M) -> R + Send,
) -> Result<(M, Vec<String>), ExemptError> {
    let layers = exempt_layers::<B, M, R>(&model, recipe.exemptions, forward)?;
    let model = set_exemptions_at(model, recipe, &layers)?;
    Ok((model, layers))
}

/// Sets the specs of the recipe's own [`layers`](Recipe::layers). If two patterns match a parameter, the later one counts, in the
/// order of their text.
///
/// # Errors
///
/// If specs do not resolve, or a path matches no parameter of the model.
pub fn set_recipe_layers<B: MxTensorOps, M: Module<B>>(
    model: M,
    recipe: &Recipe,
) -> Result<M, ExemptError> {
    recipe
        .layers
        .iter()
        .try_fold(model, |model, (path, specs)| {
            Ok(set_specs_at(model, path, &specs.clone().resolve()?)?)
        })
}

/// Sets the specs of exempt layers for the parameters at `paths`. Paths are patterns, as for [`set_specs_at`]. The recipe's
/// own [`Exemptions`] are ignored.
///
/// # Errors
///
/// If the recipe's specs do not resolve, or a path matches no parameter of the model.
pub fn set_exemptions_at<B: MxTensorOps, M: Module<B>>(
    model: M,
    recipe: &Recipe,
    paths: &[impl AsRef<str>],
) -> Result<M, ExemptError> {
    let specs = recipe.exempt_specs().resolve()?;
    let set = |model, path: &_| set_specs_at(model, AsRef::<str>::as_ref(path), &specs);
    Ok(paths.iter().try_fold(model, set)?)
}
