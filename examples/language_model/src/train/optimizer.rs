//! The optimizer of a run, with or without resets of oscillating weights.

use burn::optim::{AdamW, GradientsParams, Optimizer};
use burn_mx::optim::{
    OscillationReset, OscillationState, PackedAdaptor, ResettingOptimizer, StateBytes, state_bytes,
};

use super::{B, Format};
use crate::{Decoder, Error};

type Packed = PackedAdaptor<AdamW, Decoder<B>, B>;

/// AdamW, with resets or without.
pub(super) enum AnyOptimizer {
    Plain(Packed),
    Resetting(ResettingOptimizer<Packed>),
}

/// The record of AdamW, and of the resets if there are some.
type Record = (
    <Packed as Optimizer<Decoder<B>, B>>::Record,
    Option<OscillationState>,
);

impl AnyOptimizer {
    pub(super) fn new(
        optimizer: Packed,
        reset: Option<OscillationReset>,
        format: &Format,
        model: &Decoder<B>,
    ) -> Result<Self, Error> {
        let Some(reset) = reset else {
            return Ok(Self::Plain(optimizer));
        };
        let optimizer = reset.optimizer(optimizer, model);
        let failed = |error| Error::Other(format!("{}: {error}", format.name));
        Ok(Self::Resetting(optimizer.map_err(failed)?))
    }

    pub(super) fn step(
        &mut self,
        rate: f64,
        model: Decoder<B>,
        gradients: GradientsParams,
    ) -> Decoder<B> {
        match self {
            Self::Plain(optimizer) => optimizer.step(rate, model, gradients),
            Self::Resetting(optimizer) => optimizer.step(rate, model, gradients),
        }
    }

    pub(super) fn state_bytes(&self) -> StateBytes {
        state_bytes(match self {
            Self::Plain(optimizer) => optimizer,
            Self::Resetting(optimizer) => optimizer.optimizer(),
        })
    }

    /// Weights that were reset so far.
    pub(super) fn resets(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Resetting(optimizer) => Some(optimizer.state().resets),
        }
    }

    pub(super) fn to_record(&self) -> Record {
        match self {
            Self::Plain(optimizer) => (optimizer.to_record(), None),
            Self::Resetting(optimizer) => {
                let (record, state) = optimizer.to_record();
                (record, Some(state))
            }
        }
    }

    pub(super) fn load_record(self, (record, state): Record) -> Self {
        match self {
            Self::Plain(optimizer) => Self::Plain(optimizer.load_record(record)),
            Self::Resetting(optimizer) => {
                Self::Resetting(optimizer.load_record((record, state.unwrap_or_default())))
            }
        }
    }
}
