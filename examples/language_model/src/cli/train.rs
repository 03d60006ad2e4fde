//! `train`

use std::{collections::BTreeMap, error::Error, fs, path::PathBuf};

use language_model::{
    DecoderConfig, Error as Reason, Folder,
    evaluate::{Score, held_out},
    train::{Curve, Data, Format, Trainer, Training, Tuning},
};

use super::{model::Model, plot};
use burn_mx::{
    QatBackward,
    module::{ColumnRanks, LoraConfig},
    optim::OscillationReset,
};
use burn_mx_lab::{
    costing::{CostArgs, StepCost},
    own_files,
};
use results::Run;

mod results;

/// Train a model in one or more formats, from the same weights on the same batches
#[derive(Debug, clap::Args)]
pub(super) struct Train {
    /// The folder for models, curves and the plot; a run in this folder goes on
    #[arg(long, value_name = "FOLDER", default_value = "out/language_model")]
    out: PathBuf,
    /// Formats: fp32, bfloat16, presets such as mxfp8_e4m3, mxfp4, nvfp4, or recipes as JSON, such as `search` writes
    #[arg(long, value_name = "NAME", num_args = 1.., default_values = ["fp32", "mxfp8_e4m3"])]
    formats: Vec<String>,
    /// The optimizer: adamw, or muon for the matrices of the layers and AdamW for all other parameters
    #[arg(long, value_name = "NAME", value_enum, default_value_t = OptimizerName::Adamw)]
    optimizer: OptimizerName,
    /// Formats of the optimizer's states, each with each of --formats: presets such as float32, bitsandbytes, coat, adam4, mxfp8_e4m3, or the
    /// fields of `OptimizerStates` as JSON. With --optimizer muon the states of Muon: muon8, muon4, muonq [default: float32]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    optimizer_states: Vec<String>,
    /// Ranks that train on equal parts of the batch and sum their gradients, all in this process
    #[arg(long, value_name = "RANKS", default_value_t = 1)]
    ranks: usize,
    /// Sums of the gradients of --ranks, with each of --formats. A sum is float32, a preset such as qgz, a format such as mxfp8_e5m2, or the fields of
    /// `Communication` as JSON. With GRADIENTS+WEIGHTS, as in qgz+qwz, ranks also gather the weights [default: float32]
    #[arg(long, value_name = "NAME", num_args = 1.., requires = "ranks")]
    communication: Vec<String>,
    /// A trained model to go on from, in place of random weights: quantization-aware training. The sizes of the model are the folder's
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with_all = [
            "vocabulary", "layers", "width", "hidden", "experts", "experts_per_token", "balance", "heads", "kv_heads", "untied"
        ]
    )]
    from: Option<PathBuf>,
    /// A model whose predictions are learned instead of the text's tokens (distillation), such as the folder of --from
    #[arg(long, value_name = "FOLDER", requires = "from")]
    teacher: Option<PathBuf>,
    /// The divisor of the logits of model and teacher
    #[arg(long, default_value_t = 1.0, requires = "teacher")]
    temperature: f64,
    /// The weight of the distance of hidden states after the layers, beside the distance of predictions: the mean of the squared differences
    #[arg(
        long,
        value_name = "WEIGHT",
        default_value_t = 0.0,
        requires = "teacher"
    )]
    hidden_states: f64,
    /// Quantize the forward pass alone: gradients are float32 and pass quantization unchanged (straight-through)
    #[arg(long)]
    qat: bool,
    /// The backward pass of quantization-aware training: straight-through, masked (no gradient where an operand was clipped), or an override of
    /// TransformerEngine: dequantized (in bfloat16, of quantized operands) or high-precision (in bfloat16, of operands that are not quantized)
    #[arg(long, value_name = "KIND", conflicts_with = "qat")]
    qat_backward: Option<QatBackward>,
    /// Train adapters of this rank beside the linear layers (LoRA), whose weights stay frozen and packed in the format of --formats. A weight that is
    /// packed in the folder of --from keeps its bytes
    #[arg(long, value_name = "RANK", requires = "from")]
    lora: Option<usize>,
    /// The factor of the adapters is ALPHA / RANK [default: twice the rank]
    #[arg(long, requires = "lora")]
    alpha: Option<f64>,
    /// Train the magnitude of each output, too (DoRA)
    #[arg(long, requires = "lora")]
    dora: bool,
    #[command(flatten)]
    reset: Reset,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    model: Model,
    /// Seeds, each with each of --formats; the table then has the mean loss of each format
    #[arg(long, value_name = "SEED", num_args = 1.., conflicts_with = "seed")]
    seeds: Vec<u64>,
    #[command(flatten)]
    cost: CostArgs,
    /// Steps
    #[arg(long, value_name = "STEPS", default_value_t = 2000)]
    steps: usize,
    /// The highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 1e-3)]
    lr: f64,
    /// Steps between validations, after each of which a run can be resumed
    #[arg(long, value_name = "STEPS", default_value_t = 250)]
    interval: usize,
}

