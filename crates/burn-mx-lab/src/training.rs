//! Models, their tasks, and the parts of a training run that several commands share.

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
