//! Interned specs and labels. Every distinct [`ResolvedSpecs`] and every path lives once, for the life of the process,
//! so that a tensor carries each as one pointer.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::sync::{LazyLock, Mutex, RwLock};

use super::random_streams::{Draws, OpNumber, OpNumbers};
use crate::specs::{ElementwiseScope, ResolvedSpecs};

/// Resolved specs that tensors share, and the state of their random numbers. There is one for each distinct
/// [`ResolvedSpecs`], for the life of the process.
pub struct SharedSpecs {
    pub(crate) specs: ResolvedSpecs,
    ops: OpNumbers,
}

static INTERNED: LazyLock<Mutex<HashMap<ResolvedSpecs, &'static SharedSpecs>>> =
    LazyLock::new(Default::default);
static LABELS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Default::default);
static DEFAULT: RwLock<Option<&'static SharedSpecs>> = RwLock::new(None);

/// The summary of the specs, because every tensor prints its shared specs.
impl Debug for SharedSpecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSpecs({})", self.specs)
    }
}

impl SharedSpecs {
    /// The shared specs of tensors with these specs.
    pub fn of(specs: &ResolvedSpecs) -> &'static Self {
        let mut shared = INTERNED.lock().unwrap_or_else(|poison| poison.into_inner());
        if let Some(found) = shared.get(specs) {
            return found;
        }
        // Leaked on purpose: tensors refer to it for as long as they live, and a program uses few specs.
        let new: &'static Self = Box::leak(Box::new(Self {
            specs: specs.clone(),
            ops: OpNumbers::of(specs),
        }));
        shared.insert(specs.clone(), new);
        new
    }

    /// The specs.
    pub fn resolved(&self) -> &ResolvedSpecs {
        &self.specs
    }

    /// Whether elementwise ops are emulated on activations alone.
    pub(crate) fn is_scoped(&self) -> bool {
        match self.specs.elementwise_scope() {
            ElementwiseScope::All => false,
            ElementwiseScope::Activations => true,
        }
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

/// The shared copy of a layer's name, so that tensors carry the name as a pointer. Most names are the paths of
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
