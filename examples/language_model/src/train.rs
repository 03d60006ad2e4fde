//! Trains one model in several formats, from the same weights on the same batches.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use burn::{
    backend::{Flex, flex::FlexDevice},
    module::AutodiffModule,
    optim::{AdamWConfig, GradientsParams},
    prelude::*,
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder},
};
use burn_mx::{
    MxAutodiff, MxBackend, MxDevice,
    cost::Product,
    module::{
        ColumnRanks, ColumnRanksError, ColumnWatch, LoraConfig, label_parameters, load_adapters,
    },
    optim::{OptimizerStates, OscillationReset, StateBytes, communication::micro_batches},
    record::{Pass, products},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

use crate::{Decoder, DecoderConfig, Error, evaluate::held_out, folder, text::Tokens};

mod adapter;
mod exchange;
mod format;
mod lora;
mod optimizer;
mod saved;
mod tuning;

use exchange::{Exchange, ExchangeState};
pub use format::Format;
pub use lora::Merge;
use optimizer::AnyOptimizer;
use saved::{Files, Saved};
use tuning::Teacher;
pub use tuning::Tuning;

type B = MxAutodiff<Flex>;
type Device = MxDevice<FlexDevice>;

/// The settings of a training run. The defaults are nanoGPT's for a processor.
#[derive(Clone, Debug, Serialize)]
pub struct Training {
    /// Windows in a batch.
    pub batch: usize,
    /// Steps.
    pub steps: usize,
    /// The highest learning rate, after the first 100 steps; it falls to a tenth along half a cosine.
    pub learning_rate: f64,
    /// Steps between two validations, after each of which the run can be resumed.
    pub interval: usize,
    /// The seed of weights and batches.
    pub seed: u64,
    /// Tokens of a window, if they are fewer than the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// The reset of weights that oscillate between two quantized values. `None`: no reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<OscillationReset>,
    /// The steps that rank columns, in a format with hot columns that are fixed.
    #[serde(skip_serializing_if = "is_default")]
    pub columns: ColumnRanks,
}

/// Folders of runs from before this setting do not have it.
fn is_default(columns: &ColumnRanks) -> bool {
    *columns == ColumnRanks::default()
}

/// The losses of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The mean training loss since the last validation, in nats a token, by the number of steps. A balance of experts' loads is in.
    pub training: Vec<(usize, f32)>,
    /// The loss on text that is not trained on, in nats a token, by the number of steps.
    pub validation: Vec<(usize, f32)>,
    /// Time of all steps.
    pub time: Duration,
    /// Bytes of the optimizer's states.
    #[serde(default)]
    pub states: StateBytes,
    /// Weights that were reset, in a run with resets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets: Option<u64>,
    /// The errors of the merge of adapters, after the last step of a run that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
}

/// The data of all runs.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// To train on.
    pub training: &'a Tokens,
    /// To validate on.
    pub validation: &'a Tokens,
    /// Makes tokens of text.
    pub tokenizer: &'a Tokenizer,
    /// A trained model to go on from, with this tokenizer. `None`: random weights.
    pub tuning: Option<Tuning<'a>>,
}

/// Windows of validation data while a model trains, and their batch. Only the end of a run uses all validation data.
const VALIDATION: [usize; 2] = [240, 48];

/// Steps in which the learning rate rises.
const WARM_UP: usize = 100;

impl Training {
    fn learning_rate(&self, step: usize) -> f64 {
        let peak = self.learning_rate;
        if step < WARM_UP {
            return peak * (step + 1) as f64 / WARM_UP as f64;
        }
        let way = (step - WARM_UP) as f64 / self.steps.saturating_sub(WARM_UP).max(1) as f64;
        let share = 0.5 * (1.0 + (way.min(1.0) * core::f64::consts::PI).cos());
        peak * (0.1 + 0.9 * share)
    }

