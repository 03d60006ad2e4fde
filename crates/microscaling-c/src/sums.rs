//! The values of an accumulator.

use crate::error::ReferenceError;
use crate::subject::Subject;
use crate::template::Values;
use microscaling::{ElementFormat, Rounding};
use microscaling_product::{
    AccumulateError, Accumulation, Accumulator, OperandKind, Order, Overflow, ScaleAt, SumFormat,
};

/// The most elements of a row that DPI sums up.
pub(crate) const DPI_ELEMENTS: usize = 1024;

/// The accumulator for two operands of this format.
///
/// # Errors
/// [`ReferenceError::Accumulator`], if there is none; [`ReferenceError::Part`] of a format without such operands.
pub(crate) fn of(
    accumulation: &Accumulation,
    subject: Subject,
) -> Result<Accumulator, ReferenceError> {
    let refused = |got: &'static str| ReferenceError::Part {
        format: subject.to_string(),
        part: "accumulator",
        got: accumulation.to_string(),
        allowed: got,
    };
    let kind = match subject {
        Subject::Element(element) => Some(OperandKind::from(element)),
        Subject::Block(format) => OperandKind::of_format(&format),
        Subject::P3109(_) => None,
    };
    let kind = kind.ok_or_else(|| {
        refused("none: an accumulator multiplies elements and one scale of each block")
    })?;
    let error = |source: AccumulateError| ReferenceError::Accumulator {
        accumulator: accumulation.to_string(),
        source: Box::new(source),
    };
    let accumulator = accumulation.of(kind, kind).map_err(error)?;
    accumulator.check(kind, kind).map_err(error)?;
    Ok(accumulator)
}

/// Sets what templates say of sums of such elements.
pub(crate) fn set(values: &mut Values, accumulator: &Accumulator, element: ElementFormat) {
    let order = accumulator.order;
    values.set("accumulator_text", accumulator.to_string());
    values.set("order", order.name());
    values.set("terms", order.terms());
    values.set("dot_elements", DPI_ELEMENTS);
    values.set("group", order.group());
    values.set("promote_every", accumulator.promote_every);
    let scale_at = match accumulator.scale_at {
        ScaleAt::Product => "product",
        ScaleAt::Promotion => "promotion",
    };
    values.set("scale_at", scale_at);
    values.set("flush", matches!(order, Order::Pairs { flush: true, .. }));
    values.set(
        "interleave",
        matches!(
            order,
            Order::Late {
                interleave: true,
                ..
            }
        ),
    );
    let output = match order {
        Order::Joint { output, .. }
        | Order::Late { output, .. }
        | Order::Exact { output, .. }
        | Order::Pairs { output, .. }
        | Order::Fma { output } => output,
        _ => SumFormat::F32_RNE,
    };
    values.set("output", output.to_string());
    values.set("output_emin", output.emin());
    values.set("output_emax", output.emax());
    values.set("output_mantissa_bits", output.mantissa_bits());
    let nearest = output.rounding() == Rounding::NearestEven;
    values.set("output_nearest", i32::from(nearest));
    if let Order::Joint {
        fraction_bits,
        floor_exponent,
        ..
    } = order
    {
        values.set("fraction_bits", fraction_bits);
        values.set("floor_exponent", floor_exponent);
    }
    if let Order::Late { fraction_bits, .. } = order {
        values.set("fraction_bits", fraction_bits);
    }
    if let Order::Integer { bits, overflow } = order {
        let unit = element.emin() - element.mantissa_bits() as i32;
        values.set("integer_bits", bits);
        values.set("saturate", overflow == Overflow::Saturate);
        values.set("element_unit", unit);
        values.set("product_unit", 2 * unit);
    }
}
