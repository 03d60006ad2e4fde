//! Weights in their real size: codes, tables of their numbers, and the nodes that make floats of both.

mod codes;
mod newest;

use microscaling::{BlockFormat, ElementFormat, Packed, Rounding};

use crate::additions::Builder;
use crate::error::OnnxError;
use crate::proto::{NewAttribute, data_type, little_endian};
use crate::weights::codes::{bytes_of, gather, look_up, pack, shifts, small_codes, table_shape};
use newest::{NEWEST, fp8};

/// How weights are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightTypes {
    /// As every engine can read them: FP8 by `DequantizeLinear` in blocks from operator set 21 on, all else as packed codes,
    /// which `Gather` looks up in tables. ONNX Runtime executes both on processors.
    #[default]
    Portable,
    /// By ONNX's newest types, `FLOAT4E2M1` and `FLOAT8E8M0`, with `DequantizeLinear` in blocks, from operator set 24 on. For
    /// `mxfp4`, `mxfp8_e4m3`, `mxfp8_e5m2` and `nvfp4`. ONNX Runtime 1.32 does not execute them.
    Newest,
}

/// The families of formats that weights can have.
pub(crate) const FAMILIES: &str = "allowed: MX, microexponents, block floating point, NVFP4";

/// The version of `DequantizeLinear` with blocks.
const BLOCKED: i64 = 21;

/// 8-bit floats are in the format from this version on; 4-bit floats and powers of two, from the other one.
const FP8_SINCE: i64 = 9;
const NEWEST_SINCE: i64 = 12;

/// How each weight is rounded and stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub(crate) format: BlockFormat,
    pub(crate) rounding: Rounding,
    pub(crate) types: WeightTypes,
    /// The version of ONNX's operators.
    pub(crate) opset: i64,
}

impl Storage {
    /// Checks that weights can be in this format.
    pub(crate) fn check(&self) -> Result<(), OnnxError> {
        let refuse = |reason| Err(self.refused(reason));
        if let Some((field, got)) = self.format.other_scales() {
            return refuse(&format!("{field} is {got}; allowed: one scale a block"));
        }
        if !self.format.has_exponent() && !self.format.is_nvfp4() {
            return refuse(FAMILIES);
        }
        if self.format.element_bits() > 8 {
            return refuse("its elements have more than 8 bits; allowed: up to 8");
        }
        if let Some(shifts) = self.format.shifts
            && !matches!(shifts.bits, 1 | 2 | 4 | 8)
        {
            return refuse("allowed `shift_bits`: 1, 2, 4, 8");
        }
        if self.rounding == Rounding::Stochastic {
            return Err(OnnxError::Field {
                field: "rounding".into(),
                value: self.rounding.to_string(),
                allowed: "even, nearest, floor".into(),
            });
        }
        if self.types == WeightTypes::Newest {
            if self.newest().is_none() {
                return refuse(
                    "ONNX has no type for its elements or scales; allowed with the newest types: mxfp4, mxfp8_e4m3, mxfp8_e5m2, \
                     nvfp4",
                );
            }
            if self.opset < NEWEST {
                return Err(OnnxError::Opset {
                    place: "the model".into(),
                    got: self.opset,
                    allowed: format!(
                        "{NEWEST} or more for the newest types; onnx.version_converter raises it"
                    ),
                });
            }
        }
        Ok(())
    }

    fn refused(&self, reason: &str) -> OnnxError {
        OnnxError::Format {
            format: self.format.to_string(),
            tensors: "weights",
            reason: reason.to_owned(),
        }
    }

    /// Adds a weight of this shape, with blocks along `axis`. Returns the name of its value, of the type `data_type`.
    pub(crate) fn add(
        &self,
        to: &mut Builder<'_, '_>,
        name: &str,
        floats: Vec<f32>,
        (shape, axis): (&[usize], usize),
        data_type: i64,
    ) -> Result<String, OnnxError> {
        let packed = Packed::encode(self.format, &floats, shape, axis, self.rounder());
        let packed = packed.map_err(|error| OnnxError::tensor(name, error))?;
        drop(floats);
        let wish = format!("{name}_quantized_cast");
        let value = match self.types {
            WeightTypes::Newest => self.dequantize_newest(to, name, &packed)?,
            WeightTypes::Portable => self.decode(to, name, &packed)?,
        };
        if data_type == data_type::FLOAT {
            return Ok(value);
        }
        let attribute = vec![NewAttribute::Integer("to", data_type)];
        Ok(to.node(&wish, "Cast", &[&value], attribute))
    }

