//! The random Hadamard transform of whole blocks that lie side by side, on devices that compute float32 by themselves.
//!
//! A unit does the steps within a group of neighbouring elements in registers. Shared memory exchanges the elements, and another
//! unit does the steps between groups. Every step adds the same two numbers as in the kernel for all blocks, so the bits are
//! the same.

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;
use microscaling::{Signs, internal};

use super::{HadamardKind, argument_of};
use crate::cube::launch::{self, Target};
use crate::cube::numbers::bits::SIGN;
use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::random::{Stream, bits_from, four_words};

/// Elements of a group.
const GROUP: usize = 16;
/// Units of a cube, each with a group.
const UNITS: usize = 128;

/// Whether the kernel can transform a tensor's blocks along an axis.
pub(super) fn fits<R: CubeRuntime>(target: &Target<R>, axis: usize, block: usize) -> bool {
    let shape = target.output().shape();
    axis + 1 == shape.num_dims()
        && block >= GROUP
        && shape[axis].is_multiple_of(block)
        && target.is_in_row_major_order()
        && Float32::of(&target.client()) == Float32::Device
}

/// Transforms blocks along the last axis, or undoes that.
pub(super) fn transform<R: CubeRuntime>(
    target: &Target<R>,
    block: usize,
    signs: Signs,
    inverse: bool,
) {
    let shape = target.output().shape();
    let elements = shape.num_elements();
    let client = target.client();
    let (input, output) = target.arguments();
    let (signs, kind) = argument_of(signs, inverse);
    // SAFETY: units read and write below the number of elements.
    unsafe {
        whole_blocks_kernel::launch_unchecked(
            &client,
            launch::cubes(&client, elements, UNITS * GROUP),
            CubeDim::new_1d(UNITS as u32),
            target.address_type(),
            input,
            output,
            signs,
            -0.0,
            elements,
            shape[shape.num_dims() - 1],
            block,
            kind,
        );
    }
}

/// The place of an element in shared memory. Groups lie a word apart, so that neighbouring units read from different banks.
#[cube]
fn shared_place(element: usize) -> usize {
    element + element / GROUP
}

/// A cube works on the groups of as many neighbouring elements as it has units.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn whole_blocks_kernel(
    input: &Tensor<u32>,
    output: &mut Tensor<u32>,
    signs: &Stream,
    zero: f32,
    elements: usize,
    axis_length: usize,
    #[comptime] block: usize,
    #[comptime] kind: HadamardKind,
) {
    let mut values = SharedMemory::<u32>::new(comptime!(UNITS * (GROUP + 1)));
    let mut signs_of_groups = SharedMemory::<u32>::new(UNITS);
    let unit = UNIT_POS as usize;
    let first = CUBE_POS * comptime!(UNITS * GROUP);
    #[unroll]
    for i in 0..GROUP {
        let at = comptime!(i * UNITS) + unit;
        if first + at < elements {
            values[shared_place(at)] = input[first + at];
        }
    }
    sync_cube();

    // The steps within a group.
    let sign_bits = sign_bits(signs, first + unit * GROUP, axis_length, block, kind);
    let root = comptime!(internal::inverse_root(block as u32)).runtime();
    let mut own = Array::<u32>::new(GROUP);
    #[unroll]
    for i in 0..GROUP {
        let factor = if comptime!(kind.inverse) {
            root
        } else {
            root | sign_at(sign_bits, i)
        };
        let x = values[unit * comptime!(GROUP + 1) + i];
        own[i] = float::mul(x, factor, zero, Float32::Device);
    }
    sums_and_differences(&mut own, GROUP);
    #[unroll]
    for i in 0..GROUP {
        values[unit * comptime!(GROUP + 1) + i] = own[i];
    }
    signs_of_groups[unit] = sign_bits;
    sync_cube();

    // The steps between groups. A unit has elements with the same place in all groups of a block.
    let groups = comptime!(block / GROUP);
    #[unroll]
    for i in 0..comptime!(GROUP / groups) {
        let index = comptime!(i * UNITS) + unit;
        let start = index / GROUP * block;
        let place = index % GROUP;
        #[unroll]
        for group in 0..groups {
            own[group] = values[shared_place(start + comptime!(group * GROUP) + place)];
        }
        sums_and_differences(&mut own, groups);
        #[unroll]
        for group in 0..groups {
            let at = start + comptime!(group * GROUP) + place;
            let mut value = own[group];
            if comptime!(kind.inverse) {
                value ^= sign_at(signs_of_groups[at / GROUP], place);
            }
            if first + at < elements {
                output[first + at] = value;
            }
        }
    }
}

/// The steps of the transform among the first numbers, as many as a power of two.
#[cube]
fn sums_and_differences(numbers: &mut Array<u32>, #[comptime] count: usize) {
    #[unroll]
    for step in 0..comptime!(count.ilog2()) {
        #[unroll]
        for pair in 0..comptime!(count / 2) {
            let distance = comptime!(1usize << step);
            let low = comptime!(pair / distance * 2 * distance + pair % distance);
            let high = comptime!(low + distance);
            let (x, y) = (numbers[low], numbers[high]);
            numbers[low] = float::add(x, y, Float32::Device);
            numbers[high] = float::add(x, y ^ SIGN, Float32::Device);
        }
    }
}

/// The signs of a group, a bit for each element.
#[cube]
fn sign_bits(
    signs: &Stream,
    element: usize,
    axis_length: usize,
    #[comptime] block: usize,
    #[comptime] kind: HadamardKind,
) -> u32 {
    if comptime!(kind.repeated) {
        bits_from(signs, element % block)
    } else {
        let start = element % axis_length;
        let mut bits = 0u32.runtime();
        #[unroll]
        for i in 0..comptime!(GROUP / 4) {
            let words = four_words(signs, start / 4 + i);
            let nibble = (words.0 >> 31)
                | (words.1 >> 31 << 1)
                | (words.2 >> 31 << 2)
                | (words.3 >> 31 << 3);
            bits |= nibble << comptime!(4 * i as u32);
        }
        bits
    }
}

/// The sign of an element of a group.
#[cube]
fn sign_at(sign_bits: u32, place: usize) -> u32 {
    (sign_bits >> place as u32) << 31
}
