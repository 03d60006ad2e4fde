//! Helpers at the level of modules and tensors: specs by parameter path, full-precision pieces, roles.
//!
//! All work on both sides of the decorator, `MxBackend<B>` and `MxAutodiff<B>`, through [`MxTensorOps`].

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_core::module::{Module, ModuleMapper, Param};
use burn_core::tensor::{Tensor, TensorPrimitive};
use globset::{Glob, GlobMatcher};
use thiserror::Error;

use crate::backend::MxBackend;
use crate::kernels::{MxKernels, Norm};
use crate::registry::Interned;
use crate::semantics::{activation, norm};
use crate::specs::ResolvedSpecs;
use crate::tensor::{Flags, Meta, MxTensor};

mod sealed {
    pub trait Sealed {}
}

/// The two backends whose tensors carry specs.
pub trait MxTensorOps: Backend + sealed::Sealed {
    #[doc(hidden)]
    fn change_meta(tensor: FloatTensor<Self>, change: MetaChange) -> FloatTensor<Self>;
    #[doc(hidden)]
    fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self>;
    #[doc(hidden)]
    fn rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self>;
    #[doc(hidden)]
    fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs>;
    #[doc(hidden)]
    fn is_weight(tensor: &FloatTensor<Self>) -> bool;
}

/// A change of what a tensor is to the emulation.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct MetaChange(Change);

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Specs set by name, for a parameter.
    Pin(&'static Interned),
    Specs(&'static Interned),
    FullPrecision(bool),
    Weight(bool),
}

impl MetaChange {
    fn apply(self, mut meta: Meta) -> Meta {
        match self.0 {
            Change::Pin(specs) => meta = meta.pin(specs),
            Change::Specs(specs) => meta.specs = Some(specs),
            Change::FullPrecision(on) => meta.flags.set(Flags::FULL_PRECISION, on),
            Change::Weight(on) => meta.flags.set(Flags::WEIGHT | Flags::PARAMETER, on),
        }
        meta
    }

    /// Copies that a weight keeps are left to those who share them: there will be others now.
    fn apply_to<P: TensorMetadata>(self, tensor: MxTensor<P>) -> MxTensor<P> {
        let tensor = MxTensor::new(tensor.inner, self.apply(tensor.meta));
        match tensor.meta.is_weight() {
            true => tensor.into_weight(),
            false => tensor,
        }
    }
}

/// A function that Burn composes and the reference has as one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Function {
    GeluFirstOrder,
    Silu,
}

impl<B: MxKernels> sealed::Sealed for MxBackend<B> {}

impl<B: MxKernels> MxTensorOps for MxBackend<B> {
    fn change_meta(tensor: FloatTensor<Self>, change: MetaChange) -> FloatTensor<Self> {
        change.apply_to(tensor)
    }

    fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self> {
        match function {
            Function::GeluFirstOrder => activation::gelu_first_order::<B>(None, tensor),
            Function::Silu => activation::silu::<B>(None, tensor),
        }
    }

    fn rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        norm::forward::<B>(None, Norm::Rms, x, gamma, beta, epsilon)
    }

    fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs> {
        tensor.meta.specs.map(|interned| &interned.specs)
    }

    fn is_weight(tensor: &FloatTensor<Self>) -> bool {
        tensor.meta.is_weight()
    }
}

#[cfg(feature = "autodiff")]
mod autodiff {
    use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
    use burn_backend::ops::{ActivationOps, FloatTensorOps};

    use super::*;
    use crate::autodiff::MxAutodiff;
    use crate::backward::{self, boundary, elementwise};

    impl<B: MxKernels, C: CheckpointStrategy> sealed::Sealed for MxAutodiff<B, C> {}

    impl<B: MxKernels, C: CheckpointStrategy> MxTensorOps for MxAutodiff<B, C> {
        fn change_meta(mut tensor: FloatTensor<Self>, change: MetaChange) -> FloatTensor<Self> {
            match change.0 {
                // A leaf stays a leaf.
                Change::Pin(_) | Change::Weight(_) => {
                    tensor.primitive = change.apply_to(tensor.primitive);
                    tensor
                }
                // Gradients go back by the rules from before the change.
                Change::Specs(_) | Change::FullPrecision(_) => {
                    boundary::cross::<B, C>(tensor, |meta| change.apply(meta))
                }
            }
        }

        fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self> {
            let emulated = activation::is_composed::<B>(&tensor.primitive);
            match (function, emulated) {
                (Function::GeluFirstOrder, true) => {
                    elementwise::unary::<B, C, _>(tensor, elementwise::GeluFirstOrder)
                }
                (Function::Silu, true) => elementwise::unary::<B, C, _>(tensor, elementwise::Silu),
                (Function::GeluFirstOrder, false) => {
                    let slope = activation::GELU_SLOPE.into();
                    let gate = Self::sigmoid(Self::float_mul_scalar(tensor.clone(), slope));
                    Self::float_mul(tensor, gate)
                }
                (Function::Silu, false) => Self::float_mul(tensor.clone(), Self::sigmoid(tensor)),
            }
        }

