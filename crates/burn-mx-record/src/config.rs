//! The configuration of a recorder.

use microscaling_product::{Accumulation, ParseAccumulatorError};
use serde::{Deserialize, Serialize};

use crate::error::RecordError;
use burn_mx_core::hooks::ProductKind;
use burn_mx_core::hooks::SharedSpecs;
use burn_mx_core::{MxSpecs, Slot, SlotFormat};
use burn_mx_module::Pattern;

/// Which products, operands and statistics a [`Recorder`](super::Recorder) records, and in which steps. Serde reads and writes
/// JSON; a missing field has its default. The defaults record everything in every step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecorderConfig {
    /// The recorder records one of this many steps; at least 1.
    pub every: u64,
    /// The first step that is recorded.
    pub start: u64,
    /// The first step after the last recorded one. `None`: no end.
    pub end: Option<u64>,
    /// The pass whose products are recorded.
    pub pass: Pass,
    /// Names of layers: a path, a prefix of paths, or a glob (`blocks.*.weight`). Empty: all layers.
    pub layers: Vec<String>,
    /// The products to record.
    pub products: Vec<ProductKind>,
    /// The slots of the specs whose operands are recorded.
    pub operands: Vec<Slot>,
    /// The statistics to record.
    pub statistics: Vec<Statistic>,
    /// Further formats. The recorder quantizes the same operands in each of them and records the loss. An entry is a preset's
    /// name (`mxfp8_rceil`), which stands for its formats, roundings and transforms, or a block format
    /// (`mx(element=int4,scale_mode=even)`), which stands for this format in every slot and the presets' bfloat16.
    pub what_if: Vec<String>,
    /// Further accumulators. The recorder computes some sums of the same operands by each of them and records the loss. An entry is
    /// an [`Accumulation`] (`hopper_promote128`). Products without an accumulator have no such figures. The
    /// entry `accumulator(order=fma)` stands for float32's own sums.
    pub what_if_accumulators: Vec<String>,
    /// Whether to record the roundings to the elementwise format, too, op by op and in both passes. Default: false, because
    /// each op is computed a second time, without its roundings.
    pub elementwise: bool,
    /// Whether to split each operand's squared error into the parts of [`ErrorParts`](microscaling::ErrorParts), too. Default: false,
    /// because the recorder reads the numbers of each operand, and quantizes the operand again.
    pub error_parts: bool,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self {
            every: 1,
            start: 0,
            end: None,
            pass: Pass::Training,
            layers: Vec::new(),
            products: ProductKind::ALL.to_vec(),
            operands: Slot::ALL.to_vec(),
            statistics: Statistic::ALL.to_vec(),
            what_if: Vec::new(),
            what_if_accumulators: Vec::new(),
            elementwise: false,
            error_parts: false,
        }
    }
}

impl RecorderConfig {
    /// Adds formats to [`what_if`](Self::what_if).
    pub fn what_if<S: Into<String>>(mut self, formats: impl IntoIterator<Item = S>) -> Self {
        self.what_if.extend(formats.into_iter().map(Into::into));
        self
    }

    /// Adds accumulators to [`what_if_accumulators`](Self::what_if_accumulators).
    pub fn what_if_accumulators<S: Into<String>>(
        mut self,
        accumulators: impl IntoIterator<Item = S>,
    ) -> Self {
        let accumulators = accumulators.into_iter().map(Into::into);
        self.what_if_accumulators.extend(accumulators);
        self
    }

    /// Checks every field, as starting a recorder does.
    ///
    /// # Errors
    ///
    /// If a field is not valid. The error names the field, the value and the allowed values.
    pub fn validate(&self) -> Result<(), RecordError> {
        self.check().map(drop)
    }

