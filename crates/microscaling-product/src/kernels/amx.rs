//! AMX: tiles of the operands, as they lie in memory, are multiplied by `tdpbf16ps`.

#[cfg(any(test, amx_emulator))]
mod emulator;
#[cfg(test)]
mod tests;

use core::arch::asm;
use core::arch::x86_64::*;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use std::sync::OnceLock;

use super::KernelCall;
use crate::panels::{FREE, TILE};

/// Rows of a strip: two tiles.
pub(super) const ROWS: usize = 2 * FREE;
/// Columns of the sums that the tiles hold at once.
const COLUMNS: usize = 2 * FREE;

/// The operand of `ldtilecfg`: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIGURATION: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Whether the processor has AMX-BF16 and Linux lets this process have the tiles, for which it is asked once.
pub(crate) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        #[cfg(any(test, amx_emulator))]
        if !is_granted() {
            return emulator::install();
        }
        is_granted()
    })
}

/// Whether the processor has AMX-TILE and AMX-BF16, and the system saves the tiles' state.
fn is_granted() -> bool {
    const FEATURES: u32 = 1 << 24 | 1 << 22;
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    if !std::arch::is_x86_feature_detected!("avx512f")
        || __cpuid_count(7, 0).edx & FEATURES != FEATURES
    {
        return false;
    }
    let refused: i64;
    // SAFETY: the system call asks for a permission, and changes none of this process's memory.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => refused,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    refused == 0
}

/// The tiles of this thread, configured for [`multiply`] as long as the value lives.
///
/// The instruction takes as long as an eighth of a job, so that threads configure their tiles once. Nothing but this module's
/// assembly has instructions of AMX, and the system saves a thread's tiles.
pub(super) struct TileConfiguration {
    /// The configuration belongs to the thread.
    _of_thread: PhantomData<*const ()>,
}

impl TileConfiguration {
    /// # Safety
    /// The processor must have [AMX](is_available), and the thread no other such value.
    pub(super) unsafe fn new() -> Self {
        // SAFETY: as the caller says; the tiles have been nobody's.
        unsafe {
            asm!(
                "ldtilecfg [{configuration}]",
                configuration = in(reg) &raw const CONFIGURATION,
                options(nostack, readonly),
            );
        }
        Self {
            _of_thread: PhantomData,
        }
    }
}

