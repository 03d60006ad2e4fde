//! burn-fusion around a backend with kernels: each kernel is an operation of its stream.
//!
//! What an operation does stands in a closure that the stream runs, with all that changes from call to call in it: streams
//! look alike from step to step, and what was found out of one serves the next.

use core::fmt;
use std::marker::PhantomData;

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{DType, Shape, TensorMetadata, calculate_matmul_output};
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{Fusion, FusionBackend, FusionTensor, NoOp, get_client};
use burn_ir::{CustomOpIr, HandleContainer, InitOperationIr, OperationIr, TensorIr};
use microscaling::{
    BlockFormat, FloatFormat, PackError, Packed, PackedView, RandomHadamard, RandomStream,
    Rounding, Signs, StatisticsParts,
};

use super::product::{self, Operand, OperandForm};
use super::statistics;
use super::{
    BinaryFunction, BinaryOp, Convolution, ConvolutionProduct, FunctionRounding, LogSoftmax,
    MxKernels, Normalization, OpRounding, Softmax, UnaryFunction, UnaryOp,
};

/// A kernel of `B` in a stream.
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

impl<B, F, const INPUTS: usize, const OUTPUTS: usize> Operation<B::FusionRuntime>
    for KernelOperation<B, Kernel<F, INPUTS, OUTPUTS>>
where
    B: FusionBackend,
    F: Fn([FloatTensor<B>; INPUTS]) -> [FloatTensor<B>; OUTPUTS] + Send + Sync,
{
    fn execute(&self, handles: &mut HandleContainer<B::Handle>) {
        let (inputs, outputs) = self.description.as_fixed::<INPUTS, OUTPUTS>();
        let inputs = inputs
            .each_ref()
            .map(|input| handles.get_float_tensor::<B>(input));
        let results = (self.run.0)(inputs);
        for (output, result) in outputs.iter().zip(results) {
            handles.register_float_tensor::<B>(&output.id, result);
        }
    }
}

/// A function of tensors, with how many it takes and gives.
struct Kernel<F, const INPUTS: usize, const OUTPUTS: usize>(F);

impl<B, F, const INPUTS: usize> Operation<B::FusionRuntime>
    for KernelOperation<B, WordsKernel<F, INPUTS>>
where
    B: FusionBackend,
    F: Fn([FloatTensor<B>; INPUTS]) -> IntTensor<B> + Send + Sync,
{
    fn execute(&self, handles: &mut HandleContainer<B::Handle>) {
        let (inputs, [output]) = self.description.as_fixed::<INPUTS, 1>();
        let inputs = inputs
            .each_ref()
            .map(|input| handles.get_float_tensor::<B>(input));
        handles.register_int_tensor::<B>(&output.id, (self.run.0)(inputs));
    }
}

/// A function of tensors that gives words.
struct WordsKernel<F, const INPUTS: usize>(F);

type Tensor<B> = FusionTensor<<B as FusionBackend>::FusionRuntime>;

/// Puts a kernel into the stream of its inputs.
fn register<B: FusionBackend + 'static, const INPUTS: usize, const OUTPUTS: usize>(
    id: &'static str,
    inputs: [Tensor<B>; INPUTS],
    outputs: [(Shape, DType); OUTPUTS],
    run: impl Fn([FloatTensor<B>; INPUTS]) -> [FloatTensor<B>; OUTPUTS] + Send + Sync + 'static,
) -> [Tensor<B>; OUTPUTS] {
    register_kernel::<B, _, INPUTS, OUTPUTS>(id, inputs, outputs, Kernel(run))
}

fn register_kernel<B, K, const INPUTS: usize, const OUTPUTS: usize>(
    id: &'static str,
    inputs: [Tensor<B>; INPUTS],
    outputs: [(Shape, DType); OUTPUTS],
    run: K,
) -> [Tensor<B>; OUTPUTS]
where
    B: FusionBackend + 'static,
    KernelOperation<B, K>: Operation<B::FusionRuntime> + 'static,
{
    let client = inputs[0].client.clone();
    // A tensor that is there twice is left to the last of its uses only if the streams are known before.
    let streams = OperationStreams::with_inputs(inputs.iter());
    let inputs = inputs.map(|input| input.into_ir());
    let outputs =
        outputs.map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype));
    let description = CustomOpIr::new(id, &inputs, &outputs);
    let operation = KernelOperation::<B, K> {
        description: description.clone(),
        run,
        _backend: PhantomData,
    };
    let outputs = client.register(streams, OperationIr::Custom(description), operation);
    outputs
        .try_into()
        .unwrap_or_else(|_| unreachable!("a stream gives what was asked of it"))
}

