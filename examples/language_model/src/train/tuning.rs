//! Training that begins with a trained model.

use burn::{
    backend::{Flex, flex::FlexDevice},
    prelude::*,
};
use burn_mx::{
    MxBackend, MxSpecs,
    module::{LoraConfig, distillation_loss},
};

use super::{B, Device, Format, lora};
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
    /// The adapters that are trained beside frozen packed weights. `None`: all weights are trained.
    pub lora: Option<LoraConfig>,
}

impl<'a> Tuning<'a> {
    /// Checks that the teacher predicts the same tokens, and that the weights can be packed and have adapters in each format.
    ///
    /// # Errors
    ///
    /// If the vocabularies differ, the temperature is not a positive number, the rank is 0 or larger than a layer, or a format
    /// has no packed weights.
    pub fn check(&self, formats: &[Format]) -> Result<(), Error> {
        self.check_teacher()?;
        let Some((from, lora)) = self.adapters() else {
            return Ok(());
        };
        let config = &from.config;
        let [queries, keys] = [config.heads, config.kv_heads].map(|heads| heads * config.head);
        let largest = config.width.min(config.hidden).min(queries).min(keys);
        if !(1..=largest).contains(&lora.rank) {
            return Err(Error::Option {
                option: "--lora",
                value: lora.rank.to_string(),
                allowed: format!("1 to {largest}, the smallest side of the model's linear layers"),
            });
        }
        if !lora.alpha.is_finite() {
            return Err(Error::Option {
                option: "--alpha",
                value: lora.alpha.to_string(),
                allowed: "a finite number".into(),
            });
        }
        let mut formats = formats.iter();
        formats.try_for_each(|format| lora::adapted(from, format, lora, 0).map(|_| ()))
    }

    /// The model to go on from, and the sizes of its adapters.
    pub(super) fn adapters(&self) -> Option<(&'a Folder, LoraConfig)> {
        Some((self.from, self.lora?))
    }

    fn check_teacher(&self) -> Result<(), Error> {
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
