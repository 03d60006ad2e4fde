//! The seam of all products: every matrix product and convolution that is emulated is one [`Product`], and each of its
//! operands passes here.

use core::fmt::{self, Display};

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use microscaling::{RandomHadamard, RandomStream, Rounding};

use super::elementwise::Rounder;
use super::{Float, stored};
use crate::kept::CopyKey;
use crate::kernels::{MxKernels, to_f32};
use crate::phase;
use crate::random::Draws;
use crate::registry::Interned;
use crate::specs::Slot;
use crate::tensor::Meta;

/// The op of Burn that a product belongs to, which decides by which fields of the specs its gradients round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Linear,
    Matmul,
    Convolution,
}

/// What a product computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The op's output.
    Forward,
    /// The gradient of an activation.
    InputGradient,
    /// The gradient of a weight.
    WeightGradient,
}

/// How an operand and the result of a product are rounded: to the elementwise format, and before that to the block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Roundings {
    elementwise: Rounding,
    mx: Rounding,
}

/// One product that is computed by the emulation: what it is, whose it is, and all that its two operands have in common.
#[derive(Debug)]
pub(crate) struct Product {
    op: Op,
    kind: Kind,
    specs: &'static Interned,
    /// Path of the parameter whose layer the product belongs to, where one is known.
    label: Option<&'static str>,
    /// The random Hadamard transform of both operands, by signs that are drawn once: others for the second operand
    /// would make it another product.
    hadamard: Option<(RandomHadamard, RandomStream)>,
    /// The random numbers of every rounding.
    draws: Draws,
}

/// An operand as a product takes it: quantized, in the form in which it is multiplied.
#[derive(Clone, Debug)]
pub(crate) struct Operand<B: MxKernels> {
    values: FloatTensor<B>,
}

/// Which operand of a matrix product is taken with its last two axes swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transposed {
    Neither,
    Lhs,
    Rhs,
}

impl Transposed {
    /// `lhs · rhs` over the last two axes by the wrapped backend; the others broadcast.
    pub(crate) fn multiply<B: MxKernels>(
        self,
        lhs: FloatTensor<B>,
        rhs: FloatTensor<B>,
    ) -> FloatTensor<B> {
        match self {
            Self::Neither => B::float_matmul(lhs, rhs),
            Self::Lhs => B::float_matmul(B::float_transpose(lhs), rhs),
            Self::Rhs => B::float_matmul(lhs, B::float_transpose(rhs)),
        }
    }
}

impl Product {
    pub(crate) fn new(
        op: Op,
        kind: Kind,
        specs: &'static Interned,
        label: Option<&'static str>,
    ) -> Self {
        let hadamard = match kind {
            Kind::Forward => None,
            Kind::InputGradient | Kind::WeightGradient => specs.specs.hadamard(),
        };
        let draws = specs.draws();
        let product = Self {
            op,
            kind,
            specs,
            label,
            hadamard: hadamard.map(|transform| (transform, draws.signs())),
            draws,
        };
        log::trace!(target: "burn_mx::product", "{product}");
        product
    }

    /// The tensor as the product takes it: `f32`, elementwise-rounded, transformed if the specs say so, then quantized in
    /// blocks along `axis`, the one that the product sums over. A weight may have kept a copy that is just this.
    pub(crate) fn operand<B: MxKernels>(
        &self,
        slot: Slot,
        tensor: Float<B>,
        axis: usize,
    ) -> Operand<B> {
        self.grouped_operand::<B>(slot, tensor, axis, 1)
    }

