//! What all products share: how an operand is transformed and quantized, how the result is rounded.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{RandomHadamard, Rounding};

use super::elementwise::{Rounder, stream_for};
use super::{Float, stored};
use crate::kept::CopyKey;
use crate::kernels::{MxKernels, to_f32};
use crate::phase;
use crate::registry::Interned;
use crate::specs::Slot;
use crate::tensor::Meta;

/// How one operand of a product is quantized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// The axis that the product sums over.
    pub(crate) axis: usize,
    pub(crate) slot: Slot,
    /// Rounding to the elementwise format, which comes first.
    pub(crate) elementwise: Rounding,
    /// Rounding to the block format.
    pub(crate) mx: Rounding,
}

impl Operand {
    /// The operand as the product takes it: `f32`, elementwise-rounded, in a gradient product transformed if the specs say
    /// so, then quantized in blocks. A weight may have kept a copy that is just this.
    pub(crate) fn quantize<B: MxKernels>(
        self,
        tensor: Float<B>,
        interned: &'static Interned,
    ) -> FloatTensor<B> {
        self.quantize_groups::<B>(tensor, 1, interned)
    }

    /// [`quantize`](Self::quantize) where the axis has the elements of `groups` sums, one after another.
    pub(crate) fn quantize_groups<B: MxKernels>(
        self,
        mut tensor: Float<B>,
        groups: usize,
        interned: &'static Interned,
    ) -> FloatTensor<B> {
        debug_assert!(self.axis < tensor.rank());
        if let Some(transform) = interned.specs.hadamard()
            && self.slot.is_backward()
        {
            let rounded = match Rounder::new(interned, self.elementwise) {
                Some(rounder) => rounder.operand::<B>(tensor),
                None => to_f32::<B>(tensor.inner),
            };
            let transformed = self.transform::<B>(rounded, groups, transform, interned);
            return self.in_blocks::<B>(transformed, interned);
        }
        let Some(kept) = tensor.kept.take() else {
            return self.round_and_quantize::<B>(tensor, interned);
        };
        let rounder = Rounder::new(interned, self.elementwise);
        let recipe = CopyKey {
            elementwise: rounder.map(Rounder::format_and_rounding),
            format: interned.specs.block_format(self.slot),
            rounding: self.mx,
            axis: self.axis,
        };
        kept.get(recipe, || self.round_and_quantize::<B>(tensor, interned))
    }

    fn round_and_quantize<B: MxKernels>(
        self,
        tensor: Float<B>,
        interned: &'static Interned,
    ) -> FloatTensor<B> {
        let Some(rounder) = Rounder::new(interned, self.elementwise) else {
            return self.in_blocks::<B>(to_f32::<B>(tensor.inner), interned);
        };
        let random = [self.elementwise, self.mx].contains(&Rounding::Stochastic);
        match interned.specs.block_format(self.slot) {
            Some(format) if !random && !rounder.has_rounded(&tensor.meta) => {
                let elementwise = rounder.format_and_rounding();
                let inner = to_f32::<B>(tensor.inner);
                B::round_and_quantize(inner, elementwise, self.axis, format, self.mx)
            }
            _ => self.in_blocks::<B>(rounder.operand::<B>(tensor), interned),
        }
    }

    /// The tensor quantized in blocks, if the slot has a format.
    fn in_blocks<B: MxKernels>(
        self,
        tensor: FloatTensor<B>,
        interned: &'static Interned,
    ) -> FloatTensor<B> {
        let Some(format) = interned.specs.block_format(self.slot) else {
            return tensor;
        };
        let stream = stream_for(interned, self.mx);
        B::mx_quantize(tensor, self.axis, format, self.mx, stream)
    }

    /// The random Hadamard transform, which must not mix what belongs to different sums.
    fn transform<B: MxKernels>(
        self,
        tensor: FloatTensor<B>,
        groups: usize,
        transform: RandomHadamard,
        interned: &'static Interned,
    ) -> FloatTensor<B> {
        let shape = tensor.shape();
        let mut split = shape.clone();
        split[self.axis] /= groups;
        split.insert(self.axis, groups);
        let tensor = B::float_reshape(tensor, split);
        let tensor = B::random_hadamard(tensor, self.axis + 1, transform, interned.signs());
        B::float_reshape(tensor, shape)
    }
}

/// Rounds a product to the elementwise format.
pub(crate) fn round_result<B: MxKernels>(
    product: FloatTensor<B>,
    interned: &'static Interned,
    rounding: Rounding,
) -> FloatTensor<B> {
    match Rounder::new(interned, rounding) {
        Some(rounder) => rounder.round::<B>(product),
        None => product,
    }
}

/// The result of an emulated op: a product with meta `meta`, rounded to the elementwise format.
pub(crate) fn finish<B: MxKernels>(
    product: FloatTensor<B>,
    interned: &'static Interned,
    rounding: Rounding,
    mut meta: Meta,
) -> Float<B> {
    meta.rounded = interned.specs.float_format();
    stored::<B>(round_result::<B>(product, interned, rounding), meta)
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
