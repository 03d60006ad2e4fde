//! The noise of each operand in each format, and the weight of the noise.

use std::collections::{BTreeMap, BTreeSet};

use burn_mx_core::Slot;
use serde::{Deserialize, Serialize};

use super::SearchError;
use crate::file::figures::{Figures, OperandRecord, ProductRecord, StepRecord};
use burn_mx_core::hooks::ProductKind;

/// The weight of a place: how much the noise of its operand matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Score {
    /// Every place has the weight 1.
    Noise,
    /// The weight says how much the noise changes the loss or the gradient of the model:
    /// * of a forward product with the result y, Σ y² · mean((∂L/∂y)²), by the diagonal of the Fisher information;
    /// * of a weight gradient, its sum of squares;
    /// * of an input gradient, the sum of squares of the weight gradients of all layers before its layer, times a share. The share
    ///   is its own sum of squares over the largest one of an input gradient so far. A branch with a small gradient passes little
    ///   noise on.
    ///
    /// Weights of forward products have the mean 1, and weights of gradient products, too.
    #[default]
    Fisher,
}

impl Score {
    /// Every score.
    pub const ALL: [Self; 2] = [Self::Noise, Self::Fisher];

    /// The name in tables and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noise => "noise",
            Self::Fisher => "fisher",
        }
    }
}

/// An operand of a product of a layer, with its noise in each recorded format. The numbers are means over the recorded steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sensitivity {
    /// The layer's name.
    pub layer: String,
    /// The layer's product.
    pub product: ProductKind,
    /// The slot of the operand's format.
    pub slot: Slot,
    /// Elements of the operand.
    pub elements: f64,
    /// Multiplications of the product; 0 if its size was not recorded.
    #[serde(default)]
    pub macs: f64,
    /// Elements of the product's result; 0 if its size was not recorded.
    #[serde(default)]
    pub result_elements: f64,
    /// The weight of the operand's noise.
    pub weight: f64,
    /// Noise over signal by format.
    pub noise: BTreeMap<String, f64>,
}

impl Sensitivity {
    /// Weight times noise over signal in this format; `None` if the format was not recorded.
    pub fn score(&self, format: &str) -> Option<f64> {
        Some(self.weight * self.noise.get(format)?)
    }

    /// Whether both are of one slot of one product.
    fn is_like(&self, other: &Self) -> bool {
        let key = |place: &Self| (place.product, place.slot);
        self.layer == other.layer && key(self) == key(other)
    }

    fn add(&mut self, steps: f64, other: &Self) {
        let share = 1.0 / steps;
        let mean = |mean: &mut f64, new: f64| *mean += share * (new - *mean);
        mean(&mut self.elements, other.elements);
        mean(&mut self.macs, other.macs);
        mean(&mut self.result_elements, other.result_elements);
        mean(&mut self.weight, other.weight);
        for (format, noise) in &other.noise {
            mean(self.noise.entry(format.clone()).or_default(), *noise);
        }
    }
}

/// The places of layers with weights, in the order of their first products.
pub(super) fn of_steps<'a>(
    steps: impl Iterator<Item = &'a StepRecord>,
    score: Score,
) -> Result<Vec<Sensitivity>, SearchError> {
    let mut places: Vec<(f64, Sensitivity)> = Vec::new();
    for step in steps {
        let of_step = of_step(step, score)?;
        for (at, found) in of_step.iter().enumerate() {
            // A product of two weights has two operands of one slot.
            let earlier = of_step[..at].iter().filter(|place| place.is_like(found));
            let mut same = places
                .iter_mut()
                .filter(|(_, place)| place.is_like(found))
                .skip(earlier.count());
            match same.next() {
                None => places.push((1.0, found.clone())),
                Some((steps, place)) => {
                    *steps += 1.0;
                    place.add(*steps, found);
                }
            }
        }
    }
    Ok(places.into_iter().map(|(_, place)| place).collect())
}

