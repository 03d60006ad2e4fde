//! The kernels of a backend.

use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn_backend::{DType, Scalar, Shape, TensorMetadata};
use microscaling::{
    BlockFormat, OperandQuantization, PackError, Packed, PackedView, RandomStream, Rounding,
    Statistics, StatisticsParts,
};

use super::MxKernels;
use super::dense::{of_known, statistics_dense};
use super::kernel_op::KernelOp;
use super::kernel_op::adamw::AdamWStep;
use super::kernel_op::op::OpRounding;
use super::portable::{self, pack_on_host, unpack_on_host};
use super::product::accumulated::AccumulatedProduct;
use super::product::convolution::{Convolution, ConvolutionProduct};
use super::product::{self, Operand, OperandForm};
use super::statistics::{StatisticsWords, TensorStatistics};

/// The kernels of a backend. Tensors are always `f32`. A kernel must leave a shared buffer unchanged, and may reuse an unshared
/// buffer.
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

    /// The sums `[D]` of a tensor `[.., D]` over all axes but the last, rounded. By default the backend's sums over one axis
    /// after another.
    fn column_sums(&self, tensor: FloatTensor<B>, rounding: OpRounding) -> FloatTensor<B> {
        rounding.round::<B>(B::linear_bias_backward(tensor))
    }

    /// A step of AdamW from a parameter, its gradient and its two moments, of one shape: the new parameter and moments. By
    /// default Burn's ops have to compute the step, and the tensors come back.
    ///
    /// # Errors
    ///
    /// The tensors.
    fn adamw(
        &self,
        _step: AdamWStep,
        tensors: [FloatTensor<B>; 4],
    ) -> Result<[FloatTensor<B>; 3], [FloatTensor<B>; 4]> {
        Err(tensors)
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

    /// Whether [`operand_pair`](Self::operand_pair) makes these forms of a tensor of this shape in fewer passes than two calls of
    /// [`product_operand`](Self::product_operand).
    fn has_operand_pair(
        &self,
        _device: &B::Device,
        _shape: &Shape,
        _forms: [OperandForm; 2],
    ) -> bool {
        false
    }

    /// A tensor as two operands, each as [`product_operand`](Self::product_operand) makes it.
    fn operand_pair(
        &self,
        tensor: FloatTensor<B>,
        forms: [OperandForm; 2],
    ) -> [Operand<FloatTensor<B>>; 2] {
        forms.map(|form| self.product_operand(tensor.clone(), form))
    }

    /// The product of two operands over their last two axes, in `f32`; the other axes broadcast. By default
    /// [`Backend`](burn_backend::Backend)'s own product.
    ///
    /// An operand may have another form than the other one: which form values take may depend on them.
    fn product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        product::of_tensors::<B>(lhs, rhs)
    }

    /// The [product](Self::product), rounded, plus a bias that is rounded, too, and broadcasts, rounded again.
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
    /// [`Backend`](burn_backend::Backend)'s own convolution.
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
