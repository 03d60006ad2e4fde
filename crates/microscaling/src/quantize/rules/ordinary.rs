//! Ordinary blocks: the short way with the results of the rules.

use super::BlockRule;
use super::fixed_point::FixedPointRule;
use super::float_scale::{Candidates, FOUR_CHOICE, FloatScaleRule, SubScaleRule};
use super::mx::MxRule;
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use crate::round::bits::MANTISSA_BITS;
use core::hint::black_box;
use core::ops::Range;

/// Elements of the longest vector.
pub(crate) const LANES: usize = 16;

/// Contiguous blocks that are worked on together.
pub const TOGETHER: usize = 16;

/// Whether all blocks with these largest magnitudes are of zeros, or within this range, without a branch.
#[inline(always)]
pub(crate) fn are_within(range: Range<u32>, maxima: &[u32]) -> bool {
    maxima.iter().fold(true, |all, amax| {
        all & (*amax < range.end) & ((*amax >= range.start) | (*amax == 0))
    })
}

/// Ordinary blocks, all of whose elements are finite.
impl BlockRule {
    /// The patterns of a block's largest magnitude from which on and below which the block is ordinary: neither very large nor
    /// very small. A block of zeros is as ordinary as one with the first of them. No block with a NaN or Inf is.
    #[inline(always)]
    pub(crate) fn ordinary(&self) -> Range<u32> {
        match self {
            Self::Mx(rule) => rule.ordinary(),
            Self::FixedPoint(rule) => rule.ordinary(),
            Self::FloatScale(rule) => rule.ordinary(),
            Self::OuterScale(rule) => rule.ordinary(),
        }
    }

    /// Whether all blocks with these largest magnitudes are ordinary.
    #[inline(always)]
    pub(crate) fn are_ordinary(&self, maxima: &[u32]) -> bool {
        are_within(self.ordinary(), maxima)
    }

    /// The elements of ordinary blocks.
    #[inline(always)]
    pub(crate) fn unit_element(&self) -> UnitElement {
        match self {
            Self::Mx(rule) => rule.unit_element(),
            Self::FixedPoint(rule) => rule.unit_element(),
            Self::FloatScale(rule) => rule.unit_element(),
            Self::OuterScale(rule) => rule.blocks.unit_element(),
        }
    }

