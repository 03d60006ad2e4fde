//! Every runtime of CubeCL: NVIDIA's and AMD's GPUs, Vulkan, Metal, WebGPU.

mod arithmetic;
mod bits;
mod blocks;
mod convolution;
mod double;
mod elementwise;
mod float;
mod functions;
mod hadamard;
mod launch;
#[cfg(all(test, feature = "wgpu"))]
mod on_a_device;
mod pack;
mod place;
mod product;
mod quantize;
mod random;
mod round;
mod rows;
mod rules;
#[cfg(all(test, feature = "cuda"))]
mod sources;
mod square;
mod statistics;
mod two_pass_scale;

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, TensorData, TensorMetadata, get_device_settings};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use microscaling::{
    BlockFormat, FloatFormat, PackError, Packed, PackedView, RandomHadamard, RandomStream,
    Rounding, Signs, StatisticsParts,
};

use super::{
    BinaryFunction, BinaryOp, Convolution, ConvolutionProduct, FunctionRounding, LogSoftmax,
    MxKernels, Normalization, OpRounding, Operand, OperandForm, Softmax, UnaryFunction, UnaryOp,
    host, last_length, mask_on_host, pack_on_host, quantize_dense, unpack_on_host,
};
use functions::{Binary, Unary};
pub use product::reproducible_products;
use quantize::Job;
use rows::{RowFunction, RowNorm};

