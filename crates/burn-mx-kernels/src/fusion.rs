//! burn-fusion around a backend with kernels: each kernel is an operation of its stream.
//!
//! The stream runs a closure for each operation. The closure holds everything that changes from call to call. So streams
//! look alike from step to step, and burn-fusion reuses its optimizations.

use core::fmt;
use std::marker::PhantomData;

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{DType, Shape, TensorMetadata, calculate_matmul_output};
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{Fusion, FusionBackend, FusionTensor, NoOp, get_client};
use burn_ir::{CustomOpIr, HandleContainer, InitOperationIr, OperationIr, TensorIr};
use microscaling::{
    BlockFormat, PackError, Packed, PackedView, RandomStream, Rounding, StatisticsParts,
};

use super::MxKernels;
use super::kernel_op::KernelOp;
use super::kernel_op::given;
use super::kernel_op::op::OpRounding;
use super::kernel_set::KernelSet;
use super::product::accumulated::AccumulatedProduct;
use super::product::convolution::{Convolution, ConvolutionProduct};
use super::product::{self, Operand, OperandForm};
use super::statistics;

/// A tensor that a kernel gives.
enum FusionOutput<B: FusionBackend> {
    Float(FloatTensor<B>),
    Words(IntTensor<B>),
}

/// A kernel of `B` in a stream: a function of tensors of floats.
struct KernelOperation<B, F> {
    description: CustomOpIr,
    run: F,
    _backend: PhantomData<B>,
}

impl<B, F> fmt::Debug for KernelOperation<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description.fmt(f)
    }
}

impl<B, F> Operation<B::FusionRuntime> for KernelOperation<B, F>
where
    B: FusionBackend,
    F: Fn(Vec<FloatTensor<B>>) -> Vec<FusionOutput<B>> + Send + Sync,
{
    fn execute(&self, handles: &mut HandleContainer<B::Handle>) {
        let inputs = self.description.inputs.iter();
        let inputs = inputs
            .map(|input| handles.get_float_tensor::<B>(input))
            .collect();
        for (output, result) in self.description.outputs.iter().zip((self.run)(inputs)) {
            match result {
                FusionOutput::Float(tensor) => {
                    handles.register_float_tensor::<B>(&output.id, tensor)
                }
                FusionOutput::Words(tensor) => handles.register_int_tensor::<B>(&output.id, tensor),
            }
        }
    }
}

type FusedTensor<B> = FusionTensor<<B as FusionBackend>::FusionRuntime>;

/// Puts a kernel into the stream of its inputs, of which there is one at least.
fn register<B: FusionBackend + 'static>(
    id: &'static str,
    inputs: Vec<FusedTensor<B>>,
    outputs: Vec<(Shape, DType)>,
    run: impl Fn(Vec<FloatTensor<B>>) -> Vec<FusionOutput<B>> + Send + Sync + 'static,
) -> Vec<FusedTensor<B>> {
    let client = inputs[0].client.clone();
    // The last use of a tensor that occurs twice may take it only if the streams are known before.
    let streams = OperationStreams::with_inputs(inputs.iter());
    let inputs: Vec<TensorIr> = inputs.into_iter().map(|input| input.into_ir()).collect();
    let outputs = outputs.into_iter();
    let outputs: Vec<TensorIr> = outputs
        .map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype))
        .collect();
    let description = CustomOpIr::new(id, &inputs, &outputs);
    let operation = KernelOperation::<B, _> {
        description: description.clone(),
        run,
        _backend: PhantomData,
    };
    client.register(streams, OperationIr::Custom(description), operation)
}

/// A kernel with one output.
fn register_one<B: FusionBackend + 'static>(
    id: &'static str,
    inputs: Vec<FusedTensor<B>>,
    output: (Shape, DType),
    run: impl Fn(Vec<FloatTensor<B>>) -> FusionOutput<B> + Send + Sync + 'static,
) -> FusedTensor<B> {
    let mut outputs = register::<B>(id, inputs, vec![output], move |inputs| vec![run(inputs)]);
    outputs.remove(0)
}

