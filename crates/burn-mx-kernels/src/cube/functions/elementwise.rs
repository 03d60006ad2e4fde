//! Rounding each number of a tensor.

use burn_backend::{DType, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;
use microscaling::{FloatFormat, RandomStream, Rounding};

use crate::cube::launch::{self, Target};
use crate::cube::numbers::random::{self, Stream, draw};
use crate::cube::numbers::round::round_float;

/// Rounds every element to a bfloat or fp format.
pub(in crate::cube) fn round<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    format: FloatFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> CubeTensor<R> {
    let elements = tensor.shape().num_elements();
    if format.is_identity() || elements == 0 {
        return tensor;
    }
    round_into::<R, u32>(Target::of(tensor), Some((format, rounding)), stream)
}

/// Rounds every element to a format, if there is one, into this float type. With bfloat16 as the type, the lower bits are
/// cut off. Not stochastic.
pub(in crate::cube) fn round_to<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    dtype: DType,
    how: Option<(FloatFormat, Rounding)>,
) -> CubeTensor<R> {
    let stream = RandomStream::new(0, 0);
    match (dtype, how) {
        (DType::BF16, _) => {
            let target = Target::of_type(tensor, dtype);
            match target.output().shape().num_elements() {
                0 => target.into_output(),
                _ => round_into::<R, u16>(target, how, stream),
            }
        }
        (_, Some((format, rounding))) => round(tensor, format, rounding, stream),
        (_, None) => tensor,
    }
}

fn round_into<R: CubeRuntime, O: Int>(
    target: Target<R>,
    how: Option<(FloatFormat, Rounding)>,
    stream: RandomStream,
) -> CubeTensor<R> {
    let (client, address_type) = (target.client(), target.address_type());
    let (cubes, cube) = launch::units(&client, target.output().shape().num_elements());
    let (input, output) = target.views();
    // SAFETY: no unit writes outside of the view.
    unsafe {
        round_kernel::launch_unchecked::<O, R>(
            &client,
            cubes,
            cube,
            address_type,
            input,
            output,
            random::argument(stream),
            how,
        );
    }
    target.into_output()
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn round_kernel<O: Int>(
    input: &LinearView<u32>,
    output: &mut LinearView<O, ReadWrite>,
    stream: &Stream,
    #[comptime] how: Option<(FloatFormat, Rounding)>,
) {
    if !output.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    let x = input[ABSOLUTE_POS];
    let value = match comptime!(how) {
        Some(how) => {
            let mut word = 0u32.runtime();
            if comptime!(how.1 == Rounding::Stochastic) {
                word = draw(stream, ABSOLUTE_POS);
            }
            round_float(x, word, how.0, how.1)
        }
        None => x,
    };
    output[ABSOLUTE_POS] = launch::upper_bits::<O>(value);
}
