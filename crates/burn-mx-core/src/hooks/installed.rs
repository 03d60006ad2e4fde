//! The installed observers, and the observers that an event reaches.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::thread::thread_of_work;
use super::wanted::{counters, is_any};
use super::{Events, Observer, ProductKind, ProductOp};
use crate::tensor::Meta;
use crate::tensor::shared_specs::SharedSpecs;

static INSTALLED: LazyLock<Mutex<All>> = LazyLock::new(Mutex::default);

/// An observer and the number that it was installed with.
type Entry = (u64, Events, Arc<dyn Observer>);

#[derive(Default)]
struct All {
    process: Vec<Entry>,
    threads: HashMap<ThreadId, Vec<Entry>>,
}

fn all() -> MutexGuard<'static, All> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The observers of this thread's work that want this event.
pub(super) fn observers(event: Events) -> Vec<Arc<dyn Observer>> {
    if !is_any(event) {
        return Vec::new();
    }
    let all = all();
    let own = all.threads.get(&thread_of_work());
    // The last one of a thread hides those before it.
    let entries = match own.and_then(|own| own.last()) {
        Some(last) => core::slice::from_ref(last),
        None => &all.process,
    };
    let wanted = entries
        .iter()
        .filter(|(_, events, _)| events.contains(event));
    wanted
        .map(|(_, _, observer)| Arc::clone(observer))
        .collect()
}

/// An observer at work, until this is dropped.
#[must_use = "the observer is gone when this is dropped"]
pub struct Installed {
    number: u64,
    events: Events,
    thread: Option<ThreadId>,
}

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Installed").field(&self.events).finish()
    }
}

/// Installs `observer` for all threads without their own observer.
pub fn install(observer: Arc<dyn Observer>) -> Installed {
    install_for(None, observer)
}

/// Installs `observer` for this thread and for threads that work for it. No other observer sees their computations.
pub fn install_on_this_thread(observer: Arc<dyn Observer>) -> Installed {
    install_for(Some(thread_of_work()), observer)
}

fn install_for(thread: Option<ThreadId>, observer: Arc<dyn Observer>) -> Installed {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let events = observer.events();
    let mut all = all();
    let entries = match thread {
        Some(thread) => all.threads.entry(thread).or_default(),
        None => &mut all.process,
    };
    entries.push((number, events, observer));
    for counter in counters(events) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    Installed {
        number,
        events,
        thread,
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        for counter in counters(self.events) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
        // An observer's own drop may compute, so that it waits until the list is free again.
        let mut removed = Vec::new();
        {
            let mut all = all();
            let mut take = |entries: &mut Vec<Entry>| {
                removed.extend(entries.extract_if(.., |(number, ..)| *number == self.number));
            };
            match self.thread {
                None => take(&mut all.process),
                Some(thread) => {
                    if let Some(entries) = all.threads.get_mut(&thread) {
                        take(entries);
                        if entries.is_empty() {
                            all.threads.remove(&thread);
                        }
                    }
                }
            }
        }
        drop(removed);
    }
}

/// The specs by which an op is computed whose tensors have these.
pub(crate) fn specs_of_op(specs: &'static SharedSpecs) -> &'static SharedSpecs {
    let observers = observers(Events::SPECS).into_iter();
    observers.fold(specs, |specs, observer| observer.specs_of_op(specs))
}

/// The specs by which a product is computed whose op has these.
pub(crate) fn specs_of_product(
    kind: ProductKind,
    specs: &'static SharedSpecs,
) -> &'static SharedSpecs {
    let observers = observers(Events::SPECS).into_iter();
    observers.fold(specs, |specs, observer| {
        observer.specs_of_product(kind, specs)
    })
}

/// The label of a product of the forward pass, for its gradients: its own, or what an observer calls it.
pub(crate) fn name_product(op: ProductOp, label: Option<&'static str>) -> Option<&'static str> {
    label.or_else(|| {
        let mut observers = observers(Events::PRODUCTS).into_iter();
        observers.find_map(|observer| observer.name_product(op))
    })
}

/// The label of an elementwise op of the forward pass, for its gradient: its own, or what an observer calls it.
pub(crate) fn name_elementwise(label: Option<&'static str>) -> Option<&'static str> {
    label.or_else(|| {
        let mut observers = observers(Events::ELEMENTWISE).into_iter();
        observers.find_map(|observer| observer.name_elementwise())
    })
}

/// The name of an attention of the forward pass, for its gradients.
pub(crate) fn name_attention() -> Option<&'static str> {
    let mut observers = observers(Events::PRODUCTS).into_iter();
    let of_products = || observers.find_map(|observer| observer.name_elementwise());
    name_elementwise(None).or_else(of_products)
}

/// Tells that a backward pass is over on this thread.
pub(crate) fn end_of_backward_pass() {
    for observer in observers(Events::PRODUCTS) {
        observer.end_of_backward_pass();
    }
}

/// Shows the scores of the columns of the layer whose weight has this label, if anybody wants them.
pub(crate) fn columns(label: Option<&'static str>, scores: impl FnOnce() -> Vec<f32>) {
    let Some(label) = label else { return };
    let mut observers = observers(Events::COLUMNS);
    observers.retain(|observer| observer.wants_columns(label));
    if observers.is_empty() {
        return;
    }
    let scores = scores();
    for observer in observers {
        observer.columns(label, &scores);
    }
}

/// Tells that a product with this weight is about to be computed.
pub(crate) fn weight_used(weight: Meta) {
    if let Some(label) = weight.label {
        for observer in observers(Events::WEIGHTS) {
            observer.weight_used(label);
        }
    }
}
