//! Whole products: the order of their parts, and the thread for each part.

use super::epilogue::Epilogue;
use super::kernels::{COLUMNS, KernelCall, Strip};
use super::panels::{FREE, Panels, Side, TILE};
use super::path::{ProductCounts, ProductPath};
use crate::PanelsError;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Range;
use microscaling::internal::bits::INFINITY;
use microscaling_processor::float_state::ieee;
use microscaling_processor::threads::{Divide, share_all};

/// Columns of a right operand that are multiplied by all rows before the next columns. The second-level cache holds
/// this number of columns of a block along the summed axis.
const COLUMNS_TOGETHER: usize = 4 * COLUMNS;

/// Rows of the result that get the sums of all blocks before the next rows: the second-level cache holds them, beside the
/// columns.
const ROWS_TOGETHER: usize = 128;

/// Multiplications that take as long as one element elsewhere, when work is divided among threads.
const fn per_element(path: ProductPath) -> usize {
    match path {
        ProductPath::AmxBf16 => 256,
        _ => 32,
    }
}

/// The least sum of two operands' biased exponents for which nothing in their product is flushed to zero. The last of 8
/// significant bits of either operand is 7 below the first, and a sum is a multiple of the product of two last bits.
const NEVER_FLUSHED: u32 = 2 * 127 - 126 + 2 * 7;

/// The limit below which nothing in a product overflows: the largest biased exponents of both operands, plus the binades
/// that the sum of the products gains. A number is less than the next power of two, and one binade is left for rounding.
const NEVER_INFINITE: u32 = 2 * (127 - 1) + 127 - 1;

impl Panels {
    /// The products of pairs of matrices of two operands, in float32: of each `(l, r)` of `pairs`, matrix `l` of `lhs`
    /// times matrix `r` of `rhs`, row by row, one after another in `result`. The threads of the current rayon pool share
    /// the work on large products (feature `rayon`).
    ///
    /// The path is the processor's best one, or the path that the environment names ([`ProductPath::current`]). Without
    /// either, the path is [`ProductPath::Portable`].
    ///
    /// # The sum
    /// The product of two bfloat16 numbers has at most 16 significant bits, so float32 holds it. Each 512 elements along the
    /// summed axis have a sum s that starts from 0; the last sum may have fewer elements. Products are added to s in pairs, of
    /// each pair the odd one first: s = fma(a₁, b₁, s), then s = fma(a₀, b₀, s). An element of the result adds the sums of the
    /// blocks of 512 in order. A tensor scale multiplies the result. AVX-512's `vdpbf16ps` computes the same sum, so every path
    /// but two gives the same bits, and [`reproducible_products`](super::reproducible_products) leaves these two out. The bits depend only on the operands' values and on the length of the summed axis. Neither
    /// the processor, the threads and their float state, the other lengths nor the strides of the operands matter. NaN and Inf
    /// propagate, and every NaN is [`f32::NAN`], on all paths; nothing is flushed to zero.
    ///
    /// [`ProductPath::AmxBf16`], the best path where there is AMX, has AMX's sum. For every 32 elements of a block,
    /// fused multiply-adds sum the products with even index from 0, in order, and the products with odd index likewise. Then both
    /// sums together are added to s. [`ProductPath::NeonBf16`] has Arm's sum: s = s ⊕ (a₀·b₀ ⊕ a₁·b₁), where ⊕ rounds to odd. A
    /// sum that float32 does not hold becomes the one of its two neighbours with an odd significand. Where a number could be a
    /// subnormal, both paths give the bits of the other paths.
    ///
    /// # Errors
    /// [`PanelsError::Product`], with `result` untouched.
    pub fn multiply(
        lhs: &Self,
        rhs: &Self,
        pairs: &[(usize, usize)],
        result: &mut [f32],
    ) -> Result<(), PanelsError> {
        let path = ProductPath::current().unwrap_or(ProductPath::Portable);
        Self::multiply_by(path, lhs, rhs, pairs, result)
    }

    /// [`multiply`](Self::multiply) by a path.
    ///
    /// # Errors
    /// The errors of [`multiply`](Self::multiply), and [`PanelsError::Path`] if this processor does not have the path.
    pub fn multiply_by(
        path: ProductPath,
        lhs: &Self,
        rhs: &Self,
        pairs: &[(usize, usize)],
        result: &mut [f32],
    ) -> Result<(), PanelsError> {
        Self::check(path, lhs, rhs, pairs, Some(result.len()))?;
        let epilogue = Epilogue::default();
        // SAFETY: the result is as long as all products.
        unsafe { Self::write(path, lhs, rhs, pairs, epilogue, result.as_mut_ptr()) };
        Ok(())
    }

    /// [`multiply`](Self::multiply) into new memory, which is written once.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    ///
    /// # Panics
    /// If the result is larger than all memory.
    pub fn product(
        lhs: &Self,
        rhs: &Self,
        pairs: &[(usize, usize)],
    ) -> Result<Vec<f32>, PanelsError> {
        Self::product_with(lhs, rhs, pairs, Epilogue::default())
    }

