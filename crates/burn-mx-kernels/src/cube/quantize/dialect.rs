//! Quantization to the numbers of another tool: one unit a block, by `microscaling`'s rules.

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::internal::DialectRule;
use microscaling::{BlockFormat, Dialect};

use super::known::{Known, KnownWords, tensor_amax};
use super::places::place;
use super::rules::{Format, Grid};
use crate::cube::launch::{self, Target};
use crate::cube::numbers::bits::ABS;
use crate::cube::numbers::float::{Float32, computed_by};
use crate::cube::numbers::words::written_by_rules;

/// The rule for blocks and their place, known when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DialectJob {
    dialect: Dialect,
    format: BlockFormat,
    float32: Float32,
    axis: usize,
    rank: usize,
    /// Elements of a block.
    block: usize,
}

/// Quantizes blocks along `axis` by a dialect that has its own numbers.
pub(in crate::cube) fn quantize<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    axis: usize,
    dialect: Dialect,
    format: BlockFormat,
) -> CubeTensor<R> {
    let target = Target::of(tensor);
    let shape = target.output().shape();
    if shape.num_elements() == 0 {
        return target.into_output();
    }
    let known = KnownWords::of(target.input(), Format::of(format), None);
    let job = DialectJob {
        dialect,
        format,
        float32: Float32::of(&target.client()),
        axis,
        rank: shape.num_dims(),
        block: format.block_size.min(shape[axis]),
    };
    let blocks = shape.num_elements() / shape[axis] * shape[axis].div_ceil(job.block);
    let (client, address_type) = (target.client(), target.address_type());
    let (cubes, cube) = launch::units(&client, blocks);
    let (input, output) = target.arguments();
    // SAFETY: units read and write the elements of their own blocks, inside of the tensor's shape.
    unsafe {
        dialect_kernel::launch_unchecked(
            &client,
            cubes,
            cube,
            address_type,
            input,
            output,
            known.argument(),
            blocks,
            job,
        );
    }
    target.into_output()
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn dialect_kernel(
    input: &Tensor<u32>,
    output: &mut Tensor<u32>,
    known: &Known,
    blocks: usize,
    #[comptime] job: DialectJob,
) {
    let DialectJob {
        dialect,
        format,
        float32,
        axis,
        rank,
        block,
    } = comptime!(job);
    if ABSOLUTE_POS >= blocks {
        terminate!();
    }
    computed_by(float32);
    let place = place::<u32>(input, output, ABSOLUTE_POS, axis, rank, block);
    let length = min(input.shape(axis) - place.start, block);
    let from_step = input.stride(axis);
    let to_step = output.stride(axis);
    let mut amax = 0u32.runtime();
    for i in 0..length {
        amax = max(amax, input[place.from + i * from_step] & ABS);
    }
    let words = words_of_block(amax, tensor_amax(known), dialect, format);
    for i in 0..length {
        let x = input[place.from + i * from_step];
        output[place.to + i * to_step] = round_by_words(x, words, dialect, format);
    }
}

/// The rule of a dialect that has its own numbers.
fn rule_of(dialect: Dialect, format: &BlockFormat) -> DialectRule {
    let rule = DialectRule::of(dialect, format);
    rule.unwrap_or_else(|rounding| unreachable!("{dialect} is a format, rounded to {rounding}"))
}

written_by_rules! {
    fn words_of_block(amax: u32, tensor_amax: u32; dialect: Dialect, format: BlockFormat) -> Grid {
        rule_of(dialect, &format).words(amax, tensor_amax)
    }

    fn round_by_words(x: u32, words: Grid; dialect: Dialect, format: BlockFormat) -> u32 {
        rule_of(dialect, &format).round(x, words)
    }
}
