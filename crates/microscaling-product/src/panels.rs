//! Operands in memory.

use alloc::vec::Vec;
use core::ops::Range;
use microscaling::internal::bits::{ABS, INFINITY};
use microscaling_processor::float_state::ieee;
use microscaling_processor::keep_freed_memory;

/// Elements along the free axis in a tile.
pub(super) const FREE: usize = 16;
/// Elements along the summed axis in a tile.
pub(super) const SUMMED: usize = 32;
/// Pairs along the summed axis in a tile.
pub(super) const PAIRS: usize = SUMMED / 2;
/// Words of a tile: pairs of bfloat16, the element with the even index in the low half.
pub(super) const TILE: usize = FREE * PAIRS;
/// Elements along the summed axis that are added up before they are added to the others' sum.
pub(super) const BLOCK: usize = 512;

/// Which operand of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The left one: its free axis is the rows, and its columns are summed over.
    Lhs,
    /// The right one: its free axis is the columns, and its rows are summed over.
    Rhs,
}

impl core::fmt::Display for Side {
    /// `left`, `right`
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Lhs => "left",
            Self::Rhs => "right",
        })
    }
}

/// Words of a cache line, which is what a tile's rows are, and where tiles begin.
pub(super) const LINE: usize = 16;

/// One operand of a matrix product, or of several ones: matrices of bfloat16 in the order in which the kernels read
/// them, made by [`Panels::quantize`] or [`Panels::from_lines`].
///
/// A matrix is cut into tiles of 16 elements along its free axis and 32 along the summed axis, tile after tile along the
/// summed axis. Zeros fill the last tiles. A tile of a left operand has its elements row by row, a tile of a right
/// operand pair of rows by pair of rows. A tensor scale is beside them.
///
/// Where the allocator is glibc's, the first panels of a process let it keep up to 64 MiB of freed memory, so that the next ones need no
/// new pages. The environment variables `MALLOC_TRIM_THRESHOLD_` and `MALLOC_MMAP_THRESHOLD_` still decide.
///
/// ```
/// use microscaling::{OperandQuantization, Rounding};
/// use microscaling_product::{Axis, Matrices, Panels, Side};
///
/// let mxfp8 = OperandQuantization {
///     blocks: Some(("mxfp8_e4m3".parse()?, Rounding::NearestEven)),
///     ..OperandQuantization::default()
/// };
/// let operand = |side, data, free: Axis, summed: Axis| {
///     let group = summed.length;
///     Panels::quantize(side, Matrices { data, starts: &[0], free, summed, group }, mxfp8)
/// };
/// let axis = |length, stride| Axis { length, stride };
/// let lhs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // 2 × 3
/// let rhs = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]; // 3 × 2
/// let lhs = operand(Side::Lhs, &lhs, axis(2, 3), axis(3, 1))?;
/// let rhs = operand(Side::Rhs, &rhs, axis(2, 1), axis(3, 2))?;
/// let mut product = [0.0; 4];
/// Panels::multiply(&lhs, &rhs, &[(0, 0)], &mut product)?;
/// assert_eq!(product, [4.0, 5.0, 10.0, 11.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Panels {
    pub(super) side: Side,
    pub(super) matrices: usize,
    pub(super) free: usize,
    pub(super) summed: usize,
    /// The tiles, from the first cache line on that begins here. Empty if there are none.
    words: Vec<u32>,
    /// At most the pattern of the [smallest](Self::smallest) magnitude.
    pub(super) least: u32,
    /// The pattern of the largest magnitude, as float32: of a NaN or Inf if there is one, 0 if all are zero.
    pub(super) most: u32,
    /// By what all elements are to be multiplied: a tensor scale, or 1.
    pub(super) scale: f32,
}

impl Panels {
    /// Panels of this number of matrices, with free and summed axes of these lengths. Panels with elements have
    /// [room](Self::room) for their tiles, which are to be written.
    ///
    /// # Panics
    /// If the panels are larger than all memory.
    pub(super) fn with_room(side: Side, lengths: [usize; 3]) -> Self {
        let [matrices, free, summed] = lengths;
        let mut panels = Self {
            side,
            matrices,
            free,
            summed,
            words: Vec::new(),
            least: INFINITY,
            most: 0,
            scale: 1.0,
        };
        if !lengths.contains(&0) {
            keep_freed_memory();
            panels.words.reserve_exact(panels.length() + LINE - 1);
        }
        panels
    }

    /// Words of all tiles.
    fn length(&self) -> usize {
        // The kernels go by pointers: a length that wraps around must not get as far as there.
        [self.matrices, self.free_tiles(), self.summed_tiles()]
            .into_iter()
            .try_fold(TILE, usize::checked_mul)
            .expect("panels larger than all memory")
    }

