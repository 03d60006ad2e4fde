//! Elements of tables.

use super::FloatScaleRule;
use crate::format::element::table::{ShortTable, Table, Tables};
use crate::quantize::rules::{Grid, ScalePair, TOGETHER as WINDOW};
use crate::round::RoundingRule;
use crate::round::bits::{self, ABS, INFINITY, NAN, SIGN};
use crate::round::mode::Even;
use crate::round::words::Word;
use core::hint::black_box;
use core::ops::Range;

/// Elements that a second look compares tables on together.
const TOGETHER: usize = 64;

/// Elements of tables. A second look gives the number of the block's table.
impl FloatScaleRule {
    /// The magnitude of what an element becomes in units of the scale, as a pattern, and its code. The element is given as a pattern,
    /// and must be finite.
    #[inline(always)]
    pub(crate) fn round_in<R: RoundingRule>(
        table: &Table,
        pair: ScalePair,
        x: u32,
        draw: u32,
    ) -> [u32; 2] {
        table.round::<R>(x & SIGN, pair.scaled(x & ABS), draw)
    }

    /// Whether each table has [few](Table::few) numbers.
    pub(crate) fn has_short_tables(&self) -> bool {
        self.tables
            .is_some_and(|tables| tables.0.iter().all(|table| table.short_table().is_some()))
    }

    /// The numbers of a block with this grid, if they are [few](Table::few), and the pair.
    #[inline(always)]
    pub(crate) fn short_table(&self, grid: Grid) -> Option<(ShortTable, ScalePair)> {
        let short = self.tables?.0[grid[1] as usize].short_table()?;
        Some((*short, self.pair_of(grid)))
    }

    /// Rounds an element to these numbers.
    #[inline(always)]
    pub(crate) fn round_to_short_table<R: RoundingRule>(
        short: &ShortTable,
        pair: ScalePair,
        scaled: u32,
        x: f32,
        draw: u32,
    ) -> f32 {
        let sign = x.to_bits() & SIGN;
        let q = short.round::<R>(sign, scaled, draw);
        f32::from_bits(if pair.is_nan() {
            NAN
        } else {
            sign | bits::product(q, pair.scale)
        })
    }

    /// The number of the table with the least squared error, of equal ones the first, for the elements of a block.
    #[inline(always)]
    pub(crate) fn best_table(&self, amax: u32, mut elements: impl Iterator<Item = f32>) -> u32 {
        let Some(tables) = self.tables else { return 0 };
        // A block with a NaN or Inf becomes NaN anyway.
        if amax >= INFINITY {
            return 0;
        }
        // Any error is less than the largest multiple.
        let unit = bits::exponent(amax) - 15;
        let with_tensor_scale = self.with_results_in_float32();
        let mut sums = [0_u64; Tables::MOST];
        let mut some = [0.0; TOGETHER];
        loop {
            let mut count = 0;
            for (place, x) in some.iter_mut().zip(elements.by_ref()) {
                *place = x;
                count += 1;
            }
            if count == 0 {
                break;
            }
            for ((table, number), sum) in tables.0.iter().zip(0..).zip(&mut sums) {
                let scale = self.block_scale(amax, table.max(), number);
                let pair = with_tensor_scale.pair(scale);
                *sum = sum.saturating_add(match table.short_table() {
                    _ if pair.is_nan() => u64::MAX,
                    Some(short) => Self::sum_of_squares(pair, unit, &some[..count], |sign, abs| {
                        short.round::<Even>(sign, pair.scaled(abs), 0)
                    }),
                    None => Self::sum_of_squares(pair, unit, &some[..count], |sign, abs| {
                        table.round::<Even>(sign, pair.scaled(abs), 0)[0]
                    }),
                });
            }
        }
        let sums = sums.iter().zip(0..).take(tables.0.len());
        sums.min_by_key(|(sum, _)| **sum)
            .map_or(0, |(_, table)| table)
    }

