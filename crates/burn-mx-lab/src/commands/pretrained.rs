//! Quantizes networks that others trained, and measures how well their outputs survive.
//!
//! ```text
//! python3 crates/burn-mx-lab/python/fetch.py target/pretrained
//! cargo run --release --bin burn-mx-lab -- pretrained --config all
//! cargo run --release --bin burn-mx-lab -- pretrained --model minilm --config MXFP4E2M1 --config MXFP4E2M1_ADAQUANT
//! ```
//!
//! The script brings weights, photographs, sentences, and PyTorch's outputs for them. The float model here has to agree with
//! PyTorch before anything is quantized. Scores measure the agreement of the loaded checkpoint with the float model, on other
//! photographs and sentences than the calibration's.

mod efficientnet;
mod minilm;

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use burn::{
    backend::flex::FlexDevice,
    prelude::*,
    tensor::{DType, TensorData},
};
use burn_mx::MxDevice;
use burn_mx_lab::quantization::{
    B, Options, QuantizationPlan, Score, Subject, among_first, sqnr, unusable,
};
use burn_store::{KeyRemapper, ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore};
use clap::{ValueEnum, value_parser};
use safetensors::{Dtype, SafeTensors};

use super::Refusal;
use efficientnet::EfficientNet;
use minilm::{MiniLm, Sentences};

type Device = MxDevice<FlexDevice>;
type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Quantize a pretrained network by named configurations, and measure how well it agrees with the float network
#[derive(Debug, clap::Args)]
pub(crate) struct PretrainedArgs {
    /// Which network
    #[arg(long, value_enum, default_value_t = Pretrained::EfficientnetLite0)]
    model: Pretrained,

    /// Folder that fetch.py filled
    #[arg(long, value_name = "DIR", default_value = "target/pretrained")]
    data: PathBuf,

    #[command(flatten)]
    options: Options,

    /// Items to calibrate with, at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u64).range(1..))]
    calibration: u64,

    /// Items to measure with, at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = value_parser!(u64).range(2..))]
    test: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pretrained {
    /// convolutions, on photographs: the first of 1,000 classes, and whether it is among the first five
    EfficientnetLite0,
    /// transformer, on sentences: the cosine of their vectors with float's, and the ranks of all pairs by closeness
    Minilm,
}

pub(crate) fn run(args: &PretrainedArgs) -> Result<()> {
    let plan = args.plan().map_err(Refusal)?;
    match args.model {
        Pretrained::EfficientnetLite0 => measure::<EfficientNet<B>>(args, plan),
        Pretrained::Minilm => measure::<MiniLm<B>>(args, plan),
    }
}

impl PretrainedArgs {
    fn plan(&self) -> Result<QuantizationPlan, String> {
        fs::read_dir(&self.data).map_err(|error| {
            let error = unusable("--data", &self.data, error);
            format!("{error}; `python3 crates/burn-mx-lab/python/fetch.py` fills it")
        })?;
        let model = self.model.to_possible_value();
        let model = model.map_or_else(String::new, |value| value.get_name().to_owned());
        let epsilon = match self.model {
            Pretrained::EfficientnetLite0 => efficientnet::EPSILON,
            Pretrained::Minilm => 0.0, // it has no batch norm
        };
        self.options.plan(&model, epsilon)
    }
}

fn measure<N: Network>(args: &PretrainedArgs, plan: QuantizationPlan) -> Result<()> {
    let rows = plan.rows(&Items::<N>::read(args)?)?;
    plan.report(N::TITLE, &rows)
}

/// A pretrained network, and the items that it is given.
trait Network: Module<B> + Sync {
    /// Of one forward pass.
    type Batch: Sync;
    /// The file of its weights.
    const WEIGHTS: &str;
    /// Expressions of the names that PyTorch's weights have, and the paths that they have here.
    const NAMES: &[(&str, &str)];
    /// The file of its inputs.
    const INPUTS: &str;
    /// PyTorch's outputs for the test items.
    const OUTPUTS: &str;
    /// Of the chart, which shows the first score.
    const TITLE: &str;
    /// The length of an output.
    const WIDTH: usize;

