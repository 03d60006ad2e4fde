//! FP32 first, then each MX run, from the same initial weights on the same batches; then the
//! report.

use std::{error::Error, time::Instant};

use burn::{
    backend::{Autodiff, Flex, NdArray, flex::FlexDevice, ndarray::NdArrayDevice},
    record::RecorderError,
    tensor::backend::AutodiffBackend,
};
use burn_mx::{MxAutodiff, MxDevice, ResolvedSpecs};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    cli::{BackendName, Plan},
    digits::Digits,
    plot,
    report::{self, Run},
    train::{Architecture, Job, Trained, Weights},
};

/// Does what `plan` says with `architecture` and prints the results; `title` heads the plot.
pub(crate) fn run(
    title: &str,
    architecture: &impl Architecture,
    plan: Plan,
) -> Result<(), Box<dyn Error>> {
    // The one place where FP32 and MX differ: the backend's type, and specs on the device.
    let runs = match plan.backend {
        BackendName::Flex => train_all::<Autodiff<Flex>, MxAutodiff<Flex>>(
            architecture,
            &plan,
            FlexDevice,
            |specs| MxDevice::new(FlexDevice, specs),
        ),
        BackendName::NdArray => train_all::<Autodiff<NdArray>, MxAutodiff<NdArray>>(
            architecture,
            &plan,
            NdArrayDevice::Cpu,
            |specs| MxDevice::new(NdArrayDevice::Cpu, specs),
        ),
    }?;

    // The files first: they are what must not get lost.
    let svg = plot::loss_curves(title, &runs)?;
    let plot = plan.plot.replace(svg.as_bytes())?;
    let json = plan
        .json
        .map(|file| file.replace(&report::json(&runs)?))
        .transpose()?;
    println!("\n{}", report::table(&runs, plan.recipe.epochs));
    println!("\nloss curves: {}", plot.display());
    if let Some(json) = json {
        println!("runs as JSON: {}", json.display());
    }
    Ok(())
}

/// Trains on `Fp32`, then on `Mx` once for each of the plan's MX runs.
fn train_all<Fp32: AutodiffBackend, Mx: AutodiffBackend>(
    architecture: &impl Architecture,
    plan: &Plan,
    device: Fp32::Device,
    mx_device: impl Fn(&ResolvedSpecs) -> Mx::Device,
) -> Result<Vec<Run>, Box<dyn Error>> {
    let job = Job {
        architecture,
        weights: Weights::init::<Fp32>(architecture, &device, plan.recipe.seed)?,
        digits: Digits::load()?,
        recipe: &plan.recipe,
    };
    println!(
        "{} training and {} test digits, epochs {}, seed {}",
        job.digits.train.len(),
        job.digits.test.len(),
        plan.recipe.epochs,
        plan.recipe.seed,
    );
    let mut runs = vec![Run::fp32(train::<Fp32, _>(
        &job,
        "fp32",
        "plain Burn",
        &device,
    )?)];
    for mx in &plan.mx {
        let device = mx_device(&mx.specs);
        let trained = train::<Mx, _>(&job, &mx.name, &mx.specs.to_string(), &device)?;
        runs.push(Run::mx(&mx.name, &mx.specs, plan.overridden, trained));
    }
    Ok(runs)
}

/// One run: a progress bar on a terminal (indicatif draws none elsewhere), then a line.
fn train<B: AutodiffBackend, A: Architecture>(
    job: &Job<A>,
    name: &str,
    formats: &str,
    device: &B::Device,
) -> Result<Trained, RecorderError> {
    let style = ProgressStyle::with_template(
        "{prefix:<12} {bar:30} {pos:>5}/{len} steps  {msg}  {eta} left",
    )
    .expect("the template is valid");
    let progress = ProgressBar::new(job.steps() as u64)
        .with_style(style)
        .with_prefix(name.to_owned());
    let start = Instant::now();
    let trained = job.train::<B>(device, &progress)?;
    progress.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{name} ({formats}): {} steps in {seconds:.1} s",
        job.steps()
    );
    Ok(trained)
}
