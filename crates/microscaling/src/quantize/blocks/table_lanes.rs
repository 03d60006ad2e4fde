//! Sixteen blocks side by side, a block a lane, whose elements are of tables with few numbers. A table is registers of AVX-512. Its
//! [buckets](crate::format::element::table::Buckets) find an element's number by two looks at a pair of registers and one comparison.
//! Where a bucket has several thresholds, a binary search of four steps finds the number. Other instruction sets have no such registers,
//! and leave the blocks to the other loops.

#![cfg_attr(
    not(all(target_arch = "x86_64", feature = "std")),
    allow(dead_code, reason = "there is no such instruction set")
)]

use super::Job;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use super::exchange::sixteen;
use crate::quantize::rules::ElementRule;
use crate::round::draws::Draws;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use avx512::{GROUPS, Group, TableJob};
use microscaling_processor::instruction_set::{Kernel, Level};
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use microscaling_processor::prefetch;

/// Whether kernels of this instruction set work on blocks here.
pub(super) fn has_table_registers(level: Level) -> bool {
    match level {
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        Level::Avx512 => true,
        _ => false,
    }
}

/// Works on contiguous windows of sixteen blocks of B elements, up to one with a block that is not ordinary.
pub(super) struct ContiguousTables<'a, R, const B: usize> {
    pub(super) job: &'a Job<R>,
    pub(super) data: &'a mut [f32],
    /// Position of the data in the tensor.
    pub(super) start: u64,
    pub(super) draws: &'a mut Draws,
    /// To be increased by the elements that were worked on.
    pub(super) done: &'a mut usize,
}

impl<R: ElementRule, const B: usize> Kernel for ContiguousTables<'_, R, B> {
    #[inline(always)]
    fn run(self) {}

    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline(never)]
    unsafe fn run_avx512(self) {
        let Some(job) = TableJob::of(self.job) else {
            return;
        };
        match job.has_buckets() {
            true => self.windows::<true>(&job),
            false => self.windows::<false>(&job),
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
impl<R: ElementRule, const B: usize> ContiguousTables<'_, R, B> {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn windows<const HAS_BUCKETS: bool>(self, job: &TableJob) {
        let mut groups = [Group::<B>::new(); GROUPS];
        let together = if job.has_choice() { GROUPS } else { 1 };
        for windows in self.data.chunks_mut(together * 16 * B) {
            let mut count = 0;
            for (group, window) in groups.iter_mut().zip(windows.chunks_exact(16 * B)) {
                if !job.see_window(group, window) {
                    break;
                }
                count += 1;
            }
            for group in &mut groups[..count] {
                job.choose_for::<B, HAS_BUCKETS>(group);
            }
            for (group, window) in groups[..count].iter().zip(windows.chunks_exact_mut(16 * B)) {
                let start = self.start + *self.done as u64;
                let draws = self.draws.get(R::USES_DRAWS, start, window.len());
                job.round_window::<R, B, HAS_BUCKETS>(group, window, draws);
                *self.done += window.len();
            }
            if count < together {
                return;
            }
        }
    }
}

/// Works on columns of B rows, sixteen at a time, up to those with a block that is not ordinary.
pub(super) struct InterleavedTables<'a, R, const B: usize> {
    pub(super) job: &'a Job<R>,
    pub(super) data: &'a mut [f32],
    /// The length of a row.
    pub(super) inner: usize,
    /// The first column. Moves on to the first one that was not worked on.
    pub(super) first: &'a mut usize,
    /// Position of the data in the tensor.
    pub(super) start: u64,
}