/// The optimizer of the parameters.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum OptimizerName {
    Adamw,
    Muon,
}

/// Resets of weights that oscillate between two quantized values.
#[derive(Debug, clap::Args)]
struct Reset {
    /// From time to time, move weights that oscillate between two quantized values to the centre of their bin (OsciReset of TetraJet-v2)
    #[arg(long, conflicts_with = "lora")]
    reset_oscillation: bool,
    /// The first step that may begin a window of watched steps
    #[arg(
        long,
        value_name = "STEP",
        default_value_t = 0,
        requires = "reset_oscillation"
    )]
    reset_start: u64,
    /// Steps from one window to the next
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 200,
        requires = "reset_oscillation"
    )]
    reset_period: u64,
    /// Watched steps of a window
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 50,
        requires = "reset_oscillation"
    )]
    reset_window: u64,
    /// The ratio from which a weight is reset: the way of its quantized value over its own way
    #[arg(
        long,
        value_name = "RATIO",
        default_value_t = 8.0,
        requires = "reset_oscillation"
    )]
    reset_threshold: f32,
}

/// The window of steps that ranks columns.
#[derive(Debug, clap::Args)]
struct Columns {
    /// The step before the window whose scores choose the hot columns, of formats such as tetrajet_v2
    #[arg(long, value_name = "STEP", default_value_t = 501)]
    column_start: u64,
    /// Steps of the window
    #[arg(long, value_name = "STEPS", default_value_t = 50)]
    column_window: u64,
    /// Steps from one window to the next, or 0: hot columns are chosen once
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    column_period: u64,
}

impl Columns {
    fn settings(&self) -> ColumnRanks {
        ColumnRanks {
            start: self.column_start,
            steps: self.column_window,
            period: self.column_period,
        }
    }

    /// Refuses a window without a format that ranks columns, and says where runs end before their window does.
    fn check(&self, ranking: &[&str], steps: usize) -> Result<(), String> {
        let window = self.settings();
        if ranking.is_empty() && window != ColumnRanks::default() {
            return Err(format!(
                "--column-start '{}', --column-window '{}', --column-period '{}'; allowed: the defaults, or a format with hot columns (chosen=fixed) such as tetrajet_v2",
                window.start, window.steps, window.period
            ));
        }
        let ranked = window.start.saturating_add(window.steps).saturating_add(1);
        if ranked >= steps as u64 {
            for name in ranking {
                eprintln!(
                    "{name}: hot columns are chosen after {ranked} steps (--column-start, --column-window), and the run has {steps}: there are none"
                );
            }
        }
        Ok(())
    }
}

impl Reset {
    fn settings(&self) -> Option<OscillationReset> {
        self.reset_oscillation.then_some(OscillationReset {
            start: self.reset_start,
            period: self.reset_period,
            window: self.reset_window,
            threshold: self.reset_threshold,
        })
    }
}

impl Train {
    fn check(&self) -> Result<(), Box<dyn Error>> {
        for (option, value) in [("--steps", self.steps), ("--interval", self.interval)] {
            if value == 0 {
                return Err(format!("{option} '0'; allowed: 1 or more").into());
            }
        }
        if !(self.lr.is_finite() && self.lr > 0.0) {
            return Err(format!("--lr '{}'; allowed: a positive number", self.lr).into());
        }
        let mut seeds = self.seeds.iter().enumerate();
        if let Some((_, seed)) = seeds.find(|(at, seed)| self.seeds[..*at].contains(*seed)) {
            return Err(format!("--seeds '{seed}'; allowed: each seed once").into());
        }
        Ok(())
    }

    fn adapters(&self) -> Option<LoraConfig> {
        let rank = self.lora?;
        Some(LoraConfig {
            rank,
            alpha: self.alpha.unwrap_or(2.0 * rank as f64),
            dora: self.dora,
        })
    }

    /// Each format, with each of the states.
    fn formats(&self) -> Result<Vec<Format>, Reason> {
        let mut formats = Vec::new();
        for name in &self.formats {
            let mut format = Format::named("--formats", name)?;
            if self.qat {
                format = format.quantization_aware();
            }
            if let Some(kind) = self.qat_backward {
                format = format.with_backward(kind)?;
            }
            if let Some(lora) = self.adapters() {
                format = format.with_adapters(lora);
            }
            if self.optimizer == OptimizerName::Muon {
                format = format.with_muon();
            }
            if self.optimizer_states.is_empty() {
                formats.push(format.clone());
            }
            for states in &self.optimizer_states {
                formats.push(format.clone().with_states("--optimizer-states", states)?);
            }
        }
        if self.ranks == 1 && self.communication.is_empty() {
            return Ok(formats);
        }
        let names = match self.communication.as_slice() {
            [] => &["float32".to_owned()],
            names => names,
        };
        let pairs = formats.iter().flat_map(|format| {
            let with = |name: &String| {
                let format = format.clone();
                format.with_ranks("--communication", name, self.ranks)
            };
            names.iter().map(with)
        });
        pairs.collect()
    }

