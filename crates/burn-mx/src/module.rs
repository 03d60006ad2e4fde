//! Helpers at the level of modules and tensors: specs by parameter path, full-precision pieces, roles.
//!
//! All work on both sides of the decorator, `MxBackend<B>` and `MxAutodiff<B>`, through [`MxTensorOps`].

mod by_path;
mod exempt;
mod functions;
#[cfg(any(feature = "checkpoint", feature = "ptq"))]
mod initialize;
mod layers;
mod masters;
mod on_load;
mod packing;
mod pattern;
mod pieces;
mod tensor_ops;

#[cfg(feature = "checkpoint")]
pub use crate::checkpoint::{load_checkpoint, save_checkpoint};
#[cfg(feature = "record")]
pub use crate::record::scope;
pub use by_path::{clear_specs_at, label_parameters, set_specs, set_specs_at};
pub use exempt::{ExemptError, exempt_layers, set_exemptions, set_exemptions_at};
pub use functions::{gelu_first_order, rms_norm, silu};
#[cfg(any(feature = "checkpoint", feature = "ptq"))]
pub(crate) use initialize::initialize;
#[cfg(feature = "checkpoint")]
pub(crate) use layers::Layer;
pub use layers::layers;
#[cfg(feature = "ptq")]
pub(crate) use layers::parameter_of;
pub use masters::{LerpError, lerp, master};
#[cfg(feature = "checkpoint")]
pub(crate) use on_load::Update;
pub use packing::{pack, unpack};
pub use pattern::PathError;
#[cfg(any(feature = "checkpoint", feature = "ptq", feature = "record"))]
pub(crate) use pattern::Pattern;
pub use pieces::{
    as_activation, as_weight, emulated, full_precision, label_of, specs_of, with_specs,
};
#[cfg(feature = "checkpoint")]
pub(crate) use tensor_ops::Packing;
#[cfg(feature = "checkpoint")]
pub(crate) use tensor_ops::{Change, change};
pub use tensor_ops::{Function, MetaChange, MxTensorOps};
