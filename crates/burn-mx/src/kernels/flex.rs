//! Native kernels for Flex: in place on the tensor's own bytes.

use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use microscaling::{FloatFormat, MxFormat, RandomStream, Rounding};

use super::{MxKernels, memory_order, quantize_dense};

impl MxKernels for Flex {
    fn mx_quantize(
        tensor: FlexTensor,
        axis: usize,
        format: MxFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FlexTensor {
        dense(tensor, rounding, |data, shape, order| {
            let axis = order.iter().position(|&at| at == axis).expect("axis is one of the tensor's");
            quantize_dense(data, shape, axis, format, rounding, stream);
        })
    }

    fn float_round_to(
        tensor: FlexTensor,
        format: FloatFormat,
        rounding: Rounding,
        stream: RandomStream,
    ) -> FlexTensor {
        dense(tensor, rounding, |data, _, _| format.round_slice(data, rounding, stream))
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
    let Some(order) = order else {
        let identity: Vec<usize> = (0..tensor.rank()).collect();
        return row_major(tensor.to_contiguous(), |data, shape| kernel(data, shape, &identity));
    };
    if order.is_sorted() {
        return row_major(tensor, |data, shape| kernel(data, shape, &order));
    }
    let mut inverse = vec![0; order.len()];
    for (at, &axis) in order.iter().enumerate() {
        inverse[axis] = at;
    }
    let permuted = tensor.permute(&order);
    drop(tensor); // so that the bytes have one owner again
    row_major(permuted, |data, shape| kernel(data, shape, &order)).permute(&inverse)
}

/// Applies `kernel(data, shape)` to a tensor that is row-major, in place if nobody else holds its bytes.
fn row_major(mut tensor: FlexTensor, kernel: impl FnOnce(&mut [f32], &[usize])) -> FlexTensor {
    let shape = tensor.layout().shape().clone();
    let (start, end) = tensor
        .layout()
        .contiguous_offsets()
        .expect("the layout is row-major");
    if let Some(storage) = tensor.try_storage_mut::<f32>() {
        kernel(&mut storage[start..end], &shape);
        return tensor;
    }
    let mut values = tensor.storage::<f32>()[start..end].to_vec();
    kernel(&mut values, &shape);
    FlexTensor::from_data(TensorData::new(values, shape))
}
