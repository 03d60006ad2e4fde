//! Activations: quantized when the model runs, by a function of standard operators.
//!
//! The function is the format's rule, operator by operator. Every step is exact or rounds as IEEE float32 does, so the results
//! have the bits of [`BlockFormat::quantize`]. Engines that flush subnormal numbers differ there.

mod nvfp4;
mod operators;
mod rounding;

use microscaling::{
    BlockFormat, ElementFormat, NonFinite, Rounding, ScaleFormat, ScaleMode, Shifts, Subnormals,
};

use crate::activations::operators::Operators;
use crate::activations::rounding::{float_rounded, mx_scale, rounded};
use crate::error::OnnxError;
use crate::proto::wire::Message;
use crate::proto::{self, data_type, function};
use crate::weights::FAMILIES;

/// The domain of the functions.
pub(crate) const DOMAIN: &str = "burn_mx";

/// The smallest normal float32.
const NORMAL: i32 = -126;

/// Whether MX blocks have the scales of OCP MX v1.0.
fn is_usual(format: &BlockFormat) -> bool {
    format.scale_mode == ScaleMode::Floor && format.scale == ScaleFormat::E8M0
}

/// How activations are quantized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activations {
    pub(crate) format: BlockFormat,
    pub(crate) rounding: Rounding,
    /// The version of ONNX's operators.
    pub(crate) opset: i64,
    /// Whether the exponents of blocks are given, by calibration.
    pub(crate) is_static: bool,
}

impl Activations {
    /// Checks that activations can be in this format.
    pub(crate) fn check(&self) -> Result<(), OnnxError> {
        let refuse = |reason| Err(self.refused(reason));
        if self.rounding == Rounding::Stochastic {
            return Err(OnnxError::Field {
                field: "rounding".into(),
                value: self.rounding.to_string(),
                allowed: "even, nearest, floor".into(),
            });
        }
        if let Some((field, got)) = self.format.other_scales() {
            return refuse(&format!("{field} is {got}; allowed: one scale a block"));
        }
        match self.format {
            format
                if !format.conversion.is_of_library()
                    || format.is_mx() && format.subnormals == Subnormals::FlushElements =>
            {
                refuse(
                    "allowed: no rounding, random_bits, overflow, flush_inputs, flush_outputs or negative_zero of the format's own",
                )
            }
            format if format.element.is_unsigned() => {
                refuse("its elements have no sign; allowed: elements with a sign")
            }
            format if format.square => refuse("allowed: blocks along one axis"),
            format if format.is_mx() && format.element.bits() > 8 => {
                refuse("its elements have more than 8 bits; allowed: up to 8")
            }
            format if format.has_exponent() && !format.headroom.is_none() => {
                refuse("allowed: no headroom")
            }
            format if self.is_static && format.is_mx() && !is_usual(&format) => {
                refuse("allowed with calibrated scales: the scale mode floor, 8 scale bits")
            }
            format
                if self
                    .sub_block()
                    .is_some_and(|size| !format.block_size.is_multiple_of(size)) =>
            {
                refuse("allowed: sub-blocks that divide the block")
            }
            format if format.is_nvfp4() && (format.four_over_six || !format.headroom.is_none()) => {
                refuse("allowed: neither four_over_six nor headroom")
            }
            // A rule without operators is an error there.
            _ => {
                if self.is_static {
                    self.static_power(1.0)?;
                }
                self.function("", false).map(drop)
            }
        }
    }

    fn refused(&self, reason: &str) -> OnnxError {
        OnnxError::Format {
            format: self.format.to_string(),
            tensors: "activations",
            reason: reason.to_owned(),
        }
    }

    /// Elements that share an exponent inside of a block.
    fn sub_block(&self) -> Option<usize> {
        Some(self.format.shifts?.block_size)
    }

    /// The blocks of an axis of this length: how many, and their elements, with zeros where the last one is short.
    pub(crate) fn blocks(&self, length: usize) -> [usize; 2] {
        let size = match self.format.group_size() {
            0 => length,
            size => size.min(length),
        };
        let size = size.next_multiple_of(self.sub_block().unwrap_or(1));
        [length.div_ceil(size), size]
    }

    /// The axes of a tensor with such blocks, without the first and the last one.
    pub(crate) fn axes(&self, [count, size]: [usize; 2]) -> Vec<i64> {
        let axes = match self.sub_block() {
            None => vec![count, size],
            Some(sub_block) => vec![count, size / sub_block, sub_block],
        };
        axes.into_iter().map(|length| length as i64).collect()
    }

