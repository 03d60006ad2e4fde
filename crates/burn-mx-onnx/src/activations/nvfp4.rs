//! NVFP4: a scale in E4M3 for each block, and one in float32 for the tensor.

use microscaling::{BlockFormat, ElementFormat, Rounding};

use crate::activations::Activations;
use crate::activations::operators::Operators;
use crate::activations::rounding::float_rounded;

impl Activations {
    /// [`BlockFormat::quantize`].
    pub(super) fn nvfp4(&self, o: &mut Operators, format: &BlockFormat, x: &str) -> String {
        let magnitudes = o.op("Abs", &[x]);
        let amax = o.max_along(&magnitudes, &[2]);
        let six = o.float(ElementFormat::FP4_E2M1.max());
        let mut wanted = o.op("Div", &[&amax, &six]);
        let mut tensor_scale = None;
        if format.tensor_scale {
            // Zeros in front: a tensor without elements has no largest one.
            let zeros = o.integers(&[1, 0, 0, 1, 0, 0, 0, 0]);
            let of_blocks = o.op("Pad", &[&amax, &zeros]);
            let largest = o.max_along(&of_blocks, &[0, 1, 2, 3]);
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
            // The reciprocal of very small tensors is infinite; the scale of even smaller ones is 0.
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
