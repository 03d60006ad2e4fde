//! Weights of integers with scales, as tools for int8 and int4 write them.

mod format;
mod matrix;
mod store;

use super::FileTensor;
use super::scaled::{block, scale_bytes};
use alloc::{borrow::ToOwned, format, string::String, vec::Vec};
pub use format::IntegerFormat;
pub use matrix::IntegerMatrix;
pub use store::RepackedTensor;

/// How a tool stores the integers of a weight `NAME.weight` \[out, in\] of `bits` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IntegerLayout {
    /// `int-quantized` of compressed-tensors: `NAME.weight` I8 \[out, in\], `NAME.weight_scale`.
    Bytes,
    /// `pack-quantized` of compressed-tensors 0.20: `NAME.weight_packed` I32 \[out, ⌈in · bits / 32⌉\], `NAME.weight_scale`,
    /// `NAME.weight_shape`. Integer `i` of a row, plus 2^(bits − 1), has the bits from `i · bits` on, the lowest first.
    PackQuantized,
    /// GPTQ: `NAME.qweight` I32 \[in · bits / 32, out\], `NAME.scales` \[groups, out\], `NAME.qzeros` I32 \[groups, out · bits / 32\],
    /// and `NAME.g_idx` I32 \[in\], the group of each input. A stored zero point is less by 1 (in
    /// AutoGPTQ 0.7.1, file qlinear_cuda.py, the largest stored number means 2^bits; qlinear_cuda_old.py takes this number for 0).
    Gptq,
    /// GPTQ's second version, `checkpoint_format: gptq_v2`: the same tensors, with the zero points as they are. The names and types of the
    /// tensors are the first version's; the checkpoint's config tells the two apart, see [`set_gptq_v2`](super::PackedFiles::set_gptq_v2).
    GptqV2,
    /// AWQ's GEMM layout of 4 bits: `NAME.qweight` I32 \[in, out / 8\], `NAME.scales` \[groups, out\], `NAME.qzeros` I32
    /// \[groups, out / 8\]. A word has the outputs 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on.
    Awq,
}

impl IntegerLayout {
    /// The name that the tool's configs have.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "int-quantized",
            Self::PackQuantized => "pack-quantized",
            Self::Gptq => "gptq",
            Self::GptqV2 => "gptq_v2",
            Self::Awq => "awq",
        }
    }

    /// The zero point that is stored as 0, where integers are from 0 on.
    const fn least_zero(self) -> i32 {
        matches!(self, Self::Gptq) as i32
    }

    /// Whether the tensors have the name of the layer, and scales and zero points the axes \[groups, out\].
    pub(super) const fn is_of_layer(self) -> bool {
        matches!(self, Self::Gptq | Self::GptqV2 | Self::Awq)
    }
}

/// A weight \[out, in\] of integers: (integer − zero point) · scale, one scale for the tensor, each row, or each block of rows and
/// columns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntegerWeight {
    /// How the integers are stored.
    pub layout: IntegerLayout,
    /// Bits of an integer.
    pub bits: u32,
    /// The weight's shape, \[out, in\].
    pub shape: [usize; 2],
    /// The lengths of a block along the weight's axes. The last block of an axis may be shorter.
    pub block: [usize; 2],
    /// Whether the shapes tell the lengths: groups of one length fill a row, or one length alone gives as many blocks. Otherwise the
    /// checkpoint's config has to tell them, see [`set_block`](super::PackedFiles::set_block).
    pub is_block_known: bool,
    /// The name of the tensor of integers.
    pub codes: String,
    /// The name of the tensor of scales.
    pub scales: String,
    /// The name of the tensor of zero points; `None` of a symmetric weight.
    pub zero_points: Option<String>,
    /// The name of the tensor that says the group of each input, if the groups do not follow one another.
    pub groups: Option<String>,
    /// The name of a tensor that says the weight's shape.
    pub said_shape: Option<String>,
}

