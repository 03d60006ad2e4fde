//! Statistics of a tensor's quantization.

mod error_parts;
mod lanes;
mod look;
mod partial;
mod parts;
mod pass;
mod quantizer;
mod scales;

use crate::format::BlockFormat;
use crate::quantize::OperandQuantization;
use crate::quantize::QuantizeError;
use crate::quantize::largest::largest;
use crate::quantize::layout::{Layout, check_length, count, layout};
use crate::quantize::rules::BlockRule;
use crate::round::mode::Rounding;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
pub use error_parts::ErrorParts;
use microscaling_processor::float_state::ieee;
use partial::Partial;
pub use parts::{PartStatistics, StatisticsParts};
use pass::Source;
use quantizer::Quantizer;
use scales::Scales;

/// A tensor before and after quantization, in row-major order without gaps, and how it was quantized.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// The elements before quantization to the block format.
    pub original: &'a [f32],
    /// The elements after.
    pub quantized: &'a [f32],
    /// Lengths of the axes.
    pub shape: &'a [usize],
    /// The axis along which the blocks lie.
    pub axis: usize,
    /// The format of the blocks; `None` if there are none.
    pub format: Option<BlockFormat>,
}

impl Comparison<'_> {
    /// The layout of the blocks, if both slices have the shape's length.
    fn layout(&self) -> Result<Layout, QuantizeError> {
        for data in [self.original, self.quantized] {
            check_length(data, self.shape)?;
        }
        layout_of(self.format, self.shape, self.axis)
    }
}

/// Statistics of the quantization of one tensor, or of several tensors together.
///
/// Sums are float64 sums of all elements, in an order that the shape alone fixes: neither the number of threads nor
/// the processor changes a bit. Elements that are not finite before or after are counted, and are in no other figure. The
/// scale of their block follows from the elements that are finite before.
///
/// ```
/// use microscaling::{BlockFormat, Comparison, Rounder, Statistics};
///
/// let original = [1.0, 0.3, -7.0, 0.01];
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// let mut quantized = original;
/// mxfp4.quantize(&mut quantized, &[4], 0, Rounder::NearestEven)?;
/// assert_eq!(quantized, [1.0, 0.5, -6.0, 0.0]);
/// let statistics = Statistics::of(Comparison {
///     original: &original,
///     quantized: &quantized,
///     shape: &[4],
///     axis: 0,
///     format: Some(mxfp4),
/// })?;
/// assert_eq!(statistics.saturated(), 1); // -7 is beyond 6, the largest element of a block with scale 1
/// assert_eq!((statistics.underflow(), statistics.nonzero()), (1, 4));
/// assert_eq!(statistics.scales().collect::<Vec<_>>(), [(0, 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    elements: u64,
    non_finite: u64,
    overflow: u64,
    blocks: u64,
    /// Σ x², Σ q², Σ (x − q)² and Σ x q.
    power: f64,
    quantized_power: f64,
    error: f64,
    product: f64,
    nonzero: u64,
    underflow: u64,
    saturated: u64,
    /// Patterns of the largest magnitude and of the smallest that is not zero; 0 if there is none.
    amax: u32,
    smallest: u32,
    /// For each block that is not zero: Σ (x − q)² / Σ x².
    ratios: Vec<f32>,
    /// How many blocks that are not zero have a scale of this binade.
    scales: BTreeMap<i32, u64>,
    /// Sums over the logarithms of their scales: Σ s and Σ s².
    scale_sum: f64,
    scale_squares: f64,
    scale_range: Option<[f32; 2]>,
}

impl Statistics {
    /// The statistics of one tensor. The threads of the current rayon pool share the work on large tensors.
    ///
    /// # Errors
    /// * [`QuantizeError::Format`]: the format is not valid.
    /// * [`QuantizeError::AxisOutOfRange`]: `axis` is not less than the rank, `shape.len()`.
    /// * [`QuantizeError::LengthMismatch`]: the number of elements of a slice differs from the shape's.
    /// * [`QuantizeError::ShapeOverflow`]: that number overflows.
    pub fn of(comparison: Comparison<'_>) -> Result<Self, QuantizeError> {
        let layout = comparison.layout()?;
        let Comparison {
            original,
            quantized,
            format,
            ..
        } = comparison;
        let tensor_scale = format.and_then(|format| format.tensor_scale(|| largest(original)));
        let scales = format.map(|format| Scales(BlockRule::of(&format, tensor_scale)));
        let source = Source::Given([original, quantized]);
        Ok(Self::seen(&source, original.len(), layout, scales))
    }

