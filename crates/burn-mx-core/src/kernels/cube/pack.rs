//! Packing and unpacking on a device: the bytes of `microscaling::Packed`, which the host reads and writes in one piece.
//!
//! Packing takes three steps. One unit for each block finds the block's scale and grids. Then one unit for each word joins the
//! codes in the word, and one unit for each word writes the records. The bytes of a word are in the order of their bits, the
//! lowest first.

mod decode;
mod encode;

use burn_backend::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{
    BlockFormat, PackError, Packed, PackedView, RandomStream, Rounding, StatisticsParts,
};

use super::launch;
use super::numbers::bits::INFINITY;
use super::numbers::random;
use super::quantize::largest;
use super::quantize::rules::Format;
use super::quantize::two_pass_scale;
use super::statistics::blocks::{Blocks, MOST_TURNS, largest_length};
pub(super) use decode::{byte, code_at, float_scale_value, values_kernel};
pub(super) use encode::{codes_kernel, records_kernel, scales_kernel};

/// How the bytes of a tensor lie in words: its codes, its records, and its largest magnitude if the format needs one
/// for the tensor.
pub(super) struct Words<'a> {
    format: BlockFormat,
    shape: &'a [usize],
    axis: usize,
    parts: StatisticsParts,
    form: Form,
}

/// The compile-time parameters of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) format: Format,
    /// Bits of a code.
    pub(super) bits: usize,
    /// Elements that share a grid along the axis.
    pub(super) sub_block: usize,
    pub(super) sub_blocks: usize,
    /// Bytes of a block's record.
    pub(super) record: usize,
}

impl Form {
    pub(super) fn of(format: BlockFormat, rows: usize) -> Self {
        let of_device = Format::of(format);
        let sub_block = of_device.sub_block_length(rows);
        let sub_blocks = rows.div_ceil(sub_block);
        let record = match format {
            BlockFormat::Microexponent(format) => {
                1 + (sub_blocks * format.shift_bits as usize).div_ceil(8)
            }
            _ => 1,
        };
        Self {
            format: of_device,
            bits: format.element_bits() as usize,
            sub_block,
            sub_blocks,
            record,
        }
    }
}

impl<'a> Words<'a> {
    /// `None` if there are no elements, or blocks are so long that the host packs them.
    ///
    /// # Errors
    ///
    /// The errors of [`Packed::encode`] that depend on format, shape and axis.
    pub(super) fn of(
        format: BlockFormat,
        shape: &'a [usize],
        axis: usize,
    ) -> Result<Option<Self>, PackError> {
        let parts = StatisticsParts::of(Some(format), shape, axis)?;
        let is_short_enough =
            two_pass_scale::is_short_enough(&format) && largest_length(&parts) <= MOST_TURNS;
        // A record of the kernels begins with a byte.
        let has_short_scale = format
            .float_scale()
            .is_none_or(|format| format.scale_bits() <= 8);
        if shape.contains(&0) || !is_short_enough || !has_short_scale {
            return Ok(None);
        }
        let form = Form::of(format, parts.rows());
        Ok(Some(Self {
            format,
            shape,
            axis,
            parts,
            form,
        }))
    }

    /// The compile-time parameters, how blocks lie, and the number of words of the codes. Records follow, then a word with the
    /// largest magnitude of all elements, if the format asks for it.
    pub(super) fn layout(&self) -> (Form, &StatisticsParts, usize) {
        (self.form, &self.parts, self.lengths()[0])
    }

    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn bytes_of_codes(&self) -> usize {
        (self.elements() * self.form.bits).div_ceil(8)
    }

    fn bytes_of_records(&self) -> usize {
        self.parts.blocks() * self.form.record
    }

    /// Words of the codes and of the records.
    fn lengths(&self) -> [usize; 2] {
        [self.bytes_of_codes(), self.bytes_of_records()].map(|bytes| bytes.div_ceil(4))
    }

