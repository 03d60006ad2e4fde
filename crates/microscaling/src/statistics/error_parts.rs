//! The squared error of a tensor's quantization, split by its causes.

use super::Comparison;
use crate::format::{BlockFormat, ElementConversion, ElementOverflow, ScaleFormat};
use crate::quantize::QuantizeError;
use crate::quantize::layout::Layout;
use crate::round::mode::{Rounder, Rounding};
use crate::statistics::Statistics;
use alloc::vec;
use alloc::vec::Vec;
use microscaling_processor::float_state::ieee;

/// The squared error of blocks with a shared scale, split into three parts (arXiv 2605.20402, section 3): the scale's bias, the dead
/// zone, and the noise of the grid.
///
/// The elements' format has the largest number Q and the smallest positive number d. A block has the largest magnitude amax and the scale s.
/// The exact scale s\* is amax / Q, for FP4 amax / 6. An element x becomes q under s, and q\* under s\*, with the same rounding. The error
/// q − x is the sum of
///
/// * the scale's part q − q\*,
/// * q\* − x in the dead zone |x| < s\* · d / 2 (for FP4 amax / 24), where q\* is zero,
/// * q\* − x elsewhere: the noise of the grid.
///
/// The parts of dead zone and grid are orthogonal. So are the parts of scale and dead zone where s ≥ s\*, because q is then zero in
/// the dead zone, too. Every deviation of s from s\* belongs to the scale's part: rounding up or down, headroom, four over six, a scale
/// from a root mean square.
///
/// Sums are in float64. The scale s\* is rounded to float32. Elements that are not finite before or after are in no figure.
///
/// ```
/// use microscaling::{BlockFormat, Comparison, ErrorParts, Rounder, Rounding};
///
/// let original = [6.5_f32, 0.2, 0.0, 0.0];
/// let format: BlockFormat = "mx(element=fp4_e2m1,scale_mode=rceil)".parse()?;
/// let mut quantized = original;
/// format.quantize(&mut quantized, &[4], 0, Rounder::NearestEven)?;
/// assert_eq!(quantized, [6.0, 0.0, 0.0, 0.0]); // the scale is 2: 6.5 / 2 becomes 3
/// let comparison = Comparison {
///     original: &original,
///     quantized: &quantized,
///     shape: &[4],
///     axis: 0,
///     format: Some(format),
/// };
/// let parts = ErrorParts::of(comparison, Rounding::NearestEven)?.unwrap();
/// // 6.5 would stay as it is under 6.5 / 6; 0.2 is below 6.5 / 24.
/// let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-5;
/// assert!(near(parts.scale(), 0.25 / 0.29) && near(parts.dead_zone(), 0.04 / 0.29));
/// assert_eq!(parts.dead_zone_elements(), 3); // 0.2 and two zeros
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ErrorParts {
    /// Finite elements.
    elements: u64,
    in_dead_zone: u64,
    /// Sums of squares: of all of the error, and of its parts.
    error: f64,
    scale: f64,
    dead_zone: f64,
    grid: f64,
    /// The sum of the products of the scale's and the grid's part.
    product: f64,
    /// Σ log₂(s / s*) over the blocks that have a scale, and how many these are.
    bias: f64,
    blocks: u64,
}

impl ErrorParts {
    /// The parts of a tensor's error, whose elements were rounded so.
    ///
    /// `None` where the parts have no meaning:
    /// * without a block format, and without a scale that the elements of a block share;
    /// * other scales beside the scale of a block: sub-scales, shifts, outer scales, scales by sign;
    /// * block floating point, tables and unsigned elements;
    /// * a `rounding` that is not to nearest, and a format that fixes the [rounding](ElementConversion::rounding);
    /// * an overflow that does not saturate, and formats without subnormal elements.
    ///
    /// # Errors
    /// The errors of [`Statistics::of`].
    pub fn of(
        comparison: Comparison<'_>,
        rounding: Rounding,
    ) -> Result<Option<Self>, QuantizeError> {
        let layout = comparison.layout()?;
        let Comparison {
            original,
            quantized,
            shape,
            axis,
            format,
        } = comparison;
        let ideal = format.and_then(|format| with_exact_scales(&format));
        let rounder = match rounding {
            Rounding::NearestAway => Some(Rounder::NearestAway),
            Rounding::NearestEven => Some(Rounder::NearestEven),
            Rounding::TowardZero | Rounding::Stochastic => None,
        };
        let (Some(format), Some(ideal), Some(rounder)) = (format, ideal, rounder) else {
            return Ok(None);
        };
        let mut under_ideal = original.to_vec();
        ideal.quantize(&mut under_ideal, shape, axis, rounder)?;
        let scales = |format, quantized| {
            Statistics::of(Comparison {
                quantized,
                format: Some(format),
                ..comparison
            })
        };
        let scales = [
            scales(format, quantized)?,
            scales(ideal, under_ideal.as_slice())?,
        ];
        Ok(Some(ieee(|| {
            let mut parts = Self::default();
            parts.add_bias(&scales);
            let limits = dead_zones(original, layout, &ideal);
            for (((x, q), ideal), limit) in
                original.iter().zip(quantized).zip(&under_ideal).zip(limits)
            {
                parts.add([x, q, ideal].map(|x| f64::from(*x)), limit);
            }
            parts
        })))
    }

