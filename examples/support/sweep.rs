//! FP32 first, then each MX run, from the same initial weights on the same batches; then the
//! report.

use std::{error::Error, time::Instant};

use burn::{
    backend::{Autodiff, Flex, NdArray, flex::FlexDevice, ndarray::NdArrayDevice},
    tensor::backend::AutodiffBackend,
};
use burn_mx::{MxAutodiff, MxDevice, ResolvedSpecs};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    cli::{BackendName, Plan},
    digits::Digits,
    plot,
    report::{self, Run},
    train::{self, Architecture, Trained, Weights},
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

    println!("\n{}", report::table(&runs, plan.recipe.epochs));
    let svg = plot::loss_curves(title, &runs)?;
    println!(
        "\nloss curves: {}",
        plan.plot.replace(svg.as_bytes())?.display()
    );
    if let Some(file) = plan.json {
        println!(
            "runs as JSON: {}",
            file.replace(&report::json(&runs)?)?.display()
        );
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
    let digits = Digits::load()?;
    let weights = Weights::init::<Fp32>(architecture, &device, plan.recipe.seed)?;
    println!(
        "{} training and {} test digits, {} epochs, seed {}",
        digits.train.len(),
        digits.test.len(),
        plan.recipe.epochs,
        plan.recipe.seed,
    );

    let trained = with_progress("fp32", train::steps(&plan.recipe, &digits), |progress| {
        train::train::<Fp32>(
            architecture,
            &weights,
            &digits,
            &plan.recipe,
            &device,
            progress,
        )
    })?;
    let mut runs = vec![Run::fp32(trained)];
    for mx in &plan.mx {
        println!("{}: {}", mx.name, mx.specs);
        let trained = with_progress(&mx.name, train::steps(&plan.recipe, &digits), |progress| {
            let device = mx_device(&mx.specs);
            train::train::<Mx>(
                architecture,
                &weights,
                &digits,
                &plan.recipe,
                &device,
                progress,
            )
        })?;
        runs.push(Run::mx(&mx.name, &mx.specs, plan.overridden, trained));
    }
    Ok(runs)
}

/// A progress bar on a terminal (indicatif draws none elsewhere), and one line when the run is
/// done.
fn with_progress<E>(
    name: &str,
    steps: usize,
    run: impl FnOnce(&ProgressBar) -> Result<Trained, E>,
) -> Result<Trained, E> {
    let style = ProgressStyle::with_template(
        "{prefix:<12} {bar:30} {pos:>5}/{len} steps  {msg}  {eta} left",
    )
    .expect("the template is valid");
    let progress = ProgressBar::new(steps as u64)
        .with_style(style)
        .with_prefix(name.to_owned());
    let start = Instant::now();
    let trained = run(&progress)?;
    progress.finish_and_clear();
    println!(
        "{name}: {steps} steps in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(trained)
}