    /// The words of a tensor.
    pub(super) fn pack<R: CubeRuntime>(
        &self,
        tensor: &CubeTensor<R>,
        rounding: Rounding,
        stream: RandomStream,
    ) -> CubeTensor<R> {
        let amax = self.looks_at_all().then(|| largest(tensor, None));
        let tensor_amax = || match &amax {
            Some(amax) => ComptimeOptionArgs::Some(amax.clone().into_array_arg()),
            None => ComptimeOptionArgs::None,
        };
        let values = launch::dense(tensor);
        let client = values.client.clone();
        let empty = |words| launch::empty_like(&values, Shape::new([words]), DType::I32);
        let (blocks, form) = (self.parts.blocks(), self.form);
        let [codes, records] = self.lengths();
        let grids = empty(blocks * form.sub_blocks * 2);
        let scales = empty(blocks);
        let words = empty(codes + records + 1);
        let address_type = launch::address_type([&values, &grids, &words]);
        // SAFETY: what is read lies inside of the tensor, by its blocks, and inside of what the kernel before wrote; a unit writes
        // its own words of buffers that have as many as there are units.
        unsafe {
            let (cubes, cube) = launch::units(&client, blocks);
            scales_kernel::launch_unchecked(
                &client,
                cubes,
                cube,
                address_type,
                values.clone().into_array_arg(),
                tensor_amax(),
                grids.clone().into_array_arg(),
                scales.clone().into_array_arg(),
                Blocks::argument(&self.parts),
                blocks,
                form,
            );
            let (cubes, cube) = launch::units(&client, codes);
            codes_kernel::launch_unchecked(
                &client,
                cubes,
                cube,
                address_type,
                values.into_array_arg(),
                grids.clone().into_array_arg(),
                words.clone().into_array_arg(),
                random::argument(stream),
                Blocks::argument(&self.parts),
                self.elements(),
                codes,
                form,
                rounding,
            );
            let (cubes, cube) = launch::units(&client, records);
            records_kernel::launch_unchecked(
                &client,
                cubes,
                cube,
                address_type,
                grids.into_array_arg(),
                scales.into_array_arg(),
                tensor_amax(),
                words.clone().into_array_arg(),
                codes,
                blocks,
                records,
                form,
            );
        }
        words
    }

    /// Whether the largest magnitude of all is asked for: because it makes a scale, or because not every number has a code.
    fn looks_at_all(&self) -> bool {
        self.format.has_tensor_scale() || matches!(self.format, BlockFormat::Bfp(_))
    }

    /// The packed tensor that the words are; `None` if one of its numbers has no code.
    pub(super) fn read(&self, words: &[i32]) -> Option<Packed> {
        let [codes, records] = self.lengths();
        let amax = words[codes + records] as u32;
        if matches!(self.format, BlockFormat::Bfp(_)) && amax >= INFINITY {
            return None;
        }
        let bytes = |words: &[i32], length: usize| {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            bytes.take(length).collect::<Vec<u8>>()
        };
        let elements = bytes(&words[..codes], self.bytes_of_codes());
        let scales = bytes(&words[codes..], self.bytes_of_records());
        let float_scale = self.format.float_scale();
        let tensor_scale = float_scale
            .filter(|format| format.tensor_scale)
            .map(|format| format.tensor_scale_of(amax));
        let (format, shape, axis) = (self.format, self.shape, self.axis);
        let packed = Packed::from_parts(format, shape, axis, tensor_scale, scales, elements);
        Some(packed.expect("the words are what the format says"))
    }

    /// The words of a packed tensor.
    pub(super) fn write(&self, packed: &PackedView<'_>) -> Vec<i32> {
        let words = |bytes: &[u8]| {
            let word = |four: &[u8]| {
                let mut bytes = [0; 4];
                bytes[..four.len()].copy_from_slice(four);
                i32::from_le_bytes(bytes)
            };
            bytes.chunks(4).map(word).collect::<Vec<_>>()
        };
        let mut all = words(packed.elements());
        all.extend(words(packed.scales()));
        all
    }

    /// The tensor of which these are the words.
    pub(super) fn unpack<R: CubeRuntime>(
        &self,
        words: CubeTensor<R>,
        tensor_scale: Option<f32>,
    ) -> CubeTensor<R> {
        let client = words.client.clone();
        let shape = Shape::from(self.shape.to_vec());
        let output = launch::empty_like(&words, shape, DType::F32);
        let address_type = launch::address_type([&words, &output]);
        let elements = self.elements();
        let (cubes, cube) = launch::units(&client, elements);
        // SAFETY: what is read lies inside of the words, which are as many as the tensor has; a unit writes its own element.
        unsafe {
            values_kernel::launch_unchecked(
                &client,
                cubes,
                cube,
                address_type,
                words.into_array_arg(),
                output.clone().into_array_arg(),
                Blocks::argument(&self.parts),
                self.lengths()[0],
                tensor_scale.unwrap_or(1.0).to_bits(),
                elements,
                self.form,
            );
        }
        output
    }
}

/// Bits of a sub-block's shift; 1 where there is none.
fn shift_bits(format: Format) -> usize {
    match format {
        Format::Microexponent(format) => format.shift_bits as usize,
        _ => 1,
    }
}

/// Bits of a magnitude below a sign.
fn magnitude_bits(format: Format) -> u32 {
    match format {
        Format::Microexponent(format) => format.mantissa_bits(),
        Format::Bfp(format) => format.mantissa_bits(),
        Format::Mx(_) | Format::FloatScale(_) => 0,
    }
}
