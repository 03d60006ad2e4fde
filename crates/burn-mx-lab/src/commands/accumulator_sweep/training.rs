//! Training runs by every unit that promotes nothing, and by units with names.

use std::error::Error;

use burn::{
    backend::{Autodiff, Flex, flex::FlexDevice},
    module::AutodiffModule,
    module::Module,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder, RecorderError},
    tensor::backend::{AutodiffBackend, Backend},
};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use super::{AccumulatorSweepArgs, Unit, with};
use crate::training::{
    models::{Architecture, Model, ModelName, Sizes},
    tasks::{Item, Split},
};

/// Test items of a batch.
const TEST_BATCH: usize = 256;

/// The runs with one kind of sums.
#[derive(Debug, Serialize)]
pub(crate) struct Runs {
    /// `fp32`, `float32 sums`, or the accumulator.
    pub(crate) name: String,
    /// Of a unit of the sweep.
    pub(crate) fraction_bits: Option<u32>,
    /// By seed: the training loss of the last epoch, the share of test items that are solved.
    pub(crate) loss_and_score: Vec<[f64; 2]>,
}

impl Runs {
    /// Over the seeds.
    pub(crate) fn mean(&self) -> [f64; 2] {
        let count = self.loss_and_score.len() as f64;
        [0, 1].map(|i| self.loss_and_score.iter().map(|run| run[i]).sum::<f64>() / count)
    }
}

/// Weights, for any backend.
pub(crate) struct Weights(Vec<u8>);

type WeightsRecorder = BinBytesRecorder<FullPrecisionSettings>;

impl Weights {
    fn of<B: Backend>(model: Model<B>) -> Result<Self, RecorderError> {
        Recorder::<B>::record(&WeightsRecorder::new(), model.into_record(), ()).map(Self)
    }

    fn initial(architecture: Architecture, seed: u64) -> Result<Self, RecorderError> {
        type B = Autodiff<Flex>;
        B::seed(&FlexDevice, seed);
        Self::of(architecture.init::<B>(&FlexDevice))
    }

    pub(crate) fn load<B: Backend>(
        &self,
        architecture: Architecture,
        device: &B::Device,
    ) -> Result<Model<B>, RecorderError> {
        let record = Recorder::<B>::load(&WeightsRecorder::new(), self.0.clone(), device)?;
        Ok(architecture.init::<B>(device).load_record(record))
    }
}

/// The training items in an order that depends on seed and epoch alone.
pub(crate) fn items(args: &AccumulatorSweepArgs, split: &Split, epoch: u64) -> Vec<Item> {
    shuffled(split, args.seeds[0], epoch)
}

fn shuffled(split: &Split, seed: u64, epoch: u64) -> Vec<Item> {
    let stream = microscaling::RandomStream::new(seed, epoch);
    let mut order: Vec<usize> = (0..split.train.len()).collect();
    order.sort_by_cached_key(|at| stream.draw(*at as u64));
    order
        .into_iter()
        .filter_map(|at| split.train.get(at))
        .collect()
}

/// One epoch, and the mean loss.
fn epoch<B: AutodiffBackend>(
    mut model: Model<B>,
    optimizer: &mut impl Optimizer<Model<B>, B>,
    name: ModelName,
    (items, batch_size): (&[Item], usize),
    device: &B::Device,
) -> (Model<B>, f64) {
    let (mut sum, mut steps) = (0.0, 0);
    for batch in items.chunks(batch_size) {
        let loss = model.output(name.task().batch(batch, device)).loss;
        sum += burn::tensor::ElementConversion::elem::<f64>(loss.clone().into_scalar());
        steps += 1;
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(name.learning_rate(), model, grads);
    }
    (model, sum / f64::from(steps))
}

