//! The cost of a training step in hardware, by models, printed beside the results of the training.

use std::{error::Error, fs, path::PathBuf};

use burn::backend::{Flex, flex::FlexDevice};
use burn_mx::{
    MxBackend, MxDevice, ResolvedSpecs,
    cost::{Cost, CostError, Numbers, Product, Tables},
    record::{Pass, products},
};
use clap::Args;

use super::{
    layers::Layer,
    models::{Architecture, ModelName},
    tasks::Split,
};

/// By which tables, and for which chip.
#[derive(Debug, Clone, Args)]
pub(crate) struct CostArgs {
    /// Chip whose time for a step's products is in the table
    #[arg(long, value_name = "NAME", default_value = "b200")]
    chip: String,

    /// Tables of gates, energies and chips in place of burn-mx's, as JSON
    #[arg(long, value_name = "FILE")]
    cost_tables: Option<PathBuf>,
}

/// Tables that are read, and a chip that is in them.
pub(crate) struct Costing {
    tables: Tables,
    chip: String,
}

/// The cost of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepCost {
    pub(crate) cost: Cost,
    /// Seconds of the chip; `None` if it has no unit for such numbers.
    pub(crate) seconds: Option<f64>,
}

impl CostArgs {
    pub(crate) fn plan(&self) -> Result<Costing, String> {
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
    /// The cost of these products.
    pub(crate) fn of(&self, products: &[Product]) -> StepCost {
        let chip = self.tables.chip(&self.chip).expect("it was looked up");
        let seconds: Result<f64, CostError> =
            products.iter().map(|product| chip.seconds(product)).sum();
        StepCost {
            cost: self.tables.cost(products),
            seconds: seconds.ok(),
        }
    }

    /// The meaning of the table's columns, and the sources of the numbers.
    pub(crate) fn legend(&self) -> String {
        let chip = self.tables.chip(&self.chip).expect("it was looked up");
        format!(
            "models of a step's products, no measurements:\n\
             area: gates of a multiply-accumulate lane, as a multiple of MXFP8 E4M3's ({})\n\
             energy: of multiplications, sums, and operands read once ({})\n\
             {}: time at its peaks ({}); -: no unit for float32",
            self.tables.area.source, self.tables.operations.source, chip.name, chip.source
        )
    }

    pub(crate) fn chip(&self) -> &str {
        &self.chip
    }
}

/// The products of a training step of this model on a batch of this number of items.
pub(crate) fn step(
    architecture: Architecture,
    model: ModelName,
    split: &Split,
    batch_size: usize,
    (specs, layers): (Option<&ResolvedSpecs>, &[Layer]),
) -> Result<Vec<Product>, Box<dyn Error>> {
    let device = match specs {
        Some(specs) => MxDevice::new(FlexDevice, specs)?,
        // Formats that show every product. It is float32 that is counted.
        None => MxDevice::new(FlexDevice, "mxfp8_e4m3")?,
    };
    let items: Vec<_> = (0..batch_size)
        .filter_map(|at| split.train.get(at))
        .collect();
    let batch = model.task().batch::<MxBackend<Flex>>(&items, &device);
    let model = architecture
        .init::<MxBackend<Flex>>(&device)
        .labelled()
        .with_layers(layers)?;
    let mut products = products(Pass::Training, || drop(model.output(batch)));
    if specs.is_none() {
        for product in &mut products {
            product.lhs.numbers = Numbers::float(None);
            product.rhs.numbers = Numbers::float(None);
        }
    }
    Ok(products)
}
