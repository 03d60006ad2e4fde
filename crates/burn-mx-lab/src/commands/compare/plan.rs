//! A checked command line: the runs, and the folders that keep them.

use std::{error::Error, path::PathBuf};

use burn_mx::{
    ResolvedSpecs,
    record::{Recorder, RecorderConfig},
};
use burn_mx_lab::{backends::BackendName, output::OutputFile};
use serde_json::json;

use super::{
    cost, found::Candidates, progress_kind::ProgressKind, train::Hyperparameters,
    training_format::TrainingFormat,
};
use crate::training::{
    models::{Architecture, ModelName},
    saved::SavedRun,
    tasks::Split,
};
use burn_mx_lab::costing::{Costing, StepCost};

/// The work that a command line asks for.
pub(crate) struct SweepPlan {
    pub(crate) model: ModelName,
    pub(crate) architecture: Architecture,
    pub(crate) backend: BackendName,
    pub(crate) hyperparameters: Hyperparameters,
    pub(crate) progress: ProgressKind,
    pub(crate) seeds: Vec<u64>,
    /// FP32, then the MX formats in the order they were asked for.
    pub(crate) formats: Vec<TrainingFormat>,
    /// Where a run is kept, by format and seed.
    pub(crate) saved: Option<PathBuf>,
    pub(crate) split: Split,
    pub(crate) plot: OutputFile,
    pub(crate) pareto: OutputFile,
    pub(crate) json: Option<OutputFile>,
    pub(crate) csv: Option<OutputFile>,
    /// The folder of event files.
    pub(crate) tensorboard: Option<PathBuf>,
    /// The recorder's configuration for the MX runs, and its folder.
    pub(crate) record: Option<(RecorderConfig, PathBuf)>,
    /// The models of a step's cost in hardware.
    pub(crate) costing: Costing,
    /// The recipes of a search, of which the runs show the best one.
    pub(crate) found: Option<Candidates>,
}

impl SweepPlan {
    /// Every run: format by format, for each seed.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&TrainingFormat, u64)> {
        let seeds = |format| self.seeds.iter().map(move |&seed| (format, seed));
        self.formats.iter().flat_map(seeds)
    }

    /// The cost of a step in this format, by models.
    pub(crate) fn step_cost(&self, format: &TrainingFormat) -> Result<StepCost, Box<dyn Error>> {
        let products = cost::step(
            self.architecture,
            self.model,
            &self.split,
            self.hyperparameters.batch_size,
            (format.specs.as_ref(), &format.layers),
        )?;
        Ok(StepCost::of(&self.costing, &products))
    }

    /// The recorder of an MX run of this name, and the folder of the records.
    pub(crate) fn recorder(&self, run: &str) -> Option<(Recorder, PathBuf)> {
        let (config, folder) = self.record.as_ref()?;
        let recorder = Recorder::new(config.clone()).run(run);
        let recorder = match self.tensorboard {
            Some(_) => recorder.tensorboard(),
            None => recorder,
        };
        Some((recorder, folder.clone()))
    }

    /// Where a run is kept.
    pub(crate) fn saved(&self, format: &TrainingFormat, seed: u64) -> Option<SavedRun> {
        let folder = self.saved.as_ref()?;
        let folder = folder.join(&format.name).join(format!("seed-{seed}"));
        Some(SavedRun::new(folder))
    }

    /// Begins the folders of all runs, or makes sure that they hold the same runs.
    pub(crate) fn open_saved(&self, resume: bool) -> Result<(), String> {
        let Some(folder) = self.saved.as_ref().map(|folder| folder.display()) else {
            return Ok(());
        };
        let runs: Vec<_> = self
            .runs()
            .filter_map(|(format, seed)| Some((format, seed, self.saved(format, seed)?)))
            .collect();
        match (resume, runs.iter().any(|(.., saved)| saved.exists())) {
            (false, true) => Err(format!(
                "--save '{folder}' has such a run already; add --resume to go on with it, or name another folder"
            )),
            (true, false) => Err(format!(
                "--resume: --save '{folder}' has no such run; name the folder of an earlier --save"
            )),
            _ => runs.iter().try_for_each(|(format, seed, saved)| {
                let mut settings = json!({
                    "example": self.model.name(),
                    "model": self.architecture,
                    "backend": self.backend,
                    "batch_size": self.hyperparameters.batch_size,
                    "lr": self.hyperparameters.lr,
                    "seed": seed,
                    "specs": format.specs.as_ref().map(ResolvedSpecs::specs),
                    "layers": format.layers,
                });
                // A run without stages goes on from a folder of an earlier version.
                if !format.stages.is_empty() {
                    settings["stages"] = json!(format.stages);
                }
                saved
                    .open(&settings)
                    .map_err(|error| format!("--save: {error}"))
            }),
        }
    }
}
