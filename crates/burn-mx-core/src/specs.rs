//! The description of the emulation: [`MxSpecs`] as a user writes it, [`ResolvedSpecs`] as the backend reads it.
//!
//! The fields have the names, meanings and defaults of the reference emulation library (microxcaling, `mx/specs.py`),
//! so that its JSON loads here. [`MxSpecs::resolve`] follows its chain of defaults and checks every value once.

#[cfg(feature = "clap")]
pub(crate) use self::deserialize::WITHOUT_EFFECT;
pub use self::error::SpecsError;
pub use self::fields::MxSpecs;
pub use self::gradient_operands::{GradientOperands, ParseGradientOperandsError};
pub use self::hadamard::{Hadamard, HadamardSigns, ParseHadamardError};
pub use self::recipe::{Exemptions, Recipe};
pub use self::resolved::{AsResolvedSpecs, ResolvedSpecs, ToResolvedSpecs};
pub use self::slot::Slot;
pub use self::slot_format::SlotFormat;
pub use self::static_input::StaticInput;
pub(crate) use self::static_input::block_length;
pub use self::table::SpecsField;

mod deserialize;
mod error;
mod fields;
mod gradient_operands;
mod hadamard;
mod json;
mod literature;
mod presets;
mod recipe;
mod resolve;
mod resolved;
mod slot;
mod slot_format;
mod static_input;
mod summary;
mod table;
mod validate;
