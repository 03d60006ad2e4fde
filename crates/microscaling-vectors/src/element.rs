//! Elements alone: formats, the rule of a conversion, and the inputs that tell rules apart.

mod codes;
pub(crate) mod format;
pub(crate) mod input;
mod inputs;
pub(crate) mod modes;
mod neighbours;
pub(crate) mod rule;
mod set;

pub use codes::CodeSet;
pub use format::CodeFormat;
pub use input::InputType;
pub use modes::{ElementOverflow, ElementRounding};
pub(crate) use neighbours::{combined, neighbouring_rules};
pub use rule::{ElementRule, SmallResults};
pub use set::ElementSet;
