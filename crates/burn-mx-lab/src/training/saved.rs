//! A folder that a run can be resumed from:
//!
//! | file | what it holds |
//! | --- | --- |
//! | `run.json` | what must be the same when the run is resumed |
//! | `checkpoint/{model,optim,scheduler}-N.mpk` | state after epoch N; the last two are kept |
//! | `history/epoch-N.json` | loss and time of the steps of epoch N |
//! | `model.mpk` | the trained model alone |

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use burn::{
    prelude::*,
    record::{FullPrecisionSettings, NamedMpkFileRecorder, Record, Recorder},
};
use burn_mx_lab::output;
use serde_json::Value;

use super::{history::EpochHistory, models::Model};

/// Checkpoints that are kept: the one before the last, should the last be broken off.
pub(crate) const KEEP: usize = 2;

pub(crate) type FileRecorder = NamedMpkFileRecorder<FullPrecisionSettings>;

/// A run's folder.
#[derive(Debug, Clone)]
pub(crate) struct SavedRun {
    folder: PathBuf,
}

/// The state from which a run continues.
pub(crate) struct Progress {
    /// Number of epochs that are done.
    pub(crate) epoch: usize,
    /// Their steps.
    pub(crate) history: Vec<EpochHistory>,
}

impl SavedRun {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn history(&self) -> PathBuf {
        self.folder.join("history")
    }

    fn settings(&self) -> PathBuf {
        self.folder.join("run.json")
    }

    fn checkpoint(&self, part: &str, epoch: usize) -> PathBuf {
        self.folder
            .join("checkpoint")
            .join(format!("{part}-{epoch}"))
    }

    pub(crate) fn exists(&self) -> bool {
        self.settings().exists()
    }

    /// Begins a run of `settings`, or makes sure that the run that is to be resumed was one.
    ///
    /// The message of an error names the setting that differs, and both values.
    pub(crate) fn open(&self, settings: &Value) -> Result<(), String> {
        let path = self.settings();
        let unusable = |error: io::Error| format!("'{}': {error}", path.display());
        if !self.exists() {
            let entries = ["checkpoint", "history", "model.mpk"];
            let mut entries = entries.map(|name| self.folder.join(name)).into_iter();
            // Nothing of somebody else is replaced.
            if let Some(entry) = entries.find(|entry| entry.exists()) {
                return Err(format!(
                    "'{}' is there, and no run.json: no run wrote it; name another folder",
                    entry.display()
                ));
            }
            fs::create_dir_all(&self.folder).map_err(unusable)?;
            return burn_mx_files::write(&path, format!("{settings:#}")).map_err(unusable);
        }
        let text = fs::read(&path).map_err(unusable)?;
        let saved: Value = serde_json::from_slice(&text).map_err(|error| unusable(error.into()))?;
        match difference(&saved, settings, "") {
            None => Ok(()),
            Some((field, saved, now)) => Err(format!(
                "'{}' has {field} {saved}, and now it is {now}; give the options that the run was started with, or \
                 another folder",
                path.display()
            )),
        }
    }

    /// The newest complete state, if any. Incomplete states are named on standard error.
    pub(crate) fn progress<B: Backend, M: Record<B>, O: Record<B>>(
        &self,
        device: &B::Device,
    ) -> io::Result<Option<Progress>> {
        let folder = self.folder.join("checkpoint");
        if !folder.exists() {
            return Ok(None);
        }
        let mut epochs: Vec<usize> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let epoch: Option<usize> = name.to_str().and_then(|name| {
                name.strip_prefix("model-")?
                    .strip_suffix(".mpk")?
                    .parse()
                    .ok()
            });
            epochs.extend(epoch);
        }
        epochs.sort_unstable_by(|a, b| b.cmp(a));
        let recorder = FileRecorder::new();
        for epoch in epochs {
            let part = |part| self.checkpoint(part, epoch);
            let model = Recorder::<B>::load::<M>(&recorder, part("model"), device).map(drop);
            let optimizer = Recorder::<B>::load::<O>(&recorder, part("optim"), device).map(drop);
            // Of a constant learning rate, which has no state. A missing file would end in a backtrace of burn-train.
            let scheduler = Recorder::<B>::load::<()>(&recorder, part("scheduler"), device);
            let whole = model
                .and(optimizer)
                .and(scheduler)
                .map_err(io::Error::other)
                .and_then(|()| EpochHistory::read(&self.history(), epoch));
            match whole {
                Ok(history) => return Ok(Some(Progress { epoch, history })),
                Err(error) => eprintln!(
                    "epoch {epoch} in '{}' is incomplete ({error}): continuing from the epoch before",
                    self.folder.display()
                ),
            }
        }
        Ok(None)
    }

    /// Writes the trained model as its own type's record, which has no trace of the enum.
    ///
    /// The message of an error names the file and the reason. burn-record's own error of a full disk has neither.
    pub(crate) fn save_model<B: Backend>(&self, model: Model<B>) -> Result<(), String> {
        match model {
            Model::Ffn(model) => self.save(model),
            Model::Cnn(model) => self.save(model),
            Model::Lstm(model) => self.save(model),
            Model::Transformer(model) => self.save(model),
        }
    }

    fn save<B: Backend>(&self, model: impl Module<B>) -> Result<(), String> {
        let path = self.folder.join("model.mpk");
        let saved = model.save_file(&path, &FileRecorder::new());
        saved.map_err(|error| {
            let reason = output::has_room(&path)
                .map_or_else(|full| full.to_string(), |()| error.to_string());
            format!("cannot write '{}': {reason}", path.display())
        })
    }
}

/// The first field in which two JSON values differ, and both values there.
fn difference<'a>(
    saved: &'a Value,
    now: &'a Value,
    path: &str,
) -> Option<(String, &'a Value, &'a Value)> {
    const MISSING: &Value = &Value::Null;
    match (saved, now) {
        (Value::Object(saved), Value::Object(now)) => {
            let names = saved.keys().chain(now.keys());
            names.into_iter().find_map(|name| {
                let path = match path {
                    "" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                let [saved, now] = [saved, now].map(|fields| fields.get(name).unwrap_or(MISSING));
                difference(saved, now, &path)
            })
        }
        _ => (saved != now).then(|| (path.to_owned(), saved, now)),
    }
}
