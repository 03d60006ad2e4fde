//! An operand whose blocks have scales that were fixed by calibration.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, Slice, TensorData, TensorMetadata, get_device_settings};
use microscaling::{BlockFormat, RandomStream, Rounding};

use crate::kernels::MxKernels;
use crate::specs::{StaticInput, block_length};

/// The largest float32 below 1.
const BELOW_ONE: f32 = 1.0 - f32::EPSILON / 2.0;

/// Quantizes along an axis of the calibrated length, each block by the scale of a block whose largest magnitude is that which
/// calibration found; what is beyond the numbers of that scale becomes the largest of them.
///
/// There is one source of scales: before each block stands an element with that magnitude, and what would make another scale
/// of it is cut off, at the end of the magnitude's binade, where every format is at its largest number. For formats whose
/// scale follows from the exponent of the largest magnitude alone.
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
    let end_of_binade = |amax: f32| {
        // Of zeros and subnormals it is that of the smallest normal numbers.
        let exponent = (amax.to_bits() >> 23).max(1);
        f32::from_bits((exponent + 1) << 23)
    };
    let ends: Vec<f32> = input
        .amax()
        .flat_map(|amax| core::iter::repeat_n(end_of_binade(amax), size))
        .take(length)
        .collect();
    // By powers of two, so that nothing is rounded that is not far below the smallest step.
    let along = Shape::new([1, length, 1]);
    let inverse = vector(ends.iter().map(|end| end.recip()).collect(), along.clone());
    let tensor = B::float_reshape(tensor, Shape::new([outer, length, inner]));
    let tensor = B::float_mul(tensor, inverse);
    let tensor = cut_off::<B>(tensor);
    let tensor = B::float_mul(tensor, vector(ends, along));
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

/// Clamped to below 1. A NaN stays one: it passes no comparison, but some devices' `clamp` makes a number of it.
fn cut_off<B: MxKernels>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let bool_dtype = get_device_settings::<B>(&B::float_device(&tensor)).bool_dtype;
    let above = B::float_greater_elem(tensor.clone(), BELOW_ONE.into(), bool_dtype);
    let below = B::float_lower_elem(tensor.clone(), (-BELOW_ONE).into(), bool_dtype);
    let tensor = B::float_mask_fill(tensor, above, BELOW_ONE.into());
    B::float_mask_fill(tensor, below, (-BELOW_ONE).into())
}

/// How many elements stand before a block of so many, and the format of both together: with sub-blocks one of these, as the
/// shift of a sub-block stays that of its own elements.
fn with_pins(format: BlockFormat, size: usize) -> (usize, BlockFormat) {
    match format {
        BlockFormat::Mx(mut format) => {
            format.block_size = size + 1;
            (1, format.into())
        }
        BlockFormat::Bfp(mut format) => {
            format.block_size = size + 1;
            (1, format.into())
        }
        BlockFormat::Microexponent(mut format) => {
            let pins = format.sub_block_size;
            format.block_size = size + pins;
            (pins, format.into())
        }
        // NVFP4 and what may come is refused before.
        format => (1, format),
    }
}