    /// Trains a decoder in this format, or goes on where an earlier run in the same folder was stopped. `report` is called after
    /// each step with the number of steps, and the curve so far. Returns the model of the folder, to predict with: with adapters, the
    /// merged one.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written, or has a run with other settings or of adapters for other weights.
    pub fn run(
        &self,
        config: &DecoderConfig,
        format: &Format,
        data: Data<'_>,
        path: &Path,
        mut report: impl FnMut(usize, &Curve),
    ) -> Result<(Decoder<MxBackend<Flex>>, Curve), Error> {
        let mut trainer = Trainer::new(self, config, format, data)?;
        let saved = Saved::open(path, self.settings(config, format, data))?;
        let mut curve = Curve::default();
        let mut first = 0;
        if let Some((step, so_far)) = saved.progress()? {
            trainer = trainer.load(&saved, step)?;
            (first, curve) = (step, so_far);
        }
        let mut losses = Vec::new();
        let mut began = Instant::now();
        for step in first..self.steps {
            let loss;
            (trainer, loss) = trainer.step(step);
            losses.push(loss);
            let done = step + 1;
            if done.is_multiple_of(self.interval) || done == self.steps {
                curve.time += began.elapsed();
                let mean = losses.iter().sum::<f32>() / losses.len() as f32;
                curve.training.push((done, mean));
                losses.clear();
                let loss = trainer.validate(&trainer.model.valid());
                curve.validation.push((done, loss));
                curve.states = trainer.optimizer.state_bytes();
                curve.resets = trainer.optimizer.resets();
                let exchange = trainer.exchange.as_ref().map(|(_, state)| state);
                let columns = trainer.columns.as_ref();
                let columns = columns.map(|watch| watch.record(&trainer.model));
                saved.save(done, &trainer.model, &trainer.optimizer)?;
                saved.save_json("exchange", done, exchange)?;
                saved.save_json("columns", done, columns.as_ref())?;
                saved.finish(done, &curve)?;
                began = Instant::now();
            }
            report(done, &curve);
        }
        let mut model = trainer.model.valid();
        let Some((from, lora)) = data.tuning.and_then(|tuning| tuning.adapters()) else {
            folder::save(path, config, data.tokenizer, &model)?;
            if let Some(watch) = &trainer.columns {
                folder::save_columns(path, &watch.record(&trainer.model))?;
            }
            return Ok((model, curve));
        };
        lora::save(&path.join("adapter"), from, lora, &mut model)?;
        let (model, merge) = lora::merged(model)?;
        folder::save_packed(path, config, data.tokenizer, &model)?;
        curve.merge = Some(Merge {
            loss: trainer.validate(&model),
            ..merge
        });
        Ok((model, curve))
    }

    /// Tokens of a window.
    fn window(&self, config: &DecoderConfig) -> usize {
        self.window.unwrap_or(config.context)
    }

    /// The weights that all formats start from, untouched by the device's.
    fn start(
        &self,
        config: &DecoderConfig,
        tuning: Option<Tuning<'_>>,
        device: &Device,
    ) -> Result<Decoder<B>, Error> {
        let plain = Device::default();
        B::seed(&plain, self.seed);
        let model = match tuning {
            Some(tuning) => tuning.from.load::<B>(&plain)?,
            None => config.init::<B>(&plain),
        };
        let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
        let other = |error: burn::record::RecorderError| Error::Other(error.to_string());
        let bytes = Recorder::<B>::record(&recorder, model.into_record(), ()).map_err(other)?;
        let record = recorder.load(bytes, device).map_err(other)?;
        Ok(config.init(device).load_record(record))
    }

    /// Checks that a decoder of this config has weights to reset in a format, if there are resets.
    ///
    /// # Errors
    ///
    /// If a field of [`reset`](Self::reset) has a value that is not allowed, or the format has no quantized weight that is not drawn at random.
    pub fn check_reset(&self, config: &DecoderConfig, format: &Format) -> Result<(), Error> {
        let Some(reset) = self.reset else {
            return Ok(());
        };
        let model = format.set_layers(label_parameters(config.init(&format.device()?)))?;
        let optimizer = AdamWConfig::new().init::<B, Decoder<B>>();
        let checked = reset.optimizer(optimizer, &model).map(|_| ());
        checked.map_err(|error| Error::Other(format!("{}: {error}", format.name)))
    }

    /// The settings that must be the same when a run is resumed.
    fn settings(&self, config: &DecoderConfig, format: &Format, data: Data<'_>) -> Value {
        let mut settings = json!({
            "model": config.to_json(),
            "training": self,
            "format": format.recipe,
            "text": [data.training.len(), data.validation.len()],
        });
        if format.is_muon {
            settings["optimizer"] = json!("muon");
        }
        if format.states != OptimizerStates::default() {
            settings["optimizer_states"] = json!(format.states);
        }
        if let Some(exchange) = &format.exchange {
            settings["exchange"] = json!(exchange);
        }
        if let Some(tuning) = data.tuning {
            settings["from"] = json!(tuning.from.path());
            if let Some(teacher) = tuning.teacher {
                settings["teacher"] = json!(teacher.path());
                settings["temperature"] = json!(tuning.temperature);
                if tuning.hidden_states != 0.0 {
                    settings["hidden_states"] = json!(tuning.hidden_states);
                }
            }
            if let Some(LoraConfig { rank, alpha, dora }) = tuning.lora {
                settings["lora"] = json!({ "rank": rank, "alpha": alpha, "dora": dora });
            }
        }
        settings
    }
}

/// A decoder in training, one step at a time.
pub struct Trainer<'a> {
    settings: &'a Training,
    data: Data<'a>,
    window: usize,
    device: Device,
    model: Decoder<B>,
    teacher: Option<Teacher>,
    optimizer: AnyOptimizer,
    exchange: Option<(Exchange, ExchangeState)>,
    columns: Option<ColumnWatch>,
}

