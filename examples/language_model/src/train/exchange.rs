//! Data-parallel training on ranks that one process emulates, whose gradients and weights travel in formats.

use std::{fs, path::Path};

use burn::optim::GradientsParams;
use burn_mx::optim::communication::{Communication, CommunicationError, CommunicationState};
use serde::{Deserialize, Serialize};

use super::B;
use crate::{Decoder, Error};

/// The exchange of gradients, and of weights if ranks own parts of them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Exchange {
    /// The parts of a batch.
    pub(super) ranks: usize,
    /// How gradients are summed. A rank's loss is a mean, so the result is a mean, too.
    pub(super) communication: Communication,
    /// How weights are gathered before each step. `None`: each rank has all masters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weights: Option<Communication>,
}

/// The memory of ranks between their exchanges.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ExchangeState {
    #[serde(flatten)]
    gradients: CommunicationState,
    #[serde(default)]
    weights: CommunicationState,
}

/// The settings of this name: a preset of [`Communication`], a format on the wire, `float32`, or the path of fields as JSON. Errors name the
/// `option` of the command line.
fn settings(option: &'static str, name: &str) -> Result<Communication, Error> {
    let refused = |allowed: String| Error::Option {
        option,
        value: name.to_owned(),
        allowed,
    };
    let path = Path::new(name);
    let is_file = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let settings = if is_file {
        let text = fs::read_to_string(path).map_err(Error::io(path))?;
        serde_json::from_str(&text)
            .map_err(|error| refused(format!("fields of Communication as JSON: {error}")))?
    } else {
        Communication::preset(name).unwrap_or_else(|_| Communication {
            format: Some(name.to_owned()),
            ..Communication::default()
        })
    };
    settings.check().map_err(|error| {
        let presets = Communication::PRESETS.join(", ");
        refused(format!(
            "{presets}, a format on the wire, or a file whose name ends with .json ({error})"
        ))
    })?;
    Ok(settings)
}

/// The names of the settings of gradients, and of weights. A file's own name may have a `+`.
fn parts(name: &str) -> (&str, Option<&str>) {
    match name.split_once('+').filter(|_| !Path::new(name).is_file()) {
        Some((gradients, weights)) => (gradients, Some(weights)),
        None => (name, None),
    }
}

/// The exchange's name in the name of a run: of files without folder and ending.
pub(super) fn run_name(name: &str) -> String {
    let short = |name: &str| match name.strip_suffix(".json") {
        Some(stem) => stem.rsplit('/').next().unwrap_or(stem).to_owned(),
        None => name.to_owned(),
    };
    match parts(name) {
        (gradients, Some(weights)) => format!("{}+{}", short(gradients), short(weights)),
        (gradients, None) => short(gradients),
    }
}

fn failed(error: CommunicationError) -> Error {
    Error::Other(format!("--communication: {error}"))
}

impl Exchange {
    /// The exchange of this name: of gradients, or `GRADIENTS+WEIGHTS`. Errors name the `option` of the command line.
    pub(super) fn named(option: &'static str, name: &str, ranks: usize) -> Result<Self, Error> {
        if ranks == 0 {
            return Err(Error::Option {
                option: "--ranks",
                value: ranks.to_string(),
                allowed: "1 or more".into(),
            });
        }
        let (gradients, weights) = parts(name);
        let weights = weights.map(|name| settings(option, name)).transpose()?;
        Ok(Self {
            ranks,
            communication: Communication {
                mean: true,
                ..settings(option, gradients)?
            },
            weights,
        })
    }

    /// Checks that the exchange can sum gradients of this model and of batches with this number of windows.
    pub(super) fn check(&self, model: &Decoder<B>, batch: usize) -> Result<(), Error> {
        if !batch.is_multiple_of(self.ranks) {
            return Err(Error::Option {
                option: "--ranks",
                value: self.ranks.to_string(),
                allowed: format!("a divisor of --batch, {batch}"),
            });
        }
        let none = (0..self.ranks).map(|_| GradientsParams::new()).collect();
        self.reduced(model, none, &mut ExchangeState::default())?;
        self.gathered(model, &mut ExchangeState::default())
            .map(|_| ())
    }

    pub(super) fn reduced(
        &self,
        model: &Decoder<B>,
        of_ranks: Vec<GradientsParams>,
        state: &mut ExchangeState,
    ) -> Result<GradientsParams, Error> {
        self.communication
            .reduce_gradients::<B, _>(model, of_ranks, &mut state.gradients)
            .map_err(failed)
    }

    /// The model as all ranks compute with it.
    pub(super) fn gathered(
        &self,
        model: &Decoder<B>,
        state: &mut ExchangeState,
    ) -> Result<Decoder<B>, Error> {
        let Some(weights) = &self.weights else {
            return Ok(model.clone());
        };
        weights
            .gather_weights(model.clone(), self.ranks, &mut state.weights)
            .map_err(failed)
    }
}