fn of_step(step: &StepRecord, score: Score) -> Result<Vec<Sensitivity>, SearchError> {
    let is_weight = |operand: &OperandRecord| matches!(operand.slot, Slot::W | Slot::WBp);
    // A recipe names parameters. A name that the recorder made up, as of a weight that the model computes, has a space.
    let named = step.products.iter();
    let named = named.filter(|product| !product.layer.contains(' '));
    let layers: BTreeSet<&str> = named
        .filter(|product| product.operands.iter().any(is_weight))
        .map(|product| product.layer.as_str())
        .collect();
    let products: Vec<&ProductRecord> = step
        .products
        .iter()
        .filter(|product| layers.contains(product.layer.as_str()))
        .collect();
    let mut found = Vec::new();
    for (at, product) in products.iter().enumerate() {
        let weight = match score {
            Score::Noise => 1.0,
            Score::Fisher => weight(&products, at)?,
        };
        // No slot has the format of hot columns.
        let of_slots = product.operands.iter().filter(|operand| !operand.is_hot());
        let of_operand = of_slots.map(|operand| Sensitivity {
            layer: product.layer.clone(),
            product: product.product,
            slot: operand.slot,
            elements: operand.figures.elements as f64,
            macs: product.macs as f64,
            result_elements: product.result_elements as f64,
            weight,
            noise: operand
                .what_if
                .iter()
                .map(|(name, figures)| (name.clone(), noise(figures)))
                .collect(),
        });
        found.extend(of_operand);
    }
    for forward in [true, false] {
        let is_it = |place: &Sensitivity| (place.product == ProductKind::Forward) == forward;
        let group = || found.iter().filter(|place| is_it(place));
        let all: f64 = group().map(|place| place.weight).sum();
        let mean = all / group().count() as f64;
        // Without any gradient no noise matters.
        if mean > 0.0 {
            let group = found.iter_mut().filter(|place| is_it(place));
            group.for_each(|place| place.weight /= mean);
        }
    }
    Ok(found)
}

/// The weight of a product's noise, in units of its kind.
fn weight(products: &[&ProductRecord], at: usize) -> Result<f64, SearchError> {
    let product = products[at];
    let missing = |missing| SearchError::NoWeight {
        layer: product.layer.clone(),
        missing,
    };
    // Σ x² of a result.
    let power = |product: &ProductRecord| {
        let result = product.result?;
        Some(result.mean_square? * result.elements as f64)
    };
    let gradient = |product: &&&ProductRecord| product.product == ProductKind::WeightGradient;
    match product.product {
        ProductKind::Forward => {
            let mut own = products.iter().filter(gradient);
            let own = own.find(|gradient| gradient.layer == product.layer);
            let own = own.ok_or_else(|| missing("weight gradient"))?;
            let mut operands = own.operands.iter();
            let output = operands.find(|operand| operand.operand == "output gradient");
            let output = output.and_then(mean_square);
            let output = output.ok_or_else(|| missing("output gradient in an inexact format"))?;
            let result = power(product).ok_or_else(|| missing("result of the forward product"))?;
            Ok(result * output)
        }
        ProductKind::WeightGradient => {
            power(product).ok_or_else(|| missing("result of the weight gradient"))
        }
        ProductKind::InputGradient => {
            let of_own = |gradient: &&&ProductRecord| gradient.layer != product.layer;
            let later = products[at..].iter().filter(gradient).filter(of_own);
            let powers = later.map(|gradient| power(gradient));
            let sum = powers.sum::<Option<f64>>();
            let sum = sum.ok_or_else(|| missing("results of the weight gradients"))?;
            let own = power(product).ok_or_else(|| missing("result of the input gradient"))?;
            let so_far = products[..=at].iter();
            let so_far = so_far.filter(|other| other.product == ProductKind::InputGradient);
            let largest = so_far.filter_map(|other| power(other)).fold(0.0, f64::max);
            Ok(if largest > 0.0 {
                sum * own / largest
            } else {
                0.0
            })
        }
    }
}

/// The mean square of an operand, from any format in which it is not exact; 0 of an operand of zeros.
fn mean_square(operand: &OperandRecord) -> Option<f64> {
    let figures = core::iter::once(&operand.figures).chain(operand.what_if.values());
    let inexact = |figures: &Figures| {
        let noise_over_signal = 10.0_f64.powf(-figures.sqnr? / 10.0);
        Some(figures.mse? / noise_over_signal)
    };
    let zero = (operand.figures.amax == Some(0.0)).then_some(0.0);
    figures.filter_map(inexact).next().or(zero)
}

/// Noise over signal; 0 of an operand of zeros, as of one without an error.
fn noise(figures: &Figures) -> f64 {
    figures.sqnr.map_or(0.0, |sqnr| 10.0_f64.powf(-sqnr / 10.0))
}