/// A kernel whose output is like its first input.
fn alike<B: FusionBackend + 'static, const INPUTS: usize>(
    id: &'static str,
    inputs: [Tensor<B>; INPUTS],
    run: impl Fn([FloatTensor<B>; INPUTS]) -> FloatTensor<B> + Send + Sync + 'static,
) -> Tensor<B> {
    let like = (inputs[0].shape(), inputs[0].dtype());
    let [output] = register::<B, INPUTS, 1>(id, inputs, [like], move |inputs| [run(inputs)]);
    output
}

impl<B: FusionBackend + MxKernels + 'static> MxKernels for Fusion<B> {
    fn mx_quantize(
        tensor: Tensor<B>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Tensor<B> {
        alike::<B, 1>("mx_quantize", [tensor], move |[tensor]| {
            B::mx_quantize(tensor, axis, format, rounding, stream)
        })
    }

    // What is packed is read by the host, and what is unpacked was there: both wait for the stream anyway.
    fn pack(
        tensor: Tensor<B>,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<Packed, PackError> {
        let client = tensor.client.clone();
        let tensor = client.resolve_tensor_float::<B>(tensor);
        B::pack(tensor, axis, format, rounding, stream)
    }

    fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> Tensor<B> {
        let client = get_client::<B>(device);
        let tensor = B::unpack(packed, device);
        let (shape, dtype) = (tensor.shape(), tensor.dtype());
        let handle = B::float_tensor_handle(tensor);
        let output =
            InitOperationIr::create(shape, dtype, || client.register_tensor_handle(handle));
        let operation = OperationIr::Init(output);
        let mut outputs = client.register(OperationStreams::default(), operation, NoOp::<B>::new());
        outputs.remove(0)
    }

    fn random_hadamard(
        tensor: Tensor<B>,
        axis: usize,
        transform: RandomHadamard,
        signs: Signs,
    ) -> Tensor<B> {
        alike::<B, 1>("mx_random_hadamard", [tensor], move |[tensor]| {
            B::random_hadamard(tensor, axis, transform, signs)
        })
    }

    fn inverse_hadamard(
        tensor: Tensor<B>,
        axis: usize,
        transform: RandomHadamard,
        signs: Signs,
    ) -> Tensor<B> {
        alike::<B, 1>("mx_inverse_hadamard", [tensor], move |[tensor]| {
            B::inverse_hadamard(tensor, axis, transform, signs)
        })
    }

    fn mask_clipped(
        gradient: Tensor<B>,
        values: Tensor<B>,
        axis: usize,
        format: BlockFormat,
    ) -> Tensor<B> {
        alike::<B, 2>(
            "mx_mask_clipped",
            [gradient, values],
            move |[gradient, values]| B::mask_clipped(gradient, values, axis, format),
        )
    }

    fn has_statistics_words(format: Option<BlockFormat>, parts: &StatisticsParts) -> bool {
        B::has_statistics_words(format, parts)
    }

    fn statistics_words(
        before_and_after: [&Tensor<B>; 2],
        format: Option<BlockFormat>,
        parts: &StatisticsParts,
    ) -> Tensor<B> {
        let (parts, words) = (*parts, statistics::length(parts));
        let run = move |[before, after]: [FloatTensor<B>; 2]| {
            B::statistics_words([&before, &after], format, &parts)
        };
        let [output] = register_kernel::<B, _, 2, 1>(
            "mx_statistics",
            before_and_after.map(Clone::clone),
            [(Shape::new([words]), DType::I32)],
            WordsKernel(run),
        );
        output
    }

    fn round_and_quantize(
        tensor: Tensor<B>,
        elementwise: (FloatFormat, Rounding),
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
    ) -> Tensor<B> {
        alike::<B, 1>("mx_round_and_quantize", [tensor], move |[tensor]| {
            B::round_and_quantize(tensor, elementwise, axis, format, rounding)
        })
    }

    fn has_own_product(device: &Self::Device) -> bool {
        B::has_own_product(device)
    }

    fn operand_dtype(device: &Self::Device, form: OperandForm) -> DType {
        B::operand_dtype(device, form)
    }

    fn operand_has_tensor_scale(device: &Self::Device, form: OperandForm) -> bool {
        B::operand_has_tensor_scale(device, form)
    }

    fn product_operand(tensor: Tensor<B>, form: OperandForm) -> Operand<Tensor<B>> {
        let device = tensor.client.device().clone();
        let dtype = B::operand_dtype(&device, form);
        let has_tensor_scale = B::operand_has_tensor_scale(&device, form);
        if dtype == DType::F32 && !has_tensor_scale {
            return product::in_tensor::<Self>(tensor, form);
        }
        let name = "mx_product_operand";
        let values = (form.place.shape_of(tensor.shape()), dtype);
        let parts = move |tensor| match B::product_operand(tensor, form) {
            Operand::Tensor {
                values,
                tensor_scale,
                ..
            } => (values, tensor_scale),
            Operand::Panels { .. } => unreachable!("panels have no float type"),
        };
        let (values, tensor_scale) = match has_tensor_scale {
            true => {
                let scale = (Shape::new([1]), DType::F32);
                let run = move |[tensor]: [FloatTensor<B>; 1]| {
                    let (values, scale) = parts(tensor);
                    [
                        values,
                        scale.expect("the backend has said that there is one"),
                    ]
                };
                let [values, scale] = register::<B, 1, 2>(name, [tensor], [values, scale], run);
                (values, Some(scale))
            }
            false => {
                let run = move |[tensor]: [FloatTensor<B>; 1]| [parts(tensor).0];
                let [values] = register::<B, 1, 1>(name, [tensor], [values], run);
                (values, None)
            }
        };
        Operand::Tensor {
            values,
            transposed: form.place.transposed,
            tensor_scale,
        }
    }

    fn product(lhs: Operand<Tensor<B>>, rhs: Operand<Tensor<B>>) -> Tensor<B> {
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
        let device = left.client.device().clone();
        fn operand<P>(values: P, transposed: bool, tensor_scale: Option<P>) -> Operand<P> {
            Operand::Tensor {
                values,
                transposed,
                tensor_scale,
            }
        }
        let is_scaled = left_scale.is_some() || right_scale.is_some();
        if !B::has_own_product(&device) && !is_scaled {
            // An op that burn-fusion knows: it may fuse what follows.
            let operands = (
                operand(left, left_transposed, None),
                operand(right, right_transposed, None),
            );
            return product::of_tensors::<Self>(operands.0, operands.1);
        }
        let in_product = |tensor: &Tensor<B>, transposed| {
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
        let shape = calculate_matmul_output(&shapes[0], &shapes[1])
            .unwrap_or_else(|error| panic!("burn-mx: {error:?}"));
        let (name, output) = ("mx_product", [(shape, DType::F32)]);
        let multiply = move |[left, right]: [FloatTensor<B>; 2],
                             left_scale: Option<FloatTensor<B>>,
                             right_scale: Option<FloatTensor<B>>| {
            [B::product(
                operand(left, left_transposed, left_scale),
                operand(right, right_transposed, right_scale),
            )]
        };
        let [output] = match (left_scale, right_scale) {
            (None, None) => {
                let run = move |operands| multiply(operands, None, None);
                register::<B, 2, 1>(name, [left, right], output, run)
            }
            (Some(scale), None) => {
                let run = move |[left, right, scale]: [FloatTensor<B>; 3]| {
                    multiply([left, right], Some(scale), None)
                };
                register::<B, 3, 1>(name, [left, right, scale], output, run)
            }
            (None, Some(scale)) => {
                let run = move |[left, right, scale]: [FloatTensor<B>; 3]| {
                    multiply([left, right], None, Some(scale))
                };
                register::<B, 3, 1>(name, [left, right, scale], output, run)
            }
            (Some(left_scale), Some(right_scale)) => {
                let inputs = [left, right, left_scale, right_scale];
                let run = move |[left, right, left_scale, right_scale]: [FloatTensor<B>; 4]| {
                    multiply([left, right], Some(left_scale), Some(right_scale))
                };
                register::<B, 4, 1>(name, inputs, output, run)
            }
        };
        output
    }

    fn has_own_convolution(device: &Self::Device, significant_bits: u32) -> bool {
        B::has_own_convolution(device, significant_bits)
    }

    fn convolution_product(
        convolution: &Convolution,
        product: &ConvolutionProduct,
        operands: [&Tensor<B>; 2],
        bias: Option<&Tensor<B>>,
        significant_bits: u32,
    ) -> Option<Tensor<B>> {
        if !B::has_own_convolution(operands[0].client.device(), significant_bits) {
            // An op that burn-fusion knows: it may fuse what follows.
            return None;
        }
        let output = [(Shape::from(product.shape().to_vec()), DType::F32)];
        let [first, second] = operands.map(Clone::clone);
        let (convolution, product) = (convolution.clone(), product.clone());
        let convolve = move |operands: [&FloatTensor<B>; 2], bias: Option<&FloatTensor<B>>| {
            B::convolution_product(&convolution, &product, operands, bias, significant_bits)
                .expect("the backend has said that it computes this product")
        };
        let [output] = match bias.cloned() {
            Some(bias) => register::<B, 3, 1>(
                "mx_convolution",
                [first, second, bias],
                output,
                move |[first, second, bias]| [convolve([&first, &second], Some(&bias))],
            ),
            None => register::<B, 2, 1>(
                "mx_convolution",
                [first, second],
                output,
                move |[first, second]| [convolve([&first, &second], None)],
            ),
        };
        Some(output)
    }

    fn float_round_to(
        tensor: Tensor<B>,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Tensor<B> {
        alike::<B, 1>("mx_float_round_to", [tensor], move |[tensor]| {
            B::float_round_to(tensor, format, rounding, stream)
        })
    }

    fn unary_op(op: UnaryOp, tensor: Tensor<B>, rounding: OpRounding) -> Tensor<B> {
        alike::<B, 1>("mx_unary_op", [tensor], move |[tensor]| {
            B::unary_op(op, tensor, rounding)
        })
    }

    fn binary_op(op: BinaryOp, lhs: Tensor<B>, rhs: Tensor<B>, rounding: OpRounding) -> Tensor<B> {
        let shape = lhs.shape().broadcast(&rhs.shape());
        let shape = shape.unwrap_or_else(|error| panic!("burn-mx: {error:?}"));
        let dtype = lhs.dtype();
        let [output] = register::<B, 2, 1>(
            "mx_binary_op",
            [lhs, rhs],
            [(shape, dtype)],
            move |[lhs, rhs]| [B::binary_op(op, lhs, rhs, rounding)],
        );
        output
    }

    fn unary_function(
        function: UnaryFunction,
        tensor: Tensor<B>,
        rounding: FunctionRounding,
    ) -> Tensor<B> {
        alike::<B, 1>("mx_unary_function", [tensor], move |[tensor]| {
            B::unary_function(function, tensor, rounding)
        })
    }

    fn binary_function(
        function: BinaryFunction,
        input: Tensor<B>,
        grad: Tensor<B>,
        rounding: FunctionRounding,
    ) -> Tensor<B> {
        alike::<B, 2>("mx_binary_function", [input, grad], move |[input, grad]| {
            B::binary_function(function, input, grad, rounding)
        })
    }

    fn rounded_norm(
        function: Normalization,
        tensor: Tensor<B>,
        gamma: Tensor<B>,
        beta: Option<Tensor<B>>,
    ) -> Tensor<B> {
        match beta {
            Some(beta) => alike::<B, 3>(
                "mx_norm",
                [tensor, gamma, beta],
                move |[tensor, gamma, beta]| B::rounded_norm(function, tensor, gamma, Some(beta)),
            ),
            None => alike::<B, 2>("mx_norm", [tensor, gamma], move |[tensor, gamma]| {
                B::rounded_norm(function, tensor, gamma, None)
            }),
        }
    }

    fn rounded_norm_backward(
        function: Normalization,
        tensor: Tensor<B>,
        gamma: Tensor<B>,
        grad: Tensor<B>,
    ) -> (Tensor<B>, Tensor<B>) {
        let like = (tensor.shape(), tensor.dtype());
        let [grad, products] = register::<B, 3, 2>(
            "mx_norm_backward",
            [tensor, gamma, grad],
            [like.clone(), like],
            move |[tensor, gamma, grad]| {
                let (grad, products) = B::rounded_norm_backward(function, tensor, gamma, grad);
                [grad, products]
            },
        );
        (grad, products)
    }

    fn rounded_softmax(function: Softmax, tensor: Tensor<B>) -> Tensor<B> {
        alike::<B, 1>("mx_softmax", [tensor], move |[tensor]| {
            B::rounded_softmax(function, tensor)
        })
    }

    fn rounded_softmax_backward(
        function: Softmax,
        output: Tensor<B>,
        grad: Tensor<B>,
    ) -> Tensor<B> {
        alike::<B, 2>(
            "mx_softmax_backward",
            [output, grad],
            move |[output, grad]| B::rounded_softmax_backward(function, output, grad),
        )
    }

    fn rounded_log_softmax(function: LogSoftmax, tensor: Tensor<B>) -> Tensor<B> {
        alike::<B, 1>("mx_log_softmax", [tensor], move |[tensor]| {
            B::rounded_log_softmax(function, tensor)
        })
    }

    fn rounded_log_softmax_backward(
        function: LogSoftmax,
        input: Tensor<B>,
        grad: Tensor<B>,
    ) -> Tensor<B> {
        alike::<B, 2>(
            "mx_log_softmax_backward",
            [input, grad],
            move |[input, grad]| B::rounded_log_softmax_backward(function, input, grad),
        )
    }

    fn exact_recip(tensor: Tensor<B>) -> Tensor<B> {
        alike::<B, 1>("mx_recip", [tensor], move |[tensor]| B::exact_recip(tensor))
    }
}
