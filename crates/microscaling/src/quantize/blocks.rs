//! The loops over memory that work on blocks, and the kernels that contiguous and interleaved blocks have in common.

pub(crate) mod contiguous;
mod exchange;
pub(crate) mod interleaved;
mod table_lanes;

use super::largest::MagnitudeMax;
use super::layout::Layout;
use super::rules::{
    AnyNumbers, BlockRule, ConversionRule, ElementRule, Grid, ScalePair, StepElement,
};
use crate::format::ElementRounding;
use crate::round::bits::{ABS, ONE};
use crate::round::draws::{Draws, PartStream, WINDOW};
use crate::round::mode::Even;
use alloc::vec::Vec;
use contiguous::Line;
use interleaved::{Run, Tile};
use microscaling_processor::instruction_set::{Kernel, Level};

/// Rounds, or marks, the elements of a tensor: the same for all blocks.
#[derive(Clone, Copy)]
pub(crate) struct Job<R> {
    pub(crate) rule: BlockRule,
    pub(crate) element_rule: R,
    pub(crate) stream: PartStream,
}

/// Elements of contiguous blocks with scales by sign that are worked on together, a multiple of every usual block.
const BY_SIGN: usize = 1 << 13;

impl<R: ElementRule> Job<R> {
    /// Works on consecutive runs of whole blocks, `start` being their position in the tensor and `at` that on the axis, a
    /// multiple of the block length. A run is `inner` interleaved blocks, contiguous in memory as a whole.
    pub(crate) fn run(
        &self,
        level: Level,
        layout: Layout,
        data: &mut [f32],
        mut at: usize,
        mut start: u64,
    ) {
        let mut draws = Draws::new(self.stream, start + data.len() as u64);
        let mut tile = Tile::new();
        let of_one_sign = self.rule.of_one_sign().map(|rule| Self { rule, ..*self });
        let mut rest = data;
        while !rest.is_empty() {
            let mut rows = layout.next_rows(at, rest.len());
            if of_one_sign.is_some() && layout.inner == 1 {
                rows = rows.min(layout.block * (BY_SIGN / layout.block).max(1));
            }
            let (run, tail) = rest.split_at_mut(rows * layout.inner);
            if let Some(job) = &of_one_sign
                && self.rule.has_numbers_alone(largest_at(level, run))
            {
                job.run_signs(level, layout, run, at, start);
            } else if layout.inner == 1 {
                Line {
                    job: self,
                    level,
                    draws: &mut draws,
                }
                .quantize(run, layout.block, start);
            } else {
                let run = Run {
                    data: run,
                    layout: &layout,
                    start,
                    goes_on: !tail.is_empty(),
                };
                run.quantize(self, level, &mut tile, &mut draws, None);
            }
            at += rows;
            if at >= layout.axis {
                at = 0;
            }
            start += run.len() as u64;
            rest = tail;
        }
    }

    /// Works on a run of blocks with scales by sign: on the elements of each sign as if the others were 0.
    fn run_signs(&self, level: Level, layout: Layout, data: &mut [f32], at: usize, start: u64) {
        let of_sign = |negative: bool| -> Vec<f32> {
            let own = |x: &f32| {
                if x.is_sign_negative() == negative {
                    *x
                } else {
                    0.0
                }
            };
            let mut elements = data.iter().map(own).collect::<Vec<_>>();
            self.run(level, layout, &mut elements, at, start);
            elements
        };
        let (positive, negative) = (of_sign(false), of_sign(true));
        for ((x, positive), negative) in data.iter_mut().zip(positive).zip(negative) {
            *x = if x.is_sign_negative() {
                negative
            } else {
                positive
            };
        }
    }
}

/// The largest magnitude of some elements.
fn largest_at(level: Level, data: &[f32]) -> u32 {
    let mut amax = 0;
    level.run(MagnitudeMax {
        data,
        amax: &mut amax,
    });
    amax
}

/// Magnitudes and scales of ordinary blocks, for packing: the loops divide the results of such blocks by the scales.
#[derive(Default)]
pub(crate) struct Units {
    /// The largest magnitude of each block.
    pub(crate) maxima: Vec<u32>,
    /// The scale of each block, as a pattern. With sub-blocks there are more: along a contiguous axis each element has one, along
    /// another axis each column of each sub-block.
    pub(crate) scales: Vec<u32>,
}

impl Units {
    /// Appends the magnitudes and the scales of some blocks, and sets these scales to 1.
    #[inline(always)]
    pub(super) fn take(&mut self, maxima: &[u32], scales: &mut [u32]) {
        self.maxima.extend_from_slice(maxima);
        self.scales.extend_from_slice(scales);
        scales.fill(ONE);
    }
}

/// [`BlockRule::ordinary_pairs`].
pub(super) struct TamePairs<'a> {
    pub(super) rule: &'a BlockRule,
    pub(super) maxima: &'a [u32],
    pub(super) refinements: &'a [u32],
    pub(super) pairs: [&'a mut [u32]; 2],
}

