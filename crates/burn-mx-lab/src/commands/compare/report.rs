//! Results of the runs: the table and the JSON.

use std::path::Path;

use burn_mx::{
    ResolvedSpecs, Slot,
    record::{RecordError, TensorBoard},
};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Serialize, Serializer};

use super::{train::Trained, training_format::TrainingFormat};
use crate::training::{layers::Layer, stages::SpecsStage};
use burn_mx_lab::costing::StepCost;

/// One run, in the form of the JSON.
#[derive(Serialize)]
pub(crate) struct CompareRun {
    name: String,
    seed: u64,
    /// `None` for FP32.
    #[serde(serialize_with = "fields")]
    specs: Option<ResolvedSpecs>,
    /// Layers with specs of their own.
    layers: Vec<Layer>,
    /// Specs of later steps, if they change.
    pub(crate) stages: Vec<SpecsStage>,
    /// Training loss of every step.
    pub(crate) loss: Vec<f32>,
    /// Share of the test items that are solved, 0 to 1.
    accuracy: f64,
    /// Median milliseconds a step.
    step_ms: f64,
    /// By models.
    #[serde(serialize_with = "cost")]
    cost: StepCost,
    /// The name for people.
    #[serde(skip)]
    label: String,
    /// Whether the specs differ from those that the name stands for.
    #[serde(skip)]
    overridden: bool,
}

impl CompareRun {
    pub(crate) fn new(
        format: &TrainingFormat,
        seed: u64,
        layers: &[Layer],
        trained: Trained,
        cost: StepCost,
    ) -> Self {
        Self {
            name: format.name.clone(),
            seed,
            specs: format.specs.clone(),
            layers: layers.to_vec(),
            stages: format
                .stages
                .iter()
                .filter_map(|stage| stage.begun(trained.at_limit))
                .collect(),
            loss: trained.loss,
            accuracy: trained.score,
            step_ms: trained.step.as_secs_f64() * 1e3,
            cost,
            label: format.label(),
            overridden: format.overridden,
        }
    }
}

fn fields<S: Serializer>(specs: &Option<ResolvedSpecs>, serializer: S) -> Result<S::Ok, S::Error> {
    specs
        .as_ref()
        .map(ResolvedSpecs::specs)
        .serialize(serializer)
}

fn cost<S: Serializer>(cost: &StepCost, serializer: S) -> Result<S::Ok, S::Error> {
    serde_json::json!({
        "macs": cost.cost.macs,
        "bits": cost.cost.bits,
        "area": cost.cost.area,
        "picojoules": cost.cost.picojoules,
        "seconds": cost.seconds,
    })
    .serialize(serializer)
}

/// `{"runs": [...]}`.
pub(crate) fn json(runs: &[CompareRun]) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Report<'a> {
        runs: &'a [CompareRun],
    }
    serde_json::to_vec(&Report { runs })
}

/// An event file for each run, with the loss of every step and the accuracy after the last one.
pub(crate) fn tensorboard(runs: &[CompareRun], folder: &Path) -> Result<(), RecordError> {
    for run in runs {
        let folder = folder.join(&run.name).join(format!("seed-{}", run.seed));
        let mut board = TensorBoard::create(folder)?;
        for (step, loss) in (0..).zip(&run.loss) {
            board.scalar("loss", step, f64::from(*loss))?;
        }
        board.scalar("accuracy", run.loss.len() as u64, run.accuracy)?;
    }
    Ok(())
}

/// Runs of one format, one for each seed.
pub(crate) struct SeedGroup<'a> {
    runs: &'a [CompareRun],
    /// Number of seeds that the sweep has: a format at which it was stopped has fewer.
    seeds: usize,
}

/// The runs by format, in their order.
pub(crate) fn groups(runs: &[CompareRun]) -> Vec<SeedGroup<'_>> {
    let chunks = || runs.chunk_by(|a, b| a.name == b.name);
    let seeds = chunks().next().map_or(0, <[CompareRun]>::len);
    chunks().map(|runs| SeedGroup { runs, seeds }).collect()
}

