//! The results of runs, as tables and as curves.

use std::path::{Path, PathBuf};

use burn_mx::cost::ChipRates;
use burn_mx_lab::costing::StepCost;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use language_model::{evaluate::Score, train::Curve};

/// A finished run.
pub(super) struct Run {
    pub(super) format: String,
    /// The seed, if the command has several.
    pub(super) seed: Option<u64>,
    pub(super) curve: Curve,
    pub(super) score: Score,
    /// Tokens a second.
    pub(super) speed: f64,
    /// The model's cost of the products of a step.
    pub(super) cost: StepCost,
}

impl Run {
    /// The folder of a run, below the folder of the command.
    pub(super) fn folder(format: &str, seed: Option<u64>) -> PathBuf {
        let folder = Path::new(format);
        seed.map_or(folder.to_owned(), |seed| {
            folder.join(format!("seed-{seed}"))
        })
    }

    /// The name of a run among the results.
    pub(super) fn name(&self) -> String {
        Self::folder(&self.format, self.seed).display().to_string()
    }

    fn loss(&self) -> f64 {
        self.score.loss
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(header);
    table
}

/// The table of all runs.
pub(super) fn scores(runs: &[Run]) -> Table {
    let mut table = table(&[
        "format",
        "loss",
        "perplexity",
        "bits a character",
        "tokens/s",
    ]);
    for run in runs {
        let score = &run.score;
        let figures = [score.loss, score.perplexity, score.bits_per_character];
        let mut cells = vec![run.name()];
        cells.extend(figures.map(|figure| format!("{figure:.4}")));
        cells.push(format!("{:.0}", run.speed));
        table.add_row(cells);
    }
    table
}

/// The runs of each format, in the order of the formats.
fn by_format(runs: &[Run]) -> impl Iterator<Item = &[Run]> {
    runs.chunk_by(|one, other| one.format == other.format)
}

/// The mean of some figures, and their standard deviation if there are several.
fn mean(figures: &[f64]) -> (f64, Option<f64>) {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let squares: f64 = figures.iter().map(|x| (x - mean) * (x - mean)).sum();
    let deviation = (figures.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
    (mean, deviation)
}

fn with_deviation((mean, deviation): (f64, Option<f64>)) -> String {
    let deviation = deviation.map_or(String::new(), |deviation| format!(" ± {deviation:.4}"));
    format!("{mean:.4}{deviation}")
}

/// Each format's mean loss over the seeds, its distance from the first format with the same seeds, and what its products cost on `chip`.
pub(super) fn summary(runs: &[Run], chip: &str) -> Table {
    let mut table = table(&["format", "loss", "gap", "gap, %", "bits", chip]);
    let first = by_format(runs).next().unwrap_or_default();
    for runs in by_format(runs) {
        let losses: Vec<f64> = runs.iter().map(Run::loss).collect();
        let pairs = runs.iter().zip(first);
        let gaps: Vec<f64> = pairs
            .map(|(run, first)| run.loss() - first.loss())
            .collect();
        let base: Vec<f64> = first.iter().map(Run::loss).collect();
        let percent = 100.0 * mean(&gaps).0 / mean(&base).0;
        let [bits, _, _, time] = runs[0].cost.cells();
        table.add_row([
            runs[0].format.clone(),
            with_deviation(mean(&losses)),
            with_deviation(mean(&gaps)),
            format!("{percent:.2}"),
            bits,
            time,
        ]);
    }
    table
}

/// The meaning of the columns of the [summary] that are models.
pub(super) fn legend(chip: &ChipRates) -> String {
    format!(
        "bits: of an element of an operand, the mean over a step's products; {}: a model's time for these products ({}); -: no unit for float32",
        chip.name, chip.source
    )
}

/// The table of the optimizers' states.
pub(super) fn memory(runs: &[Run]) -> Table {
    let mut table = table(&["format", "bytes of states", "in float32", "share"]);
    for run in runs {
        let states = &run.curve.states;
        let share = 100.0 * states.kept as f64 / states.float32.max(1) as f64;
        table.add_row([
            run.name(),
            states.kept.to_string(),
            states.float32.to_string(),
            format!("{share:.1} %"),
        ]);
    }
    table
}

/// Prints the errors of merges, and numbers of resets.
pub(super) fn print_events(runs: &[Run]) {
    for run in runs {
        if let Some(line) = merged(run) {
            println!("{line}");
        }
        if let Some(resets) = run.curve.resets {
            println!("{}: {resets} weights were reset", run.name());
        }
    }
}

/// The line of the merge of a run's adapters.
fn merged(run: &Run) -> Option<String> {
    let merge = run.curve.merge.as_ref()?;
    let (_, beside) = run.curve.validation.last()?;
    Some(format!(
        "{}: adapters of {} layers are merged: largest error {:.2e}; largest relative squared error of a layer {:.2e}, at {}; loss {beside:.4} \
         with adapters beside, {:.4} merged",
        run.name(),
        merge.layers,
        merge.largest,
        merge.relative_squared,
        merge.worst,
        merge.loss
    ))
}

/// The validation losses of each format while training, the mean over the seeds.
pub(super) fn curves(runs: &[Run]) -> Vec<(&str, Vec<(usize, f32)>)> {
    let of_format = |runs: &'_ [Run]| -> Vec<(usize, f32)> {
        let points = runs[0].curve.validation.iter().enumerate();
        points
            .map(|(at, (step, _))| {
                let losses = runs.iter().map(|run| run.curve.validation[at].1);
                (*step, losses.sum::<f32>() / runs.len() as f32)
            })
            .collect()
    };
    by_format(runs)
        .map(|runs| (runs[0].format.as_str(), of_format(runs)))
        .collect()
}