        fn rms_norm(
            x: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            beta: Option<FloatTensor<Self>>,
            epsilon: f64,
        ) -> FloatTensor<Self> {
            backward::norm::forward_or::<B, C>(
                Norm::Rms,
                x,
                gamma,
                beta,
                epsilon,
                |x, gamma, beta| norm::plain_rms_norm::<Self>(x, gamma, beta, epsilon),
            )
        }

        fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs> {
            MxBackend::<B>::specs_of(&tensor.primitive)
        }

        fn is_weight(tensor: &FloatTensor<Self>) -> bool {
            tensor.primitive.meta.is_weight()
        }
    }
}

fn change<B: MxTensorOps, const D: usize>(tensor: Tensor<B, D>, change: Change) -> Tensor<B, D> {
    let primitive = B::change_meta(tensor.into_primitive().tensor(), MetaChange(change));
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The tensor, from here on computed at full precision, and so is everything that follows from it: the loss,
/// say. Gradients leave the piece where it was entered, and are emulated again from there on.
///
/// ```
/// # use burn_mx::{MxAutodiff, MxDevice, MxSpecs, module::{emulated, full_precision}};
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// let device = MxDevice::new(FlexDevice, &MxSpecs::mxfp8_e4m3().resolve()?);
/// let logits = Tensor::<MxAutodiff<Flex>, 1>::from_floats([1.01, 2.02], &device);
/// let exact = full_precision(logits) * 3.0; // 3.03: not a bfloat16
/// assert_eq!(exact.clone().into_data().to_vec::<f32>()?[0], 1.01 * 3.0);
/// let rounded = emulated(exact) * 1.0;
/// assert_eq!(rounded.into_data().to_vec::<f32>()?[0], 3.03125);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn full_precision<B: MxTensorOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, Change::FullPrecision(true))
}

/// The tensor, from here on emulated again by its specs: the end of a [`full_precision`] piece.
pub fn emulated<B: MxTensorOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, Change::FullPrecision(false))
}

/// The tensor, from here on computed by `specs`. Gradients go by the former specs again where they leave.
pub fn with_specs<B: MxTensorOps, const D: usize>(
    tensor: Tensor<B, D>,
    specs: &ResolvedSpecs,
) -> Tensor<B, D> {
    change(tensor, Change::Specs(Interned::of(specs)))
}

fn apply<B: MxTensorOps, const D: usize>(tensor: Tensor<B, D>, function: Function) -> Tensor<B, D> {
    let primitive = B::apply(tensor.into_primitive().tensor(), function);
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// `x · sigmoid(x)` by the reference's formula, gradient included. `burn`'s own silu is composed of a sigmoid and
/// a product, which rounds its gradient elsewhere.
pub fn silu<B: MxTensorOps, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    apply(x, Function::Silu)
}

/// `x · sigmoid(1.702 x)`, the reference's first-order gelu, by its formula, gradient included.
pub fn gelu_first_order<B: MxTensorOps, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    apply(x, Function::GeluFirstOrder)
}

/// `γ x / sqrt(mean x² + ε) + β` over the last axis, root-mean-square normalization by the reference's formula, gradients
/// included: `x` `[.., D]`, `gamma` and `beta` `[D]`. `burn`'s own `RmsNorm` divides where this multiplies with a rounded
/// reciprocal, and has no `beta`; call this on its `gamma` and `epsilon`.
///
/// ```
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs, module::rms_norm};
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// let device = MxDevice::new(FlexDevice, &MxSpecs::mxfp8_e4m3().resolve()?);
/// let x = Tensor::<MxBackend<Flex>, 2>::from_floats([[3.0, 4.0]], &device);
/// let gamma = Tensor::ones([2], &device);
/// let y = rms_norm(x, gamma, None, 1e-5);
/// // In bfloat16 arithmetic; exactly they are 0.8485… and 1.1313….
/// assert_eq!(y.into_data().to_vec::<f32>()?, [0.8515625, 1.1328125]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If `gamma` or `beta` have not as many elements as the last axis of `x`.
pub fn rms_norm<B: MxTensorOps, const D: usize>(
    x: Tensor<B, D>,
    gamma: Tensor<B, 1>,
    beta: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Tensor<B, D> {
    let features = x.dims()[D - 1];
    for (name, parameter) in [("gamma", Some(&gamma)), ("beta", beta.as_ref())] {
        if let Some(parameter) = parameter {
            let [got] = parameter.dims();
            assert_eq!(
                got, features,
                "burn-mx: rms_norm: `{name}` has {got} elements, the last axis of `x` has {features}"
            );
        }
    }
    let primitive = B::rms_norm(
        x.into_primitive().tensor(),
        gamma.into_primitive().tensor(),
        beta.map(|beta| beta.into_primitive().tensor()),
        epsilon,
    );
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The specs that the tensor carries, if any.
pub fn specs_of<B: MxTensorOps, const D: usize>(tensor: &Tensor<B, D>) -> Option<ResolvedSpecs> {
    B::specs_of(&tensor.clone().into_primitive().tensor()).cloned()
}

/// The tensor in the role of a weight: matrix products use the `w` formats for it, and its gradients from several uses are
/// summed in plain `f32`. Leaves that require gradients are weights by themselves.
pub fn as_weight<B: MxTensorOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, Change::Weight(true))
}