impl<'a> Trainer<'a> {
    /// A decoder in this format, with the weights that all formats start from.
    ///
    /// # Errors
    ///
    /// If the model does not fit to the format.
    pub fn new(
        settings: &'a Training,
        config: &DecoderConfig,
        format: &Format,
        data: Data<'a>,
    ) -> Result<Self, Error> {
        let device = format.device()?;
        let teacher = data
            .tuning
            .and_then(|tuning| Teacher::of(tuning).transpose());
        let model = match data.tuning.and_then(|tuning| tuning.adapters()) {
            Some((from, lora)) => lora::adapted(from, format, lora, settings.seed)?,
            None => {
                let model = settings.start(config, data.tuning, &device)?;
                format.set_layers(label_parameters(model))?
            }
        };
        if let Some(exchange) = &format.exchange {
            exchange.check(&model, settings.batch)?;
        }
        let columns = match settings.columns.watch(&model, 0) {
            Err(ColumnRanksError::NoLayer) => None,
            watch => Some(watch.map_err(|error| Error::Other(error.to_string()))?),
        };
        Ok(Self {
            settings,
            data,
            columns,
            window: settings.window(config),
            device,
            teacher: teacher.transpose()?,
            optimizer: AnyOptimizer::new(settings.reset, format, &model)?,
            exchange: (format.exchange.clone())
                .map(|exchange| (exchange, ExchangeState::default())),
            model,
        })
    }

    /// Whether the format has hot columns that a window of steps chooses ([`Training::columns`]).
    #[must_use]
    pub fn ranks_columns(&self) -> bool {
        self.columns.is_some()
    }

    /// The matrix products of a step, with their formats.
    #[must_use]
    pub fn products(&self) -> Vec<Product> {
        products(Pass::Training, || {
            self.model.training_loss(self.batch(0));
        })
    }

    /// The batch of a step, the same in each format.
    fn batch(&self, step: usize) -> Tensor<B, 2, Int> {
        // Far apart, so that no run has the batches of another seed.
        let seed = (self.settings.seed << 32) + step as u64;
        let shape = [self.settings.batch, self.window + 1];
        self.data.training.windows::<B>(shape, seed, &self.device)
    }

    /// One step. Returns the loss before it, too, in nats a token.
    pub fn step(mut self, step: usize) -> (Self, f32) {
        let windows = self.batch(step);
        let (gradients, value) = match self.exchange.take() {
            None => self.gradients(&self.model, windows),
            Some((exchange, mut state)) => {
                let parts = micro_batches(windows, exchange.ranks).expect("the ranks are checked");
                let model = exchange.gathered(&self.model, &mut state);
                let model = model.expect("the exchange is checked");
                let of_ranks = parts.into_iter().map(|part| self.gradients(&model, part));
                let (of_ranks, values): (Vec<_>, Vec<_>) = of_ranks.unzip();
                let reduced = exchange.reduced(&self.model, of_ranks, &mut state);
                let reduced = reduced.expect("the exchange is checked");
                let mean = values.iter().sum::<f32>() / exchange.ranks as f32;
                self.exchange = Some((exchange, state));
                (reduced, mean)
            }
        };
        let rate = self.settings.learning_rate(step);
        self.model = self.optimizer.step(rate, self.model, gradients);
        if let Some(columns) = &mut self.columns {
            self.model = columns.after_step(self.model);
        }
        (self, value)
    }

    /// The gradients of these windows, and their loss.
    fn gradients(&self, model: &Decoder<B>, windows: Tensor<B, 2, Int>) -> (GradientsParams, f32) {
        let loss = match &self.teacher {
            Some(teacher) => teacher.loss(model, windows),
            None => model.training_loss(windows),
        };
        let value = loss.clone().into_scalar();
        (GradientsParams::from_grads(loss.backward(), model), value)
    }

    /// The loss of a model on the windows that validate while the model trains.
    fn validate(&self, model: &Decoder<MxBackend<Flex>>) -> f32 {
        let [count, batch] = VALIDATION;
        let shape = [count, self.window + 1];
        let windows = self.data.validation.windows(shape, u64::MAX, &self.device);
        held_out(model, windows.split(batch, 0))
    }

    /// Takes model and optimizer as they were saved after this many steps.
    fn load(mut self, saved: &Saved, step: usize) -> Result<Self, Error> {
        let failed = |error: burn::record::RecorderError| Error::Other(error.to_string());
        let recorder = Files::new();
        let record = recorder.load(saved.part("model", step), &self.device);
        self.model = load_adapters(self.model, record.map_err(failed)?)
            .map_err(|error| Error::Other(error.to_string()))?;
        let optimizer = self
            .optimizer
            .load(saved.part("optimizer", step), &self.device);
        self.optimizer = optimizer.map_err(failed)?;
        if let Some((_, state)) = &mut self.exchange {
            *state = saved.json("exchange", step)?;
        }
        if self.columns.take().is_some() {
            let record = saved.json("columns", step)?;
            let resumed = self.settings.columns.resume(self.model, &record);
            let (model, watch) = resumed.map_err(|error| Error::Other(error.to_string()))?;
            (self.model, self.columns) = (model, Some(watch));
        }
        Ok(self)
    }
}
