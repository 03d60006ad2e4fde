//! The events of an elementwise op.

use std::fmt;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::installed::observers;
use super::thread::is_again;
use super::{ElementwiseCall, Events, ObservedStatistics, RoundingObserver, View};
use crate::specs::PointFormat;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::read_values;

/// The observers of the roundings of one op.
pub(crate) struct RoundingObservers(Vec<Box<dyn RoundingObserver>>);

impl fmt::Debug for RoundingObservers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RoundingObservers")
            .field(&self.0.len())
            .finish()
    }
}

/// The observers of the roundings of this op; `None` without observers.
pub(crate) fn elementwise(
    op: &'static str,
    label: Option<&'static str>,
    format: impl Into<PointFormat>,
) -> Option<RoundingObservers> {
    let observers = observers(Events::ELEMENTWISE);
    if observers.is_empty() || is_again() {
        return None;
    }
    let op = op.strip_prefix("float_").unwrap_or(op);
    let op = op.strip_suffix("_impl").unwrap_or(op);
    let format = format.into();
    let call = ElementwiseCall { op, label, format };
    let seen = observers
        .iter()
        .filter_map(|observer| observer.elementwise(&call));
    let seen: Vec<_> = seen.collect();
    (!seen.is_empty()).then_some(RoundingObservers(seen))
}

impl RoundingObservers {
    /// Shows a rounding of the op, by its name: an operand before and after, or a result beside the result without any
    /// rounding.
    pub(crate) fn rounding<B: MxKernels>(
        &self,
        name: &'static str,
        before_and_after: [&FloatTensor<B>; 2],
    ) {
        for observer in &self.0 {
            observer.rounding(name, &Rounded::<B>(before_and_after));
        }
    }
}

/// A tensor before and after it was rounded.
struct Rounded<'a, B: MxKernels>([&'a FloatTensor<B>; 2]);

impl<B: MxKernels> View for Rounded<'_, B> {
    fn shape(&self) -> Shape {
        self.0[0].shape()
    }

    fn statistics(&self) -> ObservedStatistics {
        ObservedStatistics::of(B::kernels().quantization_statistics(self.0, 0, None))
    }

    fn values(&self) -> [Vec<f32>; 2] {
        self.0.map(|tensor| read_values::<B>(tensor.clone()))
    }
}