    /// The statistics of a tensor that is rounded elementwise and then quantized in blocks along `axis`. The tensor is in
    /// row-major order without gaps. The result equals [`of`](Self::of) with two tensors: the result of
    /// [`FloatFormat::round_slice`](crate::FloatFormat::round_slice), and its quantization by [`BlockFormat::quantize`]. One
    /// pass over memory computes the statistics and stores neither tensor. A Hadamard transform and a factor follow the
    /// rounding, in a copy of the tensor.
    ///
    /// # Errors
    /// The errors of [`of`](Self::of).
    ///
    /// # Panics
    /// If a rounding is stochastic.
    pub fn of_quantizing(
        original: &[f32],
        shape: &[usize],
        axis: usize,
        quantization: OperandQuantization,
    ) -> Result<Self, QuantizeError> {
        let OperandQuantization {
            elementwise,
            hadamard,
            factor,
            blocks,
            stream: _,
        } = quantization;
        let roundings = [elementwise.map(|(_, r)| r), blocks.map(|(_, r)| r)];
        assert!(
            !roundings.contains(&Some(Rounding::Stochastic)),
            "statistics of a tensor that is quantized on the way: the rounding is `stochastic`; allowed: `nearest`, \
             `even`, `floor`"
        );
        check_length(original, shape)?;
        if hadamard.is_some() || factor.is_some() {
            let mut values = original.to_vec();
            quantizer::round(elementwise, &mut values);
            if let Some((transform, signs)) = hadamard {
                transform.transform(&mut values, shape, axis, signs)?;
            }
            if let Some(factor) = factor {
                ieee(|| values.iter_mut().for_each(|x| *x *= factor));
            }
            let blocks_alone = OperandQuantization {
                blocks,
                ..OperandQuantization::default()
            };
            return Self::of_quantizing(&values, shape, axis, blocks_alone);
        }
        let format = blocks.map(|(format, _)| format);
        let layout = layout_of(format, shape, axis)?;
        let amax = || {
            // Rounding keeps the order of magnitudes.
            let mut amax = [f32::from_bits(largest(original))];
            quantizer::round(elementwise, &mut amax);
            amax[0].to_bits()
        };
        let tensor_scale = format.and_then(|format| format.tensor_scale(amax));
        let scales = format.map(|format| Scales(BlockRule::of(&format, tensor_scale)));
        let quantizer = Quantizer::of(&quantization, tensor_scale);
        let source = Source::Quantized(original, &quantizer);
        Ok(Self::seen(&source, original.len(), layout, scales))
    }

    fn seen(source: &Source<'_>, elements: usize, layout: Layout, scales: Option<Scales>) -> Self {
        let mut statistics = Self {
            elements: elements as u64,
            ..Self::default()
        };
        if elements > 0 {
            let partials = pass::partials(source, layout, scales.as_ref());
            ieee(|| partials.into_iter().for_each(|part| statistics.add(part)));
        }
        statistics
    }

    fn add(&mut self, partial: Partial) {
        self.non_finite += partial.non_finite;
        self.overflow += partial.overflow;
        self.blocks += partial.blocks;
        self.power += partial.power;
        self.quantized_power += partial.quantized_power;
        self.error += partial.error;
        self.product += partial.product;
        self.nonzero += partial.nonzero;
        self.underflow += partial.underflow;
        self.saturated += partial.saturated;
        self.join_range(partial.amax, partial.smallest);
        self.ratios.extend(partial.ratios);
        for (binade, count) in partial.scales.binades() {
            *self.scales.entry(binade).or_default() += count;
        }
        self.scale_sum += partial.scales.sum;
        self.scale_squares += partial.scales.squares;
        if let Some(range) = partial.scales.range {
            self.join_scales(range);
        }
    }

    /// Adds the elements of another tensor: all figures then describe both together.
    pub fn merge(&mut self, other: Self) {
        self.elements += other.elements;
        self.non_finite += other.non_finite;
        self.overflow += other.overflow;
        self.blocks += other.blocks;
        self.power += other.power;
        self.quantized_power += other.quantized_power;
        self.error += other.error;
        self.product += other.product;
        self.nonzero += other.nonzero;
        self.underflow += other.underflow;
        self.saturated += other.saturated;
        self.join_range(other.amax, other.smallest);
        self.ratios.extend(other.ratios);
        for (binade, count) in other.scales {
            *self.scales.entry(binade).or_default() += count;
        }
        self.scale_sum += other.scale_sum;
        self.scale_squares += other.scale_squares;
        if let Some(range) = other.scale_range {
            ieee(|| self.join_scales(range));
        }
    }

    fn join_range(&mut self, amax: u32, smallest: u32) {
        self.amax = self.amax.max(amax);
        if smallest != 0 && (self.smallest == 0 || smallest < self.smallest) {
            self.smallest = smallest;
        }
    }

