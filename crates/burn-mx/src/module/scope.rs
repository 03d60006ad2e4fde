//! Names for products without a parameter.

use crate::record;

/// Calls `work` in a scope of this name, by which the [`recorder`](crate::record) calls the products in it that have no
/// named parameter; a scope in a scope is `outer.inner`. While a recorder is at work, `work` in a rayon task runs on a thread
/// of the crate's own, so that no other task runs in between under this name; `work` must not wait for other tasks of that pool, whose thread sleeps.
///
/// ```
/// # use burn_mx::module::scope;
/// let attention = scope("blocks.0.attention", || { /* two matrix products */ });
/// ```
pub fn scope<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    record::scope(name, work)
}
