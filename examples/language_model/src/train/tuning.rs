//! Training that begins with a trained model.

use burn::{
    backend::{Flex, flex::FlexDevice},
    prelude::*,
};
use burn_mx::{
    MxBackend, MxSpecs,
    module::{LoraConfig, distillation_loss, hidden_state_loss},
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
    /// The weight of the [distance of hidden states](hidden_state_loss), the mean over all layers, beside the distance of predictions. 0: hidden
    /// states are not learned.
    pub hidden_states: f64,
    /// The adapters that are trained beside frozen packed weights. `None`: all weights are trained.
    pub lora: Option<LoraConfig>,
}

impl<'a> Tuning<'a> {
    /// Checks that the teacher predicts the same tokens, and that the weights can be packed and have adapters in each format.
    ///
    /// # Errors
    ///
    /// * The vocabularies of model and teacher differ, or hidden states are learned of a teacher with other layers.
    /// * The temperature is not a positive number, or the weight of hidden states is negative.
    /// * The adapters' rank is 0 or larger than a layer, or a format has no packed weights.
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
        if !(self.hidden_states.is_finite() && self.hidden_states >= 0.0) {
            return Err(Error::Option {
                option: "--hidden-states",
                value: self.hidden_states.to_string(),
                allowed: "0 or a positive number".into(),
            });
        }
        let Some(teacher) = self.teacher else {
            return Ok(());
        };
        let sizes = |folder: &Folder| (folder.config.windows.len(), folder.config.width);
        let (layers, width) = sizes(self.from);
        if self.hidden_states > 0.0 && sizes(teacher) != (layers, width) {
            return Err(Error::Option {
                option: "--teacher",
                value: teacher.path().display().to_string(),
                allowed: format!(
                    "beside --hidden-states a model of {layers} layers of width {width}, as '{}'",
                    self.from.path().display()
                ),
            });
        }
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
    hidden_states: f64,
}

impl Teacher {
    pub(super) fn of(tuning: Tuning<'_>) -> Result<Option<Self>, Error> {
        let Some(folder) = tuning.teacher else {
            return Ok(None);
        };
        Ok(Some(Self {
            model: folder.load(&Device::new(FlexDevice, MxSpecs::none())?)?,
            temperature: tuning.temperature,
            hidden_states: tuning.hidden_states,
        }))
    }

    /// The distance of a student's predictions, and of its hidden states, from the teacher's, for all tokens of the windows but the
    /// last ones.
    pub(super) fn loss(&self, student: &Decoder<B>, windows: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let [_, length] = windows.dims();
        let inputs = windows.narrow(1, 0, length - 1);
        let device = inputs.device();
        let plain = Tensor::from_data(inputs.to_data(), &self.model.devices()[0]);
        let of_teacher = |tensor: Tensor<MxBackend<Flex>, 3>| {
            Tensor::<B, 3>::from_data(tensor.into_data(), &device)
        };
        if self.hidden_states == 0.0 {
            let wanted = of_teacher(self.model.forward(plain));
            return distillation_loss(student.forward(inputs), wanted, self.temperature);
        }
        let (wanted, hidden) = self.model.forward_hidden(plain);
        let (logits, states) = student.forward_hidden(inputs);
        let layers = states.len() as f64;
        let distances = (states.into_iter().zip(hidden))
            .map(|(state, wanted)| hidden_state_loss(state, of_teacher(wanted)));
        let distance = distances.reduce(|sum, distance| sum + distance);
        let distance = distance.expect("a model has a layer") * (self.hidden_states / layers);
        distillation_loss(logits, of_teacher(wanted), self.temperature) + distance
    }
}