    /// The power of two by which calibration fixes a block, from its largest magnitude.
    pub(crate) fn static_power(&self, amax: f32) -> Result<f32, OnnxError> {
        if !self.format.has_exponent() {
            let reason = "allowed with calibrated scales: MX, microexponents, block floating point";
            return Err(self.refused(reason));
        }
        let exponent = self.format.scale_exponent(amax.to_bits());
        let exponent = match self.format.shifts {
            // Subnormal numbers count as zero.
            Some(_) => exponent.unwrap_or(NORMAL).max(NORMAL),
            None => exponent.unwrap_or(0),
        };
        Ok(2_f64.powi(exponent) as f32)
    }

    /// The function's name: the text of the format, in which `_` replaces every character but letters and digits.
    pub(crate) fn function_name(&self, is_padded: bool) -> String {
        let text = self.format.to_string();
        let letters = text
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        let mut name = letters.collect::<String>().trim_end_matches('_').to_owned();
        for (holds, end) in [(self.is_static, "_static"), (is_padded, "_padded")] {
            if holds {
                name += end;
            }
        }
        name
    }

    /// The function of this name. Its inputs are, in this order:
    /// * `x`, the tensor.
    /// * If `is_padded`: `axes`, a shape of three axes, and `padding`, the zeros to add.
    /// * `blocks`, the shape with blocks as axes.
    /// * If `is_padded`: `padded`, the shape of three axes with the zeros, and `length`, the length without the zeros.
    /// * If calibration fixes the blocks' powers of two: `powers`.
    pub(crate) fn function(
        &self,
        name: &str,
        is_padded: bool,
    ) -> Result<Message<'static>, OnnxError> {
        let mut o = Operators::new(self.opset);
        let mut inputs = vec!["x"];
        if is_padded {
            inputs.extend(["axes", "padding"]);
        }
        inputs.push("blocks");
        if is_padded {
            inputs.extend(["padded", "length"]);
        }
        if self.is_static {
            inputs.push("powers");
        }
        let shape = o.op("Shape", &["x"]);
        let blocks = if is_padded {
            let flat = o.reshape("x", "axes");
            let padded = o.op("Pad", &[&flat, "padding"]);
            o.reshape(&padded, "blocks")
        } else {
            o.reshape("x", "blocks")
        };
        let format = &self.format;
        let mut quantized = if let Some(shifts) = format.shifts {
            self.microexponent(&mut o, shifts, &blocks)
        } else if format.non_finite == NonFinite::Kept {
            self.bfp(&mut o, &blocks)
        } else if format.is_mx() {
            self.mx(&mut o, format, &blocks)?
        } else if format.is_nvfp4() {
            self.nvfp4(&mut o, format, &blocks)
        } else {
            return Err(self.refused(FAMILIES));
        };
        if is_padded {
            let flat = o.reshape(&quantized, "padded");
            let (start, axis) = (o.integers(&[0]), o.integers(&[1]));
            quantized = o.op("Slice", &[&flat, &start, "length", &axis]);
        }