impl IntegerWeight {
    /// The weight with these integers, and the weight's name; `None` of a tensor without scales that fit it.
    pub(super) fn find<'a>(
        codes: &str,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Option<(String, Self)> {
        if let Some(layer) = codes.strip_suffix(".qweight") {
            return of_layer(codes, layer, tensor);
        }
        let stored = tensor(codes)?;
        let (name, layout) = match (codes.strip_suffix("_packed"), stored.dtype.as_str()) {
            (Some(name), "I32") => (name, IntegerLayout::PackQuantized),
            (None, "I8") => (codes, IntegerLayout::Bytes),
            _ => return None,
        };
        let said_shape = format!("{name}_shape");
        let [rows, words] = stored.shape[..].try_into().ok()?;
        let (shape, bits) = match layout {
            IntegerLayout::Bytes => ([rows, words], 8),
            _ => {
                let shape: [usize; 2] = integers(&tensor(&said_shape)?)?.try_into().ok()?;
                let fits =
                    |bits: &u32| (shape[1].checked_mul(*bits as usize)).map(|x| x.div_ceil(32));
                let bits = (1..=8).find(|bits| fits(bits) == Some(words))?;
                (rows == shape[0]).then_some(())?;
                (shape, bits)
            }
        };
        let scales = format!("{name}_scale");
        let stored = tensor(&scales)?;
        scale_bytes(&stored.dtype)?;
        let (lengths, mut is_block_known) = block(&shape, &stored.shape)?;
        let mut block: [usize; 2] = lengths.try_into().ok()?;
        if let [outputs, groups] = stored.shape[..]
            && outputs == shape[0]
            && groups > 1
            && shape[1].is_multiple_of(groups)
        {
            (block, is_block_known) = ([1, (shape[1] / groups).max(1)], true);
        }
        let zero_points = format!("{name}_zero_point");
        let zero_points = match tensor(&zero_points) {
            None => None,
            Some(zeros) => {
                let counts = [shape[0].div_ceil(block[0]), shape[1].div_ceil(block[1])];
                let packed = [(counts[0] * bits as usize).div_ceil(32), counts[1]];
                let fits = match layout {
                    IntegerLayout::Bytes => zeros.dtype == "I8" && zeros.shape == stored.shape,
                    _ => zeros.dtype == "I32" && zeros.shape == packed,
                };
                fits.then_some(())?;
                Some(zero_points)
            }
        };
        // Older versions of compressed-tensors permute the groups of inputs.
        let groups = Some(format!("{name}_g_idx")).filter(|name| tensor(name).is_some());
        if let Some(groups) = &groups {
            is_groups(&tensor(groups)?, shape[1], shape[1].div_ceil(block[1])).then_some(())?;
        }
        let weight = Self {
            layout,
            bits,
            shape,
            block,
            is_block_known,
            codes: codes.to_owned(),
            scales,
            zero_points,
            groups,
            said_shape: (layout == IntegerLayout::PackQuantized).then_some(said_shape),
        };
        Some((name.to_owned(), weight))
    }

    /// The names of the tensors that store the weight, the integers first.
    pub fn parts(&self) -> Vec<String> {
        let more = [&self.zero_points, &self.groups, &self.said_shape];
        let more = more.into_iter().flatten();
        [&self.codes, &self.scales]
            .into_iter()
            .chain(more)
            .cloned()
            .collect()
    }

    /// The values in row-major order, \[out, in\]: (integer − zero point) · scale, rounded to float32. `tensor` looks up the
    /// [parts](Self::parts); `None` if one is missing.
    pub fn values<'a>(&self, tensor: impl Fn(&str) -> Option<FileTensor<'a>>) -> Option<Vec<f32>> {
        Some(self.matrix(tensor)?.values())
    }
}

/// A weight of GPTQ or AWQ, and its name.
fn of_layer<'a>(
    codes: &str,
    layer: &str,
    tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
) -> Option<(String, IntegerWeight)> {
    let part = |end: &str| format!("{layer}.{end}");
    let [stored, zeros] = [tensor(codes)?, tensor(&part("qzeros"))?];
    let scales = tensor(&part("scales"))?;
    scale_bytes(&scales.dtype)?;
    let [rows, columns]: [usize; 2] = stored.shape[..].try_into().ok()?;
    let [count, outputs]: [usize; 2] = scales.shape[..].try_into().ok()?;
    let groups = part("g_idx");
    let of_inputs = tensor(&groups);
    let (layout, bits, inputs) = match &of_inputs {
        Some(of_inputs) if columns == outputs => {
            let [inputs]: [usize; 1] = of_inputs.shape[..].try_into().ok()?;
            let fits = |bits: &u32| inputs.checked_mul(*bits as usize) == rows.checked_mul(32);
            let bits = [2, 3, 4, 8].into_iter().find(fits)?;
            is_groups(of_inputs, inputs, count).then_some(())?;
            (IntegerLayout::Gptq, bits, inputs)
        }
        None if columns.checked_mul(8) == Some(outputs) => (IntegerLayout::Awq, 4, rows),
        _ => return None,
    };
    let words = outputs.checked_mul(bits as usize)?.div_ceil(32);
    let is_whole = stored.dtype == "I32"
        && zeros.dtype == "I32"
        && zeros.shape == [count, words]
        && count > 0
        && (of_inputs.is_some() || inputs.is_multiple_of(count));
    is_whole.then_some(())?;
    // The last group may be shorter.
    let order = of_inputs.as_ref().and_then(integers).unwrap_or_default();
    let first = order.iter().take_while(|group| **group == 0).count();
    let in_order = |(i, group): (usize, &usize)| i.checked_div(first) == Some(*group);
    let group = match !order.is_empty() && order.iter().enumerate().all(in_order) {
        true if inputs.div_ceil(first) == count => first,
        _ => inputs.div_ceil(count).max(1),
    };
    let weight = IntegerWeight {
        layout,
        bits,
        shape: [outputs, inputs],
        block: [1, group],
        is_block_known: true,
        codes: codes.to_owned(),
        scales: part("scales"),
        zero_points: Some(part("qzeros")),
        groups: of_inputs.map(|_| groups),
        said_shape: None,
    };
    Some((part("weight"), weight))
}