    /// The version of the file's format that the types of stored weights need.
    pub(crate) fn ir_version(&self) -> i64 {
        match (self.types, self.format) {
            (WeightTypes::Newest, _) => NEWEST_SINCE,
            (WeightTypes::Portable, format)
                if fp8(format.element).is_some() && self.opset >= BLOCKED =>
            {
                FP8_SINCE
            }
            (WeightTypes::Portable, _) => 0,
        }
    }

    fn rounder(&self) -> microscaling::Rounder {
        // Only stochastic rounding draws from it, which `check` refuses.
        self.rounding.with(microscaling::RandomStream::new(0, 0))
    }

    fn decode(
        &self,
        to: &mut Builder<'_, '_>,
        name: &str,
        packed: &Packed,
    ) -> Result<String, OnnxError> {
        let scales = self.scales(to, name, packed)?;
        let (shape, axis) = (packed.shape(), packed.axis());
        let codes = format!("{name}_codes");
        let block_size = self.format.group_size();
        let format = &self.format;
        if let Some(element) = fp8(format.element)
            && format.is_mx()
            && self.opset >= BLOCKED
            && block_size > 0
            && !format.square
            // One scale of a vector would count as the scale of the whole tensor, which has no blocks.
            && shape.len() > 1
        {
            let codes = to.constant(&codes, element, shape, packed.elements().to_vec())?;
            return Ok(to.node(
                &format!("{name}_quantized"),
                "DequantizeLinear",
                &[&codes, &scales],
                blocks(axis, block_size),
            ));
        }
        let mut factors = scales;
        let axes = self.format.square_axes(axis);
        for axis in axes.as_ref().map_or(&[axis][..], |axes| &axes[..]) {
            let length = shape[*axis];
            if (2..length).contains(&block_size) {
                let blocks: Vec<i64> = (0..length).map(|at| (at / block_size) as i64).collect();
                let blocks = to.integers(&format!("blocks_of_{block_size}"), &blocks)?;
                factors = gather(
                    to,
                    &format!("{name}_scales_of_elements"),
                    [&factors, &blocks],
                    *axis,
                );
            }
        }
        if let Some(of_format) = self.format.shifts {
            let shifts = shifts(to, name, packed, of_format)?;
            factors = to.node(
                &format!("{name}_factors"),
                "Mul",
                &[&factors, &shifts],
                Vec::new(),
            );
        }
        let elements = if is_int8(&self.format) {
            let codes = to.constant(&codes, data_type::INT8, shape, packed.elements().to_vec())?;
            let attribute = vec![NewAttribute::Integer("to", data_type::FLOAT)];
            to.node(&format!("{name}_elements"), "Cast", &[&codes], attribute)
        } else {
            self.elements(to, name, packed)?
        };
        Ok(to.node(
            &format!("{name}_quantized"),
            "Mul",
            &[&elements, &factors],
            Vec::new(),
        ))
    }

    /// The scale of each block, as float32.
    fn scales(
        &self,
        to: &mut Builder<'_, '_>,
        name: &str,
        packed: &Packed,
    ) -> Result<String, OnnxError> {
        let mut shape = packed.scales_shape();
        let record = packed.scales().len() / blocks_in(&self.format, packed);
        if record > 1 {
            shape.pop();
        }
        let codes = packed.scales().iter().copied().step_by(record).collect();
        let codes = to.constant(
            &format!("{name}_scale_codes"),
            data_type::UINT8,
            &shape,
            codes,
        )?;
        let indices = vec![NewAttribute::Integer("to", data_type::INT32)];
        let indices = to.node(&format!("{name}_scale_indices"), "Cast", &[&codes], indices);
        let table = (0..256).map(|code| self.scale(code, packed.tensor_scale()));
        let table = table.collect::<Result<Vec<f32>, _>>()?;
        let bytes = || little_endian(&table, f32::to_le_bytes);
        let table = match packed.tensor_scale() {
            Some(_) => to.constant(
                &format!("{name}_scale_table"),
                data_type::FLOAT,
                &[256],
                bytes(),
            )?,
            None => to.shared("mx_scale_table", data_type::FLOAT, &[256], bytes)?,
        };
        Ok(gather(to, &format!("{name}_scales"), [&table, &indices], 0))
    }

