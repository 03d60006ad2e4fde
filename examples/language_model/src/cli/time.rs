//! `time`

use std::{
    error::Error,
    time::{Duration, Instant},
};

use burn_mx::module::ColumnRanks;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use language_model::train::{Format, Trainer, Training};

use super::model::Model;

/// Time training steps of formats, step by step in turn, so that what slows the machine down slows all of them down
#[derive(Debug, clap::Args)]
pub(super) struct Time {
    /// Formats, as of `train`; ratios are to the first
    #[arg(long, value_name = "NAME", num_args = 1.., default_values = ["fp32", "mxfp8_e4m3"])]
    formats: Vec<String>,
    /// Steps of each format that are timed
    #[arg(long, value_name = "STEPS", default_value_t = 20)]
    steps: usize,
    #[command(flatten)]
    model: Model,
}

/// Steps before those that are timed: threads and scratch memory come up.
const WARM_UP: usize = 3;

impl Time {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        if self.steps == 0 {
            return Err("--steps '0'; allowed: 1 or more".into());
        }
        let formats = self
            .formats
            .iter()
            .map(|name| Format::named("--formats", name));
        let formats = formats.collect::<Result<Vec<_>, _>>()?;
        let (config, corpus) = self.model.open()?;
        let settings = Training {
            batch: self.model.batch,
            steps: WARM_UP + self.steps,
            learning_rate: 1e-3,
            interval: WARM_UP + self.steps,
            seed: self.model.seed,
            window: None,
            reset: None,
            columns: ColumnRanks::default(),
        };
        let trainers = formats
            .iter()
            .map(|format| Trainer::new(&settings, &config, format, corpus.data()));
        let mut trainers = trainers.collect::<Result<Vec<_>, _>>()?;
        let bar = super::bar("steps", settings.steps)?;
        let mut times: Vec<Vec<Duration>> = vec![Vec::new(); trainers.len()];
        for step in 0..settings.steps {
            let timed = trainers
                .into_iter()
                .zip(&mut times)
                .map(|(trainer, times)| {
                    let began = Instant::now();
                    let (trainer, _) = trainer.step(step);
                    if step >= WARM_UP {
                        times.push(began.elapsed());
                    }
                    trainer
                });
            trainers = timed.collect();
            bar.inc(1);
        }
        bar.finish_and_clear();
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header(["format", "ms a step", "ratio"]);
        for (format, own) in formats.iter().zip(&times) {
            let seconds = own.iter().map(Duration::as_secs_f64);
            let ratios = own.iter().zip(&times[0]);
            let ratios = ratios.map(|(own, first)| own.as_secs_f64() / first.as_secs_f64());
            table.add_row([
                format.name.clone(),
                format!("{:.1}", 1e3 * median(seconds)),
                format!("{:.2}", median(ratios)),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