/// The tensor in the role of an activation: matrix products use the `a` formats for it, and its gradients from several uses
/// are summed by emulated additions. For an input whose gradient is wanted, which would pass for a weight.
pub fn as_activation<B: MxTensorOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, Change::Weight(false))
}

/// Why specs could not be set by path.
#[derive(Clone, Debug, Error)]
pub enum PathError {
    /// The pattern is not a glob.
    #[error(
        "path pattern `{pattern}`: {reason}; allowed: a parameter path such as `layers.0.weight`, a prefix of one, or a glob such as `blocks.*`"
    )]
    Pattern {
        /// The pattern given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No parameter has such a path.
    #[error("path pattern `{pattern}` matches no parameter; the module has: {paths}")]
    NoMatch {
        /// The pattern given.
        pattern: String,
        /// The module's parameter paths, separated by commas.
        paths: String,
    },
}

/// Sets the specs of every float parameter of `module`.
pub fn set_specs<B: MxTensorOps, M: Module<B>>(module: M, specs: &ResolvedSpecs) -> M {
    let mut mapper = SpecsMapper::new(None, specs);
    module.map(&mut mapper)
}

/// Sets the specs of the float parameters of `module` whose path matches `pattern`: a path (`head.weight`), the
/// path of a submodule (`layers.0`), or a glob over paths (`blocks.*`, where `*` also matches dots).
///
/// Specs set so stay with the parameter: through optimizer steps, loading a record, and moves to devices that
/// carry other specs. They hold for the ops that the parameter takes part in, in both passes; what follows goes on by
/// the specs of the activations. A norm that Burn composes of smaller ops (batch, group, instance and its rms norm)
/// computes its statistics of activations alone, by their specs.
///
/// L-BFGS joins all parameters to one vector, which loses the specs set by path (and says so through `log`):
/// set them again after each of its steps.
///
/// # Errors
///
/// If the pattern is no glob, or matches no parameter.
pub fn set_specs_at<B: MxTensorOps, M: Module<B>>(
    module: M,
    pattern: &str,
    specs: &ResolvedSpecs,
) -> Result<M, PathError> {
    let mut mapper = SpecsMapper::new(Some(Pattern::new(pattern)?), specs);
    let module = module.map(&mut mapper);
    if mapper.matched == 0 {
        return Err(PathError::NoMatch {
            pattern: pattern.to_owned(),
            paths: mapper.seen.join(", "),
        });
    }
    Ok(module)
}

/// A path, a prefix of one that ends at a dot, or a glob.
struct Pattern {
    text: String,
    glob: GlobMatcher,
}

impl Pattern {
    fn new(text: &str) -> Result<Self, PathError> {
        let glob = Glob::new(text).map_err(|error| PathError::Pattern {
            pattern: text.to_owned(),
            reason: error.kind().to_string(),
        })?;
        Ok(Self {
            text: text.to_owned(),
            glob: glob.compile_matcher(),
        })
    }

    fn matches(&self, path: &str) -> bool {
        let inside = path
            .strip_prefix(&self.text)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        inside || self.glob.is_match(path)
    }
}

struct SpecsMapper {
    pattern: Option<Pattern>,
    specs: &'static Interned,
    path: Vec<String>,
    seen: Vec<String>,
    matched: usize,
}

impl SpecsMapper {
    fn new(pattern: Option<Pattern>, specs: &ResolvedSpecs) -> Self {
        Self {
            pattern,
            specs: Interned::of(specs),
            path: Vec::new(),
            seen: Vec::new(),
            matched: 0,
        }
    }
}

impl<B: MxTensorOps> ModuleMapper<B> for SpecsMapper {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        // The running statistics of batch norm come by here, too. They are no parameters: what a module computes of them goes
        // by the specs of the activations.
        if !B::is_weight(&param.val().into_primitive().tensor()) {
            return param;
        }
        let path = self.path.join(".");
        let matches = self
            .pattern
            .as_ref()
            .is_none_or(|pattern| pattern.matches(&path));
        self.seen.push(path);
        if !matches {
            return param;
        }
        self.matched += 1;
        let pin = Change::Pin(self.specs);
        let (id, tensor, mapper) = param.consume();
        let on_load = mapper.clone();
        Param::from_mapped_value(id, change(tensor, pin), mapper)
            // A loaded tensor comes with the specs of the record's device.
            .load_mapper(move |tensor| change(on_load.on_load(tensor), pin))
    }
}
