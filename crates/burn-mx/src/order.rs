//! The order in which the layers of a model run: which weights the products of a forward pass read.

use std::cell::RefCell;

#[cfg(feature = "module")]
use crate::alone::alone;
use crate::tensor::Meta;

thread_local! {
    static RAN: RefCell<Option<Vec<&'static str>>> = const { RefCell::new(None) };
}

/// Notes a product that is about to run, by the label of its weight.
pub(crate) fn runs(weight: Meta) {
    if let Some(label) = weight.label {
        RAN.with_borrow_mut(|ran| {
            if let Some(ran) = ran {
                ran.push(label);
            }
        });
    }
}

/// The labels of the weights of the products that `work` runs, in that order, one for each product.
#[cfg(feature = "module")]
pub(crate) fn of(work: impl FnOnce() + Send) -> Vec<&'static str> {
    /// What the thread noted before, also if the work panics.
    struct Restore(Option<Vec<&'static str>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            RAN.set(self.0.take());
        }
    }
    alone(|| {
        let _restore = Restore(RAN.replace(Some(Vec::new())));
        work();
        RAN.take().unwrap_or_default()
    })
}
