//! Batch norms as a pass through a model shows them: what they are given, and by which numbers they compute.
//!
//! Burn composes a batch norm of smaller ops: it adds ε to the variance, subtracts the mean from its input, divides, and
//! multiplies by γ, whose label says whose norm it is. The first two of the ops before that one are its own.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Scalar, TensorMetadata, read_sync};

use super::calls::{LayerOp, with_listener};
use crate::kernels::{MxKernels, to_f32};
use crate::semantics::Float;

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