/// As many tensors as a kernel has been registered with.
fn fixed<T, const N: usize>(tensors: Vec<T>) -> [T; N] {
    let tensors = tensors.try_into();
    tensors.unwrap_or_else(|_| unreachable!("a stream gives what was asked of it"))
}

impl<B: FusionBackend + MxKernels + 'static> MxKernels for Fusion<B> {
    fn kernels() -> &'static dyn KernelSet<Self> {
        &InStream
    }
}

/// The kernels of the wrapped backend, in its stream.
struct InStream;

impl<B: FusionBackend + MxKernels + 'static> KernelSet<Fusion<B>> for InStream {
    fn run(
        &self,
        op: KernelOp,
        first: FusedTensor<B>,
        others: [Option<FusedTensor<B>>; 2],
    ) -> (FusedTensor<B>, Option<FusedTensor<B>>) {
        let mut shape = first.shape();
        if let (KernelOp::Binary(..), [Some(other), _]) = (op, &others) {
            shape = shape
                .broadcast(&other.shape())
                .unwrap_or_else(|error| panic!("burn-mx: {error:?}"));
        }
        let like = (shape, first.dtype());
        let results = if op.has_two_results() { 2 } else { 1 };
        let inputs = core::iter::once(first).chain(others.into_iter().flatten());
        let run = move |inputs: Vec<FloatTensor<B>>| {
            let mut inputs = inputs.into_iter();
            let first = given(inputs.next());
            let (result, second) = B::kernels().run(op, first, [inputs.next(), inputs.next()]);
            core::iter::once(result)
                .chain(second)
                .map(FusionOutput::Float)
                .collect()
        };
        let outputs = vec![like; results];
        let outputs = register::<B>(op.name(), inputs.collect(), outputs, run);
        let mut outputs = outputs.into_iter();
        (given(outputs.next()), outputs.next())
    }

    fn column_sums(&self, tensor: FusedTensor<B>, rounding: OpRounding) -> FusedTensor<B> {
        let shape = tensor.shape();
        let output = (Shape::new([shape[shape.num_dims() - 1]]), tensor.dtype());
        let run = move |inputs| {
            let [tensor] = fixed(inputs);
            FusionOutput::Float(B::kernels().column_sums(tensor, rounding))
        };
        register_one::<B>("mx_column_sums", vec![tensor], output, run)
    }

    // The host reads packed bytes, and unpacked bytes came from the host: both wait for the stream anyway.
    fn pack(
        &self,
        tensor: FusedTensor<B>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<Packed, PackError> {
        let client = tensor.client.clone();
        let tensor = client.resolve_tensor_float::<B>(tensor);
        B::kernels().pack(tensor, axis, format, rounding, stream)
    }

    fn unpack(&self, packed: &PackedView<'_>, device: &B::Device) -> FusedTensor<B> {
        let client = get_client::<B>(device);
        let tensor = B::kernels().unpack(packed, device);
        let (shape, dtype) = (tensor.shape(), tensor.dtype());
        let handle = B::float_tensor_handle(tensor);
        let output =
            InitOperationIr::create(shape, dtype, || client.register_tensor_handle(handle));
        let operation = OperationIr::Init(output);
        let mut outputs = client.register(OperationStreams::default(), operation, NoOp::<B>::new());
        outputs.remove(0)
    }

    fn has_own_product(&self, device: &B::Device) -> bool {
        B::kernels().has_own_product(device)
    }

    fn operand_dtype(&self, device: &B::Device, form: OperandForm) -> (DType, bool) {
        B::kernels().operand_dtype(device, form)
    }

    fn product_operand(
        &self,
        tensor: FusedTensor<B>,
        form: OperandForm,
    ) -> Operand<FusedTensor<B>> {
        let device = tensor.client.device().clone();
        let (dtype, has_tensor_scale) = B::kernels().operand_dtype(&device, form);
        if dtype == DType::F32 && !has_tensor_scale {
            return product::in_tensor::<Fusion<B>>(tensor, form);
        }
        let run = move |tensor| vec![B::kernels().product_operand(tensor, form)];
        let [operand] = operands_in_stream::<B, _>("mx_product_operand", tensor, [form], run);
        operand
    }

    fn has_operand_pair(&self, device: &B::Device, shape: &Shape, forms: [OperandForm; 2]) -> bool {
        B::kernels().has_operand_pair(device, shape, forms)
    }

    fn operand_pair(
        &self,
        tensor: FusedTensor<B>,
        forms: [OperandForm; 2],
    ) -> [Operand<FusedTensor<B>>; 2] {
        let run = move |tensor| B::kernels().operand_pair(tensor, forms).into();
        operands_in_stream::<B, _>("mx_operand_pair", tensor, forms, run)
    }

    fn product(
        &self,
        lhs: Operand<FusedTensor<B>>,
        rhs: Operand<FusedTensor<B>>,
    ) -> FusedTensor<B> {
        product_in_stream::<B>(lhs, rhs, None)
    }

    fn rounded_product(
        &self,
        lhs: Operand<FusedTensor<B>>,
        rhs: Operand<FusedTensor<B>>,
        rounding: OpRounding,
        bias: Option<FusedTensor<B>>,
    ) -> FusedTensor<B> {
        product_in_stream::<B>(lhs, rhs, Some((rounding, bias)))
    }

    fn has_accumulators(&self) -> bool {
        B::kernels().has_accumulators()
    }

    fn has_accumulated_product(&self, product: &AccumulatedProduct) -> bool {
        B::kernels().has_accumulated_product(product)
    }

    fn accumulated_product(
        &self,
        product: &AccumulatedProduct,
        operands: [FusedTensor<B>; 2],
    ) -> FusedTensor<B> {
        let output = (Shape::from(product.shape()), DType::F32);
        let product = product.clone();
        let run = move |inputs| {
            FusionOutput::Float(B::kernels().accumulated_product(&product, fixed(inputs)))
        };
        register_one::<B>("mx_accumulated_product", operands.into(), output, run)
    }

    fn has_own_convolution(&self, device: &B::Device, significant_bits: u32) -> bool {
        B::kernels().has_own_convolution(device, significant_bits)
    }

    fn convolution_product(
        &self,
        convolution: &Convolution,
        product: &ConvolutionProduct,
        operands: [&FusedTensor<B>; 2],
        bias: Option<&FusedTensor<B>>,
        significant_bits: u32,
    ) -> Option<FusedTensor<B>> {
        if !B::kernels().has_own_convolution(operands[0].client.device(), significant_bits) {
            // An op that burn-fusion knows: it may fuse the next ops.
            return None;
        }
        let output = (Shape::from(product.shape().to_vec()), DType::F32);
        let inputs = operands.into_iter().chain(bias).cloned().collect();
        let (convolution, product) = (convolution.clone(), product.clone());
        let run = move |inputs: Vec<FloatTensor<B>>| {
            let operands = [&inputs[0], &inputs[1]];
            let (bias, bits) = (inputs.get(2), significant_bits);
            let result =
                B::kernels().convolution_product(&convolution, &product, operands, bias, bits);
            FusionOutput::Float(result.expect("the backend has said that it computes this product"))
        };
        Some(register_one::<B>("mx_convolution", inputs, output, run))
    }

    fn has_statistics_words(&self, format: Option<BlockFormat>, parts: &StatisticsParts) -> bool {
        B::kernels().has_statistics_words(format, parts)
    }

    fn statistics_words(
        &self,
        before_and_after: [&FusedTensor<B>; 2],
        format: Option<BlockFormat>,
        parts: &StatisticsParts,
    ) -> FusedTensor<B> {
        let (parts, words) = (*parts, statistics::length(parts));
        let inputs = before_and_after.map(Clone::clone).into();
        let run = move |inputs| {
            let [before, after] = fixed(inputs);
            let words = B::kernels().statistics_words([&before, &after], format, &parts);
            FusionOutput::Words(words)
        };
        register_one::<B>(
            "mx_statistics",
            inputs,
            (Shape::new([words]), DType::I32),
            run,
        )
    }
}

