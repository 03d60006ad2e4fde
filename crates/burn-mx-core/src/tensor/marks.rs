//! How the marks of tensors change: two [tables](table), and the functions that read them. The page
//! "Marks" of the book shows the tables.

mod flags;
#[cfg(test)]
mod tests;

pub(crate) use flags::Flags;

/// A step of a [`Rule`]. Where its conditions hold, the tensor loses marks, then gains others, then takes some of the other
/// tensor's.
struct Step {
    /// The tensor has one of these marks, if any are named.
    has: Flags,
    /// The tensor has none of these marks.
    lacks: Flags,
    /// The other tensor or the device that the rule is about has one of these marks, if any are named.
    other_has: Flags,
    /// The other has none of these marks.
    other_lacks: Flags,
    loses: Flags,
    gains: Flags,
    /// The tensor also gains the marks of this list that the other has.
    copies: Flags,
}

/// A rule about the marks of one tensor. Each step reads what the step before it left.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    steps: &'static [Step],
}

/// A row of the table of ops. Where its conditions hold, the result gains marks.
struct ResultRow {
    /// Each of these marks is an operand's.
    any: Flags,
    /// Each of these marks is every operand's.
    all: Flags,
    /// None of these marks is an operand's.
    none: Flags,
    gains: Flags,
}

/// The union of marks.
macro_rules! marks {
    ($($mark:ident)*) => { Flags::empty()$(.union(Flags::$mark))* };
}

/// Makes a constant of [`Rule`] of each rule.
macro_rules! rules {
    ($($(#[doc = $doc:literal])* $name:ident { $(
        $(has [$($has:ident)*])? $(lacks [$($lacks:ident)*])?
        $(other_has [$($other_has:ident)*])? $(other_lacks [$($other_lacks:ident)*])?
        $(loses [$($loses:ident)*])? $(gains [$($gains:ident)*])? $(copies [$($copies:ident)*])?;
    )* })*) => {
        impl Rule { $( $(#[doc = $doc])* pub(crate) const $name: Self = Self { steps: &[$(Step {
            has: marks!($($($has)*)?), lacks: marks!($($($lacks)*)?),
            other_has: marks!($($($other_has)*)?), other_lacks: marks!($($($other_lacks)*)?),
            loses: marks!($($($loses)*)?), gains: marks!($($($gains)*)?), copies: marks!($($($copies)*)?),
        }),*] }; )* }
        #[cfg(test)]
        pub(super) const RULES: &[(&str, &str, Rule)] = &[$((stringify!($name), concat!($($doc),*), Rule::$name)),*];
    };
}

/// Makes the rows of the table of ops.
macro_rules! rows {
    ($($(any [$($any:ident)*])? $(all [$($all:ident)*])? $(none [$($none:ident)*])? gains [$($gains:ident)*];)*) => {
        pub(super) const ROWS: &[ResultRow] = &[$(ResultRow {
            any: marks!($($($any)*)?), all: marks!($($($all)*)?), none: marks!($($($none)*)?), gains: marks!($($gains)*),
        }),*];
    };
}

mod table;

impl Flags {
    /// The marks of a tensor with these marks after a rule about the tensor alone.
    pub(crate) fn after(self, rule: Rule) -> Self {
        self.after_with(rule, Self::empty())
    }

    /// As [`after`](Self::after), of a rule about this tensor and another tensor or a device.
    pub(crate) fn after_with(self, rule: Rule, other: Self) -> Self {
        let holds = |marks: Self, named: Self| named.is_empty() || marks.intersects(named);
        rule.steps.iter().fold(self, |marks, step| {
            let of_own = holds(marks, step.has) && !marks.intersects(step.lacks);
            let of_other = holds(other, step.other_has) && !other.intersects(step.other_lacks);
            match of_own && of_other {
                true => (marks - step.loses) | step.gains | (other & step.copies),
                false => marks,
            }
        })
    }

    /// The marks of an op's result, from the marks of its operands.
    pub(crate) fn of_result(operands: impl Iterator<Item = Self> + Clone) -> Self {
        let operands = operands.map(|marks| marks.after(Rule::OPERAND));
        let is_constant = |marks: Self| marks.contains(Self::CONSTANT);
        let constants_alone = operands.clone().all(is_constant);
        let (mut any, mut all) = (Self::empty(), Self::all());
        for marks in operands {
            if is_constant(marks) && !constants_alone {
                any |= marks.after(Rule::CONSTANT_BESIDE_OTHERS);
                continue;
            }
            any |= marks;
            all &= marks;
        }
        if any.is_empty() {
            // Without operands.
            all = any;
        }
        let rows = table::ROWS.iter().filter(|row| {
            any.contains(row.any) && all.contains(row.all) && !any.intersects(row.none)
        });
        rows.fold(Self::empty(), |result, row| result | row.gains)
    }
}
