//! What width does an accumulator need? The command measures sums of random operands, gradients and training runs of `compare`'s
//! models. The sweep covers the fraction bits of a matrix unit that aligns products (`joint`), the length of the sums, and the
//! elements between promotions to float32.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- accumulator-sweep --sums
//! cargo run --release --bin burn-mx-lab -- accumulator-sweep --model transformer --epochs 3 --seed 0 --seed 1 --seed 2
//! ```

mod chart;
mod gradients;
mod sums;
mod training;

use std::{error::Error, fs, path::PathBuf};

use burn_mx::{Accumulation, Accumulator, MxSpecs};
use burn_mx_lab::{own_files, tables};
use clap::builder::RangedU64ValueParser;
use comfy_table::Table;
use microscaling_product::SumFormat;
use serde::Serialize;
use serde_json::json;

use super::Refusal;
use crate::training::models::ModelName;

/// Sweep the width of an accumulator
#[derive(Debug, clap::Args)]
pub(crate) struct AccumulatorSweepArgs {
    /// Models to train; repeat it
    #[arg(long = "model", value_enum, default_values_t = [ModelName::Cnn, ModelName::Transformer])]
    models: Vec<ModelName>,

    /// Only the sums of random operands
    #[arg(long)]
    sums: bool,

    /// MX preset of operands
    #[arg(long, value_name = "NAME", default_value = "mxfp8_e4m3")]
    preset: String,

    /// Products that the unit adds at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    terms: usize,

    /// Fraction bits of the unit; repeat it
    #[arg(
        long = "fraction-bits",
        value_name = "BITS",
        default_values_t = [8, 10, 12, 13, 14, 16, 20, 25]
    )]
    fraction_bits: Vec<u32>,

    /// Elements after which a partial sum moves to float32, 0 for never; repeat it
    #[arg(long = "promote-every", value_name = "N", default_values_t = [0, 32, 128, 256])]
    promote_every: Vec<usize>,

    /// Lengths of the sums of random operands; repeat it
    #[arg(long = "k", value_name = "N", default_values_t = [256, 1024, 4096, 16384, 65536])]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 24))]
    lengths: Vec<usize>,

    /// Units to sum and to train with, besides the sweep's units; repeat it
    #[arg(
        long = "accumulator",
        value_name = "NAME",
        default_values = ["hopper", "hopper_promote128", "blackwell"]
    )]
    accumulators: Vec<Accumulation>,

    /// Passes over the training items
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    epochs: usize,

    /// Items in a batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    batch_size: usize,

    /// Seed of the initial weights and of the order of batches; repeat it for a mean
    #[arg(long = "seed", value_name = "SEED", default_values_t = [0])]
    seeds: Vec<u64>,

    /// Folder for the charts, accumulator_sweep.json and each table as CSV; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
}

/// A unit of the sweep.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Unit {
    pub(crate) fraction_bits: u32,
    pub(crate) promote_every: usize,
    #[serde(rename = "accumulator")]
    pub(crate) choice: Accumulation,
}

impl AccumulatorSweepArgs {
    /// Every unit of the sweep. Its running sum keeps as many fraction bits, but no more than float32 has.
    fn units(&self) -> Result<Vec<Unit>, String> {
        let mut units = Vec::new();
        for &promote_every in &self.promote_every {
            for &fraction_bits in &self.fraction_bits {
                let output = match fraction_bits {
                    23.. => SumFormat::F32_RZ,
                    bits => format!("e8m{bits}_rz")
                        .parse()
                        .map_err(|error| format!("--fraction-bits '{bits}': {error}"))?,
                };
                let accumulator = Accumulator {
                    promote_every,
                    ..Accumulator::joint(self.terms, fraction_bits, output)
                };
                let valid = accumulator.validate();
                valid.map_err(|error| format!("--fraction-bits, --terms: {error}"))?;
                units.push(Unit {
                    fraction_bits,
                    promote_every,
                    choice: accumulator.into(),
                });
            }
        }
        Ok(units)
    }

