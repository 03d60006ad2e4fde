//! Results of the runs: the table and the JSON.

use burn_mx::{ResolvedSpecs, Slot};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Serialize, Serializer};

use super::train::Trained;

/// One run, as it stands in the JSON.
#[derive(Serialize)]
pub(crate) struct Run {
    name: String,
    /// `None` for FP32.
    #[serde(serialize_with = "fields")]
    specs: Option<ResolvedSpecs>,
    /// Training loss of every step.
    pub(crate) loss: Vec<f32>,
    /// On the test digits, 0 to 1.
    accuracy: f64,
    /// Median milliseconds a step.
    step_ms: f64,
    /// Whether the specs differ from those that the name stands for.
    #[serde(skip)]
    overridden: bool,
}

impl Run {
    pub(crate) fn fp32(trained: Trained) -> Self {
        Self::new("fp32", None, false, trained)
    }

    pub(crate) fn mx(
        name: &str,
        specs: &ResolvedSpecs,
        overridden: bool,
        trained: Trained,
    ) -> Self {
        Self::new(name, Some(specs.clone()), overridden, trained)
    }

    fn new(name: &str, specs: Option<ResolvedSpecs>, overridden: bool, trained: Trained) -> Self {
        Self {
            name: name.to_owned(),
            specs,
            loss: trained.loss,
            accuracy: trained.accuracy,
            step_ms: trained.step.as_secs_f64() * 1e3,
            overridden,
        }
    }

    /// The name for people, with a star if the preset is not what it usually is.
    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.name, if self.overridden { "*" } else { "" })
    }
}

fn fields<S: Serializer>(specs: &Option<ResolvedSpecs>, serializer: S) -> Result<S::Ok, S::Error> {
    specs
        .as_ref()
        .map(ResolvedSpecs::specs)
        .serialize(serializer)
}

/// `{"runs": [...]}`.
pub(crate) fn json(runs: &[Run]) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Report<'a> {
        runs: &'a [Run],
    }
    serde_json::to_vec(&Report { runs })
}

/// A Markdown table, one row a run, and what its columns mean. The first run is what the others are
/// compared with.
pub(crate) fn table(runs: &[Run], epochs: usize) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "format",
        "bits",
        "final loss",
        "test accuracy",
        "time a step",
        "overhead",
    ]);
    for run in runs {
        table.add_row([
            run.label(),
            run.specs.as_ref().map_or_else(|| "32".to_owned(), bits),
            format!("{:.4}", final_loss(run, epochs)),
            format!("{:.2} %", 100.0 * run.accuracy),
            format!("{:.2} ms", run.step_ms),
            format!("{:.2}×", run.step_ms / runs[0].step_ms),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!(
        "{table}\n\nbits: of a value in a matrix product, with its share of the block's scale; \
         final loss: mean of the last epoch; time: median"
    );
    if runs.iter().any(|run| run.overridden) {
        text.push_str("\n*: the preset with the MX options of the command line");
    }
    text
}

/// Mean over the last epoch: a single batch says little.
fn final_loss(run: &Run, epochs: usize) -> f32 {
    let last_epoch = &run.loss[run.loss.len() - run.loss.len() / epochs..];
    last_epoch.iter().sum::<f32>() / last_epoch.len() as f32
}

/// Bits a value of weights and activations in the forward pass.
fn bits(specs: &ResolvedSpecs) -> String {
    let [weights, activations] = [Slot::W, Slot::A].map(|slot| operand_bits(specs, slot));
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