    /// The number of a scale's code, for elements as [`element`](Self::element) has them.
    fn scale(&self, code: u32, tensor_scale: Option<f32>) -> Result<f32, OnnxError> {
        let power = |exponent: i32| match code {
            255 => f32::NAN,
            _ => 2_f64.powi(code as i32 + exponent) as f32,
        };
        if self.format.is_nvfp4() {
            let scale = ElementFormat::FP8_E4M3.decode(code & 0x7f);
            return Ok(tensor_scale.unwrap_or(1.0) * scale);
        }
        match (self.format.has_exponent(), self.format.has_fixed_steps()) {
            (true, true) => Ok(power(-125 - self.format.element_bits() as i32)),
            // Codes count 64ths.
            (true, false) if is_int8(&self.format) => Ok(power(-127 - 6)),
            (true, false) => Ok(power(-127)),
            (false, _) => Err(self.refused(FAMILIES)),
        }
    }

    /// The number of an element's code, in units of the scale.
    fn element(&self, code: u32) -> f32 {
        let value = self.format.element.decode(code);
        match self.format.has_fixed_steps() {
            true => value / self.format.element.min_subnormal(),
            false => value,
        }
    }

    /// The elements in units of their scales, looked up in a table.
    fn elements(
        &self,
        to: &mut Builder<'_, '_>,
        name: &str,
        packed: &Packed,
    ) -> Result<String, OnnxError> {
        let bits = self.format.element_bits();
        let shape = packed.shape();
        if bits.is_power_of_two() {
            // A byte of codes gives as many numbers.
            let table: Vec<f32> = bytes_of(bits).map(|code| self.element(code)).collect();
            let table = to.shared(
                "mx_element_table",
                data_type::FLOAT,
                &table_shape(bits),
                || little_endian(&table, f32::to_le_bytes),
            )?;
            return look_up(
                to,
                name,
                "elements",
                (packed.elements().to_vec(), bits),
                &table,
                shape,
            );
        }
        // Codes are kept as parts whose bits divide 8.
        let codes = packed.view().codes();
        let (mut shift, mut sum) = (0, None::<String>);
        for part in [4, 2, 1].into_iter().filter(|part| bits & part > 0) {
            let bytes = pack(codes.iter().map(|code| code >> shift), part);
            let what = format!("bits_{shift}_to_{}", shift + part - 1);
            let mut indices = small_codes(to, name, &what, (bytes, part), shape)?;
            if let Some(below) = sum {
                let unit = (1_i32 << shift).to_le_bytes().to_vec();
                let wish = format!("mx_{}", 1 << shift);
                let unit = to.shared(&wish, data_type::INT32, &[], || unit)?;
                let wish = format!("{name}_{what}_in_place");
                indices = to.node(&wish, "Mul", &[&indices, &unit], Vec::new());
                let wish = format!("{name}_indices");
                indices = to.node(&wish, "Add", &[&below, &indices], Vec::new());
            }
            sum = Some(indices);
            shift += part;
        }
        drop(codes);
        let table: Vec<f32> = (0..1 << bits).map(|code| self.element(code)).collect();
        let table = to.shared("mx_element_table", data_type::FLOAT, &[table.len()], || {
            little_endian(&table, f32::to_le_bytes)
        })?;
        let indices = sum.expect("an element has bits");
        let wish = format!("{name}_elements");
        Ok(gather(to, &wish, [&table, &indices], 0))
    }
}

/// Whether element codes are numbers of the type INT8, in units of the last bit. `DequantizeLinear` does not get these codes: ONNX
/// Runtime would fuse `DequantizeLinear` and MatMul into one operator, which quantizes the activation to 8 bits.
fn is_int8(format: &BlockFormat) -> bool {
    format.element == ElementFormat::INT8
}

fn blocks(axis: usize, size: usize) -> Vec<NewAttribute<'static>> {
    vec![
        NewAttribute::Integer("axis", axis as i64),
        NewAttribute::Integer("block_size", size as i64),
    ]
}

fn blocks_in(format: &BlockFormat, packed: &Packed) -> usize {
    let axes = format.square_axes(packed.axis());
    let shape = packed.shape().iter().enumerate().map(|(axis, length)| {
        let is_blocked = axes.map_or(axis == packed.axis(), |axes| axes.contains(&axis));
        match format.group_size() {
            _ if !is_blocked => *length,
            0 => 1,
            size => length.div_ceil(size),
        }
    });
    shape.product()
}