    /// [`operand`](Self::operand) where the axis has the elements of `groups` sums, one after another.
    pub(crate) fn grouped_operand<B: MxKernels>(
        &self,
        slot: Slot,
        mut tensor: Float<B>,
        axis: usize,
        groups: usize,
    ) -> Operand<B> {
        debug_assert!(axis < tensor.rank(), "{self}: axis {axis}");
        let specs = &self.specs.specs;
        let roundings = self.roundings(slot);
        let rounder = Rounder::new(self.specs, roundings.elementwise);
        let format = specs.block_format(slot);
        let values = match (self.hadamard, tensor.kept.take()) {
            (Some((transform, signs)), _) => {
                let rounded = self.rounded::<B>(rounder, tensor);
                let transformed = transform_groups::<B>(rounded, axis, groups, transform, signs);
                self.in_blocks::<B>(slot, transformed, axis)
            }
            (None, Some(kept)) => {
                let key = CopyKey {
                    elementwise: rounder.map(Rounder::format_and_rounding),
                    format,
                    rounding: roundings.mx,
                    axis,
                };
                kept.get(key, || self.quantized::<B>(slot, tensor, axis))
            }
            (None, None) => self.quantized::<B>(slot, tensor, axis),
        };
        Operand { values }
    }

    fn quantized<B: MxKernels>(&self, slot: Slot, tensor: Float<B>, axis: usize) -> FloatTensor<B> {
        let Roundings { elementwise, mx } = self.roundings(slot);
        let rounder = Rounder::new(self.specs, elementwise);
        let random = [elementwise, mx].contains(&Rounding::Stochastic);
        match (rounder, self.specs.specs.block_format(slot)) {
            (Some(rounder), Some(format)) if !random && !rounder.has_rounded(&tensor.meta) => {
                let elementwise = rounder.format_and_rounding();
                B::round_and_quantize(to_f32::<B>(tensor.inner), elementwise, axis, format, mx)
            }
            _ => self.in_blocks::<B>(slot, self.rounded::<B>(rounder, tensor), axis),
        }
    }

    /// The tensor quantized in blocks, if the slot has a format.
    fn in_blocks<B: MxKernels>(
        &self,
        slot: Slot,
        tensor: FloatTensor<B>,
        axis: usize,
    ) -> FloatTensor<B> {
        let Some(format) = self.specs.specs.block_format(slot) else {
            return tensor;
        };
        let rounding = self.roundings(slot).mx;
        let stream = self.draws.next(rounding);
        B::mx_quantize(tensor, axis, format, rounding, stream)
    }

    /// The tensor in `f32`, rounded to the elementwise format if there is one.
    fn rounded<B: MxKernels>(&self, rounder: Option<Rounder>, tensor: Float<B>) -> FloatTensor<B> {
        match rounder {
            Some(rounder) => rounder.operand::<B>(tensor, &self.draws),
            None => to_f32::<B>(tensor.inner),
        }
    }

    /// A tensor that takes part beside the operands and is only rounded to the elementwise format: a bias, as a weight is,
    /// or the mask of a deformable convolution, as an activation is.
    pub(crate) fn elementwise_operand<B: MxKernels>(
        &self,
        slot: Slot,
        tensor: Float<B>,
    ) -> FloatTensor<B> {
        let rounding = self.roundings(slot).elementwise;
        self.rounded::<B>(Rounder::new(self.specs, rounding), tensor)
    }

    /// `lhs · rhs` over the last two axes, in `f32`; the others broadcast.
    pub(crate) fn multiply<B: MxKernels>(
        &self,
        lhs: Operand<B>,
        rhs: Operand<B>,
        transposed: Transposed,
    ) -> FloatTensor<B> {
        transposed.multiply::<B>(lhs.values, rhs.values)
    }

    /// The product of the operands, rounded to the elementwise format.
    pub(crate) fn round<B: MxKernels>(&self, result: FloatTensor<B>) -> FloatTensor<B> {
        match Rounder::new(self.specs, self.result_rounding()) {
            Some(rounder) => rounder.round::<B>(result, &self.draws),
            None => result,
        }
    }

    /// The product of the operands, rounded to the elementwise format, as a tensor with this meta.
    pub(crate) fn finish<B: MxKernels>(&self, result: FloatTensor<B>, meta: Meta) -> Float<B> {
        let rounded = self.round::<B>(result);
        self.finish_rounded::<B>(rounded, meta)
    }

    /// [`finish`](Self::finish) of what is rounded already.
    pub(crate) fn finish_rounded<B: MxKernels>(
        &self,
        result: FloatTensor<B>,
        mut meta: Meta,
    ) -> Float<B> {
        meta.rounded = self.specs.specs.float_format();
        stored::<B>(result, meta)
    }