        let mut message = Message::default();
        message.text(function::NAME, name);
        for input in inputs {
            message.text(function::INPUT, input);
        }
        message.text(function::OUTPUT, "y");
        for node in o.reshaped_unless_empty("x", &quantized, &shape) {
            message.message(function::NODE, node);
        }
        let text = format!("Quantizes to {}, {} ties", self.format, self.rounding);
        message.text(function::DOC_STRING, &text);
        message.message(function::OPSET_IMPORT, proto::opset_message("", self.opset));
        message.text(function::DOMAIN, DOMAIN);
        Ok(message)
    }

    /// NaN for each block with a NaN or an infinity, else 0.
    fn poison(o: &mut Operators, x: &str, axes: &[i64]) -> String {
        let zero = o.float(0.0);
        let zeros = o.op("Mul", &[x, &zero]);
        o.sum_along(&zeros, axes)
    }

    /// [`BlockFormat::quantize`].
    fn mx(&self, o: &mut Operators, format: &BlockFormat, x: &str) -> Result<String, OnnxError> {
        let largest_exponent = -format.scale.emin();
        let poison = Self::poison(o, x, &[2]);
        if self.is_static {
            let scale = o.op("Add", &["powers", &poison]);
            let units = self.units(o, format.element, x, &scale);
            return Ok(o.op("Mul", &[&units, &scale]));
        }
        let magnitudes = o.op("Abs", &[x]);
        let amax = o.max_along(&magnitudes, &[2]);
        let scale = mx_scale(o, format, &amax, -largest_exponent);
        let mut scale = scale.map_err(|reason| self.refused(&reason))?;
        let mut limited = x.to_owned();
        if !is_usual(format) {
            let limit = o.float(2_f32.powi(largest_exponent));
            let is_larger = o.op("Greater", &[&scale, &limit]);
            let nan = o.float(f32::NAN);
            scale = o.op("Where", &[&is_larger, &nan, &scale]);
            // Larger elements would be rounded to 2^128.
            let top =
                2_f32.powi(127) * (2.0 - 2_f32.powi(-(format.element.mantissa_bits() as i32)));
            let (least, most) = (o.float(-top), o.float(top));
            limited = o.op("Clip", &[x, &least, &most]);
        }
        if format.subnormals == Subnormals::FlushBlocks {
            let (normal, zero) = (o.float(f32::MIN_POSITIVE), o.float(0.0));
            let is_less = o.op("Less", &[&amax, &normal]);
            let units = self.units(o, format.element, &limited, &scale);
            scale = o.op("Where", &[&is_less, &zero, &scale]);
            let scale = o.op("Add", &[&scale, &poison]);
            return Ok(o.op("Mul", &[&units, &scale]));
        }
        scale = o.op("Add", &[&scale, &poison]);
        let units = self.units(o, format.element, &limited, &scale);
        Ok(o.op("Mul", &[&units, &scale]))
    }

    /// Elements in units of their scale, rounded.
    fn units(&self, o: &mut Operators, element: ElementFormat, x: &str, scale: &str) -> String {
        let scaled = o.op("Div", &[x, scale]);
        self.element(o, element, &scaled)
    }

    /// Rounds to the numbers of an element format; saturates.
    fn element(&self, o: &mut Operators, element: ElementFormat, x: &str) -> String {
        let max = element.max();
        let (least, most) = (o.float(-max), o.float(max));
        let limited = o.op("Clip", &[x, &least, &most]);
        float_rounded(o, element, &limited, self.rounding)
    }

    /// [`BlockFormat::quantize`]. The axes are: before, block, sub-block, element, after.
    fn microexponent(&self, o: &mut Operators, shifts: Shifts, x: &str) -> String {
        let mantissa_bits = self.format.element.bits() as i32 - 1;
        let magnitudes = o.op("Abs", &[x]);
        // Subnormal numbers count as zero.
        let normal = o.float(f32::MIN_POSITIVE);
        let is_normal = o.op("GreaterOrEqual", &[&magnitudes, &normal]);
        let is_normal = o.cast(&is_normal, data_type::FLOAT);
        let x_normal = o.op("Mul", &[x, &is_normal]);
        let magnitudes = o.op("Abs", &[&x_normal]);
        let sub_amax = o.max_along(&magnitudes, &[3]);
        let shared = if self.is_static {
            "powers".to_owned()
        } else {
            let amax = o.max_along(&magnitudes, &[2, 3]);
            o.power_of(&amax, NORMAL, 8)
        };
        let mut power = shared.clone();
        for shift in 0..shifts.largest() as i32 {
            let larger = o.times(&shared, 2_f32.powi(-shift));
            let smaller = o.times(&shared, 2_f32.powi(-shift - 1));
            let mut is_less = o.op("Less", &[&sub_amax, &larger]);
            if shift > 0 {
                // A sub-block of zeros has the exponent field 0, below which no shift goes.
                let is_above = o.op("GreaterOrEqual", &[&larger, &normal]);
                is_less = o.op("And", &[&is_less, &is_above]);
            }
            power = o.op("Where", &[&is_less, &smaller, &power]);
        }
        let step = o.times(&power, 2_f32.powi(1 - mantissa_bits));
        let steps = self.steps(o, &x_normal, &step, mantissa_bits);
        let poison = Self::poison(o, x, &[2, 3]);
        let step = o.op("Add", &[&step, &poison]);
        o.op("Mul", &[&steps, &step])
    }

    /// [`BlockFormat::quantize`].
    fn bfp(&self, o: &mut Operators, x: &str) -> String {
        let mantissa_bits = self.format.element.bits() as i32 - 1;
        let magnitudes = o.op("Abs", &[x]);
        let (zero, one, most) = (o.float(0.0), o.float(1.0), o.float(f32::MAX));
        let is_finite = o.op("LessOrEqual", &[&magnitudes, &most]);
        let power = if self.is_static {
            "powers".to_owned()
        } else {
            let finite = o.op("Where", &[&is_finite, &magnitudes, &zero]);
            let amax = o.max_along(&finite, &[2]);
            o.power_of(&amax, NORMAL - 1, 8)
        };
        let step = o.times(&power, 2_f32.powi(1 - mantissa_bits));
        let steps = self.steps(o, x, &step, mantissa_bits);
        let quantized = o.op("Mul", &[&steps, &step]);
        // An infinity times the largest number that it was limited to; NaN times NaN.
        let special = o.op("Where", &[&is_finite, &one, &magnitudes]);
        o.op("Mul", &[&quantized, &special])
    }

    /// Elements as whole numbers of steps. The magnitudes have `bits` bits.
    fn steps(&self, o: &mut Operators, x: &str, step: &str, bits: i32) -> String {
        let steps = o.op("Div", &[x, step]);
        let steps = rounded(o, &steps, self.rounding);
        let max = 2_f32.powi(bits) - 1.0;
        let (least, most) = (o.float(-max), o.float(max));
        o.op("Clip", &[&steps, &least, &most])
    }
}
