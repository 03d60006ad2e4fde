//! Replaces the specs that tensors carry while a diagnosis computes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::Products;
use burn_mx_core::MxSpecs;
use burn_mx_core::hooks::{self, Events, Observer, ProductKind, SharedSpecs};

/// The replacement of tensors' specs on a thread: the same specs without an elementwise format, and no specs in products that
/// must be exact.
#[derive(Debug)]
pub(super) struct Substitution {
    /// `None`: all products are exact.
    products: Option<Products>,
    seed: u64,
    /// The specs of a product that must be exact.
    none: &'static SharedSpecs,
    /// Replacements, by the address of the original specs.
    known: Mutex<HashMap<usize, &'static SharedSpecs>>,
    /// Products that were quantized.
    quantized: AtomicUsize,
}

impl Substitution {
    pub(super) fn new(products: Option<Products>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            products,
            seed,
            none: SharedSpecs::of(&MxSpecs::none().resolve().expect("nothing is sound")),
            known: Mutex::default(),
            quantized: AtomicUsize::new(0),
        })
    }

    /// How many products were quantized.
    pub(super) fn quantized(&self) -> usize {
        self.quantized.load(Ordering::Relaxed)
    }

    /// Whether any op under this substitution drew random numbers.
    pub(super) fn is_random(&self) -> bool {
        let known = self
            .known
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        known.values().any(|shared| shared.resolved().is_random())
    }

    /// Calls `work` with this substitution in force on the thread that runs the work.
    pub(super) fn enter<R: Send>(self: Arc<Self>, work: impl FnOnce() -> R + Send) -> R {
        hooks::alone(|| {
            let _installed = hooks::install_on_this_thread(self);
            work()
        })
    }

    /// The replacement of these specs.
    fn of(&self, interned: &'static SharedSpecs) -> &'static SharedSpecs {
        let place = core::ptr::from_ref(interned).addr();
        let mut known = self
            .known
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        known.entry(place).or_insert_with(|| {
            let specs = MxSpecs {
                bfloat: 0,
                fp: 0,
                // Nobody trains by these specs, whose sequence of random numbers begins anew here.
                seed: !self.seed,
                ..interned.resolved().specs().clone()
            };
            let specs = specs.resolve();
            let substitute =
                SharedSpecs::of(&specs.expect("without an elementwise format they are sound, too"));
            substitute.reseed(!self.seed);
            substitute
        })
    }
}

impl Observer for Substitution {
    fn events(&self) -> Events {
        Events::SPECS
    }

    fn specs_of_op(&self, specs: &'static SharedSpecs) -> &'static SharedSpecs {
        self.of(specs)
    }

    fn specs_of_product(
        &self,
        kind: ProductKind,
        specs: &'static SharedSpecs,
    ) -> &'static SharedSpecs {
        match self.products.is_some_and(|products| products.has(kind)) {
            true => {
                self.quantized.fetch_add(1, Ordering::Relaxed);
                specs
            }
            false => self.none,
        }
    }
}
