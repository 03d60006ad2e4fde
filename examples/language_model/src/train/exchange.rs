//! Data-parallel training on ranks that one process emulates, whose gradients travel in a format.

use std::{fs, path::Path};

use burn::optim::GradientsParams;
use burn_mx::optim::communication::{Communication, CommunicationState};
use serde::Serialize;

use super::B;
use crate::{Decoder, Error};

/// The exchange of gradients.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Exchange {
    /// The parts of a batch.
    pub(super) ranks: usize,
    /// How gradients are summed. A rank's loss is a mean, so the result is a mean, too.
    pub(super) communication: Communication,
}

impl Exchange {
    /// The exchange of this name: a preset of [`Communication`], a format on the wire, `float32`, or the path of fields as JSON. Errors name
    /// the `option` of the command line.
    pub(super) fn named(option: &'static str, name: &str, ranks: usize) -> Result<Self, Error> {
        let refused = |allowed: String| Error::Option {
            option,
            value: name.to_owned(),
            allowed,
        };
        if ranks == 0 {
            return Err(Error::Option {
                option: "--ranks",
                value: ranks.to_string(),
                allowed: "1 or more".into(),
            });
        }
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
        Ok(Self {
            ranks,
            communication: Communication {
                mean: true,
                ..settings
            },
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
        self.reduced(model, none, &mut CommunicationState::default())
            .map(|_| ())
    }

    pub(super) fn reduced(
        &self,
        model: &Decoder<B>,
        of_ranks: Vec<GradientsParams>,
        state: &mut CommunicationState,
    ) -> Result<GradientsParams, Error> {
        self.communication
            .reduce_gradients::<B, _>(model, of_ranks, state)
            .map_err(|error| Error::Other(format!("--communication: {error}")))
    }
}
