//! Tables of published numbers.

use crate::chip::ChipRates;
use crate::error::CostError;
use crate::gates::Gates;
use crate::operations::Operations;
use serde::Deserialize;

/// The tables of all models. Each table names its source. [`Default`] has this crate's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Areas of cells.
    pub area: Gates,
    /// Energies of cells.
    pub energy: Gates,
    /// Energies of operations.
    pub operations: Operations,
    /// Peaks of chips.
    pub chips: Vec<ChipRates>,
}

impl Default for Tables {
    fn default() -> Self {
        Self::from_json(include_str!("tables.json")).expect("the crate's own tables are right")
    }
}

impl Tables {
    /// Tables from JSON. `src/tables.json` of this crate is an example.
    ///
    /// # Errors
    /// * [`CostError::Json`]: the text is not JSON, or has missing or unknown fields.
    /// * [`CostError::Field`]: fewer than two points, points out of order, or a number that is not above 0.
    pub fn from_json(text: &str) -> Result<Self, CostError> {
        let tables: Self =
            serde_json::from_str(text).map_err(|error| CostError::Json(error.to_string()))?;
        tables.check()?;
        Ok(tables)
    }

    /// The chip of this name.
    ///
    /// # Errors
    /// [`CostError::Chip`].
    pub fn chip(&self, name: &str) -> Result<&ChipRates, CostError> {
        let chip = self.chips.iter().find(|chip| chip.name == name);
        chip.ok_or_else(|| CostError::Chip {
            got: name.to_owned(),
            allowed: self.chips.iter().map(|chip| chip.name.clone()).collect(),
        })
    }

    fn check(&self) -> Result<(), CostError> {
        let field = |field: String, got: String, allowed| {
            Err(CostError::Field {
                field,
                got,
                allowed,
            })
        };
        let operations = &self.operations;
        let points = [
            ("integer_add", &operations.integer_add),
            ("integer_multiply", &operations.integer_multiply),
            ("float_add", &operations.float_add),
            ("float_multiply", &operations.float_multiply),
        ];
        for (name, points) in points {
            if points.len() < 2 || !points.is_sorted_by(|a, b| a.0 < b.0) {
                let allowed = "two points or more, in order of their bits";
                return field(format!("operations.{name}"), format!("{points:?}"), allowed);
            }
        }
        for (name, gates) in [("area", &self.area), ("energy", &self.energy)] {
            let numbers = [
                ("and", gates.and),
                ("or", gates.or),
                ("xor", gates.xor),
                ("mux", gates.mux),
                ("half_adder", gates.half_adder),
                ("full_adder", gates.full_adder),
                ("accumulator", gates.accumulator),
                ("power_of_two_scales", gates.power_of_two_scales),
                ("float_scales", gates.float_scales),
            ];
            for (cell, number) in numbers {
                if !(number.is_finite() && number > 0.0) {
                    let allowed = "a number above 0";
                    return field(format!("{name}.{cell}"), number.to_string(), allowed);
                }
            }
        }
        for chip in &self.chips {
            let rates = chip
                .tflops
                .iter()
                .map(|(bits, rate)| (format!("tflops.{bits}"), *rate));
            let memory = ("terabytes_per_second".to_owned(), chip.terabytes_per_second);
            for (name, rate) in rates.chain([memory]) {
                if !(rate.is_finite() && rate > 0.0) {
                    let name = format!("chips.{}.{name}", chip.name);
                    return field(name, rate.to_string(), "a number above 0");
                }
            }
        }
        Ok(())
    }
}