/// The places in a word of AWQ that the outputs 0 to 7 have.
const AWQ_PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// The stored integers of a weight.
struct Codes<'a> {
    layout: IntegerLayout,
    bits: usize,
    bytes: &'a [u8],
    /// \[out, in\].
    shape: [usize; 2],
}

impl Codes<'_> {
    /// An integer, with its sign if it has one.
    fn integer(&self, output: usize, input: usize) -> i32 {
        let [outputs, inputs] = self.shape;
        match self.layout {
            IntegerLayout::Bytes => i32::from(self.bytes[output * inputs + input] as i8),
            IntegerLayout::PackQuantized => {
                let words = (inputs * self.bits).div_ceil(32);
                let of = |word| output * words + word;
                field(self.bytes, of, input, self.bits) - (1 << (self.bits - 1))
            }
            IntegerLayout::Gptq | IntegerLayout::GptqV2 => {
                field(self.bytes, |word| word * outputs + output, input, self.bits)
            }
            IntegerLayout::Awq => awq(self.bytes, outputs, input, output),
        }
    }

    /// The zero point of a block.
    fn zero_point(&self, zeros: &[u8], [row, group]: [usize; 2], counts: [usize; 2]) -> i32 {
        match self.layout {
            IntegerLayout::Bytes => i32::from(zeros[row * counts[1] + group] as i8),
            IntegerLayout::PackQuantized => {
                let of = |word| word * counts[1] + group;
                field(zeros, of, row, self.bits) - (1 << (self.bits - 1))
            }
            IntegerLayout::Gptq | IntegerLayout::GptqV2 => {
                let words = (self.shape[0] * self.bits).div_ceil(32);
                let stored = field(zeros, |word| group * words + word, row, self.bits);
                stored + self.layout.least_zero()
            }
            IntegerLayout::Awq => awq(zeros, self.shape[0], group, row),
        }
    }
}

/// Integer `i` of a stream of words, where `of` gives the place of a word.
fn field(bytes: &[u8], of: impl Fn(usize) -> usize, i: usize, bits: usize) -> i32 {
    let word = |place: usize| {
        let bytes = bytes[4 * place..].first_chunk().copied();
        u64::from(u32::from_le_bytes(bytes.expect("words are whole")))
    };
    let (first, shift) = (i * bits / 32, i * bits % 32);
    let mut found = word(of(first)) >> shift;
    if shift + bits > 32 {
        found |= word(of(first + 1)) << (32 - shift);
    }
    (found & ((1 << bits) - 1)) as i32
}

/// The integer in a row of words of AWQ that belongs to an output.
fn awq(bytes: &[u8], outputs: usize, row: usize, output: usize) -> i32 {
    let word = row * (outputs / 8) + output / 8;
    field(bytes, |_| word, AWQ_PLACES[output % 8], 4)
}

/// The numbers of a tensor of I32 or I64; `None` if one is negative.
fn integers(tensor: &FileTensor<'_>) -> Option<Vec<usize>> {
    match tensor.dtype.as_str() {
        "I32" => {
            let words = tensor.bytes.as_chunks().0.iter();
            words
                .map(|word| i32::from_le_bytes(*word).try_into().ok())
                .collect()
        }
        "I64" => {
            let words = tensor.bytes.as_chunks().0.iter();
            words
                .map(|word| i64::from_le_bytes(*word).try_into().ok())
                .collect()
        }
        _ => None,
    }
}

/// Whether a tensor says a group, of as many, for each input.
fn is_groups(tensor: &FileTensor<'_>, inputs: usize, count: usize) -> bool {
    let groups = integers(tensor).filter(|groups| groups.len() == inputs);
    groups.is_some_and(|groups| groups.iter().all(|group| *group < count))
}
