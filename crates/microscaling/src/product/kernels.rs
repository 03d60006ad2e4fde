//! Kernels: the products of a strip of rows and up to 96 columns over a block of the summed axis.

#[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
pub(super) mod amx;

use super::panels::{BLOCK, FREE, PAIRS, TILE, halves};
use super::path::ProductPath;

/// The most rows of a strip that is expanded to float32: a tile's.
const ROWS: usize = FREE;
/// Columns of a job: a multiple of what any kernel takes at once.
pub(super) const COLUMNS: usize = 6 * FREE;

/// A row of a strip in float32, a cache line apart from the next one, lest all rows fall on the same sets of the cache.
const EXPANDED_ROW: usize = BLOCK + 16;

/// Some rows of a left operand in a block of the summed axis, as float32 where a path multiplies that.
pub(super) struct Strip {
    expanded: [f32; ROWS * EXPANDED_ROW],
}

/// What a kernel multiplies and where the result goes.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// Tiles along the summed axis: at most as many as a block has.
    pub(super) tiles: usize,
    /// The strip's rows in their first tile.
    pub(super) lhs: *const u32,
    /// Words from there to the next 16 rows'.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux", feature = "std")),
        expect(dead_code, reason = "no other kernel has more rows")
    )]
    pub(super) lhs_stride: usize,
    /// The first tile of the columns.
    pub(super) rhs: *const u32,
    /// Words from there to the next 16 columns'.
    pub(super) rhs_stride: usize,
    /// The first element of the result.
    pub(super) result: *mut f32,
    /// Elements from there to the next row.
    pub(super) result_stride: usize,
    /// Rows to store, 1 to as many as a strip has.
    pub(super) rows: usize,
    /// Columns to store, 1 to 96.
    pub(super) columns: usize,
    /// Whether the sums are added to the result, or are the result.
    pub(super) add: bool,
}

impl Strip {
    /// Rows of a strip.
    pub(super) fn rows(path: ProductPath) -> usize {
        match path {
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
            ProductPath::AmxBf16 => amx::ROWS,
            ProductPath::Avx2 => ROWS,
            _ => 8,
        }
    }

    pub(super) fn new() -> Self {
        Self {
            expanded: [0.0; ROWS * EXPANDED_ROW],
        }
    }

    /// Takes up the rows of the next jobs.
    ///
    /// # Safety
    /// From `lhs` on, the strip's rows must be in `tiles` tiles.
    pub(super) unsafe fn set(&mut self, path: ProductPath, tiles: usize, lhs: *const u32) {
        if !matches!(path, ProductPath::Avx2 | ProductPath::Avx512) {
            return;
        }
        let rows = self.expanded.chunks_exact_mut(EXPANDED_ROW);
        for (i, row) in rows.enumerate().take(Self::rows(path)) {
            for tile in 0..tiles {
                // SAFETY: each of the strip's rows has its pairs in each of the tiles.
                let words = unsafe { &*lhs.add(tile * TILE + i * PAIRS).cast::<[u32; PAIRS]>() };
                let row = row[tile * 2 * PAIRS..].chunks_exact_mut(2);
                for (values, word) in row.zip(words) {
                    values.copy_from_slice(&halves(*word));
                }
            }
        }
    }

    /// Multiplies.
    ///
    /// # Safety
    /// The processor must have `path`, the strip must have been [set](Self::set) for it with the job's rows, and all that
    /// the job points to must be there: whole tiles of the operands, on cache lines' beginnings, and the rows and columns of
    /// the result, which nobody else may look at.
    pub(super) unsafe fn multiply(&self, path: ProductPath, job: Job) {
        // SAFETY: as the caller says.
        unsafe {
            match path {
                ProductPath::Portable => portable(job),
                #[cfg(all(target_arch = "x86_64", feature = "std"))]
                ProductPath::Avx2 => x86::avx2(&self.expanded, job),
                #[cfg(all(target_arch = "x86_64", feature = "std"))]
                ProductPath::Avx512 => x86::avx512(&self.expanded, job),
                #[cfg(all(target_arch = "x86_64", feature = "std"))]
                ProductPath::Avx512Bf16 => x86::avx512_bf16(job),
                #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
                ProductPath::AmxBf16 => amx::multiply(job),
                #[cfg(not(all(target_arch = "x86_64", target_os = "linux", feature = "std")))]
                _ => unreachable!("{path} is not available"),
            }
        }
    }
}