    /// Adds the logarithms of the scales less the logarithms of the exact scales, if the same blocks have both.
    fn add_bias(&mut self, scales: &[Statistics; 2]) {
        let [(count, sum), (exact_count, exact_sum)] = scales.each_ref().map(|of| {
            let count: u64 = of.scales().map(|(_, count)| count).sum();
            (count, of.scale_sum)
        });
        if count == exact_count {
            self.blocks = count;
            self.bias = sum - exact_sum;
        }
    }

    fn add(&mut self, [x, q, ideal]: [f64; 3], limit: f64) {
        let [scale, rest] = [q - ideal, ideal - x];
        if !(scale.is_finite() && rest.is_finite()) {
            return;
        }
        self.elements += 1;
        self.error += (q - x) * (q - x);
        self.scale += scale * scale;
        if x.abs() < limit {
            self.in_dead_zone += 1;
            self.dead_zone += rest * rest;
        } else {
            self.grid += rest * rest;
            self.product += scale * rest;
        }
    }

    /// Adds the elements of another tensor.
    pub fn merge(&mut self, other: Self) {
        self.elements += other.elements;
        self.in_dead_zone += other.in_dead_zone;
        self.error += other.error;
        self.scale += other.scale;
        self.dead_zone += other.dead_zone;
        self.grid += other.grid;
        self.product += other.product;
        self.bias += other.bias;
        self.blocks += other.blocks;
    }

    /// Number of finite elements.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Number of elements in the dead zone, zeros included.
    pub fn dead_zone_elements(&self) -> u64 {
        self.in_dead_zone
    }

    /// Σ (q − x)².
    pub fn error(&self) -> f64 {
        self.error
    }

    /// Σ (q − q\*)² over Σ (q − x)², `None` without an error. The shares do not add up to 1, because the parts of scale and grid are
    /// not orthogonal.
    pub fn scale(&self) -> Option<f64> {
        self.share(self.scale)
    }

    /// The same of the dead zone.
    pub fn dead_zone(&self) -> Option<f64> {
        self.share(self.dead_zone)
    }

    /// The same of the grid's noise.
    pub fn grid(&self) -> Option<f64> {
        self.share(self.grid)
    }

    fn share(&self, part: f64) -> Option<f64> {
        (self.error > 0.0).then(|| part / self.error)
    }

    /// Cosine of the angle between the parts of scale and grid; `None` if one of them is zero.
    pub fn cosine(&self) -> Option<f64> {
        let norms = (self.scale * self.grid).sqrt();
        (norms > 0.0).then(|| self.product / norms)
    }

    /// Mean of log₂(s / s\*) over the blocks that are not zero; `None` without one. A tensor in which s or s\* of a block is zero, and the other one
    /// is not, has no mean, and does not count after [`merge`](Self::merge).
    pub fn scale_bias(&self) -> Option<f64> {
        (self.blocks > 0).then(|| self.bias / self.blocks as f64)
    }
}

/// The format with scales that are float32 numbers; `None` if the parts of its error have no meaning.
fn with_exact_scales(format: &BlockFormat) -> Option<BlockFormat> {
    let element = format.element;
    let ElementConversion {
        overflow,
        flush_outputs,
        ..
    } = format.conversion;
    let is_split = format.is_element_times_scale()
        && !format.has_fixed_steps()
        && !element.is_unsigned()
        && format.conversion.own_rounding().is_none()
        && overflow == ElementOverflow::Saturate
        && !flush_outputs;
    let exact = BlockFormat {
        square: format.square,
        subnormal_scales: false,
        ..BlockFormat::float_scale(element, ScaleFormat::FLOAT32, format.block_size)
    };
    (is_split && exact.validate().is_ok()).then_some(exact)
}

/// For each element, the magnitude below which its block has its dead zone.
fn dead_zones(original: &[f32], layout: Layout, ideal: &BlockFormat) -> Vec<f64> {
    let element = ideal.element;
    let share = f64::from(element.min_subnormal()) / (2.0 * f64::from(element.max()));
    let block_of = |at: usize| {
        let Layout {
            axis, inner, block, ..
        } = layout;
        let [row, column] = [at / inner, at % inner];
        let run = row / axis * axis.div_ceil(block) + row % axis / block;
        run * layout.blocks(inner) + layout.block_of(column)
    };
    let last = original.len().checked_sub(1);
    let mut maxima =
        vec![0_f32; last.map_or(0, |last| block_of(last) + layout.blocks(layout.inner))];
    for (at, x) in original.iter().enumerate() {
        let amax = &mut maxima[block_of(at)];
        // A maximum leaves NaN out.
        *amax = amax.max(x.abs());
    }
    let limits = (0..original.len()).map(|at| share * f64::from(maxima[block_of(at)]));
    limits.collect()
}
