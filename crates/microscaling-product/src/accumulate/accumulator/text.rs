//! Accumulators as text: `accumulator(order=…,field=value,…)`.

use super::output::EXPECTED;
use super::{
    FLOOR_EXPONENT, FLOOR_EXPONENTS, FRACTION_BITS, INTEGER_BITS, LATE_FRACTION_BITS, TERMS,
};
use crate::accumulate::error::ParseAccumulatorError;
use crate::accumulate::{Accumulator, Order, Overflow, ScaleAt, SumFormat};
use alloc::{
    format,
    string::{String, ToString},
    vec,
};
use core::fmt;
use core::str::FromStr;
use microscaling::ParseFormatError;
use microscaling::internal::Parameters;
use microscaling::{NameError, internal::impl_serde_by_text};

/// The family's name.
pub(super) const FAMILY: &str = "accumulator";

/// The orders, and the fields of each.
const ORDERS: [(&str, &[&str]); 6] = [
    (
        "joint",
        &[
            "order",
            "terms",
            "fraction_bits",
            "output",
            "floor_exponent",
            "group",
            "promote_every",
            "scale_at",
        ],
    ),
    (
        "late",
        &[
            "order",
            "terms",
            "fraction_bits",
            "interleave",
            "output",
            "promote_every",
            "scale_at",
        ],
    ),
    (
        "exact",
        &["order", "terms", "output", "promote_every", "scale_at"],
    ),
    (
        "pairs",
        &[
            "order",
            "terms",
            "flush",
            "output",
            "promote_every",
            "scale_at",
        ],
    ),
    ("fma", &["order", "output", "promote_every", "scale_at"]),
    ("integer", &["order", "bits", "overflow", "promote_every"]),
];

impl fmt::Display for Accumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{FAMILY}(order={}", self.order.name());
        let mut field = |name: &str, value: &dyn fmt::Display| text += &format!(",{name}={value}");
        match &self.order {
            Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output,
            } => {
                field("terms", terms);
                field("fraction_bits", fraction_bits);
                field("output", output);
                if *floor_exponent != FLOOR_EXPONENT {
                    field("floor_exponent", floor_exponent);
                }
                if *group != 1 {
                    field("group", group);
                }
            }
            Order::Late {
                terms,
                fraction_bits,
                interleave,
                output,
            } => {
                field("terms", terms);
                field("fraction_bits", fraction_bits);
                if *interleave {
                    field("interleave", interleave);
                }
                field("output", output);
            }
            Order::Exact { terms, output } => {
                field("terms", terms);
                field("output", output);
            }
            Order::Pairs {
                terms,
                flush,
                output,
            } => {
                field("terms", terms);
                if *flush {
                    field("flush", flush);
                }
                field("output", output);
            }
            Order::Fma { output } => field("output", output),
            Order::Integer { bits, overflow } => {
                field("bits", bits);
                field("overflow", overflow);
            }
        }
        text += &promotion_text(
            self.promote_every,
            self.scale_at,
            Self::new(self.order).scale_at,
        );
        text.push(')');
        f.pad(&text)
    }
}

/// The fields of promotion that are not the usual ones, each behind a comma.
pub(super) fn promotion_text(promote_every: usize, scale_at: ScaleAt, usual: ScaleAt) -> String {
    let mut text = String::new();
    if promote_every != 0 {
        text += &format!(",promote_every={promote_every}");
    }
    if scale_at != usual {
        text += &format!(",scale_at={scale_at}");
    }
    text
}

fn take_promote_every(parameters: &mut Parameters<'_>) -> Result<usize, ParseFormatError> {
    let allowed = || "0 for never, or a number of elements".to_string();
    parameters.take("promote_every", 0, allowed)
}

/// The fields of promotion.
pub(super) fn take_promotion(
    parameters: &mut Parameters<'_>,
    usual: ScaleAt,
) -> Result<(usize, ScaleAt), ParseFormatError> {
    let places = || "product or promotion".to_string();
    Ok((
        take_promote_every(parameters)?,
        parameters.take("scale_at", usual, places)?,
    ))
}

