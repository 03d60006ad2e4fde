//! Every runtime of CubeCL: NVIDIA's and AMD's GPUs, Vulkan, Metal, WebGPU.

#![allow(clippy::too_many_lines, reason = "a kernel is one function")]

mod accumulate;
mod convolution;
mod functions;
pub(super) mod kept;
mod launch;
mod numbers;
mod pack;
mod product;
mod quantize;
mod statistics;
#[cfg(test)]
mod tests;
pub(super) mod waiting;

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, Shape, TensorData, TensorMetadata, get_device_settings};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use microscaling::internal::DialectRule;
use microscaling::{
    BlockFormat, OperandQuantization, PackError, Packed, PackedView, RandomStream, Rounding,
    StatisticsParts,
};

use super::kernel_op::adamw::AdamWStep;
use super::kernel_op::given;
use super::kernel_op::op::OpRounding;
use super::kernel_op::{KernelOp, last_length};
use super::kernel_set::KernelSet;
use super::portable::{pack_on_host, unpack_on_host};
use super::product::accumulated::AccumulatedProduct;
use super::product::convolution::{Convolution, ConvolutionProduct};
use super::product::{Operand, OperandForm, in_basis, quantized, transformed};
use super::{MxKernels, portable};
use functions::rows::{self, RowFunction, RowNorm};
use functions::{Binary, Unary};
use quantize::Job;

impl<R, F, I, B> MxKernels for CubeBackend<R, F, I, B>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    B: BoolElement,
{
    fn kernels() -> &'static dyn KernelSet<Self> {
        &OnDevice
    }
}

/// The kernels written in CubeCL.
struct OnDevice;

/// The gradient of values, from a gradient of the quantized values: zero where values are clipped.
fn mask_clipped<R, F, I, B>(
    mut gradient: CubeTensor<R>,
    values: CubeTensor<R>,
    axis: usize,
    quantization: OperandQuantization,
    is_transformed: bool,
) -> CubeTensor<R>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    B: BoolElement,
{
    let in_basis = in_basis::<CubeBackend<R, F, I, B>>;
    if let Some(hadamard) = quantization.hadamard
        && !is_transformed
    {
        gradient = in_basis(gradient, axis, hadamard, false);
    }
    let before = quantization.before_blocks();
    let values = quantized::<CubeBackend<R, F, I, B>>(values, axis, before);
    if let Some((format, _)) = quantization.blocks {
        // `quantize` does not change a tensor that somebody else holds.
        let (job, stream) = (Job::marking_clipped(format), RandomStream::new(0, 0));
        let clipped = quantize::quantize(values, axis, job, stream);
        let settings = get_device_settings::<CubeBackend<R, F, I, B>>(&gradient.device);
        let clipped =
            CubeBackend::<R, F, I, B>::float_equal_elem(clipped, 1.0.into(), settings.bool_dtype);
        gradient = CubeBackend::<R, F, I, B>::float_mask_fill(gradient, clipped, 0.0.into());
    }
    match quantization.hadamard {
        Some(hadamard) => in_basis(gradient, axis, hadamard, true),
        None => gradient,
    }
}

