//! The loops that transform blocks: products with the factors, then sums and differences.

use super::powers_of_two;
use crate::quantize::layout::Layout;
use crate::round::bits::SIGN;
use alloc::vec;
use microscaling_processor::instruction_set::Kernel;

/// Columns of interleaved blocks that are worked on together: this number of the longest blocks just fits the nearest
/// cache.
const COLUMNS: usize = 64;

/// Elements of contiguous blocks that are worked on together, so that there are enough for vectors.
const TOGETHER: usize = 64;

/// Transforms consecutive runs of whole blocks; a run is `inner` interleaved blocks.
pub(super) struct Transform<'a> {
    pub(super) layout: Layout,
    /// The factors that multiply the elements of an axis first.
    pub(super) factors: &'a [f32],
    /// Numbers whose signs multiply the elements in the end; empty for none.
    pub(super) signs: &'a [f32],
    pub(super) data: &'a mut [f32],
    /// Position of the data on the axis, a multiple of the block length.
    pub(super) at: usize,
    /// Whether vectors are longer than four elements, as short blocks together gain from.
    pub(super) has_long_vectors: bool,
}

impl Kernel for Transform<'_> {
    #[inline(always)]
    fn run(self) {
        let Self {
            layout,
            factors,
            signs,
            data,
            mut at,
            has_long_vectors,
        } = self;
        let inner = layout.inner;
        let is_together = has_long_vectors && inner == 1 && layout.block < TOGETHER;
        // Short rows need none.
        let mut tile = vec![
            0.0;
            if inner < COLUMNS {
                0
            } else {
                layout.block * COLUMNS
            }
        ];
        let mut rest = data;
        while !rest.is_empty() {
            let is_together = is_together && rest.len().min(layout.axis - at) >= TOGETHER;
            let length = match is_together {
                true => TOGETHER,
                // The last block of an axis is the only one that may be no power of two.
                false => layout.block.min(layout.axis - at),
            };
            let (run, tail) = rest.split_at_mut(length * inner);
            if is_together {
                transform_together(run, &factors[at..][..length], layout.block);
            } else {
                for piece in powers_of_two(length) {
                    let run = &mut run[piece.start * inner..piece.end * inner];
                    transform_run(run, inner, &factors[at..][piece], &mut tile);
                }
            }
            if !signs.is_empty() {
                multiply_by_signs(run, inner, &signs[at..]);
            }
            at = if at + length == layout.axis {
                0
            } else {
                at + length
            };
            rest = tail;
        }
    }
}

/// Transforms interleaved blocks of as many elements as there are factors.
#[inline(always)]
fn transform_run(run: &mut [f32], inner: usize, factors: &[f32], tile: &mut [f32]) {
    // The lengths as constants, so that there are vectors for them.
    match factors.len() {
        128 => transform_blocks::<128>(run, inner, factors, tile),
        64 => transform_blocks::<64>(run, inner, factors, tile),
        32 => transform_blocks::<32>(run, inner, factors, tile),
        16 => transform_blocks::<16>(run, inner, factors, tile),
        8 => transform_blocks::<8>(run, inner, factors, tile),
        4 => transform_blocks::<4>(run, inner, factors, tile),
        2 => transform_blocks::<2>(run, inner, factors, tile),
        _ => transform_blocks::<1>(run, inner, factors, tile),
    }
}

#[inline(always)]
fn transform_blocks<const N: usize>(
    run: &mut [f32],
    inner: usize,
    factors: &[f32],
    tile: &mut [f32],
) {
    if inner == 1 {
        return transform_contiguous::<N, N>(run, factors);
    }
    if inner < COLUMNS {
        multiply_rows(run, inner, factors);
        add_and_subtract::<N>(run, inner);
        return;
    }
    for first in (0..inner).step_by(COLUMNS) {
        let width = COLUMNS.min(inner - first);
        for (line, row) in tile.chunks_exact_mut(COLUMNS).zip(run.chunks_exact(inner)) {
            line[..width].copy_from_slice(&row[first..first + width]);
        }
        // The columns that are left from before do no harm.
        let tile = &mut tile[..N * COLUMNS];
        multiply_rows(tile, COLUMNS, factors);
        add_and_subtract::<N>(tile, COLUMNS);
        for (line, row) in tile.chunks_exact(COLUMNS).zip(run.chunks_exact_mut(inner)) {
            row[first..first + width].copy_from_slice(&line[..width]);
        }
    }
}

/// Multiplies each row by the sign of a number.
#[inline(always)]
fn multiply_by_signs(run: &mut [f32], inner: usize, signs: &[f32]) {
    let multiply = |x: &mut f32, sign: &f32| {
        *x = f32::from_bits(x.to_bits() ^ (sign.to_bits() & SIGN));
    };
    if inner == 1 {
        run.iter_mut()
            .zip(signs)
            .for_each(|(x, sign)| multiply(x, sign));
        return;
    }
    for (row, sign) in run.chunks_exact_mut(inner).zip(signs) {
        row.iter_mut().for_each(|x| multiply(x, sign));
    }
}

/// Multiplies each row by its factor.
#[inline(always)]
fn multiply_rows(rows: &mut [f32], width: usize, factors: &[f32]) {
    for (row, factor) in rows.chunks_exact_mut(width).zip(factors) {
        row.iter_mut().for_each(|x| *x *= *factor);
    }
}

/// Sums and differences of `N` rows of `width` elements at all distances.
#[inline(always)]
fn add_and_subtract<const N: usize>(rows: &mut [f32], width: usize) {
    let mut distance = 1;
    while distance < N {
        for pair in rows.chunks_exact_mut(2 * distance * width) {
            let (low, high) = pair.split_at_mut(distance * width);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        distance *= 2;
    }
}

/// Transforms [`TOGETHER`] contiguous elements in blocks of fewer.
#[inline(always)]
fn transform_together(run: &mut [f32], factors: &[f32], block: usize) {
    match block {
        16 => transform_contiguous::<16, TOGETHER>(run, factors),
        _ => transform_contiguous::<32, TOGETHER>(run, factors),
    }
}

/// Transforms `M` contiguous elements in blocks of `N`.
#[inline(always)]
fn transform_contiguous<const N: usize, const M: usize>(run: &mut [f32], factors: &[f32]) {
    let mut x = [0.0; M];
    for (x, (y, factor)) in x.iter_mut().zip(run.iter().zip(factors)) {
        *x = y * factor;
    }
    // Each step takes neighbours and moves the lowest bit of an index to the top. So the next step has the next distance for
    // neighbours. After the last step each element has its old index.
    for step in 0..M.ilog2() {
        let mut y = [0.0; M];
        let (low, high) = y.split_at_mut(M / 2);
        for ((low, high), pair) in low.iter_mut().zip(high).zip(x.chunks_exact(2)) {
            (*low, *high) = match step < N.ilog2() {
                true => (pair[0] + pair[1], pair[0] - pair[1]),
                // Neighbours are of different blocks.
                false => (pair[0], pair[1]),
            };
        }
        x = y;
    }
    run.copy_from_slice(&x);
}