    /// [`product`](Self::product) with the steps of an epilogue, while the result is in the cache.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply), and [`PanelsError::Stochastic`] and [`PanelsError::Bias`] for the epilogue.
    ///
    /// # Panics
    /// If the result is larger than all memory.
    pub fn product_with(
        lhs: &Self,
        rhs: &Self,
        pairs: &[(usize, usize)],
        epilogue: Epilogue<'_>,
    ) -> Result<Vec<f32>, PanelsError> {
        epilogue.check(rhs.free)?;
        let path = ProductPath::current().unwrap_or(ProductPath::Portable);
        let elements = Self::check(path, lhs, rhs, pairs, None)?;
        let mut result = Vec::with_capacity(elements);
        // SAFETY: the memory is as long as all products, each element of which is written.
        unsafe {
            Self::write(path, lhs, rhs, pairs, epilogue, result.as_mut_ptr());
            result.set_len(elements);
        }
        Ok(result)
    }

    /// How many elements all products have. `length` is the result's, where there is one.
    fn check(
        path: ProductPath,
        lhs: &Self,
        rhs: &Self,
        pairs: &[(usize, usize)],
        length: Option<usize>,
    ) -> Result<usize, PanelsError> {
        if !path.is_available() {
            return Err(PanelsError::Path { path });
        }
        let there = |&(l, r): &(usize, usize)| l < lhs.matrices && r < rhs.matrices;
        // No result's length is beyond all memory.
        let elements = pairs
            .len()
            .saturating_mul(lhs.free)
            .saturating_mul(rhs.free);
        let got = length.unwrap_or(elements);
        let sound = lhs.side == Side::Lhs
            && rhs.side == Side::Rhs
            && lhs.summed == rhs.summed
            && pairs.iter().all(there)
            && got == elements;
        match sound {
            true => Ok(elements),
            false => Err(PanelsError::Product {
                lhs: lhs.to_string(),
                rhs: rhs.to_string(),
                expected: elements,
                got,
            }),
        }
    }

    /// Writes every element of the products.
    ///
    /// # Safety
    /// The operands must have been [checked](Self::check). `result` must have room for all elements, which nobody else may access.
    unsafe fn write(
        path: ProductPath,
        lhs: &Self,
        rhs: &Self,
        pairs: &[(usize, usize)],
        epilogue: Epilogue<'_>,
        result: *mut f32,
    ) {
        if lhs.summed == 0 {
            let (rows, columns) = (pairs.len() * lhs.free, rhs.free);
            // SAFETY: as the caller says.
            unsafe {
                result.write_bytes(0, rows * columns);
                epilogue.apply(result, columns, rows, 0..columns);
            }
            return;
        }
        let asked = path;
        let path = match path {
            ProductPath::Avx512Bf16 | ProductPath::AmxBf16 if !Self::is_never_flushed(lhs, rhs) => {
                ProductPath::Avx512
            }
            ProductPath::NeonBf16 if !Self::is_never_flushed(lhs, rhs) => ProductPath::Neon,
            path => path,
        };
        ProductCounts::count(asked, path);
        let product = Multiplication {
            path,
            may_be_nan: Self::may_be_nan(lhs, rhs),
            lhs,
            rhs,
            pairs,
            epilogue,
            result,
        };
        share_all(
            Part {
                product: &product,
                pairs: 0..pairs.len(),
                rows: 0..lhs.free_tiles(),
                columns: 0..rhs.free.div_ceil(COLUMNS),
            },
            &|part| ieee(|| part.multiply()),
        );
    }

    /// Whether no element, product or sum is a subnormal.
    fn is_never_flushed(lhs: &Self, rhs: &Self) -> bool {
        let is_enough = |least: [u32; 2]| {
            let [lhs, rhs] = least.map(|bits| bits >> 23);
            lhs > 0 && rhs > 0 && lhs + rhs >= NEVER_FLUSHED
        };
        let operands = [lhs, rhs];
        is_enough(operands.map(|panels| panels.least)) || is_enough(operands.map(Self::smallest))
    }

    /// Whether an element of the product may be NaN: one of an operand is NaN or Inf, or a sum may become Inf.
    fn may_be_nan(lhs: &Self, rhs: &Self) -> bool {
        let binades = usize::BITS - lhs.summed.leading_zeros();
        let [left, right] = [lhs, rhs].map(|panels| panels.most >> 23);
        let finite = |panels: &Self| panels.most < INFINITY && panels.scale.is_finite();
        !(finite(lhs) && finite(rhs) && left + right + binades <= NEVER_INFINITE)
    }
}

/// A product as a whole.
struct Multiplication<'a> {
    path: ProductPath,
    may_be_nan: bool,
    lhs: &'a Panels,
    rhs: &'a Panels,
    pairs: &'a [(usize, usize)],
    epilogue: Epilogue<'a>,
    result: *mut f32,
}

