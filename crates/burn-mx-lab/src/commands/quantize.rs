//! Quantizes a trained model by named configurations and shows what that costs: size and accuracy, as a table and a chart.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- quantize --config all
//! cargo run --release --bin burn-mx-lab -- quantize --architecture transformer --config MXFP4E2M1 --config MXFP4E2M1_ADAQUANT
//! cargo run --release --bin burn-mx-lab -- compare --model cnn --save run && \
//!     cargo run --release --bin burn-mx-lab -- quantize --model run/fp32/seed-0/model.mpk --config MX6
//! ```
//!
//! Without `--model` it trains the model first, as `compare` does in FP32. Calibration data are training items. The table has
//! the size of each checkpoint, and the accuracy of the loaded checkpoint on the test items.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use burn::{
    backend::{Autodiff, Flex, flex::FlexDevice},
    data::dataloader::DataLoader,
    module::AutodiffModule,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    prelude::*,
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder, RecorderError},
};
use burn_mx::{
    MxDevice,
    cost::Cost,
    ptq::{PtqError, Quantizer, TunedLayer},
};
use burn_mx_lab::quantization::{
    B, FLOAT, NamedConfig, Options, QuantizationPlan, QuantizedRow, Score, among_first, inference,
    progress, sqnr, unusable,
};
use clap::value_parser;
use indicatif::{ProgressBar, ProgressStyle};

use super::Refusal;
use crate::training::{
    epochs::{Epochs, in_order},
    models::{Model, ModelName, Sizes},
    saved::FileRecorder,
    tasks::{Batch, Split, Task},
};

/// Items in a batch of the training, as `compare` has it.
const TRAIN_BATCH: usize = 64;
/// Items in a batch of an evaluation.
const TEST_BATCH: usize = 256;

/// Quantize a trained model by named configurations, and measure its accuracy
#[derive(Debug, clap::Args)]
pub(crate) struct QuantizeArgs {
    #[command(flatten)]
    options: Options,

    /// Record of a trained model from `compare --save`; without this option, the program trains a model
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Which model
    #[arg(long, value_enum, default_value_t = ModelName::Cnn)]
    architecture: ModelName,

    /// Passes over the training items, if the program trains the model
    #[arg(long, conflicts_with = "model", value_parser = value_parser!(u64).range(1..=10_000))]
    epochs: Option<u64>,

    /// Training items to calibrate with
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u64).range(1..))]
    calibration: u64,
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<(), Box<dyn Error>> {
    measure(args, args.plan().map_err(Refusal)?)
}

impl QuantizeArgs {
    fn plan(&self) -> Result<QuantizationPlan, String> {
        if let Some(model) = &self.model {
            fs::File::open(model).map_err(|error| unusable("--model", model, error))?;
        }
        self.options.plan(self.architecture.name(), 1e-5)
    }
}

fn measure(args: &QuantizeArgs, plan: QuantizationPlan) -> Result<(), Box<dyn Error>> {
    let task = args.architecture.task();
    let split = task.load()?;
    // Everything outside of quantized layers is float32.
    let device = MxDevice::new(FlexDevice, "none")?;
    let model = float_model(args, &split, &device)?;
    let test = in_order::<B>(task, &split.test, TEST_BATCH, &device);
    let calibration = calibration(args, task, &split, &device);
    let (model, bytes) = saved_and_loaded(args, &plan, FLOAT, model, &device)?;
    let (float, wanted) = scores(task, &model, test.as_ref());
    let mut rows = vec![QuantizedRow {
        config: FLOAT.into(),
        bytes,
        scores: float,
        sqnr: None,
        tuned: Vec::new(),
        cost: cost(&model, &calibration[0]),
    }];
    for NamedConfig { name, quantizer } in &plan.configs {
        let bar = progress(name)?;
        let (quantized, tuned) = quantized(&model, quantizer, &calibration, |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })?;
        bar.finish_and_clear();
        let (quantized, bytes) = saved_and_loaded(args, &plan, name, quantized, &device)?;
        let (scores, logits) = scores(task, &quantized, test.as_ref());
        let cost = cost(&quantized, &calibration[0]);
        rows.push(QuantizedRow {
            config: name.clone(),
            bytes,
            scores,
            sqnr: Some(sqnr(&logits, &wanted)),
            tuned,
            cost,
        });
    }
    let title = format!(
        "Noise of the {}'s logits after quantization",
        args.architecture.name()
    );
    plan.report(&title, &rows)
}

/// The model before it is quantized: from its record, or trained.
fn float_model(
    args: &QuantizeArgs,
    split: &Split,
    device: &MxDevice<FlexDevice>,
) -> Result<Model<B>, Box<dyn Error>> {
    let architecture = args.architecture.of(Sizes::default())?;
    if let Some(file) = &args.model {
        return Ok(load(architecture.init(device), file, device)?);
    }
    type Train = Autodiff<Flex>;
    Train::seed(&FlexDevice, args.options.seed);
    let mut model = architecture.init::<Train>(&FlexDevice);
    let mut optimizer = AdamWConfig::new().init();
    let reseed = Arc::new(|seed| Train::seed(&FlexDevice, seed));
    let epochs = args.epochs.unwrap_or(args.architecture.epochs() as u64);
    let task = args.architecture.task();
    let loader = Epochs::<Train>::new(
        task,
        split.train.clone(),
        TRAIN_BATCH,
        (args.options.seed, 0),
        FlexDevice,
        reseed,
    );
    let bar = ProgressBar::new(epochs);
    bar.set_style(ProgressStyle::with_template(
        "training {bar:30} {pos}/{len} epochs, {eta}",
    )?);
    for _ in bar.wrap_iter(0..epochs) {
        for batch in loader.iter() {
            let loss = model.output(batch).loss;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(args.architecture.learning_rate(), model, grads);
        }
    }
    bar.finish_and_clear();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let weights = Recorder::<Flex>::record(&recorder, model.valid().into_record(), ())?;
    let weights = Recorder::<B>::load(&recorder, weights, device)?;
    Ok(architecture.init::<B>(device).load_record(weights))
}