    /// Where the tiles of panels with elements are to be written.
    pub(super) fn room(&mut self) -> *mut u32 {
        let start = self.words.as_ptr().align_offset(LINE * size_of::<u32>());
        self.words.as_mut_ptr().wrapping_add(start)
    }

    /// Takes up the tiles that were written to the [room](Self::room).
    ///
    /// # Safety
    /// The panels must have elements, and all tiles must be written.
    pub(super) unsafe fn set_filled(&mut self) {
        let length = self.length();
        let first = self.room();
        // SAFETY: the memory is longer than the tiles by a cache line less a word, which lies before and behind them.
        unsafe {
            let start = first.offset_from_unsigned(self.words.as_ptr());
            self.words.as_mut_ptr().write_bytes(0, start);
            first.add(length).write_bytes(0, LINE - 1 - start);
            self.words.set_len(length + LINE - 1);
        }
    }

    /// The same elements with this common factor, which multiplies a product once.
    pub fn with_tensor_scale(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }

    /// Which operand the panels are.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Number of matrices.
    pub fn matrices(&self) -> usize {
        self.matrices
    }

    /// Length of each matrix's free axis: the rows of a left operand, the columns of a right one.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Length of each matrix's summed axis.
    pub fn summed(&self) -> usize {
        self.summed
    }

    /// Bytes that the elements take.
    pub fn bytes(&self) -> usize {
        size_of_val(self.words())
    }

    /// Tiles along the free axis of a matrix.
    pub(super) fn free_tiles(&self) -> usize {
        self.free.div_ceil(FREE)
    }

    /// Tiles along the summed axis.
    pub(super) fn summed_tiles(&self) -> usize {
        self.summed.div_ceil(SUMMED)
    }

    /// All tiles as words.
    pub(super) fn words(&self) -> &[u32] {
        let start = self.words.as_ptr().align_offset(LINE * size_of::<u32>());
        match self.words.len() {
            0 => &[],
            length => &self.words[start..start + length - (LINE - 1)],
        }
    }

    /// The pattern of the smallest magnitude but zero, as float32; infinity if all are zero.
    pub(super) fn smallest(&self) -> u32 {
        let elements = self.words().iter().flat_map(|word| halves(*word));
        let magnitudes = elements.map(|x| x.to_bits() & ABS);
        magnitudes.filter(|bits| *bits > 0).fold(INFINITY, u32::min)
    }

    /// Position among the words of a tile.
    pub(super) fn tile(&self, matrix: usize, free: usize, summed: usize) -> usize {
        ((matrix * self.free_tiles() + free) * self.summed_tiles() + summed) * TILE
    }

    /// The values of one matrix, row by row: `[free, summed]` for a left operand, `[summed, free]` for a right operand. Every
    /// NaN is [`f32::NAN`].
    ///
    /// # Panics
    /// If `matrix` is out of range, or `values` is not as long as a matrix.
    pub fn read(&self, matrix: usize, values: &mut [f32]) {
        assert!(
            matrix < self.matrices,
            "matrix {matrix} of {}",
            self.matrices
        );
        assert_eq!(values.len(), self.free * self.summed, "the matrix's values");
        let words = self.words();
        ieee(|| {
            for free in 0..self.free {
                for summed in 0..self.summed {
                    let tile = &words[self.tile(matrix, free / FREE, summed / SUMMED)..][..TILE];
                    let (row, pair) = (free % FREE, summed % SUMMED / 2);
                    let (word, at) = match self.side {
                        Side::Lhs => (tile[row * PAIRS + pair], free * self.summed + summed),
                        Side::Rhs => (tile[pair * FREE + row], summed * self.free + free),
                    };
                    let value = halves(word)[summed % 2] * self.scale;
                    values[at] = if value.is_nan() { f32::NAN } else { value };
                }
            }
        });
    }

    /// The blocks along the summed axis, in tiles.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let tiles = self.summed_tiles();
        let block = BLOCK / SUMMED;
        (0..tiles)
            .step_by(block)
            .map(move |start| start..tiles.min(start + block))
    }
}

impl core::fmt::Debug for Panels {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Panels")
            .field("side", &self.side)
            .field("matrices", &self.matrices)
            .field("free", &self.free)
            .field("summed", &self.summed)
            .finish_non_exhaustive()
    }
}

impl core::fmt::Display for Panels {
    /// `4 left operands [free 512, summed 32]`
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            side,
            matrices,
            free,
            summed,
            ..
        } = self;
        write!(
            f,
            "{matrices} {side} operands [free {free}, summed {summed}]"
        )
    }
}

/// The two numbers of a word.
#[inline(always)]
pub(super) fn halves(word: u32) -> [f32; 2] {
    [word << 16, word & 0xffff_0000].map(f32::from_bits)
}

/// Two numbers whose low halves are zero as a word.
#[inline(always)]
pub(super) fn word(even: u32, odd: u32) -> u32 {
    (even >> 16) | (odd & 0xffff_0000)
}
