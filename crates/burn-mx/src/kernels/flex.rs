//! Native kernels for Flex: in place on the tensor's own bytes.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{Bytes, TensorMetadata};
use burn_flex::{Flex, FlexTensor, Layout};
use microscaling::{BlockFormat, FloatFormat, RandomHadamard, RandomStream, Rounding};

use super::{
    BinaryRecipe, MxKernels, NormRecipe, Steps, UnaryRecipe, memory_order, place_of,
    quantize_in_order, transform_dense,
};

impl MxKernels for Flex {
    fn mx_quantize(
        tensor: FlexTensor,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FlexTensor {
        dense(tensor, rounding, |data, shape, order| {
            quantize_in_order(data, (shape, order), axis, format, rounding, stream);
        })
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
        dense(tensor, rounding, |data, _, _| {
            format.round_slice(data, rounding, stream)
        })
    }

    /// Flex divides.
    fn exact_recip(tensor: FlexTensor) -> FlexTensor {
        Flex::float_recip(tensor)
    }

    fn unary_recipe(recipe: UnaryRecipe, tensor: FlexTensor, steps: Steps) -> FlexTensor {
        dense(tensor, Rounding::Even, |data, _, _| {
            recipe.apply(data, steps)
        })
    }

    fn binary_recipe(
        recipe: BinaryRecipe,
        input: FlexTensor,
        grad: FlexTensor,
        steps: Steps,
    ) -> FlexTensor {
        let input = row_major(input);
        let input = input.as_slice::<f32>().expect("the layout is row-major");
        dense(row_major(grad), Rounding::Even, |grad, _, _| {
            recipe.apply(grad, input, steps)
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

fn row_major(tensor: FlexTensor) -> FlexTensor {
    match tensor.is_contiguous() {
        true => tensor,
        false => tensor.to_contiguous(),
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