    fn new(device: &Device) -> Self;
    fn batches(
        file: &InputFile,
        part: &str,
        count: u64,
        device: &Device,
    ) -> Result<Vec<Self::Batch>>;
    fn output(&self, batch: &Self::Batch) -> Tensor<B, 2>;
    /// How well outputs agree with the float model's outputs.
    fn scores(outputs: &[f32], float: &[f32]) -> Vec<Score>;
}

impl Network for EfficientNet<B> {
    type Batch = Tensor<B, 4>;
    const WEIGHTS: &str = "efficientnet-lite0.safetensors";
    const NAMES: &[(&str, &str)] = &[
        (r"^_conv_stem\.", "stem.conv."),
        (r"^_bn0\.", "stem.norm."),
        (r"^_conv_head\.", "top.conv."),
        (r"^_bn1\.", "top.norm."),
        (r"^_fc\.", "head."),
        (r"^_blocks\.", "blocks."),
        (r"\._expand_conv\.", ".expand.conv."),
        (r"\._bn0\.", ".expand.norm."),
        (r"\._depthwise_conv\.", ".filter.conv."),
        (r"\._bn1\.", ".filter.norm."),
        (r"\._project_conv\.", ".project.conv."),
        (r"\._bn2\.", ".project.norm."),
    ];
    const INPUTS: &str = "photos.safetensors";
    const OUTPUTS: &str = "logits";
    const TITLE: &str = "Noise of EfficientNet-Lite0's logits after quantization";
    const WIDTH: usize = 1000;

    fn new(device: &Device) -> Self {
        EfficientNet::new(device)
    }

    fn batches(
        file: &InputFile,
        part: &str,
        count: u64,
        device: &Device,
    ) -> Result<Vec<Self::Batch>> {
        let photos = Tensor::<B, 4>::from_data(file.tensor(part, 4, count)?, device);
        Ok(photos.split(16, 0))
    }

    fn output(&self, batch: &Self::Batch) -> Tensor<B, 2> {
        self.forward(batch.clone())
    }

    fn scores(outputs: &[f32], float: &[f32]) -> Vec<Score> {
        let classes: Vec<usize> = float.chunks(Self::WIDTH).map(largest).collect();
        let [first, five] = among_first(outputs, &classes);
        vec![
            Score::share("top1", "Top1 of float", first),
            Score::share("top5", "in top5", five),
            Score::number("cosine", "Cosine", mean_cosine(outputs, float, Self::WIDTH)),
        ]
    }
}

impl Network for MiniLm<B> {
    type Batch = Sentences<B>;
    const WEIGHTS: &str = "minilm.safetensors";
    const NAMES: &[(&str, &str)] = &[
        (r"^embeddings\.word_embeddings\.", "tokens."),
        (r"^embeddings\.position_embeddings\.", "positions."),
        (r"^embeddings\.token_type_embeddings\.", "kinds."),
        (r"^embeddings\.LayerNorm\.", "norm."),
        (r"^encoder\.layer\.", "encoder.layers."),
        (r"\.attention\.self\.", ".mha."),
        (r"\.attention\.output\.dense\.", ".mha.output."),
        (r"\.attention\.output\.LayerNorm\.", ".norm_1."),
        (r"\.intermediate\.dense\.", ".pwff.linear_inner."),
        (r"\.output\.dense\.", ".pwff.linear_outer."),
        (r"\.output\.LayerNorm\.", ".norm_2."),
    ];
    const INPUTS: &str = "sentences.safetensors";
    const OUTPUTS: &str = "embeddings";
    const TITLE: &str = "Noise of MiniLM's vectors after quantization";
    const WIDTH: usize = 384;

    fn new(device: &Device) -> Self {
        MiniLm::new(device)
    }

    fn batches(
        file: &InputFile,
        part: &str,
        count: u64,
        device: &Device,
    ) -> Result<Vec<Self::Batch>> {
        let tensor = |name: &str| {
            let data = file.tensor(&format!("{part}.{name}"), 2, count)?;
            Ok::<_, Box<dyn Error>>(Tensor::<B, 2, Int>::from_data(data, device).split(16, 0))
        };
        let batches = tensor("ids")?.into_iter().zip(tensor("mask")?);
        Ok(batches.map(|(ids, mask)| Sentences { ids, mask }).collect())
    }

    fn output(&self, batch: &Self::Batch) -> Tensor<B, 2> {
        self.forward(batch)
    }

    fn scores(outputs: &[f32], float: &[f32]) -> Vec<Score> {
        let [got, wanted] = [outputs, float].map(|vectors| ranks(&pairs(vectors, Self::WIDTH)));
        let correlation = cosine(&centred(&got), &centred(&wanted));
        vec![
            Score::share("ranks", "Ranks of pairs", correlation),
            Score::number("cosine", "Cosine", mean_cosine(outputs, float, Self::WIDTH)),
        ]
    }
}

/// A network with its weights and items.
struct Items<N: Network> {
    model: N,
    calibration: Vec<N::Batch>,
    test: Vec<N::Batch>,
    /// PyTorch's outputs for the test items.
    outputs: TensorData,
    /// With the specs `none`: everything outside of quantized layers is float32.
    device: Device,
}

impl<N: Network> Items<N> {
    fn read(args: &PretrainedArgs) -> Result<Self> {
        let device = Device::new(FlexDevice, "none")?;
        let inputs = InputFile::read(&args.data.join(N::INPUTS))?;
        Ok(Self {
            calibration: N::batches(&inputs, "calibration", args.calibration, &device)?,
            test: N::batches(&inputs, "test", args.test, &device)?,
            outputs: inputs.tensor(N::OUTPUTS, 2, args.test)?,
            model: load(&args.data.join(N::WEIGHTS), &device)?,
            device,
        })
    }
}

impl<N: Network> Subject for Items<N> {
    type Model = N;
    type Batch = N::Batch;

