//! Kernels as data: the ops on tensors of `f32`.

pub(super) mod adamw;
pub(super) mod function;
pub(super) mod loops;
pub(super) mod norm;
pub(super) mod op;
pub(super) mod rounding;
pub(super) mod softmax;
pub(super) mod table;

use microscaling::{
    BlockFormat, Dialect, FloatFormat, OperandQuantization, RandomHadamard, RandomStream, Rounding,
    Signs,
};

use self::norm::Normalization;
use self::op::{BinaryOp, OpRounding, UnaryOp};
use self::rounding::FunctionRounding;
use self::softmax::{LogSoftmax, Softmax};
use super::arithmetic::Function;
use super::dense::{dialect_dense, invert_dense, mask_dense, operand_dense, transform_dense};

/// An op on one to three tensors of `f32`, in one pass over memory. The result is like the first tensor, but for
/// [`Binary`](Self::Binary), whose operands broadcast.
#[derive(Clone, Copy, Debug)]
pub enum KernelOp {
    /// From x: the steps of an operand along an axis, of which there is at least one: rounding, a transform, a factor, blocks. Devices
    /// transform in a separate pass. Square blocks come without a transform.
    Quantize {
        /// The axis.
        axis: usize,
        /// The steps.
        quantization: OperandQuantization,
    },
    /// From x: quantizes blocks along an axis to the numbers of another tool, as [`Dialect::quantize`] does.
    Dialect {
        /// The axis.
        axis: usize,
        /// The tool's rules.
        dialect: Dialect,
        /// The block format, one of the dialect's.
        format: BlockFormat,
    },
    /// From x: transforms blocks along an axis, as [`RandomHadamard::transform`] does, or undoes the transform.
    Hadamard {
        /// The axis.
        axis: usize,
        /// The transform.
        transform: RandomHadamard,
        /// Its signs.
        signs: Signs,
        /// Whether it is undone, as [`RandomHadamard::inverse`] does.
        inverse: bool,
    },
    /// From a gradient of quantized x and x: the gradient of x, passed straight through, with zeros where quantizing x along an axis
    /// clips it, as [`BlockFormat::mask_clipped`] says. Nothing is stochastic.
    MaskClipped {
        /// The axis.
        axis: usize,
        /// The steps of x, which end with blocks.
        quantization: OperandQuantization,
        /// Whether the gradient is in the basis of the transform, if there is one. The result is not.
        transformed: bool,
    },
    /// From x: rounds to an elementwise format, as [`FloatFormat::round_slice`] does.
    Round {
        /// The elementwise format.
        format: FloatFormat,
        /// How numbers are rounded to it.
        rounding: Rounding,
        /// The random numbers, if that is stochastic.
        stream: RandomStream,
    },
    /// From x: an op that IEEE 754 defines, and the roundings before and after the op.
    Unary(UnaryOp, OpRounding),
    /// From x and y of one rank, which broadcast: an op that IEEE 754 defines, and the roundings before and after the
    /// op.
    Binary(BinaryOp, OpRounding),
    /// From x, which need not be rounded: a function.
    Function(Function, FunctionRounding),
    /// From an output's gradient and the input, neither of which need be rounded: the input's gradient.
    FunctionGradient(Function, FunctionRounding),
    /// From x `[.., D]`, γ and perhaps β `[D]`, which need not be rounded: a normalization over the last axis.
    Norm(Normalization),
    /// For an output's gradient, x and γ: the input's gradient, and the products of the output's gradient and the
    /// normalized input. The products sum up to the gradient of γ.
    NormBackward(Normalization),
    /// From x, which need not be rounded: softmax over the last axis.
    Softmax(Softmax),
    /// From an output's gradient and the rounded output: the input's gradient.
    SoftmaxBackward(Softmax),
    /// From x, which need not be rounded: the logarithm of the softmax over the last axis.
    LogSoftmax(LogSoftmax),
    /// From an output's gradient and the input, neither of which need be rounded: the input's gradient.
    LogSoftmaxBackward(LogSoftmax),
    /// From x: 1 / x, correctly rounded.
    Recip,
}

