//! Weights by ONNX's newest types.

use microscaling::{ElementFormat, Packed};

use super::{Storage, blocks};
use crate::additions::Builder;
use crate::error::OnnxError;
use crate::proto::{NewAttribute, data_type};

/// The version of `DequantizeLinear` with [`WeightTypes::Newest`](crate::WeightTypes::Newest).
pub(super) const NEWEST: i64 = 24;

impl Storage {
    /// ONNX's type of the elements where it has blocks of them.
    pub(super) fn newest(&self) -> Option<i64> {
        let format = self.format;
        if format.square || !format.is_mx() && !format.is_nvfp4() {
            return None;
        }
        match format.element {
            ElementFormat::FP4_E2M1 => Some(data_type::FLOAT4E2M1),
            element => fp8(element),
        }
    }

    /// The weight by ONNX's own types.
    pub(super) fn dequantize_newest(
        &self,
        to: &mut Builder<'_, '_>,
        name: &str,
        packed: &Packed,
    ) -> Result<String, OnnxError> {
        let (shape, axis) = (packed.shape(), packed.axis());
        let element = self.newest().expect("checked");
        let codes = to.constant(
            &format!("{name}_codes"),
            element,
            shape,
            packed.elements().to_vec(),
        )?;
        let scales = packed.scales().to_vec();
        let shape_of_scales = packed.scales_shape();
        let wish = format!("{name}_scales");
        let mut attributes = blocks(
            axis,
            match self.format.group_size() {
                0 => shape[axis],
                size => size,
            },
        );
        let scales = match self.format.has_exponent() {
            true => {
                attributes.push(NewAttribute::Integer("output_dtype", data_type::FLOAT));
                to.constant(&wish, data_type::FLOAT8E8M0, &shape_of_scales, scales)?
            }
            false => {
                let wish_codes = format!("{name}_scale_codes");
                let codes = to.constant(
                    &wish_codes,
                    data_type::FLOAT8E4M3FN,
                    &shape_of_scales,
                    scales,
                )?;
                let scale = packed.tensor_scale().unwrap_or(1.0).to_le_bytes().to_vec();
                let scale = to.constant(
                    &format!("{name}_tensor_scale"),
                    data_type::FLOAT,
                    &[],
                    scale,
                )?;
                to.node(&wish, "DequantizeLinear", &[&codes, &scale], Vec::new())
            }
        };
        Ok(to.node(
            &format!("{name}_quantized"),
            "DequantizeLinear",
            &[&codes, &scales],
            attributes,
        ))
    }
}

/// ONNX's type of elements with 8 bits.
pub(super) fn fp8(element: ElementFormat) -> Option<i64> {
    match element {
        ElementFormat::FP8_E4M3 => Some(data_type::FLOAT8E4M3FN),
        ElementFormat::FP8_E5M2 => Some(data_type::FLOAT8E5M2),
        _ => None,
    }
}