    fn model(&self) -> N {
        self.model.clone()
    }

    fn fresh(&self) -> N {
        N::new(&self.device)
    }

    fn calibration(&self) -> &[N::Batch] {
        &self.calibration
    }

    fn forward(model: &N, batch: &N::Batch) -> Tensor<B, 2> {
        model.output(batch)
    }

    fn outputs(&self, model: &N) -> Vec<f32> {
        let outputs = self.test.iter().map(|batch| model.output(batch)).collect();
        let outputs = Tensor::cat(outputs, 0).into_data();
        outputs.into_vec().expect("they are float32")
    }

    fn check(&self, float: &[f32]) -> Result<()> {
        let wanted = self.outputs.as_slice();
        let agreement = sqnr(float, wanted.map_err(|error| format!("{error:?}"))?);
        println!("PyTorch's outputs and the outputs of the float model here: {agreement:.1} dB");
        match agreement >= 60.0 {
            true => Ok(()),
            false => Err(format!(
                "{} and {} do not belong together: rounding leaves 60 dB and more",
                N::WEIGHTS,
                N::INPUTS
            )
            .into()),
        }
    }

    fn scores(&self, outputs: &[f32], float: &[f32]) -> Vec<Score> {
        N::scores(outputs, float)
    }
}

/// The network with PyTorch's weights.
fn load<N: Network>(path: &Path, device: &Device) -> Result<N> {
    let names = N::NAMES.to_vec();
    let mut store = SafetensorsStore::from_file(path)
        .with_from_adapter(PyTorchToBurnAdapter)
        .remap(KeyRemapper::from_patterns(names)?);
    let mut model = N::new(device);
    let result = model
        .load_from(&mut store)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    match result.errors.is_empty() {
        true => Ok(model),
        false => Err(format!("{}: {result}", path.display()).into()),
    }
}

/// A file of inputs, in memory.
struct InputFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl InputFile {
    fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// The first items of a tensor with this number of axes.
    fn tensor(&self, name: &str, axes: usize, count: u64) -> Result<TensorData> {
        let unusable = |reason: String| format!("{}: `{name}`: {reason}", self.path.display());
        let file = SafeTensors::deserialize(&self.bytes).map_err(|e| unusable(e.to_string()))?;
        let tensor = file.tensor(name).map_err(|e| unusable(e.to_string()))?;
        let dtype = match tensor.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::I64 => DType::I64,
            other => return Err(unusable(format!("{other:?}; allowed: F32, I64")).into()),
        };
        let mut shape = tensor.shape().to_vec();
        if shape.len() != axes || shape.contains(&0) {
            return Err(unusable(format!("shape {shape:?}; allowed: {axes} axes")).into());
        }
        let item = tensor.data().len() / shape[0];
        shape[0] = shape[0].min(count as usize);
        let bytes = tensor.data()[..shape[0] * item].to_vec();
        Ok(TensorData::from_bytes_vec(bytes, shape, dtype))
    }
}

fn largest(row: &[f32]) -> usize {
    let largest = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    largest.map_or(0, |(at, _)| at)
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn wide(row: &[f32]) -> Vec<f64> {
    row.iter().map(|value| f64::from(*value)).collect()
}

/// The mean cosine of the rows of one with the rows of the other.
fn mean_cosine(outputs: &[f32], float: &[f32], width: usize) -> f64 {
    let rows = outputs.chunks(width).zip(float.chunks(width));
    let sum: f64 = rows.map(|(a, b)| cosine(&wide(a), &wide(b))).sum();
    sum * width as f64 / outputs.len() as f64
}

/// The cosine of each two rows.
fn pairs(vectors: &[f32], width: usize) -> Vec<f64> {
    let rows: Vec<_> = vectors.chunks(width).map(wide).collect();
    let later = |at: usize| rows[at + 1..].iter();
    let pairs = rows.iter().enumerate();
    pairs
        .flat_map(|(at, row)| later(at).map(|other| cosine(row, other)))
        .collect()
}

/// The place of each number in their order.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
    let mut ranks = vec![0.0; numbers.len()];
    for (rank, at) in order.into_iter().enumerate() {
        ranks[at] = rank as f64;
    }
    ranks
}

fn centred(numbers: &[f64]) -> Vec<f64> {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    numbers.iter().map(|number| number - mean).collect()
}
