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
use microscaling::{
    BlockFormat, NonFinite, PackError, Packed, PackedView, RandomStream, Rounding, StatisticsParts,
};

use super::launch;
use super::numbers::bits::INFINITY;
use super::numbers::random;
use super::quantize::known::KnownWords;
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
    /// Words of a grid: the last one of three tells tables or sub-blocks apart.
    pub(super) grid: usize,
    /// Bytes of a block's record, bytes of the scale's code at its beginning, and bits of this code below the number of the table.
    pub(super) record: usize,
    pub(super) scale: usize,
    pub(super) scale_bits: u32,
}

impl Form {
    pub(super) fn of(format: BlockFormat, rows: usize) -> Self {
        let of_device = Format::of(format);
        let sub_block = of_device.sub_block_length(rows);
        let sub_blocks = rows.div_ceil(sub_block);
        let scale = format.scale_bits().div_ceil(8) as usize;
        // Also of a shorter block, so that the levels have their places.
        let doubling = levels(format).map_or(0, |[first, ratio]| first + first * ratio);
        let shifts = format
            .shifts
            .map_or(0, |shifts| sub_blocks * shifts.bits as usize);
        let is_numbered = of_device.grids() > 1 || of_device.first_sub_block().is_some();
        Self {
            format: of_device,
            bits: format.element_bits() as usize,
            sub_block,
            sub_blocks,
            grid: if is_numbered { 3 } else { 2 },
            record: scale + (doubling + shifts).div_ceil(8),
            scale,
            scale_bits: format.scale.bits(),
        }
    }

    /// Whether a block has sub-blocks.
    fn has_sub_blocks(self) -> bool {
        self.sub_blocks > 1 || self.format.first_sub_block().is_some()
    }

    /// Whether a record has the number of a table.
    fn has_tables(self) -> bool {
        self.format.tables().is_some() && self.format.grids() > 1
    }

    /// Bits of the first level of sub-blocks, and bits of the second level for each of these.
    fn levels(self) -> [usize; 2] {
        levels(self.format.block()).expect("the format has sub-scales")
    }
}

fn levels(format: BlockFormat) -> Option<[usize; 2]> {
    let [first, second] = format.sub_scales?.block_sizes();
    Some([format.block_size / first, first / second])
}

impl<'a> Words<'a> {
    /// `None` for an empty tensor, and for blocks that the host packs: long blocks, and blocks with an outer scale.
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
        if shape.contains(&0) || !is_short_enough || !two_pass_scale::has_packing(&format) {
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
        let known = KnownWords::with_tables(tensor, self.form.format, amax);
        let values = launch::dense(tensor);
        let client = values.client.clone();
        let empty = |words| launch::empty_like(&values, Shape::new([words]), DType::I32);
        let (blocks, form) = (self.parts.blocks(), self.form);
        let [codes, records] = self.lengths();
        let grids = empty(blocks * form.sub_blocks * form.grid);
        let scales = empty(blocks);
        let words = empty(codes + records + 1);
        let address_type = launch::address_type([&values, &grids, &words]);
        // SAFETY: reads lie inside of the tensor, by its blocks, and inside of the words of the kernel before. Each unit writes its own
        // words, for which the buffers have room.
        unsafe {
            let (cubes, cube) = launch::units(&client, blocks);
            scales_kernel::launch_unchecked(
                &client,
                cubes,
                cube,
                address_type,
                values.clone().into_array_arg(),
                known.argument(),
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
                known.argument(),
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
                known.argument(),
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
        self.format.tensor_scale || self.format.non_finite == NonFinite::Kept
    }

    /// The packed tensor that the words are; `None` if one of its numbers has no code.
    pub(super) fn read(&self, words: &[i32]) -> Option<Packed> {
        let [codes, records] = self.lengths();
        let amax = words[codes + records] as u32;
        if self.format.non_finite == NonFinite::Kept && amax >= INFINITY {
            return None;
        }
        let bytes = |words: &[i32], length: usize| {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            bytes.take(length).collect::<Vec<u8>>()
        };
        let elements = bytes(&words[..codes], self.bytes_of_codes());
        let scales = bytes(&words[codes..], self.bytes_of_records());
        let (format, shape, axis) = (self.format, self.shape, self.axis);
        let tensor_scale = format.tensor_scale.then(|| format.tensor_scale_of(amax));
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
        let known = KnownWords::with_tables(&words, self.form.format, None);
        let (cubes, cube) = launch::units(&client, elements);
        // SAFETY: reads lie inside of the tensor's words; each unit writes its own element.
        unsafe {
            values_kernel::launch_unchecked(
                &client,
                cubes,
                cube,
                address_type,
                words.into_array_arg(),
                known.argument(),
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

/// Whether packing is an error, which the host finds.
pub(super) fn is_refused(format: &BlockFormat, rounding: Rounding) -> bool {
    rounding == Rounding::Stochastic && format.eden
}

/// Bits of a sub-block's shift; 1 where there is none.
fn shift_bits(format: Format) -> usize {
    format.shifts.map_or(1, |shifts| shifts.bits as usize)
}
