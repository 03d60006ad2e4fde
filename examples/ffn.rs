//! An unmodified Burn model learns to read handwritten digits: in FP32, then in MX formats, from the same weights on the
//! same batches. Only the backend's type and its device change: look for "the swap" in `main`. `burn_mx_lab` has the backends by name,
//! and draws and writes the chart.
//! ```text
//! cargo run --release --example ffn
//! cargo run --release --example ffn -- --preset mxfp4 --preset mxint8 --no-quantize-backprop --epochs 30
//! cargo run --release --example ffn --features cuda -- --backend cuda
//! ```

use std::{error::Error, fmt, fs, path::PathBuf, time::Instant};

use burn::backend::{Autodiff, Flex, flex::FlexDevice};
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, loss::CrossEntropyLossConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::{module::AutodiffModule, prelude::*, tensor::backend::AutodiffBackend};
use burn_mx::{MxArgs, MxAutodiff, MxDevice, MxSpecs};
use burn_mx_lab::drawing::{COLOURS, legend, svg};
use burn_mx_lab::{backends::BackendName, logarithmic, own_files, with_backend};
use clap::{CommandFactory, Parser, error::ErrorKind, value_parser};
use plotters::prelude::*;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};

/// A residual MLP: pixels to hidden, two residual blocks, hidden to logits.
#[derive(Module, Debug)]
struct Ffn<B: Backend> {
    embed: Linear<B>,
    norms: [LayerNorm<B>; 2],
    blocks: [PositionWiseFeedForward<B>; 2],
    head: Linear<B>,
}

impl<B: Backend> Ffn<B> {
    fn new(device: &B::Device) -> Self {
        let block = PositionWiseFeedForwardConfig::new(128, 512).with_dropout(0.0);
        Self {
            embed: LinearConfig::new(64, 128).init(device),
            norms: [(); 2].map(|()| LayerNormConfig::new(128).init(device)),
            blocks: [(); 2].map(|()| block.init(device)),
            head: LinearConfig::new(128, 10).init(device),
        }
    }

    fn forward(&self, pixels: Tensor<B, 2>) -> Tensor<B, 2> {
        let mut x = self.embed.forward(pixels);
        for (norm, block) in self.norms.iter().zip(&self.blocks) {
            x = x.clone() + block.forward(norm.forward(x));
        }
        self.head.forward(x)
    }
}

/// Handwritten digits: 64 pixels from 0 (paper) to 16 (ink), then which digit it is.
fn digits() -> csv::Result<Vec<Vec<f32>>> {
    let file = flate2::read::GzDecoder::new(&include_bytes!("../data/digits.csv.gz")[..]);
    let mut csv = csv::ReaderBuilder::new();
    let rows = csv.has_headers(false).from_reader(file);
    rows.into_deserialize().collect()
}

fn batch<B: Backend>(rows: &[Vec<f32>], device: &B::Device) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let pixels = rows.iter().flat_map(|row| &row[..64]);
    let pixels: Vec<f32> = pixels.map(|pixel| pixel / 16.0).collect();
    let pixels = TensorData::new(pixels, [rows.len(), 64]);
    let labels: Vec<i64> = rows.iter().map(|row| row[64] as i64).collect();
    let labels = Tensor::from_data(labels.as_slice(), device);
    (Tensor::from_data(pixels, device), labels)
}

/// The loss of every step, the share of test digits that are read right, and the median milliseconds a step.
type Trained = Result<(Vec<f32>, f64, f64), Box<dyn Error>>;

