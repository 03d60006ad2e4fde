#![doc = include_str!("../README.md")]

mod accumulator;
mod adamw;
mod codec;
pub mod communication;
mod error;
mod format;
mod low_rank;
mod matrices;
mod moments;
mod momentum;
mod muon;
mod optimizer;
mod oscillation;
mod presets;
mod state;
mod states;

pub use accumulator::GradientAccumulator;
pub use adamw::AdamW;
pub use codec::{PackedState, integer::IntegerScale, maps::Map};
pub use error::StatesError;
pub use format::StateFormat;
pub use matrices::{MatricesError, MatrixOptimizer};
pub use moments::{Moments, OpenState};
pub use momentum::{Sgd, Velocity};
pub use muon::Muon;
pub use optimizer::{PackedAdaptor, PackedStates, state_bytes};
pub use oscillation::{
    OscillationError, OscillationReset, OscillationState, ResettingOptimizer, Watched,
};
pub use state::{ParameterState, StateBytes, StateTensor, StateTensorItem};
pub use states::OptimizerStates;
