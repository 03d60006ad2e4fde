//! Elements alone: formats, the rule of a conversion, and the inputs that tell rules apart.

pub(crate) mod format;
pub(crate) mod input;
mod codes;
mod inputs;
mod neighbours;
pub(crate) mod rule;
mod set;

pub use format::CodeFormat;
pub use input::InputType;
pub use rule::{ElementOverflow, ElementRounding, ElementRule, SmallResults};
pub use codes::CodeSet;
pub use set::ElementSet;
pub(crate) use neighbours::{combined, neighbouring_rules};
