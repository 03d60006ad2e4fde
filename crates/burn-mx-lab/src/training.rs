//! Models, their tasks, and the parts of a training run that several commands share.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `models.rs`, `models/` | the models |
//! | `tasks.rs`, `tasks/` | what they learn: 8×8 digits, sums as text |
//! | `presets.rs`, `layers.rs` | names of presets; specs for single layers |
//! | `trainee.rs` | a model as burn-train's learner wants it |
//! | `epochs.rs` | batches, in an order that depends on the seed and the epoch alone |
//! | `stages.rs` | specs that change between two steps |
//! | `history.rs` | loss and time of every step |
//! | `saved.rs` | a folder that a run can be resumed from |
//! | `warm_up.rs` | models after some steps in full precision, and their gradients |

pub(crate) mod epochs;
pub(crate) mod history;
pub(crate) mod layers;
pub(crate) mod models;
pub(crate) mod presets;
pub(crate) mod saved;
pub(crate) mod stages;
pub(crate) mod tasks;
pub(crate) mod trainee;
pub(crate) mod warm_up;
