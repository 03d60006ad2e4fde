//! FP32 first, then each MX run, from the same initial weights on the same batches; then the report.

use std::{collections::HashMap, error::Error, path::Path, sync::Arc, time::Instant};

use burn::{
    backend::{Autodiff, Flex, flex::FlexDevice},
    tensor::backend::AutodiffBackend,
    train::Interrupter,
};
use burn_mx::{
    Exemptions, MxAutodiff, MxDevice, ResolvedSpecs,
    module::{ExemptError, MxTensorOps},
    record::{RECORDS, REPORT_HTML, Report},
};
use burn_mx_lab::{output, tables, with_backend};

use super::{
    pareto,
    plan::SweepPlan,
    plot,
    progress::Monitor,
    report::{self, CompareRun},
    train::{Outcome, Start, Weights, train},
};
use crate::training::{
    epochs::Reseed,
    layers::Layer,
    models::{Architecture, ModelName},
    stages::Staged,
};

/// Does what `plan` says and prints the results.
pub(crate) fn run(plan: SweepPlan) -> Result<(), Box<dyn Error>> {
    println!(
        "{} training and {} test {}, epochs {}",
        plan.split.train.len(),
        plan.split.test.len(),
        plan.model.task().items(),
        plan.hyperparameters.epochs,
    );
    if let Some(folder) = &plan.saved {
        let folder = folder.display();
        println!("checkpoints after every epoch: {folder}; add --resume to continue after Ctrl-C");
    }
    // The one place where FP32 and MX differ: the backend's type, and specs on the device.
    let (runs, stopped) = with_backend!(plan.backend, B => {
        train_all::<Autodiff<B>, MxAutodiff<B>>(&plan, Default::default(), |specs| {
            MxDevice::new(Default::default(), specs).expect("resolved specs")
        })
    })?;

    let stopped = stopped.map(|stop| stop.message(&plan, runs.len()));
    let records = plan.record.as_ref().map(|(_, folder)| folder.clone());
    if !runs.is_empty() {
        report_all(&runs, plan)?;
    }
    if let Some(folder) = records {
        report_records(&folder)?;
    }
    stopped.map_or(Ok(()), |message| Err(message.into()))
}

/// Writes the files and prints the table.
fn report_all(runs: &[CompareRun], plan: SweepPlan) -> Result<(), Box<dyn Error>> {
    let is_complete = runs.len() == plan.runs().count();
    // The files first: they are what must not get lost.
    let svg = plot::loss_curves(plan.model.title(), runs)?;
    let plot = plan.plot.replace(svg.as_bytes())?;
    let score = plan.model.task().score();
    let svg = pareto::score_over_bits(score, runs)?;
    let pareto = plan.pareto.replace(svg.as_bytes())?;
    let json = plan
        .json
        .map(|file| file.replace(&report::json(runs)?))
        .transpose()?;
    let table = report::table(
        runs,
        plan.hyperparameters.epochs,
        score,
        &plan.costing.chip().name,
    );
    let csv = plan.csv.map(|file| {
        file.replace(&tables::csv(&table)?)
            .map_err(Box::<dyn Error>::from)
    });
    let (notes, costs) = (report::notes(runs), plan.costing.legend());
    println!("\n{table}\n\n{notes}\n\n{costs}");
    if let Some(found) = plan.found.filter(|_| is_complete) {
        let ranking = found.rank(runs, plan.hyperparameters.epochs, score)?;
        println!("\n{ranking}");
    }
    println!("\nloss curves: {}", plot.display());
    println!("{score} over bits: {}", pareto.display());
    if let Some(json) = json {
        println!("runs as JSON: {}", json.display());
    }
    if let Some(csv) = csv.transpose()? {
        println!("table as CSV: {}", csv.display());
    }
    if let Some(folder) = plan.tensorboard {
        report::tensorboard(runs, &folder)?;
        println!("loss curves for TensorBoard: {}", folder.display());
    }
    if let Some(folder) = plan.saved {
        println!("checkpoints: {}", folder.display());
    }
    Ok(())
}

/// Writes the report of the recorder on the MX runs, if any was begun.
fn report_records(folder: &Path) -> Result<(), Box<dyn Error>> {
    if !folder.join(RECORDS).exists() {
        return Ok(());
    }
    let report = Report::read([folder])?;
    report.save(folder)?;
    println!("\n{}", report.table());
    println!(
        "\nwhat quantization did: {}",
        folder.join(REPORT_HTML).display()
    );
    Ok(())
}

/// The reason why a sweep ended early: the user, or a checkpoint that cannot be written.
struct Stop {
    reason: String,
    name: String,
    /// Whole epochs of the run that was stopped.
    epochs: usize,
}

impl Stop {
    fn message(&self, plan: &SweepPlan, complete: usize) -> String {
        let resume = match plan.saved {
            Some(_) => "; --resume goes on from the last checkpoint",
            None => "",
        };
        // burn-train's message of a full disk names neither the folder nor the reason.
        let full = plan.saved.as_ref().and_then(|folder| {
            let error = output::has_room(&folder.join("model")).err()?;
            Some(format!("cannot write to '{}': {error}", folder.display()))
        });
        format!(
            "stopped in {} after {} of {} epochs ({}); {complete} of {} runs are complete{resume}",
            self.name,
            self.epochs,
            plan.hyperparameters.epochs,
            full.as_ref().unwrap_or(&self.reason),
            plan.runs().count(),
        )
    }
}

