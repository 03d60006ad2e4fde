//! Warnings that the decorator gives, most of them once in the process.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

static WARNED_UNSET: AtomicBool = AtomicBool::new(false);
static WARNED_MERGED: AtomicBool = AtomicBool::new(false);
static WARNED_MIXED: AtomicBool = AtomicBool::new(false);
static WARNED_UNMASKED: AtomicBool = AtomicBool::new(false);
static WARNED_WITHOUT_UNIT: AtomicBool = AtomicBool::new(false);

/// Warns in the log, or on stderr where the program has no logger.
pub fn warn(message: fmt::Arguments<'_>) {
    match log::max_level() {
        log::LevelFilter::Off => eprintln!("{message}"),
        _ => log::warn!("{message}"),
    }
}

/// Says once in the process that an optimizer joined parameters whose specs were set by path.
pub(crate) fn warn_merged() {
    if !WARNED_MERGED.swap(true, Ordering::Relaxed) {
        warn(format_args!(
            "burn-mx: an optimizer (such as L-BFGS) joined parameters with different specs into one tensor; the new \
             parameters have the model's specs. Call `set_specs_at` again after each step."
        ));
    }
}

/// Says once in the process that tensors of devices with different specs met in an op.
pub(crate) fn warn_mixed(first: &dyn fmt::Display, second: &dyn fmt::Display) {
    if !WARNED_MIXED.swap(true, Ordering::Relaxed) {
        warn(format_args!(
            "burn-mx: the operands of an op are from devices with different specs, `{first}` and `{second}`. A weight's \
             specs apply to the op, and the activations' specs to its result. Create inputs on a device with the model's specs, or move \
             the model to a device with the inputs' specs; `module::set_specs_at` and `module::with_specs` mix specs on purpose."
        ));
    }
}

/// Says once in the process that a gradient has no mask: Burn does not hand over the input that was clipped.
pub(crate) fn warn_unmasked() {
    if !WARNED_UNMASKED.swap(true, Ordering::Relaxed) {
        warn(format_args!(
            "burn-mx: `mask_clipped` does not mask the gradients of transposed convolutions' inputs, because Burn computes them \
             without the input. The gradients of their weights are masked."
        ));
    }
}

/// Says once in the process that an accumulator does not take operands without blocks.
pub(crate) fn warn_without_unit(
    product: &dyn fmt::Display,
    accumulator: &dyn fmt::Display,
    reason: &dyn fmt::Display,
) {
    if !WARNED_WITHOUT_UNIT.swap(true, Ordering::Relaxed) {
        warn(format_args!(
            "burn-mx: {product}: its operands have no blocks, and its accumulator {accumulator} does not take them ({reason}). \
             Such products are summed in float32."
        ));
    }
}

/// From here on products without specs are on purpose.
pub fn unset_on_purpose() {
    WARNED_UNSET.store(true, Ordering::Relaxed);
}

/// Says once in the process that a product ran without specs.
pub(crate) fn warn_unset(operation: &str) {
    if !WARNED_UNSET.swap(true, Ordering::Relaxed) {
        warn(format_args!(
            "burn-mx: `{operation}` ran on tensors without MxSpecs and is not emulated. Create the device with \
             `MxDevice::new(device, specs)?`, or call `burn_mx::process::install_default`; `MxSpecs::none()` asks for \
             full precision on purpose."
        ));
    }
}
