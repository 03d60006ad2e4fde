//! Checkpoints with packed weights (feature `checkpoint`): one or several safetensors files, in this project's layout or in
//! another tool's.
//!
//! A [`CheckpointLayout`] stores the weights of linear layers and convolutions as codes and scales of the forward product's
//! format. All other tensors keep their type. A decoded weight equals the operand of the forward product bit for bit, so a
//! loaded model computes the same bits as the saved one.

mod archive;
mod checkpoint;
mod columns;
mod error;
mod file;
mod fused;
mod inspect;
mod load;
mod save;
mod types;
mod weights;
mod write;

pub use checkpoint::Checkpoint;
pub use error::CheckpointError;
pub use inspect::{
    CheckpointContents, StoredWeight, TensorInfo, WeightDifference, difference, inspect,
    packed_weights,
};
pub use load::{Loaded, load_checkpoint};
pub use microscaling::safetensors::CheckpointLayout;
pub use save::{PackedWeight, Saved, save_checkpoint};