/// A tensor as operands of these forms.
fn operands_in_stream<B: FusionBackend + MxKernels + 'static, const N: usize>(
    id: &'static str,
    tensor: FusedTensor<B>,
    forms: [OperandForm; N],
    make: impl Fn(FloatTensor<B>) -> Vec<Operand<FloatTensor<B>>> + Send + Sync + 'static,
) -> [Operand<FusedTensor<B>>; N] {
    let (device, shape) = (tensor.client.device().clone(), tensor.shape());
    let types = forms.map(|form| B::kernels().operand_dtype(&device, form));
    let mut outputs = Vec::new();
    for (form, (dtype, has_tensor_scale)) in forms.iter().zip(types) {
        outputs.push((form.place.shape_of(shape.clone()), dtype));
        if has_tensor_scale {
            outputs.push((Shape::new([1]), DType::F32));
        }
    }
    let run = move |inputs| {
        let [tensor] = fixed(inputs);
        let of_operand = |operand| match operand {
            Operand::Tensor {
                values,
                tensor_scale,
                ..
            } => core::iter::once(values).chain(tensor_scale),
            _ => unreachable!("panels have no float type"),
        };
        let operands = make(tensor).into_iter().flat_map(of_operand);
        operands.map(FusionOutput::Float).collect()
    };
    let mut outputs = register::<B>(id, vec![tensor], outputs, run).into_iter();
    core::array::from_fn(|i| {
        let (_, has_tensor_scale) = types[i];
        Operand::Tensor {
            values: given(outputs.next()),
            transposed: forms[i].place.transposed,
            tensor_scale: has_tensor_scale.then(|| given(outputs.next())),
        }
    })
}

