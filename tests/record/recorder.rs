//! The recorder changes nothing, and its figures follow their definitions.

// On any backend.
mod figures;
mod not_emulated;
mod sizes;
mod sums;
mod undisturbed;

// Of processors.
#[cfg(test_backend = "flex")]
mod attention;
#[cfg(test_backend = "flex")]
mod choices;
#[cfg(test_backend = "flex")]
mod elementwise;
#[cfg(test_backend = "flex")]
mod error_parts;
#[cfg(test_backend = "flex")]
mod files;
#[cfg(test_backend = "flex")]
mod hot_columns;
#[cfg(test_backend = "flex")]
mod metrics;
#[cfg(test_backend = "flex")]
mod names;
#[cfg(test_backend = "flex")]
mod outputs;
#[cfg(test_backend = "flex")]
mod products;

use burn_mx::record::{
    OperandRecord, ProductKind, ProductRecord, Recorder, RecorderConfig, Recording, Report,
    StepRecord,
};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

/// Records this thread alone, as the other tests of this process run beside.
fn record_here(config: RecorderConfig, folder: &TempDir) -> Recording {
    let recorder = Recorder::new(config);
    recorder
        .on_this_thread()
        .start(folder)
        .expect("the folder is new")
}

fn steps(report: &Report) -> Vec<&StepRecord> {
    report.steps().collect()
}

fn product<'a>(step: &'a StepRecord, layer: &str, kind: ProductKind) -> &'a ProductRecord {
    let mut products = step.products.iter();
    let found = products.find(|product| product.layer == layer && product.product == kind);
    found.unwrap_or_else(|| panic!("{layer} {kind}: {:?}", names(step)))
}

fn operand<'a>(product: &'a ProductRecord, name: &str) -> &'a OperandRecord {
    let found = product
        .operands
        .iter()
        .find(|operand| operand.operand == name);
    found.unwrap_or_else(|| panic!("{name}: {product:?}"))
}

fn names(step: &StepRecord) -> Vec<(&str, ProductKind)> {
    let products = step.products.iter();
    products
        .map(|product| (product.layer.as_str(), product.product))
        .collect()
}
