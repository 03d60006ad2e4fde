//! A build without diagnoses: every op goes by the specs of its tensors.

use crate::registry::Interned;
use crate::semantics::product::Kind;

pub(crate) fn specs(interned: &'static Interned) -> &'static Interned {
    interned
}

pub(crate) fn specs_of_product(_: Kind, interned: &'static Interned) -> &'static Interned {
    interned
}
