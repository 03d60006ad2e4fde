//! Native kernels for Flex: in place on the tensor's own bytes.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{Bytes, DType, Shape, TensorMetadata};
use burn_flex::{Flex, FlexTensor, Layout};
use microscaling::{BlockFormat, FloatFormat, RandomHadamard, RandomStream, Rounding};

use super::memory::{self, InMemory, change_in_place, changed_copy};
use super::quantize::Quantization;
use super::{
    BinaryOp, BinaryRecipe, MxKernels, NormRecipe, OpRounding, SoftmaxRecipe, Steps, UnaryOp,
    UnaryRecipe, memory_order, place_of, quantize_in_order, transform_dense,
};

impl MxKernels for Flex {
    fn mx_quantize(
        tensor: FlexTensor,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FlexTensor {
        let quantization = Quantization {
            elementwise: None,
            axis,
            format,
            rounding,
        };
        match quantization.is_local() {
            true => quantize(tensor, quantization),
            false => dense(tensor, rounding, |data, shape, order| {
                quantize_in_order(data, (shape, order), axis, format, rounding, stream);
            }),
        }
    }

    fn round_and_quantize(
        tensor: FlexTensor,
        elementwise: (FloatFormat, Rounding),
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
    ) -> FlexTensor {
        let quantization = Quantization {
            elementwise: Some(elementwise),
            axis,
            format,
            rounding,
        };
        quantize(tensor, quantization)
    }

    fn random_hadamard(
        tensor: FlexTensor,
        axis: usize,
        transform: RandomHadamard,
        signs: RandomStream,
    ) -> FlexTensor {
        dense(tensor, Rounding::Even, |data, shape, order| {
            transform_dense(data, shape, place_of(axis, order), transform, signs);
        })
    }

    fn float_round_to(
        tensor: FlexTensor,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FlexTensor {
        let round = |data: &mut [f32]| format.round_slice(data, rounding, stream);
        match rounding {
            Rounding::Stochastic => dense(tensor, rounding, |data, _, _| round(data)),
            _ => elementwise(tensor, round),
        }
    }

    /// Flex divides.
    fn exact_recip(tensor: FlexTensor) -> FlexTensor {
        Flex::float_recip(tensor)
    }

    fn unary_op(op: UnaryOp, tensor: FlexTensor, rounding: OpRounding) -> FlexTensor {
        op.apply(tensor, rounding)
    }

    fn binary_op(
        op: BinaryOp,
        lhs: FlexTensor,
        rhs: FlexTensor,
        rounding: OpRounding,
    ) -> FlexTensor {
        op.apply(lhs, rhs, rounding)
    }

    fn unary_recipe(recipe: UnaryRecipe, tensor: FlexTensor, steps: Steps) -> FlexTensor {
        elementwise(tensor, |data| recipe.apply(data, steps))
    }

    fn binary_recipe(
        recipe: BinaryRecipe,
        input: FlexTensor,
        grad: FlexTensor,
        steps: Steps,
    ) -> FlexTensor {
        let (input, grad) = (row_major(input), row_major(grad));
        let input = input.values();
        grad.change(1, |start, grad| {
            recipe.apply(grad, &input[start..start + grad.len()], steps);
        })
    }

    fn softmax_recipe(recipe: SoftmaxRecipe, tensor: FlexTensor) -> FlexTensor {
        memory::rows(tensor, |rows, length, _| recipe.forward(rows, length))
    }

    fn softmax_backward_recipe(
        recipe: SoftmaxRecipe,
        output: FlexTensor,
        grad: FlexTensor,
    ) -> FlexTensor {
        let output = row_major(output);
        memory::rows(grad, |grad, length, start| {
            recipe.backward(grad, &output.values()[start..], length);
        })
    }

    fn norm_recipe(
        recipe: NormRecipe,
        tensor: FlexTensor,
        gamma: FlexTensor,
        beta: Option<FlexTensor>,
    ) -> FlexTensor {
        let (gamma, beta) = (row_major(gamma), beta.map(row_major));
        let gamma = gamma.as_slice::<f32>().expect("the layout is row-major");
        let beta = beta.as_ref().and_then(|beta| beta.as_slice::<f32>());
        dense(row_major(tensor), Rounding::Even, |data, _, _| {
            recipe.forward(data, gamma, beta)
        })
    }

    fn norm_backward_recipe(
        recipe: NormRecipe,
        tensor: FlexTensor,
        gamma: FlexTensor,
        grad: FlexTensor,
    ) -> (FlexTensor, FlexTensor) {
        let gamma = row_major(gamma);
        let gamma = gamma.as_slice::<f32>().expect("the layout is row-major");
        let mut products = None;
        let grad = dense(row_major(grad), Rounding::Even, |grad, _, _| {
            products = Some(dense(row_major(tensor), Rounding::Even, |x, _, _| {
                recipe.backward(grad, x, gamma);
            }));
        });
        (grad, products.expect("the kernel has run"))
    }
}

impl InMemory for FlexTensor {
    fn dims(&self) -> Vec<usize> {
        self.layout().shape().to_vec()
    }

    fn row_major(self) -> Self {
        row_major(self)
    }

    fn values(&self) -> &[f32] {
        self.as_slice().expect("the layout is row-major")
    }

    fn change(mut self, unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        let start = self.layout().start_offset();
        let window = start..start + self.layout().num_elements();
        if let Some(storage) = self.try_storage_mut::<f32>() {
            change_in_place(&mut storage[window], unit, work);
            return self;
        }
        let values = changed_copy(self.values(), unit, work);
        let layout = Layout::contiguous(self.layout().shape().clone());
        FlexTensor::new(Bytes::from_elems(values), layout, DType::F32)
    }

    fn expand(self, dims: &[usize]) -> Self {
        Flex::float_expand(self, Shape::from(dims.to_vec()))
    }
}

fn row_major(tensor: FlexTensor) -> FlexTensor {
    match tensor.is_contiguous() {
        true => tensor,
        false => tensor.to_contiguous(),
    }
}

/// Rounds and quantizes without random numbers.
fn quantize(tensor: FlexTensor, quantization: Quantization) -> FlexTensor {
    match tensor.is_contiguous() && quantization.is_local() {
        true => quantization.in_pieces(tensor),
        false => dense(tensor, Rounding::Even, |data, shape, order| {
            quantization.at_once(data, shape, place_of(quantization.axis, order));
        }),
    }
}

/// Changes every value, in whatever order they lie in memory.
fn elementwise(tensor: FlexTensor, work: impl Fn(&mut [f32]) + Sync) -> FlexTensor {
    match tensor.is_contiguous() {
        true => tensor.change(1, |_, piece| work(piece)),
        false => dense(tensor, Rounding::Even, |data, _, _| work(data)),
    }
}

/// Applies `kernel(data, shape, order)` to the values as they lie in memory; `order` gives the tensor's axis
/// at each axis of `shape`.
fn dense(
    tensor: FlexTensor,
    rounding: Rounding,
    kernel: impl FnOnce(&mut [f32], &[usize], &[usize]),
) -> FlexTensor {
    let layout = tensor.layout();
    // Random numbers go by the element's logical position.
    let order = match rounding {
        Rounding::Stochastic => None,
        _ => memory_order(layout.shape(), layout.strides()),
    };
    match order {
        Some(order) => in_place(tensor, &order, kernel),
        None => {
            let order: Vec<usize> = (0..tensor.rank()).collect();
            in_place(tensor.to_contiguous(), &order, kernel)
        }
    }
}

/// [`dense`] for a tensor that lies densely in the order of axes `order`; in place if nobody else holds its
/// bytes.
fn in_place(
    mut tensor: FlexTensor,
    order: &[usize],
    kernel: impl FnOnce(&mut [f32], &[usize], &[usize]),
) -> FlexTensor {
    let layout = tensor.layout().clone();
    let shape: Vec<usize> = order.iter().map(|&axis| layout.shape()[axis]).collect();
    let window = layout.start_offset()..layout.start_offset() + layout.num_elements();
    if let Some(storage) = tensor.try_storage_mut::<f32>() {
        kernel(&mut storage[window], &shape, order);
        return tensor;
    }
    let mut values = tensor.storage::<f32>()[window].to_vec();
    kernel(&mut values, &shape, order);
    let layout = Layout::new(layout.shape().clone(), layout.strides().to_vec(), 0);
    FlexTensor::new(Bytes::from_elems(values), layout, tensor.dtype())
}
