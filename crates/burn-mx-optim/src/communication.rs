//! Collective operations in number formats, between ranks that one process emulates.
//!
//! A rank is a device of data-parallel or tensor-parallel training. Here a rank is an entry of a `Vec`, or a part of a tensor, so no second
//! device is needed. The host computes all sums, in float32, on every backend.
//!
//! [`Communication`] has the settings, and one method for each operation:
//!
//! | method | operation |
//! | --- | --- |
//! | [`all_reduce`](Communication::all_reduce) | the sum of all ranks' tensors, for each rank |
//! | [`reduce_scatter`](Communication::reduce_scatter) | the sum, a part for each rank |
//! | [`all_gather`](Communication::all_gather) | all ranks' tensors, for each rank |
//! | [`reduce_gradients`](Communication::reduce_gradients) | `all_reduce` of the gradients of a module |
//! | [`gather_weights`](Communication::gather_weights) | `all_gather` of the parameters of a module |
//! | [`sent`](Communication::sent) | one rank's message, for an exchange that another library makes |
//! | [`summed_product`](Communication::summed_product) | a matrix product whose summed axis is divided among the ranks |
//! | [`divided_product`](Communication::divided_product) | a matrix product whose output axis is divided among the ranks; its backward pass is a sum |
//! | [`SequenceParallel`] | both products where each rank has a part of the rows before and after |

#[cfg(burn_mx_distributed)]
mod devices;
mod error;
mod modules;
mod operation;
mod parallel;
mod presets;
mod products;
mod reduce;
mod sequence;
mod settings;
mod state;
mod tensors;

#[cfg(burn_mx_distributed)]
pub use devices::DeviceExchange;
pub use error::CommunicationError;
pub use parallel::RankGradients;
#[doc(hidden)]
pub use parallel::Transfer;
pub use products::micro_batches;
pub use sequence::SequenceParallel;
pub use settings::{Communication, RankOrder, Route};
pub use state::{CommunicationState, TensorState};
