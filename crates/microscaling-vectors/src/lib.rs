#![doc = include_str!("../README.md")]

mod block;
mod check;
mod choice;
mod cover;
mod dot;
mod element;
mod error;
mod forms;
mod layout;
mod set;

pub use block::BlockSet;
pub use check::{Cause, CheckReport, DumpInputs, check};
pub use cover::Cover;
pub use dot::{DotOperand, DotSet, TileSet, TileShape};
pub use element::{
    CodeFormat, CodeSet, ElementOverflow, ElementRounding, ElementRule, ElementSet, InputType,
    SmallResults,
};
pub use error::VectorsError;
pub use forms::{DumpPart, DumpReader, VectorForm, VectorWriter};
pub use layout::{BusField, BusLayout, Direction};
pub use set::{NeighbouringRule, VectorSet};

/// The version of the sets: a set of one name has the same bytes in every release with this version.
pub const VERSION: u32 = 4;
