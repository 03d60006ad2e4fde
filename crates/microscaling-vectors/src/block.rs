//! Blocks: the set, the inputs that tell rules apart, and a model whose scale and elements neighbouring rules change.

mod inputs;
mod layout;
mod model;
mod neighbours;
mod scale_change;
mod set;
mod ties;

pub use set::BlockSet;
