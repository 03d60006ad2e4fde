//! `record`

use std::{error::Error, path::PathBuf};

use burn::backend::{Flex, flex::FlexDevice};
use burn::tensor::{Int, Tensor};
use burn_mx::module::label_parameters;
use burn_mx::record::{REPORT_HTML, REPORT_JSON, Recorder, RecorderConfig, output_sensitivities};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
use language_model::{Decoder, Folder, text, text::Tokens};

use burn_mx_lab::own_files;

type Train = MxAutodiff<Flex>;

/// Record what each operand of a trained model loses in other formats, for `search`. The model does not change
#[derive(Debug, clap::Args)]
pub(super) struct Record {
    /// The folder of a model: config.json, tokenizer.json, safetensors
    model: PathBuf,
    /// Candidates: presets or block formats, such as mxfp4 nvfp4 mxfp6_e2m3 mxfp8_e4m3
    #[arg(long = "what-if", value_name = "FORMAT", num_args = 1.., required = true)]
    what_if: Vec<String>,
    /// The preset that products are computed in
    #[arg(long, value_name = "NAME", default_value = "mxfp8_e4m3")]
    preset: String,
    /// Text, of which batches come from the first nine tenths [default: parts of the King James Bible]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Tokens of a window [default: the model's]
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Batches
    #[arg(long, value_name = "BATCHES", default_value_t = 4)]
    batches: usize,
    /// Windows of a batch
    #[arg(long, value_name = "WINDOWS", default_value_t = 12)]
    batch: usize,
    /// Seed of the batches
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Also write scores.json, the scores of ModelOpt's auto_quantize for weights. `search --scores` reads them. Each layer
    /// and format takes a forward pass for each batch
    #[arg(long)]
    outputs: bool,
    /// A new folder for records.jsonl and report.html
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

impl Record {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        for (option, value) in [("--batches", self.batches), ("--batch", self.batch)] {
            if value == 0 {
                return Err(format!("{option} '0'; allowed: 1 or more").into());
            }
        }
        let specs = MxSpecs::preset(&self.preset)
            .map_err(|error| format!("--preset '{}': {error}", self.preset))?;
        let device = MxDevice::new(FlexDevice, &specs)?;
        let config = RecorderConfig::default().what_if(self.what_if.iter().map(String::as_str));
        config
            .validate()
            .map_err(|error| format!("--what-if: {error}"))?;
        let folder = Folder::open(&self.model)?;
        for name in [REPORT_HTML, REPORT_JSON] {
            own_files::check_report(&self.out.join(name))
                .map_err(|error| format!("--out: {error}"))?;
        }
        let scores = self.out.join("scores.json");
        own_files::check(&scores).map_err(|error| format!("--out: {error}"))?;
        let longest = folder.config.context;
        let context = self.context.unwrap_or(longest);
        if context > longest || context == 0 {
            let asked = context;
            return Err(language_model::Error::Context { asked, longest }.into());
        }
        let text = text::read(self.text.as_deref())?;
        let [training, _] = text::split(&text);
        let what = "the text to record on";
        let tokens = Tokens::of(&folder.tokenizer, training, what, context)?;
        let shape = [self.batch * self.batches, context + 1];

        let model = label_parameters(folder.load::<Train>(&device)?);
        let recording = Recorder::new(config).on_this_thread().start(&self.out)?;
        let bar = super::bar("recorded batches", self.batches)?;
        let windows = tokens.windows::<Train>(shape, self.seed, &device);
        for batch in windows.split(self.batch, 0) {
            drop(model.loss(batch).backward());
            bar.inc(1);
        }
        bar.finish_and_clear();
        recording.finish()?.save(&self.out)?;
        println!("records: {}", self.out.display());
        if !self.outputs {
            return Ok(());
        }
        drop(model);
        let device = MxDevice::new(FlexDevice, "none")?;
        let model = folder.load::<Train>(&device)?;
        let windows = tokens.windows::<MxBackend<Flex>>(shape, self.seed, &device);
        let bar = super::bar("passes", 1)?;
        let places = output_sensitivities(
            &model,
            &self.what_if,
            &windows.split(self.batch, 0),
            |model, batch| model.loss(Tensor::<Train, 2, Int>::from_inner(batch.clone())),
            |model: &Decoder<MxBackend<Flex>>, batch| model.loss(batch.clone()),
            |done, all| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            },
        )?;
        bar.finish_and_clear();
        own_files::write(&scores, serde_json::to_string_pretty(&places)?)?;
        println!("scores by ModelOpt's formula: {}", scores.display());
        Ok(())
    }
}
