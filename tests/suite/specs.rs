//! The specs: their fields, values, defaults, text forms and flags.

mod flags;
mod hadamard;
mod json;
mod presets;
mod recipe;
mod resolve;
mod resolved;
mod slot_format;
mod summary;
mod training_recipes;
mod values;
