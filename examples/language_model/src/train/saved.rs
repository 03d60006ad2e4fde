//! The files of a run, from which the run goes on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use burn::{
    prelude::*,
    record::{BinFileRecorder, FullPrecisionSettings, Recorder, RecorderError},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{B, Curve, optimizer::AnyOptimizer};
use crate::{Decoder, Error, folder};

pub(super) type Files = BinFileRecorder<FullPrecisionSettings>;

/// The folder of a run: `run.json`, and in `progress.json` how far it is.
pub(super) struct Saved {
    path: PathBuf,
}

impl Saved {
    /// Begins a run with these settings, or checks that an existing run has the same settings.
    pub(super) fn open(path: &Path, settings: Value) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(Error::io(path))?;
        let file = path.join("run.json");
        match fs::read(&file) {
            Err(_) => {
                let names = ["progress.json", "model.safetensors", folder::COLUMNS];
                let names = names.into_iter().chain(folder::DESCRIPTION);
                let mut files = names.map(|name| path.join(name));
                // Nothing of somebody else is replaced.
                if let Some(file) = files.find(|file| file.exists()) {
                    return Err(Error::Option {
                        option: "--out",
                        value: file.display().to_string(),
                        allowed:
                            "a new folder, or one of a run; there is no run.json beside this file"
                                .into(),
                    });
                }
                fs::write(&file, format!("{settings:#}\n")).map_err(Error::io(&file))?;
            }
            Ok(text) if serde_json::from_slice::<Value>(&text).ok() == Some(settings) => {}
            Ok(_) => {
                return Err(Error::Option {
                    option: "--out",
                    value: path.display().to_string(),
                    allowed: "a new folder, or one of a run with the same settings, which goes on"
                        .into(),
                });
            }
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    pub(super) fn part(&self, part: &str, step: usize) -> PathBuf {
        self.path.join(format!("{part}-{step}"))
    }

    pub(super) fn progress(&self) -> Result<Option<(usize, Curve)>, Error> {
        let file = self.path.join("progress.json");
        let Ok(text) = fs::read(&file) else {
            return Ok(None);
        };
        let progress = serde_json::from_slice(&text);
        progress.map_err(|error| Error::io(&file)(error.into()))
    }

    fn json_file(&self, part: &str, step: usize) -> PathBuf {
        self.part(part, step).with_extension("json")
    }

    /// A part that [`save_json`](Self::save_json) wrote.
    pub(super) fn json<T: DeserializeOwned>(&self, part: &str, step: usize) -> Result<T, Error> {
        let file = self.json_file(part, step);
        let text = fs::read(&file).map_err(Error::io(&file))?;
        serde_json::from_slice(&text).map_err(|error| Error::io(&file)(error.into()))
    }

    /// Writes a part that some runs have.
    pub(super) fn save_json(
        &self,
        part: &str,
        step: usize,
        value: Option<&impl Serialize>,
    ) -> Result<(), Error> {
        let Some(value) = value else {
            return Ok(());
        };
        let file = self.json_file(part, step);
        let text = serde_json::to_vec(value).expect("bits are JSON");
        fs::write(&file, text).map_err(Error::io(&file))
    }

    /// Writes model and optimizer.
    pub(super) fn save(
        &self,
        step: usize,
        model: &Decoder<B>,
        optimizer: &AnyOptimizer,
    ) -> Result<(), Error> {
        let failed = |error: RecorderError| Error::Other(error.to_string());
        let recorder = Files::new();
        let record = model.clone().into_record();
        Recorder::<B>::record(&recorder, record, self.part("model", step)).map_err(failed)?;
        optimizer.save(self.part("optimizer", step)).map_err(failed)
    }

    /// The run is at this step. `progress.json` comes after all parts and at once, so that it names files that are whole.
    pub(super) fn finish(&self, step: usize, curve: &Curve) -> Result<(), Error> {
        let before = self.progress()?;
        let file = self.path.join("progress.json");
        let new = self.path.join("progress.json.new");
        let text = serde_json::to_vec(&(step, curve)).expect("numbers are JSON");
        fs::write(&new, text).map_err(Error::io(&new))?;
        fs::rename(&new, &file).map_err(Error::io(&file))?;
        if let Some((old, _)) = before.filter(|(old, _)| *old != step) {
            for part in ["model", "optimizer"] {
                fs::remove_file(self.part(part, old).with_extension("bin")).ok();
            }
            for part in ["exchange", "columns"] {
                fs::remove_file(self.json_file(part, old)).ok();
            }
        }
        Ok(())
    }
}
