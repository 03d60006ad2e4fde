//! The shapes of a product's operands.

use crate::specs::ProductOp;
use burn_backend::Shape;

/// Checks that the operands `[.., M, K]` and `[.., K, N]`, each with its name, sum over the same number of elements. An op checks
/// them before any work is done; the kernels know neither the op nor its layer.
///
/// # Panics
///
/// If the numbers differ. The message names the layer by `label`, both shapes and the number that is allowed.
pub(super) fn check_summed(
    op: ProductOp,
    label: Option<&str>,
    (lhs_name, lhs): (&str, Shape),
    (rhs_name, rhs): (&str, Shape),
) {
    let (lhs, rhs) = (lhs.to_vec(), rhs.to_vec());
    let [.., got] = lhs[..] else { return };
    let [.., allowed, _] = rhs[..] else { return };
    let layer = label.map(|label| format!(" `{label}`")).unwrap_or_default();
    assert!(
        got == allowed,
        "{op}{layer}: the {lhs_name} is {lhs:?}, the {rhs_name} {rhs:?}; the last axis of the {lhs_name} has {got} elements, \
         allowed: {allowed}"
    );
}
