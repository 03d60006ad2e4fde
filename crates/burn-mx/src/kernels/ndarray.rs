//! Native kernels for NdArray: in place on the array's own buffer.

use ::ndarray::{ArcArray, IxDyn};
use burn_backend::{DType, TensorMetadata};
use burn_ndarray::{
    FloatNdArrayElement, IntNdArrayElement, NdArray, NdArrayTensor, QuantElement, SharedArray,
};
use microscaling::{BlockFormat, FloatFormat, RandomHadamard, RandomStream, Rounding};

use super::memory::{self, InMemory, change_in_place, changed_copy};
use super::quantize::Quantization;
use super::{
    BinaryOp, BinaryRecipe, MxKernels, NormRecipe, OpRounding, SoftmaxRecipe, Steps, UnaryOp,
    UnaryRecipe, memory_order, place_of, quantize_in_order, transform_dense,
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
        tensor: NdArrayTensor,
        elementwise: (FloatFormat, Rounding),
        axis: usize,
        format: BlockFormat,
        rounding: Rounding,
    ) -> NdArrayTensor {
        let quantization = Quantization {
            elementwise: Some(elementwise),
            axis,
            format,
            rounding,
        };
        quantize(tensor, quantization)
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
        let round = |data: &mut [f32]| format.round_slice(data, rounding, stream);
        match rounding {
            Rounding::Stochastic => dense(tensor, rounding, |data, _, _| round(data)),
            _ => elementwise(tensor, round),
        }
    }

    fn unary_op(op: UnaryOp, tensor: NdArrayTensor, rounding: OpRounding) -> NdArrayTensor {
        op.apply(into_array(tensor), rounding).into()
    }

    fn binary_op(
        op: BinaryOp,
        lhs: NdArrayTensor,
        rhs: NdArrayTensor,
        rounding: OpRounding,
    ) -> NdArrayTensor {
        op.apply(into_array(lhs), into_array(rhs), rounding).into()
    }

    fn unary_recipe(recipe: UnaryRecipe, tensor: NdArrayTensor, steps: Steps) -> NdArrayTensor {
        elementwise(tensor, |data| recipe.apply(data, steps))
    }

    fn binary_recipe(
        recipe: BinaryRecipe,
        input: NdArrayTensor,
        grad: NdArrayTensor,
        steps: Steps,
    ) -> NdArrayTensor {
        let (input, grad) = (row_major(input), row_major(grad));
        let input = input.values();
        let grad = grad.change(1, |start, grad| {
            recipe.apply(grad, &input[start..start + grad.len()], steps);
        });
        grad.into()
    }

    fn softmax_recipe(recipe: SoftmaxRecipe, tensor: NdArrayTensor) -> NdArrayTensor {
        memory::rows(into_array(tensor), |rows, length, _| {
            recipe.forward(rows, length)
        })
        .into()
    }

    fn softmax_backward_recipe(
        recipe: SoftmaxRecipe,
        output: NdArrayTensor,
        grad: NdArrayTensor,
    ) -> NdArrayTensor {
        let output = row_major(output);
        memory::rows(into_array(grad), |grad, length, start| {
            recipe.backward(grad, &output.values()[start..], length);
        })
        .into()
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
        elementwise(tensor, |data| data.iter_mut().for_each(|x| *x = x.recip()))
    }
}

impl InMemory for ArcArray<f32, IxDyn> {
    fn dims(&self) -> Vec<usize> {
        self.shape().to_vec()
    }

    fn row_major(self) -> Self {
        match self.is_standard_layout() {
            true => self,
            false => self.as_standard_layout().into_owned().into_shared(),
        }
    }

    fn values(&self) -> &[f32] {
        self.as_slice().expect(ROW_MAJOR)
    }

    fn change(mut self, unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        if self.is_unique() {
            change_in_place(row_major_slice(&mut self), unit, work);
            return self;
        }
        let values = changed_copy(self.values(), unit, work);
        Self::from_shape_vec(self.raw_dim(), values).expect("the copy has as many elements")
    }

    fn expand(self, dims: &[usize]) -> Self {
        let view = self.broadcast(dims).expect("the shapes broadcast");
        view.to_owned().into_shared()
    }
}

/// Rounds and quantizes without random numbers.
fn quantize(tensor: NdArrayTensor, quantization: Quantization) -> NdArrayTensor {
    let array = into_array(tensor);
    match array.is_standard_layout() && quantization.is_local() {
        true => quantization.in_pieces(array).into(),
        false => dense(array.into(), Rounding::Even, |data, shape, order| {
            quantization.at_once(data, shape, place_of(quantization.axis, order));
        }),
    }
}

/// Changes every value, in whatever order they lie in memory.
fn elementwise(tensor: NdArrayTensor, work: impl Fn(&mut [f32]) + Sync) -> NdArrayTensor {
    let array = into_array(tensor);
    match array.is_standard_layout() {
        true => array.change(1, |_, piece| work(piece)).into(),
        false => dense(array.into(), Rounding::Even, |data, _, _| work(data)),
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
    into_array(tensor).row_major()
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
