//! Settings of the whole process: the default for tensors without their own specs, switches, and a counter.

pub use crate::kernels::host_round_trips;
#[cfg(feature = "cube")]
pub use crate::kernels::reproducible_products;
use crate::shared_specs;
use crate::specs::{SpecsError, ToResolvedSpecs};
pub use crate::weight_cache::keep_quantized_weights;

/// Sets the specs of all devices and tensors of this process that have none of their own, such as those made with
/// `Default::default()`: [`MxSpecs`](crate::MxSpecs), the name of a preset, or resolved specs.
///
/// # Errors
///
/// [`MxSpecs::resolve`](crate::MxSpecs::resolve) refuses the specs, or [`MxSpecs::preset`](crate::MxSpecs::preset) does not know the
/// name.
pub fn install_default(specs: impl ToResolvedSpecs) -> Result<(), SpecsError> {
    let specs = specs.to_resolved()?;
    shared_specs::install_default(Some(&specs));
    Ok(())
}

/// Takes back what [`install_default`] set: without specs means exactly the wrapped backend again.
pub fn clear_default() {
    shared_specs::install_default(None);
}
