//! Gradients of a model by every unit.

use std::error::Error;

use burn::backend::{Autodiff, Flex, flex::FlexDevice};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use super::{AccumulatorSweepArgs, Unit, training, with};
use crate::training::{
    models::{ModelName, Sizes},
    tasks::Split,
    warm_up::{distance, gradient},
};

/// Errors of the gradient of all parameters, on one batch of a model that was trained for an epoch in FP32.
#[derive(Debug, Serialize)]
pub(crate) struct GradientErrors {
    /// The error of the same formats with float32 sums, against the gradient in FP32: the effect of quantization.
    pub(crate) quantization: f64,
    /// The error of each unit, against the same formats with float32 sums.
    pub(crate) units: Vec<(Unit, f64)>,
}

/// The errors of every unit.
pub(crate) fn errors(
    args: &AccumulatorSweepArgs,
    units: &[Unit],
    specs: &MxSpecs,
    name: ModelName,
    split: &Split,
) -> Result<GradientErrors, Box<dyn Error>> {
    let architecture = name.of(Sizes::default())?;
    let weights = training::after_an_epoch(args, architecture, name, split)?;
    let items = training::items(args, split, 0);
    let batch = &items[..args.batch_size.min(items.len())];
    let fp32 = {
        let model = weights.load::<Autodiff<Flex>>(architecture, &FlexDevice)?;
        gradient(&model, name.task().batch(batch, &FlexDevice))
    };
    let of = |specs: &MxSpecs| -> Result<Vec<f32>, Box<dyn Error>> {
        let device = MxDevice::new(FlexDevice, &specs.resolve()?)?;
        let model = weights.load::<MxAutodiff<Flex>>(architecture, &device)?;
        Ok(gradient(&model, name.task().batch(batch, &device)))
    };
    let float32 = of(&with(specs, None))?;
    let mut errors = Vec::new();
    for &unit in units {
        let gradient = of(&with(specs, Some(unit.choice)))?;
        errors.push((unit, distance(&gradient, &float32)));
    }
    Ok(GradientErrors {
        quantization: distance(&float32, &fp32),
        units: errors,
    })
}

/// The errors as text.
pub(crate) fn table(errors: &GradientErrors) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["promote every", "fraction bits", "gradient's error"]);
    for (unit, error) in &errors.units {
        table.add_row([
            unit.promote_every.to_string(),
            unit.fraction_bits.to_string(),
            format!("{error:.1e}"),
        ]);
    }
    let quantization = format!("{:.1e}", errors.quantization);
    table.add_row(["quantization alone", "", &quantization]);
    table
}