impl Kernel for TamePairs<'_> {
    #[inline(always)]
    fn run(self) {
        self.rule
            .ordinary_pairs(self.maxima, self.refinements, self.pairs);
    }
}

/// [`BlockRule::grids`].
pub(super) struct AnyPairs<'a>(pub(super) TamePairs<'a>);

impl Kernel for AnyPairs<'_> {
    #[inline(always)]
    fn run(self) {
        let TamePairs {
            rule,
            maxima,
            refinements,
            pairs,
        } = self.0;
        rule.grids(maxima, refinements, pairs);
    }
}

/// [`BlockRule::ordinary_blocks`].
pub(super) struct TameBlocks<'a> {
    pub(super) rule: &'a BlockRule,
    pub(super) maxima: &'a [u32],
    pub(super) words: [&'a mut [u32]; 2],
}

impl Kernel for TameBlocks<'_> {
    #[inline(always)]
    fn run(self) {
        self.rule.ordinary_blocks(self.maxima, self.words);
    }
}

/// [`BlockRule::ordinary_seconds`], of blocks of B elements, or of any length if B is 0.
pub(crate) struct TameSeconds<'a, const B: usize> {
    pub(crate) rule: &'a BlockRule,
    pub(crate) maxima: &'a [u32],
    pub(crate) blocks: &'a [f32],
    pub(crate) refinements: &'a mut [u32],
}

impl<const B: usize> Kernel for TameSeconds<'_, B> {
    #[inline(always)]
    fn run(self) {
        let length = match B {
            0 => self.blocks.len() / self.maxima.len(),
            _ => B,
        };
        self.rule
            .ordinary_refinements(self.maxima, self.blocks, length, self.refinements);
    }
}

/// [`BlockRule::refinement`] of a block.
pub(super) struct Second<'a> {
    pub(super) rule: &'a BlockRule,
    pub(super) amax: u32,
    pub(super) block: &'a [f32],
    pub(super) refinement: &'a mut u32,
}

impl Kernel for Second<'_> {
    #[inline(always)]
    fn run(self) {
        *self.refinement = self.rule.refinement(self.amax, self.block.iter().copied());
    }
}

/// The grids of neighbouring elements: one grid for all, or one each, word by word.
#[derive(Clone, Copy)]
pub(super) enum Grids<'a> {
    One(Grid),
    Each([&'a [u32]; 2]),
}

/// The kinds of grids that neighbouring elements have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// [`ScalePair`]s, of [ordinary](BlockRule::ordinary) blocks.
    Ordinary,
    /// Those too, with 1 for a scale: results are in [`Units`].
    Units,
    /// Grids of any kind, from [`BlockRule::grid`].
    Any,
}

impl Way {
    /// Whether elements are rounded as they are, without being scaled.
    #[inline(always)]
    pub(super) fn is_unscaled(self, rule: &BlockRule) -> bool {
        self == Self::Ordinary && rule.has_powers_of_two()
    }
}

/// Works on neighbours. The kernel takes neighbours in ordinary blocks alone, and [`Elements::work`] takes all.
pub(super) struct Elements<'a, R> {
    pub(super) job: &'a Job<R>,
    pub(super) grids: Grids<'a>,
    pub(super) way: Way,
    pub(super) data: &'a mut [f32],
    /// Position of the data in the tensor.
    pub(super) start: u64,
    pub(super) draws: &'a mut Draws,
}

impl<R: ElementRule> Kernel for Elements<'_, R> {
    #[inline(always)]
    fn run(self) {
        let job = self.job;
        let Job {
            rule, element_rule, ..
        } = job;
        let element = rule.unit_element();
        if self.way.is_unscaled(rule) {
            self.each(
                #[inline(always)]
                |[scale, _], x, draw| element_rule.ordinary_unscaled(&element, scale, x, draw),
            );
        } else {
            self.each(
                #[inline(always)]
                |grid, x, draw| element_rule.ordinary(&element, ScalePair::of(grid), x, draw),
            );
        }
    }
}

/// [`Elements`] whose grids are of [any](Way::Any) kind. The kernel is apart from the other, so that each row of ordinary blocks does not pay for the
/// questions here.
struct AnyElements<'a, R>(Elements<'a, R>);

impl<R: ElementRule> Kernel for AnyElements<'_, R> {
    #[inline(always)]
    fn run(self) {
        let elements = self.0;
        let job = elements.job;
        let Job {
            rule, element_rule, ..
        } = job;
        if let Some(element) = rule.step_element() {
            elements.each_number(
                element,
                #[inline(always)]
                |element, grid, x, draw| element_rule.stepped(element, grid, x, draw),
            );
        } else if let Grids::One(grid) = elements.grids
            && let Some((short, pair)) = rule.short_table(grid)
        {
            elements.each(
                #[inline(always)]
                |_, x, draw| {
                    let scaled = pair.scaled(x.to_bits() & ABS);
                    element_rule.short_table(&short, pair, scaled, x, draw)
                },
            );
        } else if let Some(rule) = rule.as_numbers() {
            elements.each_number(
                *rule,
                #[inline(always)]
                |rule, grid, x, draw| element_rule.scaled(rule, grid, x, draw),
            );
        } else {
            elements.each(|grid, x, draw| any_element(job, grid, x, draw));
        }
    }
}

