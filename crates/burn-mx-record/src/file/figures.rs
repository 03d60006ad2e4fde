//! The lines of `records.jsonl`.

use std::collections::BTreeMap;

use microscaling::Statistics;
use microscaling_product::{Accumulation, ProductPath, SumStatistics};
use serde::{Deserialize, Serialize};

use super::dialect_figures::DialectFigures;
use super::part_figures::PartFigures;
use crate::config::{RecorderConfig, Statistic};
use burn_mx_core::Slot;
use burn_mx_core::hooks::{ProductKind, ProductOp};

/// The version of the file format.
pub(super) const VERSION: u32 = 1;

/// The first line of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the file format.
    pub burn_mx_records: u32,
    /// The run's name.
    pub run: String,
    /// The configuration of the recorder.
    pub config: RecorderConfig,
    /// The [path](microscaling_product::ProductPath) of this process's products in bfloat16 on a processor; `None` if they
    /// are computed in float32, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_path: Option<String>,
}

impl Header {
    pub(crate) fn new(run: String, config: RecorderConfig) -> Self {
        Self {
            burn_mx_records: VERSION,
            run,
            config,
            product_path: ProductPath::current().map(|path| path.to_string()),
        }
    }
}

/// One recorded step: a line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The run's name.
    pub run: String,
    /// The number of the thread among the threads that compute emulated products, in the order in which they began.
    pub thread: usize,
    /// The step's number.
    pub step: u64,
    /// Products in bfloat16 of all threads since the last step of this thread, if another path than [`Header::product_path`] computed
    /// them. The instructions of that path flush subnormals to zero, and a number could be a subnormal.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub by_another_path: u64,
    /// The step's products, in the order of their first use.
    pub products: Vec<ProductRecord>,
    /// The weights whose products were not emulated in the forward pass, such as the weights of layers in float32, in the order
    /// of their first use. Layers that the recorder was told to leave out are not among them. Empty in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_emulated: Vec<String>,
    /// The step's elementwise ops, in the order of their first use. Empty unless [`RecorderConfig::elementwise`] is true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elementwise: Vec<ElementwiseRecord>,
}

/// Which half of a step an elementwise op belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepHalf {
    /// The op itself.
    Forward,
    /// Its gradient.
    Backward,
}

impl std::fmt::Display for StepHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// The roundings to the elementwise format in an op of a layer in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ElementwiseRecord {
    /// The layer's name: the op's parameter, the scope, or the layer before the op with ` >` at the end.
    pub layer: String,
    /// The op: `add`, `gelu`, `layer_norm`.
    pub op: String,
    /// The half of the step.
    pub pass: StepHalf,
    /// How often the op was computed.
    pub uses: u64,
    /// The elementwise format.
    pub format: String,
    /// The op's roundings.
    pub roundings: Vec<RoundingRecord>,
}

/// A rounding of an elementwise op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundingRecord {
    /// The rounded value: an operand, before and after rounding; or a result, against the result of the same op on the same
    /// rounded operands without inner roundings.
    pub rounding: String,
    /// The loss by this rounding. Elements that become ±Inf count as saturated.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A product of a layer in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductRecord {
    /// The layer's name.
    pub layer: String,
    /// The op of Burn that the product belongs to.
    pub op: ProductOp,
    /// The kind of the product: output or gradient.
    pub product: ProductKind,
    /// How often the product was computed.
    pub uses: u64,
    /// A summary of the specs.
    pub specs: String,
    /// Multiplications of all uses, each with an addition; 0 in records of earlier versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub macs: u64,
    /// Elements of the results of all uses; 0 in records of earlier versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub result_elements: u64,
    /// The elementwise format, which operands without a block format have. `None`: float32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elementwise: Option<String>,
    /// The accumulator that the specs set. `None`: sums are the backend's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulator: Option<String>,
    /// The product's operands.
    pub operands: Vec<OperandRecord>,
    /// The product's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultRecord>,
    /// The product's sums, if it has an accumulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<SumsRecord>,
}

/// An operand of a product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperandRecord {
    /// The slot of the specs that names the operand's format.
    pub slot: Slot,
    /// The operand's role: `input`, `weight`, `output gradient`. Operands of a product of two activations are `lhs` and `rhs`,
    /// of two weights `weight` and `other weight`. Hot columns have `hot` before.
    pub operand: String,
    /// The operand's block format, if any. Operands of attention whose points have formats also have elements without a scale, or floats.
    pub format: Option<String>,
    /// The loss by quantization.
    #[serde(flatten)]
    pub figures: Figures,
    /// The loss in other formats, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub what_if: BTreeMap<String, Figures>,
}

