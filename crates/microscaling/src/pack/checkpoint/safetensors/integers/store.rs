//! The tensors of integers in each layout.

use super::{AWQ_PLACES, IntegerLayout, IntegerMatrix};
use alloc::{format, string::String, vec, vec::Vec};

/// A tensor with its own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepackedTensor {
    /// Its name.
    pub name: String,
    /// The type of its elements, by safetensors' name.
    pub dtype: String,
    /// The lengths of its axes.
    pub shape: Vec<usize>,
    /// Its bytes, in row-major order.
    pub bytes: Vec<u8>,
}

impl IntegerMatrix {
    /// The tensors of the weight in a layout that [can hold it](Self::check).
    pub fn store(&self, layout: IntegerLayout, name: &str) -> Vec<RepackedTensor> {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        match layout {
            IntegerLayout::Bytes => self.bytes(name, !self.is_symmetric()),
            IntegerLayout::PackQuantized => self.pack_quantized(name, !self.is_symmetric()),
            IntegerLayout::Gptq | IntegerLayout::GptqV2 => self.gptq(module, layout.least_zero()),
            IntegerLayout::Awq => self.awq(module),
        }
    }

    pub(in super::super) fn bytes(&self, name: &str, zero_points: bool) -> Vec<RepackedTensor> {
        let middle = 1 << (self.bits - 1);
        let tensor = |end: &str, shape: Vec<usize>, bytes: Vec<u8>| RepackedTensor {
            name: format!("{name}{end}"),
            dtype: "I8".into(),
            shape,
            bytes,
        };
        let integers = self.integers.iter().map(|x| x.wrapping_sub(middle));
        let mut stored = vec![
            tensor("", self.shape.into(), integers.collect()),
            self.scales_by_output(name),
        ];
        if zero_points {
            let zeros = self.zeros.iter().map(|x| (*x as u8).wrapping_sub(middle));
            let shape = vec![self.shape[0], self.groups()];
            stored.push(tensor("_zero_point", shape, zeros.collect()));
        }
        stored
    }

    pub(in super::super) fn pack_quantized(
        &self,
        name: &str,
        zero_points: bool,
    ) -> Vec<RepackedTensor> {
        let ([outputs, inputs], bits, groups) = (self.shape, self.bits as usize, self.groups());
        let codes = in_rows([outputs, inputs], bits, |i, j| self.integer(i, j));
        let shape = self.shape.map(|length| (length as u64).to_le_bytes());
        let of = |end: &str| format!("{name}{end}");
        let mut stored = vec![
            words(
                of("_packed"),
                [outputs, (inputs * bits).div_ceil(32)],
                &codes,
            ),
            self.scales_by_output(name),
            RepackedTensor {
                name: of("_shape"),
                dtype: "I64".into(),
                shape: vec![2],
                bytes: shape.concat(),
            },
        ];
        if zero_points {
            let zeros = in_columns([outputs, groups], bits, |i, j| self.zero(i, j));
            let shape = [(outputs * bits).div_ceil(32), groups];
            stored.push(words(of("_zero_point"), shape, &zeros));
        }
        stored
    }

    /// `less` is the zero point that is stored as 0.
    fn gptq(&self, module: &str, less: i32) -> Vec<RepackedTensor> {
        let ([outputs, inputs], bits, groups) = (self.shape, self.bits as usize, self.groups());
        let codes = in_columns([inputs, outputs], bits, |i, j| self.integer(j, i));
        let zeros = in_rows([groups, outputs], bits, |i, j| {
            self.zero(j, i).wrapping_sub(less as u32)
        });
        let group = |input| self.order.as_ref().map_or(input / self.group, |x| x[input]);
        let order = (0..inputs).flat_map(|input| (group(input) as u32).to_le_bytes());
        vec![
            words(
                format!("{module}.qweight"),
                [(inputs * bits).div_ceil(32), outputs],
                &codes,
            ),
            self.scales_by_group(module),
            words(
                format!("{module}.qzeros"),
                [groups, (outputs * bits).div_ceil(32)],
                &zeros,
            ),
            RepackedTensor {
                name: format!("{module}.g_idx"),
                dtype: "I32".into(),
                shape: vec![inputs],
                bytes: order.collect(),
            },
        ]
    }