/// Rounds neighbours by the rounding of their format, which needs no draws. There is a loop for each mode: one loop that asks for the mode does
/// not become vectors.
struct OwnRounding<'a> {
    element: StepElement,
    conversion: ConversionRule,
    rounding: ElementRounding,
    grids: Grids<'a>,
    data: &'a mut [f32],
}

impl Kernel for OwnRounding<'_> {
    #[inline(always)]
    fn run(self) {
        use ElementRounding::*;
        match self.rounding {
            TiesToEven => self.each(TiesToEven),
            TiesToAway => self.each(TiesToAway),
            TiesToZero => self.each(TiesToZero),
            TiesToOdd => self.each(TiesToOdd),
            TiesTowardPositive => self.each(TiesTowardPositive),
            TiesTowardNegative => self.each(TiesTowardNegative),
            TowardZero => self.each(TowardZero),
            AwayFromZero => self.each(AwayFromZero),
            TowardPositive => self.each(TowardPositive),
            TowardNegative => self.each(TowardNegative),
            ToOdd => self.each(ToOdd),
            Stochastic(_) => unreachable!("the rounding needs no draws"),
        }
    }
}

impl OwnRounding<'_> {
    #[inline(always)]
    fn each(self, rounding: ElementRounding) {
        let conversion = self.conversion.with_rounding(Some(rounding));
        let element = self.element.with_conversion(Some(conversion));
        match self.grids {
            Grids::One(grid) => {
                for x in self.data {
                    *x = element.round::<Even>(grid, *x, 0);
                }
            }
            Grids::Each([first, second]) => {
                for ((x, first), second) in self.data.iter_mut().zip(first).zip(second) {
                    *x = element.round::<Even>([*first, *second], *x, 0);
                }
            }
        }
    }
}

/// Rare, and not vectorized.
#[inline(never)]
fn any_element<R: ElementRule>(job: &Job<R>, grid: Grid, x: f32, draw: u32) -> f32 {
    job.element_rule.any(&job.rule, grid, x, draw)
}

impl<R: ElementRule> Elements<'_, R> {
    /// Works on them by the kernel for their rule.
    #[inline(always)]
    pub(super) fn work(self, level: Level) {
        if self.way != Way::Any {
            return level.run(self);
        }
        match R::UPPER.and_then(|_| self.job.rule.own_rounding()) {
            Some((element, conversion, rounding)) => level.run(OwnRounding {
                element,
                conversion,
                rounding,
                grids: self.grids,
                data: self.data,
            }),
            None => level.run(AnyElements(self)),
        }
    }

    /// Works on them by a function of [`AnyNumbers`]. A loop for each case: one loop that asks for the case does not become vectors.
    #[inline(always)]
    fn each_number<E: AnyNumbers>(self, element: E, function: impl Fn(&E, Grid, f32, u32) -> f32) {
        match element.conversion() {
            None => {
                let element = element.with_conversion(None);
                self.each(
                    #[inline(always)]
                    |grid, x, draw| function(&element, grid, x, draw),
                );
            }
            Some(conversion) if conversion.rounding().is_none() => {
                let element = element.with_conversion(Some(conversion.with_rounding(None)));
                self.each(
                    #[inline(always)]
                    |grid, x, draw| function(&element, grid, x, draw),
                );
            }
            Some(_) => {
                let job = self.job;
                self.each(|grid, x, draw| any_element(job, grid, x, draw));
            }
        }
    }

    #[inline(always)]
    fn each(self, function: impl Fn(Grid, f32, u32) -> f32) {
        let pieces = self
            .data
            .chunks_mut(WINDOW)
            .zip((self.start..).step_by(WINDOW));
        match self.grids {
            Grids::One(grid) => {
                for (data, start) in pieces {
                    let draws = self.draws.get(R::USES_DRAWS, start, data.len());
                    for (x, draw) in data.iter_mut().zip(draws) {
                        *x = function(grid, *x, *draw);
                    }
                }
            }
            Grids::Each([first, second]) => {
                let grids = first.chunks(WINDOW).zip(second.chunks(WINDOW));
                for ((data, start), (first, second)) in pieces.zip(grids) {
                    let draws = self.draws.get(R::USES_DRAWS, start, data.len());
                    let grids = first.iter().zip(second);
                    for ((x, (first, second)), draw) in data.iter_mut().zip(grids).zip(draws) {
                        *x = function([*first, *second], *x, *draw);
                    }
                }
            }
        }
    }
}
