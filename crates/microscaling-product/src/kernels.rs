//! Kernels: the products of a strip of rows and up to 96 columns over a block of the summed axis.

#[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
pub(super) mod amx;
#[cfg(all(target_arch = "aarch64", target_endian = "little", feature = "std"))]
mod neon;
#[cfg(all(
    test,
    feature = "std",
    any(
        all(target_arch = "x86_64", target_os = "linux"),
        all(target_arch = "aarch64", target_endian = "little")
    )
))]
mod tests;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod x86;

use super::panels::{BLOCK, FREE, PAIRS, TILE, halves};
use super::path::ProductPath;
use microscaling_processor::prefetch;

/// The most rows of a strip that is expanded to float32: a tile's.
const ROWS: usize = FREE;
/// Columns of a job: a multiple of what any kernel takes at once.
pub(super) const COLUMNS: usize = 6 * FREE;

/// A row of a strip in float32, a cache line apart from the next one, lest all rows fall on the same sets of the cache.
const EXPANDED_ROW: usize = BLOCK + 16;

type Expanded = [f32; ROWS * EXPANDED_ROW];

/// Some rows of a left operand in a block of the summed axis, as float32 where a path multiplies that.
pub(super) struct Strip {
    expanded: Option<Expanded>,
    /// Where the path multiplies tiles.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
    _tiles: Option<amx::TileConfiguration>,
}

/// The operands of a kernel, and the place of the result.
#[derive(Clone, Copy)]
pub(super) struct KernelCall {
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

    /// # Safety
    /// The processor must have the path, and the thread no other strip.
    pub(super) unsafe fn new(path: ProductPath) -> Self {
        let is_expanded = matches!(
            path,
            ProductPath::Avx2 | ProductPath::Avx512 | ProductPath::Neon
        );
        Self {
            expanded: is_expanded.then_some([0.0; ROWS * EXPANDED_ROW]),
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
            // SAFETY: as the caller says.
            _tiles: (path == ProductPath::AmxBf16)
                .then(|| unsafe { amx::TileConfiguration::new() }),
        }
    }

    /// Takes up the rows of the next jobs.
    ///
    /// # Safety
    /// From `lhs` on, the strip's rows must be in `tiles` tiles.
    pub(super) unsafe fn set(&mut self, path: ProductPath, tiles: usize, lhs: *const u32) {
        let Some(expanded) = &mut self.expanded else {
            return;
        };
        let rows = expanded.chunks_exact_mut(EXPANDED_ROW);
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

    /// The rows in float32.
    #[cfg_attr(
        not(all(any(target_arch = "x86_64", target_arch = "aarch64"), feature = "std")),
        expect(dead_code, reason = "the rule takes words")
    )]
    fn expanded(&self) -> &Expanded {
        self.expanded.as_ref().expect("the path expands rows")
    }

    /// Multiplies.
    ///
    /// # Safety
    /// The processor must have `path`, and the strip must have been [set](Self::set) for this path with the job's rows. The
    /// job must point to whole tiles of the operands, aligned to cache lines, and to the rows and columns of the result. No
    /// other code may access this part of the result.
    pub(super) unsafe fn multiply(&self, path: ProductPath, job: KernelCall) {
        // The kernel for tiles asks for them on its way.
        if path != ProductPath::AmxBf16 {
            job.prefetch_result();
        }
        // SAFETY: as the caller says.
        unsafe {
            match path {
                ProductPath::Portable => portable(job),
                #[cfg(all(target_arch = "x86_64", feature = "std"))]
                ProductPath::Avx2 => x86::avx2(self.expanded(), job),
                #[cfg(all(target_arch = "x86_64", feature = "std"))]
                ProductPath::Avx512 => x86::avx512(self.expanded(), job),
                #[cfg(all(target_arch = "x86_64", feature = "std"))]
                ProductPath::Avx512Bf16 => x86::avx512_bf16(job),
                #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
                ProductPath::AmxBf16 => amx::multiply(job),
                #[cfg(all(target_arch = "aarch64", target_endian = "little", feature = "std"))]
                ProductPath::Neon => neon::neon(self.expanded(), job),
                #[cfg(all(target_arch = "aarch64", target_endian = "little", feature = "std"))]
                ProductPath::NeonBf16 => neon::neon_bf16(job),
                _ => unreachable!("{path} is not available"),
            }
        }
    }
}