    fn awq(&self, module: &str) -> Vec<RepackedTensor> {
        let ([outputs, inputs], bits, groups) = (self.shape, self.bits as usize, self.groups());
        // The output in each place of a word.
        let mut places = [0; AWQ_PLACES.len()];
        for (output, place) in AWQ_PLACES.into_iter().enumerate() {
            places[place] = output;
        }
        let output = |place: usize| place / 8 * 8 + places[place % 8];
        let codes = in_rows([inputs, outputs], bits, |i, j| self.integer(output(j), i));
        let zeros = in_rows([groups, outputs], bits, |i, j| self.zero(output(j), i));
        vec![
            words(format!("{module}.qweight"), [inputs, outputs / 8], &codes),
            self.scales_by_group(module),
            words(format!("{module}.qzeros"), [groups, outputs / 8], &zeros),
        ]
    }

    /// The scales, \[out, groups\].
    fn scales_by_output(&self, name: &str) -> RepackedTensor {
        RepackedTensor {
            name: format!("{name}_scale"),
            dtype: self.scales.0.clone(),
            shape: vec![self.shape[0], self.groups()],
            bytes: self.scales.1.clone(),
        }
    }

    /// The scales, \[groups, out\].
    fn scales_by_group(&self, module: &str) -> RepackedTensor {
        let ([outputs, _], groups) = (self.shape, self.groups());
        let (dtype, scales) = &self.scales;
        let width = scales.len().checked_div(outputs * groups).unwrap_or(0);
        let place = |i: usize| (i % outputs * groups + i / outputs) * width;
        let bytes = (0..groups * outputs).flat_map(|i| &scales[place(i)..][..width]);
        RepackedTensor {
            name: format!("{module}.scales"),
            dtype: dtype.clone(),
            shape: vec![groups, outputs],
            bytes: bytes.copied().collect(),
        }
    }

    fn groups(&self) -> usize {
        self.zeros.len() / self.shape[0].max(1)
    }

    fn integer(&self, output: usize, input: usize) -> u32 {
        self.integers[output * self.shape[1] + input].into()
    }

    fn zero(&self, output: usize, group: usize) -> u32 {
        self.zeros[output * self.groups() + group] as u32
    }
}

/// Rows of numbers, each row as a stream of words.
fn in_rows(
    [rows, width]: [usize; 2],
    bits: usize,
    number: impl Fn(usize, usize) -> u32,
) -> Vec<u32> {
    let words = (width * bits).div_ceil(32);
    let mut packed = vec![0; rows * words];
    for (row, words) in packed.chunks_exact_mut(words.max(1)).enumerate() {
        (0..width).for_each(|i| put(words, 1, i, bits, number(row, i)));
    }
    packed
}

/// Rows of numbers, each column as a stream of words, which goes down.
fn in_columns(
    [rows, width]: [usize; 2],
    bits: usize,
    number: impl Fn(usize, usize) -> u32,
) -> Vec<u32> {
    let mut packed = vec![0; (rows * bits).div_ceil(32) * width];
    for row in 0..rows {
        (0..width).for_each(|i| put(&mut packed[i..], width, row, bits, number(row, i)));
    }
    packed
}

/// Writes number `i` of a stream of words, which are `stride` words apart, over zeros.
fn put(words: &mut [u32], stride: usize, i: usize, bits: usize, number: u32) {
    let (word, shift) = (i * bits / 32 * stride, i * bits % 32);
    let placed = u64::from(number) << shift;
    words[word] |= placed as u32;
    if shift + bits > 32 {
        words[word + stride] |= (placed >> 32) as u32;
    }
}

fn words(name: String, shape: [usize; 2], words: &[u32]) -> RepackedTensor {
    RepackedTensor {
        name,
        dtype: "I32".into(),
        shape: shape.into(),
        bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
    }
}
