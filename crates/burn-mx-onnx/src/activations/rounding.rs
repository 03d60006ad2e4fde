//! Rounding by standard operators: to powers of two, to the numbers of an element format, to whole numbers.

use microscaling::{BlockFormat, ElementFormat, Rounding, ScaleMode};

use crate::activations::operators::Operators;
use crate::proto::data_type;

/// The scale of MX blocks with these largest magnitudes: 2^`lowest` or more, up to the power above the largest scale.
///
/// # Errors
/// If no operators have the rule of the scale mode.
pub(crate) fn mx_scale(
    o: &mut Operators,
    format: &BlockFormat,
    amax: &str,
    lowest: i32,
) -> Result<String, String> {
    let element = format.element;
    let of_largest = 2_f64.powi(element.emax());
    let steps = format.scale.bits();
    let scale = match format.scale_mode {
        ScaleMode::Floor => o.power_where("GreaterOrEqual", amax, of_largest, lowest, 0..steps),
        ScaleMode::Ceil => o.power_where("Greater", amax, 0.5 * of_largest, lowest, 0..steps),
        ScaleMode::Even => {
            // From here on, rounding to the element's mantissa bits carries into the exponent.
            let carries = 1.0 - 2_f64.powi(-2 - element.mantissa_bits() as i32);
            o.power_where(
                "GreaterOrEqual",
                amax,
                carries * of_largest,
                lowest,
                0..steps,
            )
        }
        ScaleMode::Rceil => {
            let quotient = o.times(amax, 1.0 / element.max());
            o.power_where("Greater", &quotient, 0.5, lowest, 0..steps)
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
    let powers = (element.emax() - element.emin() + 1) as u32;
    let doublings = powers.next_power_of_two().trailing_zeros();
    if mantissa_bits == 0 && rounding == Rounding::NearestEven {
        return power_rounded(o, x, element.emin(), doublings);
    }
    // The step between numbers grows with each power of two. Subnormal elements have the step of the smallest normal ones.
    let magnitudes = o.op("Abs", &[x]);
    let magnitudes = o.times(&magnitudes, unit);
    let step = o.power_of(&magnitudes, element.emin() - mantissa_bits, doublings);
    let steps = o.op("Div", &[x, &step]);
    let steps = rounded(o, &steps, rounding);
    o.op("Mul", &[&steps, &step])
}

/// Rounds to whole numbers. A negative number that becomes 0 becomes −0, and −0 stays −0. (ONNX Runtime's `Where` makes 0 of −0.)
pub(crate) fn rounded(o: &mut Operators, x: &str, rounding: Rounding) -> String {
    if rounding == Rounding::NearestEven {
        return o.op("Round", &[x]);
    }
    let magnitudes = o.op("Abs", &[x]);
    let mut whole = o.op("Floor", &[&magnitudes]);
    if rounding == Rounding::NearestAway {
        let half = o.float(0.5);
        let fraction = o.op("Sub", &[&magnitudes, &whole]);
        let is_half = o.op("GreaterOrEqual", &[&fraction, &half]);
        let one_or_zero = o.cast(&is_half, data_type::FLOAT);
        whole = o.op("Add", &[&whole, &one_or_zero]);
    }
    with_sign(o, &whole, x)
}

/// Rounds to 0 and the powers of two from 2^`emin` on. A tie goes to the even code; 2^`emin` has the code 1.
fn power_rounded(o: &mut Operators, x: &str, emin: i32, doublings: u32) -> String {
    let magnitudes = o.op("Abs", &[x]);
    // Its code is odd.
    let power = o.every_other_power_of(&magnitudes, emin, doublings);
    let mut nearest = o.float(0.0);
    for (comparison, threshold, factor) in [
        ("Greater", 0.5, 1.0),
        ("GreaterOrEqual", 1.5, 2.0),
        ("Greater", 3.0, 4.0),
    ] {
        let threshold = o.times(&power, threshold);
        let reaches = o.op(comparison, &[&magnitudes, &threshold]);
        let next = o.times(&power, factor);
        nearest = o.op("Where", &[&reaches, &next, &nearest]);
    }
    with_sign(o, &nearest, x)
}

/// Magnitudes with the signs of `x`. The reciprocal of −0 is negative.
fn with_sign(o: &mut Operators, magnitudes: &str, x: &str) -> String {
    let (zero, one, minus_one) = (o.float(0.0), o.float(1.0), o.float(-1.0));
    let reciprocal = o.op("Div", &[&one, x]);
    let is_negative = o.op("Less", &[&reciprocal, &zero]);
    let sign = o.op("Where", &[&is_negative, &minus_one, &one]);
    o.op("Mul", &[magnitudes, &sign])
}