impl KernelCall {
    /// Asks for the result's rows and columns, which the kernel adds to or stores long after its first operand. Rows of a large
    /// result lie in pages of their own, where no processor looks ahead by itself.
    fn prefetch_result(&self) {
        for row in 0..self.rows {
            let row = self.result.wrapping_add(row * self.result_stride);
            prefetch(row, self.columns);
        }
    }

    /// The job in parts with at most this number of rows and columns, each within one tile and with its first row.
    #[cfg_attr(
        not(all(any(target_arch = "x86_64", target_arch = "aarch64"), feature = "std")),
        expect(dead_code, reason = "the rule takes a job as a whole")
    )]
    fn parts(self, rows: usize, columns: usize) -> impl Iterator<Item = (usize, Self)> {
        let part = move |row: usize, column: usize| Self {
            lhs: self.lhs.wrapping_add(row * PAIRS),
            rhs: self.rhs.wrapping_add(column / FREE * self.rhs_stride),
            result: (self.result).wrapping_add(row * self.result_stride + column),
            rows: (self.rows - row).min(rows),
            columns: (self.columns - column).min(columns),
            ..self
        };
        let rows = (0..self.rows).step_by(rows);
        let columns = (0..self.columns).step_by(columns);
        columns.flat_map(move |column| rows.clone().map(move |row| (row, part(row, column))))
    }

    /// Stores sixteen sums of a row, of which the job may have fewer, from a column on.
    ///
    /// # Safety
    /// The row and the column must be the job's, and nobody else may look at its rows and columns.
    #[inline(always)]
    unsafe fn store(&self, row: usize, column: usize, sums: &[f32; FREE]) {
        let first = (self.result).wrapping_add(row * self.result_stride + column);
        let count = (self.columns - column).min(FREE);
        for (i, sum) in sums.iter().enumerate().take(count) {
            // SAFETY: as the caller says. The result's memory may be new, and is read only if it was written before.
            unsafe {
                let result = first.add(i);
                result.write(if self.add { *result + sum } else { *sum });
            }
        }
    }

    /// Multiplies the result by the product of two float32 scales.
    ///
    /// # Safety
    /// The job's rows and columns must be the result's, and nobody else may look at them.
    pub(super) unsafe fn scale(&self, scale: f64) {
        // SAFETY: as the caller says.
        unsafe { self.map(|x| (f64::from(x) * scale) as f32) }
    }

    /// Replaces every NaN of the result by one and the same: processors differ in the sign of a NaN that they make, and in
    /// which of two they hand on.
    ///
    /// # Safety
    /// As [`scale`](Self::scale).
    pub(super) unsafe fn make_nans_one(&self) {
        // SAFETY: as the caller says.
        unsafe { self.map(|x| if x.is_nan() { f32::NAN } else { x }) }
    }

    /// # Safety
    /// As [`scale`](Self::scale).
    unsafe fn map(&self, function: impl Fn(f32) -> f32) {
        for row in 0..self.rows {
            let row = self.result.wrapping_add(row * self.result_stride);
            // SAFETY: as the caller says.
            let row = unsafe { core::slice::from_raw_parts_mut(row, self.columns) };
            for x in row {
                *x = function(*x);
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
unsafe fn portable(job: KernelCall) {
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
            // SAFETY: the row and the column are the job's, and the result is the caller's.
            unsafe { job.store(row, first, &sums) };
        }
    }
}
