//! The numeric kernels: one trait, portable defaults, native implementations a backend.

mod convolution;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod function;
#[cfg(feature = "fusion")]
mod fusion;
mod host;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod im2col;
pub(crate) mod in_turn;
#[cfg(test)]
mod instruction_sets;
#[cfg(feature = "tch")]
mod libtorch;
mod loops;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod memory;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod native;
#[cfg(feature = "ndarray")]
mod ndarray;
mod norm;
mod op;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod panels;
#[cfg(feature = "router")]
mod portable;
pub(crate) mod product;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod quantize;
mod rounding;
mod softmax;
pub(crate) mod statistics;

pub use convolution::{Convolution, ConvolutionProduct};
#[cfg(feature = "cube")]
pub use cube::reproducible_products;
pub use function::{BinaryFunction, UnaryFunction};
pub use host::host_round_trips;
pub use norm::{Norm, Normalization};
pub use op::{BinaryOp, OpRounding, UnaryOp};
pub use product::{Operand, OperandForm, OperandLayout};
pub use rounding::FunctionRounding;
pub use softmax::{LogSoftmax, Softmax};
pub use statistics::{PendingStatistics, StatisticsWords, TensorStatistics};

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Backend, DType, FloatDType, Shape, TensorData, TensorMetadata};
use microscaling::{
    BlockFormat, Comparison, FloatFormat, OperandQuantization, PackError, Packed, PackedView,
    QuantizeError, RandomHadamard, RandomStream, Rounding, Signs, Statistics, StatisticsParts,
};

use crate::arithmetic::Arithmetic;

