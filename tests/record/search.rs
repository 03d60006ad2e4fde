//! The search for a recipe, from records.

mod budgets;
mod choices;
mod constraints;
mod records;
mod weights;
