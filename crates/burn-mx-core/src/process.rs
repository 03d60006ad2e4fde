//! Settings of the whole process: the default for tensors without their own specs, switches, and a counter.

use crate::specs::{SpecsError, ToResolvedSpecs};
use crate::tensor::shared_specs;
pub use crate::tensor::weight_cache::{keep_quantized_weights, without_keeping_weights};
pub use burn_mx_kernels::{
    host_round_trips, keep_compiled_kernels, reproducible_products, show_waits,
};

/// Sets the default for devices and tensors of this process without their own specs, such as `MxDevice::default()`.
/// `specs` are [`MxSpecs`](crate::MxSpecs), the name of a preset, or resolved specs.
///
/// # Errors
///
/// The errors of [`MxSpecs::resolve`](crate::MxSpecs::resolve), or of [`MxSpecs::preset`](crate::MxSpecs::preset) for a name.
pub fn install_default(specs: impl ToResolvedSpecs) -> Result<(), SpecsError> {
    let specs = specs.to_resolved()?;
    shared_specs::install_default(Some(&specs));
    Ok(())
}

/// Removes the default of [`install_default`]. Without specs, results equal the wrapped backend's again.
pub fn clear_default() {
    shared_specs::install_default(None);
}