impl OperandRecord {
    /// Whether these are hot columns, which form a product of their own.
    pub(crate) fn is_hot(&self) -> bool {
        self.operand.starts_with("hot ")
    }
}

/// The result of a product, compared with the same product of the unquantized operands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRecord {
    /// Norm of the difference over the norm of the unquantized product; `None` if the latter is zero.
    pub relative_error: Option<f64>,
    /// Cosine of the angle between them; `None` if one is zero.
    pub cosine: Option<f64>,
    /// Number of elements.
    #[serde(default)]
    pub elements: u64,
    /// Mean of the squares of the unquantized product; `None` without an element, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_square: Option<f64>,
}

impl ResultRecord {
    /// From the results before and after.
    pub(crate) fn of(statistics: &Statistics) -> Self {
        let power = statistics.power();
        let finite = statistics.elements() - statistics.non_finite();
        Self {
            relative_error: (power > 0.0).then(|| (statistics.error() / power).sqrt()),
            cosine: statistics.cosine(),
            elements: statistics.elements(),
            mean_square: (finite > 0).then(|| power / finite as f64),
        }
    }
}

/// The sums of a product by its accumulator, compared with the exact sums of the same quantized operands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SumsRecord {
    /// The accumulator.
    pub accumulator: String,
    /// The loss by this accumulator.
    #[serde(flatten)]
    pub figures: SumFigures,
    /// The loss by other accumulators, by name; without those that do not take the operands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub what_if: BTreeMap<String, SumFigures>,
}

impl SumsRecord {
    /// Of the product's accumulator, and of others.
    pub(crate) fn of(
        accumulator: Accumulation,
        others: &[Accumulation],
        statistics: &[Option<SumStatistics>],
    ) -> Option<Self> {
        let (own, what_if) = statistics.split_first()?;
        let what_if = others.iter().zip(what_if).filter_map(|(name, statistics)| {
            let figures = SumFigures::of(statistics.as_ref()?);
            Some((name.to_string(), figures))
        });
        Some(Self {
            accumulator: accumulator.to_string(),
            figures: SumFigures::of(own.as_ref()?),
            what_if: what_if.collect(),
        })
    }
}

/// The loss by an accumulator, of some of the sums of a product. A figure that is not defined is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SumFigures {
    /// Number of sums that were compared.
    pub sums: u64,
    /// Norm of the differences over the norm of the exact sums.
    pub relative_error: Option<f64>,
    /// Cosine of the angle between sums and exact sums.
    pub cosine: Option<f64>,
    /// How many of the last bits of the exact sum, rounded to float32, are wrong: the mean of log₂(1 + |error| / last place).
    pub bits_lost: Option<f64>,
    /// Percentage of products that were cut to nothing, see [`SumStatistics::cut_to_nothing`].
    #[serde(rename = "cut_to_nothing%")]
    pub cut_to_nothing: Option<f64>,
}

impl SumFigures {
    fn of(statistics: &SumStatistics) -> Self {
        Self {
            sums: statistics.sums,
            relative_error: statistics.relative_error(),
            cosine: statistics.cosine(),
            bits_lost: statistics.bits_lost(),
            cut_to_nothing: statistics.share_cut_to_nothing().map(|share| 100.0 * share),
        }
    }
}

/// The loss by quantizing an operand. A figure that was not recorded, or is not defined, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Number of elements.
    pub elements: u64,
    /// Number of blocks; 0 without a block format.
    pub blocks: u64,
    /// Number of elements that are NaN or Inf before or after quantization. No other figure includes them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub non_finite: u64,
    /// Mean squared error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mse: Option<f64>,
    /// Signal-to-quantization-noise ratio in dB; also `None` if the error is zero, see [`exact`](Self::exact).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sqnr: Option<f64>,
    /// Whether the error is zero.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exact: bool,
    /// ⟨x, q⟩ / ⟨x, x⟩. Below 1, quantization loses magnitude.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slope: Option<f64>,
    /// Number of nonzero elements. `None` in records of earlier versions, where [`underflow`](Self::underflow) is a
    /// percentage of all elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonzero: Option<u64>,
    /// Percentage of nonzero elements that became zero; `None` if all elements are zero.
    #[serde(
        rename = "underflows%",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub underflow: Option<f64>,
    /// Percentage of elements beyond the largest number that their block can hold under its scale.
    #[serde(
        rename = "saturations%",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub saturation: Option<f64>,
    /// The largest magnitude.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amax: Option<f64>,
    /// The smallest nonzero magnitude.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amin: Option<f64>,
    /// log₂(amax / amin).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_range: Option<f64>,
    /// Signal-to-quantization-noise ratios of blocks in dB: of the worst block, of the 1 % quantile, and of the median block.
    /// `None` for a block without any error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_sqnr: Option<[Option<f64>; 3]>,
    /// The smallest scale of a block. An element is its code's value times the scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_inv_min: Option<f64>,
    /// The largest scale of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_inv_max: Option<f64>,
    /// Mean of log₂ of the scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_inv_log2_mean: Option<f64>,
    /// Standard deviation of log₂ of the scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_inv_log2_std: Option<f64>,
    /// The number of blocks by the binade of their scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_inv_histogram: Option<Histogram>,
    /// The parts of the squared error, if [`RecorderConfig::error_parts`] is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_parts: Option<PartFigures>,
    /// The change by the dialect, of an operand with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<DialectFigures>,
}