impl SeedGroup<'_> {
    /// The format's name.
    pub(crate) fn name(&self) -> &str {
        &self.runs[0].name
    }

    /// The format's name for people.
    pub(crate) fn label(&self) -> String {
        let label = &self.runs[0].label;
        match self.runs.len() {
            all if all == self.seeds => label.clone(),
            some => format!("{label} ({some} of {} seeds)", self.seeds),
        }
    }

    /// Training loss of every step, for each seed.
    pub(crate) fn losses(&self) -> impl Iterator<Item = &[f32]> {
        self.runs.iter().map(|run| &run.loss[..])
    }

    /// Training loss of every step, the mean over the seeds.
    pub(crate) fn loss(&self) -> Vec<f32> {
        let steps = self.runs[0].loss.len();
        let mean =
            |step| self.runs.iter().map(|run| run.loss[step]).sum::<f32>() / self.runs.len() as f32;
        (0..steps).map(mean).collect()
    }

    /// Mean over the last epoch: a single batch says little.
    pub(crate) fn final_loss(&self, epochs: usize) -> f32 {
        let loss = self.loss();
        let last_epoch = &loss[loss.len() - loss.len() / epochs..];
        last_epoch.iter().sum::<f32>() / last_epoch.len() as f32
    }

    /// Mean bits of an element of an operand of a step.
    pub(crate) fn mean_bits(&self) -> f64 {
        self.runs[0].cost.cost.bits
    }

    /// Mean, least and largest score over the seeds.
    pub(crate) fn scores(&self) -> [f64; 3] {
        let scores = || self.runs.iter().map(|run| run.accuracy);
        [
            mean(scores()),
            scores().fold(f64::INFINITY, f64::min),
            scores().fold(f64::NEG_INFINITY, f64::max),
        ]
    }

    fn step_ms(&self) -> f64 {
        mean(self.runs.iter().map(|run| run.step_ms))
    }

    /// In percent, with the standard deviation if there is one.
    fn accuracy(&self) -> String {
        let accuracies = || self.runs.iter().map(|run| 100.0 * run.accuracy);
        let mean_accuracy = mean(accuracies());
        if self.runs.len() == 1 {
            return format!("{mean_accuracy:.2} %");
        }
        let squares: f64 = accuracies().map(|x| (x - mean_accuracy).powi(2)).sum();
        let deviation = (squares / (self.runs.len() - 1) as f64).sqrt();
        format!("{mean_accuracy:.2} ± {deviation:.2} %")
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// A Markdown table, one row a format. The first is what the others are compared with.
pub(crate) fn table(runs: &[CompareRun], epochs: usize, score: &str, chip: &str) -> Table {
    let groups = groups(runs);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "format",
        "bits",
        "final loss",
        score,
        "time a step",
        "overhead",
        "area",
        "energy",
        chip,
    ]);
    for group in &groups {
        let specs = group.runs[0].specs.as_ref();
        let [mean_bits, area, energy, time] = group.runs[0].cost.cells();
        table.add_row([
            group.label(),
            match (specs, group.runs[0].layers.is_empty()) {
                (None, _) => "32".to_owned(),
                (Some(specs), true) => bits(specs),
                (Some(_), false) => mean_bits,
            },
            format!("{:.4}", group.final_loss(epochs)),
            group.accuracy(),
            format!("{:.2} ms", group.step_ms()),
            format!("{:.2}×", group.step_ms() / groups[0].step_ms()),
            area,
            energy,
            time,
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The meaning of the table's columns.
pub(crate) fn notes(runs: &[CompareRun]) -> String {
    let mut text = String::from(
        "bits: of a value in a matrix product, with its share of the block's scale; \
         final loss: mean of the last epoch; time: median; \
         overhead: time over that of the first row; below 1× emulation is faster, as MX operands are multiplied in bfloat16, \
         and the peer's in float32",
    );
    let seeds = groups(runs)[0].seeds;
    if seeds > 1 {
        text.push_str(&format!(
            "\nmeans over {seeds} seeds; ±: standard deviation"
        ));
    }
    if runs.iter().any(|run| run.overridden) {
        text.push_str("\n*: the preset with the MX options of the command line");
    }
    let mut said: Vec<&str> = Vec::new();
    for run in runs.iter().filter(|run| !run.layers.is_empty()) {
        if said.contains(&run.name.as_str()) {
            continue;
        }
        said.push(&run.name);
        let layers: Vec<_> = run.layers.iter().map(Layer::to_string).collect();
        text.push_str(&format!(
            "\nlayers with their own specs in {} (its bits: the mean over all operands of a step): {}",
            run.name,
            layers.join(" ")
        ));
    }
    text
}

/// Bits a value of weights and activations in the forward pass.
fn bits(specs: &ResolvedSpecs) -> String {
    // Hundredths, where there are some.
    let [weights, activations] =
        [Slot::W, Slot::A].map(|slot| (operand_bits(specs, slot) * 100.0).round() / 100.0);
    if weights == activations {
        weights.to_string()
    } else {
        format!("w {weights}, a {activations}")
    }
}

fn operand_bits(specs: &ResolvedSpecs, slot: Slot) -> f64 {
    let Some(format) = specs.block_format(slot) else {
        // Not in blocks: as the elementwise operations leave it.
        return match (specs.specs().bfloat, specs.specs().fp) {
            (0, 0) => 32.0,
            (bfloat, fp) => f64::from(bfloat + fp), // one of them is 0
        };
    };
    format.bits_per_element()
}
