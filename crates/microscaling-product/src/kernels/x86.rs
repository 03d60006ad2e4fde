//! AVX2 and AVX-512.

use core::arch::x86_64::*;
use core::array::from_fn;

use super::{EXPANDED_ROW, FREE, KernelCall, PAIRS, ROWS, TILE};

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

/// # Safety
/// As [`Strip::multiply`](super::Strip::multiply), with AVX-512 F, BW and BF16.
pub(super) unsafe fn avx512_bf16(job: KernelCall) {
    for (_, job) in job.parts(8, 3 * FREE) {
        // SAFETY: as the caller says.
        unsafe { by_size!(job, bf16_sums(job), [1, 2, 3]) }
    }
}

/// # Safety
/// As [`avx512_bf16`], for a job of at most `MR` rows and `16 · NV` columns.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn bf16_sums<const MR: usize, const NV: usize>(job: KernelCall) {
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
pub(super) unsafe fn avx512(expanded: &[f32; ROWS * EXPANDED_ROW], job: KernelCall) {
    // Two vectors, odd and even, of as many columns as leave registers for the sums.
    for (_, job) in job.parts(8, 2 * FREE) {
        // SAFETY: as the caller says.
        unsafe { by_size!(job, fused_sums(expanded, job), [1, 2]) }
    }
}

/// # Safety
/// As [`avx512`], for a job of at most `MR` rows and `16 · NV` columns.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn fused_sums<const MR: usize, const NV: usize>(
    expanded: &[f32; ROWS * EXPANDED_ROW],
    job: KernelCall,
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
unsafe fn store<const MR: usize, const NV: usize>(job: KernelCall, sums: &[[__m512; NV]; MR]) {
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
pub(super) unsafe fn avx2(expanded: &[f32; ROWS * EXPANDED_ROW], job: KernelCall) {
    for (row, job) in job.parts(AVX2_ROWS, FREE) {
        let rows = expanded[row * EXPANDED_ROW..].as_ptr();
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

/// # Safety
/// As [`avx2`], for a job of `MR` rows, which begin at `rows`, and at most 16 columns.
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_sums<const MR: usize>(rows: *const f32, job: KernelCall) {
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
        // SAFETY: the row is as long as two vectors; the job's rows and columns are the result's.
        unsafe {
            _mm256_storeu_ps(row.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(row[8..].as_mut_ptr(), sums[1]);
            job.store(i, 0, &row);
        }
    }
}
