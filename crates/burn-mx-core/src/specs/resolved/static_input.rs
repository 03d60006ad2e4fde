//! Scales of a layer's input that were fixed by calibration.

use std::sync::Arc;

use microscaling::BlockFormat;
use serde::{Deserialize, Serialize};

use crate::specs::ResolvedSpecs;

/// The largest magnitude that calibration found in each block of a layer's input, by the block's place along the summed axis.
/// This magnitude fixes the block's scale for every later input.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticInput {
    pub(crate) length: usize,
    /// Patterns of float32, one for each block.
    amax: Vec<u32>,
}

impl StaticInput {
    /// From the largest magnitude at each place along the axis, which is not empty, and the format of the input.
    pub fn new(largest: &[f32], format: BlockFormat) -> Self {
        let blocks = largest.chunks(block_length(format, largest.len()));
        let amax = blocks.map(|block| block.iter().copied().fold(0.0, f32::max).to_bits());
        Self {
            length: largest.len(),
            amax: amax.collect(),
        }
    }

    /// The length of this axis.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether these scales fit inputs in this format. They never fit a format whose scale is a float, because a float does not
    /// follow from the exponent of the largest magnitude alone.
    pub fn fits(&self, format: Option<BlockFormat>) -> bool {
        let is_magnitude = |pattern: &u32| *pattern < f32::INFINITY.to_bits();
        let fits = |format| {
            let blocks = self.length.div_ceil(block_length(format, self.length));
            format.has_exponent()
                && format.other_scales().is_none()
                && blocks == self.amax.len()
                && self.amax.iter().all(is_magnitude)
        };
        self.length > 0 && format.is_some_and(fits)
    }

    /// The largest magnitudes, one for each block.
    pub fn amax(&self) -> impl Iterator<Item = f32> {
        self.amax.iter().copied().map(f32::from_bits)
    }
}

/// Elements of a block along an axis of this length; the last block may have fewer.
pub(crate) fn block_length(format: BlockFormat, length: usize) -> usize {
    match format.group_size() {
        0 => length,
        size => size,
    }
}

impl ResolvedSpecs {
    /// Whether the scales of a layer's input are fixed, by a calibration
    /// ([`ptq::Activations::Static`](https://docs.rs/burn-mx/latest/burn_mx/ptq/enum.Activations.html)). The scales belong
    /// to the calibrated layer, not to [`specs`](Self::specs): text and JSON leave them out.
    pub fn has_static_input(&self) -> bool {
        self.static_input.is_some()
    }

    /// The scales of the input, if these are the specs of a layer with static scales.
    pub fn static_input(&self) -> Option<&StaticInput> {
        self.static_input.as_deref()
    }

    /// The same specs with scales of the input.
    pub fn with_static_input(mut self, input: StaticInput) -> Self {
        self.static_input = Some(Arc::new(input));
        self
    }
}

/// As [`ResolvedSpecs`] keep it.
pub(super) type Shared = Option<Arc<StaticInput>>;
