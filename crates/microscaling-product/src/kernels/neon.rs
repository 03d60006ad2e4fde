//! NEON, and its products of bfloat16, of 64-bit Arm processors.

#[cfg(test)]
mod tests;

use core::arch::aarch64::*;
use core::arch::asm;
use core::array::from_fn;

use super::{EXPANDED_ROW, FREE, KernelCall, PAIRS, ROWS, TILE};

/// Rows that a kernel takes at once: with four vectors of columns they leave half of the registers to the operands.
const NEON_ROWS: usize = 4;
/// Vectors that hold sixteen columns.
const VECTORS: usize = FREE / 4;

/// # Safety
/// As [`Strip::multiply`](super::Strip::multiply), with NEON.
pub(super) unsafe fn neon(expanded: &[f32; ROWS * EXPANDED_ROW], job: KernelCall) {
    for (row, job) in job.parts(NEON_ROWS, FREE) {
        let rows = expanded[row * EXPANDED_ROW..].as_ptr();
        // SAFETY: a part of the job's rows and columns.
        unsafe {
            match job.rows {
                1 => fused_sums::<1>(rows, job),
                2 => fused_sums::<2>(rows, job),
                _ => fused_sums::<NEON_ROWS>(rows, job),
            }
        }
    }
}

/// # Safety
/// As [`neon`], for a job of at most `MR` rows, which begin at `rows`, and 16 columns.
#[target_feature(enable = "neon")]
unsafe fn fused_sums<const MR: usize>(rows: *const f32, job: KernelCall) {
    let mut sums = [[vdupq_n_f32(0.0); VECTORS]; MR];
    let high = vdupq_n_u32(0xffff_0000);
    // Two pairs at a time, which are a vector of a row.
    for pair in (0..job.tiles * PAIRS).step_by(2) {
        // SAFETY: the tiles have these columns, and the strip has these rows.
        unsafe {
            let lhs: [float32x4_t; MR] =
                from_fn(|i| vld1q_f32(rows.add(i * EXPANDED_ROW + 2 * pair)));
            let columns = |pair: usize| -> [uint32x4_t; VECTORS] {
                from_fn(|j| vld1q_u32(job.rhs.add(pair * FREE + 4 * j)))
            };
            let odd = |pair| columns(pair).map(|x| vreinterpretq_f32_u32(vandq_u32(x, high)));
            let even = |pair| columns(pair).map(|x| vreinterpretq_f32_u32(vshlq_n_u32::<16>(x)));
            add_products::<1, MR>(&mut sums, lhs, odd(pair));
            add_products::<0, MR>(&mut sums, lhs, even(pair));
            add_products::<3, MR>(&mut sums, lhs, odd(pair + 1));
            add_products::<2, MR>(&mut sums, lhs, even(pair + 1));
        }
    }
    for (i, sums) in sums.iter().enumerate().take(job.rows) {
        // SAFETY: the job's rows and columns are the result's.
        unsafe { store(&job, i, *sums) };
    }
}

/// Adds to the sums of each row its number `LANE` times the columns'.
#[inline]
#[target_feature(enable = "neon")]
fn add_products<const LANE: i32, const MR: usize>(
    sums: &mut [[float32x4_t; VECTORS]; MR],
    lhs: [float32x4_t; MR],
    columns: [float32x4_t; VECTORS],
) {
    for (sums, lhs) in sums.iter_mut().zip(lhs) {
        for (sum, column) in sums.iter_mut().zip(columns) {
            *sum = vfmaq_laneq_f32::<LANE>(*sum, column, lhs);
        }
    }
}

/// # Safety
/// As [`Strip::multiply`](super::Strip::multiply), with NEON and BF16.
pub(super) unsafe fn neon_bf16(job: KernelCall) {
    for (_, job) in job.parts(NEON_ROWS, FREE) {
        // SAFETY: a part of the job's rows and columns.
        unsafe {
            match job.rows {
                1 | 2 => bf16_sums::<1>(job),
                _ => bf16_sums::<2>(job),
            }
        }
    }
}

/// # Safety
/// As [`neon_bf16`], for a job of at most `2 · MR` rows and 16 columns.
#[target_feature(enable = "neon,bf16")]
unsafe fn bf16_sums<const MR: usize>(job: KernelCall) {
    // A vector has the sums of two rows and two columns.
    let mut sums = [[vdupq_n_f32(0.0); 2 * VECTORS]; MR];
    for tile in 0..job.tiles {
        for pair in (0..PAIRS).step_by(2) {
            // SAFETY: the tile has these rows and columns.
            unsafe {
                // Two pairs of each of two rows.
                let lhs: [uint32x4_t; MR] = from_fn(|i| {
                    let row = job.lhs.add(tile * TILE + 2 * i * PAIRS + pair);
                    vcombine_u32(vld1_u32(row), vld1_u32(row.add(PAIRS)))
                });
                let rhs = job.rhs.add(tile * TILE + pair * FREE);
                for j in 0..VECTORS {
                    let [first, second] =
                        [0, FREE].map(|row: usize| vld1q_u32(rhs.add(row + 4 * j)));
                    // Two pairs of each of two columns.
                    let columns = [vzip1q_u32(first, second), vzip2q_u32(first, second)];
                    for (sums, lhs) in sums.iter_mut().zip(lhs) {
                        for (sum, columns) in sums[2 * j..].iter_mut().zip(columns) {
                            // `vbfmmlaq_f32` is not stable. No memory is read or written.
                            asm!(
                                "bfmmla {sum:v}.4s, {rows:v}.8h, {columns:v}.8h",
                                sum = inout(vreg) *sum,
                                rows = in(vreg) lhs,
                                columns = in(vreg) columns,
                                options(pure, nomem, nostack, preserves_flags),
                            );
                        }
                    }
                }
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        let pairs = sums.map(|sum| vreinterpretq_f64_f32(sum));
        let pairs = pairs.as_chunks::<2>().0;
        let first: [_; VECTORS] = from_fn(|j| vzip1q_f64(pairs[j][0], pairs[j][1]));
        let second: [_; VECTORS] = from_fn(|j| vzip2q_f64(pairs[j][0], pairs[j][1]));
        for (row, sums) in [(2 * i, first), (2 * i + 1, second)] {
            if row < job.rows {
                // SAFETY: the job's rows and columns are the result's.
                unsafe { store(&job, row, sums.map(|sum| vreinterpretq_f32_f64(sum))) };
            }
        }
    }
}

/// Stores a row of the job.
///
/// # Safety
/// As [`KernelCall::store`].
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store(job: &KernelCall, row: usize, sums: [float32x4_t; VECTORS]) {
    let mut values = [0.0; FREE];
    for (j, sum) in sums.into_iter().enumerate() {
        // SAFETY: the array is as long as four vectors.
        unsafe { vst1q_f32(values[4 * j..].as_mut_ptr(), sum) };
    }
    // SAFETY: as the caller says.
    unsafe { job.store(row, 0, &values) };
}
