//! The numeric kernels of [burn-mx](https://docs.rs/burn-mx): ops as data, and one set of kernels for each of Burn's backends.
//!
//! Programs depend on `burn-mx`. A backend of your own needs [`MxKernels`], which `burn-mx` exports, too. All hidden items are
//! burn-mx's own, and change without notice.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod arithmetic;
#[cfg(feature = "cube")]
mod cube;
mod dense;
#[cfg(feature = "fusion")]
mod fusion;
#[cfg(feature = "host")]
mod host;
mod kernel_op;
mod plain;
mod portable;
mod process;
#[doc(hidden)]
pub mod product;
mod statistics;

pub use arithmetic::Function;
pub use plain::ModelOps;
pub use portable::host_round_trips;
pub use process::{keep_compiled_kernels, show_waits};
pub use product::reproducible_products;

// Items for the crates above.
#[doc(hidden)]
pub use kernel_op::{
    KernelOp,
    norm::{Norm, Normalization},
    op::{BinaryOp, OpRounding, UnaryOp},
    rounding::FunctionRounding,
    softmax::{LogSoftmax, Softmax},
};
#[doc(hidden)]
pub use portable::note;
#[doc(hidden)]
pub use product::{
    Operand, OperandForm, OperandLayout, are_float32,
    convolution::{Convolution, ConvolutionProduct},
    in_float32,
};
#[doc(hidden)]
pub use statistics::{PendingStatistics, StatisticsWords, TensorStatistics};

/// The formulas of emulated functions, and the same functions by Burn's ops.
#[doc(hidden)]
pub mod formulas {
    pub use crate::arithmetic::{Arithmetic, LOG2_E, Rows, activation, norm, softmax};
    pub use crate::plain::{as_row, plain_function, plain_rms_norm};
}

use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn_backend::{Backend, DType, FloatDType, Scalar, Shape, TensorMetadata};
use dense::{of_known, statistics_dense};
use microscaling::{
    BlockFormat, FloatFormat, OperandQuantization, PackError, Packed, PackedView, RandomStream,
    Rounding, Statistics, StatisticsParts,
};
use portable::{pack_on_host, unpack_on_host};
use product::accumulated::AccumulatedProduct;