    fn join_scales(&mut self, [low, high]: [f32; 2]) {
        let [min, max] = self.scale_range.unwrap_or([low, high]);
        self.scale_range = Some([min.min(low), max.max(high)]);
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Number of elements that are NaN or Inf before or after.
    pub fn non_finite(&self) -> u64 {
        self.non_finite
    }

    /// Number of elements that are finite before and ±Inf after. [`non_finite`](Self::non_finite) counts these
    /// elements, too.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Number of blocks, including blocks of zeros; 0 without a block format.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Σ x² over the finite elements.
    pub fn power(&self) -> f64 {
        self.power
    }

    /// Σ (x − q)² over the finite elements.
    pub fn error(&self) -> f64 {
        self.error
    }

    /// Mean squared error; `None` without finite elements.
    pub fn mse(&self) -> Option<f64> {
        let finite = self.elements.saturating_sub(self.non_finite);
        (finite > 0).then(|| self.error / finite as f64)
    }

    /// Signal-to-quantization-noise ratio, 10 log₁₀(Σ x² / Σ (x − q)²), in dB: infinite without any error, `None` if all
    /// elements are zero.
    pub fn sqnr(&self) -> Option<f64> {
        (self.power > 0.0).then(|| decibels(self.error / self.power))
    }

    /// ⟨x, q⟩ / ⟨x, x⟩, how much of the tensor's magnitude is left: `None` if all elements are zero.
    pub fn slope(&self) -> Option<f64> {
        (self.power > 0.0).then(|| self.product / self.power)
    }

    /// Cosine of the angle between the tensor before and after; `None` if all elements of either are zero.
    pub fn cosine(&self) -> Option<f64> {
        let norms = (self.power * self.quantized_power).sqrt();
        (norms > 0.0).then(|| self.product / norms)
    }

    /// Number of elements that are not zero.
    pub fn nonzero(&self) -> u64 {
        self.nonzero
    }

    /// Number of elements that are not zero and have become zero.
    pub fn underflow(&self) -> u64 {
        self.underflow
    }

    /// Number of elements beyond the largest number that their block can hold under its scale, without
    /// [`overflow`](Self::overflow). If a table has other numbers above 0
    /// than below, the larger magnitude counts.
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The largest magnitude; 0 if all elements are zero.
    pub fn amax(&self) -> f32 {
        f32::from_bits(self.amax)
    }

    /// The smallest magnitude but zero; `None` if all elements are zero.
    pub fn smallest(&self) -> Option<f32> {
        (self.smallest != 0).then(|| f32::from_bits(self.smallest))
    }

    /// From the smallest magnitude but zero to the largest, in binades: log₂ of their ratio.
    pub fn dynamic_range(&self) -> Option<f64> {
        let smallest = self.smallest()?;
        Some(ieee(|| {
            f64::from(self.amax()).log2() - f64::from(smallest).log2()
        }))
    }

    /// Signal-to-quantization-noise ratios of blocks, in dB, at these shares of them, from the worst (0) to the best
    /// (1); `None` if there are no blocks that are not zero.
    pub fn block_sqnr<const N: usize>(&self, shares: [f64; N]) -> Option<[f64; N]> {
        let last = self.ratios.len().checked_sub(1)?;
        let mut ratios = self.ratios.clone();
        Some(ieee(|| {
            shares.map(|share| {
                // The worst one has the largest ratio.
                let place = last - (share.clamp(0.0, 1.0) * last as f64).round() as usize;
                let (_, ratio, _) = ratios.select_nth_unstable_by(place, f32::total_cmp);
                decibels(f64::from(*ratio))
            })
        }))
    }

    /// The histogram of the scales of blocks that are not zero, one bin for each binade: ⌊log₂ scale⌋ and the number of
    /// blocks with such a scale, in ascending order. The scale of microexponents and block floating point is the power of
    /// two with the block's exponent. The scale of NVFP4 is the product of block and tensor scale.
    pub fn scales(&self) -> impl Iterator<Item = (i32, u64)> {
        self.scales.iter().map(|(&binade, &count)| (binade, count))
    }

    /// Mean and standard deviation of log₂ of the scales of blocks that are not zero.
    pub fn scale_log2(&self) -> Option<[f64; 2]> {
        let count = self.scales.values().sum::<u64>() as f64;
        (count > 0.0).then(|| {
            let mean = self.scale_sum / count;
            let variance = self.scale_squares / count - mean * mean;
            [mean, variance.max(0.0).sqrt()]
        })
    }

    /// The smallest and the largest scale of a block that is not zero.
    pub fn scale_range(&self) -> Option<[f32; 2]> {
        self.scale_range
    }
}

/// Where the blocks lie; without a format one line that is cut somewhere.
fn layout_of(
    format: Option<BlockFormat>,
    shape: &[usize],
    axis: usize,
) -> Result<Layout, QuantizeError> {
    if let Some(format) = format {
        format.validate()?;
        return layout(shape, axis, format.block_shape());
    }
    let elements = count(shape)?;
    Ok(Layout {
        axis: elements,
        inner: 1,
        block: elements.min(1024),
        pool: None,
    })
}

/// The ratio of signal to noise, whose inverse is given, in dB.
fn decibels(inverse: f64) -> f64 {
    -10.0 * inverse.log10()
}
