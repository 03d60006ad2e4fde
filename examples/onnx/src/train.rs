//! Quantization-aware training of the network: the numbers of the model that `quantize_onnx` writes.

use std::{
    collections::HashSet,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use burn::{
    backend::{Flex, flex::FlexDevice},
    module::AutodiffModule,
    nn::loss::CrossEntropyLossConfig,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    prelude::*,
    tensor::TensorData,
};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs, QatConfig, SlotFormat};
use burn_mx_onnx::Configuration;
use clap::{Args, value_parser};
use flate2::read::GzDecoder;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use safetensors::{Dtype, serialize, tensor::TensorView};

use burn_mx_lab::{
    own_files,
    quantization::{B, among_first, unusable},
};

use crate::{Digits, ONNX, digits_cnn::Model, tuned};

/// The backend of the training.
type Training = MxAutodiff<Flex>;

/// All digits, in the file's order; the test digits are among them.
static ALL: &[u8] = include_bytes!("../../../data/digits.csv.gz");

const SIDE: usize = 8;
const CLASSES: usize = 10;

#[derive(Debug, Args)]
pub(super) struct Train {
    /// Format of weights and activations, by a name that `quantize_onnx --config` knows
    #[arg(long, value_name = "NAME", default_value = "MXFP4E2M1")]
    config: String,

    /// Quantize weights alone, as `quantize_onnx --weights-only` does
    #[arg(long)]
    weights_only: bool,

    /// Passes over the training digits
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u64).range(1..=10_000))]
    epochs: u64,

    /// Learning rate of AdamW
    #[arg(long, value_name = "RATE", default_value_t = 2e-4)]
    learning_rate: f64,

    /// Digits of a step
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u64).range(1..=1_000))]
    batch_size: u64,

    /// Seed of the batches' order
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Folder for `tuned.safetensors`, the trained parameters by their names in the ONNX file, and `logits.safetensors`, the logits of the
    /// test digits; created if missing
    #[arg(long, value_name = "DIR", default_value = "out/cnn")]
    out: PathBuf,
}

/// The work, checked.
pub(super) struct TrainingPlan {
    options: Train,
    specs: MxSpecs,
    tuned: PathBuf,
    logits: PathBuf,
}

impl Train {
    /// The plan, or the text of the error for the command line.
    pub(super) fn plan(self) -> Result<TrainingPlan, String> {
        let text = &self.config;
        let unknown = |error: &dyn Error| format!("--config '{text}': {error}");
        let config: Configuration = text.parse().map_err(|error| unknown(&error))?;
        if config.is_tuned {
            return Err(format!(
                "--config '{text}': the training tunes weights; allowed: the name without `_ADAQUANT`"
            ));
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            let rate = self.learning_rate;
            return Err(format!("--learning-rate {rate}: allowed: a number above 0"));
        }
        let format = SlotFormat::Block(config.format);
        let specs = QatConfig {
            w_elem_format: Some(format),
            a_elem_format: (!self.weights_only).then_some(format),
            // ONNX Runtime computes all else in float32.
            bfloat: 0,
            ..QatConfig::default()
        };
        let specs = specs.specs().map_err(|error| unknown(&error))?;
        fs::create_dir_all(&self.out).map_err(|error| unusable("--out", &self.out, error))?;
        let [tuned, logits] =
            ["tuned", "logits"].map(|name| self.out.join(format!("{name}.safetensors")));
        for path in [&tuned, &logits] {
            own_files::check(path).map_err(|error| format!("--out: {error}"))?;
        }
        Ok(TrainingPlan {
            options: self,
            specs,
            tuned,
            logits,
        })
    }
}

impl TrainingPlan {
    /// Trains, prints a table, and writes the files.
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        let digits = Digits::read()?;
        let device = MxDevice::new(FlexDevice, &self.specs)?;
        // Clones would share the statistics of batch norms with the model that is trained.
        let [start, model] = [(); 2].map(|()| Model::<Training>::from_embedded(&device));
        let model = self.train(model, &digits, &device)?;

