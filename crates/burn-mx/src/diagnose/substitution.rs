//! Other specs in place of those that tensors carry, for as long as a diagnosis computes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::Products;
use crate::alone::alone;
use crate::registry::Interned;
use crate::semantics::product::Kind;
use crate::specs::MxSpecs;

/// How many diagnoses compute: without any this is all that an op looks at.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Substitution>>> = const { RefCell::new(None) };
}

/// What a thread computes by, in place of the specs of tensors: the same without an elementwise format, and none in products
/// that are to be exact.
#[derive(Debug)]
pub(crate) struct Substitution {
    /// `None`: all products are exact.
    products: Option<Products>,
    seed: u64,
    /// In place of those of a product that is to be exact.
    none: &'static Interned,
    /// By the place of the specs in memory.
    known: Mutex<HashMap<usize, &'static Interned>>,
    /// Products that were quantized.
    quantized: AtomicUsize,
}

impl Substitution {
    pub(super) fn new(products: Option<Products>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            products,
            seed,
            none: Interned::of(&MxSpecs::none().resolve().expect("nothing is sound")),
            known: Mutex::default(),
            quantized: AtomicUsize::new(0),
        })
    }

    /// How many products were quantized.
    pub(super) fn quantized(&self) -> usize {
        self.quantized.load(Ordering::Relaxed)
    }

    /// Whether what was computed by it drew random numbers.
    pub(super) fn is_random(&self) -> bool {
        let known = self
            .known
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        known.values().any(|interned| interned.specs.is_random())
    }

    /// That of this thread.
    pub(crate) fn current() -> Option<Arc<Self>> {
        match COUNT.load(Ordering::Relaxed) {
            0 => None,
            _ => CURRENT.with_borrow(Clone::clone),
        }
    }

    /// Calls `work` with this substitution in force on the thread that runs the work.
    pub(super) fn enter<R: Send>(self: Arc<Self>, work: impl FnOnce() -> R + Send) -> R {
        struct Restore(Option<Arc<Substitution>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
                COUNT.fetch_sub(1, Ordering::Relaxed);
            }
        }
        alone(|| {
            COUNT.fetch_add(1, Ordering::Relaxed);
            let _restore = Restore(CURRENT.replace(Some(self)));
            work()
        })
    }

    /// In place of these specs.
    fn of(&self, interned: &'static Interned) -> &'static Interned {
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
                ..interned.specs.specs().clone()
            };
            let specs = specs.resolve();
            let substitute =
                Interned::of(&specs.expect("without an elementwise format they are sound, too"));
            substitute.reseed(!self.seed);
            substitute
        })
    }
}

/// The specs by which an op is computed whose tensors have these.
pub(crate) fn specs(interned: &'static Interned) -> &'static Interned {
    match Substitution::current() {
        Some(substitution) => substitution.of(interned),
        None => interned,
    }
}

/// The specs by which a product is computed whose op has these.
pub(crate) fn specs_of_product(kind: Kind, interned: &'static Interned) -> &'static Interned {
    let Some(substitution) = Substitution::current() else {
        return interned;
    };
    match substitution
        .products
        .is_some_and(|products| products.has(kind))
    {
        true => {
            substitution.quantized.fetch_add(1, Ordering::Relaxed);
            interned
        }
        false => substitution.none,
    }
}
