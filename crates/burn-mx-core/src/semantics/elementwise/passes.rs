//! The arithmetic of backward passes.

use core::cell::OnceCell;

use burn_backend::tensor::FloatTensor;

use super::arithmetic::TensorArithmetic;
use super::emulation;
use crate::hooks::{self, RoundingObservers};
use crate::tensor::random_streams::{Draws, OpNumber};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta, MxTensor, OpContext};
use burn_mx_kernels::{MxKernels, to_f32};

/// The arithmetic of a backward pass: for recomputed parts of the forward pass, and for its own computations.
pub(crate) struct Passes<B: MxKernels> {
    shared: &'static SharedSpecs,
    /// Of the op in the forward pass.
    number: OpNumber,
    /// The recorder's eye on the op, once it was asked for.
    observer: OnceCell<Option<RoundingObservers>>,
    pub(crate) backward: TensorArithmetic<B>,
}

/// The op whose gradient is computed, as the recorder knows it: its name, and its layer in the forward pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GradientOf {
    pub(crate) op: &'static str,
    pub(crate) layer: Option<&'static str>,
}

impl<B: MxKernels> Passes<B> {
    /// As [`TensorArithmetic::emulated`], for the gradient of the op with this number. Without a number, recomputed
    /// parts of the forward pass draw new random numbers.
    pub(crate) fn emulated(context: &OpContext, number: Option<OpNumber>) -> Option<Self> {
        Some(Self::of_backward(emulation(context)?, context, number))
    }

    /// As [`TensorArithmetic::of_backward`].
    pub(crate) fn of_backward(
        shared: &'static SharedSpecs,
        context: &OpContext,
        number: Option<OpNumber>,
    ) -> Self {
        let number = number.unwrap_or_else(|| shared.draws().op());
        let backward = TensorArithmetic::of_backward(shared, context);
        // The numbers that `gradient` draws.
        backward.skip();
        Self {
            shared,
            number,
            observer: OnceCell::new(),
            backward,
        }
    }

    /// The result of `formula` on the output's gradient and the operands that the forward pass saved, in the order in which
    /// it rounded them. A recorder that looks at the op sees a result of this name, beside the formula's float32 result on
    /// the rounded operands.
    pub(crate) fn gradient_by<const N: usize>(
        &self,
        of: GradientOf,
        result: &'static str,
        saved: [Float<B>; N],
        gradient: Float<B>,
        formula: impl Fn(&Self, [Float<B>; N], Float<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        let rounded = |saved: [Float<B>; N]| {
            let mut indices = 0..N;
            saved.map(|tensor| {
                let index = indices.next().expect("there are as many");
                self.forward_operand(index, tensor)
            })
        };
        let formula = |pass: &Self, saved, gradient| [formula(pass, saved, gradient)];
        let [output] = self.gradients_by(of, [result], saved, rounded, gradient, formula);
        output
    }

    /// As [`gradient_by`](Self::gradient_by), with several results, of operands that `rounded` rounds as the forward pass
    /// did.
    pub(crate) fn gradients_by<const N: usize, const M: usize>(
        &self,
        GradientOf { op, layer }: GradientOf,
        results: [&'static str; M],
        saved: [Float<B>; N],
        rounded: impl FnOnce([Float<B>; N]) -> [FloatTensor<B>; N],
        gradient: Float<B>,
        formula: impl Fn(&Self, [Float<B>; N], Float<B>) -> [FloatTensor<B>; M],
    ) -> [FloatTensor<B>; M] {
        let rounder = self.backward.rounder;
        let is_first = self.observer.get().is_none();
        let observe = || rounder.and_then(|r| hooks::elementwise(op, layer, r.format));
        let (Some(rounder), Some(observer)) = (rounder, self.observer.get_or_init(observe)) else {
            return formula(self, saved, gradient);
        };
        let outputs = formula(self, saved.clone(), gradient.clone());
        let in_float32 = |tensor, meta| {
            MxTensor::new(
                tensor,
                Meta {
                    storage: None,
                    ..meta
                },
            )
        };
        let (meta, rounded_gradient) = (gradient.meta, self.gradient(gradient.clone()));
        if is_first {
            rounder.show::<B>(observer, "output gradient", gradient, &rounded_gradient);
        }
        let gradient = in_float32(rounded_gradient, meta);
        let mut metas = saved.each_ref().map(|tensor| tensor.meta).into_iter();
        let saved = rounded(saved).map(|tensor| {
            let meta = metas.next().expect("there are as many");
            in_float32(tensor, meta)
        });
        let references = formula(&self.in_float32(), saved, gradient);
        for ((name, reference), output) in results.into_iter().zip(&references).zip(&outputs) {
            observer.rounding::<B>(name, [reference, output]);
        }
        outputs
    }

    /// The same in float32.
    fn in_float32(&self) -> Self {
        Self {
            shared: self.shared,
            number: self.number,
            observer: OnceCell::from(None),
            backward: self.backward.in_float32(),
        }
    }

    /// The arithmetic of the forward pass, with the random numbers that it drew, from the first on. A backward pass
    /// without quantization uses this arithmetic, too, because it takes the forward pass's results unchanged.
    pub(crate) fn forward(&self) -> TensorArithmetic<B> {
        if self.backward.in_float32 {
            return self.backward.in_float32();
        }
        TensorArithmetic::replaying(self.shared, self.number)
    }

    /// Operand number `index` of the op as the forward pass rounded it. An op rounds its operands before all else.
    pub(crate) fn forward_operand(&self, index: usize, tensor: Float<B>) -> FloatTensor<B> {
        let forward = self.forward();
        for _ in 0..index {
            forward.skip();
        }
        forward.operand(tensor)
    }

    /// Operand number `index` of the op for the formula of the gradient: rounded as in the forward pass, or unrounded
    /// in a backward pass without quantization.
    pub(crate) fn operand(&self, index: usize, tensor: Float<B>) -> FloatTensor<B> {
        match self.backward.rounder {
            Some(_) => self.forward_operand(index, tensor),
            None => to_f32::<B>(tensor.inner),
        }
    }

    /// The gradient of the op's output, rounded once for all gradients that are computed from it.
    pub(crate) fn gradient(&self, gradient: Float<B>) -> FloatTensor<B> {
        match self.backward.rounder {
            Some(rounder) => {
                rounder.operand::<B>(gradient, &Draws::replay(self.backward.draws.op()))
            }
            None => to_f32::<B>(gradient.inner),
        }
    }
}
