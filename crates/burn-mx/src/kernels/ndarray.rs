//! Native kernels for NdArray: in place on the array's own buffer.

use ::ndarray::{ArcArray, IxDyn};
use burn_backend::{DType, TensorMetadata};
use burn_ndarray::{
    FloatNdArrayElement, IntNdArrayElement, NdArray, NdArrayTensor, QuantElement, SharedArray,
};
use microscaling::{BlockFormat, FloatFormat, RandomHadamard, RandomStream, Rounding};

use super::{
    BinaryRecipe, MxKernels, NormRecipe, Steps, UnaryRecipe, memory_order, place_of,
    quantize_in_order, transform_dense,
};

impl<E, I, Q> MxKernels for NdArray<E, I, Q>
where
    E: FloatNdArrayElement,
    I: IntNdArrayElement,
    Q: QuantElement,
    NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
{
    fn mx_quantize(
        tensor: NdArrayTensor,
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> NdArrayTensor {
        dense(tensor, rounding, |data, shape, order| {
            quantize_in_order(data, (shape, order), axis, format, rounding, stream);
        })
    }

    fn random_hadamard(
        tensor: NdArrayTensor,
        axis: usize,
        transform: RandomHadamard,
        signs: RandomStream,
    ) -> NdArrayTensor {
        dense(tensor, Rounding::Even, |data, shape, order| {
            transform_dense(data, shape, place_of(axis, order), transform, signs);
        })
    }

    fn float_round_to(
        tensor: NdArrayTensor,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> NdArrayTensor {
        dense(tensor, rounding, |data, _, _| {
            format.round_slice(data, rounding, stream)
        })
    }

    fn unary_recipe(recipe: UnaryRecipe, tensor: NdArrayTensor, steps: Steps) -> NdArrayTensor {
        dense(tensor, Rounding::Even, |data, _, _| {
            recipe.apply(data, steps)
        })
    }

    fn binary_recipe(
        recipe: BinaryRecipe,
        input: NdArrayTensor,
        grad: NdArrayTensor,
        steps: Steps,
    ) -> NdArrayTensor {
        let (input, mut grad) = (row_major(input), row_major(grad));
        recipe.apply(
            row_major_slice(&mut grad),
            input.as_slice().expect(ROW_MAJOR),
            steps,
        );
        grad.into()
    }

    fn norm_recipe(
        recipe: NormRecipe,
        tensor: NdArrayTensor,
        gamma: NdArrayTensor,
        beta: Option<NdArrayTensor>,
    ) -> NdArrayTensor {
        let (mut tensor, gamma, beta) = (row_major(tensor), row_major(gamma), beta.map(row_major));
        let beta = beta.as_ref().map(|beta| beta.as_slice().expect(ROW_MAJOR));
        recipe.forward(
            row_major_slice(&mut tensor),
            gamma.as_slice().expect(ROW_MAJOR),
            beta,
        );
        tensor.into()
    }

    fn norm_backward_recipe(
        recipe: NormRecipe,
        tensor: NdArrayTensor,
        gamma: NdArrayTensor,
        grad: NdArrayTensor,
    ) -> (NdArrayTensor, NdArrayTensor) {
        let (mut tensor, gamma, mut grad) = (row_major(tensor), row_major(gamma), row_major(grad));
        recipe.backward(
            row_major_slice(&mut grad),
            row_major_slice(&mut tensor),
            gamma.as_slice().expect(ROW_MAJOR),
        );
        (grad.into(), tensor.into())
    }

    /// With burn-ndarray's feature `simd`, `float_recip` is the processor's approximation.
    fn exact_recip(tensor: NdArrayTensor) -> NdArrayTensor {
        dense(tensor, Rounding::Even, |data, _, _| {
            data.iter_mut().for_each(|x| *x = x.recip());
        })
    }
}

/// Applies `kernel(data, shape, order)` to the values as they lie in memory; `order` gives the tensor's axis
/// at each axis of `shape`.
fn dense(
    tensor: NdArrayTensor,
    rounding: Rounding,
    kernel: impl FnOnce(&mut [f32], &[usize], &[usize]),
) -> NdArrayTensor {
    let mut array = into_array(tensor);
    // Random numbers go by the element's logical position.
    let order = match rounding {
        Rounding::Stochastic => None,
        _ => memory_order(array.shape(), array.strides()),
    };
    let order = order.unwrap_or_else(|| {
        if !array.is_standard_layout() {
            array = array.as_standard_layout().into_owned().into_shared();
        }
        (0..array.ndim()).collect()
    });
    let shape: Vec<usize> = order.iter().map(|&axis| array.shape()[axis]).collect();
    let data = array
        .as_slice_memory_order_mut()
        .expect("the array is dense in memory");
    kernel(data, &shape, &order);
    array.into()
}

const ROW_MAJOR: &str = "the array has standard layout";

fn row_major(tensor: NdArrayTensor) -> ArcArray<f32, IxDyn> {
    let array = into_array(tensor);
    match array.is_standard_layout() {
        true => array,
        false => array.as_standard_layout().into_owned().into_shared(),
    }
}

/// The values, copied first if somebody else holds them too.
fn row_major_slice(array: &mut ArcArray<f32, IxDyn>) -> &mut [f32] {
    array.as_slice_mut().expect(ROW_MAJOR)
}

fn into_array(tensor: NdArrayTensor) -> ArcArray<f32, IxDyn> {
    match tensor {
        NdArrayTensor::F32(storage) => storage.into_shared(),
        other => panic!(
            "burn-mx: expected {:?} data, got {:?}",
            DType::F32,
            other.dtype()
        ),
    }
}