impl Drop for TileConfiguration {
    fn drop(&mut self) {
        // SAFETY: this value configured the tiles, and no tile holds anything between two pieces of assembly.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// # Safety
/// As [`Strip::multiply`](super::Strip::multiply), for a job of at most 32 rows, with AVX-512 F and tiles that are
/// [configured](TileConfiguration).
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(job: KernelCall) {
    let mut sums = MaybeUninit::<[f32; ROWS * COLUMNS]>::uninit();
    for first in (0..job.columns).step_by(COLUMNS) {
        let part = KernelCall {
            rhs: job.rhs.wrapping_add(first / FREE * job.rhs_stride),
            result: job.result.wrapping_add(first),
            columns: (job.columns - first).min(COLUMNS),
            ..job
        };
        let whole = part.rows.is_multiple_of(FREE) && part.columns.is_multiple_of(FREE);
        // SAFETY: the part's rows and columns are the job's; a part of a tile, or a tile that is added to the result, goes through memory
        // of this function.
        unsafe {
            match whole && !part.add {
                true => multiply_tiles(part, part.result, part.result_stride),
                false => {
                    multiply_tiles(part, sums.as_mut_ptr().cast(), COLUMNS);
                    hand_over(part, sums.as_ptr().cast());
                }
            }
        }
    }
}

/// One piece of assembly, for no tile's numbers outlive it: the sums, a tile for each of `$sums`, are added up over the job's tiles
/// by `$step`, and stored by `$store`.
macro_rules! tiles {
    ($job:ident, $to:ident, $stride:ident, [$($sum:literal),*], [$($step:literal),*], [$($store:literal),*]) => {
        asm!(
            $(concat!("tilezero tmm", $sum),)*
            "2:",
            $($step,)*
            "prefetchw [{result}]",
            "prefetchw [{result} + 64]",
            "prefetchw [{result} + {result_stride}]",
            "prefetchw [{result} + {result_stride} + 64]",
            "lea {result}, [{result} + 2 * {result_stride}]",
            "add {lhs0}, 1024",
            "add {lhs1}, 1024",
            "add {rhs0}, 1024",
            "add {rhs1}, 1024",
            "dec {tiles}",
            "jnz 2b",
            "mov {lhs0}, {stride}",
            "shl {lhs0}, 4",
            "add {lhs0}, {to}",
            $($store,)*
            lhs0 = inout(reg) $job.lhs => _,
            lhs1 = inout(reg) $job.lhs.wrapping_add($job.lhs_stride) => _,
            rhs0 = inout(reg) $job.rhs => _,
            rhs1 = inout(reg) $job.rhs.wrapping_add($job.rhs_stride) => _,
            tiles = inout(reg) $job.tiles => _,
            result = inout(reg) $job.result => _,
            result_stride = in(reg) $job.result_stride * size_of::<f32>(),
            row = in(reg) 64_usize,
            to = in(reg) $to,
            stride = in(reg) $stride * size_of::<f32>(),
            out("tmm0") _,
            out("tmm1") _,
            out("tmm2") _,
            out("tmm3") _,
            out("tmm4") _,
            out("tmm5") _,
            out("tmm6") _,
            out("tmm7") _,
            options(nostack),
        )
    };
}

/// Stores the sums of as many whole tiles as hold the job's rows and columns at `to`, rows `stride` elements apart.
///
/// # Safety
/// As [`multiply`], for a job of at most two tiles of rows and of columns; those tiles must have their place from `to` on.
unsafe fn multiply_tiles(job: KernelCall, to: *mut f32, stride: usize) {
    // SAFETY: the operands have these tiles, each of 1024 bytes, and the result its place, as the caller says. Loads and stores at other
    // addresses are not AMX's.
    unsafe {
        match (job.rows > FREE, job.columns > FREE) {
            (false, false) => tiles!(
                job,
                to,
                stride,
                ["0"],
                [
                    "tileloadd tmm4, [{lhs0} + {row}]",
                    "tileloadd tmm6, [{rhs0} + {row}]",
                    "tdpbf16ps tmm0, tmm4, tmm6"
                ],
                ["tilestored [{to} + {stride}], tmm0"]
            ),
            (false, true) => tiles!(
                job,
                to,
                stride,
                ["0", "1"],
                [
                    "tileloadd tmm4, [{lhs0} + {row}]",
                    "tileloadd tmm6, [{rhs0} + {row}]",
                    "tileloadd tmm7, [{rhs1} + {row}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7"
                ],
                [
                    "tilestored [{to} + {stride}], tmm0",
                    "tilestored [{to} + {stride} + 64], tmm1"
                ]
            ),
            (true, false) => tiles!(
                job,
                to,
                stride,
                ["0", "2"],
                [
                    "tileloadd tmm4, [{lhs0} + {row}]",
                    "tileloadd tmm5, [{lhs1} + {row}]",
                    "tileloadd tmm6, [{rhs0} + {row}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm2, tmm5, tmm6"
                ],
                [
                    "tilestored [{to} + {stride}], tmm0",
                    "tilestored [{lhs0} + {stride}], tmm2"
                ]
            ),
            (true, true) => tiles!(
                job,
                to,
                stride,
                ["0", "1", "2", "3"],
                [
                    "tileloadd tmm4, [{lhs0} + {row}]",
                    "tileloadd tmm6, [{rhs0} + {row}]",
                    "tileloadd tmm7, [{rhs1} + {row}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm5, [{lhs1} + {row}]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7"
                ],
                [
                    "tilestored [{to} + {stride}], tmm0",
                    "tilestored [{to} + {stride} + 64], tmm1",
                    "tilestored [{lhs0} + {stride}], tmm2",
                    "tilestored [{lhs0} + {stride} + 64], tmm3"
                ]
            ),
        }
    }
}

/// Makes the sums, or the result and the sums, the result.
///
/// # Safety
/// The result must have the job's rows and columns, and the sums the tiles of these, in rows of 32.
#[target_feature(enable = "avx512f")]
unsafe fn hand_over(job: KernelCall, sums: *const f32) {
    for i in 0..job.rows {
        for j in 0..job.columns.div_ceil(FREE) {
            let left = (job.columns - j * FREE).min(FREE);
            let mask = ((1_u32 << left) - 1) as u16;
            // SAFETY: elements that are not the result's are neither read nor written.
            unsafe {
                let result = job.result.wrapping_add(i * job.result_stride + j * FREE);
                let sum = _mm512_loadu_ps(sums.add(i * COLUMNS + j * FREE));
                let sum = match job.add {
                    true => _mm512_add_ps(_mm512_maskz_loadu_ps(mask, result), sum),
                    false => sum,
                };
                _mm512_mask_storeu_ps(result, mask, sum);
            }
        }
    }
}

const _: () = assert!(TILE * size_of::<u32>() == 1024);
