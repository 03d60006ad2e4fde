//! The change of an operand by another tool's rules.

use microscaling::Dialect;

/// An operand by the rules of another tool (`dialect_*`) beside the same operand by its format's own rule: the scale mode and the rounding of
/// the specs. An element enters if it is a number before quantization, and after it by both rules.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DialectDifference {
    /// The tool.
    pub dialect: Dialect,
    /// Number of elements.
    pub elements: u64,
    /// Elements whose value differs. Zeros of either sign are equal.
    pub differing: u64,
    /// Σ x² of the values x before quantization.
    pub power: f64,
    /// Σ (x − q)² of the values q by the tool's rules.
    pub error: f64,
    /// Σ (x − p)² of the values p by the format's own rule.
    pub plain_error: f64,
}

impl DialectDifference {
    /// From the values before quantization, by the tool's rules, and by the format's own rule.
    pub(crate) fn of(dialect: Dialect, [original, by_tool, plain]: [&[f32]; 3]) -> Self {
        let mut difference = Self {
            dialect,
            elements: 0,
            differing: 0,
            power: 0.0,
            error: 0.0,
            plain_error: 0.0,
        };
        for ((x, q), p) in original.iter().zip(by_tool).zip(plain) {
            if ![x, q, p].iter().all(|x| x.is_finite()) {
                continue;
            }
            let square = |x: f64| x * x;
            let wide = f64::from(*x);
            difference.elements += 1;
            difference.differing += u64::from(q != p);
            difference.power += square(wide);
            difference.error += square(wide - f64::from(*q));
            difference.plain_error += square(wide - f64::from(*p));
        }
        difference
    }

    /// Adds the figures of another operand by the same rules.
    pub fn merge(&mut self, other: Self) {
        self.elements += other.elements;
        self.differing += other.differing;
        self.power += other.power;
        self.error += other.error;
        self.plain_error += other.plain_error;
    }
}