/// The model out of the checkpoint that it was saved in, by its own paths, and the bytes of that file.
fn saved_and_loaded(
    args: &QuantizeArgs,
    plan: &QuantizationPlan,
    config: &str,
    model: Model<B>,
    device: &MxDevice<FlexDevice>,
) -> Result<(Model<B>, u64), Box<dyn Error>> {
    let fresh = args.architecture.of(Sizes::default())?.init::<B>(device);
    macro_rules! each {
        ($($variant:ident)*) => {
            match (model, fresh) {
                $((Model::$variant(model), Model::$variant(fresh)) => {
                    let (model, bytes) = plan.saved_and_loaded(config, model, fresh)?;
                    Ok((Model::$variant(model), bytes))
                })*
                _ => unreachable!("both are of one architecture"),
            }
        };
    }
    each! { Ffn Cnn Lstm Transformer }
}

/// The model with the values of a record that `compare` saved, which has the model's own record type.
fn load(
    model: Model<B>,
    file: &Path,
    device: &MxDevice<FlexDevice>,
) -> Result<Model<B>, RecorderError> {
    let recorder = FileRecorder::new();
    Ok(match model {
        Model::Ffn(model) => Model::Ffn(model.load_file(file, &recorder, device)?),
        Model::Cnn(model) => Model::Cnn(model.load_file(file, &recorder, device)?),
        Model::Lstm(model) => Model::Lstm(model.load_file(file, &recorder, device)?),
        Model::Transformer(model) => Model::Transformer(model.load_file(file, &recorder, device)?),
    })
}

/// Batches of training items.
fn calibration(
    args: &QuantizeArgs,
    task: Task,
    split: &Split,
    device: &MxDevice<FlexDevice>,
) -> Vec<Batch<B>> {
    let count = split.train.len().min(args.calibration as usize);
    let items: Vec<_> = (0..count).filter_map(|at| split.train.get(at)).collect();
    let batches = items.chunks(TRAIN_BATCH);
    batches.map(|items| task.batch(items, device)).collect()
}

/// The model quantized, by its own paths, in which the enum has no part; and what fast fine-tuning did.
fn quantized(
    model: &Model<B>,
    quantizer: &Quantizer,
    calibration: &[Batch<B>],
    progress: impl FnMut(usize, usize),
) -> Result<(Model<B>, Vec<TunedLayer>), PtqError> {
    macro_rules! each {
        ($($variant:ident)*) => {
            match model {
                $(Model::$variant(model) => {
                    let forward = |model: &_, batch: &Batch<B>| {
                        Model::$variant(Clone::clone(model)).output(batch.clone()).output
                    };
                    let model = model.clone();
                    let quantized =
                        quantizer.quantize_with_progress(model, calibration, forward, progress)?;
                    Ok((Model::$variant(quantized.model), quantized.tuned))
                })*
            }
        };
    }
    each! { Ffn Cnn Lstm Transformer }
}

/// The cost of a batch.
fn cost(model: &Model<B>, batch: &Batch<B>) -> Cost {
    let model = model.clone().labelled();
    inference(|| drop(model.output(batch.clone())))
}

/// The scores, and the logits of all items.
fn scores(
    task: Task,
    model: &Model<B>,
    test: &dyn DataLoader<B, Batch<B>>,
) -> (Vec<Score>, Vec<f32>) {
    let mut all = Vec::new();
    let mut classes = Vec::new();
    let (mut loss, mut solved) = (0.0, 0);
    for batch in test.iter() {
        if task == Task::Sums {
            solved += model.solved(batch.clone());
        }
        let output = model.output(batch);
        let [count, _] = output.output.dims();
        loss += output.loss.into_scalar().elem::<f64>() * count as f64;
        let logits = output.output.into_data().convert::<f32>();
        all.extend(logits.into_vec::<f32>().expect("they were converted"));
        let targets = output.targets.into_data();
        classes.extend(targets.iter::<i64>().map(|class| class as usize));
    }
    let scores = match task {
        Task::Digits => {
            let [first, five] = among_first(&all, &classes);
            vec![
                Score::share("top1", "Top1", first),
                Score::share("top5", "Top5", five),
            ]
        }
        Task::Sums => {
            let exact_match = solved as f64 / test.num_items() as f64;
            let perplexity = (loss / classes.len() as f64).exp();
            vec![
                Score::share("exact_match", "Exact match", exact_match),
                Score::number("perplexity", "Perplexity", perplexity),
            ]
        }
    };
    (scores, all)
}
