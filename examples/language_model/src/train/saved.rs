//! The files of a run, from which the run goes on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use burn::{
    prelude::*,
    record::{BinFileRecorder, FullPrecisionSettings, Recorder, RecorderError},
};
use serde_json::Value;

use super::{B, Curve, exchange::ExchangeState, optimizer::AnyOptimizer};
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
                let names = ["progress.json", "model.safetensors"];
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

    fn exchange_file(&self, step: usize) -> PathBuf {
        self.part("exchange", step).with_extension("json")
    }

    /// The memory of ranks between their exchanges.
    pub(super) fn exchange(&self, step: usize) -> Result<ExchangeState, Error> {
        let file = self.exchange_file(step);
        let text = fs::read(&file).map_err(Error::io(&file))?;
        serde_json::from_slice(&text).map_err(|error| Error::io(&file)(error.into()))
    }

    /// `progress.json` comes last and at once, so that it names files that are whole.
    pub(super) fn save(
        &self,
        step: usize,
        curve: &Curve,
        model: &Decoder<B>,
        optimizer: &AnyOptimizer,
        exchange: Option<&ExchangeState>,
    ) -> Result<(), Error> {
        let failed = |error: RecorderError| Error::Other(error.to_string());
        let before = self.progress()?;
        let recorder = Files::new();
        let record = model.clone().into_record();
        Recorder::<B>::record(&recorder, record, self.part("model", step)).map_err(failed)?;
        optimizer
            .save(self.part("optimizer", step))
            .map_err(failed)?;
        if let Some(exchange) = exchange {
            let file = self.exchange_file(step);
            let text = serde_json::to_vec(exchange).expect("bits are JSON");
            fs::write(&file, text).map_err(Error::io(&file))?;
        }
        let file = self.path.join("progress.json");
        let new = self.path.join("progress.json.new");
        let text = serde_json::to_vec(&(step, curve)).expect("numbers are JSON");
        fs::write(&new, text).map_err(Error::io(&new))?;
        fs::rename(&new, &file).map_err(Error::io(&file))?;
        if let Some((old, _)) = before.filter(|(old, _)| *old != step) {
            for part in ["model", "optimizer"] {
                fs::remove_file(self.part(part, old).with_extension("bin")).ok();
            }
            fs::remove_file(self.exchange_file(old)).ok();
        }
        Ok(())
    }
}
