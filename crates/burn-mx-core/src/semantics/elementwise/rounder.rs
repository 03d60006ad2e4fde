//! How values are rounded to the elementwise format, and shown to the recorder.

use burn_backend::tensor::FloatTensor;
use microscaling::{FloatFormat, Rounding};

use crate::hooks::{self, RoundingObservers};
use crate::semantics::stored;
use crate::tensor::random_streams::{Draws, OpNumber};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta, OpContext};
use burn_mx_kernels::internal::OpRounding;
use burn_mx_kernels::{MxKernels, to_f32};

/// Rounding to the elementwise format of some specs, with the random numbers of the op that rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounder {
    pub(super) format: FloatFormat,
    pub(super) rounding: Rounding,
}

impl Rounder {
    /// `None` where the specs leave elementwise values alone.
    pub(crate) fn new(shared: &'static SharedSpecs, rounding: Rounding) -> Option<Self> {
        let format = shared.specs.float_format()?;
        Some(Self { format, rounding })
    }

    pub(crate) fn round<B: MxKernels>(
        self,
        tensor: FloatTensor<B>,
        draws: &Draws,
    ) -> FloatTensor<B> {
        let stream = draws.next(self.rounding);
        B::float_round_to(tensor, self.format, self.rounding, stream)
    }

    pub(crate) fn format_and_rounding(self) -> (FloatFormat, Rounding) {
        (self.format, self.rounding)
    }

    /// Whether a tensor's values are known to be rounded already.
    pub(crate) fn has_rounded(&self, meta: &Meta) -> bool {
        meta.rounded == Some(self.format)
    }

    /// Rounds a tensor that may be rounded already; the result is `f32`.
    pub(crate) fn operand<B: MxKernels>(self, tensor: Float<B>, draws: &Draws) -> FloatTensor<B> {
        let inner = to_f32::<B>(tensor.inner);
        if self.has_rounded(&tensor.meta) {
            draws.next(self.rounding);
            return inner;
        }
        self.round::<B>(inner, draws)
    }

    /// The result of an op that is rounded already.
    pub(super) fn rounded<B: MxKernels>(
        self,
        inner: FloatTensor<B>,
        context: &OpContext,
    ) -> Float<B> {
        let mut meta = context.result;
        meta.rounded = Some(self.format);
        stored::<B>(inner, meta)
    }

    /// Shows the rounding of a tensor, unless it is known to have been rounded before.
    pub(super) fn show<B: MxKernels>(
        self,
        observer: &RoundingObservers,
        name: &'static str,
        tensor: Float<B>,
        rounded: &FloatTensor<B>,
    ) {
        if !self.has_rounded(&tensor.meta) {
            observer.rounding::<B>(name, [&to_f32::<B>(tensor.inner), rounded]);
        }
    }

    /// The rounding of an op that a kernel computes in one pass; `operands` includes the operands' rounding. `None` if
    /// the op has to be composed, because each rounding draws random numbers.
    pub(crate) fn in_one_pass(self, operands: bool) -> Option<OpRounding> {
        (self.rounding != Rounding::Stochastic).then_some(OpRounding {
            format: self.format,
            rounding: self.rounding,
            operands,
        })
    }
}

/// How an op rounds, with its random numbers, and who looks at it.
pub(in crate::semantics) struct OpRounder {
    pub(super) rounder: Rounder,
    draws: Draws,
    observer: Option<RoundingObservers>,
}

/// The rounder of the op of this name; `None` if the op rounds nothing.
pub(super) fn rounder(
    op: &'static str,
    context: &OpContext,
    operands: [Option<Meta>; 2],
    number: Option<OpNumber>,
) -> Option<OpRounder> {
    let shared = context.quantization()?;
    let rounder = Rounder::new(shared, shared.specs.round())?;
    let label = operands.into_iter().flatten().find_map(|meta| meta.label);
    let draws = shared.draws_as(number);
    Some(OpRounder::of(op, label, rounder, draws))
}

impl OpRounder {
    /// The rounder of an op of this name, in the layer with this parameter, if there is one.
    pub(in crate::semantics) fn of(
        op: &'static str,
        label: Option<&'static str>,
        rounder: Rounder,
        draws: Draws,
    ) -> Self {
        Self {
            rounder,
            draws,
            observer: hooks::elementwise(op, label, rounder.format),
        }
    }

    /// An operand, rounded.
    pub(in crate::semantics) fn operand<B: MxKernels>(
        &self,
        name: &'static str,
        tensor: Float<B>,
    ) -> FloatTensor<B> {
        let Some(observer) = &self.observer else {
            return self.rounder.operand::<B>(tensor, &self.draws);
        };
        let rounded = self.rounder.operand::<B>(tensor.clone(), &self.draws);
        self.rounder.show::<B>(observer, name, tensor, &rounded);
        rounded
    }

    /// The result, which is not rounded yet, of this name.
    pub(super) fn result<B: MxKernels>(
        &self,
        name: &'static str,
        inner: FloatTensor<B>,
        context: &OpContext,
    ) -> Float<B> {
        let rounded = self.round_by::<B>(self.rounder, name, inner);
        self.rounder.rounded::<B>(rounded, context)
    }

    /// Whether anybody sees the roundings.
    pub(in crate::semantics) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// A result of this name, rounded separately.
    pub(in crate::semantics) fn round_by<B: MxKernels>(
        &self,
        rounder: Rounder,
        name: &'static str,
        inner: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let Some(observer) = &self.observer else {
            return rounder.round::<B>(inner, &self.draws);
        };
        let rounded = rounder.round::<B>(inner.clone(), &self.draws);
        observer.rounding::<B>(name, [&inner, &rounded]);
        rounded
    }

    /// Shows an op that a kernel has computed with its roundings, without random ones.
    pub(super) fn show<B: MxKernels, const N: usize>(
        &self,
        operands: [(&'static str, Option<Float<B>>); N],
        result: &FloatTensor<B>,
        op: impl FnOnce([FloatTensor<B>; N]) -> FloatTensor<B>,
    ) {
        if let Some(observer) = &self.observer {
            let operands = operands.map(|(name, tensor)| {
                let tensor = tensor.expect("an op that is looked at keeps its operands");
                self.operand::<B>(name, tensor)
            });
            observer.rounding::<B>("output", [&op(operands), result]);
        }
    }

    /// A tensor that is [shown](Self::show) when its op is computed.
    pub(super) fn kept<B: MxKernels>(&self, tensor: &Float<B>) -> Option<Float<B>> {
        self.observer.as_ref().map(|_| tensor.clone())
    }
}
