//! From GPTQ's and AWQ's layouts to `pack-quantized` of compressed-tensors: the same integers, zero points and scales.

use super::super::FileTensor;
use super::{Codes, IntegerLayout, IntegerWeight, integers};
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

/// Why a weight of GPTQ or AWQ has no place in `pack-quantized`; or whether all of its zero points are the middle of the integers.
type Fit = Result<bool, &'static str>;

impl IntegerWeight {
    /// Whether the weight of GPTQ or AWQ is symmetric: every zero point is 2^(bits − 1).
    ///
    /// # Errors
    /// The reason why `pack-quantized` cannot hold the weight. `tensor` looks up the [parts](Self::parts).
    pub fn fits_pack_quantized<'a>(&self, tensor: impl Fn(&str) -> Option<FileTensor<'a>>) -> Fit {
        if !matches!(self.layout, IntegerLayout::Gptq | IntegerLayout::Awq) {
            return Err("the layout is neither gptq nor awq");
        }
        if self.shape.contains(&0) {
            return Err("it is empty");
        }
        let groups = self.groups.as_ref().and_then(|groups| tensor(groups));
        let groups = groups.map(|groups| integers(&groups).unwrap_or_default());
        let in_order = |groups: Vec<usize>| {
            let mut inputs = groups.into_iter().enumerate();
            inputs.all(|(input, group)| group == input / self.block[1])
        };
        if !groups.is_none_or(in_order) {
            return Err("its groups of inputs are permuted");
        }
        let zeros = self.zeros(&tensor).ok_or("a part is missing")?;
        let end = 1 << self.bits;
        match zeros.iter().all(|zero| *zero < end) {
            true => Ok(zeros.iter().all(|zero| 2 * zero == end)),
            false => Err("a zero point is larger than every integer"),
        }
    }

    /// The zero points, [out, groups].
    fn zeros<'a>(&self, tensor: impl Fn(&str) -> Option<FileTensor<'a>>) -> Option<Vec<i32>> {
        let [outputs, inputs] = self.shape;
        let codes = self.codes(&tensor)?;
        let zeros = tensor(self.zero_points.as_ref()?)?;
        let counts = [outputs, inputs.div_ceil(self.block[1])];
        let zero = |i: usize| codes.zero_point(zeros.bytes, [i / counts[1], i % counts[1]], counts);
        Some((0..outputs * counts[1]).map(zero).collect())
    }

    fn codes<'a>(&self, tensor: impl Fn(&str) -> Option<FileTensor<'a>>) -> Option<Codes<'a>> {
        Some(Codes {
            layout: self.layout,
            bits: self.bits as usize,
            bytes: tensor(&self.codes)?.bytes,
            shape: self.shape,
        })
    }

    /// The tensors of a weight of GPTQ or AWQ in the layout `pack-quantized`, with the same values. The weight gets this name. `None` of a
    /// weight that does not [fit](Self::fits_pack_quantized).
    pub fn pack_quantized<'a>(
        &self,
        name: &str,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Option<Vec<RepackedTensor>> {
        let is_symmetric = self.fits_pack_quantized(&tensor).ok()?;
        let [outputs, inputs] = self.shape;
        let bits = self.bits as usize;
        let groups = inputs.div_ceil(self.block[1]);
        let of = |end: &str, dtype: &str, shape: [usize; 2], bytes: Vec<u8>| RepackedTensor {
            name: format!("{name}{end}"),
            dtype: dtype.into(),
            shape: shape.into(),
            bytes,
        };
        let codes = self.codes(&tensor)?;
        let words = (inputs * bits).div_ceil(32);
        let mut packed = vec![0_u32; outputs * words];
        for (output, row) in packed.chunks_exact_mut(words.max(1)).enumerate() {
            for input in 0..inputs {
                put(row, 1, input, bits, codes.integer(output, input));
            }
        }
        let scales = tensor(&self.scales)?;
        let width = scales.bytes.len().checked_div(outputs * groups)?;
        let place = |i: usize| (i % groups * outputs + i / groups) * width;
        let turned = (0..outputs * groups).flat_map(|i| &scales.bytes[place(i)..][..width]);
        let turned = turned.copied().collect();
        let shape = self.shape.map(|length| (length as u64).to_le_bytes());
        let mut stored = vec![
            of("_packed", "I32", [outputs, words], bytes(&packed)),
            of("_scale", &scales.dtype, [outputs, groups], turned),
            RepackedTensor {
                name: format!("{name}_shape"),
                dtype: "I64".into(),
                shape: vec![2],
                bytes: shape.concat(),
            },
        ];
        if !is_symmetric {
            let rows = (outputs * bits).div_ceil(32);
            let mut packed = vec![0_u32; rows * groups];
            for (i, zero) in self.zeros(&tensor)?.into_iter().enumerate() {
                put(&mut packed[i % groups..], groups, i / groups, bits, zero);
            }
            stored.push(of("_zero_point", "I32", [rows, groups], bytes(&packed)));
        }
        Some(stored)
    }
}

/// Writes integer `i` of a stream of words, which are `stride` words apart, over zeros.
fn put(words: &mut [u32], stride: usize, i: usize, bits: usize, code: i32) {
    let (word, shift) = (i * bits / 32 * stride, i * bits % 32);
    let placed = (code as u64) << shift;
    words[word] |= placed as u32;
    if shift + bits > 32 {
        words[word + stride] |= (placed >> 32) as u32;
    }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