        println!("| model | loss | top-1 |\n| --- | ---: | ---: |");
        let float = logits(&Model::from_embedded(&digits.device), &digits.test)?;
        row("float32", &float, &digits);
        let test = digits.test.clone().to_device(&device);
        row("to nearest", &logits(&start.valid(), &test)?, &digits);
        let trained = logits(&model.valid(), &test)?;
        row("trained", &trained, &digits);

        tuned::keep(&self.tuned, Path::new(ONNX), &start.valid(), &model.valid())?;
        own_files::note(&self.tuned)?;
        let bytes: Vec<u8> = trained.iter().flat_map(|x| x.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![digits.labels.len(), CLASSES], &bytes)?;
        own_files::write(&self.logits, serialize([("logits", view)], None)?)?;
        for path in [&self.tuned, &self.logits] {
            println!("{}", path.display());
        }
        Ok(())
    }

    /// The model after all epochs. Batch norms go on averaging their statistics.
    fn train(
        &self,
        mut model: Model<Training>,
        digits: &Digits,
        device: &MxDevice<FlexDevice>,
    ) -> Result<Model<Training>, Box<dyn Error>> {
        let mut rows = training_digits(digits)?;
        let mut optimizer = AdamWConfig::new().init();
        let cross_entropy = CrossEntropyLossConfig::new().init(device);
        let mut order = StdRng::seed_from_u64(self.options.seed);
        for _ in 0..self.options.epochs {
            rows.shuffle(&mut order);
            for rows in rows.chunks(self.options.batch_size as usize) {
                let (images, labels) = batch(rows, device);
                let loss = cross_entropy.forward(model.forward(images), labels);
                let grads = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(self.options.learning_rate, model, grads);
            }
        }
        Ok(model)
    }
}

/// The digits beside the test digits: 64 pixels from 0 to 16, then the label.
fn training_digits(digits: &Digits) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let test = digits.test.to_data().into_vec::<f32>()?;
    let test: HashSet<Vec<u8>> = test
        .chunks(SIDE * SIDE)
        .map(|image| image.iter().map(|pixel| (16.0 * pixel) as u8).collect())
        .collect();
    let rows = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(GzDecoder::new(ALL))
        .into_deserialize()
        .collect::<csv::Result<Vec<Vec<u8>>>>()?;
    let is_free = |row: &Vec<u8>| !test.contains(&row[..SIDE * SIDE]);
    Ok(rows.into_iter().filter(is_free).collect())
}

/// Images `[N, 1, 8, 8]` from 0 to 1, and their labels.
fn batch(
    rows: &[Vec<u8>],
    device: &MxDevice<FlexDevice>,
) -> (Tensor<Training, 4>, Tensor<Training, 1, Int>) {
    let pixels = rows.iter().flat_map(|row| &row[..SIDE * SIDE]);
    let pixels: Vec<f32> = pixels.map(|pixel| f32::from(*pixel) / 16.0).collect();
    let pixels = TensorData::new(pixels, [rows.len(), 1, SIDE, SIDE]);
    let labels: Vec<i64> = rows.iter().map(|row| row[SIDE * SIDE].into()).collect();
    (
        Tensor::from_data(pixels, device),
        Tensor::from_data(labels.as_slice(), device),
    )
}

/// `[N, CLASSES]`, row by row.
fn logits(model: &Model<B>, images: &Tensor<B, 4>) -> Result<Vec<f32>, Box<dyn Error>> {
    Ok(model.forward(images.clone()).into_data().into_vec()?)
}

/// Prints the mean cross entropy and the share of right digits.
fn row(name: &str, logits: &[f32], digits: &Digits) {
    let losses = logits
        .chunks(CLASSES)
        .zip(&digits.labels)
        .map(|(row, label)| {
            let wide = |x: &f32| f64::from(*x);
            let largest = row.iter().map(wide).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (wide(x) - largest).exp()).sum();
            largest + sum.ln() - wide(&row[*label])
        });
    let loss = losses.sum::<f64>() / digits.labels.len() as f64;
    let [first, _] = among_first(logits, &digits.labels);
    println!("| {name} | {loss:.5} | {:.2} % |", 100.0 * first);
}
