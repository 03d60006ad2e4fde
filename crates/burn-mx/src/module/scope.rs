//! Names for products without a parameter.

use crate::record;

/// Calls `work` in a scope of this name, by which the [`recorder`](crate::record) calls the products in it that have no
/// named parameter; a scope in a scope is `outer.inner`.
///
/// ```
/// # use burn_mx::module::scope;
/// let attention = scope("blocks.0.attention", || { /* two matrix products */ });
/// ```
pub fn scope<R>(name: &str, work: impl FnOnce() -> R) -> R {
    record::scope(name, work)
}