/// A backend that burn-mx's `MxBackend` can wrap. Your own backend needs only `impl MxKernels for MyBackend {}`. Its
/// kernels then go through host memory, with results that are bit-identical to the native kernels'. Another crate's backend needs
/// only burn-mx's `Portable` around it.
pub trait MxKernels: Backend {
    /// The kernels of this backend.
    #[doc(hidden)]
    fn kernels() -> &'static dyn KernelSet<Self> {
        &PortableKernels
    }

    /// The result of an op on N tensors.
    #[doc(hidden)]
    fn kernel<const N: usize>(op: KernelOp, inputs: [FloatTensor<Self>; N]) -> FloatTensor<Self> {
        let mut inputs = inputs.into_iter();
        let first = inputs.next().expect("an op takes a tensor");
        Self::kernels()
            .run(op, first, [inputs.next(), inputs.next()])
            .0
    }

    /// [`KernelOp::Quantize`] without an elementwise format.
    #[doc(hidden)]
    fn mx_quantize(
        tensor: FloatTensor<Self>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FloatTensor<Self> {
        Self::kernel(KernelOp::quantize(axis, format, rounding, stream), [tensor])
    }

    /// [`KernelOp::Round`].
    #[doc(hidden)]
    fn float_round_to(
        tensor: FloatTensor<Self>,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FloatTensor<Self> {
        let op = KernelOp::Round {
            format,
            rounding,
            stream,
        };
        Self::kernel(op, [tensor])
    }
}

/// The kernels of a backend. Tensors are always `f32`. A kernel must leave a shared buffer unchanged, and may reuse an unshared
/// buffer.
#[doc(hidden)]
pub trait KernelSet<B: MxKernels>: Sync {
    /// The results of an op, of which most have one.
    fn run(
        &self,
        op: KernelOp,
        first: FloatTensor<B>,
        others: [Option<FloatTensor<B>>; 2],
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        portable::run::<B>(op, first, others)
    }

    /// [`float_reshape`](burn_backend::ops::FloatTensorOps::float_reshape), by default the backend's.
    fn reshape(&self, tensor: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
        B::float_reshape(tensor, shape)
    }

    /// [`float_cat`](burn_backend::ops::FloatTensorOps::float_cat), by default the backend's.
    fn cat(&self, tensors: Vec<FloatTensor<B>>, axis: usize) -> FloatTensor<B> {
        B::float_cat(tensors, axis)
    }

    /// [`float_mask_fill`](burn_backend::ops::FloatTensorOps::float_mask_fill), by default the backend's.
    fn mask_fill(
        &self,
        tensor: FloatTensor<B>,
        mask: BoolTensor<B>,
        value: Scalar,
    ) -> FloatTensor<B> {
        B::float_mask_fill(tensor, mask, value)
    }

    /// A function of each number that the backend computes, and its roundings: by default one after another.
    fn function(
        &self,
        tensor: FloatTensor<B>,
        rounding: OpRounding,
        function: fn(FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        rounding.around::<B>(function, tensor)
    }

    /// Quantizes and packs blocks along `axis`, as [`Packed::encode`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Packed::encode`].
    fn pack(
        &self,
        tensor: FloatTensor<B>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<Packed, PackError> {
        pack_on_host::<B>(tensor, axis, format, rounding, stream)
    }

    /// The tensor that a packed one is, as [`PackedView::decode`] says.
    fn unpack(&self, packed: &PackedView<'_>, device: &B::Device) -> FloatTensor<B> {
        unpack_on_host::<B>(packed, device)
    }

    /// True if this backend overrides the float32 matmul.
    fn has_own_product(&self, _device: &B::Device) -> bool {
        false
    }

    /// The float type of the tensor that [`product_operand`](Self::product_operand) makes, where it makes one, and whether the
    /// tensor scale is apart from it.
    fn operand_dtype(&self, _device: &B::Device, _form: OperandForm) -> (DType, bool) {
        (DType::F32, false)
    }

    /// An operand of a matrix product, of at least two axes, quantized, in the form in which this backend multiplies it.
    /// By default a tensor of quantized values.
    fn product_operand(
        &self,
        tensor: FloatTensor<B>,
        form: OperandForm,
    ) -> Operand<FloatTensor<B>> {
        product::in_tensor::<B>(tensor, form)
    }

    /// The product of two operands over their last two axes, in `f32`; the other axes broadcast. By default
    /// [`Backend`]'s own product.
    ///
    /// An operand may have another form than the other one: which form values take may depend on them.
    fn product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        product::of_tensors::<B>(lhs, rhs)
    }

    /// The [product](Self::product), rounded, plus a bias that is rounded already and broadcasts, rounded again.
    fn rounded_product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
        rounding: OpRounding,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        rounding.of_product::<B>(self.product(lhs, rhs), bias)
    }

    /// Whether this backend sums up some products as matrix units do, on its device.
    fn has_accumulators(&self) -> bool {
        false
    }

    /// Whether [`accumulated_product`](Self::accumulated_product) computes this product.
    fn has_accumulated_product(&self, _product: &AccumulatedProduct) -> bool {
        false
    }

    /// The product of two tensors, quantized and summed up as a matrix unit does.
    fn accumulated_product(
        &self,
        _product: &AccumulatedProduct,
        _operands: [FloatTensor<B>; 2],
    ) -> FloatTensor<B> {
        unimplemented!("burn-mx: a backend whose `has_accumulated_product` says so has the product")
    }

    /// Whether [`convolution_product`](Self::convolution_product) computes every product of tensors with this number of
    /// significant bits. burn-fusion around a backend has to know this before. The default is `false`.
    fn has_own_convolution(&self, _device: &B::Device, _significant_bits: u32) -> bool {
        false
    }

    /// A product of a convolution, in `f32`, of two tensors of quantized values with at most `significant_bits`
    /// significant bits. The first tensor is x or the output's gradient. The second is the weight or, for the weight's
    /// gradient, the output's gradient. A bias is added to the channels. `None`, the default, leaves the product to
    /// [`Backend`]'s own convolution.
    fn convolution_product(
        &self,
        _convolution: &Convolution,
        _product: &ConvolutionProduct,
        _operands: [&FloatTensor<B>; 2],
        _bias: Option<&FloatTensor<B>>,
        _significant_bits: u32,
    ) -> Option<FloatTensor<B>> {
        None
    }

    /// The statistics of quantization in blocks along `axis`, without stochastic rounding:
    /// [`Statistics::of_quantizing`].
    fn quantizing_statistics(
        &self,
        tensor: &FloatTensor<B>,
        axis: usize,
        quantization: OperandQuantization,
    ) -> TensorStatistics<B> {
        let shape = tensor.shape();
        let format = quantization.blocks.map(|(format, _)| format);
        if let Some(parts) = parts_on_device::<B>(&shape, axis, format) {
            let stream = RandomStream::new(0, 0);
            let mut before = tensor.clone();
            if let Some((format, rounding)) = quantization.elementwise {
                before = B::float_round_to(before, format, rounding, stream);
            }
            let after = match quantization.blocks {
                Some((format, rounding)) => {
                    B::mx_quantize(before.clone(), axis, format, rounding, stream)
                }
                None => before.clone(),
            };
            return on_device::<B>([&before, &after], format, parts);
        }
        let values = portable::read_for::<B>(tensor.clone(), "the recorder");
        TensorStatistics::Known(of_known(Statistics::of_quantizing(
            &values,
            &shape,
            axis,
            quantization,
        )))
    }

    /// The statistics of quantization in blocks along `axis`: [`Statistics::of`] the tensor before and after. Kernels of CubeCL
    /// sum squares and products in float32, within a thousandth of the sum of the terms' magnitudes. All other figures are equal.
    fn quantization_statistics(
        &self,
        before_and_after: [&FloatTensor<B>; 2],
        axis: usize,
        format: Option<BlockFormat>,
    ) -> TensorStatistics<B> {
        let shape = before_and_after[0].shape();
        if let Some(parts) = parts_on_device::<B>(&shape, axis, format) {
            return on_device::<B>(before_and_after, format, parts);
        }
        let [before, after] =
            before_and_after.map(|tensor| portable::read_for::<B>(tensor.clone(), "the recorder"));
        TensorStatistics::Known(statistics_dense([&before, &after], &shape, axis, format))
    }

    /// The effect of the operands' quantization on a product: statistics of its result beside the product of the
    /// original operands.
    fn product_statistics(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
        result: &FloatTensor<B>,
    ) -> TensorStatistics<B> {
        let reference = self.product(lhs, rhs);
        debug_assert_eq!(reference.shape(), result.shape());
        self.quantization_statistics([&reference, result], 0, None)
    }

    /// Whether [`statistics_words`](Self::statistics_words) sums such tensors up. `false`, the default, if they are read to host
    /// memory to be looked at there.
    fn has_statistics_words(&self, _format: Option<BlockFormat>, _parts: &StatisticsParts) -> bool {
        false
    }

    /// Sums up the statistics of quantization on the device, for a tensor with elements and these parts: [`StatisticsWords`]
    /// says what the words are.
    fn statistics_words(
        &self,
        _before_and_after: [&FloatTensor<B>; 2],
        _format: Option<BlockFormat>,
        _parts: &StatisticsParts,
    ) -> IntTensor<B> {
        unimplemented!("burn-mx: a backend whose `has_statistics_words` says so has these words")
    }
}

/// The kernels that go through host memory.
#[doc(hidden)]
#[derive(Debug)]
pub struct PortableKernels;

impl<B: MxKernels> KernelSet<B> for PortableKernels {}

/// The parts of a tensor that is summed up on its device, if it is.
fn parts_on_device<B: MxKernels>(
    shape: &Shape,
    axis: usize,
    format: Option<BlockFormat>,
) -> Option<StatisticsParts> {
    let parts = of_known(StatisticsParts::of(format, shape, axis));
    let has_elements = shape.num_elements() > 0;
    (has_elements && B::kernels().has_statistics_words(format, &parts)).then_some(parts)
}

/// The words of a tensor before and after quantization.
fn on_device<B: MxKernels>(
    before_and_after: [&FloatTensor<B>; 2],
    format: Option<BlockFormat>,
    parts: StatisticsParts,
) -> TensorStatistics<B> {
    let words = B::kernels().statistics_words(before_and_after, format, &parts);
    let elements = before_and_after[0].shape().num_elements();
    let has_format = format.is_some();
    TensorStatistics::OnDevice(StatisticsWords::new(words, elements, parts, has_format))
}

/// Elements of a row.
fn last_length(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1)
}

/// The values of a tensor of any float type, in row-major order; waits for the device.
#[doc(hidden)]
pub fn read_values<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    portable::values::<B>(to_f32::<B>(tensor))
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
#[doc(hidden)]
pub fn same_type<B: Backend>(tensor: FloatTensor<B>, like: &FloatTensor<B>) -> FloatTensor<B> {
    match tensor.dtype() == like.dtype() {
        true => tensor,
        false => B::float_cast(tensor, like.dtype().into()),
    }
}
