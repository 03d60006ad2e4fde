//! Training that begins with a trained model.

use burn::{
    backend::{Flex, flex::FlexDevice},
    prelude::*,
};
use burn_mx::{MxBackend, MxSpecs, module::distillation_loss};

use super::{B, Device};
use crate::{Decoder, Error, Folder};

/// A trained model to go on from: quantization-aware training.
#[derive(Clone, Copy, Debug)]
pub struct Tuning<'a> {
    /// The weights to begin with.
    pub from: &'a Folder,
    /// The model whose predictions are learned, in float32. `None`: the text's tokens are learned.
    pub teacher: Option<&'a Folder>,
    /// The divisor of the logits of student and teacher.
    pub temperature: f64,
}

impl Tuning<'_> {
    /// Checks that the teacher predicts the same tokens.
    ///
    /// # Errors
    ///
    /// If the vocabularies differ, or the temperature is not a positive number.
    pub fn check(&self) -> Result<(), Error> {
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            return Err(Error::Option {
                option: "--temperature",
                value: self.temperature.to_string(),
                allowed: "a positive number".into(),
            });
        }
        let Some(teacher) = self.teacher else {
            return Ok(());
        };
        let same = self.from.config.vocabulary == teacher.config.vocabulary
            && self.from.tokenizer.get_vocab(true) == teacher.tokenizer.get_vocab(true);
        if same {
            return Ok(());
        }
        Err(Error::Option {
            option: "--teacher",
            value: teacher.path().display().to_string(),
            allowed: format!(
                "a model with the tokens of '{}'",
                self.from.path().display()
            ),
        })
    }
}

/// A model whose predictions are learned, in float32.
pub(super) struct Teacher {
    model: Decoder<MxBackend<Flex>>,
    temperature: f64,
}

impl Teacher {
    pub(super) fn of(tuning: Tuning<'_>) -> Result<Option<Self>, Error> {
        let Some(folder) = tuning.teacher else {
            return Ok(None);
        };
        Ok(Some(Self {
            model: folder.load(&Device::new(FlexDevice, MxSpecs::none())?)?,
            temperature: tuning.temperature,
        }))
    }

    /// The distance of a student's predictions from the teacher's, for all tokens of the windows but the last ones.
    pub(super) fn loss(&self, student: &Decoder<B>, windows: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let [_, length] = windows.dims();
        let inputs = windows.narrow(1, 0, length - 1);
        let plain = Tensor::from_data(inputs.to_data(), &self.model.devices()[0]);
        let wanted = self.model.forward(plain).into_data();
        let wanted = Tensor::from_data(wanted, &inputs.device());
        distillation_loss(student.forward(inputs), wanted, self.temperature)
    }
}