impl<R: ElementRule, const B: usize> Kernel for InterleavedTables<'_, R, B> {
    #[inline(always)]
    fn run(self) {}

    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline(never)]
    unsafe fn run_avx512(self) {
        let Some(job) = TableJob::of(self.job) else {
            return;
        };
        match job.has_buckets() {
            true => self.columns::<true>(&job),
            false => self.columns::<false>(&job),
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
impl<R: ElementRule, const B: usize> InterleavedTables<'_, R, B> {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn columns<const HAS_BUCKETS: bool>(self, job: &TableJob) {
        let (stream, inner) = (self.job.stream, self.inner);
        let (mut rows, mut draws) = ([[0; 16]; B], [[0; 16]; B]);
        while *self.first + 16 <= inner {
            let data = &mut self.data[*self.first..];
            if R::USES_DRAWS {
                let first = self.start + *self.first as u64;
                stream.fill_rows(first, inner as u64, &mut draws);
            }
            for (i, row) in rows.iter_mut().enumerate() {
                *row = sixteen(data, i * inner);
                // The columns after the next ones are there, then.
                prefetch(data.as_ptr().wrapping_add(i * inner + 32), 16);
            }
            if !job.columns::<R, B, HAS_BUCKETS>(&rows, data, inner, &draws) {
                return;
            }
            *self.first += 16;
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::{ElementRule, Job};
    use crate::format::element::table::{AWAY, BUCKETS, FRACTION_BITS, Table, Tables};
    use crate::quantize::blocks::contiguous::largest_of_block;
    use crate::quantize::blocks::exchange::sixteen;
    use crate::quantize::rules::{BlockRule, FloatScaleRule, are_within};
    use crate::round::RoundingRule;
    use crate::round::bits::ABS;
    use crate::round::mode::Even;
    use core::arch::x86_64::*;
    use microscaling_processor::{prefetch, transpose};

    /// How many elements ahead contiguous blocks are asked for.
    const AHEAD: usize = 1024;

    /// The kind of thresholds by which tables are compared.
    const EVEN: usize = <Even as RoundingRule>::UPPER as usize;

    /// How many groups are worked on together. A group's scales and its choice are chains of operations, beside which the processor has
    /// others then.
    pub(super) const GROUPS: usize = 4;

    /// Sixteen blocks of B elements.
    #[derive(Clone, Copy)]
    pub(super) struct Group<const B: usize> {
        /// The first elements of all blocks, then the second ones and so on, as patterns. Of contiguous blocks only if there is a choice.
        rows: [[u32; 16]; B],
        /// The largest magnitudes.
        maxima: [u32; 16],
        /// [`FloatScaleRule::ordinary_scales`] by the first table.
        scales: [__m512; 3],
        /// The numbers of the blocks' tables, and the scales and their reciprocals.
        chosen: __m512i,
        pair: [__m512; 2],
    }

    impl<const B: usize> Group<B> {
        #[target_feature(enable = "avx512f")]
        #[inline]
        pub(super) fn new() -> Self {
            let zero = _mm512_setzero_ps();
            Self {
                rows: [[0; 16]; B],
                maxima: [0; 16],
                scales: [zero; 3],
                chosen: _mm512_setzero_si512(),
                pair: [zero; 2],
            }
        }
    }

    /// How blocks are rounded.
    pub(super) struct TableJob {
        rule: FloatScaleRule,
        tables: Tables,
        /// The kind of thresholds of the rounding rule.
        kind: usize,
    }

    impl TableJob {
        /// `None` if elements are not rounded.
        pub(super) fn of<R: ElementRule>(job: &Job<R>) -> Option<Self> {
            let BlockRule::FloatScale(rule) = job.rule else {
                return None;
            };
            Some(Self {
                rule,
                tables: rule.tables?,
                kind: R::UPPER? as usize,
            })
        }

        /// Whether there are several tables.
        pub(super) fn has_choice(&self) -> bool {
            self.tables.0.len() > 1
        }

        /// Whether the numbers of all tables are found by buckets.
        pub(super) fn has_buckets(&self) -> bool {
            let has = |table: &Table, kind| table.buckets(kind).is_some();
            let mut tables = self.tables.0.iter();
            tables.all(|table| has(table, self.kind) && has(table, EVEN))
        }

        /// Sees sixteen contiguous blocks. Returns whether all are ordinary.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        pub(super) fn see_window<const B: usize>(
            &self,
            group: &mut Group<B>,
            window: &[f32],
        ) -> bool {
            if self.has_choice() {
                turn(window, &mut group.rows);
                group.maxima = words_of(maxima_of(&group.rows));
            } else {
                for (amax, block) in group.maxima.iter_mut().zip(window.as_chunks::<B>().0) {
                    *amax = largest_of_block(block);
                }
            }
            let max = self.tables.0[0].max();
            group.scales = scales(&self.rule, &group.maxima, max);
            are_within(self.rule.ordinary_range_of_few(), &group.maxima)
        }

        /// Rounds the elements of sixteen contiguous blocks.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        pub(super) fn round_window<R: ElementRule, const B: usize, const HAS_BUCKETS: bool>(
            &self,
            group: &Group<B>,
            window: &mut [f32],
            draws: &[u32],
        ) {
            let chosen = words_of(group.chosen);
            let [scales, inverses] = group.pair.map(|x| words_of(_mm512_castps_si512(x)));
            let blocks = window.as_chunks_mut::<B>().0.iter_mut();
            for (i, (block, draws)) in blocks.zip(draws.chunks_exact(B)).enumerate() {
                let table = &self.tables.0[chosen[i] as usize];
                let registers = Registers::<HAS_BUCKETS>::of(table, self.kind);
                let pair = [scales[i], inverses[i]].map(|x| _mm512_set1_ps(f32::from_bits(x)));
                let vectors = block.as_chunks_mut::<16>().0.iter_mut();
                for (vector, draws) in vectors.zip(draws.as_chunks::<16>().0) {
                    // SAFETY: there are sixteen numbers.
                    let x = unsafe { _mm512_loadu_ps(vector.as_ptr()) };
                    let result = registers.round::<R>(x, pair, draws);
                    // SAFETY: as above.
                    unsafe { _mm512_storeu_ps(vector.as_mut_ptr(), result) };
                }
            }
        }

        /// Works on sixteen columns, the first ones of rows this far apart. Returns whether all are ordinary; otherwise nothing changes.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        pub(super) fn columns<R: ElementRule, const B: usize, const HAS_BUCKETS: bool>(
            &self,
            rows: &[[u32; 16]; B],
            data: &mut [f32],
            inner: usize,
            draws: &[[u32; 16]; B],
        ) -> bool {
            let maxima = words_of(maxima_of(rows));
            if !are_within(self.rule.ordinary_range_of_few(), &maxima) {
                return false;
            }
            let scales = scales(&self.rule, &maxima, self.tables.0[0].max());
            let (chosen, pair) = self.choose::<B, HAS_BUCKETS>(rows, &maxima, scales);
            for (number, table) in (0..).zip(self.tables.0.iter()) {
                let own = _mm512_set1_epi32(number);
                let lanes = _mm512_cmpeq_epi32_mask(chosen, own);
                if lanes == 0 {
                    continue;
                }
                let registers = Registers::<HAS_BUCKETS>::of(table, self.kind);
                for (i, (row, draws)) in rows.iter().zip(draws).enumerate() {
                    let result = registers.round::<R>(floats(row), pair, draws);
                    let place: &mut [f32; 16] = data[i * inner..].first_chunk_mut().expect("a row");
                    // SAFETY: there are sixteen numbers.
                    unsafe { _mm512_mask_storeu_ps(place.as_mut_ptr(), lanes, result) };
                }
            }
            true
        }

        /// The numbers of the blocks' tables, the blocks' scales and the scales' reciprocals: as [`FloatScaleRule::ordinary_few`].
        /// The first scales are [`FloatScaleRule::ordinary_scales`] by the first table.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        fn choose<const B: usize, const HAS_BUCKETS: bool>(
            &self,
            rows: &[[u32; 16]; B],
            maxima: &[u32; 16],
            first_scales: [__m512; 3],
        ) -> (__m512i, [__m512; 2]) {
            let mut chosen = _mm512_setzero_si512();
            let mut pair = [first_scales[0], first_scales[2]];
            if !self.has_choice() {
                return (chosen, pair);
            }
            let least = self.rule.ordinary_range_of_few().start;
            // 2^(15 − exponent of the largest magnitude), by the exponent fields.
            let counted = _mm512_max_epu32(words_in(maxima), _mm512_set1_epi32(least as i32));
            let fields = _mm512_srli_epi32::<23>(counted);
            let fields = _mm512_sub_epi32(_mm512_set1_epi32(2 * 127 + 15), fields);
            let unit = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(fields));
            let mut least_sums = [_mm512_set1_epi64(-1); 2];
            let mut all = [first_scales; 2];
            let mut maxes = [self.tables.0[0].max(); 2];
            // Two at a time. The last one of an odd number stands beside itself.
            for (first, tables) in (0..).step_by(2).zip(self.tables.0.chunks(2)) {
                let tables = [&tables[0], &tables[tables.len() - 1]];
                for i in 0..2 {
                    if maxes[i] != tables[i].max() {
                        maxes[i] = tables[i].max();
                        all[i] = scales(&self.rule, maxima, maxes[i]);
                    }
                }
                let mut two = [Compared::<HAS_BUCKETS>::of(tables[0], all[0]); 2];
                two[1] = Compared::of(tables[1], all[1]);
                // Numbers that are searched lie far apart, and have large errors.
                let few = match HAS_BUCKETS {
                    true => sums_of_few(&two, unit, rows),
                    false => None,
                };
                let sums = match few {
                    Some(sums) => sums,
                    None => [
                        two[0].sums_of_squares(unit, rows),
                        two[1].sums_of_squares(unit, rows),
                    ],
                };
                for i in 0..2 {
                    let mut is_less = [_mm512_setzero_si512(); 2];
                    for half in 0..2 {
                        let (sums, least) = (sums[i][half], &mut least_sums[half]);
                        is_less[half] = _mm512_movm_epi64(_mm512_cmplt_epu64_mask(sums, *least));
                        *least = _mm512_min_epu64(sums, *least);
                    }
                    // The sums of even lanes, and the sums of odd lanes.
                    let is_less = _mm512_mask_mov_epi32(is_less[0], 0xaaaa, is_less[1]);
                    let less = _mm512_movepi32_mask(is_less);
                    let number = _mm512_set1_epi32(first + i as i32);
                    chosen = _mm512_mask_mov_epi32(chosen, less, number);
                    pair[0] = _mm512_mask_mov_ps(pair[0], less, all[i][0]);
                    pair[1] = _mm512_mask_mov_ps(pair[1], less, all[i][2]);
                }
            }
            (chosen, pair)
        }

        /// Chooses the tables of a group.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        pub(super) fn choose_for<const B: usize, const HAS_BUCKETS: bool>(
            &self,
            group: &mut Group<B>,
        ) {
            (group.chosen, group.pair) =
                self.choose::<B, HAS_BUCKETS>(&group.rows, &group.maxima, group.scales);
        }
    }

    /// [`FloatScaleRule::ordinary_scales`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn scales(rule: &FloatScaleRule, maxima: &[u32; 16], max: u32) -> [__m512; 3] {
        let [factors, products, inverses] = rule.ordinary_scales(maxima, max);
        [floats(&factors), floats(&products), floats(&inverses)]
    }

    /// Writes the first elements of sixteen blocks, then the second ones and so on.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn turn<const B: usize>(window: &[f32], rows: &mut [[u32; 16]; B]) {
        for (i, tile) in rows.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            for (block, row) in tile.iter_mut().enumerate() {
                let place = block * B + 16 * i;
                *row = sixteen(window, place);
                prefetch(window.as_ptr().wrapping_add(place + AHEAD), 16);
            }
            let tile = tile.as_flattened_mut().first_chunk_mut();
            transpose(tile.expect("sixteen rows of sixteen"));
        }
    }

    /// The largest magnitude of each column.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn maxima_of<const B: usize>(rows: &[[u32; 16]; B]) -> __m512i {
        let mut largest = _mm512_setzero_si512();
        for row in rows {
            let magnitudes = _mm512_and_si512(words_in(row), _mm512_set1_epi32(ABS as i32));
            largest = _mm512_max_epu32(largest, magnitudes);
        }
        largest
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn words_of(x: __m512i) -> [u32; 16] {
        let mut words = [0; 16];
        // SAFETY: there is place for sixteen words.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), x) };
        words
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn words_in(words: &[u32; 16]) -> __m512i {
        // SAFETY: there are sixteen words.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn floats(words: &[u32; 16]) -> __m512 {
        _mm512_castsi512_ps(words_in(words))
    }

    /// A float with the sign of another one.
    #[target_feature(enable = "avx512f,avx512dq")]
    #[inline]
    fn with_sign_of(x: __m512, magnitude: __m512) -> __m512 {
        _mm512_or_ps(_mm512_and_ps(x, _mm512_set1_ps(-0.0)), magnitude)
    }

    /// A table with [buckets](crate::format::element::table::Buckets), or a table to be searched.
    #[derive(Clone, Copy)]
    struct Registers<const HAS_BUCKETS: bool> {
        /// The buckets' thresholds. Without buckets all thresholds as keys, by the rounding rule and of the kind [`AWAY`].
        thresholds: [__m512; 2],
        /// The buckets' numbers. Without buckets all magnitudes, twice.
        numbers: [__m512; 2],
        away: [__m512; 2],
        limit: __m512,
        factor: __m512,
    }

    impl<const HAS_BUCKETS: bool> Registers<HAS_BUCKETS> {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn of(table: &Table, kind: usize) -> Self {
            let halves = |words: &[u32; BUCKETS]| {
                let halves = words.as_chunks::<16>().0;
                [floats(&halves[0]), floats(&halves[1])]
            };
            let zero = _mm512_setzero_ps();
            if let Some(buckets) = table.buckets(kind).filter(|_| HAS_BUCKETS) {
                return Self {
                    thresholds: halves(&buckets.thresholds),
                    numbers: halves(&buckets.numbers),
                    away: halves(&buckets.away),
                    limit: _mm512_set1_ps(f32::from_bits(buckets.limit)),
                    factor: _mm512_set1_ps(f32::from_bits(buckets.factor)),
                };
            }
            let zeros = Self {
                thresholds: [zero; 2],
                numbers: [zero; 2],
                away: [zero; 2],
                limit: zero,
                factor: zero,
            };
            let Some(short) = table.short_table() else {
                return zeros;
            };
            let [own, away] = [kind, AWAY].map(|kind| {
                let (thresholds, magnitudes) = short.registers(kind);
                (
                    floats(&thresholds.map(|key| key as u32)),
                    floats(magnitudes),
                )
            });
            Self {
                thresholds: [own.0, away.0],
                numbers: [own.1, away.1],
                ..zeros
            }
        }

        /// Rounds elements in units of their scales. The results have any sign of 0; without buckets they are magnitudes. With `BOTH` the
        /// neighbours farther from zero follow.
        #[target_feature(enable = "avx512f,avx512dq")]
        #[inline]
        fn find<const BOTH: bool>(&self, scaled: __m512) -> [__m512; 2] {
            if HAS_BUCKETS {
                // The smaller magnitude, with the element's sign.
                let limited = _mm512_range_ps::<0b0010>(scaled, self.limit);
                // The last bits are the product's, rounded down.
                let places = _mm512_fmadd_round_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(
                    limited,
                    self.factor,
                    _mm512_set1_ps(1.5 * (1 << 23) as f32),
                );
                let places = _mm512_castps_si512(places);
                let [low, high] = self.thresholds;
                let thresholds = _mm512_permutex2var_ps(low, places, high);
                // Below the threshold it is the number before.
                let above = _mm512_castps_si512(_mm512_sub_ps(limited, thresholds));
                let places = _mm512_add_epi32(places, _mm512_srai_epi32::<31>(above));
                let at = |[low, high]: [__m512; 2]| _mm512_permutex2var_ps(low, places, high);
                return [at(self.numbers), if BOTH { at(self.away) } else { limited }];
            }
            let words = _mm512_castps_si512(scaled);
            let magnitudes = _mm512_and_si512(words, _mm512_set1_epi32(ABS as i32));
            let keys = _mm512_mask_sub_epi32(
                magnitudes,
                _mm512_movepi32_mask(words),
                _mm512_setzero_si512(),
                magnitudes,
            );
            let search = |i: usize| {
                let mut count = _mm512_setzero_si512();
                for step in [8, 4, 2, 1] {
                    let last = _mm512_add_epi32(count, _mm512_set1_epi32(step - 1));
                    let threshold =
                        _mm512_permutexvar_epi32(last, _mm512_castps_si512(self.thresholds[i]));
                    let reached = _mm512_cmpge_epi32_mask(keys, threshold);
                    count = _mm512_mask_add_epi32(count, reached, count, _mm512_set1_epi32(step));
                }
                _mm512_permutexvar_ps(count, self.numbers[i])
            };
            [search(0), if BOTH { search(1) } else { scaled }]
        }

        /// An element with its sign if [`find`](Self::find) gives numbers with signs.
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn as_found(x: __m512) -> __m512 {
            if HAS_BUCKETS { x } else { _mm512_abs_ps(x) }
        }

        /// Rounds elements of blocks with these scales, given the reciprocals of the scales.
        #[target_feature(enable = "avx512f,avx512dq")]
        #[inline]
        fn round<R: ElementRule>(
            &self,
            x: __m512,
            [scale, inverse]: [__m512; 2],
            draws: &[u32; 16],
        ) -> __m512 {
            let scaled = _mm512_mul_ps(x, inverse);
            let number = match R::USES_DRAWS {
                true => {
                    let x = Self::as_found(scaled);
                    one_of(self.find::<true>(scaled), x, words_in(draws))
                }
                false => self.find::<false>(scaled)[0],
            };
            with_sign_of(x, _mm512_mul_ps(number, scale))
        }
    }

    /// [`ShortTable::one_of`].
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn one_of([below, above]: [__m512; 2], x: __m512, draws: __m512i) -> __m512 {
        let one = _mm512_set1_ps((1_u32 << FRACTION_BITS) as f32);
        let fraction = _mm512_div_ps(_mm512_sub_ps(x, below), _mm512_sub_ps(above, below));
        let fraction = _mm512_mul_ps(fraction, one);
        let draws = _mm512_srli_epi32::<{ 32 - FRACTION_BITS }>(draws);
        let needed = _mm512_sub_ps(one, _mm512_cvtepi32_ps(draws));
        let carries = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(fraction, needed)
            & _mm512_cmp_ps_mask::<_CMP_LT_OQ>(needed, one);
        _mm512_mask_mov_ps(below, carries, above)
    }

    /// A table that is compared with others.
    #[derive(Clone, Copy)]
    struct Compared<const HAS_BUCKETS: bool> {
        registers: Registers<HAS_BUCKETS>,
        /// The factors of rounded elements, and of elements before.
        product: __m512,
        inverse: __m512,
    }

    impl<const HAS_BUCKETS: bool> Compared<HAS_BUCKETS> {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn of(table: &Table, [_, product, inverse]: [__m512; 3]) -> Self {
            Self {
                registers: Registers::of(table, EVEN),
                product,
                inverse,
            }
        }

        /// The errors of elements, times `unit`.
        #[target_feature(enable = "avx512f,avx512dq")]
        #[inline]
        fn errors(&self, x: __m512, unit: __m512) -> __m512 {
            let [q, _] = self.registers.find::<false>(_mm512_mul_ps(x, self.inverse));
            let x = Registers::<HAS_BUCKETS>::as_found(x);
            // The unit is a power of two, and changes no rounding but of errors that are far below one multiple.
            let product = _mm512_mul_ps(self.product, unit);
            _mm512_sub_ps(_mm512_mul_ps(q, product), _mm512_mul_ps(x, unit))
        }

        /// For the even lanes, and for the odd ones, the sums of the squares of the errors, in units of 1 over the square of `unit`.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        fn sums_of_squares(&self, unit: __m512, rows: &[[u32; 16]]) -> [__m512i; 2] {
            let mut sums = [_mm512_setzero_si512(); 2];
            for row in rows {
                let multiples = multiples(self.errors(floats(row), unit));
                let odd = _mm512_srli_epi64::<32>(multiples);
                sums[0] = _mm512_add_epi64(sums[0], _mm512_mul_epu32(multiples, multiples));
                sums[1] = _mm512_add_epi64(sums[1], _mm512_mul_epu32(odd, odd));
            }
            sums
        }
    }

    /// Magnitudes rounded down, of which 2^16 − 1 are the most.
    #[target_feature(enable = "avx512f,avx512dq")]
    #[inline]
    fn multiples(errors: __m512) -> __m512i {
        // The smaller magnitude, without a sign.
        _mm512_cvttps_epi32(_mm512_range_ps::<0b1010>(errors, _mm512_set1_ps(65535.0)))
    }

    /// [`Compared::sums_of_squares`] of two tables, unless an error is 2^14 units or more. Then sixteen squares fit into 32 bits.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn sums_of_few<const HAS_BUCKETS: bool>(
        two: &[Compared<HAS_BUCKETS>; 2],
        unit: __m512,
        rows: &[[u32; 16]],
    ) -> Option<[[__m512i; 2]; 2]> {
        const HIGH: f32 = (1 << 16) as f32;
        let high_unit = _mm512_mul_ps(unit, _mm512_set1_ps(HIGH));
        let (zero, low) = (_mm512_setzero_si512(), _mm512_set1_epi32(0xffff));
        let (mut sums, mut seen) = ([[zero; 2]; 2], zero);
        for rows in rows.as_chunks::<16>().0 {
            let mut squares = [zero; 2];
            for [first, second] in rows.as_chunks::<2>().0 {
                for i in 0..2 {
                    // A row's multiples are the lower halves of words, the next row's the upper halves.
                    let first = multiples(two[i].errors(floats(first), unit));
                    let second = two[i].errors(floats(second), high_unit);
                    let second = _mm512_cvttps_epi32(_mm512_abs_ps(second));
                    let both = _mm512_ternarylogic_epi32::<0xca>(low, first, second);
                    seen = _mm512_or_si512(seen, both);
                    squares[i] = _mm512_add_epi32(squares[i], _mm512_madd_epi16(both, both));
                }
            }
            for i in 0..2 {
                let even = _mm512_and_si512(squares[i], _mm512_set1_epi64(0xffff_ffff));
                sums[i][0] = _mm512_add_epi64(sums[i][0], even);
                sums[i][1] = _mm512_add_epi64(sums[i][1], _mm512_srli_epi64::<32>(squares[i]));
            }
        }
        let is_few = _mm512_test_epi32_mask(seen, _mm512_set1_epi32(0xc000_c000_u32 as i32)) == 0;
        is_few.then_some(sums)
    }
}