/// Burn's usual training loop: nothing in it says what the numbers are.
fn train<B: AutodiffBackend>(cli: &Cli, seed: u64, device: &B::Device) -> Trained {
    let mut train = digits()?;
    train.shuffle(&mut StdRng::seed_from_u64(1797));
    let test = train.split_off(1437);
    // Weights are drawn on one backend for all.
    Flex::seed(&FlexDevice, seed);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let weights = Ffn::<Flex>::new(&FlexDevice).into_record();
    let weights = Recorder::<Flex>::record(&recorder, weights, ())?;
    let mut model = Ffn::<B>::new(device).load_record(recorder.load(weights, device)?);
    let mut optimizer = AdamWConfig::new().init();
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let (mut losses, mut times) = (Vec::new(), Vec::new());
    let bar = indicatif::ProgressBar::new(cli.epochs);
    for epoch in bar.wrap_iter(0..cli.epochs) {
        let far_apart = epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let seed = seed.wrapping_add(far_apart);
        B::seed(device, seed); // what stochastic rounding draws
        let mut digits = train.clone();
        digits.shuffle(&mut StdRng::seed_from_u64(seed));
        for rows in digits.chunks(64) {
            let (pixels, labels) = batch(rows, device);
            let began = Instant::now();
            let loss = cross_entropy.forward(model.forward(pixels), labels);
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(5e-4, model, grads);
            B::sync(device)?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            losses.push(loss.into_scalar().elem());
        }
    }
    bar.finish_and_clear();
    times.sort_by(f64::total_cmp);
    B::seed(device, seed);
    let (pixels, labels) = batch::<B::InnerBackend>(&test, device);
    let guesses = model.valid().forward(pixels).argmax(1).squeeze_dim(1);
    let right = guesses.equal(labels).int().sum().into_scalar();
    let accuracy = right.elem::<f64>() / test.len() as f64;
    Ok((losses, accuracy, times[times.len() / 2]))
}

/// Train a residual MLP on handwritten digits in FP32, then in Microscaling (MX) formats, and compare
#[derive(Parser)]
#[command(name = "ffn")]
struct Cli {
    /// MX preset to train in, after FP32; repeat it for several. MX specs override its fields
    #[arg(long = "preset", value_name = "NAME", default_value = "mxfp6_e3m2")]
    presets: Vec<String>,
    /// Wrapped Burn backend; all but flex and ndarray need a feature of their name, such as `cuda`
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    backend: BackendName,
    /// Passes over the training digits
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..=10_000))]
    epochs: u64,
    /// Seed of the initial weights and of the batch order; repeat it for several
    #[arg(long = "seed", value_name = "SEED", default_value = "0")]
    seeds: Vec<u64>,
    /// Folder for the plot; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Write the runs as JSON: {"runs":[{"name","seed","specs","layers","loss","accuracy","step_ms"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    specs: MxArgs,
}

/// Ends the program as clap does where an option cannot be.
fn refuse<T>(option: &str, value: &dyn fmt::Debug, error: impl fmt::Display) -> T {
    let message = format!("{option} {value:?}: {error}");
    let error = Cli::command().error(ErrorKind::ValueValidation, message);
    error.exit()
}

