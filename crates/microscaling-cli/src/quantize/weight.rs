//! From a weight's numbers to its packed form.

use super::QuantizeArgs;
use super::inputs::stored;
use super::numbers::NewNumbers;
use crate::output::PackedWeight;
use crate::target::NewLayout;
use microscaling::internal::nvfp4_of_halves;
use microscaling::safetensors::{CheckpointLayout, IntegerMatrix, RepackedTensor};
use microscaling::{Comparison, DialectTensor, Packed, RandomStream, Statistics};
use std::error::Error;

/// The numbers of a weight.
pub(super) struct WeightNumbers<'a> {
    pub(super) name: &'a str,
    pub(super) data: &'a [f32],
    pub(super) shape: &'a [usize],
    /// The axis along which blocks lie.
    pub(super) axis: usize,
    /// The number of the stream that stochastic rounding draws from.
    pub(super) stream: u64,
    /// The largest magnitude of the fused layers that the weight belongs to.
    pub(super) largest: Option<f32>,
    /// The type of the stored numbers.
    pub(super) dtype: &'a str,
    /// The largest magnitude of the layer's input, where the scheme fixes a scale.
    pub(super) input_max: Option<f32>,
}

impl WeightNumbers<'_> {
    /// Packs the numbers, by the rules of the dialect if there is one. The second result are the values of the packed weight.
    pub(super) fn encode(
        &self,
        args: &QuantizeArgs,
        target: NewNumbers,
    ) -> Result<(PackedWeight, Vec<f32>), Box<dyn Error>> {
        let (data, shape) = (self.data, self.shape);
        let (format, rounding) = match target {
            NewNumbers::Blocks(format, _, rounding) => (format, rounding),
            NewNumbers::Compressed(numbers) => {
                let (mut tensors, values) = numbers.encode(data, self.name, shape, self.dtype)?;
                tensors.extend(self.input_scale(args));
                return Ok((PackedWeight::Tensors(tensors), values));
            }
            NewNumbers::Integers(format, layout) => {
                let matrix = IntegerMatrix::round(data, self.name, shape, format, layout)?;
                let tensors = matrix.store(layout, self.name);
                return Ok((PackedWeight::Tensors(tensors), matrix.values()));
            }
        };
        if let Some(dialect) = args.dialect {
            let encoded = match self.largest {
                _ if args.scheme.is_some() && format.tensor_scale && self.dtype != "F32" => {
                    let (packed, divisor) = nvfp4_of_halves(data, shape, self.dtype, self.largest)?;
                    DialectTensor {
                        packed,
                        divisor: Some(divisor),
                    }
                }
                Some(largest) => dialect.encode_part(format, data, shape, largest)?,
                None => dialect.encode(format, data, shape)?,
            };
            let values = encoded.packed.decode();
            let weight = match (self.input_scale(args), args.layout) {
                (Some(input), NewLayout::Packed(CheckpointLayout::Weights(layout))) => {
                    let view = encoded.packed.view();
                    let stored = layout.store(self.name, &view, encoded.divisor)?;
                    let stored = stored.into_iter().map(|tensor| RepackedTensor {
                        name: tensor.name,
                        dtype: tensor.dtype.name().to_owned(),
                        shape: tensor.shape,
                        bytes: tensor.bytes,
                    });
                    PackedWeight::Tensors(stored.chain([input]).collect())
                }
                _ => PackedWeight::Blocks(encoded.packed, encoded.divisor),
            };
            return Ok((weight, values));
        }
        let stream = RandomStream::new(args.seed.unwrap_or(0), self.stream);
        let (axis, rounder) = (self.axis, rounding.with(stream));
        let packed = match self.largest {
            Some(largest) => Packed::encode_part(format, data, shape, axis, rounder, largest),
            None => Packed::encode(format, data, shape, axis, rounder),
        };
        let packed = packed?;
        let values = packed.decode();
        Ok((PackedWeight::Blocks(packed, None), values))
    }

    /// The tensor that fixes the scale of the layer's input.
    fn input_scale(&self, args: &QuantizeArgs) -> Option<RepackedTensor> {
        let end = args.scheme?.input_scale()?;
        Some(stored(end, self.name, self.input_max?, self.dtype))
    }

    /// The SQNR of the packed numbers in dB, as text.
    pub(super) fn sqnr(
        &self,
        target: NewNumbers,
        values: &[f32],
    ) -> Result<String, Box<dyn Error>> {
        let statistics = Statistics::of(Comparison {
            original: self.data,
            quantized: values,
            shape: self.shape,
            axis: self.axis,
            format: target.blocks(),
        })?;
        let sqnr = statistics.sqnr();
        Ok(sqnr.map_or("-".into(), |sqnr| format!("{sqnr:.2}")))
    }
}
