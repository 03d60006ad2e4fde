//! The optimizer of a run, with or without resets of oscillating weights.

use std::path::PathBuf;

use burn::{
    grad_clipping::GradientClippingConfig,
    optim::{
        AdamWConfig, AdjustLrFn, GradientsParams, MuonConfig, Optimizer, decay::WeightDecayConfig,
        momentum::MomentumConfig,
    },
    record::{Recorder, RecorderError},
};
use burn_mx::optim::{
    AdamW, MatrixOptimizer, Muon, OptimizerStates, OscillationReset, OscillationState,
    PackedAdaptor, ResettingOptimizer, StateBytes, state_bytes,
};

use super::{B, Device, Format, saved::Files};
use crate::{Decoder, Error};

type Packed<O> = PackedAdaptor<O, Decoder<B>, B>;
type MuonAndAdamW = MatrixOptimizer<Packed<Muon>, Packed<AdamW>>;

/// AdamW, or Muon for the layers' matrices and AdamW for the rest.
pub(super) enum AnyOptimizer {
    AdamW(Box<Resettable<Packed<AdamW>>>),
    Muon(Box<Resettable<MuonAndAdamW>>),
}

/// An optimizer with resets or without.
pub(super) enum Resettable<O> {
    Plain(O),
    Resetting(ResettingOptimizer<O>),
}

const DECAY: f32 = 0.1;

fn adamw(states: &OptimizerStates) -> Result<Packed<AdamW>, Error> {
    let config = AdamWConfig::new()
        .with_beta_2(0.99)
        .with_epsilon(1e-8)
        .with_weight_decay(DECAY)
        .with_grad_clipping(Some(GradientClippingConfig::Norm(1.0)));
    let optimizer = states.adamw(&config);
    optimizer.map_err(|error| Error::Other(error.to_string()))
}

/// Muon as MuonQ's code has it: no Nesterov momentum, and AdamW's learning rates.
fn muon(states: &OptimizerStates) -> Result<Packed<Muon>, Error> {
    let momentum = MomentumConfig::new()
        .with_momentum(0.95)
        .with_dampening(0.0)
        .with_nesterov(false);
    let config = MuonConfig::new()
        .with_momentum(momentum)
        .with_weight_decay(Some(WeightDecayConfig::new(DECAY)))
        .with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW);
    let optimizer = states.muon(&config);
    optimizer.map_err(|error| Error::Other(error.to_string()))
}

/// Refuses states that the optimizer of a run cannot have.
pub(super) fn check(is_muon: bool, states: &OptimizerStates) -> Result<(), Error> {
    match is_muon {
        true => muon(states).map(|_| ()),
        false => adamw(states).map(|_| ()),
    }
}

impl AnyOptimizer {
    pub(super) fn new(
        reset: Option<OscillationReset>,
        format: &Format,
        model: &Decoder<B>,
    ) -> Result<Self, Error> {
        if !format.is_muon {
            let optimizer = adamw(&format.states)?;
            let optimizer = Resettable::new(optimizer, reset, format, model)?;
            return Ok(Self::AdamW(Box::new(optimizer)));
        }
        let rest = adamw(&OptimizerStates::default())?;
        let optimizer =
            MatrixOptimizer::new(muon(&format.states)?, rest, &["model.layers.*"], model);
        let optimizer = optimizer.map_err(|error| Error::Other(error.to_string()))?;
        let optimizer = Resettable::new(optimizer, reset, format, model)?;
        Ok(Self::Muon(Box::new(optimizer)))
    }

    pub(super) fn step(
        &mut self,
        rate: f64,
        model: Decoder<B>,
        gradients: GradientsParams,
    ) -> Decoder<B> {
        match self {
            Self::AdamW(optimizer) => optimizer.step(rate, model, gradients),
            Self::Muon(optimizer) => optimizer.step(rate, model, gradients),
        }
    }

    pub(super) fn state_bytes(&self) -> StateBytes {
        match self {
            Self::AdamW(optimizer) => state_bytes(optimizer.plain()),
            Self::Muon(optimizer) => {
                let (of_matrices, of_rest) = optimizer.plain().optimizers();
                state_bytes(of_matrices) + state_bytes(of_rest)
            }
        }
    }

    /// Weights that were reset so far.
    pub(super) fn resets(&self) -> Option<u64> {
        match self {
            Self::AdamW(optimizer) => optimizer.resets(),
            Self::Muon(optimizer) => optimizer.resets(),
        }
    }

    pub(super) fn save(&self, path: PathBuf) -> Result<(), RecorderError> {
        match self {
            Self::AdamW(optimizer) => optimizer.save(path),
            Self::Muon(optimizer) => optimizer.save(path),
        }
    }

    pub(super) fn load(self, path: PathBuf, device: &Device) -> Result<Self, RecorderError> {
        Ok(match self {
            Self::AdamW(optimizer) => Self::AdamW(Box::new(optimizer.load(path, device)?)),
            Self::Muon(optimizer) => Self::Muon(Box::new(optimizer.load(path, device)?)),
        })
    }
}

impl<O: Optimizer<Decoder<B>, B>> Resettable<O> {
    fn new(
        optimizer: O,
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

    fn step(&mut self, rate: f64, model: Decoder<B>, gradients: GradientsParams) -> Decoder<B> {
        match self {
            Self::Plain(optimizer) => optimizer.step(rate, model, gradients),
            Self::Resetting(optimizer) => optimizer.step(rate, model, gradients),
        }
    }

    fn plain(&self) -> &O {
        match self {
            Self::Plain(optimizer) => optimizer,
            Self::Resetting(optimizer) => optimizer.optimizer(),
        }
    }

    fn resets(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Resetting(optimizer) => Some(optimizer.state().resets),
        }
    }

    /// Writes the optimizer's record, and the resets' if there are some.
    fn save(&self, path: PathBuf) -> Result<(), RecorderError> {
        let record: (O::Record, Option<OscillationState>) = match self {
            Self::Plain(optimizer) => (optimizer.to_record(), None),
            Self::Resetting(optimizer) => {
                let (record, state) = Optimizer::<Decoder<B>, B>::to_record(optimizer);
                (record, Some(state))
            }
        };
        Recorder::<B>::record(&Files::new(), record, path)
    }

    fn load(self, path: PathBuf, device: &Device) -> Result<Self, RecorderError> {
        let (record, state): (O::Record, Option<OscillationState>) =
            Recorder::<B>::load(&Files::new(), path, device)?;
        Ok(match self {
            Self::Plain(optimizer) => Self::Plain(optimizer.load_record(record)),
            Self::Resetting(optimizer) => {
                let record = (record, state.unwrap_or_default());
                Self::Resetting(Optimizer::<Decoder<B>, B>::load_record(optimizer, record))
            }
        })
    }
}
