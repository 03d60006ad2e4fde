//! Packing and unpacking on a device: the bytes of `microscaling::Packed`, which the host reads and writes in one piece.
//!
//! Packing takes three steps. One unit for each block finds the block's scale and grids. Then one unit for each word joins the
//! codes in the word, and one unit for each word writes the records. The bytes of a word are in the order of their bits, the
//! lowest first.

use burn_backend::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{
    BlockFormat, ElementFormat, FloatScaleFormat, PackError, Packed, PackedView, RandomStream,
    Rounding, StatisticsParts,
};

use super::bits::{self, ABS, INFINITY, NAN, SIGN};
use super::blocks::{Blocks, MOST_TURNS, block, block_of, largest_length, position};
use super::launch;
use super::quantize::{largest, word_or_zero};
use super::random::{self, Stream, draw};
use super::rules::{self, Format, NAN_EXPONENT};
use super::two_pass_scale;

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

/// A unit a block: the code of its scale, and the grids of its sub-blocks, two words each.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn scales_kernel(
    values: &Array<u32>,
    tensor_amax: &ComptimeOption<Array<u32>>,
    grids: &mut Array<u32>,
    scales: &mut Array<u32>,
    blocks: &Blocks,
    count: usize,
    #[comptime] form: Form,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let format = comptime!(form.format);
    let block = block(blocks, ABSOLUTE_POS);
    let length = block.length;
    let mut amax = 0u32.runtime();
    for i in 0..length {
        amax = max(
            amax,
            rules::counted(values[position(&block, i)] & ABS, format),
        );
    }
    let of_tensor = word_or_zero(tensor_amax);
    let mut both = Array::<u32>::new(two_pass_scale::GRIDS);
    let mut verdict = amax;
    if comptime!(format.looks_twice()) {
        two_pass_scale::write_grids(&mut both, amax, of_tensor, format);
        let mut sums = two_pass_scale::none();
        for i in 0..length {
            two_pass_scale::add(&mut sums, values[position(&block, i)], amax, &both, format);
        }
        verdict = two_pass_scale::verdict(&sums, amax, length as u32, format);
    }
    let grid = two_pass_scale::grid(&both, amax, verdict, of_tensor, format);
    let code = rules::scale_code(amax, verdict, of_tensor, grid, format);
    scales[ABSOLUTE_POS] = code;

    let own = ABSOLUTE_POS * comptime!(form.sub_blocks * 2);
    if comptime!(form.sub_blocks == 1) {
        grids[own] = grid.0;
        grids[own + 1] = grid.1;
    } else {
        let sub_block = comptime!(form.sub_block);
        for sub in 0..comptime!(form.sub_blocks) {
            let first = sub * sub_block;
            let mut sub_amax = 0u32.runtime();
            for i in first..min(first + sub_block, length) {
                let abs = values[position(&block, i)] & ABS;
                sub_amax = max(sub_amax, rules::counted(abs, format));
            }
            let (exponent, largest) = rules::grid(amax, sub_amax, of_tensor, format);
            // What is beyond the tensor is not shifted.
            let unshifted = (code as i32 - 127) as u32;
            grids[own + sub * 2] = select(first < length, exponent, unshifted);
            grids[own + sub * 2 + 1] = largest;
        }
    }
}

/// A unit a word of codes: those that begin in it, and the rest of one that begins in the word before.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn codes_kernel(
    values: &Array<u32>,
    grids: &Array<u32>,
    words: &mut Array<u32>,
    stream: &Stream,
    blocks: &Blocks,
    elements: usize,
    count: usize,
    #[comptime] form: Form,
    #[comptime] rounding: Rounding,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let bits = comptime!(form.bits);
    let sub_block = comptime!(form.sub_block);
    let sub_blocks = comptime!(form.sub_blocks);
    // So many words have 32 codes.
    let begin = ABSOLUTE_POS % bits * 32;
    let first = ABSOLUTE_POS / bits * 32 + begin / bits;
    let skipped = (begin % bits) as u32;
    let mut word = 0u32.runtime();
    for i in 0..comptime!((31 + bits).div_ceil(bits)) {
        let at = i as u32 * comptime!(bits as u32);
        let element = first + i;
        if element < elements && at < 32 + skipped {
            let (number, row) = block_of(blocks, element);
            let grid = (number * sub_blocks + row / sub_block) * 2;
            let mut draws = 0u32.runtime();
            if comptime!(rounding == Rounding::Stochastic) {
                draws = draw(stream, element);
            }
            let grid = (grids[grid], grids[grid + 1]);
            let code = code(
                values[element],
                grid,
                draws,
                comptime!(form.format),
                rounding,
            );
            let up = select(at >= skipped, at - skipped, 0);
            let down = select(at >= skipped, 0, skipped - at);
            word |= (code << up) >> down;
        }
    }
    words[ABSOLUTE_POS] = word;
}

