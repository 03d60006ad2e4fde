//! The largest magnitude of a tensor, and the scale that follows from it.

use super::rules;
use super::rules::Format;
use crate::cube::launch;
use crate::cube::numbers::bits::{ABS, INFINITY};
use crate::cube::numbers::float::computed_by;
use crate::cube::numbers::round::round_float;
use burn_backend::{DType, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;
use microscaling::{FloatFormat, Rounding};

/// A tensor's scale, in the place of its largest magnitude; 0 if the magnitude is NaN or Inf.
pub(super) fn scale_of_tensor<R: CubeRuntime>(
    amax: CubeTensor<R>,
    format: Format,
) -> CubeTensor<R> {
    let mut scale = amax;
    let format = format.on(&scale.client);
    let (cubes, cube) = launch::units(&scale.client, 1);
    // SAFETY: one unit reads and writes the one word.
    unsafe {
        scale_kernel::launch_unchecked(
            &scale.client,
            cubes,
            cube,
            scale.clone().into_array_arg(),
            format,
        );
    }
    scale.dtype = DType::F32;
    scale
}

#[cube(launch_unchecked)]
pub(in crate::cube) fn scale_kernel(word: &mut Array<u32>, #[comptime] format: Format) {
    computed_by(comptime!(format.float32));
    if ABSOLUTE_POS == 0 {
        let amax = word[0];
        word[0] = rules::scale_of_tensor(select(amax >= INFINITY, 0, amax), format);
    }
}

/// The largest magnitude of a tensor, one word.
pub(in crate::cube) fn largest<R: CubeRuntime>(
    tensor: &CubeTensor<R>,
    elementwise: Option<(FloatFormat, Rounding)>,
) -> CubeTensor<R> {
    let word = launch::word(tensor, 0);
    let elements = tensor.shape().num_elements();
    let units = elements.div_ceil(LOOKED_AT).min(LOOKING);
    let (cubes, cube) = launch::units(&tensor.client, units);
    // SAFETY: the view keeps reads inside of the tensor; one word is written.
    unsafe {
        largest_kernel::launch_unchecked(
            &tensor.client,
            cubes,
            cube,
            tensor.required_address_type(),
            tensor.clone().into_linear_view(),
            word.clone().into_tensor_arg(),
            elements,
            units,
            elementwise,
        );
    }
    word
}

/// Elements that a unit of [`largest_kernel`] looks at, at least, and the most units.
const LOOKED_AT: usize = 64;

const LOOKING: usize = 1 << 16;

#[cube(launch_unchecked, address_type = "dynamic")]
fn largest_kernel(
    input: &LinearView<u32>,
    output: &mut Tensor<Atomic<u32>>,
    elements: usize,
    units: usize,
    #[comptime] elementwise: Option<(FloatFormat, Rounding)>,
) {
    if ABSOLUTE_POS >= units {
        terminate!();
    }
    let mut amax = 0u32.runtime();
    for i in range_stepped(ABSOLUTE_POS, elements, units) {
        let x = match comptime!(elementwise) {
            Some(elementwise) => round_float(input[i], 0, elementwise.0, elementwise.1),
            None => input[i],
        };
        amax = max(amax, x & ABS);
    }
    output[0].fetch_max(amax);
}
