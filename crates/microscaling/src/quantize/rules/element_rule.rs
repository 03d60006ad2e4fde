//! The loops' rule for the elements of blocks.

use super::{
    AnyNumbers, BlockRule, FloatScaleRule, Grid, ScalePair, StepElement, Steps, UnitElement,
};
use crate::format::element::table::ShortTable;
use crate::round::RoundingRule;
use crate::round::bits::{ABS, INFINITY};
use crate::round::mode::Upper;

/// The loops' rule for the elements of blocks.
///
/// The methods must be `#[inline(always)]`, see [`Kernel`](super::instruction_set::Kernel).
pub(crate) trait ElementRule: Copy + Send + Sync {
    /// Whether draws are looked at.
    const USES_DRAWS: bool;
    /// Where an element becomes the larger neighbour, if elements are rounded.
    #[cfg_attr(
        not(all(target_arch = "x86_64", feature = "std")),
        allow(dead_code, reason = "for registers of AVX-512")
    )]
    const UPPER: Option<Upper>;

    /// An element of an ordinary block.
    fn ordinary(&self, element: &UnitElement, pair: ScalePair, x: f32, draw: u32) -> f32;

    /// [`ordinary`](Self::ordinary), where the scale is a power of two.
    fn ordinary_unscaled(&self, element: &UnitElement, scale: u32, x: f32, draw: u32) -> f32;

    /// An element of any block, if grids are [`Steps`].
    fn stepped(&self, element: &StepElement, grid: Grid, x: f32, draw: u32) -> f32;

    /// An element of any block whose scale is a float, without tables and scales by sign.
    fn scaled(&self, rule: &FloatScaleRule, grid: Grid, x: f32, draw: u32) -> f32;

    /// An element of any block.
    fn any(&self, rule: &BlockRule, grid: Grid, x: f32, draw: u32) -> f32;

    /// An element of any block with this pair, and these numbers in units of the scale. `scaled` is the element's magnitude in units of
    /// the scale.
    fn short_table(
        &self,
        short: &ShortTable,
        pair: ScalePair,
        scaled: u32,
        x: f32,
        draw: u32,
    ) -> f32;
}

/// Rounds elements.
impl<R: RoundingRule> ElementRule for R {
    const USES_DRAWS: bool = R::USES_DRAWS;
    const UPPER: Option<Upper> = Some(R::UPPER);

    #[inline(always)]
    fn ordinary(&self, element: &UnitElement, pair: ScalePair, x: f32, draw: u32) -> f32 {
        element.round::<R>(pair, x, draw)
    }

    #[inline(always)]
    fn ordinary_unscaled(&self, element: &UnitElement, scale: u32, x: f32, draw: u32) -> f32 {
        element.round_unscaled::<R>(scale, x, draw)
    }

    #[inline(always)]
    fn stepped(&self, element: &StepElement, grid: Grid, x: f32, draw: u32) -> f32 {
        element.round::<R>(grid, x, draw)
    }

    #[inline(always)]
    fn scaled(&self, rule: &FloatScaleRule, grid: Grid, x: f32, draw: u32) -> f32 {
        rule.round::<R>(grid, x, draw)
    }

    #[inline(always)]
    fn any(&self, rule: &BlockRule, grid: Grid, x: f32, draw: u32) -> f32 {
        rule.round::<R>(grid, x, draw)
    }

    #[inline(always)]
    fn short_table(
        &self,
        short: &ShortTable,
        pair: ScalePair,
        scaled: u32,
        x: f32,
        draw: u32,
    ) -> f32 {
        FloatScaleRule::round_to_short_table::<R>(short, pair, scaled, x, draw)
    }
}

/// Marks elements: 1 where rounding clips them, else 0.
#[derive(Clone, Copy)]
pub(crate) struct Clipped;

/// 1 for a finite magnitude of at least the largest number.
#[inline(always)]
fn clipped(x: f32, largest: u32) -> f32 {
    let abs = x.to_bits() & ABS;
    let limit = if largest == 0 { INFINITY } else { largest };
    f32::from(u8::from((abs >= limit) & (abs < INFINITY)))
}

impl ElementRule for Clipped {
    const USES_DRAWS: bool = false;
    const UPPER: Option<Upper> = None;

    #[inline(always)]
    fn ordinary(&self, element: &UnitElement, pair: ScalePair, x: f32, _: u32) -> f32 {
        let largest = f32::from_bits(pair.scale) * f32::from_bits(element.max);
        clipped(x, largest.to_bits())
    }

    #[inline(always)]
    fn ordinary_unscaled(&self, element: &UnitElement, scale: u32, x: f32, _: u32) -> f32 {
        clipped(x, element.largest(scale))
    }

    #[inline(always)]
    fn stepped(&self, _: &StepElement, grid: Grid, x: f32, _: u32) -> f32 {
        clipped(x, Steps::of(grid).max)
    }

    #[inline(always)]
    fn scaled(&self, rule: &FloatScaleRule, grid: Grid, x: f32, _: u32) -> f32 {
        clipped(x, rule.pair_of(grid).largest(rule.element.max))
    }

    #[inline(always)]
    fn any(&self, rule: &BlockRule, grid: Grid, x: f32, _: u32) -> f32 {
        clipped(x, rule.largest(grid, x.to_bits()))
    }

    #[inline(always)]
    fn short_table(&self, short: &ShortTable, pair: ScalePair, _: u32, x: f32, _: u32) -> f32 {
        clipped(x, pair.largest(short.largest(x.to_bits())))
    }
}
