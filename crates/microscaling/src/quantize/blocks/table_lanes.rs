//! Sixteen blocks side by side, a block a lane, whose elements are of tables with few numbers. A table is a register of AVX-512, and
//! four steps of a binary search find an element's number. Other instruction sets have no such register, and leave the blocks to the
//! other loops.

#![cfg_attr(
    not(all(target_arch = "x86_64", feature = "std")),
    allow(dead_code, reason = "there is no such instruction set")
)]

use super::Job;
use crate::quantize::rules::ElementRule;
use crate::round::draws::Draws;
use microscaling_processor::instruction_set::{Kernel, Level};

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
        // The other loop is faster in memory for one table.
        let Some(job) = avx512::TableJob::of(self.job).filter(avx512::TableJob::has_choice) else {
            return;
        };
        let windows = self.data.chunks_exact_mut(16 * B);
        for (window, start) in windows.zip((self.start..).step_by(16 * B)) {
            let draws = self.draws.get(R::USES_DRAWS, start, window.len());
            if !job.contiguous::<R, B>(window, draws) {
                return;
            }
            *self.done += window.len();
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
        let Some(job) = avx512::TableJob::of(self.job) else {
            return;
        };
        let stream = self.job.stream;
        while *self.first + 16 <= self.inner {
            let data = &mut self.data[*self.first..];
            let mut draws = [[0; 16]; B];
            if R::USES_DRAWS {
                let first = self.start + *self.first as u64;
                stream.fill_rows(first, self.inner as u64, &mut draws);
            }
            if !job.interleaved::<R, B>(data, self.inner, &draws) {
                return;
            }
            *self.first += 16;
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::{ElementRule, Job};
    use crate::format::element::table::{AWAY, FRACTION_BITS, ShortTable, Tables};
    use crate::quantize::blocks::exchange::{exchange, put_sixteen, sixteen};
    use crate::quantize::rules::{BlockRule, FloatScaleRule, are_within};
    use crate::round::RoundingRule;
    use crate::round::bits::{ABS, SIGN};
    use crate::round::mode::Even;
    use core::arch::x86_64::*;

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

        /// Works on sixteen contiguous blocks. Returns whether all are ordinary; otherwise nothing changes.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        pub(super) fn contiguous<R: ElementRule, const B: usize>(
            &self,
            window: &mut [f32],
            draws: &[u32],
        ) -> bool {
            let (apart, lanes) = ([B, 16], [16, B]);
            let (mut rows, mut row_draws) = ([[0; 16]; B], [[0; 16]; B]);
            exchange(window, apart, lanes, rows.as_flattened_mut());
            if R::USES_DRAWS {
                exchange(draws, apart, lanes, row_draws.as_flattened_mut());
            }
            let are_ordinary = self.work::<R, B>(&mut rows, &row_draws);
            if are_ordinary {
                exchange(rows.as_flattened(), [16, B], [B, 16], window);
            }
            are_ordinary
        }

        /// Works on sixteen columns, the first ones of rows this far apart. Returns whether all columns are ordinary; otherwise nothing
        /// changes.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        pub(super) fn interleaved<R: ElementRule, const B: usize>(
            &self,
            data: &mut [f32],
            inner: usize,
            draws: &[[u32; 16]; B],
        ) -> bool {
            let mut rows = [[0; 16]; B];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = sixteen(data, i * inner);
            }
            if !self.work::<R, B>(&mut rows, draws) {
                return false;
            }
            for (i, row) in rows.iter().enumerate() {
                put_sixteen(data, i * inner, row);
            }
            true
        }

        /// Works on blocks: the first elements of all blocks, then the second ones and so on, as patterns.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        fn work<R: ElementRule, const B: usize>(
            &self,
            rows: &mut [[u32; 16]; B],
            draws: &[[u32; 16]; B],
        ) -> bool {
            let mut largest = _mm512_setzero_si512();
            for row in &*rows {
                largest = _mm512_max_epu32(largest, magnitude(words_in(row)));
            }
            let maxima = words_of(largest);
            if !are_within(self.rule.ordinary_range_of_few(), &maxima) {
                return false;
            }
            let (chosen, [scales, inverses]) = self.choose(&maxima, rows);
            let (scales, inverses) = (floats(&scales), floats(&inverses));
            for (number, table) in (0..).zip(self.tables.0.iter()) {
                let lanes = _mm512_cmpeq_epi32_mask(chosen, _mm512_set1_epi32(number));
                let Some(short) = table.short_table().filter(|_| lanes != 0) else {
                    continue;
                };
                let [own, away] = [self.kind, AWAY].map(|kind| Registers::of(short, kind));
                for (row, draws) in rows.iter_mut().zip(draws) {
                    let x = words_in(row);
                    let keys = keys(x, inverses);
                    let mut q = own.find(keys);
                    if R::USES_DRAWS {
                        q = one_of(q, away.find(keys), _mm512_abs_epi32(keys), words_in(draws));
                    }
                    let product = _mm512_mul_ps(_mm512_castsi512_ps(q), scales);
                    let sign = _mm512_and_si512(x, _mm512_set1_epi32(SIGN as i32));
                    let result = _mm512_or_si512(sign, _mm512_castps_si512(product));
                    // SAFETY: a row has sixteen words.
                    unsafe { _mm512_mask_storeu_epi32(row.as_mut_ptr().cast(), lanes, result) };
                }
            }
            true
        }

        /// The numbers of the blocks' tables, and the patterns of the blocks' scales and of the scales' reciprocals: as
        /// [`FloatScaleRule::ordinary_few`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline]
        fn choose<const B: usize>(
            &self,
            maxima: &[u32; 16],
            rows: &[[u32; 16]; B],
        ) -> (__m512i, [[u32; 16]; 2]) {
            let least = self.rule.ordinary_range_of_few().start;
            let (mut chosen, mut chosen_scales) = ([0; 16], [0; 16]);
            let mut least_sums = [u64::MAX; 16];
            for (number, table) in (0..).zip(self.tables.0.iter()) {
                let [scales, products, inverses] = self.rule.ordinary_scales(maxima, table.max());
                if self.tables.0.len() == 1 {
                    chosen_scales = scales;
                    break;
                }
                let Some(short) = table.short_table() else {
                    continue;
                };
                // 2^(15 − exponent of the largest magnitude), by the exponent fields.
                let units = maxima.map(|amax| (2 * 127 + 15 - (amax.max(least) >> 23)) << 23);
                let registers = Registers::of(short, <Even as RoundingRule>::UPPER as usize);
                let sums = sums_of_squares(
                    &registers,
                    [floats(&products), floats(&inverses), floats(&units)],
                    rows,
                );
                for i in 0..16 {
                    let less = sums[i] < least_sums[i];
                    least_sums[i] = if less { sums[i] } else { least_sums[i] };
                    chosen[i] = if less { number } else { chosen[i] };
                    chosen_scales[i] = if less { scales[i] } else { chosen_scales[i] };
                }
            }
            let pairs = self.rule.ordinary_pairs(&chosen_scales);
            (words_in(&chosen.map(|number: i32| number as u32)), pairs)
        }
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
    fn magnitude(x: __m512i) -> __m512i {
        _mm512_and_si512(x, _mm512_set1_epi32(ABS as i32))
    }

    /// The keys of elements in units of scales with these reciprocals.
    #[target_feature(enable = "avx512f,avx512dq")]
    #[inline]
    fn keys(x: __m512i, inverses: __m512) -> __m512i {
        let scaled = _mm512_mul_ps(_mm512_castsi512_ps(magnitude(x)), inverses);
        let scaled = _mm512_castps_si512(scaled);
        _mm512_mask_sub_epi32(
            scaled,
            _mm512_movepi32_mask(x),
            _mm512_setzero_si512(),
            scaled,
        )
    }

    /// A table.
    struct Registers {
        thresholds: __m512i,
        magnitudes: __m512i,
    }

    impl Registers {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn of(short: &ShortTable, kind: usize) -> Self {
            let (thresholds, magnitudes) = short.registers(kind);
            Self {
                // SAFETY: there are sixteen words.
                thresholds: unsafe { _mm512_loadu_si512(thresholds.as_ptr().cast()) },
                magnitudes: words_in(magnitudes),
            }
        }

        /// The magnitudes of the numbers after as many thresholds as the keys reach.
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn find(&self, keys: __m512i) -> __m512i {
            let mut count = _mm512_setzero_si512();
            for step in [8, 4, 2, 1] {
                let last = _mm512_add_epi32(count, _mm512_set1_epi32(step - 1));
                let threshold = _mm512_permutexvar_epi32(last, self.thresholds);
                let reached = _mm512_cmpge_epi32_mask(keys, threshold);
                count = _mm512_mask_add_epi32(count, reached, count, _mm512_set1_epi32(step));
            }
            _mm512_permutexvar_epi32(count, self.magnitudes)
        }
    }

    /// [`ShortTable::one_of`].
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn one_of(below: __m512i, above: __m512i, abs: __m512i, draws: __m512i) -> __m512i {
        let one = _mm512_set1_ps((1_u32 << FRACTION_BITS) as f32);
        let [low, high, x] = [below, above, abs].map(|x| _mm512_castsi512_ps(x));
        let fraction = _mm512_div_ps(_mm512_sub_ps(x, low), _mm512_sub_ps(high, low));
        let fraction = _mm512_mul_ps(fraction, one);
        let draws = _mm512_srli_epi32::<{ 32 - FRACTION_BITS }>(draws);
        let needed = _mm512_sub_ps(one, _mm512_cvtepi32_ps(draws));
        let carries = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(fraction, needed)
            & _mm512_cmp_ps_mask::<_CMP_LT_OQ>(needed, one);
        _mm512_mask_mov_epi32(below, carries, above)
    }

    /// For each lane the sum of the squares of the errors with a table, in units of 1 over the square of `unit`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn sums_of_squares<const B: usize>(
        table: &Registers,
        [scale, inverse, unit]: [__m512; 3],
        rows: &[[u32; 16]; B],
    ) -> [u64; 16] {
        let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for row in rows {
            let x = words_in(row);
            let q = _mm512_castsi512_ps(table.find(keys(x, inverse)));
            let abs = _mm512_castsi512_ps(magnitude(x));
            let error = _mm512_abs_ps(_mm512_sub_ps(_mm512_mul_ps(q, scale), abs));
            let multiples = _mm512_min_ps(_mm512_mul_ps(error, unit), _mm512_set1_ps(65535.0));
            let multiples = _mm512_cvttps_epi32(multiples);
            even = _mm512_add_epi64(even, _mm512_mul_epu32(multiples, multiples));
            let multiples = _mm512_srli_epi64::<32>(multiples);
            odd = _mm512_add_epi64(odd, _mm512_mul_epu32(multiples, multiples));
        }
        let (mut evens, mut odds) = ([0_u64; 8], [0_u64; 8]);
        // SAFETY: there is place for eight sums.
        unsafe {
            _mm512_storeu_si512(evens.as_mut_ptr().cast(), even);
            _mm512_storeu_si512(odds.as_mut_ptr().cast(), odd);
        }
        core::array::from_fn(|i| {
            if i % 2 == 0 {
                evens[i / 2]
            } else {
                odds[i / 2]
            }
        })
    }
}
