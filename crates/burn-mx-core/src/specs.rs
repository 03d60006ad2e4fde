//! The description of the emulation: [`MxSpecs`] as a user writes it, [`ResolvedSpecs`] as the backend reads it.
//!
//! The fields have the names, meanings and defaults of the reference emulation library (microxcaling, `mx/specs.py`),
//! so that its JSON loads here. [`MxSpecs::resolve`] follows its chain of defaults and checks every value once.

pub use self::error::SpecsError;
pub use self::fields::MxSpecs;
pub use self::fields::attention::{
    AttentionBackward, AttentionSpecs, Delta, ParsePointFormatError, ParseValueRangeError,
    PointFormat, RowSums, ValueAxis, ValueRange,
};
pub use self::fields::elementwise_scope::{ElementwiseScope, ParseElementwiseScopeError};
pub use self::fields::gradient_operands::{GradientOperands, ParseGradientOperandsError};
pub use self::fields::grouped::ParseGroupError;
pub use self::fields::hadamard::{Hadamard, HadamardSigns, ParseHadamardError};
pub use self::fields::hot_columns::{
    ColumnChoice, ColumnRanking, ColumnScore, HotColumns, HotTreatment, ParseColumnRankingError,
};
pub use self::fields::slot::Slot;
pub use self::fields::slot_format::SlotFormat;
pub use self::fields::table::SpecsField;
#[cfg(feature = "clap")]
pub(crate) use self::json::deserialize::WITHOUT_EFFECT;
pub use self::presets::recipe::{Exemptions, Recipe};
pub use self::product::{ProductKind, ProductOp};
pub use self::qat::{ParseQatBackwardError, QatBackward, QatConfig};
pub use self::resolved::static_input::StaticInput;
pub(crate) use self::resolved::static_input::block_length;
pub(crate) use self::resolved::validate::attention::kind_of_point;
pub use self::resolved::{AsResolvedSpecs, ResolvedSpecs, ToResolvedSpecs};

#[cfg(feature = "clap")]
pub(super) mod args;
mod error;
mod fields;
mod json;
mod presets;
mod product;
mod qat;
mod resolved;
pub mod suggestion;