    /// The pairs of ordinary sub-blocks, word by word, from the largest magnitudes of their blocks and their own, or what second
    /// looks say. Pairs of a block of zeros are any.
    #[inline(always)]
    pub(crate) fn ordinary_pairs(
        &self,
        maxima: &[u32],
        refinements: &[u32],
        [scales, inverses]: [&mut [u32]; 2],
    ) {
        let least = self.ordinary().start;
        let pairs = scales.iter_mut().zip(inverses);
        let pairs = pairs.zip(maxima.iter().zip(refinements));
        // By value: loops without branches need their operands in registers.
        match self {
            Self::Mx(rule) if rule.is_rms() => {
                let rule = *rule;
                for ((scale, inverse), (_, refinement)) in pairs {
                    [*scale, *inverse] = rule.ordinary_pair_of_mean(*refinement).words();
                }
            }
            Self::Mx(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, _)) in pairs {
                    [*scale, *inverse] = rule.ordinary_pair((*amax).max(least)).words();
                }
            }
            Self::FixedPoint(rule) if rule.largest_shift == 0 => {
                let rule = *rule;
                for ((scale, inverse), (amax, _)) in pairs {
                    let amax = (*amax).max(least);
                    [*scale, *inverse] = rule.ordinary_pair(amax, amax).words();
                }
            }
            Self::FixedPoint(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, refinement)) in pairs {
                    [*scale, *inverse] =
                        rule.ordinary_pair((*amax).max(least), *refinement).words();
                }
            }
            Self::FloatScale(
                rule @ FloatScaleRule {
                    sub_scales: Some(sub_scales),
                    ..
                },
            ) => {
                let (rule, sub_scales) = (*rule, *sub_scales);
                for ((scale, inverse), (amax, refinement)) in pairs {
                    let of_block = rule.ordinary_pair((*amax).max(least), 0);
                    [*scale, *inverse] = sub_scales.ordinary_pair(of_block, *refinement).words();
                }
            }
            Self::FloatScale(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, refinement)) in pairs {
                    [*scale, *inverse] =
                        rule.ordinary_pair((*amax).max(least), *refinement).words();
                }
            }
            Self::OuterScale(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, refinement)) in pairs {
                    [*scale, *inverse] =
                        rule.ordinary_pair((*amax).max(least), *refinement).words();
                }
            }
        }
    }

    /// The data that sub-blocks share with their ordinary blocks, word by word, of a format with shifts or sub-scales.
    #[inline(always)]
    pub(crate) fn ordinary_blocks(&self, maxima: &[u32], words: [&mut [u32]; 2]) {
        match self {
            Self::FixedPoint(_) => words[0].copy_from_slice(maxima),
            Self::FloatScale(rule) => {
                let (rule, least) = (*rule, rule.ordinary().start);
                let [scales, inverses] = words;
                for ((scale, inverse), amax) in scales.iter_mut().zip(inverses).zip(maxima) {
                    [*scale, *inverse] = rule.ordinary_pair((*amax).max(least), 0).words();
                }
            }
            _ => unreachable!("there are sub-blocks"),
        }
    }

    /// The pairs of some ordinary sub-blocks, word by word. The arguments are the [data of their blocks](Self::ordinary_blocks), the largest
    /// magnitudes of their sub-blocks of the first level (of any, if there is one level), and their own largest magnitudes.
    #[inline(always)]
    pub(crate) fn ordinary_sub_pairs(
        &self,
        of_blocks: [&[u32; LANES]; 2],
        first: &[u32; LANES],
        own: &[u32; LANES],
    ) -> [[u32; LANES]; 2] {
        let (mut scales, mut inverses) = ([0; LANES], [0; LANES]);
        match self {
            Self::FixedPoint(rule) => {
                let (rule, least) = (*rule, rule.ordinary().start);
                for i in 0..LANES {
                    let amax = of_blocks[0][i].max(least);
                    [scales[i], inverses[i]] = rule.ordinary_pair(amax, own[i]).words();
                }
            }
            Self::FloatScale(FloatScaleRule {
                sub_scales: Some(sub_scales),
                ..
            }) => {
                let sub_scales = *sub_scales;
                for i in 0..LANES {
                    let of_block = ScalePair::of([of_blocks[0][i], of_blocks[1][i]]);
                    let refinement = SubScaleRule::refinement([first[i], own[i]]);
                    [scales[i], inverses[i]] =
                        sub_scales.ordinary_pair(of_block, refinement).words();
                }
            }
            _ => unreachable!("there are sub-blocks"),
        }
        [scales, inverses]
    }

    /// The code of an ordinary block's scale, given the scale. Floats are in units of the tensor's scale.
    #[inline(always)]
    pub(crate) fn ordinary_scale_code(&self, amax: u32, scale: u32) -> u32 {
        match self {
            Self::Mx(rule) if amax == 0 => rule.zero_code(),
            Self::Mx(_) => scale >> MANTISSA_BITS,
            Self::FixedPoint(_) => amax >> MANTISSA_BITS,
            Self::FloatScale(rule) if amax == 0 => rule.scale.zero_code(),
            Self::FloatScale(rule) => rule.scale.code(scale),
            Self::OuterScale(_) => unreachable!("the codec packs such blocks"),
        }
    }

    /// Looks twice at ordinary blocks of the same length, at most [`TOGETHER`] of them, one after the other.
    #[inline(always)]
    pub(crate) fn ordinary_refinements(
        &self,
        maxima: &[u32],
        blocks: &[f32],
        length: usize,
        refinements: &mut [u32],
    ) {
        let rule = *self;
        let mut looks = [[0; TOGETHER]; LOOK_WORDS];
        rule.ordinary_looks(maxima, looks.each_mut().map(|words| &mut words[..]));
        let blocks = blocks.chunks_exact(length).zip(maxima).zip(refinements);
        for (i, ((elements, amax), refinement)) in blocks.enumerate() {
            // Hidden, lest blocks become lanes.
            let look = black_box(looks.each_ref().map(|words| words[i]));
            let add = |sum: i64, weight: i64| sum.wrapping_add(weight);
            let sum = match rule {
                Self::Mx(_) => elements
                    .iter()
                    .map(
                        #[inline(always)]
                        |x| i64::from(MxRule::square(look[0] as i32, x.to_bits())),
                    )
                    .fold(0, add),
                Self::FloatScale(rule) => {
                    let candidates = Candidates::of(look);
                    elements
                        .iter()
                        .map(
                            #[inline(always)]
                            |x| rule.difference::<false>(candidates, *x),
                        )
                        .fold(0, add)
                }
                _ => 0,
            };
            *refinement = rule.choice(*amax, sum, length);
        }
    }

    /// Writes, word by word, what second looks need to know of ordinary blocks. The blocks are columns of some rows.
    #[inline(always)]
    pub(crate) fn ordinary_looks(&self, maxima: &[u32], looks: [&mut [u32]; LOOK_WORDS]) {
        match *self {
            Self::FloatScale(rule) => {
                Self::write_looks(
                    maxima,
                    looks,
                    #[inline(always)]
                    |amax| rule.candidates::<false>(amax).words(),
                );
            }
            rule => Self::write_looks(
                maxima,
                looks,
                #[inline(always)]
                |amax| rule.look::<false>(amax),
            ),
        }
    }

    #[inline(always)]
    fn write_looks(
        maxima: &[u32],
        [a, b, c, d, e]: [&mut [u32]; LOOK_WORDS],
        look: impl Fn(u32) -> SecondLook,
    ) {
        let words = a.iter_mut().zip(b).zip(c).zip(d).zip(e);
        for (amax, ((((a, b), c), d), e)) in maxima.iter().zip(words) {
            [*a, *b, *c, *d, *e] = look(*amax);
        }
    }

    /// Adds a row of such columns to their sums.
    #[inline(always)]
    pub(crate) fn add_to_sums(&self, looks: [&[u32]; LOOK_WORDS], row: &[f32], sums: &mut [i64]) {
        // A loop for each kind of rule: one loop that asks for the kind does not become vectors.
        match *self {
            Self::Mx(_) => Self::add_row(
                looks,
                row,
                sums,
                #[inline(always)]
                |look, x| i64::from(MxRule::square(look[0] as i32, x.to_bits())),
            ),
            Self::FixedPoint(_) => Self::add_row(
                looks,
                row,
                sums,
                #[inline(always)]
                |look, x| FixedPointRule::overflows(look[0], x),
            ),
            Self::FloatScale(rule) => Self::add_row(
                looks,
                row,
                sums,
                #[inline(always)]
                |look, x| rule.difference::<false>(Candidates::of(look), x),
            ),
            Self::OuterScale(_) => {}
        }
    }

    #[inline(always)]
    fn add_row(
        [a, b, c, d, e]: [&[u32]; LOOK_WORDS],
        row: &[f32],
        sums: &mut [i64],
        weight: impl Fn(SecondLook, f32) -> i64,
    ) {
        let sums = sums.iter_mut().zip(row).zip(a);
        let others = b.iter().zip(c).zip(d).zip(e);
        for (((sum, x), a), (((b, c), d), e)) in sums.zip(others) {
            *sum = sum.wrapping_add(weight([*a, *b, *c, *d, *e], *x));
        }
    }

    /// The choice of the sum over a block of `length` elements.
    #[inline(always)]
    pub(crate) fn choice(&self, amax: u32, sum: i64, length: usize) -> u32 {
        match self {
            Self::Mx(rule) => rule.choice_of_squares(amax, sum, length),
            Self::FixedPoint(_) => u32::from(sum > 0),
            _ => u32::from(sum < 0) * FOUR_CHOICE,
        }
    }
}

/// The data for a second look at a block, word by word.
pub(super) type SecondLook = [u32; LOOK_WORDS];

pub(crate) const LOOK_WORDS: usize = 5;
