//! Passes over the calibration data, layer by layer.

use burn_mx_core::{MxKernels, ResolvedSpecs};
use burn_mx_module::parameter_of;

use crate::calls::{self, Call, KeptSide};
use crate::error::PtqError;
use crate::parameters::WEIGHT;

/// A layer to quantize, and its specs.
pub(super) struct Chosen {
    pub(super) layer: String,
    pub(super) specs: ResolvedSpecs,
}

/// Passes over the calibration data.
pub(super) struct Passes<'a, T, F> {
    pub(super) calibration: &'a [T],
    pub(super) forward: F,
}

impl<T, F> Passes<'_, T, F> {
    /// One pass.
    pub(super) fn all<M, R>(&self, model: &M)
    where
        F: Fn(&M, &T) -> R,
    {
        for batch in self.calibration {
            (self.forward)(model, batch);
        }
    }

    /// Sorts the layers by the order in which the model calls them first. Layers without a call are left out, with a
    /// warning in the log, and returned.
    pub(super) fn in_order<M, R>(
        &self,
        model: &M,
        chosen: &mut Vec<Chosen>,
    ) -> Result<Vec<Chosen>, PtqError>
    where
        M: Sync,
        T: Sync,
        F: Fn(&M, &T) -> R + Sync,
    {
        let order = calls::order(|| self.all(model));
        let place = |chosen: &Chosen| {
            let label = parameter_of(&chosen.layer, WEIGHT);
            order.iter().position(|called| *called == label)
        };
        let uncalled: Vec<Chosen> = chosen
            .extract_if(.., |chosen| place(chosen).is_none())
            .collect();
        for Chosen { layer, .. } in &uncalled {
            log::warn!(
                "burn-mx: layer `{layer}` is not tuned: it computes nothing on the calibration data, or is a deformable convolution"
            );
        }
        if chosen.is_empty() {
            return Err(PtqError::NothingCalled);
        }
        chosen.sort_by_key(place);
        Ok(uncalled)
    }

    /// One side of the calls of the layer whose weight has this label, for this many items of calibration data. A batch has as
    /// many items as the first axis of the layer's first input in it.
    pub(super) fn calls<B, M, R>(
        &self,
        model: &M,
        label: &'static str,
        side: KeptSide,
        mut items: usize,
    ) -> Vec<Call<B>>
    where
        B: MxKernels,
        M: Sync,
        T: Sync,
        F: Fn(&M, &T) -> R + Sync,
    {
        let mut all: Vec<Call<B>> = Vec::new();
        for batch in self.calibration {
            if items == 0 {
                break;
            }
            let calls = calls::calls::<B>(label, side, || {
                (self.forward)(model, batch);
            });
            let Some(count) = calls.first().map(|call| call.samples) else {
                continue;
            };
            all.extend(calls.into_iter().map(|call| Call {
                samples: call.samples.min(items),
                ..call
            }));
            items = items.saturating_sub(count);
        }
        all
    }
}