/// The order that a text names, which decides what else it may say.
fn take_order(
    parameters: &mut Parameters<'_>,
) -> Result<(&'static str, &'static [&'static str]), ParseFormatError> {
    let names = || {
        let names = ORDERS.map(|(name, _)| name);
        format!("one of {}", names.join(", "))
    };
    let order = parameters.take("order", String::new(), names)?;
    let found = ORDERS.into_iter().find(|(name, _)| *name == order);
    found.ok_or_else(|| ParseFormatError::FieldValue {
        format: FAMILY,
        field: "order",
        value: order,
        allowed: names(),
    })
}

/// A field that has no default.
fn take_needed<T: FromStr>(
    parameters: &mut Parameters<'_>,
    field: &'static str,
    default: T,
    allowed: impl Fn() -> String,
) -> Result<T, ParseFormatError> {
    if !parameters.has(field) {
        return Err(ParseFormatError::FieldValue {
            format: FAMILY,
            field,
            value: String::new(),
            allowed: allowed(),
        });
    }
    parameters.take(field, default, allowed)
}

fn parse(parameters: &mut Parameters<'_>) -> Result<Accumulator, ParseFormatError> {
    let (order, fields) = take_order(parameters)?;
    parameters.allow(fields);
    let range = |(min, max): (i64, i64)| move || format!("{min} to {max}");
    let either = || "true or false".to_string();
    let output = || EXPECTED.to_string();
    let terms = |parameters: &mut _| take_needed(parameters, "terms", 1, range(TERMS));
    let usual_output =
        |parameters: &mut Parameters<'_>| parameters.take("output", SumFormat::F32_RNE, output);
    let order = match order {
        "joint" => Order::Joint {
            terms: terms(parameters)?,
            fraction_bits: take_needed(parameters, "fraction_bits", 0, range(FRACTION_BITS))?,
            output: take_needed(parameters, "output", SumFormat::F32_RZ, output)?,
            floor_exponent: parameters.take(
                "floor_exponent",
                FLOOR_EXPONENT,
                range(FLOOR_EXPONENTS),
            )?,
            group: parameters.take("group", 1, || "a divisor of terms".to_string())?,
        },
        "late" => Order::Late {
            terms: terms(parameters)?,
            fraction_bits: take_needed(parameters, "fraction_bits", 0, range(LATE_FRACTION_BITS))?,
            interleave: parameters.take("interleave", false, either)?,
            output: usual_output(parameters)?,
        },
        "exact" => Order::Exact {
            terms: terms(parameters)?,
            output: usual_output(parameters)?,
        },
        "pairs" => Order::Pairs {
            terms: terms(parameters)?,
            flush: parameters.take("flush", false, either)?,
            output: usual_output(parameters)?,
        },
        "fma" => Order::Fma {
            output: usual_output(parameters)?,
        },
        _ => Order::Integer {
            bits: take_needed(parameters, "bits", 0, range(INTEGER_BITS))?,
            overflow: parameters.take("overflow", Overflow::Wrap, || {
                "wrap or saturate".to_string()
            })?,
        },
    };
    let usual = Accumulator::new(order);
    let (promote_every, scale_at) = match order {
        // The scales of integers have one place.
        Order::Integer { .. } => (take_promote_every(parameters)?, usual.scale_at),
        _ => take_promotion(parameters, usual.scale_at)?,
    };
    Ok(Accumulator {
        order,
        promote_every,
        scale_at,
    })
}

impl FromStr for Accumulator {
    type Err = ParseAccumulatorError;

    /// The accumulator that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(parameters) = Parameters::of(text, FAMILY, &["order"]) else {
            return Err(ParseAccumulatorError::from(NameError::new(
                "accumulator",
                text,
                vec!["accumulator(…)"],
            )));
        };
        let mut parameters = parameters?;
        let accumulator = parse(&mut parameters)?;
        parameters.finish()?;
        accumulator.validate()?;
        Ok(accumulator)
    }
}

impl_serde_by_text!(Accumulator, "an accumulator");
