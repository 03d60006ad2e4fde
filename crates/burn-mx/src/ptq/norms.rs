//! Batch norms as a pass through a model shows them: what they are given, and by which numbers they compute.
//!
//! Burn composes a batch norm of smaller ops: it adds ε to the variance, subtracts the mean from its input, divides, and
//! multiplies by γ, whose label says whose norm it is. The first two of the ops before that one are its own.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Scalar, TensorMetadata, read_sync};
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::Tensor;

use super::calls::{LayerOp, with_listener};
use crate::backend::MxBackend;
use crate::kernels::{MxKernels, to_f32};
use crate::semantics::Float;

pub(super) const GAMMA: &str = "gamma";
pub(super) const BETA: &str = "beta";

/// A batch norm of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Norm {
    pub(super) path: String,
    pub(super) gamma: Vec<f32>,
    pub(super) beta: Vec<f32>,
    pub(super) mean: Vec<f32>,
    pub(super) variance: Vec<f32>,
}

/// A call of a batch norm.
pub(super) struct NormCall<B: MxKernels> {
    /// The label of γ.
    pub(super) gamma: &'static str,
    pub(super) input: FloatTensor<B>,
    pub(super) mean: FloatTensor<B>,
    pub(super) variance: FloatTensor<B>,
    pub(super) epsilon: f64,
}

/// What a layer gave.
pub(super) struct Given<B: MxKernels> {
    /// The label of its weight.
    pub(super) label: &'static str,
    pub(super) op: LayerOp,
    pub(super) output: FloatTensor<B>,
    /// Whether the weight is the layer's parameter as it is, and no view of it.
    pub(super) is_plain: bool,
    pub(super) has_bias: bool,
}

/// What is heard of the norms and layers of a pass.
pub(super) struct Norms<B: MxKernels> {
    pub(super) layers: Vec<Given<B>>,
    pub(super) norms: Vec<NormCall<B>>,
    /// The last tensor to which a number was added, and that number.
    added: Option<(FloatTensor<B>, f64)>,
    /// The last difference.
    difference: Option<[FloatTensor<B>; 2]>,
}

impl<B: MxKernels> Norms<B> {
    pub(super) fn new() -> Self {
        Self {
            layers: Vec::new(),
            norms: Vec::new(),
            added: None,
            difference: None,
        }
    }

    pub(super) fn scalar_added(&mut self, tensor: &FloatTensor<B>, scalar: f64) {
        self.added = Some((tensor.clone(), scalar));
    }

    pub(super) fn subtracted(&mut self, operands: [&FloatTensor<B>; 2]) {
        self.difference = Some(operands.map(Clone::clone));
    }

    /// A product with a parameter.
    pub(super) fn multiplied(&mut self, label: &'static str) {
        if let (Some((variance, epsilon)), Some([input, mean])) =
            (self.added.take(), self.difference.take())
        {
            self.norms.push(NormCall {
                gamma: label,
                input,
                mean,
                variance,
                epsilon,
            });
        }
    }
}

/// Hears of `tensor + scalar`.
pub(crate) fn scalar_added<B: MxKernels>(tensor: &Float<B>, scalar: &Scalar) {
    with_listener::<B, _>(|listener| {
        if let Some(norms) = listener.norms() {
            norms.scalar_added(&tensor.inner, scalar.elem());
        }
    });
}

/// Hears of `lhs - rhs`.
pub(crate) fn subtracted<B: MxKernels>(lhs: &Float<B>, rhs: &Float<B>) {
    with_listener::<B, _>(|listener| {
        if let Some(norms) = listener.norms() {
            norms.subtracted([&lhs.inner, &rhs.inner]);
        }
    });
}

/// Hears of `lhs · rhs`, element by element.
pub(crate) fn multiplied<B: MxKernels>(rhs: &Float<B>) {
    let Some(label) = rhs.meta.label else { return };
    with_listener::<B, _>(|listener| {
        if let Some(norms) = listener.norms() {
            norms.multiplied(label);
        }
    });
}

/// The batch norms of a model, by their kind.
pub(super) fn norms_of<B: MxKernels, M: Module<MxBackend<B>>>(model: &M) -> Vec<Norm> {
    #[derive(Default)]
    struct Find {
        path: Vec<String>,
        norms: Vec<Norm>,
        /// Whether the walk is in a field of a norm.
        within: bool,
    }
    impl<B: MxKernels> ModuleVisitor<MxBackend<B>> for Find {
        // Called for each field: the type is that of the module which has it.
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.within = container_type == "Struct:BatchNorm";
            if self.within {
                let path = self.path.join(".");
                if self.norms.last().is_none_or(|norm| norm.path != path) {
                    self.norms.push(Norm {
                        path,
                        ..Norm::default()
                    });
                }
            }
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.within = false;
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<MxBackend<B>, D>>) {
            let (true, Some(norm), Some(name)) =
                (self.within, self.norms.last_mut(), self.path.last())
            else {
                return;
            };
            let field = match name.as_str() {
                GAMMA => &mut norm.gamma,
                BETA => &mut norm.beta,
                "running_mean" => &mut norm.mean,
                "running_var" => &mut norm.variance,
                _ => return,
            };
            *field = values::<B>(param.val().into_primitive().tensor().inner);
        }
    }
    let mut find = Find::default();
    model.visit(&mut find);
    find.norms
}

/// The values in row-major order.
pub(super) fn values<B: MxKernels>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = read_sync(B::float_into_data(to_f32::<B>(tensor)));
    let data = data.unwrap_or_else(|error| panic!("burn-mx: reading a tensor failed: {error}"));
    data.iter::<f32>().collect()
}

/// Whether two tensors have the same shape and the same bits.
pub(super) fn are_same<B: MxKernels>(a: &FloatTensor<B>, b: &FloatTensor<B>) -> bool {
    a.shape() == b.shape() && same_bits(&values::<B>(a.clone()), &values::<B>(b.clone()))
}

/// Whether two lists have the same bits.
pub(super) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