/// The kernels that [`MxBackend`](crate::MxBackend) needs of the backend it wraps.
///
/// Every method has a portable default that goes through host memory, so `impl MxKernels for MyBackend {}`
/// makes any backend work, with results that are bit-identical to the native kernels'. Tensors handed over
/// are always `f32`; a shared buffer must be left as it is, an unshared one may be reused.
pub trait MxKernels: Backend {
    /// Fake-quantizes blocks along `axis` to a block format, as [`BlockFormat::quantize`] does.
    fn mx_quantize(
        tensor: FloatTensor<Self>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, shape| {
            quantize_dense(data, shape, axis, format, rounding, stream);
        })
    }

    /// Transforms blocks along `axis`, as [`RandomHadamard::transform`] does.
    fn random_hadamard(
        tensor: FloatTensor<Self>,
        axis: usize,
        transform: RandomHadamard,
        signs: Signs,
    ) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, shape| {
            transform_dense(data, shape, axis, transform, signs);
        })
    }

    /// Undoes [`random_hadamard`](Self::random_hadamard), as [`RandomHadamard::inverse`] does.
    fn inverse_hadamard(
        tensor: FloatTensor<Self>,
        axis: usize,
        transform: RandomHadamard,
        signs: Signs,
    ) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, shape| {
            invert_dense(data, shape, axis, transform, signs);
        })
    }

    /// [`float_round_to`](Self::float_round_to) by `elementwise`, then [`mx_quantize`](Self::mx_quantize), neither of
    /// them stochastic, in one pass; by default composed.
    fn round_and_quantize(
        tensor: FloatTensor<Self>,
        elementwise: (FloatFormat, Rounding),
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
    ) -> FloatTensor<Self> {
        let stream = RandomStream::new(0, 0);
        let (float, float_rounding) = elementwise;
        let rounded = Self::float_round_to(tensor, float, float_rounding, stream);
        Self::mx_quantize(rounded, axis, format, rounding, stream)
    }

    /// Quantizes and packs blocks along `axis`, as [`Packed::encode`] does.
    ///
    /// # Errors
    ///
    /// Those of [`Packed::encode`].
    fn pack(
        tensor: FloatTensor<Self>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<Packed, PackError> {
        pack_on_host::<Self>(tensor, axis, format, rounding, stream)
    }

    /// The tensor that a packed one is, as [`PackedView::decode`] says.
    fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> FloatTensor<Self> {
        unpack_on_host::<Self>(packed, device)
    }

    /// Whether [`product`](Self::product) is another one than [`Backend`]'s own in float32. By default it is that.
    fn has_own_product(_device: &Self::Device) -> bool {
        false
    }

    /// The float type of the tensor that [`product_operand`](Self::product_operand) makes, where it makes one.
    fn operand_dtype(_device: &Self::Device, _form: OperandForm) -> DType {
        DType::F32
    }

    /// Whether the tensor that [`product_operand`](Self::product_operand) makes has its tensor scale apart. By default it is
    /// in the values.
    fn operand_has_tensor_scale(_device: &Self::Device, _form: OperandForm) -> bool {
        false
    }

    /// An operand of a matrix product, of at least two axes, quantized, in the form in which this backend multiplies it.
    /// By default a tensor of quantized values.
    fn product_operand(tensor: FloatTensor<Self>, form: OperandForm) -> Operand<FloatTensor<Self>> {
        product::in_tensor::<Self>(tensor, form)
    }

    /// The product of two operands over their last two axes, in `f32`; the other axes broadcast. By default
    /// [`Backend`]'s own product.
    ///
    /// An operand may have another form than the other one: which form values take may depend on them.
    fn product(
        lhs: Operand<FloatTensor<Self>>,
        rhs: Operand<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        product::of_tensors::<Self>(lhs, rhs)
    }

    /// Whether [`convolution_product`](Self::convolution_product) computes every product of tensors of numbers with so many
    /// significant bits. What has to know that before, as burn-fusion around a backend does, asks for it. By default it is none.
    fn has_own_convolution(_device: &Self::Device, _significant_bits: u32) -> bool {
        false
    }

    /// A product of a convolution, in `f32`, of two tensors of quantized values that have at most `significant_bits`
    /// significant bits: x or the output's gradient, and the weight or, for the weight's gradient, the output's. A bias is
    /// added to the channels. `None`, the default, if [`Backend`]'s own convolution is to compute it.
    fn convolution_product(
        _convolution: &Convolution,
        _product: &ConvolutionProduct,
        _operands: [&FloatTensor<Self>; 2],
        _bias: Option<&FloatTensor<Self>>,
        _significant_bits: u32,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// What quantization in blocks along `axis` does, nothing of it stochastic: what [`Statistics::of_quantizing`] says.
    fn quantizing_statistics(
        tensor: &FloatTensor<Self>,
        axis: usize,
        quantization: OperandQuantization,
    ) -> TensorStatistics<Self> {
        let shape = tensor.shape();
        let format = quantization.blocks.map(|(format, _)| format);
        if let Some(parts) = parts_on_device::<Self>(&shape, axis, format) {
            let stream = RandomStream::new(0, 0);
            let mut before = tensor.clone();
            if let Some((format, rounding)) = quantization.elementwise {
                before = Self::float_round_to(before, format, rounding, stream);
            }
            let after = match quantization.blocks {
                Some((format, rounding)) => {
                    Self::mx_quantize(before.clone(), axis, format, rounding, stream)
                }
                None => before.clone(),
            };
            return on_device::<Self>([&before, &after], format, parts);
        }
        let values = host::read_for::<Self>(tensor.clone(), "the recorder");
        TensorStatistics::Known(of_known(Statistics::of_quantizing(
            &values,
            &shape,
            axis,
            quantization,
        )))
    }

    /// What quantization in blocks along `axis` did: of a tensor before and after, what [`Statistics::of`] says.
    fn quantization_statistics(
        before_and_after: [&FloatTensor<Self>; 2],
        axis: usize,
        format: Option<BlockFormat>,
    ) -> TensorStatistics<Self> {
        let shape = before_and_after[0].shape();
        if let Some(parts) = parts_on_device::<Self>(&shape, axis, format) {
            return on_device::<Self>(before_and_after, format, parts);
        }
        let [before, after] =
            before_and_after.map(|tensor| host::read_for::<Self>(tensor.clone(), "the recorder"));
        TensorStatistics::Known(statistics([&before, &after], &shape, axis, format))
    }

    /// What the quantization of the operands did to a product: its result beside the product of the operands as they were.
    fn product_statistics(
        lhs: Operand<FloatTensor<Self>>,
        rhs: Operand<FloatTensor<Self>>,
        result: &FloatTensor<Self>,
    ) -> TensorStatistics<Self> {
        let reference = Self::product(lhs, rhs);
        debug_assert_eq!(reference.shape(), result.shape());
        Self::quantization_statistics([&reference, result], 0, None)
    }

    /// Whether [`statistics_words`](Self::statistics_words) sums such tensors up. `false`, the default, if they are read to host
    /// memory to be looked at there.
    fn has_statistics_words(_format: Option<BlockFormat>, _parts: &StatisticsParts) -> bool {
        false
    }

    /// Sums up on the device what quantization did to a tensor with elements, which has these parts: [`StatisticsWords`] says
    /// what the words are.
    fn statistics_words(
        _before_and_after: [&FloatTensor<Self>; 2],
        _format: Option<BlockFormat>,
        _parts: &StatisticsParts,
    ) -> IntTensor<Self> {
        unimplemented!("burn-mx: a backend whose `has_statistics_words` says so has these words")
    }

    /// The gradient of `values` with zeros where quantizing these along `axis` clips them, as
    /// [`BlockFormat::mask_clipped`] says.
    fn mask_clipped(
        gradient: FloatTensor<Self>,
        values: FloatTensor<Self>,
        axis: usize,
        format: BlockFormat,
    ) -> FloatTensor<Self> {
        mask_on_host::<Self>(gradient, values, axis, format)
    }

    /// Rounds every element to a bfloat or fp format, as [`FloatFormat::round_slice`] does.
    fn float_round_to(
        tensor: FloatTensor<Self>,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, _| {
            format.round_slice(data, rounding.with(stream))
        })
    }

    /// An op on one tensor and the roundings before and after it, in one pass; by default composed.
    fn unary_op(op: UnaryOp, tensor: FloatTensor<Self>, rounding: OpRounding) -> FloatTensor<Self> {
        let tensor = rounding.operand::<Self>(tensor);
        rounding.round::<Self>(op.compute::<Self>(tensor))
    }

    /// An op on two tensors of the same rank, which broadcast, and the roundings before and after it, in one pass; by
    /// default composed.
    fn binary_op(
        op: BinaryOp,
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        rounding: OpRounding,
    ) -> FloatTensor<Self> {
        let (lhs, rhs) = (rounding.operand::<Self>(lhs), rounding.operand::<Self>(rhs));
        rounding.round::<Self>(op.compute::<Self>(lhs, rhs))
    }

    /// A function of one tensor, which need not be rounded, in one pass.
    fn unary_function(
        function: UnaryFunction,
        tensor: FloatTensor<Self>,
        rounding: FunctionRounding,
    ) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, _| function.apply(data, rounding))
    }

    /// A function of the input of an op and its output's gradient, of the same shape, in one pass.
    fn binary_function(
        function: BinaryFunction,
        input: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        rounding: FunctionRounding,
    ) -> FloatTensor<Self> {
        let input = host::read::<Self>(input);
        host::apply::<Self>(grad, |grad, _| function.apply(grad, &input, rounding))
    }

    /// Normalization of `tensor`, `[.., D]`, with `gamma` and `beta`, `[D]`, none of which need be rounded, in one
    /// pass over each row.
    fn rounded_norm(
        function: Normalization,
        tensor: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (gamma, beta) = (host::read::<Self>(gamma), beta.map(host::read::<Self>));
        host::apply::<Self>(tensor, |data, _| {
            function.forward(data, &gamma, beta.as_deref())
        })
    }

    /// The gradient of a normalization's input, and the products of the output's gradient and the
    /// normalized input that sum up to that of `gamma`.
    fn rounded_norm_backward(
        function: Normalization,
        tensor: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let gamma = host::read::<Self>(gamma);
        host::apply_to_two::<Self>(grad, tensor, |grad, x| function.backward(grad, x, &gamma))
    }

    /// Softmax of `tensor`, which need not be rounded, over its last axis, in one pass over each row.
    fn rounded_softmax(function: Softmax, tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, shape| {
            function.forward(data, last_length(shape))
        })
    }

    /// The gradient of a softmax's input from its output, which is rounded, and that one's gradient.
    fn rounded_softmax_backward(
        function: Softmax,
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let output = host::read::<Self>(output);
        host::apply::<Self>(grad, |grad, shape| {
            function.backward(grad, &output, last_length(shape));
        })
    }

    /// Logarithm of the softmax of `tensor`, which need not be rounded, over its last axis, in one pass over each row.
    fn rounded_log_softmax(function: LogSoftmax, tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, shape| {
            function.forward(data, last_length(shape))
        })
    }

    /// The gradient of the input of a softmax's logarithm from that input and the output's gradient, neither of which
    /// need be rounded.
    fn rounded_log_softmax_backward(
        function: LogSoftmax,
        input: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let input = host::read::<Self>(input);
        host::apply::<Self>(grad, |grad, shape| {
            function.backward(grad, &input, last_length(shape));
        })
    }

    /// `1 / x`, correctly rounded, of every element; unlike [`Backend`]'s, which may approximate.
    fn exact_recip(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        host::apply::<Self>(tensor, |data, _| {
            data.iter_mut().for_each(|x| *x = x.recip())
        })
    }
}

