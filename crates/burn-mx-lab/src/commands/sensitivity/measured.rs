//! Quantizes one operand at a time.

use std::error::Error;

use burn::backend::{Flex, flex::FlexDevice};
use burn::tensor::ElementConversion;
use burn_mx::{
    BlockFormat, MxBackend, MxDevice, MxSpecs, Slot, SlotFormat,
    module::set_specs,
    record::{
        ProductKind, Recorder, RecorderConfig, Report, Score, Sensitivity, output_sensitivities,
    },
};
use indicatif::{ProgressBar, ProgressStyle};

use super::{OperandRow, SensitivityArgs};
use crate::training::{
    layers::Layer,
    models::{Model, ModelName},
    tasks::{Batch, Item, Split},
    warm_up::{Train, distance, gradient, items, trained},
};

/// Every operand of every layer in every format; and the scores of ModelOpt's `auto_quantize` for weights.
pub(crate) fn rows(
    args: &SensitivityArgs,
    specs: &MxSpecs,
    name: ModelName,
) -> Result<(Vec<OperandRow>, Vec<Sensitivity>), Box<dyn Error>> {
    let split = name.task().load()?;
    let model = trained(name, &split, args.seed, args.batch_size, args.steps)?;
    let places = recorded(args, specs, name, &model, &split)?;
    let batches = batches(args, name, &split, &MxDevice::new(FlexDevice, "none")?);
    let losses = |model: &Model<Train>| -> Vec<f64> {
        let loss = |batch: &Batch<Train>| model.output(batch.clone()).loss.into_scalar().elem();
        batches.iter().map(loss).collect()
    };
    let gradients = |model: &Model<Train>| -> Vec<Vec<f32>> {
        let batches = batches.iter().cloned();
        batches.map(|batch| gradient(model, batch)).collect()
    };
    let (exact_losses, exact_gradients) = (losses(&model), gradients(&model));

    let bar = ProgressBar::new((places[0].len() * args.formats.len()) as u64);
    bar.set_style(ProgressStyle::with_template(
        "{prefix} {bar:30} {pos}/{len} operands, {eta}",
    )?);
    bar.set_prefix(name.name());
    let mut rows = Vec::new();
    for (at, place) in places[0].iter().enumerate() {
        for &format in &args.formats {
            let text = format.to_string();
            let layer = Layer::of(
                place.layer.clone(),
                alone(specs, place.slot, format).resolve()?,
            );
            let quantized = model.clone().with_layers(&[layer])?;
            let effect = match place.product {
                ProductKind::Forward => {
                    let changes = losses(&quantized).into_iter().zip(&exact_losses);
                    let squares = changes.map(|(loss, exact)| (loss - exact).powi(2));
                    (squares.sum::<f64>() / batches.len() as f64).sqrt()
                }
                _ => {
                    let errors = gradients(&quantized);
                    let errors = errors.iter().zip(&exact_gradients);
                    let squares = errors.map(|(got, exact)| distance(got, exact).powi(2));
                    (squares.sum::<f64>() / batches.len() as f64).sqrt()
                }
            };
            let scores = places.iter().map(|by_score| by_score[at].score(&text));
            rows.push(OperandRow {
                scores: scores
                    .map(|score| score.expect("it was recorded"))
                    .collect(),
                place: place.clone(),
                format: text,
                effect,
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok((rows, outputs(args, name, &model, &split)?))
}

/// ModelOpt's scores, on the batches of the measurement.
fn outputs(
    args: &SensitivityArgs,
    name: ModelName,
    model: &Model<Train>,
    split: &Split,
) -> Result<Vec<Sensitivity>, Box<dyn Error>> {
    let device = MxDevice::new(FlexDevice, "none")?;
    let formats: Vec<String> = args.formats.iter().map(BlockFormat::to_string).collect();
    let steps = args.steps..args.steps + args.batches;
    let batches: Vec<Vec<Item>> = steps
        .map(|step| items(split, args.seed, args.batch_size, step))
        .collect();
    macro_rules! each {
        ($($variant:ident)*) => {
            match model {
                $(Model::$variant(model) => output_sensitivities(
                    model,
                    &formats,
                    &batches,
                    |model, items| {
                        let model = Model::<Train>::$variant(Clone::clone(model));
                        model.output(name.task().batch(items, &device)).loss
                    },
                    |model, items| {
                        let model = Model::<MxBackend<Flex>>::$variant(Clone::clone(model));
                        model.output(name.task().batch(items, &device)).loss
                    },
                    |_, _| (),
                ),)*
            }
        };
    }
    Ok(each! { Ffn Cnn Lstm Transformer }?)
}

/// The places with their weights, score by score.
fn recorded(
    args: &SensitivityArgs,
    specs: &MxSpecs,
    name: ModelName,
    model: &Model<Train>,
    split: &Split,
) -> Result<Vec<Vec<Sensitivity>>, Box<dyn Error>> {
    let specs = specs.resolve()?;
    let device = MxDevice::new(FlexDevice, &specs)?;
    let model = set_specs(model.clone(), &specs).labelled();
    let folder = tempfile::tempdir()?;
    let formats = args.formats.iter().map(BlockFormat::to_string);
    let config = RecorderConfig::default().what_if(formats);
    let recording = Recorder::new(config).on_this_thread().start(&folder)?;
    for batch in batches(args, name, split, &device) {
        drop(model.output(batch).loss.backward());
    }
    let report: Report = recording.finish()?;
    let by_score = Score::ALL.map(|score| report.sensitivities(score));
    Ok(by_score.into_iter().collect::<Result<_, _>>()?)
}

/// Batches that follow the batches of the training.
fn batches(
    args: &SensitivityArgs,
    name: ModelName,
    split: &Split,
    device: &MxDevice<FlexDevice>,
) -> Vec<Batch<Train>> {
    let steps = args.steps..args.steps + args.batches;
    let items = steps.map(|step| items(split, args.seed, args.batch_size, step));
    items
        .map(|items| name.task().batch(&items, device))
        .collect()
}

/// Specs that quantize this slot alone.
fn alone(specs: &MxSpecs, slot: Slot, format: BlockFormat) -> MxSpecs {
    let mut specs = MxSpecs {
        bfloat: 0,
        fp: 0,
        w_elem_format: None,
        a_elem_format: None,
        w_elem_format_bp: None,
        a_elem_format_bp: None,
        a_elem_format_bp_ex: None,
        a_elem_format_bp_os: None,
        ..specs.clone()
    };
    *specs.slot_format_mut(slot) = Some(SlotFormat::Block(format));
    specs
}
