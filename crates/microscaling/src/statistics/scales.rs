//! The scale of a block, and the largest number that its elements can become; the scales of many blocks.

use crate::quantize::rules::{BlockRule, Grid, ScalePair, Steps};
use crate::round::bits::{self, BIAS, INFINITY, LOWEST_EXPONENT, NAN, SIGN};

/// A block format, and the scale of the tensor if it has one, as the statistics see them.
pub(super) struct Scales(pub(super) BlockRule);

impl Scales {
    /// For many sub-blocks, from the largest magnitudes of their blocks and their own, or the choices of second looks:
    ///
    /// * the pattern of the largest number that an element can become, or of Inf if nothing saturates because the whole
    ///   block becomes NaN or zero;
    /// * the pattern of the block's scale, or of NaN or 0 if the block is NaN or too small for any scale. The scale of
    ///   a zero block is arbitrary.
    #[inline(always)]
    pub(super) fn limits_and_scales(
        &self,
        [maxima, refinements]: [&[u32]; 2],
        [limits, scales]: [&mut [u32]; 2],
    ) {
        let rule = &self.0;
        // The scale of a block is not the scale of its sub-blocks there.
        let has_own_scales =
            rule.first_sub_block().is_some() || matches!(rule, BlockRule::OuterScale(_));
        if !has_own_scales && rule.are_ordinary(maxima) {
            rule.ordinary_pairs(maxima, refinements, [&mut *scales, &mut *limits]);
            let max = f32::from_bits(rule.unit_element().max);
            for ((limit, scale), amax) in limits.iter_mut().zip(scales).zip(maxima) {
                *limit = (f32::from_bits(*scale) * max).to_bits();
                if let BlockRule::FixedPoint(_) = rule {
                    *scale = shared_exponent(*amax);
                }
            }
            return;
        }
        let maxima = maxima.iter().zip(refinements);
        for ((limit, scale), (amax, refinement)) in limits.iter_mut().zip(scales).zip(maxima) {
            let grid = rule.grid(*amax, *refinement);
            *limit = match rule.largest(grid, 0).max(rule.largest(grid, SIGN)) {
                0 => INFINITY,
                max => max.min(INFINITY),
            };
            *scale = self.scale(grid, *amax);
        }
    }

    /// The scale of any block, given its grid and its largest magnitude; of scales by sign the one for the sign of this magnitude.
    fn scale(&self, grid: Grid, amax: u32) -> u32 {
        let grid = match self.0.has_sign_scales() {
            true => self.0.grid_of_one(amax, amax),
            false => grid,
        };
        match &self.0 {
            BlockRule::Mx(rule) => match Steps::of(grid) {
                Steps { max, .. } if max > INFINITY => NAN,
                Steps { emin, .. } => bits::pow2(emin - rule.row.emin),
            },
            BlockRule::FixedPoint(rule) if rule.renormalizes() => match Steps::of(grid).emin {
                // The exponent of Inf.
                128.. => NAN,
                emin => bits::pow2(emin),
            },
            BlockRule::FixedPoint(_) => shared_exponent(amax),
            BlockRule::FloatScale(rule) if rule.sub_scales.is_some() => {
                rule.pair_of([rule.block_scale_with(amax, 0), 0]).scale
            }
            BlockRule::FloatScale(rule) => rule.pair_of(grid).scale,
            // The scale of a block with the largest magnitude.
            BlockRule::OuterScale(rule) => ScalePair::of(rule.grid(amax, amax)).scale,
        }
    }
}

/// As the rules take it: a block of subnormals has the exponent below the smallest normal number's.
#[inline(always)]
fn shared_exponent(amax: u32) -> u32 {
    bits::pow2((amax >> bits::MANTISSA_BITS) as i32 - BIAS)
}

/// Binades of the positive float32.
const BINADES: usize = (BIAS - LOWEST_EXPONENT + 1) as usize;

/// The scales of some blocks.
pub(super) struct SeenScales {
    counts: [u32; BINADES],
    /// Sums of their logarithms to base 2, and of the squares of the logarithms.
    pub(super) sum: f64,
    pub(super) squares: f64,
    /// The smallest and the largest.
    pub(super) range: Option<[f32; 2]>,
}

impl Default for SeenScales {
    fn default() -> Self {
        Self {
            counts: [0; BINADES],
            sum: 0.0,
            squares: 0.0,
            range: None,
        }
    }
}

impl SeenScales {
    #[inline(always)]
    pub(super) fn see(&mut self, scale: f32) {
        let binade = bits::exponent(scale.to_bits());
        self.counts[(binade - LOWEST_EXPONENT) as usize] += 1;
        // The logarithm of most scales is a whole number.
        let log2 = match scale.to_bits() == bits::pow2(binade) {
            true => f64::from(binade),
            false => f64::from(scale).log2(),
        };
        self.sum += log2;
        self.squares += log2 * log2;
        let [min, max] = self.range.unwrap_or([scale; 2]);
        self.range = Some([min.min(scale), max.max(scale)]);
    }

    /// How many scales there are in each binade that has some.
    pub(super) fn binades(&self) -> impl Iterator<Item = (i32, u64)> {
        let counts = self.counts.iter().zip(LOWEST_EXPONENT..);
        let counts = counts.filter(|(count, _)| **count > 0);
        counts.map(|(&count, binade)| (binade, u64::from(count)))
    }
}
