//! The events of a product.

use std::cell::RefCell;
use std::fmt;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling_product::{Accumulation, Side, SumStatistics};

use super::installed::observers;
use super::rounded_operand::RoundedOperand;
use super::{
    AttentionProduct, Events, ObservedStatistics, Observer, OperandView, ProductCall,
    ProductObserver, ProductSize,
};
use crate::specs::Slot;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::Operand;
use burn_mx_kernels::internal::accumulated::SumLooks;

/// The observers of one product.
pub(crate) struct ProductObservers<B: MxKernels> {
    observers: Vec<Box<dyn ProductObserver>>,
    /// The operands before quantization in blocks, in the order in which they came by, if results are compared.
    originals: RefCell<Vec<Original<B>>>,
}

/// An operand of a product before quantization in blocks.
pub(crate) struct Original<B: MxKernels> {
    pub(crate) side: Option<Side>,
    pub(crate) operand: Operand<FloatTensor<B>>,
    pub(crate) significant_bits: u32,
}

impl<B: MxKernels> ProductObservers<B> {
    /// `None` if nobody sees this product.
    pub(crate) fn of(call: &ProductCall) -> Option<Self> {
        Self::seen(|observer| observer.product(call))
    }

    /// `None` if nobody sees this product of attention.
    pub(crate) fn of_attention(call: &AttentionProduct) -> Option<Self> {
        Self::seen(|observer| observer.attention_product(call))
    }

    fn seen(see: impl Fn(&dyn Observer) -> Option<Box<dyn ProductObserver>>) -> Option<Self> {
        let observers = observers(Events::PRODUCTS);
        let seen = observers.iter().filter_map(|observer| see(&**observer));
        let seen: Vec<_> = seen.collect();
        (!seen.is_empty()).then(|| Self {
            observers: seen,
            originals: RefCell::default(),
        })
    }

    /// The product's name, if anybody has one for it.
    pub(crate) fn layer(&self) -> Option<&'static str> {
        self.observers.iter().find_map(|observer| observer.layer())
    }

    /// Whether anybody wants to see operands of this slot.
    pub(crate) fn want_operand(&self, slot: Slot) -> bool {
        let mut observers = self.observers.iter();
        observers.any(|observer| observer.wants_operand(slot))
    }

    /// Shows an operand to its observers.
    pub(crate) fn operand(&self, view: &dyn OperandView) {
        for observer in &self.observers {
            if observer.wants_operand(view.slot()) {
                observer.operand(view);
            }
        }
    }

    /// Shows an operand that is rounded already to its observers.
    pub(crate) fn rounded_operand(&self, view: &RoundedOperand<'_, B>) {
        if self.want_operand(view.slot) {
            self.operand(view);
        }
    }

    /// Shows the size of the product.
    pub(crate) fn size(&self, size: ProductSize) {
        for observer in &self.observers {
            observer.size(size);
        }
    }

    /// Whether the result is compared with the product of the operands before quantization in blocks.
    pub(crate) fn compare_results(&self) -> bool {
        self.observers
            .iter()
            .any(|observer| observer.wants_result())
    }

    /// Keeps an operand from before quantization in blocks.
    pub(crate) fn keep(&self, original: Original<B>) {
        self.originals.borrow_mut().push(original);
    }

    /// Shows the result of a matrix product, if its operands were [kept](Self::keep).
    pub(crate) fn result(&self, result: &FloatTensor<B>) {
        let mut originals = self.originals.take();
        originals.sort_by_key(|original| original.side == Some(Side::Rhs));
        let operands = originals.into_iter().map(|original| original.operand);
        if let Ok([lhs, rhs]) = <[_; 2]>::try_from(operands.collect::<Vec<_>>()) {
            self.show_result(|| B::kernels().product_statistics(lhs.clone(), rhs.clone(), result));
        }
    }

    /// Shows the result of a product that is not a matrix product. If the operands were [kept](Self::keep), `op` computes
    /// the product from two operands with at most this number of significant bits.
    pub(crate) fn result_of(
        &self,
        result: &FloatTensor<B>,
        op: impl FnOnce(FloatTensor<B>, FloatTensor<B>, u32) -> FloatTensor<B>,
    ) {
        let originals = self.originals.take();
        if let Ok([first, second]) = <[_; 2]>::try_from(originals) {
            let bits = first.significant_bits.max(second.significant_bits);
            let [first, second] = [first, second].map(|original| original.operand.into_values());
            let reference = op(first, second, bits);
            debug_assert_eq!(reference.shape(), result.shape());
            self.show_result(|| {
                B::kernels().quantization_statistics([&reference, result], 0, None)
            });
        }
    }

    /// Looks at the sums of a product with this accumulator; `None` if nobody wants to see them.
    pub(crate) fn looks_at_sums(&self, accumulation: Accumulation) -> Option<SumLooks> {
        let wanted = self
            .observers
            .iter()
            .filter_map(|observer| observer.wants_sums());
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() {
            return None;
        }
        let others = wanted.into_iter().flatten().copied();
        Some(SumLooks::new(
            std::iter::once(accumulation).chain(others).collect(),
        ))
    }

    /// Shows what the accumulators lose that are [looked at](Self::looks_at_sums).
    pub(crate) fn sums(&self, statistics: &[Option<SumStatistics>]) {
        let [own, others @ ..] = statistics else {
            return;
        };
        let mut others = others;
        for observer in &self.observers {
            if let Some(wanted) = observer.wants_sums() {
                let (its, rest) = others.split_at(wanted.len());
                observer.sums(&[&[*own], its].concat());
                others = rest;
            }
        }
    }

    fn show_result(&self, statistics: impl Fn() -> burn_mx_kernels::internal::TensorStatistics<B>) {
        for observer in &self.observers {
            if observer.wants_result() {
                observer.result(ObservedStatistics::of(statistics()));
            }
        }
    }
}

impl<B: MxKernels> fmt::Debug for ProductObservers<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProductObservers")
            .field(&self.observers.len())
            .finish()
    }
}