/// A unit a word of records, behind the codes; the last word is the tensor's largest magnitude.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn records_kernel(
    grids: &Array<u32>,
    scales: &Array<u32>,
    tensor_amax: &ComptimeOption<Array<u32>>,
    words: &mut Array<u32>,
    codes: usize,
    blocks: usize,
    count: usize,
    #[comptime] form: Form,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    if ABSOLUTE_POS == 0 {
        words[codes + count] = word_or_zero(tensor_amax);
    }
    let record = comptime!(form.record);
    let mut word = 0u32.runtime();
    for i in 0..4usize {
        let number = ABSOLUTE_POS * 4 + i;
        let block = number / record;
        if block < blocks {
            let scale = scales[block];
            let mut byte = scale;
            if comptime!(record > 1) {
                let of_shifts = number % record;
                if of_shifts > 0 {
                    byte = shifts(grids, block, of_shifts - 1, scale, form);
                }
            }
            word |= byte << (i as u32 * 8);
        }
    }
    words[codes + ABSOLUTE_POS] = word;
}

/// A byte of the shifts of a block with this scale.
#[cube]
fn shifts(
    grids: &Array<u32>,
    block: usize,
    byte: usize,
    scale: u32,
    #[comptime] form: Form,
) -> u32 {
    let shift_bits = comptime!(shift_bits(form.format));
    let sub_blocks = comptime!(form.sub_blocks);
    let mut bits = 0u32.runtime();
    for i in 0..8usize {
        let bit = byte * 8 + i;
        let sub = bit / shift_bits;
        if sub < sub_blocks {
            let exponent = grids[(block * sub_blocks + sub) * 2] as i32;
            let shift = (scale as i32 - 127 - exponent) as u32;
            bits |= ((shift >> (bit % shift_bits) as u32) & 1) << i as u32;
        }
    }
    select(scale == NAN_EXPONENT, 0, bits)
}

/// Bits of a sub-block's shift; 1 where there is none.
fn shift_bits(format: Format) -> usize {
    match format {
        Format::Microexponent(format) => format.shift_bits as usize,
        _ => 1,
    }
}

/// A unit an element.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn values_kernel(
    words: &Array<u32>,
    values: &mut Array<u32>,
    blocks: &Blocks,
    codes: usize,
    tensor_scale: u32,
    elements: usize,
    #[comptime] form: Form,
) {
    if ABSOLUTE_POS >= elements {
        terminate!();
    }
    let bits = comptime!(form.bits);
    let bit = ABSOLUTE_POS % 32 * bits;
    let first = ABSOLUTE_POS / 32 * bits + bit / 32;
    let skipped = (bit % 32) as u32;
    let mut code = words[first] >> skipped;
    if skipped > comptime!(32 - bits as u32) {
        code |= words[first + 1] << (32 - skipped);
    }
    let code = code & comptime!((1u32 << bits) - 1);

    let (number, row) = block_of(blocks, ABSOLUTE_POS);
    let record = number * comptime!(form.record);
    let scale = byte(words, codes, record);
    let mut shift = 0u32.runtime();
    if comptime!(form.record > 1) {
        let shift_bits = comptime!(shift_bits(form.format));
        let first = row / comptime!(form.sub_block) * shift_bits;
        for i in 0..shift_bits {
            let bit = first + i;
            let shifts = byte(words, codes, record + 1 + bit / 8);
            shift |= ((shifts >> (bit % 8) as u32) & 1) << i as u32;
        }
    }
    let number = value(code, scale, shift, tensor_scale, comptime!(form.format));
    values[ABSOLUTE_POS] = number;
}

/// A byte of the words behind the codes.
#[cube]
fn byte(words: &Array<u32>, codes: usize, number: usize) -> u32 {
    (words[codes + number / 4] >> ((number % 4) as u32 * 8)) & 0xff
}

/// The code of an element, rounded to its grid.
#[cube]
fn code(
    x: u32,
    grid: (u32, u32),
    draw: u32,
    #[comptime] format: Format,
    #[comptime] rounding: Rounding,
) -> u32 {
    let (first, second) = grid;
    match format {
        Format::Mx(mx) => {
            let rounded = rules::round(x, grid, draw, format, rounding);
            let exponent = first as i32 - comptime!(mx.element.emin());
            select(
                second > INFINITY,
                0,
                element_code(rounded, exponent, mx.element),
            )
        }
        Format::FloatScale(of_scale) => {
            let element = of_scale.element;
            let unit = rules::round_unit(x, first, second, draw, element, rounding);
            let code = element_code((x & SIGN) | unit, 0, element);
            select(first >= INFINITY, 0, code)
        }
        _ => {
            let rounded = rules::round(x, grid, draw, format, rounding);
            let magnitude_bits = comptime!(magnitude_bits(format));
            let unit = first as i32 + comptime!(1 - magnitude_bits as i32);
            let code = bits::steps(rounded & ABS, unit) | ((rounded >> 31) << magnitude_bits);
            select(second > INFINITY, 0, code)
        }
    }
}

