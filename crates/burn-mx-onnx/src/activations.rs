//! Activations: quantized when the model runs, by a function of standard operators.
//!
//! The function is the format's rule, operator by operator. Every step is exact or rounds as IEEE float32 does, so the results
//! have the bits of [`BlockFormat::quantize`]. Engines that flush subnormal numbers differ there.

mod operators;
mod rounding;

use microscaling::{
    BfpFormat, BlockFormat, ElementFormat, MicroexponentFormat, MxFormat, Nvfp4Format, Rounding,
    ScaleMode,
};

use crate::activations::operators::Operators;
use crate::activations::rounding::{float_rounded, mx_scale, rounded};
use crate::error::OnnxError;
use crate::proto::wire::Message;
use crate::proto::{self, data_type, function};

/// The domain of the functions.
pub(crate) const DOMAIN: &str = "burn_mx";

/// The smallest normal float32.
const NORMAL: i32 = -126;

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
        let refuse = |reason: &str| {
            Err(OnnxError::Format {
                format: self.format.to_string(),
                tensors: "activations",
                reason: reason.to_owned(),
            })
        };
        if self.rounding == Rounding::Stochastic {
            return Err(OnnxError::Field {
                field: "rounding".into(),
                value: self.rounding.to_string(),
                allowed: "even, nearest, floor".into(),
            });
        }
        match self.format {
            format if format.is_square() => refuse("allowed: blocks along one axis"),
            BlockFormat::Mx(format) => {
                if format.element.bits() > 8 {
                    return refuse("its elements have more than 8 bits; allowed: up to 8");
                }
                if format.scale_mode == ScaleMode::Rms || !format.headroom.is_none() {
                    return refuse(
                        "allowed: the scale modes floor, ceil, even, rceil, without headroom",
                    );
                }
                if self.is_static
                    && (format.scale_mode != ScaleMode::Floor || format.scale_bits < 8)
                {
                    return refuse(
                        "allowed with calibrated scales: the scale mode floor, 8 scale bits",
                    );
                }
                Ok(())
            }
            BlockFormat::Microexponent(format) => {
                let size = format.block_size;
                match size > 0 && !size.is_multiple_of(format.sub_block_size) {
                    true => refuse("allowed: sub-blocks that divide the block"),
                    false => Ok(()),
                }
            }
            BlockFormat::Bfp(_) => Ok(()),
            BlockFormat::Nvfp4(format) => {
                if format.four_over_six || !format.headroom.is_none() {
                    return refuse("allowed: neither four_over_six nor headroom");
                }
                match self.is_static {
                    true => refuse(
                        "allowed with calibrated scales: MX, microexponents, block floating point",
                    ),
                    false => Ok(()),
                }
            }
            _ => refuse("allowed: MX, microexponents, block floating point, NVFP4"),
        }
    }

    /// Elements that share an exponent inside of a block.
    fn sub_block(&self) -> Option<usize> {
        match self.format {
            BlockFormat::Microexponent(format) => Some(format.sub_block_size),
            _ => None,
        }
    }

    /// The blocks of an axis of this length: how many, and their elements, with zeros where the last one is short.
    pub(crate) fn blocks(&self, length: usize) -> [usize; 2] {
        let size = match self.format.block_size() {
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
    pub(crate) fn static_power(&self, amax: f32) -> f32 {
        let exponent = match self.format {
            BlockFormat::Mx(format) => format.scale_exponent(amax.to_bits()).unwrap_or(0),
            BlockFormat::Microexponent(format) => {
                let exponent = format.shared_exponent(amax.to_bits()).unwrap_or(1);
                i32::from(exponent).max(1) - 127
            }
            BlockFormat::Bfp(format) => i32::from(format.shared_exponent(amax.to_bits())) - 127,
            _ => 0,
        };
        2_f64.powi(exponent) as f32
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

    /// The function. Its inputs are, in this order:
    /// * `x`, the tensor.
    /// * If `is_padded`: `axes`, a shape of three axes, and `padding`, the zeros to add.
    /// * `blocks`, the shape with blocks as axes.
    /// * If `is_padded`: `padded`, the shape of three axes with the zeros, and `length`, the length without the zeros.
    /// * If calibration fixes the blocks' powers of two: `powers`.
    pub(crate) fn function(&self, text: &str, is_padded: bool) -> Message<'static> {
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
            let flat = o.op("Reshape", &["x", "axes"]);
            let padded = o.op("Pad", &[&flat, "padding"]);
            o.op("Reshape", &[&padded, "blocks"])
        } else {
            o.op("Reshape", &["x", "blocks"])
        };
        let mut quantized = match self.format {
            BlockFormat::Mx(format) => self.mx(&mut o, &format, &blocks),
            BlockFormat::Microexponent(format) => self.microexponent(&mut o, &format, &blocks),
            BlockFormat::Bfp(format) => self.bfp(&mut o, &format, &blocks),
            BlockFormat::Nvfp4(format) => self.nvfp4(&mut o, &format, &blocks),
            _ => unreachable!("checked"),
        };
        if is_padded {
            let flat = o.op("Reshape", &[&quantized, "padded"]);
            let (start, axis) = (o.integers(&[0]), o.integers(&[1]));
            quantized = o.op("Slice", &[&flat, &start, "length", &axis]);
        }
        o.named("y", "Reshape", &[&quantized, &shape], Vec::new());

        let mut message = Message::default();
        message.text(function::NAME, &self.function_name(is_padded));
        for input in inputs {
            message.text(function::INPUT, input);
        }
        message.text(function::OUTPUT, "y");
        for node in o.nodes() {
            message.message(function::NODE, node);
        }
        message.text(function::DOC_STRING, text);
        message.message(function::OPSET_IMPORT, proto::opset_message("", self.opset));
        message.text(function::DOMAIN, DOMAIN);
        message
    }

    /// NaN for each block with a NaN or an infinity, else 0.
    fn poison(o: &mut Operators, x: &str, axes: &[i64]) -> String {
        let zero = o.float(0.0);
        let zeros = o.op("Mul", &[x, &zero]);
        o.sum_along(&zeros, axes)
    }

    /// [`MxFormat::quantize`].
    fn mx(&self, o: &mut Operators, format: &MxFormat, x: &str) -> String {
        let largest_exponent = (1 << (format.scale_bits - 1)) - 1;
        let mut scale = if self.is_static {
            "powers".to_owned()
        } else {
            let magnitudes = o.op("Abs", &[x]);
            let amax = o.max_along(&magnitudes, &[2]);
            let mut scale = mx_scale(o, format, &amax, -largest_exponent);
            if format.scale_mode != ScaleMode::Floor || format.scale_bits < 8 {
                let limit = o.float(2_f32.powi(largest_exponent));
                let is_larger = o.op("Greater", &[&scale, &limit]);
                let nan = o.float(f32::NAN);
                scale = o.op("Where", &[&is_larger, &nan, &scale]);
            }
            if format.flush_fp32_subnorms {
                let (normal, zero) = (o.float(f32::MIN_POSITIVE), o.float(0.0));
                let is_less = o.op("Less", &[&amax, &normal]);
                let units = self.units(o, format.element, x, &scale);
                scale = o.op("Where", &[&is_less, &zero, &scale]);
                let poison = Self::poison(o, x, &[2]);
                let scale = o.op("Add", &[&scale, &poison]);
                return o.op("Mul", &[&units, &scale]);
            }
            scale
        };
        let poison = Self::poison(o, x, &[2]);
        scale = o.op("Add", &[&scale, &poison]);
        let units = self.units(o, format.element, x, &scale);
        o.op("Mul", &[&units, &scale])
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

    /// [`MicroexponentFormat::quantize`]. The axes are: before, block, sub-block, element, after.
    fn microexponent(&self, o: &mut Operators, format: &MicroexponentFormat, x: &str) -> String {
        let mantissa_bits = format.mantissa_bits() as i32;
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
        for shift in 0..(1 << format.shift_bits) - 1 {
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

    /// [`BfpFormat::quantize`].
    fn bfp(&self, o: &mut Operators, format: &BfpFormat, x: &str) -> String {
        let mantissa_bits = format.mantissa_bits() as i32;
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

    /// [`Nvfp4Format::quantize`].
    fn nvfp4(&self, o: &mut Operators, format: &Nvfp4Format, x: &str) -> String {
        let magnitudes = o.op("Abs", &[x]);
        let amax = o.max_along(&magnitudes, &[2]);
        let six = o.float(ElementFormat::FP4_E2M1.max());
        let mut wanted = o.op("Div", &[&amax, &six]);
        let mut tensor_scale = None;
        if format.tensor_scale {
            let largest = o.max_along(&magnitudes, &[0, 1, 2, 3]);
            let unit = o.float(ElementFormat::FP8_E4M3.max() * ElementFormat::FP4_E2M1.max());
            let scale = o.op("Div", &[&largest, &unit]);
            let (zero, one) = (o.float(0.0), o.float(1.0));
            let is_zero = o.op("Equal", &[&scale, &zero]);
            let divisor = o.op("Where", &[&is_zero, &one, &scale]);
            wanted = o.op("Div", &[&wanted, &divisor]);
            tensor_scale = Some((scale, divisor));
        }
        let e4m3 = ElementFormat::FP8_E4M3;
        let (least, most) = (o.float(2_f32.powi(e4m3.emin())), o.float(e4m3.max()));
        let limited = o.op("Clip", &[&wanted, &least, &most]);
        let scale = float_rounded(o, e4m3, &limited, Rounding::NearestEven);
        let one = o.float(1.0);
        let (inverse, result, axes) = match &tensor_scale {
            None => {
                // ONNX Runtime would turn x · (1 / scale) into x / scale, which rounds once instead of twice.
                let two = o.float(2.0);
                let twice = o.op("Div", &[&two, &scale]);
                (o.times(&twice, 0.5), scale, &[2][..])
            }
            Some((tensor_scale, divisor)) => {
                let inverse = o.op("Div", &[&one, divisor]);
                let inverse = o.op("Div", &[&inverse, &scale]);
                (
                    inverse,
                    o.op("Mul", &[tensor_scale, &scale]),
                    &[0, 1, 2, 3][..],
                )
            }
        };
        let scaled = if tensor_scale.is_some() {
            // Of very small tensors the reciprocal is infinite; of even smaller ones the scale is 0.
            let (most, zero) = (o.float(f32::MAX), o.float(0.0));
            let is_finite = o.op("LessOrEqual", &[&inverse, &most]);
            let is_zero = o.op("Equal", &[&result, &zero]);
            let divisor = o.op("Where", &[&is_zero, &most, &result]);
            let factor = o.op("Where", &[&is_finite, &inverse, &one]);
            let divisor = o.op("Where", &[&is_finite, &one, &divisor]);
            let multiplied = o.op("Mul", &[x, &factor]);
            o.op("Div", &[&multiplied, &divisor])
        } else {
            o.op("Mul", &[x, &inverse])
        };
        let poison = Self::poison(o, x, axes);
        let units = self.element(o, ElementFormat::FP4_E2M1, &scaled);
        let result = o.op("Add", &[&result, &poison]);
        o.op("Mul", &[&units, &result])
    }
}