impl<R, F, I, B> MxKernels for CubeBackend<R, F, I, B>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    B: BoolElement,
{
    fn mx_quantize(
        tensor: CubeTensor<R>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> CubeTensor<R> {
        if !two_pass_scale::is_short_enough(&format) {
            return host::apply::<Self>(tensor, |data, shape| {
                quantize_dense(data, shape, axis, format, rounding, stream);
            });
        }
        let job = Job::of(None, (format, rounding));
        quantize::quantize(tensor, axis, job, stream)
    }

    fn round_and_quantize(
        tensor: CubeTensor<R>,
        elementwise: (FloatFormat, Rounding),
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
    ) -> CubeTensor<R> {
        let stream = RandomStream::new(0, 0);
        if !two_pass_scale::is_short_enough(&format) {
            let tensor = Self::float_round_to(tensor, elementwise.0, elementwise.1, stream);
            return Self::mx_quantize(tensor, axis, format, rounding, stream);
        }
        let job = Job::of(Some(elementwise), (format, rounding));
        quantize::quantize(tensor, axis, job, stream)
    }

    fn mask_clipped(
        gradient: CubeTensor<R>,
        values: CubeTensor<R>,
        axis: usize,
        format: BlockFormat,
    ) -> CubeTensor<R> {
        if !two_pass_scale::is_short_enough(&format) {
            return mask_on_host::<Self>(gradient, values, axis, format);
        }
        let job = Job::marking_clipped(format);
        // What is held by somebody else is left as it is.
        let clipped = quantize::quantize(values, axis, job, RandomStream::new(0, 0));
        let bool_dtype = get_device_settings::<Self>(&gradient.device).bool_dtype;
        let clipped = Self::float_equal_elem(clipped, 1.0.into(), bool_dtype);
        Self::float_mask_fill(gradient, clipped, 0.0.into())
    }

    fn has_statistics_words(format: Option<BlockFormat>, parts: &StatisticsParts) -> bool {
        statistics::is_short_enough(format, parts)
    }

    fn statistics_words(
        before_and_after: [&CubeTensor<R>; 2],
        format: Option<BlockFormat>,
        parts: &StatisticsParts,
    ) -> CubeTensor<R> {
        statistics::words(before_and_after, format, parts)
    }

    fn pack(
        tensor: CubeTensor<R>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<Packed, PackError> {
        let shape = tensor.shape();
        let packed = pack::Words::of(format, &shape, axis)?.and_then(|layout| {
            let words = layout.pack(&tensor, rounding, stream);
            layout.read(&host::read_words::<Self>(words))
        });
        match packed {
            Some(packed) => Ok(packed),
            None => pack_on_host::<Self>(tensor, axis, format, rounding, stream),
        }
    }

    fn unpack(packed: &PackedView<'_>, device: &R::Device) -> CubeTensor<R> {
        let layout = pack::Words::of(packed.format(), packed.shape(), packed.axis());
        match layout.expect("a packed tensor has a format, a shape and an axis that fit") {
            Some(layout) => {
                let words = layout.write(packed);
                let length = words.len();
                let words = Self::int_from_data(TensorData::new(words, [length]), device);
                layout.unpack(words, packed.tensor_scale())
            }
            None => unpack_on_host::<Self>(packed, device),
        }
    }

    fn random_hadamard(
        tensor: CubeTensor<R>,
        axis: usize,
        transform: RandomHadamard,
        signs: Signs,
    ) -> CubeTensor<R> {
        hadamard::transform(tensor, axis, transform, signs, false)
    }

    fn inverse_hadamard(
        tensor: CubeTensor<R>,
        axis: usize,
        transform: RandomHadamard,
        signs: Signs,
    ) -> CubeTensor<R> {
        hadamard::transform(tensor, axis, transform, signs, true)
    }

    fn has_own_product(device: &R::Device) -> bool {
        product::is_own(&R::client(device))
    }

    fn operand_dtype(device: &R::Device, form: OperandForm) -> DType {
        product::dtype(&R::client(device), form)
    }

    fn operand_has_tensor_scale(_device: &R::Device, form: OperandForm) -> bool {
        product::has_tensor_scale(form)
    }

    fn product_operand(tensor: CubeTensor<R>, form: OperandForm) -> Operand<CubeTensor<R>> {
        product::operand::<R, F, I, B>(tensor, form)
    }

    fn product(lhs: Operand<CubeTensor<R>>, rhs: Operand<CubeTensor<R>>) -> CubeTensor<R> {
        product::multiply::<R, F, I, B>(lhs, rhs)
    }

    fn has_own_convolution(device: &R::Device, significant_bits: u32) -> bool {
        convolution::is_own(&R::client(device), significant_bits)
    }

    fn convolution_product(
        convolution: &Convolution,
        product: &ConvolutionProduct,
        operands: [&CubeTensor<R>; 2],
        bias: Option<&CubeTensor<R>>,
        significant_bits: u32,
    ) -> Option<CubeTensor<R>> {
        convolution::is_own(&operands[0].client, significant_bits).then(|| {
            let operands = operands.map(Clone::clone);
            convolution::convolve::<R, F, I, B>(convolution, product, operands, bias.cloned())
        })
    }

    fn float_round_to(
        tensor: CubeTensor<R>,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> CubeTensor<R> {
        elementwise::round(tensor, format, rounding, stream)
    }

    fn unary_op(op: UnaryOp, tensor: CubeTensor<R>, rounding: OpRounding) -> CubeTensor<R> {
        let (function, scalar) = Unary::of(op, rounding);
        functions::unary(tensor, function, scalar)
    }

    fn binary_op(
        op: BinaryOp,
        lhs: CubeTensor<R>,
        rhs: CubeTensor<R>,
        rounding: OpRounding,
    ) -> CubeTensor<R> {
        functions::binary(lhs, rhs, Binary::of(op, rounding))
    }

    fn unary_function(
        function: UnaryFunction,
        tensor: CubeTensor<R>,
        rounding: FunctionRounding,
    ) -> CubeTensor<R> {
        functions::unary(tensor, Unary::Function(function, rounding), 0.0)
    }

    fn binary_function(
        function: BinaryFunction,
        input: CubeTensor<R>,
        grad: CubeTensor<R>,
        rounding: FunctionRounding,
    ) -> CubeTensor<R> {
        functions::binary(grad, input, Binary::Function(function, rounding))
    }

    fn rounded_norm(
        function: Normalization,
        tensor: CubeTensor<R>,
        gamma: CubeTensor<R>,
        beta: Option<CubeTensor<R>>,
    ) -> CubeTensor<R> {
        let length = last_length(&tensor.shape());
        let function = RowFunction::Norm(RowNorm::of(function, length));
        let [output] = rows::compute(function, length, [tensor, gamma].into_iter().chain(beta));
        output
    }

    fn rounded_norm_backward(
        function: Normalization,
        tensor: CubeTensor<R>,
        gamma: CubeTensor<R>,
        grad: CubeTensor<R>,
    ) -> (CubeTensor<R>, CubeTensor<R>) {
        let length = last_length(&tensor.shape());
        let function = RowFunction::NormBackward(RowNorm::of(function, length));
        let [grad, products, _] = rows::compute(function, length, [grad, tensor, gamma]);
        (grad, products)
    }

    fn rounded_softmax(function: Softmax, tensor: CubeTensor<R>) -> CubeTensor<R> {
        let length = last_length(&tensor.shape());
        let [output] = rows::compute(RowFunction::Softmax(function), length, [tensor]);
        output
    }

    fn rounded_softmax_backward(
        function: Softmax,
        output: CubeTensor<R>,
        grad: CubeTensor<R>,
    ) -> CubeTensor<R> {
        let length = last_length(&output.shape());
        let function = RowFunction::SoftmaxBackward(function);
        let [grad] = rows::compute(function, length, [grad, output]);
        grad
    }

    fn rounded_log_softmax(function: LogSoftmax, tensor: CubeTensor<R>) -> CubeTensor<R> {
        let length = last_length(&tensor.shape());
        let [output] = rows::compute(RowFunction::LogSoftmax(function), length, [tensor]);
        output
    }

    fn rounded_log_softmax_backward(
        function: LogSoftmax,
        input: CubeTensor<R>,
        grad: CubeTensor<R>,
    ) -> CubeTensor<R> {
        let length = last_length(&input.shape());
        let function = RowFunction::LogSoftmaxBackward(function);
        let [grad, _] = rows::compute(function, length, [grad, input]);
        grad
    }

    fn exact_recip(tensor: CubeTensor<R>) -> CubeTensor<R> {
        functions::unary(tensor, Unary::Recip, 0.0)
    }
}