/// A product of two operands over their last two axes, and perhaps its rounding and a bias.
fn product_in_stream<B: FusionBackend + MxKernels + 'static>(
    lhs: Operand<FusedTensor<B>>,
    rhs: Operand<FusedTensor<B>>,
    epilogue: Option<(OpRounding, Option<FusedTensor<B>>)>,
) -> FusedTensor<B> {
    let (
        Operand::Tensor {
            values: left,
            transposed: left_transposed,
            tensor_scale: left_scale,
        },
        Operand::Tensor {
            values: right,
            transposed: right_transposed,
            tensor_scale: right_scale,
        },
    ) = (lhs, rhs)
    else {
        unreachable!("no backend of burn-fusion has panels");
    };
    fn operand<P>(values: P, transposed: bool, tensor_scale: Option<P>) -> Operand<P> {
        Operand::Tensor {
            values,
            transposed,
            tensor_scale,
        }
    }
    let is_scaled = [left_scale.is_some(), right_scale.is_some()];
    if !B::kernels().has_own_product(left.client.device()) && is_scaled == [false; 2] {
        // An op that burn-fusion knows: it may fuse the next ops.
        let product = product::of_tensors::<Fusion<B>>(
            operand(left, left_transposed, None),
            operand(right, right_transposed, None),
        );
        return match epilogue {
            Some((rounding, bias)) => rounding.of_product::<Fusion<B>>(product, bias),
            None => product,
        };
    }
    let in_product = |tensor: &FusedTensor<B>, transposed| {
        let mut shape = tensor.shape();
        let rank = shape.num_dims();
        if transposed {
            shape.swap(rank - 2, rank - 1);
        }
        shape
    };
    let shapes = [
        in_product(&left, left_transposed),
        in_product(&right, right_transposed),
    ];
    let (rounding, bias) = epilogue.unzip();
    let bias = bias.flatten();
    let shape = calculate_matmul_output(&shapes[0], &shapes[1])
        .unwrap_or_else(|error| panic!("burn-mx: {error:?}"));
    let inputs = [left, right]
        .into_iter()
        .chain(left_scale)
        .chain(right_scale)
        .chain(bias);
    let run = move |inputs: Vec<FloatTensor<B>>| {
        let mut inputs = inputs.into_iter();
        let [left, right] = [(); 2].map(|()| given(inputs.next()));
        let [left_scale, right_scale] =
            is_scaled.map(|is_scaled| if is_scaled { inputs.next() } else { None });
        let lhs = operand(left, left_transposed, left_scale);
        let rhs = operand(right, right_transposed, right_scale);
        FusionOutput::Float(match rounding {
            Some(rounding) => B::kernels().rounded_product(lhs, rhs, rounding, inputs.next()),
            None => B::kernels().product(lhs, rhs),
        })
    };
    register_one::<B>("mx_product", inputs.collect(), (shape, DType::F32), run)
}
