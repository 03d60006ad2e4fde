//! Tests of the kernels as source, and on this machine's device.
#![cfg(any(feature = "cuda", feature = "wgpu"))]

#[cfg(feature = "wgpu")]
mod on_a_device;
#[cfg(feature = "cuda")]
mod on_a_processor;
#[cfg(feature = "cuda")]
mod sources;

use microscaling::{FloatFormat, RandomStream, Rounding};

use crate::kernel_op::rounding::FunctionRounding;

/// Functions that round to a bfloat format of this number of bits, in both passes.
fn rounding_to_bfloat(bits: u32) -> FunctionRounding {
    FunctionRounding {
        format: FloatFormat::bfloat(bits).expect("the number of bits is allowed"),
        rounding: Rounding::NearestEven,
        quantize_backward: true,
        exp2: false,
        reciprocal: false,
    }
}

/// Numbers of magnitude 2^-6 to 2.
fn ordinary_numbers(length: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 0);
    let number = |i| {
        let word = stream.draw(i);
        f32::from_bits(word & 0x807f_ffff | (121 + word % 7) << 23)
    };
    (0..length as u64).map(number).collect()
}