impl Job {
    /// Multiplies the result by the product of two float32 scales.
    ///
    /// # Safety
    /// The job's rows and columns must be the result's, and nobody else may look at them.
    pub(super) unsafe fn scale(&self, scale: f64) {
        for row in 0..self.rows {
            let row = self.result.wrapping_add(row * self.result_stride);
            // SAFETY: as the caller says.
            let row = unsafe { core::slice::from_raw_parts_mut(row, self.columns) };
            for x in row {
                *x = (f64::from(*x) * scale) as f32;
            }
        }
    }
}

/// `fma(a, b, sum)` for bfloat16 a and b: their product is exact in float64, and so is, to the bit that matters, the sum.
/// Where its 53 bits do not reach from the larger to the smaller one, the smaller one is too small to show.
#[inline(always)]
fn fused(sum: f32, a: f32, b: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(sum)) as f32
}

/// The rule.
///
/// # Safety
/// As [`Strip::multiply`].
unsafe fn portable(job: Job) {
    for row in 0..job.rows {
        for (j, first) in (0..job.columns).step_by(FREE).enumerate() {
            let mut sums = [0.0_f32; FREE];
            for tile in 0..job.tiles {
                // SAFETY: the row and the columns have all their pairs in each of the tiles.
                let (lhs, rhs) = unsafe {
                    let lhs = job.lhs.add(tile * TILE + row * PAIRS);
                    let rhs = job.rhs.add(tile * TILE + j * job.rhs_stride);
                    (
                        &*lhs.cast::<[u32; PAIRS]>(),
                        &*rhs.cast::<[[u32; FREE]; PAIRS]>(),
                    )
                };
                for (lhs, rhs) in lhs.iter().zip(rhs) {
                    let [even, odd] = halves(*lhs);
                    for (sum, rhs) in sums.iter_mut().zip(rhs) {
                        let [rhs_even, rhs_odd] = halves(*rhs);
                        *sum = fused(fused(*sum, odd, rhs_odd), even, rhs_even);
                    }
                }
            }
            for (column, sum) in sums.into_iter().enumerate().take(job.columns - first) {
                // SAFETY: the row and the column are the result's.
                let result =
                    unsafe { &mut *job.result.add(row * job.result_stride + first + column) };
                *result = if job.add { *result + sum } else { sum };
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod x86 {
    use core::arch::x86_64::*;
    use core::array::from_fn;

    use super::{EXPANDED_ROW, FREE, Job, PAIRS, ROWS, TILE};

    /// Calls `$kernel::<MR, NV>` with the least numbers of rows, and of sixteen columns, that hold the job's.
    macro_rules! by_size {
        ($job:ident, $kernel:ident $arguments:tt, [$($nv:literal),*]) => {
            match ($job.rows, $job.columns.div_ceil(FREE)) {
                $(
                    (1, $nv) => $kernel::<1, $nv> $arguments,
                    (2, $nv) => $kernel::<2, $nv> $arguments,
                    (3 | 4, $nv) => $kernel::<4, $nv> $arguments,
                    (_, $nv) => $kernel::<8, $nv> $arguments,
                )*
                (_, vectors) => unreachable!("{vectors} vectors of columns"),
            }
        };
    }

    /// The job in parts of at most `columns` columns.
    fn parts(job: Job, columns: usize) -> impl Iterator<Item = Job> {
        let part = move |first: usize| Job {
            rhs: job.rhs.wrapping_add(first / FREE * job.rhs_stride),
            result: job.result.wrapping_add(first),
            columns: (job.columns - first).min(columns),
            ..job
        };
        (0..job.columns).step_by(columns).map(part)
    }

    /// # Safety
    /// As [`Strip::multiply`](super::Strip::multiply), with AVX-512 F, BW and BF16.
    pub(super) unsafe fn avx512_bf16(job: Job) {
        for job in parts(job, 3 * FREE) {
            // SAFETY: as the caller says.
            unsafe { by_size!(job, bf16_sums(job), [1, 2, 3]) }
        }
    }

    /// # Safety
    /// As [`avx512_bf16`], for a job of at most `MR` rows and `16 · NV` columns.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn bf16_sums<const MR: usize, const NV: usize>(job: Job) {
        let mut sums = [[_mm512_setzero_ps(); NV]; MR];
        for tile in 0..job.tiles {
            for pair in 0..PAIRS {
                // SAFETY: the tile has these rows and columns.
                unsafe {
                    let lhs = job.lhs.add(tile * TILE + pair);
                    let rhs = job.rhs.add(tile * TILE + pair * FREE);
                    let columns: [__m512bh; NV] = from_fn(|j| {
                        core::mem::transmute(_mm512_load_si512(rhs.add(j * job.rhs_stride).cast()))
                    });
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let pair = _mm512_set1_epi32(*lhs.add(i * PAIRS) as i32);
                        let pair: __m512bh = core::mem::transmute(pair);
                        for (sum, column) in sums.iter_mut().zip(columns) {
                            *sum = _mm512_dpbf16_ps(*sum, pair, column);
                        }
                    }
                }
            }
        }
        // SAFETY: as the caller says.
        unsafe { store(job, &sums) }
    }

    /// # Safety
    /// As [`Strip::multiply`](super::Strip::multiply), with AVX-512 F and BW.
    pub(super) unsafe fn avx512(expanded: &[f32; ROWS * EXPANDED_ROW], job: Job) {
        // Two vectors, odd and even, of as many columns as leave registers for the sums.
        for job in parts(job, 2 * FREE) {
            // SAFETY: as the caller says.
            unsafe { by_size!(job, fused_sums(expanded, job), [1, 2]) }
        }
    }

    /// # Safety
    /// As [`avx512`], for a job of at most `MR` rows and `16 · NV` columns.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn fused_sums<const MR: usize, const NV: usize>(
        expanded: &[f32; ROWS * EXPANDED_ROW],
        job: Job,
    ) {
        let mut sums = [[_mm512_setzero_ps(); NV]; MR];
        let high = _mm512_set1_epi32(0xffff_0000_u32 as i32);
        let rows = expanded.as_ptr();
        for pair in 0..job.tiles * PAIRS {
            // SAFETY: the tiles have these columns, and the strip has these rows.
            unsafe {
                let rhs = job.rhs.add(pair * FREE);
                let columns: [__m512i; NV] =
                    from_fn(|j| _mm512_load_si512(rhs.add(j * job.rhs_stride).cast()));
                let odd = columns.map(|pair| _mm512_castsi512_ps(_mm512_and_si512(pair, high)));
                for (i, sums) in sums.iter_mut().enumerate() {
                    let lhs = _mm512_set1_ps(*rows.add(i * EXPANDED_ROW + 2 * pair + 1));
                    for (sum, column) in sums.iter_mut().zip(odd) {
                        *sum = _mm512_fmadd_ps(lhs, column, *sum);
                    }
                }
                let even = columns.map(|pair| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pair)));
                for (i, sums) in sums.iter_mut().enumerate() {
                    let lhs = _mm512_set1_ps(*rows.add(i * EXPANDED_ROW + 2 * pair));
                    for (sum, column) in sums.iter_mut().zip(even) {
                        *sum = _mm512_fmadd_ps(lhs, column, *sum);
                    }
                }
            }
        }
        // SAFETY: as the caller says.
        unsafe { store(job, &sums) }
    }

    /// Stores the job's rows and columns.
    ///
    /// # Safety
    /// The result must have them.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store<const MR: usize, const NV: usize>(job: Job, sums: &[[__m512; NV]; MR]) {
        for (i, sums) in sums.iter().enumerate().take(job.rows) {
            for (j, sum) in sums.iter().enumerate() {
                let left = job.columns.saturating_sub(j * FREE).min(FREE);
                let mask = ((1_u32 << left) - 1) as u16;
                // SAFETY: elements that are not the result's are neither read nor written.
                unsafe {
                    let result = job.result.wrapping_add(i * job.result_stride + j * FREE);
                    let sum = match job.add {
                        true => _mm512_add_ps(_mm512_maskz_loadu_ps(mask, result), *sum),
                        false => *sum,
                    };
                    _mm512_mask_storeu_ps(result, mask, sum);
                }
            }
        }
    }

    /// Rows that AVX2's kernel takes at once: with two vectors of columns they leave four registers for its operands.
    const AVX2_ROWS: usize = 6;

    /// # Safety
    /// As [`Strip::multiply`](super::Strip::multiply), with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(expanded: &[f32; ROWS * EXPANDED_ROW], job: Job) {
        for job in parts(job, FREE) {
            for row in (0..job.rows).step_by(AVX2_ROWS) {
                let rows = expanded[row * EXPANDED_ROW..].as_ptr();
                let job = Job {
                    result: job.result.wrapping_add(row * job.result_stride),
                    rows: (job.rows - row).min(AVX2_ROWS),
                    ..job
                };
                // SAFETY: a part of the job's rows and columns.
                unsafe {
                    match job.rows {
                        1 => avx2_sums::<1>(rows, job),
                        2 => avx2_sums::<2>(rows, job),
                        3 => avx2_sums::<3>(rows, job),
                        4 => avx2_sums::<4>(rows, job),
                        5 => avx2_sums::<5>(rows, job),
                        _ => avx2_sums::<AVX2_ROWS>(rows, job),
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`avx2`], for a job of `MR` rows, which begin at `rows`, and at most 16 columns.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_sums<const MR: usize>(rows: *const f32, job: Job) {
        let mut sums = [[_mm256_setzero_ps(); 2]; MR];
        let high = _mm256_set1_epi32(0xffff_0000_u32 as i32);
        for pair in 0..job.tiles * PAIRS {
            // SAFETY: the tiles have these columns, and the strip has these rows.
            unsafe {
                // Once for each half, as a volatile read may not be shared: there is no register to keep it in.
                let columns = || -> [__m256i; 2] {
                    from_fn(|j| {
                        job.rhs
                            .add(pair * FREE + j * 8)
                            .cast::<__m256i>()
                            .read_volatile()
                    })
                };
                let odd = columns().map(|pair| _mm256_castsi256_ps(_mm256_and_si256(pair, high)));
                for (i, sums) in sums.iter_mut().enumerate() {
                    let lhs = _mm256_set1_ps(*rows.add(i * EXPANDED_ROW + 2 * pair + 1));
                    for (sum, column) in sums.iter_mut().zip(odd) {
                        *sum = _mm256_fmadd_ps(lhs, column, *sum);
                    }
                }
                let even = columns().map(|pair| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pair)));
                for (i, sums) in sums.iter_mut().enumerate() {
                    let lhs = _mm256_set1_ps(*rows.add(i * EXPANDED_ROW + 2 * pair));
                    for (sum, column) in sums.iter_mut().zip(even) {
                        *sum = _mm256_fmadd_ps(lhs, column, *sum);
                    }
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let mut row = [0.0; FREE];
            // SAFETY: the row is as long as two vectors; the job's columns are the result's.
            let result = unsafe {
                _mm256_storeu_ps(row.as_mut_ptr(), sums[0]);
                _mm256_storeu_ps(row[8..].as_mut_ptr(), sums[1]);
                let result = job.result.add(i * job.result_stride);
                core::slice::from_raw_parts_mut(result, job.columns)
            };
            for (result, sum) in result.iter_mut().zip(row) {
                *result = if job.add { *result + sum } else { sum };
            }
        }
    }
}