    /// The specs, with every accumulator tried.
    fn specs(&self, units: &[Unit]) -> Result<MxSpecs, String> {
        let named = |error| format!("--preset '{}': {error}", self.preset);
        let specs = MxSpecs::preset(&self.preset).map_err(|error| named(error.to_string()))?;
        let choices = units.iter().map(|unit| unit.choice);
        for accumulator in choices.chain(self.accumulators.iter().copied()) {
            let resolved = with(&specs, Some(accumulator)).resolve();
            resolved.map_err(|error| named(error.to_string()))?;
        }
        Ok(specs)
    }
}

impl AccumulatorSweepArgs {
    /// The names of the files in `--out`.
    fn files(&self) -> Vec<String> {
        let common = ["sums.csv", "sums.svg", "sweep.json"].map(|end| format!("accumulator_{end}"));
        let models = self.models.iter().filter(|_| !self.sums);
        let ends = [
            "accumulator_gradients.csv",
            "accumulators.csv",
            "accumulators.svg",
        ];
        let of_models = models.flat_map(|model| ends.map(|end| format!("{}_{end}", model.name())));
        common.into_iter().chain(of_models).collect()
    }

    fn try_files(&self) -> Result<(), String> {
        fs::create_dir_all(&self.out)
            .map_err(|error| format!("--out '{}': {error}", self.out.display()))?;
        for name in self.files() {
            own_files::check(&self.out.join(name)).map_err(|error| format!("--out: {error}"))?;
        }
        Ok(())
    }
}

/// The specs with an accumulator, or with float32 sums.
pub(crate) fn with(specs: &MxSpecs, accumulator: Option<Accumulation>) -> MxSpecs {
    MxSpecs {
        accumulator,
        ..specs.clone()
    }
}

pub(crate) fn run(args: &AccumulatorSweepArgs) -> Result<(), Box<dyn Error>> {
    let units = args.units().map_err(Refusal)?;
    let specs = args.specs(&units).map_err(Refusal)?;
    args.try_files().map_err(Refusal)?;
    sweep(args, &units, &specs)
}

fn sweep(
    args: &AccumulatorSweepArgs,
    units: &[Unit],
    specs: &MxSpecs,
) -> Result<(), Box<dyn Error>> {
    let sums = sums::errors(args, units, specs)?;
    let show = |table: &Table, name: &str| -> Result<(), Box<dyn Error>> {
        println!("{table}");
        Ok(own_files::write(&args.out.join(name), tables::csv(table)?)?)
    };
    show(&sums::table(&sums), "accumulator_sums.csv")?;
    let chart = args.out.join("accumulator_sums.svg");
    own_files::write(&chart, chart::sums(&sums.swept)?)?;
    println!("{}\n", chart.display());
    let mut trained = serde_json::Map::new();
    if !args.sums {
        for &model in &args.models {
            let split = model.task().load()?;
            let gradients = gradients::errors(args, units, specs, model, &split)?;
            println!("{}", model.title());
            let table = gradients::table(&gradients);
            show(
                &table,
                &format!("{}_accumulator_gradients.csv", model.name()),
            )?;
            let runs = training::runs(args, units, specs, model, &split)?;
            let table = training::table(model, &runs);
            show(&table, &format!("{}_accumulators.csv", model.name()))?;
            let chart = args.out.join(format!("{}_accumulators.svg", model.name()));
            own_files::write(&chart, chart::model(model, &gradients, &runs)?)?;
            println!("{}\n", chart.display());
            let figures = json!({"gradients": gradients, "runs": runs});
            trained.insert(model.name().to_owned(), figures);
        }
    }
    let file = args.out.join("accumulator_sweep.json");
    let all = json!({
        "preset": args.preset,
        "sums": sums.swept,
        "named_sums": sums.named,
        "models": trained,
    });
    own_files::write(&file, serde_json::to_vec_pretty(&all)?)?;
    println!("{}", file.display());
    Ok(())
}