    /// Checks every field.
    pub(super) fn check(&self) -> Result<Selection, RecordError> {
        let error = |field, value: String, allowed: &str| RecordError::Config {
            field,
            value,
            allowed: allowed.into(),
        };
        if self.every == 0 {
            return Err(error("every", "0".into(), "allowed: 1 or more"));
        }
        if let Some(end) = self.end.filter(|end| *end <= self.start) {
            let allowed = format!("allowed: more than `start`, {}", self.start);
            return Err(error("end", end.to_string(), &allowed));
        }
        let empty = [
            ("products", self.products.is_empty()),
            ("operands", self.operands.is_empty()),
            ("statistics", self.statistics.is_empty()),
        ];
        if let Some((field, _)) = empty.into_iter().find(|(_, empty)| *empty) {
            return Err(error(field, "empty".into(), "allowed: one at least"));
        }
        let pattern = |text: &String| {
            let error = |reason: &dyn ToString| error("layers", text.clone(), &reason.to_string());
            Pattern::new(text).map_err(|reason| error(&reason))
        };
        let mut what_if = Vec::<(String, &'static SharedSpecs)>::new();
        for name in &self.what_if {
            let specs =
                specs_of(name).map_err(|allowed| error("what_if", name.clone(), &allowed))?;
            if what_if.iter().any(|(other, _)| other == name) {
                return Err(error("what_if", name.clone(), "allowed: each format once"));
            }
            what_if.push((name.clone(), specs));
        }
        let mut accumulators = Vec::<Accumulation>::new();
        for name in &self.what_if_accumulators {
            let error = |allowed: &str| error("what_if_accumulators", name.clone(), allowed);
            let accumulation = name.parse();
            let accumulation =
                accumulation.map_err(|reason: ParseAccumulatorError| error(&reason.to_string()))?;
            if accumulators.contains(&accumulation) {
                return Err(error("allowed: each accumulator once"));
            }
            accumulators.push(accumulation);
        }
        Ok(Selection {
            every: self.every,
            start: self.start,
            end: self.end,
            pass: self.pass,
            layers: self.layers.iter().map(pattern).collect::<Result<_, _>>()?,
            products: self.products.clone(),
            operands: self.operands.clone(),
            statistics: self.statistics.clone(),
            what_if,
            accumulators,
            elementwise: self.elementwise,
            error_parts: self.error_parts,
        })
    }
}

/// The specs of a preset, or of a block format in every slot.
pub(super) fn named_specs(name: &str) -> Result<MxSpecs, String> {
    MxSpecs::preset(name).or_else(|_| {
        let format: SlotFormat = name.parse().map_err(|error| {
            let presets = MxSpecs::PRESETS.join(", ");
            format!("{error}; also allowed: a preset, {presets}")
        })?;
        Ok(MxSpecs {
            w_elem_format: Some(format),
            a_elem_format: Some(format),
            ..MxSpecs::mxfp8_e4m3()
        })
    })
}

fn specs_of(name: &str) -> Result<&'static SharedSpecs, String> {
    let specs = named_specs(name)?
        .resolve()
        .map_err(|error| error.to_string())?;
    Ok(SharedSpecs::of(&specs))
}

/// The pass whose products are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pass {
    /// Forward and gradient products of [`MxAutodiff`](burn_mx_core::MxAutodiff); a step ends with each backward pass.
    #[default]
    Training,
    /// Products outside of autodiff. [`Recording::next_step`](super::Recording::next_step) ends a step.
    Inference,
}

/// A statistic of an operand or a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Statistic {
    /// Mean squared error.
    Mse,
    /// Signal-to-quantization-noise ratio.
    Sqnr,
    /// Lost magnitude.
    Slope,
    /// Elements that became zero.
    Underflow,
    /// Elements beyond the largest number under their block's scale.
    Saturation,
    /// The largest and the smallest magnitude.
    Range,
    /// The distribution of the signal-to-quantization-noise ratio over blocks.
    BlockSqnr,
    /// The scales of the blocks.
    Scales,
    /// For a product: the error of its result against the product of the unquantized operands. The recorder computes
    /// this second product.
    Result,
    /// For a product with an accumulator: the error of its sums against the exact sums of the same operands. The recorder computes
    /// some of the sums again.
    Sums,
}

impl Statistic {
    /// Every statistic.
    pub const ALL: [Self; 10] = [
        Self::Mse,
        Self::Sqnr,
        Self::Slope,
        Self::Underflow,
        Self::Saturation,
        Self::Range,
        Self::BlockSqnr,
        Self::Scales,
        Self::Result,
        Self::Sums,
    ];
}

/// A [`RecorderConfig`] that was checked.
pub(super) struct Selection {
    every: u64,
    start: u64,
    end: Option<u64>,
    pub(super) pass: Pass,
    layers: Vec<Pattern>,
    products: Vec<ProductKind>,
    operands: Vec<Slot>,
    pub(super) statistics: Vec<Statistic>,
    /// Specs by name.
    pub(super) what_if: Vec<(String, &'static SharedSpecs)>,
    pub(super) accumulators: Vec<Accumulation>,
    pub(super) elementwise: bool,
    pub(super) error_parts: bool,
}

impl Selection {
    pub(super) fn has_step(&self, step: u64) -> bool {
        let in_range = step >= self.start && self.end.is_none_or(|end| step < end);
        in_range && (step - self.start).is_multiple_of(self.every)
    }

    pub(super) fn has_product(&self, kind: ProductKind, layer: &str) -> bool {
        self.products.contains(&kind) && self.has_layer(layer)
    }

    pub(super) fn has_layer(&self, layer: &str) -> bool {
        let named = || self.layers.iter().any(|pattern| pattern.matches(layer));
        self.layers.is_empty() || named()
    }

    pub(super) fn has_operand(&self, slot: Slot) -> bool {
        self.operands.contains(&slot)
    }

    pub(super) fn has(&self, statistic: Statistic) -> bool {
        self.statistics.contains(&statistic)
    }
}
