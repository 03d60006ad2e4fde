//! The recorder's figures as metrics of burn-train.

use burn::data::dataloader::Progress;
use burn::train::metric::{Metric, MetricMetadata, Numeric, NumericEntry};
use burn_mx::MxSpecs;
use burn_mx::module::label_parameters;
use burn_mx::record::{MxSaturation, MxSqnr, MxUnderflow, RecorderConfig};

use super::{folder, record_here};
use crate::models::{Forward as _, Mlp, model};
use crate::support::{Mx, mx_device};

#[test]
fn burn_train_sees_the_worst_and_the_mean() {
    let folder = folder();
    let recording = record_here(RecorderConfig::default(), &folder);
    let metadata = || MetricMetadata {
        progress: Progress {
            items_processed: 1,
            items_total: 1,
        },
        global_progress: Progress {
            items_processed: 1,
            items_total: 1,
        },
        iteration: Some(1),
        lr: None,
    };
    let mut worst = MxSqnr::worst(&recording);
    let nothing = worst.update(&(), &metadata());
    assert!(nothing.formatted.contains("nothing recorded yet"));

    let device = mx_device(&MxSpecs::mxfp4());
    let model = label_parameters(model::<Mlp, Mx>(&device));
    model.outputs(&device).sum().backward();
    let latest = recording.latest().expect("a step was recorded");
    let operands = latest.products.iter().flat_map(|product| &product.operands);
    let figures: Vec<_> = operands.map(|operand| operand.figures.clone()).collect();
    let all = |figure: fn(&burn_mx::record::Figures) -> Option<f64>| -> Vec<f64> {
        figures.iter().filter_map(figure).collect()
    };
    let value = |entry: NumericEntry| entry.current();
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;

    let sqnr = all(|figures| figures.sqnr);
    let entry = worst.update(&(), &metadata());
    assert_eq!(
        value(worst.value()),
        sqnr.iter().copied().fold(f64::INFINITY, f64::min)
    );
    assert!(
        entry.formatted.contains("weight") && entry.formatted.contains("dB"),
        "{}",
        entry.formatted
    );
    let mut of_all = MxSqnr::mean(&recording);
    of_all.update(&(), &metadata());
    assert!((value(of_all.value()) - mean(&sqnr)).abs() < 1e-9);
    assert_ne!(worst.name(), of_all.name());

    let mut underflow = MxUnderflow::worst(&recording);
    underflow.update(&(), &metadata());
    let largest = |figures: Vec<f64>| figures.into_iter().fold(0.0, f64::max);
    assert_eq!(
        value(underflow.value()),
        largest(all(|figures| figures.underflow))
    );
    let mut saturation = MxSaturation::worst(&recording);
    saturation.update(&(), &metadata());
    assert_eq!(
        value(saturation.value()),
        largest(all(|figures| figures.saturation))
    );
}
