//! Dot products under an accumulator.

mod inputs;
mod neighbours;
mod operand;
mod rule;
mod search;
mod set;
mod tile;

pub use operand::DotOperand;
pub use set::DotSet;
pub use tile::{TileSet, TileShape};
