//! Interned specs and labels. Every distinct [`ResolvedSpecs`] and every path lives once, for the life of the process,
//! so that a tensor carries each as one pointer.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, RwLock};

use super::random_streams::{Draws, OpNumber, OpNumbers};
use crate::specs::ResolvedSpecs;

/// Resolved specs that tensors share, and the state of their random numbers. There is one for each distinct
/// [`ResolvedSpecs`], for the life of the process.
#[derive(Debug)]
pub struct SharedSpecs {
    pub(crate) specs: ResolvedSpecs,
    ops: OpNumbers,
}

static INTERNED: LazyLock<Mutex<HashMap<ResolvedSpecs, &'static SharedSpecs>>> =
    LazyLock::new(Default::default);
static LABELS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Default::default);
static DEFAULT: RwLock<Option<&'static SharedSpecs>> = RwLock::new(None);
static WARNED: AtomicBool = AtomicBool::new(false);
static WARNED_MERGED: AtomicBool = AtomicBool::new(false);
static WARNED_MIXED: AtomicBool = AtomicBool::new(false);
static WARNED_UNMASKED: AtomicBool = AtomicBool::new(false);

impl SharedSpecs {
    /// The shared specs of tensors with these specs.
    pub fn of(specs: &ResolvedSpecs) -> &'static Self {
        let mut interned = INTERNED.lock().unwrap_or_else(|poison| poison.into_inner());
        if let Some(found) = interned.get(specs) {
            return found;
        }
        // Leaked on purpose: tensors refer to it for as long as they live, and a program uses few specs.
        let new: &'static Self = Box::leak(Box::new(Self {
            specs: specs.clone(),
            ops: OpNumbers::of(specs),
        }));
        interned.insert(specs.clone(), new);
        new
    }

    /// The specs.
    pub fn resolved(&self) -> &ResolvedSpecs {
        &self.specs
    }

    /// The random numbers of an op: forward op, backward op or product. Each takes its own, once.
    pub(crate) fn draws(&self) -> Draws {
        self.ops.draws()
    }

    /// The random numbers of a product, a gradient's or not.
    pub(crate) fn draws_of_product(&self, is_gradient: bool) -> Draws {
        self.ops.draws_of_product(is_gradient)
    }

    /// The random numbers that all ops have in common.
    pub(crate) fn common_draws(&self) -> Draws {
        self.ops.common()
    }

    /// Random numbers that no op of these specs gets, another set for each number.
    pub(crate) fn draws_beside(&self, number: u64) -> Draws {
        self.ops.draws_beside(number)
    }

    /// The random numbers of the op with this number, or of a new one.
    pub(crate) fn draws_as(&self, number: Option<OpNumber>) -> Draws {
        number.map_or_else(|| self.draws(), Draws::replay)
    }

    /// Starts the sequence of random numbers anew from `seed`.
    pub fn reseed(&self, seed: u64) {
        self.ops.reseed(seed);
    }
}

/// The interned copy of a layer's name, so that tensors carry the name as a pointer. Most names are the paths of
/// parameters.
pub fn label(path: &str) -> &'static str {
    let mut labels = LABELS.lock().unwrap_or_else(|poison| poison.into_inner());
    if let Some(found) = labels.get(path) {
        return found;
    }
    // Leaked on purpose, as specs are: a program has few models.
    let new: &'static str = Box::leak(path.into());
    labels.insert(new);
    new
}

/// Specs of tensors and devices that have none of their own.
pub(crate) fn installed_default() -> Option<&'static SharedSpecs> {
    *DEFAULT.read().unwrap_or_else(|poison| poison.into_inner())
}

/// Sets or clears the process-wide default.
pub(crate) fn install_default(specs: Option<&ResolvedSpecs>) {
    *DEFAULT.write().unwrap_or_else(|poison| poison.into_inner()) = specs.map(SharedSpecs::of);
}

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
pub(crate) fn warn_mixed(first: &ResolvedSpecs, second: &ResolvedSpecs) {
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

/// From here on products without specs are on purpose.
pub fn unset_on_purpose() {
    WARNED.store(true, Ordering::Relaxed);
}

/// Says once in the process that a product ran without specs.
pub(crate) fn warn_unset(operation: &str) {
    if !WARNED.swap(true, Ordering::Relaxed) {
        warn(format_args!(
            "burn-mx: `{operation}` ran on tensors without MxSpecs and is not emulated. Create the device with \
             `MxDevice::new(device, specs)?`, or call `burn_mx::process::install_default`; `MxSpecs::none()` asks for \
             full precision on purpose."
        ));
    }
}