    /// How the operand of a slot is rounded.
    fn roundings(&self, slot: Slot) -> Roundings {
        let specs = &self.specs.specs;
        let elementwise = match slot {
            Slot::W | Slot::WBp => specs.round_weight(),
            Slot::A | Slot::ABp => specs.round_output(),
            Slot::ABpEx | Slot::ABpOs => specs.round_grad_input(),
        };
        let mx = match (self.op, slot) {
            (_, Slot::W | Slot::A) => specs.round_mx_output(),
            // Either gradient of a matmul is that of an input.
            (Op::Matmul, Slot::WBp | Slot::ABp) => specs.round_mx_input_grad_input(),
            (_, Slot::WBp) => specs.round_mx_weight_grad_input(),
            (_, Slot::ABp) => specs.round_mx_input_grad_weight(),
            (_, Slot::ABpOs) => specs.round_mx_grad_output_grad_input(),
            (_, Slot::ABpEx) => specs.round_mx_grad_output_grad_weight(),
        };
        Roundings { elementwise, mx }
    }

    /// How the result is rounded.
    pub(crate) fn result_rounding(&self) -> Rounding {
        let specs = &self.specs.specs;
        match (self.op, self.kind) {
            (_, Kind::Forward) => specs.round_output(),
            (Op::Matmul, _) | (_, Kind::InputGradient) => specs.round_grad_input(),
            (_, Kind::WeightGradient) => specs.round_grad_weight(),
        }
    }

    /// The specs that the product is computed by.
    pub(crate) fn specs(&self) -> &'static Interned {
        self.specs
    }
}

impl Display for Product {
    /// What the product computes, for the log: `weight gradient of linear blocks.0.expand.weight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Forward => "output",
            Kind::InputGradient => "input gradient",
            Kind::WeightGradient => "weight gradient",
        })?;
        f.write_str(match self.op {
            Op::Linear => " of linear",
            Op::Matmul => " of matmul",
            Op::Convolution => " of convolution",
        })?;
        match self.label {
            Some(label) => write!(f, " {label}"),
            None => Ok(()),
        }
    }
}

impl<B: MxKernels> Operand<B> {
    /// The values as a tensor, for an op of the wrapped backend that multiplies.
    pub(crate) fn into_tensor(self) -> FloatTensor<B> {
        self.values
    }

    /// `[.., M, K]` as `[.. · M, K]`, so that the product is one.
    pub(crate) fn into_matrix(self) -> Self {
        let shape = self.values.shape();
        let rank = shape.num_dims();
        if rank == 2 {
            return self;
        }
        let columns = shape[rank - 1];
        let rows = (0..rank - 1).map(|axis| shape[axis]).product();
        let values = B::float_reshape(self.values, Shape::new([rows, columns]));
        Self { values }
    }
}

/// The random Hadamard transform along `axis`, which must not mix what belongs to different ones of `groups` sums.
fn transform_groups<B: MxKernels>(
    tensor: FloatTensor<B>,
    axis: usize,
    groups: usize,
    transform: RandomHadamard,
    signs: RandomStream,
) -> FloatTensor<B> {
    let shape = tensor.shape();
    let mut split = shape.clone();
    split[axis] /= groups;
    split.insert(axis, groups);
    let tensor = B::float_reshape(tensor, split);
    let tensor = B::random_hadamard(tensor, axis + 1, transform, signs);
    B::float_reshape(tensor, shape)
}

/// Whether a backward product is to be quantized.
///
/// # Panics
///
/// If the backward product of emulated tensors arrives outside of `MxAutodiff`'s backward pass: then plain
/// `Autodiff` drives the graph, and what it takes for forward products may be backward ones.
pub(crate) fn quantize_backward(interned: &'static Interned, operation: &str) -> bool {
    assert!(
        phase::is_backward(),
        "burn-mx: `{operation}` was called outside of MxAutodiff's backward pass. `Autodiff<MxBackend<B>>` cannot \
         tell backward products from forward ones, so it does not train in MX formats: use `MxAutodiff<B>` \
         instead of `Autodiff<MxBackend<B>>`."
    );
    interned.specs.quantize_backprop()
}