/// Whether the model has what `layer` names.
pub(crate) fn try_layer(
    architecture: Architecture,
    layer: &Layer,
) -> Result<(), burn_mx::module::PathError> {
    let model = architecture.init::<MxAutodiff<Flex>>(&MxDevice::default());
    model.with_layers(std::slice::from_ref(layer)).map(drop)
}

/// The layers of the model that a recipe leaves without block formats.
pub(crate) fn exempt_layers(
    model: ModelName,
    architecture: Architecture,
    exemptions: Exemptions,
) -> Result<Vec<String>, ExemptError> {
    let device = MxDevice::new(FlexDevice, "none")?;
    let task = model.task();
    let batch = task.batch(&[task.sample()], &device);
    let model = architecture.init::<MxAutodiff<Flex>>(&device);
    model.exempt_layers(exemptions, batch)
}

/// Trains on `Fp32` what has no specs, and on `Mx` what has, until all is done or something stops it.
fn train_all<Fp32, Mx>(
    plan: &SweepPlan,
    device: Fp32::Device,
    mx_device: impl Fn(&ResolvedSpecs) -> Mx::Device,
) -> Result<(Vec<CompareRun>, Option<Stop>), Box<dyn Error>>
where
    Fp32: Staged,
    Mx: Staged + MxTensorOps,
{
    let mut weights = HashMap::new();
    for &seed in &plan.seeds {
        weights.insert(
            seed,
            // On one backend for all.
            Weights::init::<Autodiff<Flex>>(plan.architecture, &FlexDevice, seed)?,
        );
    }
    let interrupter = Interrupter::new();
    let planned = plan.runs().count();
    let mut runs = Vec::new();
    for (index, (format, seed)) in plan.runs().enumerate() {
        let monitor = Monitor {
            kind: plan.progress,
            name: match plan.seeds.len() {
                1 => format.name.clone(),
                _ => format!("{} seed {seed}", format.name),
            },
            title: format!("Run {} of {planned}", index + 1),
            interrupter: interrupter.clone(),
        };
        let (weights, saved) = (&weights[&seed], plan.saved(format, seed));
        let layers = &format.layers;
        let cost = plan.step_cost(format)?;
        let outcome = match &format.specs {
            None => {
                let start = Start::<Fp32> {
                    model: weights.load::<Fp32>(plan.architecture, &device)?,
                    device: device.clone(),
                    seed,
                    reseed: reseed::<Fp32>(vec![device.clone()]),
                    saved,
                    stages: Vec::new(),
                    recorder: None,
                };
                timed(&monitor, plan, "plain Burn", start)
            }
            Some(specs) => {
                let device = mx_device(specs);
                let model = weights.load::<Mx>(plan.architecture, &device)?;
                let stages = format.stages.iter();
                let staged = stages.clone().flat_map(|stage| &stage.layers);
                let own = layers.iter().chain(staged).map(|layer| &layer.specs.specs);
                let own = own.chain(stages.map(|stage| &stage.specs)).map(&mx_device);
                let model = match plan.record {
                    Some(_) => model.labelled(),
                    None => model,
                };
                let start = Start::<Mx> {
                    model: model.with_layers(layers)?,
                    seed,
                    reseed: reseed::<Mx>([device.clone()].into_iter().chain(own).collect()),
                    device,
                    saved,
                    stages: format.stages.clone(),
                    recorder: plan.recorder(&monitor.name),
                };
                timed(&monitor, plan, &specs.to_string(), start)
            }
        }?;
        let epochs = match outcome {
            Outcome::Trained(trained) => {
                runs.push(CompareRun::new(format, seed, layers, trained, cost));
                plan.hyperparameters.epochs
            }
            Outcome::Stopped { epochs } => epochs,
        };
        if let Some(reason) = interrupter.get_message() {
            let stop = Stop {
                reason,
                name: monitor.name,
                epochs,
            };
            return Ok((runs, Some(stop)));
        }
    }
    Ok((runs, None))
}

/// Random numbers of all `devices`: stochastic rounding has its own for each specs.
fn reseed<B: AutodiffBackend>(devices: Vec<B::Device>) -> Reseed {
    Arc::new(move |seed| devices.iter().for_each(|device| B::seed(device, seed)))
}

/// One run, then a line about it if it came to its end.
fn timed<B: Staged>(
    monitor: &Monitor,
    plan: &SweepPlan,
    formats: &str,
    start: Start<B>,
) -> Result<Outcome, Box<dyn Error>> {
    let began = Instant::now();
    let outcome = train(
        monitor,
        plan.model.task(),
        &plan.split,
        plan.hyperparameters,
        start,
    )?;
    if let Outcome::Trained(trained) = &outcome {
        let (name, steps) = (&monitor.name, trained.steps);
        let seconds = began.elapsed().as_secs_f64();
        println!("{name} ({formats}): {steps} steps in {seconds:.1} s");
    }
    Ok(outcome)
}