/// A histogram of scales, with one bin for each binade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// ⌊log₂⌋ of the scales in the first bin.
    pub first: i32,
    /// The number of blocks in each bin.
    pub counts: Vec<u64>,
}

impl Histogram {
    fn of(statistics: &Statistics) -> Option<Self> {
        let scales: BTreeMap<i32, u64> = statistics.scales().collect();
        let (&first, &last) = (scales.keys().next()?, scales.keys().next_back()?);
        let count = |binade| scales.get(&binade).copied().unwrap_or(0);
        Some(Self {
            first,
            counts: (first..=last).map(count).collect(),
        })
    }
}

impl Figures {
    /// Figures of a rounding to an elementwise format, without scales.
    pub(crate) fn of_rounding(statistics: &Statistics, wanted: impl Fn(Statistic) -> bool) -> Self {
        let overflow = statistics.overflow();
        let counted = statistics.elements() - statistics.non_finite() + overflow;
        let saturation = (counted > 0 && wanted(Statistic::Saturation))
            .then(|| 100.0 * overflow as f64 / counted as f64);
        let is_of_blocks = |which| matches!(which, Statistic::BlockSqnr | Statistic::Scales);
        Self {
            saturation,
            ..Self::of(statistics, |which| wanted(which) && !is_of_blocks(which))
        }
    }

    pub(crate) fn of(statistics: &Statistics, wanted: impl Fn(Statistic) -> bool) -> Self {
        let counted = (statistics.elements() - statistics.non_finite()) as f64;
        let share = |count: u64, of: f64| (of > 0.0).then(|| 100.0 * count as f64 / of);
        let nonzero = statistics.nonzero();
        let has = |statistic, figure: Option<f64>| {
            figure.filter(|figure| wanted(statistic) && figure.is_finite())
        };
        let range = wanted(Statistic::Range).then(|| (statistics.amax(), statistics.smallest()));
        let scales = wanted(Statistic::Scales).then_some(statistics);
        let log2 = scales.and_then(Statistics::scale_log2);
        let scale_range = scales.and_then(Statistics::scale_range);
        let block_sqnr =
            wanted(Statistic::BlockSqnr).then(|| statistics.block_sqnr([0.0, 0.01, 0.5]));
        Self {
            elements: statistics.elements(),
            blocks: statistics.blocks(),
            non_finite: statistics.non_finite(),
            mse: has(Statistic::Mse, statistics.mse()),
            sqnr: has(Statistic::Sqnr, statistics.sqnr()),
            exact: statistics.power() > 0.0 && statistics.error() == 0.0,
            slope: has(Statistic::Slope, statistics.slope()),
            nonzero: Some(nonzero),
            underflow: has(
                Statistic::Underflow,
                share(statistics.underflow(), nonzero as f64),
            ),
            saturation: has(
                Statistic::Saturation,
                share(statistics.saturated(), counted),
            ),
            amax: range.map(|(amax, _)| amax.into()),
            amin: range.and_then(|(_, smallest)| smallest).map(Into::into),
            dynamic_range: has(Statistic::Range, statistics.dynamic_range()),
            block_sqnr: block_sqnr
                .flatten()
                .map(|shares| shares.map(|sqnr| sqnr.is_finite().then_some(sqnr))),
            scale_inv_min: scale_range.map(|[min, _]| min.into()),
            scale_inv_max: scale_range.map(|[_, max]| max.into()),
            scale_inv_log2_mean: log2.map(|[mean, _]| mean),
            scale_inv_log2_std: log2.map(|[_, std]| std),
            scale_inv_histogram: scales.and_then(Histogram::of),
            error_parts: None,
            dialect: None,
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}
