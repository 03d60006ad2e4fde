//! A quantized weight of a checkpoint.

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use microscaling::BlockFormat;
use microscaling::safetensors::PackedFiles;

/// The parts of a quantized weight.
pub(crate) enum WeightKind {
    Packed(BlockFormat),
    /// FP8 codes with scales of higher precision: the scales' tensor, and the lengths of a block that shares one.
    Scaled {
        scales: String,
        block: Vec<usize>,
        is_e4m3: bool,
    },
    /// MXFP6 of compressed-tensors.
    Mxfp6,
    /// Integers: the lengths of a block that shares a scale, and whether there are zero points.
    Integers {
        block: [usize; 2],
        is_symmetric: bool,
    },
}

/// A quantized weight.
pub(crate) struct QuantizedLayer {
    pub(crate) kind: WeightKind,
    /// The name in the float model.
    pub(crate) name: String,
    /// The name of the layout, as the tool's configs have it.
    pub(crate) layout: &'static str,
    /// Elements and scales, in words.
    pub(crate) format: String,
    /// The shape in the checkpoint, [out, in] for a matrix.
    pub(crate) shape: Vec<usize>,
    /// The axis of the blocks of a packed weight.
    pub(crate) axis: Option<usize>,
    /// The tensors that store the weight.
    pub(crate) parts: Vec<String>,
    /// The bits of an element.
    pub(crate) bits: u32,
    /// Whether the elements are integers.
    pub(crate) is_integer: bool,
    /// The elements along the last axis that share a scale, where config.json may name their number.
    pub(crate) group: Option<usize>,
    /// Whether the float model has the last two axes in the other order.
    pub(crate) is_turned: bool,
}

impl QuantizedLayer {
    /// The name of the module whose weight this is.
    pub(crate) fn module(&self) -> &str {
        self.name.strip_suffix(".weight").unwrap_or(&self.name)
    }

    /// The lengths of a block that shares a scale, for FP8 and integers.
    pub(crate) fn block(&self) -> Option<&[usize]> {
        match &self.kind {
            WeightKind::Scaled { block, .. } => Some(block),
            WeightKind::Integers { block, .. } => Some(block),
            _ => None,
        }
    }

    /// The shape in the float model.
    pub(crate) fn float_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let (true, rank @ 2..) = (self.is_turned, shape.len()) {
            shape.swap(rank - 2, rank - 1);
        }
        shape
    }

    /// The values as the float model has them.
    pub(crate) fn values(
        &self,
        input: &Checkpoint,
        read: &PackedFiles<'_>,
    ) -> Result<Vec<f32>, Error> {
        let values = read.values(&self.name).expect("it is one of the weights");
        let values = values.map_err(|source| Error::file(&input.path, source))?;
        Ok(match self.is_turned {
            true => turned(&values, &self.shape),
            false => values,
        })
    }
}

/// The values with the last two axes in the other order.
pub(crate) fn turned(values: &[f32], shape: &[usize]) -> Vec<f32> {
    let [.., rows, width] = *shape else {
        return values.to_vec();
    };
    let mut turned = Vec::with_capacity(values.len());
    for matrix in values.chunks((rows * width).max(1)) {
        let of = |i: usize| matrix[i % rows * width + i / rows];
        turned.extend((0..matrix.len()).map(of));
    }
    turned
}
