//! FP32 first, then each MX run, from the same initial weights on the same batches; then the report.

use std::{collections::HashMap, error::Error, sync::Arc, time::Instant};

#[cfg(feature = "ndarray")]
use burn::backend::{NdArray, ndarray::NdArrayDevice};
use burn::{
    backend::{Autodiff, Flex, flex::FlexDevice},
    tensor::backend::AutodiffBackend,
};
use burn_mx::{MxAutodiff, MxDevice, ResolvedSpecs, module::MxTensorOps};

use super::{
    cli::{BackendName, Format, Plan},
    epochs::Reseed,
    layers::{Layer, set_layers},
    plot,
    report::{self, Run},
    task::{Architecture, Task, Trainable},
    train::{Start, Trained, Weights, train},
};

/// Does what `plan` says with `architecture` and prints the results.
pub(crate) fn run<A: Architecture>(
    architecture: &A,
    plan: Plan<A::Task>,
) -> Result<(), Box<dyn Error>> {
    println!(
        "{} training and {} test {}, epochs {}",
        plan.split.train.len(),
        plan.split.test.len(),
        A::Task::ITEMS,
        plan.recipe.epochs,
    );
    // The one place where FP32 and MX differ: the backend's type, and specs on the device.
    let runs = match plan.backend {
        BackendName::Flex => train_all::<Autodiff<Flex>, MxAutodiff<Flex>, A>(
            architecture,
            &plan,
            FlexDevice,
            |specs| MxDevice::new(FlexDevice, specs),
        ),
        #[cfg(feature = "ndarray")]
        BackendName::NdArray => train_all::<Autodiff<NdArray>, MxAutodiff<NdArray>, A>(
            architecture,
            &plan,
            NdArrayDevice::Cpu,
            |specs| MxDevice::new(NdArrayDevice::Cpu, specs),
        ),
    }?;

    // The files first: they are what must not get lost.
    let svg = plot::loss_curves(A::TITLE, &runs)?;
    let plot = plan.plot.replace(svg.as_bytes())?;
    let json = plan
        .json
        .map(|file| file.replace(&report::json(&runs)?))
        .transpose()?;
    println!(
        "\n{}",
        report::table(&runs, plan.recipe.epochs, A::Task::SCORE)
    );
    println!("\nloss curves: {}", plot.display());
    if let Some(json) = json {
        println!("runs as JSON: {}", json.display());
    }
    if let Some(folder) = plan.saved {
        println!("checkpoints: {}", folder.display());
    }
    Ok(())
}

/// Whether the model has what `layer` names.
pub(crate) fn try_layer(
    architecture: &impl Architecture,
    layer: &Layer,
) -> Result<(), burn_mx::module::PathError> {
    let model = architecture.init::<MxAutodiff<Flex>>(&MxDevice::default());
    set_layers(model, std::slice::from_ref(layer)).map(drop)
}

/// Trains on `Fp32` what has no specs, and on `Mx` what has.
fn train_all<Fp32, Mx, A>(
    architecture: &A,
    plan: &Plan<A::Task>,
    device: Fp32::Device,
    mx_device: impl Fn(&ResolvedSpecs) -> Mx::Device,
) -> Result<Vec<Run>, Box<dyn Error>>
where
    Fp32: AutodiffBackend,
    Mx: AutodiffBackend + MxTensorOps,
    A: Architecture,
{
    let mut weights = HashMap::new();
    for &seed in &plan.seeds {
        weights.insert(seed, Weights::init::<Fp32>(architecture, &device, seed)?);
    }
    let mut runs = Vec::new();
    for (format, seed) in plan.runs() {
        let (weights, saved) = (&weights[&seed], plan.saved(format, seed));
        let layers = plan.layers(format);
        let trained = match &format.specs {
            None => {
                let start = Start::<Fp32, _> {
                    model: weights.load::<Fp32, A>(architecture, &device)?,
                    device: device.clone(),
                    seed,
                    reseed: reseed::<Fp32>(vec![device.clone()]),
                    saved,
                };
                timed(format, plan, "plain Burn", start)
            }
            Some(specs) => {
                let device = mx_device(specs);
                let model = weights.load::<Mx, A>(architecture, &device)?;
                let own = layers.iter().map(|layer| mx_device(&layer.specs.specs));
                let start = Start::<Mx, _> {
                    model: set_layers(model, layers)?,
                    seed,
                    reseed: reseed::<Mx>([device.clone()].into_iter().chain(own).collect()),
                    device,
                    saved,
                };
                timed(format, plan, &specs.to_string(), start)
            }
        }?;
        runs.push(Run::new(format, seed, layers, trained));
    }
    Ok(runs)
}

/// Random numbers of all `devices`: stochastic rounding has its own for each specs.
fn reseed<B: AutodiffBackend>(devices: Vec<B::Device>) -> Reseed {
    Arc::new(move |seed| devices.iter().for_each(|device| B::seed(device, seed)))
}

/// One run, then a line about it.
fn timed<B, M, T>(
    format: &Format,
    plan: &Plan<T>,
    formats: &str,
    start: Start<B, M>,
) -> Result<Trained, Box<dyn Error>>
where
    B: AutodiffBackend,
    T: Task,
    M: Trainable<B, T>,
{
    let seed = start.seed;
    let name = match plan.seeds.len() {
        1 => format.name.clone(),
        _ => format!("{} seed {seed}", format.name),
    };
    let began = Instant::now();
    let trained = train(&name, &plan.split, plan.recipe, start)?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{name} ({formats}): {} steps in {seconds:.1} s",
        trained.steps
    );
    Ok(trained)
}
