//! Specs and labels of parameters, set by path.

use burn_core::module::{Module, ModuleMapper, Param};
use burn_core::tensor::Tensor;

use super::on_load::Update;
use super::pattern::{PathError, Pattern, nearest};
use burn_mx_core::AsResolvedSpecs;
use burn_mx_core::MxTensorOps;
use burn_mx_core::hooks::SharedSpecs;

/// Sets the specs of every float parameter of `module`, as [`set_specs_at`] does by path.
pub fn set_specs<B: MxTensorOps, M: Module<B>>(module: M, specs: &impl AsResolvedSpecs) -> M {
    let mut mapper = PathMapper::new(
        None,
        Update::Specs(Some(SharedSpecs::of(specs.as_resolved()))),
    );
    module.map(&mut mapper)
}

/// Sets the specs of the float parameters of `module` whose path matches `pattern`, and labels these parameters. A pattern is a
/// path (`head.weight`), the path of a submodule (`layers.0`), or a glob over either (`blocks.*.down`, where `*` also matches
/// dots). A pattern that matches a submodule matches all parameters in the submodule.
///
/// The specs stay with the parameter through optimizer steps, loading a record, and moves to devices with other specs. They
/// apply to the ops that the parameter takes part in, in both passes. Later ops follow the specs of the activations. A norm
/// that Burn composes of smaller ops (batch, group, instance and its rms norm) computes its statistics from activations alone,
/// by their specs.
///
/// L-BFGS joins all parameters into one vector. The vector loses specs set by path, and `log` has a warning. Set the specs
/// again after each step of L-BFGS.
///
/// # Errors
///
/// If the pattern is not a valid glob, or matches no parameter.
pub fn set_specs_at<B: MxTensorOps, M: Module<B>>(
    module: M,
    pattern: &str,
    specs: &impl AsResolvedSpecs,
) -> Result<M, PathError> {
    update_at(
        module,
        pattern,
        Update::Specs(Some(SharedSpecs::of(specs.as_resolved()))),
    )
}

/// Removes the specs that [`set_specs_at`] and [`set_specs`] set for the float parameters of `module` whose path matches
/// `pattern`. These parameters follow the specs of their device again, and so do values that a record loads later. Other
/// parameters do not change. The pattern `*` matches every parameter.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Param;
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::module::{clear_specs_at, set_specs_at, specs_of};
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs};
/// # let specs = MxSpecs::mxfp4().resolve()?;
/// # let device = MxDevice::new(FlexDevice, &specs).expect("resolved specs");
/// let model = vec![Param::from_tensor(Tensor::<MxBackend<Flex>, 2>::ones([2, 2], &device))];
/// let model = set_specs_at(model, "0", &MxSpecs::none().resolve()?)?;
/// let model = clear_specs_at(model, "0")?;
/// assert_eq!(specs_of(&model[0].val()), Some(specs));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the pattern is not a valid glob, or matches no parameter.
pub fn clear_specs_at<B: MxTensorOps, M: Module<B>>(
    module: M,
    pattern: &str,
) -> Result<M, PathError> {
    update_at(module, pattern, Update::Specs(None))
}

/// Labels every float parameter of `module` with its path (`blocks.0.expand.weight`). A product then has the label of its
/// weight, in both passes. No number changes.
///
/// A label stays with its parameter, as specs set by path do: through optimizer steps (except L-BFGS), loading a record, and
/// moves between devices. [`set_specs_at`] also labels the parameters that it matches.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Param;
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::Flex;
/// # use burn_mx::module::{label_of, label_parameters};
/// # use burn_mx::{MxBackend, MxDevice};
/// # let device = MxDevice::default();
/// let model = vec![Param::from_tensor(Tensor::<MxBackend<Flex>, 2>::ones([2, 2], &device))];
/// let model = label_parameters(model);
/// assert_eq!(label_of(&model[0].val()), Some("0"));
/// ```
pub fn label_parameters<B: MxTensorOps, M: Module<B>>(module: M) -> M {
    module.map(&mut PathMapper::new(None, Update::Label))
}

fn update_at<B: MxTensorOps, M: Module<B>>(
    module: M,
    pattern: &str,
    update: Update,
) -> Result<M, PathError> {
    let mut mapper = PathMapper::new(Some(Pattern::new(pattern)?), update);
    let module = module.map(&mut mapper);
    if mapper.matched == 0 {
        return Err(PathError::NoMatch {
            pattern: pattern.to_owned(),
            paths: nearest(pattern, mapper.seen.iter().map(String::as_str)),
        });
    }
    Ok(module)
}

/// Updates the parameters whose path matches.
struct PathMapper {
    /// `None` matches all.
    pattern: Option<Pattern>,
    update: Update,
    path: Vec<String>,
    seen: Vec<String>,
    matched: usize,
}

impl PathMapper {
    fn new(pattern: Option<Pattern>, update: Update) -> Self {
        Self {
            pattern,
            update,
            path: Vec::new(),
            seen: Vec::new(),
            matched: 0,
        }
    }
}

impl<B: MxTensorOps> ModuleMapper<B> for PathMapper {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        // The running statistics of batch norm come by here, too. They are not parameters: a module's ops on them have the specs of the
        // activations.
        if !B::is_weight(&param.val().into_primitive().tensor()) {
            return param;
        }
        let path = self.path.join(".");
        let matches = self
            .pattern
            .as_ref()
            .is_none_or(|pattern| pattern.matches(&path));
        let param = match matches {
            true => {
                self.matched += 1;
                self.update.apply(param, &path)
            }
            false => param,
        };
        self.seen.push(path);
        param
    }
}