/// [`BlockFormat::quantize`] where format and axis are known to be right: specs are validated when they are
/// resolved, and the axis comes from the product's own shape.
fn quantize_dense(
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
) {
    of_known(format.quantize(data, shape, axis, rounding.with(stream)));
}

/// [`MxKernels::pack`] in host memory.
fn pack_on_host<B: Backend>(
    tensor: FloatTensor<B>,
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> Result<Packed, PackError> {
    let shape = tensor.shape();
    let values = host::values::<B>(tensor);
    Packed::encode(format, &values, &shape, axis, rounding.with(stream))
}

/// [`MxKernels::unpack`] in host memory.
fn unpack_on_host<B: Backend>(packed: &PackedView<'_>, device: &B::Device) -> FloatTensor<B> {
    let data = TensorData::new(packed.decode(), packed.shape().to_vec());
    B::float_from_data(data, device)
}

/// The parts of a tensor that is summed up on its device, if it is.
fn parts_on_device<B: MxKernels>(
    shape: &Shape,
    axis: usize,
    format: Option<BlockFormat>,
) -> Option<StatisticsParts> {
    let parts = of_known(StatisticsParts::of(format, shape, axis));
    let has_elements = shape.num_elements() > 0;
    (has_elements && B::has_statistics_words(format, &parts)).then_some(parts)
}

/// The words of a tensor before and after quantization.
fn on_device<B: MxKernels>(
    before_and_after: [&FloatTensor<B>; 2],
    format: Option<BlockFormat>,
    parts: StatisticsParts,
) -> TensorStatistics<B> {
    let words = B::statistics_words(before_and_after, format, &parts);
    let elements = before_and_after[0].shape().num_elements();
    let has_format = format.is_some();
    TensorStatistics::OnDevice(StatisticsWords::new(words, elements, parts, has_format))
}

/// [`Statistics::of`] where format, shape and axis are known to be right, as for [`quantize_dense`].
fn statistics(
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

/// [`MxKernels::mask_clipped`] in host memory.
fn mask_on_host<B: Backend>(
    gradient: FloatTensor<B>,
    values: FloatTensor<B>,
    axis: usize,
    format: BlockFormat,
) -> FloatTensor<B> {
    let values = host::read::<B>(values);
    host::apply::<B>(gradient, |gradient, shape| {
        mask_dense(gradient, &values, shape, axis, format);
    })
}

/// [`BlockFormat::mask_clipped`] where format, shape and axis are known to be right, as for [`quantize_dense`].
fn mask_dense(
    gradient: &mut [f32],
    values: &[f32],
    shape: &[usize],
    axis: usize,
    format: BlockFormat,
) {
    of_known(format.mask_clipped(values, shape, axis, gradient));
}

/// What is computed of a format, a shape and an axis that are known to be right.
fn of_known<T>(result: Result<T, QuantizeError>) -> T {
    result.unwrap_or_else(|error| panic!("burn-mx: {error}"))
}

/// [`RandomHadamard::transform`] where the block size and the axis are known to be right, as for
/// [`quantize_dense`].
fn transform_dense(
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
    transform: RandomHadamard,
    signs: Signs,
) {
    of_known(transform.transform(data, shape, axis, signs));
}

/// [`RandomHadamard::inverse`], as [`transform_dense`].
fn invert_dense(
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
fn round_each<'a>(arith: &impl Arithmetic<Value = f32>, row: &'a mut [f32]) -> &'a mut [f32] {
    for x in row.iter_mut() {
        *x = arith.round(*x);
    }
    row
}

/// Elements of a row.
fn last_length(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1)
}

