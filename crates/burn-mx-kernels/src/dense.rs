//! Functions of `microscaling` on values in host memory, with arguments that are known to be valid.

use crate::arithmetic::Arithmetic;
use microscaling::{
    BlockFormat, Comparison, Dialect, OperandQuantization, QuantizeError, RandomHadamard,
    RandomStream, Rounding, Signs, Statistics,
};

/// [`BlockFormat::quantize`] where format and axis are known to be right: specs are validated when they are
/// resolved, and the axis comes from the product's own shape.
pub(super) fn quantize_dense(
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
) {
    of_known(format.quantize(data, shape, axis, rounding.with(stream)));
}

/// The steps of an operand along an axis, for which the same is known.
pub(super) fn operand_dense(
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
    quantization: OperandQuantization,
) {
    steps_dense(data, quantization, |data, (transform, signs)| {
        transform_dense(data, shape, axis, transform, signs);
    });
    if let Some((format, rounding)) = quantization.blocks {
        quantize_dense(data, shape, axis, format, rounding, quantization.stream);
    }
}

/// The steps of an operand before its blocks, one of which is `transform`.
pub(super) fn steps_dense(
    data: &mut [f32],
    quantization: OperandQuantization,
    transform: impl FnOnce(&mut [f32], (RandomHadamard, Signs)),
) {
    if let Some((format, rounding)) = quantization.elementwise {
        format.round_slice(data, rounding.with(quantization.stream));
    }
    if let Some(hadamard) = quantization.hadamard {
        transform(data, hadamard);
    }
    if let Some(factor) = quantization.factor {
        data.iter_mut().for_each(|x| *x *= factor);
    }
}

/// [`Dialect::quantize`] where the format is the dialect's, and the axis is known to be right, as for [`quantize_dense`].
pub(super) fn dialect_dense(
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
    dialect: Dialect,
    format: BlockFormat,
) {
    (dialect.quantize(format, data, shape, axis))
        .unwrap_or_else(|error| panic!("burn-mx: {error}"));
}

/// [`Statistics::of`] where format, shape and axis are known to be right, as for [`quantize_dense`].
pub(super) fn statistics_dense(
    [original, quantized]: [&[f32]; 2],
    shape: &[usize],
    axis: usize,
    format: Option<BlockFormat>,
) -> Statistics {
    of_known(Statistics::of(Comparison {
        original,
        quantized,
        shape,
        axis,
        format,
    }))
}

/// [`BlockFormat::mask_clipped`] of a quantization's blocks, where format, shape and axis are known to be right, as for
/// [`quantize_dense`]. `values` went through the steps before.
pub(super) fn mask_dense(
    gradient: &mut [f32],
    values: &[f32],
    shape: &[usize],
    axis: usize,
    quantization: OperandQuantization,
) {
    if let Some((format, _)) = quantization.blocks {
        of_known(format.mask_clipped(values, shape, axis, gradient));
    }
}

/// Values computed from a format, a shape and an axis that are known to be valid.
pub(super) fn of_known<T>(result: Result<T, QuantizeError>) -> T {
    result.unwrap_or_else(|error| panic!("burn-mx: {error}"))
}

/// [`RandomHadamard::transform`] where the block size and the axis are known to be right, as for
/// [`quantize_dense`].
pub(super) fn transform_dense(
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
    transform: RandomHadamard,
    signs: Signs,
) {
    of_known(transform.transform(data, shape, axis, signs));
}

/// [`RandomHadamard::inverse`], as [`transform_dense`].
pub(super) fn invert_dense(
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
    transform: RandomHadamard,
    signs: Signs,
) {
    of_known(transform.inverse(data, shape, axis, signs));
}

/// Rounds every number of a row.
#[inline(always)]
pub(super) fn round_each<'a>(
    arith: &impl Arithmetic<Value = f32>,
    row: &'a mut [f32],
) -> &'a mut [f32] {
    for x in row.iter_mut() {
        *x = arith.round(*x);
    }
    row
}
