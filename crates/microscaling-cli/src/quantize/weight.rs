//! From a weight's numbers to its packed form.

use super::QuantizeArgs;
use crate::output::PackedWeight;
use microscaling::{BlockFormat, Comparison, Packed, RandomStream, Rounding, Statistics};
use std::error::Error;

/// The numbers of a weight.
pub(super) struct WeightNumbers<'a> {
    pub(super) data: &'a [f32],
    pub(super) shape: &'a [usize],
    /// The axis along which blocks lie.
    pub(super) axis: usize,
    /// The number of the stream that stochastic rounding draws from.
    pub(super) stream: u64,
    /// The largest magnitude of the fused layers that the weight belongs to.
    pub(super) largest: Option<f32>,
}

impl WeightNumbers<'_> {
    /// Packs the numbers, by the rules of the dialect if there is one. The second result is the divisor that the dialect stores.
    pub(super) fn encode(
        &self,
        args: &QuantizeArgs,
        format: BlockFormat,
        rounding: Rounding,
    ) -> Result<PackedWeight, Box<dyn Error>> {
        let (data, shape) = (self.data, self.shape);
        if let Some(dialect) = args.dialect {
            let encoded = match self.largest {
                Some(largest) => dialect.encode_part(format, data, shape, largest),
                None => dialect.encode(format, data, shape),
            }?;
            return Ok((encoded.packed, encoded.divisor));
        }
        let stream = RandomStream::new(args.seed.unwrap_or(0), self.stream);
        let (axis, rounder) = (self.axis, rounding.with(stream));
        let packed = match self.largest {
            Some(largest) => Packed::encode_part(format, data, shape, axis, rounder, largest),
            None => Packed::encode(format, data, shape, axis, rounder),
        };
        Ok((packed?, None))
    }

    /// The SQNR of the packed numbers in dB, as text.
    pub(super) fn sqnr(
        &self,
        format: BlockFormat,
        packed: &Packed,
    ) -> Result<String, Box<dyn Error>> {
        let statistics = Statistics::of(Comparison {
            original: self.data,
            quantized: &packed.decode(),
            shape: self.shape,
            axis: self.axis,
            format: Some(format),
        })?;
        let sqnr = statistics.sqnr();
        Ok(sqnr.map_or("-".into(), |sqnr| format!("{sqnr:.2}")))
    }
}