/// The values of a tensor of any float type, in row-major order; waits for the device.
pub(crate) fn read_values<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    host::values::<B>(to_f32::<B>(tensor))
}

/// A tensor of any float type as `f32`: of `f16` and `bf16` exactly, of `f64` rounded to nearest, ties to even.
pub fn to_f32<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match tensor.dtype() {
        DType::F32 => tensor,
        _ => B::float_cast(tensor, FloatDType::F32),
    }
}

/// An `f32` tensor as the float type `storage`, rounded to nearest, ties to even; `None` is `f32`.
pub fn from_f32<B: MxKernels>(
    tensor: FloatTensor<B>,
    storage: Option<FloatDType>,
) -> FloatTensor<B> {
    let Some(dtype) = storage else { return tensor };
    // Rounded here, the cast is exact: backends that cast by way of `f64` would round ties wrongly.
    let format = match dtype {
        FloatDType::F16 => FloatFormat::fp(16),
        FloatDType::BF16 => FloatFormat::bfloat(16),
        _ => return B::float_cast(tensor, dtype),
    };
    let format = format.expect("16 bits are enough for either format");
    let stream = RandomStream::new(0, 0);
    B::float_cast(
        B::float_round_to(tensor, format, Rounding::NearestEven, stream),
        dtype,
    )
}

/// A tensor that an op reads beside `like`, in the float type of that.
pub(crate) fn same_type<B: Backend>(
    tensor: FloatTensor<B>,
    like: &FloatTensor<B>,
) -> FloatTensor<B> {
    match tensor.dtype() == like.dtype() {
        true => tensor,
        false => B::float_cast(tensor, like.dtype().into()),
    }
}
