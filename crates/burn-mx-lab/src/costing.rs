//! Models of a step's cost in hardware: the options, and the source of each number.

use std::{error::Error, fs, path::PathBuf};

use burn_mx::cost::{ChipRates, Cost, CostError, Product, Tables};
use clap::Args;

/// By which tables, and for which chip.
#[derive(Debug, Clone, Args)]
pub struct CostArgs {
    /// Chip whose time for a step's products is in the table
    #[arg(long, value_name = "NAME", default_value = "b200")]
    chip: String,

    /// Tables of gates, energies and chips in place of burn-mx's, as JSON
    #[arg(long, value_name = "FILE")]
    cost_tables: Option<PathBuf>,
}

/// Tables that are read, and a chip that is in them.
pub struct Costing {
    tables: Tables,
    chip: String,
}

impl CostArgs {
    /// Reads the tables.
    ///
    /// # Errors
    ///
    /// If the tables cannot be read, or have no chip of this name. The text names the option.
    pub fn plan(&self) -> Result<Costing, String> {
        let tables = match &self.cost_tables {
            None => Tables::default(),
            Some(path) => {
                let unusable =
                    |error: &dyn Error| format!("--cost-tables '{}': {error}", path.display());
                let text = fs::read_to_string(path).map_err(|error| unusable(&error))?;
                Tables::from_json(&text).map_err(|error| unusable(&error))?
            }
        };
        tables
            .chip(&self.chip)
            .map_err(|error| format!("--chip: {error}"))?;
        Ok(Costing {
            tables,
            chip: self.chip.clone(),
        })
    }
}

impl Costing {
    /// The meaning of the table's columns, and the sources of the numbers.
    pub fn legend(&self) -> String {
        let chip = self.chip();
        format!(
            "models of a step's products, no measurements:\n\
             area: gates of a multiply-accumulate lane, as a multiple of MXFP8 E4M3's ({})\n\
             energy: of multiplications, sums, and operands read once ({})\n\
             {}: time at its peaks ({}); -: no unit for float32",
            self.tables.area.source, self.tables.operations.source, chip.name, chip.source
        )
    }

    /// The tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The chip.
    pub fn chip(&self) -> &ChipRates {
        self.tables.chip(&self.chip).expect("it was looked up")
    }
}

/// The cost of a step.
#[derive(Debug, Clone, Copy)]
pub struct StepCost {
    /// Bits, area and energy.
    pub cost: Cost,
    /// Seconds of the chip; `None` if it has no unit for such numbers.
    pub seconds: Option<f64>,
}

impl StepCost {
    /// The cost of these products.
    pub fn of(costing: &Costing, products: &[Product]) -> Self {
        let chip = costing.chip();
        let seconds: Result<f64, CostError> =
            products.iter().map(|product| chip.seconds(product)).sum();
        Self {
            cost: costing.tables().cost(products),
            seconds: seconds.ok(),
        }
    }

    /// Bits, area, energy and time as text.
    pub fn cells(&self) -> [String; 4] {
        let Self { cost, seconds } = self;
        [
            format!("{:.2}", cost.bits),
            format!("{:.2}", cost.area),
            format!("{:.1} µJ", cost.picojoules / 1e6),
            seconds.map_or("-".into(), |seconds| format!("{:.2} µs", 1e6 * seconds)),
        ]
    }
}