    /// The range of the largest magnitudes of blocks, as patterns, for which [`ordinary_few`](Self::ordinary_few) is right. No scale is very
    /// small or very large there, and neither is the reciprocal or a multiple of a scale.
    #[inline(always)]
    pub(crate) fn ordinary_range_of_few(&self) -> Range<u32> {
        let scales = bits::pow2(-20)..bits::pow2(20);
        match self.has_short_tables() && scales.contains(&self.tensor_scale()) {
            true => bits::pow2(-60)..bits::pow2(60),
            false => 0..0,
        }
    }

    /// Writes the number of the table of each ordinary block, and the block's pair. The blocks have B elements and these largest
    /// magnitudes. The tables have [few](Table::few) numbers.
    #[inline(always)]
    pub(crate) fn ordinary_few<const B: usize>(
        &self,
        tables: Tables,
        maxima: &[u32; WINDOW],
        blocks: &[[f32; B]],
    ) -> ([usize; WINDOW], [[u32; WINDOW]; 2]) {
        // By value: loops without branches need their operands in registers.
        let (rule, least) = (*self, self.ordinary_range_of_few().start);
        let mut chosen = [0; WINDOW];
        let mut chosen_pairs = [[0; WINDOW]; 2];
        let mut least_sums = [u64::MAX; WINDOW];
        for (number, table) in tables.0.iter().enumerate() {
            let [factors, products, inverses] = rule.ordinary_scales(maxima, table.max());
            if tables.0.len() == 1 {
                chosen_pairs = [factors, inverses];
                break;
            }
            let Some(short) = table.short_table().copied() else {
                continue;
            };
            for (i, block) in blocks.iter().enumerate() {
                // Hidden, lest blocks become lanes.
                let i = black_box(i) % WINDOW;
                let pair = ScalePair::of([products[i], inverses[i]]);
                let unit = bits::exponent(maxima[i].max(least)) - 15;
                let sum = Self::sum_of_squares(pair, unit, block, |sign, abs| {
                    short.round::<Even>(sign, bits::product(abs, pair.inverse), 0)
                });
                if sum < least_sums[i] {
                    (least_sums[i], chosen[i]) = (sum, number);
                    [chosen_pairs[0][i], chosen_pairs[1][i]] = [factors[i], inverses[i]];
                }
            }
        }
        (chosen, chosen_pairs)
    }

    /// Patterns for ordinary blocks by a table whose largest magnitude is `max`. The first ones are factors of rounded elements. The second
    /// ones are the same without units of a tensor scale. The third ones are factors of elements before rounding.
    #[inline(always)]
    pub(crate) fn ordinary_scales(&self, maxima: &[u32; WINDOW], max: u32) -> [[u32; WINDOW]; 3] {
        let (rule, least) = (*self, self.ordinary_range_of_few().start);
        let with_tensor_scale = rule.with_results_in_float32();
        let (mut factors, mut products, mut inverses) = ([0; WINDOW], [0; WINDOW], [0; WINDOW]);
        for i in 0..WINDOW {
            let scale = rule.ordinary_scale(maxima[i].max(least), max, 0);
            factors[i] = rule.ordinary_pair_of(scale).scale;
            [products[i], inverses[i]] = with_tensor_scale.ordinary_pair_of(scale).words();
        }
        [factors, products, inverses]
    }

    /// The sum of the squares of errors, in units of 2^unit.
    #[inline(always)]
    fn sum_of_squares(
        pair: ScalePair,
        unit: i32,
        elements: &[f32],
        round: impl Fn(u32, u32) -> u32,
    ) -> u64 {
        let mut squares = [0_u32; TOGETHER];
        let squares = &mut squares[..elements.len()];
        for (square, x) in squares.iter_mut().zip(elements) {
            let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
            let q = round(sign, abs);
            let difference = bits::sum(bits::product(q, pair.scale), abs | SIGN);
            *square = (difference & ABS).square(unit);
        }
        squares.iter().map(|square| u64::from(*square)).sum()
    }
}
