//! The recorder of a build without it: nobody observes anything.

use core::convert::Infallible;
use core::marker::PhantomData;

use burn_backend::tensor::FloatTensor;
use microscaling::{BlockFormat, FloatFormat};

use crate::kernels::{MxKernels, Operand, Place, TensorStatistics};
use crate::random::Draws;
use crate::registry::Interned;
use crate::semantics::product::{Kind, Op};
use crate::specs::Slot;

pub(crate) struct Views<P> {
    pub(crate) original: P,
    pub(crate) quantized: P,
}

/// There is none.
#[derive(Debug)]
pub(crate) struct Observer<B>(Infallible, PhantomData<B>);

impl<B: MxKernels> Observer<B> {
    pub(crate) fn of(
        _: Op,
        _: Kind,
        _: &'static Interned,
        _: Option<&'static str>,
    ) -> Option<Self> {
        None
    }

    pub(crate) fn layer(&self) -> &'static str {
        match self.0 {}
    }

    pub(crate) fn wants(&self, _: Slot) -> bool {
        match self.0 {}
    }

    pub(crate) fn what_if(&self) -> core::iter::Empty<&'static Interned> {
        match self.0 {}
    }

    pub(crate) fn draws(&self, _: &'static Interned) -> Draws {
        match self.0 {}
    }

    pub(crate) fn statistics(
        &self,
        _: &Views<FloatTensor<B>>,
        _: usize,
        _: Option<BlockFormat>,
    ) -> TensorStatistics<B> {
        match self.0 {}
    }

    pub(crate) fn operand(&self, _: Slot, _: Option<Place>, _: Vec<TensorStatistics<B>>) {
        match self.0 {}
    }

    pub(crate) fn compares_results(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn keep(&self, _: Option<Place>, _: Operand<FloatTensor<B>>, _: u32) {
        match self.0 {}
    }

    pub(crate) fn result(&self, _: &FloatTensor<B>) {
        match self.0 {}
    }

    pub(crate) fn result_of(
        &self,
        _: &FloatTensor<B>,
        _: impl FnOnce(FloatTensor<B>, FloatTensor<B>, u32) -> FloatTensor<B>,
    ) {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) struct ElementwiseObserver(Infallible);

impl ElementwiseObserver {
    pub(crate) fn of(_: &'static str, _: Option<&'static str>, _: FloatFormat) -> Option<Self> {
        None
    }

    pub(crate) fn rounding<B: MxKernels>(&self, _: &'static str, _: [&FloatTensor<B>; 2]) {
        match self.0 {}
    }
}

#[cfg(feature = "autodiff")]
pub(crate) use autodiff::{again, end_step, layer_of_op, name_layer, tracked};

/// What a thread hands on to another one that works for it: nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context;

impl Context {
    pub(crate) fn of_this_thread() -> Self {
        Self
    }

    pub(crate) fn enter<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

#[cfg(feature = "autodiff")]
mod autodiff {
    use crate::semantics::product::Op;

    pub(crate) fn name_layer(_: Op, label: Option<&'static str>) -> Option<&'static str> {
        label
    }

    pub(crate) fn layer_of_op(label: Option<&'static str>) -> Option<&'static str> {
        label
    }

    pub(crate) fn again<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    pub(crate) fn tracked<R: Send>(op: impl FnOnce() -> R + Send) -> R {
        op()
    }

    pub(crate) fn end_step() {}
}