// SAFETY: the result is written by parts that have no element in common; all else is only read.
unsafe impl Sync for Multiplication<'_> {}

/// Some rows and columns of some products.
struct Part<'a> {
    product: &'a Multiplication<'a>,
    pairs: Range<usize>,
    /// In tiles.
    rows: Range<usize>,
    /// In as many as a kernel takes at once.
    columns: Range<usize>,
}

impl Divide for Part<'_> {
    fn elements(&self) -> usize {
        let columns = (self.columns.len() * COLUMNS).min(self.product.rhs.free);
        let per_pair = self.rows.len() * FREE * columns;
        (self.pairs.len() * per_pair).saturating_mul(self.product.lhs.summed)
            / per_element(self.product.path)
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let halves = |range: &Range<usize>| {
            let middle = range.start + range.len() / 2;
            [range.start..middle, middle..range.end]
        };
        let Self {
            product,
            ref pairs,
            ref rows,
            ref columns,
        } = self;
        let part = |pairs: &Range<usize>, rows: &Range<usize>, columns: &Range<usize>| Self {
            product,
            pairs: pairs.clone(),
            rows: rows.clone(),
            columns: columns.clone(),
        };
        if pairs.len() > 1 {
            return Ok(halves(pairs).map(|pairs| part(&pairs, rows, columns)));
        }
        if rows.len() > 1 && rows.len() * FREE >= columns.len() * COLUMNS {
            return Ok(halves(rows).map(|rows| part(pairs, &rows, columns)));
        }
        if columns.len() > 1 {
            return Ok(halves(columns).map(|columns| part(pairs, rows, &columns)));
        }
        Err(self)
    }
}

impl Part<'_> {
    #[inline(never)]
    fn multiply(self) {
        // SAFETY: that the processor has the path was checked, and a thread has one part at a time.
        let mut strip = unsafe { Strip::new(self.product.path) };
        let together = COLUMNS_TOGETHER / COLUMNS;
        // As even as can be.
        let count = self.columns.len().div_ceil(together);
        for pair in self.pairs.clone() {
            for i in 0..count {
                let at = |i: usize| self.columns.start + i * self.columns.len() / count;
                self.columns_of(pair, at(i)..at(i + 1), &mut strip);
            }
        }
    }

    /// Multiplies all rows by some columns of one pair, block after block of the summed axis.
    fn columns_of(&self, pair: usize, columns: Range<usize>, strip: &mut Strip) {
        let Multiplication {
            path,
            may_be_nan,
            lhs,
            rhs,
            pairs,
            epilogue,
            result,
        } = *self.product;
        let (left, right) = pairs[pair];
        let end = lhs.free.min(self.rows.end * FREE);
        let strip_rows = Strip::rows(path);
        let scale = f64::from(lhs.scale) * f64::from(rhs.scale);
        let last = lhs.summed_tiles();
        let together = (self.rows.start * FREE..end).step_by(ROWS_TOGETHER);
        let of_blocks = together.flat_map(|first| lhs.blocks().map(move |block| (first, block)));
        for (first, block) in of_blocks {
            let rows = first..end.min(first + ROWS_TOGETHER);
            for row in rows.clone().step_by(strip_rows) {
                let tile = lhs.tile(left, row / FREE, block.start) + row % FREE * (TILE / FREE);
                let words = lhs.words()[tile..].as_ptr();
                // SAFETY: the rows are in as many tiles as the block has.
                unsafe { strip.set(path, block.len(), words) };
                for column in columns.clone().map(|column| column * COLUMNS) {
                    let tile = rhs.tile(right, column / FREE, block.start);
                    let job = KernelCall {
                        tiles: block.len(),
                        lhs: words,
                        lhs_stride: lhs.summed_tiles() * TILE,
                        rhs: rhs.words()[tile..].as_ptr(),
                        rhs_stride: rhs.summed_tiles() * TILE,
                        result: result.wrapping_add((pair * lhs.free + row) * rhs.free + column),
                        result_stride: rhs.free,
                        rows: (rows.end - row).min(strip_rows),
                        columns: (rhs.free - column).min(COLUMNS),
                        add: block.start > 0,
                    };
                    // SAFETY: that the processor has the path was checked. The strip is set, and panels have whole tiles, on cache lines'
                    // beginnings. The result's length was checked, and no other part has these rows and columns of this pair.
                    unsafe { strip.multiply(path, job) };
                    if block.end == last && scale != 1.0 {
                        // SAFETY: the job's rows and columns of the result are nobody else's.
                        unsafe { job.scale(scale) };
                    }
                    if block.end == last && may_be_nan {
                        // SAFETY: as above.
                        unsafe { job.make_nans_one() };
                    }
                    if block.end == last {
                        let columns = column..column + job.columns;
                        // SAFETY: as above, and all of them were written.
                        unsafe {
                            epilogue.apply(job.result, job.result_stride, job.rows, columns);
                        }
                    }
                }
            }
        }
    }
}