impl KernelOp {
    /// [`Quantize`](Self::Quantize) in blocks alone.
    pub fn quantize(
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Self {
        let quantization = OperandQuantization {
            blocks: Some((format, rounding)),
            stream,
            ..OperandQuantization::default()
        };
        Self::Quantize { axis, quantization }
    }

    /// The name of the op, as in a stream of ops.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Quantize { .. } => "mx_quantize",
            Self::Dialect { .. } => "mx_dialect",
            Self::Hadamard { .. } => "mx_hadamard",
            Self::MaskClipped { .. } => "mx_mask_clipped",
            Self::Round { .. } => "mx_round",
            Self::Unary(..) => "mx_unary",
            Self::Binary(..) => "mx_binary",
            Self::Function(..) => "mx_function",
            Self::FunctionGradient(..) => "mx_function_gradient",
            Self::Norm(_) => "mx_norm",
            Self::NormBackward(_) => "mx_norm_backward",
            Self::Softmax(_) => "mx_softmax",
            Self::SoftmaxBackward(_) => "mx_softmax_backward",
            Self::LogSoftmax(_) => "mx_log_softmax",
            Self::LogSoftmaxBackward(_) => "mx_log_softmax_backward",
            Self::Recip => "mx_recip",
        }
    }

    /// Whether there are two results: both are like the first tensor.
    #[cfg(feature = "fusion")]
    pub(super) fn has_two_results(&self) -> bool {
        matches!(self, Self::NormBackward(_))
    }

    /// The op on the row-major values of its tensors, of which the first is replaced by the result; a second result is given
    /// back. `shape` is the first tensor's, and the others are not broadcast.
    ///
    /// # Panics
    ///
    /// For the two kinds of ops that are the backend's own, and without the tensors that the op takes.
    pub(super) fn apply(
        self,
        first: &mut [f32],
        shape: &[usize],
        [second, third]: [Option<Vec<f32>>; 2],
    ) -> Option<Vec<f32>> {
        let length = last_length(shape);
        match self {
            Self::Quantize { axis, quantization } => {
                operand_dense(first, shape, axis, quantization);
            }
            Self::Dialect {
                axis,
                dialect,
                format,
            } => dialect_dense(first, shape, axis, dialect, format),
            Self::Hadamard {
                axis,
                transform,
                signs,
                inverse,
            } => match inverse {
                true => invert_dense(first, shape, axis, transform, signs),
                false => transform_dense(first, shape, axis, transform, signs),
            },
            Self::MaskClipped {
                axis,
                quantization,
                transformed,
            } => {
                let mut x = given(second);
                operand_dense(&mut x, shape, axis, quantization.before_blocks());
                if let Some((transform, signs)) = quantization.hadamard
                    && !transformed
                {
                    transform_dense(first, shape, axis, transform, signs);
                }
                mask_dense(first, &x, shape, axis, quantization);
                if let Some((transform, signs)) = quantization.hadamard {
                    invert_dense(first, shape, axis, transform, signs);
                }
            }
            Self::Round {
                format,
                rounding,
                stream,
            } => format.round_slice(first, rounding.with(stream)),
            Self::Unary(..) | Self::Binary(..) => {
                unreachable!("burn-mx: {self:?} is composed of the backend's ops")
            }
            Self::Function(function, rounding) => function.apply(first, rounding),
            Self::FunctionGradient(function, rounding) => {
                function.apply_gradient(first, &given(second), rounding);
            }
            Self::Norm(function) => function.forward(first, &given(second), third.as_deref()),
            Self::NormBackward(function) => {
                let mut x = given(second);
                function.backward(first, &mut x, &given(third));
                return Some(x);
            }
            Self::Softmax(function) => function.forward(first, length),
            Self::SoftmaxBackward(function) => function.backward(first, &given(second), length),
            Self::LogSoftmax(function) => function.forward(first, length),
            Self::LogSoftmaxBackward(function) => function.backward(first, &given(second), length),
            Self::Recip => recip(first),
        }
        None
    }
}

/// A tensor that an op takes.
pub(super) fn given<T>(tensor: Option<T>) -> T {
    tensor.expect("the op has as many tensors as it takes")
}

pub(super) fn recip(data: &mut [f32]) {
    data.iter_mut().for_each(|x| *x = x.recip());
}

/// Elements of a row.
pub(super) fn last_length(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1)
}
