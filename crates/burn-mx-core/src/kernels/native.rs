//! The kernels of backends whose tensors are slices of this process's memory: in place on the tensor's own buffer.

use microscaling::{
    BlockFormat, FloatFormat, OperandQuantization, RandomHadamard, RandomStream, Rounding, Signs,
    Statistics,
};

use super::memory::{self, InMemory};
use super::quantize::Quantization;
use super::{
    BinaryFunction, FunctionRounding, LogSoftmax, Normalization, Softmax, UnaryFunction,
    invert_dense, mask_dense, of_known, quantize_dense, statistics, transform_dense,
};

pub(super) fn mx_quantize<T: InMemory>(
    tensor: T,
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> T {
    let quantization = Quantization {
        elementwise: None,
        axis,
        format,
        rounding,
    };
    if quantization.is_local() {
        return quantize(tensor, quantization);
    }
    let tensor = in_order(tensor, rounding);
    in_pairs(tensor, format).change_where_it_lies(|data, shape, order| {
        let axis = place_of(axis, order);
        quantize_dense(data, shape, axis, format, rounding, stream);
    })
}

/// Quantizes without the tensor scale, which is given beside; `None` if it cannot be told apart.
pub(super) fn quantize_without_tensor_scale<T: InMemory>(
    tensor: T,
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> Option<(T, f32)> {
    let mut scale = None;
    let tensor = in_order(tensor, rounding);
    let tensor = in_pairs(tensor, format).change_where_it_lies(|data, shape, order| {
        let (axis, rounder) = (place_of(axis, order), rounding.with(stream));
        let quantized = format.quantize_without_tensor_scale(data, shape, axis, rounder);
        scale = quantized.unwrap_or_else(|error| panic!("burn-mx: {error}"));
    });
    scale.map(|scale| (tensor, scale))
}

/// Rounds and quantizes without random numbers.
pub(super) fn quantize<T: InMemory>(tensor: T, quantization: Quantization) -> T {
    match tensor.is_row_major() && quantization.is_local() {
        true => quantization.in_pieces(tensor),
        false => {
            in_pairs(tensor, quantization.format).change_where_it_lies(|data, shape, order| {
                quantization.at_once(data, shape, place_of(quantization.axis, order));
            })
        }
    }
}

pub(super) fn quantizing_statistics<T: InMemory>(
    tensor: T,
    axis: usize,
    quantization: OperandQuantization,
) -> Statistics {
    let tensor = tensor.row_major();
    let (values, shape) = (tensor.values(), tensor.dims());
    of_known(Statistics::of_quantizing(
        values,
        &shape,
        axis,
        quantization,
    ))
}

pub(super) fn quantization_statistics<T: InMemory>(
    before_and_after: [T; 2],
    axis: usize,
    format: Option<BlockFormat>,
) -> Statistics {
    let [before, after] = before_and_after.map(T::row_major);
    let values = [before.values(), after.values()];
    statistics(values, &before.dims(), axis, format)
}

pub(super) fn random_hadamard<T: InMemory>(
    tensor: T,
    axis: usize,
    transform: RandomHadamard,
    signs: Signs,
) -> T {
    tensor.change_where_it_lies(|data, shape, order| {
        transform_dense(data, shape, place_of(axis, order), transform, signs);
    })
}

pub(super) fn inverse_hadamard<T: InMemory>(
    tensor: T,
    axis: usize,
    transform: RandomHadamard,
    signs: Signs,
) -> T {
    tensor.change_where_it_lies(|data, shape, order| {
        invert_dense(data, shape, place_of(axis, order), transform, signs);
    })
}

pub(super) fn mask_clipped<T: InMemory>(
    gradient: T,
    values: T,
    axis: usize,
    format: BlockFormat,
) -> T {
    let shape = gradient.dims();
    let elements: usize = shape.iter().product();
    let values = values.row_major();
    let values = values.values();
    gradient.row_major().change(elements.max(1), |_, gradient| {
        mask_dense(gradient, values, &shape, axis, format);
    })
}

pub(super) fn float_round_to<T: InMemory>(
    tensor: T,
    format: FloatFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> T {
    let round = |data: &mut [f32]| format.round_slice(data, rounding.with(stream));
    match rounding {
        Rounding::Stochastic => tensor
            .row_major()
            .change_where_it_lies(|data, _, _| round(data)),
        _ => elementwise(tensor, round),
    }
}

pub(super) fn unary_function<T: InMemory>(
    function: UnaryFunction,
    tensor: T,
    rounding: FunctionRounding,
) -> T {
    elementwise(tensor, |data| function.apply(data, rounding))
}

pub(super) fn binary_function<T: InMemory>(
    function: BinaryFunction,
    input: T,
    grad: T,
    rounding: FunctionRounding,
) -> T {
    let input = input.row_major();
    let input = input.values();
    grad.row_major().change(1, |start, grad| {
        function.apply(grad, &input[start..start + grad.len()], rounding);
    })
}

pub(super) fn rounded_softmax<T: InMemory>(function: Softmax, tensor: T) -> T {
    memory::rows(tensor, |rows, length, _| function.forward(rows, length))
}

pub(super) fn rounded_softmax_backward<T: InMemory>(function: Softmax, output: T, grad: T) -> T {
    let output = output.row_major();
    let output = output.values();
    memory::rows(grad, |grad, length, start| {
        function.backward(grad, &output[start..start + grad.len()], length);
    })
}

pub(super) fn rounded_log_softmax<T: InMemory>(function: LogSoftmax, tensor: T) -> T {
    memory::rows(tensor, |rows, length, _| function.forward(rows, length))
}

pub(super) fn rounded_log_softmax_backward<T: InMemory>(
    function: LogSoftmax,
    input: T,
    grad: T,
) -> T {
    let input = input.row_major();
    let input = input.values();
    memory::rows(grad, |grad, length, start| {
        function.backward(grad, &input[start..start + grad.len()], length);
    })
}

pub(super) fn rounded_norm<T: InMemory>(
    function: Normalization,
    tensor: T,
    gamma: T,
    beta: Option<T>,
) -> T {
    let (gamma, beta) = (gamma.row_major(), beta.map(T::row_major));
    let (gamma, beta) = (gamma.values(), beta.as_ref().map(T::values));
    memory::rows(tensor, |rows, _, _| function.forward(rows, gamma, beta))
}

pub(super) fn rounded_norm_backward<T: InMemory>(
    function: Normalization,
    tensor: T,
    gamma: T,
    grad: T,
) -> (T, T) {
    let gamma = gamma.row_major();
    let gamma = gamma.values();
    let mut products = None;
    let grad = grad.row_major().change_where_it_lies(|grad, _, _| {
        let tensor = tensor.row_major();
        products = Some(tensor.change_where_it_lies(|x, _, _| function.backward(grad, x, gamma)));
    });
    (grad, products.expect("the kernel has run"))
}

/// Changes every value, in whatever order they lie in memory.
pub(super) fn elementwise<T: InMemory>(tensor: T, work: impl Fn(&mut [f32]) + Sync) -> T {
    match tensor.is_row_major() {
        true => tensor.change(1, |_, piece| work(piece)),
        false => tensor.change_where_it_lies(|data, _, _| work(data)),
    }
}

/// The tensor in the order in which random numbers go by its elements, if there are any.
fn in_order<T: InMemory>(tensor: T, rounding: Rounding) -> T {
    match rounding {
        Rounding::Stochastic => tensor.row_major(),
        _ => tensor,
    }
}

/// The tensor with the two axes of square blocks where they are the two of either in memory, too: a matrix lies in one of two
/// orders, and blocks are the same in both.
fn in_pairs<T: InMemory>(tensor: T, format: BlockFormat) -> T {
    match format.is_square() && tensor.dims().len() > 2 {
        true => tensor.row_major(),
        false => tensor,
    }
}

/// The place of a tensor's axis in `order`, which gives the tensor's axis at each axis in memory.
fn place_of(axis: usize, order: &[usize]) -> usize {
    let place = order.iter().position(|&at| at == axis);
    place.expect("axis is one of the tensor's")
}

/// The methods of [`MxKernels`](super::MxKernels) that are one of these kernels, for a backend whose tensors are made
/// [`InMemory`] by `$in_memory`, and back by `into`.
macro_rules! native_kernels {
    ($in_memory:path) => {
        fn mx_quantize(
            tensor: FloatTensor<Self>,
            axis: usize,
            format: BlockFormat,
            rounding: Rounding,
            stream: RandomStream,
        ) -> FloatTensor<Self> {
            native::mx_quantize($in_memory(tensor), axis, format, rounding, stream).into()
        }

        fn round_and_quantize(
            tensor: FloatTensor<Self>,
            elementwise: (FloatFormat, Rounding),
            axis: usize,
            format: BlockFormat,
            rounding: Rounding,
        ) -> FloatTensor<Self> {
            let quantization = Quantization {
                elementwise: Some(elementwise),
                axis,
                format,
                rounding,
            };
            native::quantize($in_memory(tensor), quantization).into()
        }

        fn quantizing_statistics(
            tensor: &FloatTensor<Self>,
            axis: usize,
            quantization: OperandQuantization,
        ) -> TensorStatistics<Self> {
            let tensor = $in_memory(tensor.clone());
            TensorStatistics::beside(tensor.dims().iter().product(), move || {
                native::quantizing_statistics(tensor, axis, quantization)
            })
        }

        fn quantization_statistics(
            before_and_after: [&FloatTensor<Self>; 2],
            axis: usize,
            format: Option<BlockFormat>,
        ) -> TensorStatistics<Self> {
            let tensors = before_and_after.map(|tensor| $in_memory(tensor.clone()));
            let elements: usize = tensors[0].dims().iter().product();
            TensorStatistics::beside(2 * elements, move || {
                native::quantization_statistics(tensors, axis, format)
            })
        }

        fn product_statistics(
            lhs: Operand<FloatTensor<Self>>,
            rhs: Operand<FloatTensor<Self>>,
            result: &FloatTensor<Self>,
        ) -> TensorStatistics<Self> {
            let result = $in_memory(result.clone());
            let elements = lhs.elements() + rhs.elements() + result.dims().iter().product::<usize>();
            TensorStatistics::beside(elements, move || {
                let reference = $in_memory(Self::product(lhs, rhs));
                native::quantization_statistics([reference, result], 0, None)
            })
        }

        fn random_hadamard(
            tensor: FloatTensor<Self>,
            axis: usize,
            transform: RandomHadamard,
            signs: Signs,
        ) -> FloatTensor<Self> {
            native::random_hadamard($in_memory(tensor), axis, transform, signs).into()
        }

        fn inverse_hadamard(
            tensor: FloatTensor<Self>,
            axis: usize,
            transform: RandomHadamard,
            signs: Signs,
        ) -> FloatTensor<Self> {
            native::inverse_hadamard($in_memory(tensor), axis, transform, signs).into()
        }

        fn mask_clipped(
            gradient: FloatTensor<Self>,
            values: FloatTensor<Self>,
            axis: usize,
            format: BlockFormat,
        ) -> FloatTensor<Self> {
            native::mask_clipped($in_memory(gradient), $in_memory(values), axis, format).into()
        }

        fn float_round_to(
            tensor: FloatTensor<Self>,
            format: FloatFormat,
            rounding: Rounding,
            stream: RandomStream,
        ) -> FloatTensor<Self> {
            native::float_round_to($in_memory(tensor), format, rounding, stream).into()
        }

        fn unary_op(
            op: UnaryOp,
            tensor: FloatTensor<Self>,
            rounding: OpRounding,
        ) -> FloatTensor<Self> {
            op.apply($in_memory(tensor), rounding).into()
        }

        fn binary_op(
            op: BinaryOp,
            lhs: FloatTensor<Self>,
            rhs: FloatTensor<Self>,
            rounding: OpRounding,
        ) -> FloatTensor<Self> {
            op.apply($in_memory(lhs), $in_memory(rhs), rounding).into()
        }

        fn unary_function(
            function: UnaryFunction,
            tensor: FloatTensor<Self>,
            rounding: FunctionRounding,
        ) -> FloatTensor<Self> {
            native::unary_function(function, $in_memory(tensor), rounding).into()
        }

        fn binary_function(
            function: BinaryFunction,
            input: FloatTensor<Self>,
            grad: FloatTensor<Self>,
            rounding: FunctionRounding,
        ) -> FloatTensor<Self> {
            native::binary_function(function, $in_memory(input), $in_memory(grad), rounding).into()
        }

        fn rounded_softmax(function: Softmax, tensor: FloatTensor<Self>) -> FloatTensor<Self> {
            native::rounded_softmax(function, $in_memory(tensor)).into()
        }

        fn rounded_softmax_backward(
            function: Softmax,
            output: FloatTensor<Self>,
            grad: FloatTensor<Self>,
        ) -> FloatTensor<Self> {
            native::rounded_softmax_backward(function, $in_memory(output), $in_memory(grad)).into()
        }

        fn rounded_log_softmax(
            function: LogSoftmax,
            tensor: FloatTensor<Self>,
        ) -> FloatTensor<Self> {
            native::rounded_log_softmax(function, $in_memory(tensor)).into()
        }

        fn rounded_log_softmax_backward(
            function: LogSoftmax,
            input: FloatTensor<Self>,
            grad: FloatTensor<Self>,
        ) -> FloatTensor<Self> {
            native::rounded_log_softmax_backward(function, $in_memory(input), $in_memory(grad))
                .into()
        }

        fn rounded_norm(
            function: Normalization,
            tensor: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            beta: Option<FloatTensor<Self>>,
        ) -> FloatTensor<Self> {
            let beta = beta.map($in_memory);
            native::rounded_norm(function, $in_memory(tensor), $in_memory(gamma), beta).into()
        }

        fn rounded_norm_backward(
            function: Normalization,
            tensor: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            grad: FloatTensor<Self>,
        ) -> (FloatTensor<Self>, FloatTensor<Self>) {
            let [tensor, gamma, grad] = [tensor, gamma, grad].map($in_memory);
            let (grad, products) = native::rounded_norm_backward(function, tensor, gamma, grad);
            (grad.into(), products.into())
        }
    };
}

/// The products of [`MxKernels`](super::MxKernels) in bfloat16 panels, for a backend all of whose tensors are made [`InMemory`],
/// a `$tensor`, by `$in_memory`, and back by `into`.
macro_rules! native_products {
    ($in_memory:path, $tensor:ty) => {
        fn product_operand(
            tensor: FloatTensor<Self>,
            form: OperandForm,
        ) -> Operand<FloatTensor<Self>> {
            let tensor = $in_memory(tensor);
            match panels::operand(&tensor, form) {
                Some(operand) => operand,
                None => product::in_tensor::<Self>(tensor.into(), form),
            }
        }

        fn product(
            lhs: Operand<FloatTensor<Self>>,
            rhs: Operand<FloatTensor<Self>>,
        ) -> FloatTensor<Self> {
            match panels::multiply::<$tensor, _>(&lhs, &rhs) {
                Some(result) => result.into(),
                None => product::of_tensors::<Self>(lhs, rhs),
            }
        }

        fn convolution_product(
            convolution: &Convolution,
            product: &ConvolutionProduct,
            operands: [&FloatTensor<Self>; 2],
            bias: Option<&FloatTensor<Self>>,
            significant_bits: u32,
        ) -> Option<FloatTensor<Self>> {
            let [first, second] = operands.map(|operand| $in_memory(operand.clone()));
            let (operands, bias) = ([&first, &second], bias.map(|bias| $in_memory(bias.clone())));
            im2col::convolve(convolution, product, operands, bias, significant_bits).map(Into::into)
        }
    };
}

pub(super) use {native_kernels, native_products};