/// The number of a code, as a pattern.
#[cube]
fn value(code: u32, scale: u32, shift: u32, tensor_scale: u32, #[comptime] format: Format) -> u32 {
    let exponent = scale as i32 - 127;
    match format {
        Format::Mx(format) => {
            let number = element_value(code, exponent, format.element);
            select(scale == NAN_EXPONENT, NAN, number)
        }
        Format::FloatScale(format) => {
            let block_scale = float_scale_value(scale, format);
            let is_nan = block_scale & ABS >= INFINITY || tensor_scale >= INFINITY;
            let block_abs = select(is_nan, 0, block_scale & ABS);
            let product = bits::product(select(is_nan, 0, tensor_scale), block_abs);
            let unit = element_value(code, 0, format.element);
            let abs = unit & ABS;
            let is_infinite = product >= INFINITY;
            let finite = select(abs >= INFINITY, 0, abs);
            let number = bits::product(finite, select(is_infinite, 0, product));
            // Of a tensor scale that no tensor has, or an element that no tensor has; 0 is 0 times anything finite.
            let is_large = (is_infinite && abs != 0) || abs == INFINITY;
            let magnitude = select(is_large, INFINITY, number);
            let sign = (block_scale ^ unit) & SIGN;
            let no_number = abs > INFINITY || (abs == INFINITY && product == 0);
            select(is_nan || no_number, NAN, sign | magnitude)
        }
        _ => {
            let magnitude_bits = comptime!(magnitude_bits(format));
            let steps = code & comptime!((1u32 << magnitude_bits) - 1);
            let unit = exponent - shift as i32 + comptime!(1 - magnitude_bits as i32);
            let sign = (code >> magnitude_bits) << 31;
            let number = sign | bits::fixed(steps, unit);
            select(scale == NAN_EXPONENT, NAN, number)
        }
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

/// The scale of a code, as a pattern, and its sign: codes of a byte may have one.
#[cube]
fn float_scale_value(code: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    match comptime!(format.scale.float()) {
        Some(float) => element_value(code, 0, float),
        None => code,
    }
}

/// The code of a number of the format times 2^exponent; Inf stands for 2^128.
#[cube]
pub(super) fn element_code(x: u32, exponent: i32, #[comptime] element: ElementFormat) -> u32 {
    let abs = x & ABS;
    let lowest = comptime!(element.emin()) + exponent;
    let own = max(bits::exponent(abs), lowest);
    // The implicit bit counts as one more in the exponent field.
    let magnitude = bits::steps(abs, own - comptime!(element.mantissa_bits() as i32))
        + (((own - lowest) as u32) << comptime!(element.mantissa_bits()));
    let sign = comptime!(1u32 << (element.bits() - 1));
    let negative = if comptime!(element.is_integer()) {
        (0u32 - magnitude) & comptime!(2 * sign - 1)
    } else if comptime!(element.has_negative_zero()) {
        magnitude | sign
    } else {
        select(magnitude == 0, 0, magnitude | sign)
    };
    select(x & SIGN == 0, magnitude, negative)
}

/// The number of a code times 2^exponent, toward zero where that is too fine for float32, as a pattern.
#[cube]
fn element_value(code: u32, exponent: i32, #[comptime] element: ElementFormat) -> u32 {
    let sign = comptime!(1u32 << (element.bits() - 1));
    let is_negative = code & sign != 0;
    let mantissa_bits = comptime!(element.mantissa_bits());
    let lowest = comptime!(element.emin() - element.mantissa_bits() as i32) + exponent;
    let number = if comptime!(element.is_integer()) {
        let complement = (0u32 - code) & comptime!(2 * sign - 1);
        bits::fixed(select(is_negative, complement, code), lowest)
    } else {
        let magnitude = code & comptime!(sign - 1);
        let implicit = max(magnitude >> mantissa_bits, 1) - 1;
        let significand = magnitude - (implicit << mantissa_bits);
        let number = bits::fixed(significand, lowest + implicit as i32);
        let (special, lowest_special) = comptime!(specials(element));
        let of_special = select(magnitude == special, lowest_special, NAN);
        let number = select(magnitude < special, number, of_special);
        if comptime!(element.has_negative_zero()) {
            number
        } else {
            select(is_negative && magnitude == 0, NAN, number)
        }
    };
    let signed = select(is_negative, number | SIGN, number);
    select(number > INFINITY, NAN, signed)
}

/// The lowest magnitude code for NaN or Inf, and its meaning: all codes above are NaN.
fn specials(element: ElementFormat) -> (u32, u32) {
    let magnitudes = 0..1u32 << (element.bits() - 1);
    let mut numbers = magnitudes.map(|code| (code, element.decode(code)));
    match numbers.find(|(_, number)| !number.is_finite()) {
        Some((code, number)) => (code, number.to_bits()),
        None => (u32::MAX, NAN),
    }
}