impl<R, F, I, B> KernelSet<CubeBackend<R, F, I, B>> for OnDevice
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    B: BoolElement,
{
    fn run(
        &self,
        op: KernelOp,
        first: CubeTensor<R>,
        others: [Option<CubeTensor<R>>; 2],
    ) -> (CubeTensor<R>, Option<CubeTensor<R>>) {
        if let KernelOp::Quantize { quantization, .. } | KernelOp::MaskClipped { quantization, .. } =
            op
            && let Some((format, _)) = quantization.blocks
            && !quantize::two_pass_scale::is_short_enough(&format)
        {
            return portable::run::<CubeBackend<R, F, I, B>>(op, first, others);
        }
        let [second, third] = others;
        let length = last_length(&first.shape());
        let result = match op {
            KernelOp::Quantize { axis, quantization } => {
                let (tensor, quantization) =
                    transformed::<CubeBackend<R, F, I, B>>(first, axis, quantization);
                match quantization.blocks {
                    Some(blocks) => {
                        let job = Job::of(quantization.elementwise, blocks);
                        quantize::quantize(tensor, axis, job, quantization.stream)
                    }
                    None => quantized::<CubeBackend<R, F, I, B>>(tensor, axis, quantization),
                }
            }
            KernelOp::Dialect {
                axis,
                dialect,
                format,
            } => match DialectRule::of(dialect, &format) {
                Ok(_) => quantize::dialect::quantize(first, axis, dialect, format),
                Err(rounding) => {
                    let job = Job::of(None, (format, rounding));
                    quantize::quantize(first, axis, job, RandomStream::new(0, 0))
                }
            },
            KernelOp::Hadamard {
                axis,
                transform,
                signs,
                inverse,
            } => quantize::hadamard::transform(first, axis, transform, signs, inverse),
            KernelOp::MaskClipped {
                axis,
                quantization,
                transformed: is_transformed,
            } => {
                let values = given(second);
                mask_clipped::<R, F, I, B>(first, values, axis, quantization, is_transformed)
            }
            KernelOp::Round {
                format,
                rounding,
                stream,
            } => functions::elementwise::round(first, format, rounding, stream),
            KernelOp::Unary(op, rounding) => {
                let (function, scalar) = Unary::of(op, rounding);
                functions::unary(first, function, scalar)
            }
            KernelOp::Binary(op, rounding) => {
                functions::binary(first, given(second), Binary::of(op, rounding))
            }
            KernelOp::Function(function, rounding) => {
                functions::unary(first, Unary::Function(function, rounding), 0.0)
            }
            KernelOp::FunctionGradient(function, rounding) => {
                let function = Binary::Gradient(function, rounding);
                functions::binary(first, given(second), function)
            }
            KernelOp::Norm(function) => {
                let function = RowFunction::Norm(RowNorm::of(function, length));
                let inputs = [first, given(second)].into_iter().chain(third);
                let [output] = rows::compute(function, length, inputs);
                output
            }
            KernelOp::NormBackward(function) => {
                let function = RowFunction::NormBackward(RowNorm::of(function, length));
                let inputs = [first, given(second), given(third)];
                let [grad, products] = rows::compute(function, length, inputs);
                return (grad, Some(products));
            }
            KernelOp::Softmax(function) => {
                let [output] = rows::compute(RowFunction::Softmax(function), length, [first]);
                output
            }
            KernelOp::SoftmaxBackward(function) => {
                let function = RowFunction::SoftmaxBackward(function);
                let [grad] = rows::compute(function, length, [first, given(second)]);
                grad
            }
            KernelOp::LogSoftmax(function) => {
                let [output] = rows::compute(RowFunction::LogSoftmax(function), length, [first]);
                output
            }
            KernelOp::LogSoftmaxBackward(function) => {
                let function = RowFunction::LogSoftmaxBackward(function);
                let [grad] = rows::compute(function, length, [first, given(second)]);
                grad
            }
            KernelOp::Recip => functions::unary(first, Unary::Recip, 0.0),
        };
        (result, None)
    }

    fn column_sums(&self, tensor: CubeTensor<R>, rounding: OpRounding) -> CubeTensor<R> {
        functions::column_sums::sums(tensor, rounding)
    }

    fn adamw(
        &self,
        step: AdamWStep,
        tensors: [CubeTensor<R>; 4],
    ) -> Result<[CubeTensor<R>; 3], [CubeTensor<R>; 4]> {
        Ok(functions::adamw::adamw(step, tensors))
    }

    fn pack(
        &self,
        tensor: CubeTensor<R>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<Packed, PackError> {
        let shape = tensor.shape();
        let layout = match pack::is_refused(&format, rounding) {
            true => None,
            false => pack::Words::of(format, &shape, axis)?,
        };
        let packed = layout.and_then(|layout| {
            let words = layout.pack(&tensor, rounding, stream);
            layout.read(&portable::read_words::<CubeBackend<R, F, I, B>>(words))
        });
        match packed {
            Some(packed) => Ok(packed),
            None => pack_on_host::<CubeBackend<R, F, I, B>>(tensor, axis, format, rounding, stream),
        }
    }

    fn unpack(&self, packed: &PackedView<'_>, device: &R::Device) -> CubeTensor<R> {
        let layout = pack::Words::of(packed.format(), packed.shape(), packed.axis());
        let layout = layout.expect("a packed tensor has a format, a shape and an axis that fit");
        // Kernels multiply by the tensor scale.
        match layout.filter(|_| packed.divisor().is_none()) {
            Some(layout) => {
                let words = layout.write(packed);
                let length = words.len();
                let data = TensorData::new(words, [length]);
                let words = CubeBackend::<R, F, I, B>::int_from_data(data, device);
                layout.unpack(words, packed.tensor_scale())
            }
            None => unpack_on_host::<CubeBackend<R, F, I, B>>(packed, device),
        }
    }

    fn has_own_product(&self, _device: &R::Device) -> bool {
        true
    }

    fn operand_dtype(&self, device: &R::Device, form: OperandForm) -> (DType, bool) {
        let dtype = product::dtype(&R::client(device), form);
        (dtype, product::has_tensor_scale(form))
    }

    fn product_operand(&self, tensor: CubeTensor<R>, form: OperandForm) -> Operand<CubeTensor<R>> {
        product::operand::<R, CubeBackend<R, F, I, B>>(tensor, form)
    }

    fn has_operand_pair(&self, device: &R::Device, shape: &Shape, forms: [OperandForm; 2]) -> bool {
        product::has_operand_pair(&R::client(device), shape, forms)
    }

    fn operand_pair(
        &self,
        tensor: CubeTensor<R>,
        forms: [OperandForm; 2],
    ) -> [Operand<CubeTensor<R>>; 2] {
        product::operand_pair::<R, CubeBackend<R, F, I, B>>(tensor, forms)
    }

    fn product(&self, lhs: Operand<CubeTensor<R>>, rhs: Operand<CubeTensor<R>>) -> CubeTensor<R> {
        product::multiply::<R, CubeBackend<R, F, I, B>>(lhs, rhs)
    }

    fn rounded_product(
        &self,
        lhs: Operand<CubeTensor<R>>,
        rhs: Operand<CubeTensor<R>>,
        rounding: OpRounding,
        bias: Option<CubeTensor<R>>,
    ) -> CubeTensor<R> {
        product::rounded::<R, CubeBackend<R, F, I, B>>(lhs, rhs, rounding, bias)
    }

    fn has_accumulators(&self) -> bool {
        true
    }

    fn has_accumulated_product(&self, product: &AccumulatedProduct) -> bool {
        accumulate::has_kernel(product)
    }

    fn accumulated_product(
        &self,
        product: &AccumulatedProduct,
        operands: [CubeTensor<R>; 2],
    ) -> CubeTensor<R> {
        accumulate::multiply(product, operands)
    }

    fn has_own_convolution(&self, device: &R::Device, significant_bits: u32) -> bool {
        convolution::is_own(&R::client(device), significant_bits)
    }

    fn convolution_product(
        &self,
        convolution: &Convolution,
        product: &ConvolutionProduct,
        operands: [&CubeTensor<R>; 2],
        bias: Option<&CubeTensor<R>>,
        significant_bits: u32,
    ) -> Option<CubeTensor<R>> {
        convolution::is_own(&operands[0].client, significant_bits).then(|| {
            let operands = operands.map(Clone::clone);
            convolution::convolve::<R, CubeBackend<R, F, I, B>>(
                convolution,
                product,
                operands,
                bias.cloned(),
            )
        })
    }

    fn has_statistics_words(&self, format: Option<BlockFormat>, parts: &StatisticsParts) -> bool {
        statistics::is_short_enough(format, parts)
    }

    fn statistics_words(
        &self,
        before_and_after: [&CubeTensor<R>; 2],
        format: Option<BlockFormat>,
        parts: &StatisticsParts,
    ) -> CubeTensor<R> {
        statistics::words(before_and_after, format, parts)
    }
}
