//! Arithmetic on parameters without rounding.

use std::collections::VecDeque;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::{Tensor, TensorPrimitive};
use thiserror::Error;

use burn_mx_core::{MxModelOps, TensorChange};

use super::change::change;

/// The master values of a parameter, detached. Every op on master values is plain `f32`, as in an optimizer, and so is every
/// op on the results. Emulation begins again when the result becomes a parameter (`Param::from_tensor`, `set_require_grad`),
/// or meets a tensor without this mark in a layer.
///
/// Presets leave arithmetic on parameters alone in `f32`. In the scope [`All`](burn_mx_core::ElementwiseScope::All), a parameter is
/// an ordinary operand without this function. An average of weights is then rounded in each step, and stalls if a step is less
/// than half a unit in the last place. [`lerp`] averages whole modules.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs, module::master};
/// # use burn_mx::ElementwiseScope;
/// let specs = MxSpecs { elementwise_scope: ElementwiseScope::All, ..MxSpecs::mxfp8_e4m3() };
/// let device = MxDevice::new(FlexDevice, specs)?;
/// let weight = Tensor::<MxBackend<Flex>, 1>::from_floats([1.0], &device).require_grad();
/// // In bfloat16 there is nothing between 1 and 1.0078125.
/// assert_eq!((weight.clone() + 0.001).into_scalar(), 1.0);
/// assert_eq!((master(weight) + 0.001).into_scalar(), 1.001);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn master<B: MxModelOps, const D: usize>(parameter: Tensor<B, D>) -> Tensor<B, D> {
    change(parameter, TensorChange::Master)
}

/// Why two modules could not be averaged.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LerpError {
    /// A parameter has another shape in the other module.
    #[error(
        "`{path}` has shape {target:?} in the target and {online:?} in the online module; allowed: equal shapes"
    )]
    Shape {
        /// The parameter's path.
        path: String,
        /// Its shape in the target.
        target: Vec<usize>,
        /// Its shape in the online module.
        online: Vec<usize>,
    },
    /// The modules have different numbers of parameters.
    #[error(
        "the target has {target} parameters, the online module {online}; allowed: equal numbers"
    )]
    Count {
        /// Parameters of the target.
        target: usize,
        /// Parameters of the online module.
        online: usize,
    },
}

microscaling::debug_is_display!(LerpError);

/// `target · (1 − weight) + online · weight`, parameter by parameter in the modules' order, in plain `f32`: a soft update of a
/// target network, or an exponential moving average of weights. The running statistics of batch norms are averaged, too.
///
/// The result has the roles, specs and labels of `target`'s parameters. The same arithmetic on the parameters' tensors would
/// be emulated, see [`master`].
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Param;
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs, module::lerp};
/// let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
/// let model = |value: f32| vec![Param::from_tensor(Tensor::<MxBackend<Flex>, 1>::full([2], value, &device))];
/// let target = lerp(model(1.0), &model(2.0), 0.001)?;
/// assert_eq!(target[0].val().into_data().to_vec::<f32>()?, [1.001; 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the modules' parameters differ in number or shape.
pub fn lerp<B: MxModelOps, M: Module<B>>(
    target: M,
    online: &M,
    weight: f64,
) -> Result<M, LerpError> {
    let [mut of_target, mut of_online] = [&target, online].map(|module| {
        let mut parameters = FloatParameters::default();
        module.visit(&mut parameters);
        parameters
    });
    let counts = [&of_target, &of_online].map(|parameters| parameters.values.len());
    if counts[0] != counts[1] {
        return Err(LerpError::Count {
            target: counts[0],
            online: counts[1],
        });
    }
    for (at, path) in of_target.paths.drain(..).enumerate() {
        let [target, online]: [Shape; 2] =
            [&of_target.values[at], &of_online.values[at]].map(TensorMetadata::shape);
        if target != online {
            return Err(LerpError::Shape {
                path,
                target: target.to_vec(),
                online: online.to_vec(),
            });
        }
    }
    let online = &mut of_online.values;
    Ok(target.map(&mut Average::<B> { online, weight }))
}

/// The float parameters of a module, in its order.
struct FloatParameters<B: MxModelOps> {
    path: Vec<String>,
    paths: Vec<String>,
    values: VecDeque<FloatTensor<B>>,
}

impl<B: MxModelOps> Default for FloatParameters<B> {
    fn default() -> Self {
        Self {
            path: Vec::new(),
            paths: Vec::new(),
            values: VecDeque::new(),
        }
    }
}

impl<B: MxModelOps> ModuleVisitor<B> for FloatParameters<B> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.paths.push(self.path.join("."));
        self.values.push_back(param.val().into_primitive().tensor());
    }
}

struct Average<'a, B: MxModelOps> {
    online: &'a mut VecDeque<FloatTensor<B>>,
    weight: f64,
}

impl<B: MxModelOps> ModuleMapper<B> for Average<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let online = self.online.pop_front();
        let online = online.expect("the modules have as many parameters");
        param.map(|target| {
            let target = target.into_primitive().tensor();
            let average = B::lerp(target, online, self.weight);
            Tensor::from_primitive(TensorPrimitive::Float(average))
        })
    }
}
