//! Gradients on their way between devices that communicate, under `cfg(burn_mx_distributed)`.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rounds gradients before and after Burn's own exchange between devices, as they would arrive over a wire.
pub trait GradientExchange: Send + Sync {
    /// Changes the numbers of a gradient of this shape, in row-major order. Called on the thread that computes the backward pass.
    fn send(&self, message: GradientMessage, shape: &[usize], numbers: &mut Vec<f32>);
}

/// A gradient that a device sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientMessage {
    /// The number of Burn's `DistributedParamId`, the same on all devices.
    pub parameter: u64,
    /// The device's index: of `DeviceId`.
    pub rank: usize,
    /// Whether the numbers are the sum or mean over devices, which all of them have. Else they are this device's own.
    pub is_reduced: bool,
}

type ExchangeEntry = (u64, Arc<dyn GradientExchange>);

static EXCHANGES: Mutex<Vec<ExchangeEntry>> = Mutex::new(Vec::new());

fn exchanges() -> MutexGuard<'static, Vec<ExchangeEntry>> {
    EXCHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An exchange that is in effect until this is dropped.
#[must_use = "gradients are exchanged in float32 when this is dropped"]
pub struct InstalledExchange(u64);

impl fmt::Debug for InstalledExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstalledExchange")
    }
}

/// Has the gradients of all devices and threads of this process rounded. Of several exchanges the last one counts. Install it while no
/// backward pass runs, so that all devices of a pass have the same one.
pub fn install_exchange(exchange: Arc<dyn GradientExchange>) -> InstalledExchange {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    exchanges().push((number, exchange));
    InstalledExchange(number)
}

impl Drop for InstalledExchange {
    fn drop(&mut self) {
        let removed: Vec<_> = exchanges()
            .extract_if(.., |(number, _)| *number == self.0)
            .collect();
        // An exchange's own drop waits until the list is free again.
        drop(removed);
    }
}

/// The exchange in effect.
pub(crate) fn exchange() -> Option<Arc<dyn GradientExchange>> {
    exchanges().last().map(|(_, exchange)| Arc::clone(exchange))
}

thread_local! {
    /// Work on the gradients that this thread has submitted, for after the exchange.
    static SUBMITTED: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Forgets the work of a backward pass that panicked.
pub(crate) fn begin_backward_pass() {
    SUBMITTED.take();
}

/// Has `work` done after the exchange.
pub(crate) fn after_exchange(work: impl FnOnce() + 'static) {
    SUBMITTED.with_borrow_mut(|submitted| submitted.push(Box::new(work)));
}

/// The gradients of all devices are there.
pub(crate) fn end_exchange() {
    SUBMITTED.take().into_iter().for_each(|work| work());
}
