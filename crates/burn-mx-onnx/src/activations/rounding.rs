//! Rounding by standard operators: to powers of two, to the numbers of an element format, to whole numbers.

use microscaling::{ElementFormat, MxFormat, Rounding, ScaleMode};

use crate::activations::operators::Operators;
use crate::proto::data_type;

/// The scale of MX blocks with these largest magnitudes: 2^`lowest` or more, up to the power above the largest scale.
///
/// # Errors
/// If no operators have the rule of the scale mode.
pub(crate) fn mx_scale(
    o: &mut Operators,
    format: &MxFormat,
    amax: &str,
    lowest: i32,
) -> Result<String, String> {
    let element = format.element;
    let of_largest = 2_f64.powi(element.emax());
    let steps = format.scale_bits;
    let scale = match format.scale_mode {
        ScaleMode::Floor => o.power_where("GreaterOrEqual", amax, of_largest, lowest, steps),
        ScaleMode::Ceil => o.power_where("Greater", amax, 0.5 * of_largest, lowest, steps),
        ScaleMode::Even => {
            // From here on, rounding to the element's mantissa bits carries into the exponent.
            let carries = 1.0 - 2_f64.powi(-2 - element.mantissa_bits() as i32);
            o.power_where("GreaterOrEqual", amax, carries * of_largest, lowest, steps)
        }
        ScaleMode::Rceil => {
            let quotient = o.times(amax, 1.0 / element.max());
            o.power_where("Greater", &quotient, 0.5, lowest, steps)
        }
        mode => {
            return Err(format!(
                "its scale mode is {mode}; allowed: floor, ceil, even, rceil"
            ));
        }
    };
    Ok(scale)
}

/// Rounds numbers within ±max to numbers of an element format.
pub(crate) fn float_rounded(
    o: &mut Operators,
    element: ElementFormat,
    x: &str,
    rounding: Rounding,
) -> String {
    let mantissa_bits = element.mantissa_bits() as i32;
    let unit = 2_f32.powi(-mantissa_bits);
    if element.is_integer() {
        let step = element.min_subnormal();
        let steps = o.times(x, 1.0 / step);
        let steps = rounded(o, &steps, rounding);
        return o.times(&steps, step);
    }
    // The step between numbers grows with each power of two. Subnormal elements have the step of the smallest normal ones.
    let powers = (element.emax() - element.emin() + 1) as u32;
    let magnitudes = o.op("Abs", &[x]);
    let magnitudes = o.times(&magnitudes, unit);
    let step = o.power_of(
        &magnitudes,
        element.emin() - mantissa_bits,
        powers.next_power_of_two().trailing_zeros(),
    );
    let steps = o.op("Div", &[x, &step]);
    let steps = rounded(o, &steps, rounding);
    o.op("Mul", &[&steps, &step])
}

/// Rounds to whole numbers. A negative number that becomes 0 becomes −0, and −0 stays −0. (ONNX Runtime's `Where` makes 0 of −0.)
pub(crate) fn rounded(o: &mut Operators, x: &str, rounding: Rounding) -> String {
    if rounding == Rounding::NearestEven {
        return o.op("Round", &[x]);
    }
    let (zero, one, minus_one) = (o.float(0.0), o.float(1.0), o.float(-1.0));
    let magnitudes = o.op("Abs", &[x]);
    let mut whole = o.op("Floor", &[&magnitudes]);
    if rounding == Rounding::NearestAway {
        let half = o.float(0.5);
        let fraction = o.op("Sub", &[&magnitudes, &whole]);
        let is_half = o.op("GreaterOrEqual", &[&fraction, &half]);
        let one_or_zero = o.cast(&is_half, data_type::FLOAT);
        whole = o.op("Add", &[&whole, &one_or_zero]);
    }
    // The reciprocal of −0 is negative.
    let reciprocal = o.op("Div", &[&one, x]);
    let is_negative = o.op("Less", &[&reciprocal, &zero]);
    let sign = o.op("Where", &[&is_negative, &minus_one, &one]);
    o.op("Mul", &[&whole, &sign])
}