    fn settings(&self, window: Option<usize>) -> Training {
        Training {
            batch: self.model.batch,
            steps: self.steps,
            learning_rate: self.lr,
            interval: self.interval,
            seed: self.model.seed,
            window,
            reset: self.reset.settings(),
            columns: self.columns.settings(),
        }
    }

    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.check()?;
        let costing = self.cost.plan()?;
        let formats = self.formats()?;
        let open = |path: &Option<PathBuf>| path.as_ref().map(Folder::open).transpose();
        let (from, teacher) = (open(&self.from)?, open(&self.teacher)?);
        let (config, corpus) = match &from {
            Some(from) => (from.config.clone(), self.model.open_for(from)?),
            None => self.model.open()?,
        };
        let tuning = from.as_ref().map(|from| Tuning {
            from,
            teacher: teacher.as_ref(),
            temperature: self.temperature,
            hidden_states: self.hidden_states,
            lora: self.adapters(),
        });
        tuning.map_or(Ok(()), |tuning| tuning.check(&formats))?;
        let data = Data {
            tuning,
            ..corpus.data()
        };
        let window = self.model.window(config.context);
        let settings = self.settings((window < config.context).then_some(window));
        for format in &formats {
            settings.check_reset(&config, format)?;
        }
        fs::create_dir_all(&self.out)
            .map_err(|error| format!("--out '{}': {error}", self.out.display()))?;
        let [chart, gaps, losses] =
            ["loss.svg", "gap.svg", "loss.json"].map(|name| self.out.join(name));
        for file in [&chart, &gaps, &losses] {
            own_files::check(file).map_err(|error| format!("--out: {error}"))?;
        }
        let mut costs = Vec::new();
        let mut ranking = Vec::new();
        for format in &formats {
            let trainer = Trainer::new(&settings, &config, format, data)?;
            costs.push(StepCost::of(&costing, &trainer.products()));
            if trainer.ranks_columns() {
                ranking.push(format.name.as_str());
            }
        }
        self.columns.check(&ranking, self.steps)?;
        let mut runs = Vec::new();
        for (format, cost) in formats.iter().zip(costs) {
            for seed in self.seeds() {
                let settings = Training { seed, ..settings };
                runs.push(self.train(&settings, &config, format, data, cost)?);
            }
        }
        println!("{}", results::scores(&runs));
        results::print_events(&runs);
        println!("{}", results::summary(&runs, &costing.chip().name));
        println!("{}", results::legend(costing.chip()));
        if !self.optimizer_states.is_empty() {
            println!("{}", results::memory(&runs));
        }
        let curves = results::curves(&runs);
        let named: Vec<plot::Named<'_>> = curves
            .iter()
            .map(|(name, losses)| (*name, &losses[..]))
            .collect();
        let svg = plot::curves("Validation loss while training", &named)?;
        own_files::write(&chart, svg)?;
        if let Some(svg) = plot::gaps(&named)? {
            own_files::write(&gaps, svg)?;
        }
        let curves: BTreeMap<_, _> = runs.iter().map(|run| (run.name(), &run.curve)).collect();
        own_files::write(&losses, serde_json::to_vec_pretty(&curves)?)?;
        println!(
            "models: {}/*; curves: {}",
            self.out.display(),
            chart.display()
        );
        Ok(())
    }

    /// The seeds of the runs of a format.
    fn seeds(&self) -> Vec<u64> {
        match self.seeds.is_empty() {
            true => vec![self.model.seed],
            false => self.seeds.clone(),
        }
    }

    /// One run, with a bar of its progress.
    fn train(
        &self,
        settings: &Training,
        config: &DecoderConfig,
        format: &Format,
        data: Data<'_>,
        cost: StepCost,
    ) -> Result<Run, Box<dyn Error>> {
        let seed = (!self.seeds.is_empty()).then_some(settings.seed);
        let folder = Run::folder(&format.name, seed);
        let name = folder.display().to_string();
        let window = self.model.window(config.context);
        let tokens = self.model.batch * window;
        let bar = super::bar(&name, self.steps)?;
        let report = |step, curve: &Curve| {
            bar.set_position(step as u64);
            bar.set_message(format!("{:.0} tokens/s", bar.per_sec() * tokens as f64));
            if let Some((_, loss)) = curve.validation.last().filter(|(at, _)| *at == step) {
                let line = format!("{name}: step {step}: loss {loss:.4}");
                match bar.is_hidden() {
                    true => println!("{line}"),
                    false => bar.println(line),
                }
            }
        };
        let (model, curve) = settings.run(config, format, data, &self.out.join(&folder), report)?;
        bar.finish_and_clear();
        let device = format.device()?;
        let all = data.validation.in_order([48, window], &device);
        Ok(Run {
            format: format.name.clone(),
            seed,
            score: Score::of(f64::from(held_out(&model, all)), data.validation),
            speed: (self.steps * tokens) as f64 / curve.time.as_secs_f64(),
            curve,
            cost,
        })
    }
}