fn main() -> Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    let mut formats = vec![("fp32", None)];
    for name in &cli.presets {
        let specs = MxSpecs::preset(name).and_then(|preset| cli.specs.specs(preset));
        let specs = specs.unwrap_or_else(|error| refuse("--preset", name, error));
        formats.push((name, Some(specs)));
    }
    let plot = cli.out.join("ffn_loss.svg");
    own_files::check(&plot).unwrap_or_else(|error| refuse("--out", &cli.out, error));
    let json = cli
        .json
        .as_ref()
        .map(|path| fs::File::create(path).unwrap_or_else(|error| refuse("--json", path, error)));
    let mut csv = cli.csv.as_ref().map(|path| {
        csv::Writer::from_path(path).unwrap_or_else(|error| refuse("--csv", path, error))
    });
    fs::create_dir_all(&cli.out).unwrap_or_else(|error| refuse("--out", &cli.out, error));

    println!("format        seed    loss  accuracy  time a step  overhead  specs");
    if let Some(csv) = &mut csv {
        csv.write_record([
            "format", "seed", "loss", "accuracy", "step_ms", "overhead", "specs",
        ])?;
    }
    let (mut runs, mut curves, mut fp32) = (Vec::new(), Vec::new(), None);
    for (name, specs) in &formats {
        let mut of_seeds = Vec::new();
        for &seed in &cli.seeds {
            let (loss, accuracy, step_ms) = with_backend!(cli.backend, B => match specs {
                None => train::<Autodiff<B>>(&cli, seed, &Default::default())?,
                Some(specs) => {
                    let device = MxDevice::new(Default::default(), specs)?;
                    train::<MxAutodiff<B>>(&cli, seed, &device)? // the swap
                }
            });
            let (last, percent) = (mean(&loss[loss.len() - 23..]), 100.0 * accuracy);
            let overhead = step_ms / *fp32.get_or_insert(step_ms);
            let text: String = specs.iter().map(ToString::to_string).collect();
            print!("{name:12} {seed:5}  {last:6.4}  {percent:6.2} %  {step_ms:8.2} ms ");
            println!("{overhead:8.2}×  {text}");
            if let Some(csv) = &mut csv {
                csv.serialize((name, seed, last, accuracy, step_ms, overhead, &text))?;
            }
            let run = serde_json::json!({"name": name, "seed": seed, "layers": [], "loss": loss,
                "accuracy": accuracy, "step_ms": step_ms, "specs": specs.as_ref().map(|s| s.specs())});
            runs.push(run);
            of_seeds.push(loss);
        }
        curves.push((*name, of_seeds));
    }
    println!(
        "\noverhead: time a step over that of fp32's first seed. Below 1×, emulation is faster: a processor with"
    );
    println!(
        "bfloat16 instructions multiplies MX operands, which are exact in bfloat16, faster than float32."
    );
    own_files::write(&plot, draw(&curves)?)?;
    println!("\nloss curves: {}", plot.display());
    if let Some(json) = json {
        serde_json::to_writer(json, &serde_json::json!({ "runs": runs }))?;
    }
    Ok(())
}

fn mean(values: &[f32]) -> f32 {
    values.iter().sum::<f32>() / values.len() as f32
}

/// The training loss of each format, averaged over neighbouring steps, on a logarithmic axis: the mean over the seeds, and a band from
/// the lowest to the highest.
fn draw(curves: &[(&str, Vec<Vec<f32>>)]) -> Result<String, Box<dyn Error>> {
    let range = 1e-4..4.0;
    let smooth = |loss: &[f32]| -> Vec<f64> {
        let means = loss.windows(10).map(|loss| f64::from(mean(loss)));
        means.map(|loss| loss.clamp(1e-4, 4.0)).collect()
    };
    svg((960, 600), |root| {
        let y = range.clone().log_scale();
        let mut chart = ChartBuilder::on(root)
            .caption("Training loss", ("sans-serif", 22))
            .margin(10)
            .set_left_and_bottom_label_area_size(48)
            .build_cartesian_2d(
                0..curves[0].1[0].len(),
                y.with_key_points(logarithmic::ticks(&range)),
            )?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("step").y_desc("loss, mean of 10 steps");
        mesh.y_label_formatter(&logarithmic::label);
        mesh.light_line_style(WHITE).draw()?;
        let colours = std::iter::once(&BLACK).chain(COLOURS.iter().cycle());
        for ((name, seeds), colour) in curves.iter().zip(colours) {
            let seeds: Vec<Vec<f64>> = seeds.iter().map(|loss| smooth(loss)).collect();
            let steps = 0..seeds[0].len();
            let of_step = |step: usize| seeds.iter().map(move |loss| loss[step]);
            let low = steps.clone().map(|step| of_step(step).fold(4.0, f64::min));
            let high = steps.clone().map(|step| of_step(step).fold(1e-4, f64::max));
            let outline = low
                .enumerate()
                .chain(high.enumerate().rev())
                .collect::<Vec<_>>();
            chart.draw_series([Polygon::new(outline, colour.mix(0.2))])?;
            let means = steps.map(|step| of_step(step).sum::<f64>() / seeds.len() as f64);
            let style = colour.stroke_width(2);
            let curve = chart.draw_series(LineSeries::new(means.enumerate(), style))?;
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style);
            let label = match seeds.len() {
                1 => (*name).to_owned(),
                count => format!("{name}, mean and range of {count} seeds"),
            };
            curve.label(label).legend(legend);
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}
