//! An operand whose blocks have scales that were fixed by calibration.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, Slice, TensorData, TensorMetadata, get_device_settings};
use microscaling::{BlockFormat, RandomStream, Rounding};

use crate::specs::{StaticInput, block_length};
use burn_mx_kernels::MxKernels;

/// Quantizes along an axis of the calibrated length. Each block takes its scale from the largest magnitude that calibration
/// found. Finite numbers beyond the range of this scale saturate. NaN and Inf act as in a block with its own scale: the block
/// becomes NaN, or the element passes.
///
/// The ordinary rule computes the scales. Before each block stands an element with the calibrated magnitude. Elements that
/// would enlarge the scale are cut off at the end of the magnitude's binade, where every format is at its largest number.
/// This works for formats whose scale follows from the exponent of the largest magnitude alone.
pub(super) fn quantize<B: MxKernels>(
    tensor: FloatTensor<B>,
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    input: &StaticInput,
) -> FloatTensor<B> {
    let shape = tensor.shape();
    let (outer, length) = (shape[..axis].iter().product(), shape[axis]);
    let inner: usize = shape[axis + 1..].iter().product();
    if outer * length * inner == 0 {
        return tensor;
    }
    let device = B::float_device(&tensor);
    let vector = |values: Vec<f32>, shape: Shape| {
        B::float_from_data(TensorData::new(values, shape), &device)
    };
    let size = block_length(format, length);
    let blocks = length.div_ceil(size);
    let largest_of_binade = |amax: f32| {
        // Zeros and subnormals have the scale of the smallest normal numbers.
        let exponent = (amax.to_bits() >> 23).max(1);
        f32::from_bits(((exponent + 1) << 23) - 1)
    };
    let limits: Vec<f32> = input
        .amax()
        .flat_map(|amax| core::iter::repeat_n(largest_of_binade(amax), size))
        .take(length)
        .collect();
    let limits = vector(limits, Shape::new([1, length, 1]));
    let tensor = B::float_reshape(tensor, Shape::new([outer, length, inner]));
    let tensor = cut_off::<B>(tensor, limits);
    let missing = blocks * size - length;
    let tensor = match missing {
        0 => tensor,
        _ => {
            let zeros = Shape::new([outer, missing, inner]);
            let zeros = vector(vec![0.0; zeros.num_elements()], zeros);
            B::float_cat(vec![tensor, zeros], 1)
        }
    };
    let tensor = B::float_reshape(tensor, Shape::new([outer, blocks, size, inner]));
    let (pins, format) = with_pins(format, size);
    let pin = |amax: f32| core::iter::once(amax).chain(core::iter::repeat_n(0.0, pins - 1));
    let pinned = input.amax().flat_map(pin).collect();
    let pinned = vector(pinned, Shape::new([1, blocks, pins, 1]));
    let pinned = B::float_expand(pinned, Shape::new([outer, blocks, pins, inner]));
    let tensor = B::float_cat(vec![pinned, tensor], 2);
    let stream = RandomStream::new(0, 0);
    let tensor = B::mx_quantize(tensor, 2, format, rounding, stream);
    let all = |count: usize| Slice::from(0..count);
    let own = Slice::from(pins..pins + size);
    let tensor = B::float_slice(tensor, &[all(outer), all(blocks), own, all(inner)]);
    let tensor = B::float_reshape(tensor, Shape::new([outer, blocks * size, inner]));
    let tensor = match missing {
        0 => tensor,
        _ => B::float_slice(tensor, &[all(outer), all(length), all(inner)]),
    };
    B::float_reshape(tensor, shape)
}

/// Finite numbers no further from 0 than these limits, which are broadcast. NaN and Inf stay unchanged: the format handles
/// them.
fn cut_off<B: MxKernels>(tensor: FloatTensor<B>, limits: FloatTensor<B>) -> FloatTensor<B> {
    let bool_dtype = get_device_settings::<B>(&B::float_device(&tensor)).bool_dtype;
    let limits = B::float_expand(limits, tensor.shape());
    let least = B::float_neg(limits.clone());
    let above = B::float_greater(tensor.clone(), limits.clone(), bool_dtype);
    let below = B::float_lower(tensor.clone(), least.clone(), bool_dtype);
    let infinite = B::float_is_inf(tensor.clone(), bool_dtype);
    // A NaN passes no comparison, but some devices' `clamp` returns a number.
    let limited = B::float_mask_where(tensor.clone(), above, limits);
    let limited = B::float_mask_where(limited, below, least);
    B::float_mask_where(limited, infinite, tensor)
}

/// How many elements stand before a block of this size, and the format of both together. With sub-blocks, one sub-block
/// stands before, so that the shifts of the others follow from their own elements.
fn with_pins(format: BlockFormat, size: usize) -> (usize, BlockFormat) {
    let pins = format.shifts.map_or(1, |shifts| shifts.block_size);
    let block_size = size + pins;
    // Formats whose scales are floats are refused before.
    (
        pins,
        BlockFormat {
            block_size,
            ..format
        },
    )
}