/// The weights after an epoch in FP32.
pub(crate) fn after_an_epoch(
    args: &AccumulatorSweepArgs,
    architecture: Architecture,
    name: ModelName,
    split: &Split,
) -> Result<Weights, Box<dyn Error>> {
    type B = Autodiff<Flex>;
    let model =
        Weights::initial(architecture, args.seeds[0])?.load::<B>(architecture, &FlexDevice)?;
    let items = items(args, split, 0);
    let mut optimizer = AdamWConfig::new().init();
    let (model, _) = epoch(
        model,
        &mut optimizer,
        name,
        (&items, args.batch_size),
        &FlexDevice,
    );
    Ok(Weights::of(model)?)
}

/// Trains by FP32, by float32 sums, by the named units, and by the sweep's units without promotion.
pub(crate) fn runs(
    args: &AccumulatorSweepArgs,
    units: &[Unit],
    specs: &MxSpecs,
    name: ModelName,
    split: &Split,
) -> Result<Vec<Runs>, Box<dyn Error>> {
    let architecture = name.of(Sizes::default())?;
    let named = args.accumulators.iter().map(|choice| (*choice, None));
    let swept = units.iter().filter(|unit| unit.promote_every == 0);
    let swept = swept.map(|unit| (unit.choice, Some(unit.fraction_bits)));
    let mut all = vec![Runs::new("fp32", None, args, |seed| {
        run::<Autodiff<Flex>>(args, architecture, name, split, &FlexDevice, seed)
    })?];
    let choices = named
        .chain(swept)
        .map(|(choice, bits)| (Some(choice), bits));
    for (choice, bits) in [(None, None)].into_iter().chain(choices) {
        let device = MxDevice::new(FlexDevice, &with(specs, choice).resolve()?)?;
        let text = choice.map_or("float32 sums".to_owned(), |choice| choice.to_string());
        all.push(Runs::new(&text, bits, args, |seed| {
            run::<MxAutodiff<Flex>>(args, architecture, name, split, &device, seed)
        })?);
    }
    Ok(all)
}

impl Runs {
    fn new(
        name: &str,
        fraction_bits: Option<u32>,
        args: &AccumulatorSweepArgs,
        run: impl Fn(u64) -> Result<[f64; 2], Box<dyn Error>>,
    ) -> Result<Self, Box<dyn Error>> {
        let began = std::time::Instant::now();
        let loss_and_score = args.seeds.iter().map(|seed| run(*seed));
        let loss_and_score = loss_and_score.collect::<Result<_, _>>()?;
        eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
        Ok(Self {
            name: name.to_owned(),
            fraction_bits,
            loss_and_score,
        })
    }
}

/// Loss and score of a run.
fn run<B: AutodiffBackend>(
    args: &AccumulatorSweepArgs,
    architecture: Architecture,
    name: ModelName,
    split: &Split,
    device: &B::Device,
    seed: u64,
) -> Result<[f64; 2], Box<dyn Error>> {
    let mut model = Weights::initial(architecture, seed)?.load::<B>(architecture, device)?;
    B::seed(device, seed);
    let mut optimizer = AdamWConfig::new().init();
    let mut loss = f64::NAN;
    for at in 0..args.epochs {
        let items = shuffled(split, seed, at as u64);
        (model, loss) = epoch(
            model,
            &mut optimizer,
            name,
            (&items, args.batch_size),
            device,
        );
    }
    let model = model.valid();
    let items: Vec<Item> = (0..split.test.len())
        .filter_map(|at| split.test.get(at))
        .collect();
    let batches = items.chunks(TEST_BATCH);
    let solved = batches.map(|batch| model.solved(name.task().batch(batch, device)));
    Ok([loss, solved.sum::<usize>() as f64 / items.len() as f64])
}

/// The runs as text.
pub(crate) fn table(name: ModelName, runs: &[Runs]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["sums", "last loss", name.task().score(), "of each seed"]);
    for run in runs {
        let [loss, score] = run.mean();
        let each = run.loss_and_score.iter();
        let each: Vec<String> = each.map(|run| format!("{:.4}", run[1])).collect();
        table.add_row([
            run.name.clone(),
            format!("{loss:.4}"),
            format!("{score:.4}"),
            each.join(" "),
        ]);
    }
    table
}
