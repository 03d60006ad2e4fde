//! Helpers of [burn-mx](https://docs.rs/burn-mx) for modules and tensors: specs by parameter path, full-precision pieces,
//! roles.
//!
//! All functions work on both sides of the decorator, `MxBackend<B>` and `MxAutodiff<B>`, through [`MxTensorOps`]. Functions that
//! models and losses call ask for [`MxModelOps`] only, and also run on plain backends, where they change nothing.

mod by_path;
mod change;
mod column_ranks;
mod exempt;
mod functions;
mod fused;
mod fused_linear;
mod initialize;
mod layers;
mod masters;
mod on_load;
mod packed_linear;
mod packing;
mod pattern;
mod pieces;
mod quantized;
mod schedule;
mod stages;

pub use burn_mx_core::{MxModelOps, MxTensorOps};
pub use by_path::{clear_specs_at, label_parameters, set_specs, set_specs_at};
pub use change::change;
pub use column_ranks::{ColumnRanks, ColumnRanksError, ColumnRecord, ColumnWatch};
pub use exempt::{
    ExemptError, exempt_layers, set_exemptions, set_exemptions_at, set_recipe_layers,
};
pub use functions::{
    distillation_loss, gelu_first_order, hidden_state_loss, log_sum_exp, mish, rms_norm, silu,
};
pub use fused::{FusedError, share_tensor_scales};
pub use fused_linear::fused_linear;
pub use initialize::initialize;
pub use layers::{LayerKind, LayerPath, layers, parameter_of};
pub use masters::{LerpError, lerp, master};
pub use on_load::set_specs_of;
pub use packed_linear::{
    Adapter, LoraConfig, Merged, PackedLinear, PackedLinearError, load_adapters,
};
pub use packing::{pack, unpack};
pub use pattern::{PathError, Pattern, nearest};
pub use pieces::{
    as_activation, as_weight, emulated, full_precision, label_of, specs_of, with_specs,
};
pub use quantized::{
    QuantizedError, packed_of_data, quantized_data, quantized_tensor, quantized_weights,
};
pub use schedule::{Limit, Phase, Schedule, ScheduleError, Stage};
pub use stages::Stages;

/// Items for the other crates of the project.
#[doc(hidden)]
pub mod internal {
    pub use crate::fused::linear_weights;
}
