//! Blocks that lie in a tile as they are: from the operand, or a copy of a piece, into the tile in one go.

use super::panels::{FREE, LINE, SUMMED, Side, TILE, word};
use super::piece_plan::{Piece, PiecePlan};
use super::tiles::{KnownElements, Room, Tiles};
use core::mem::MaybeUninit;
use microscaling::internal::bits::ABS;
use microscaling::internal::{PlainBlocks, PlainRounding, TOGETHER, largest_of_block};
use microscaling::{BlockFormat, RandomStream};
use microscaling_processor::instruction_set::Kernel;
use microscaling_processor::{prefetch, transpose};

const _: () = assert!(FREE == TOGETHER);

/// Significant bits of a bfloat16 number.
const SIGNIFICANT_BITS: u32 = 8;

/// Quantizes whole tiles of 16 times 32 elements, each of which are B blocks, by random numbers if D is true. The work ends at a block
/// that is not ordinary.
pub(super) struct TileBlocks<'a, F, S, const B: usize, const D: bool> {
    pub(super) blocks: PlainBlocks,
    pub(super) rounding: PlainRounding<F, S>,
    /// The elements, line by line along the dense axis.
    pub(super) data: &'a [f32],
    /// Where the piece's part of each matrix begins.
    pub(super) starts: &'a [usize],
    /// How far apart lines begin.
    pub(super) stride: usize,
    pub(super) draws: TileDraws<'a>,
    pub(super) plan: &'a PiecePlan,
    pub(super) piece: &'a Piece,
    pub(super) tiles: Tiles,
    pub(super) seen: &'a mut KnownElements,
    /// Set if all of the piece was worked on.
    pub(super) done: &'a mut bool,
}

/// The blocks of a format in a tensor with this scale, if there is a tile of them: one in 32 elements if scales are powers of two, else two.
pub(super) fn tile_blocks(format: &BlockFormat, tensor_scale: Option<f32>) -> Option<PlainBlocks> {
    let blocks = PlainBlocks::of(format, tensor_scale)?;
    let length = match blocks.has_powers_of_two() {
        true => SUMMED,
        false => SUMMED / 2,
    };
    let is_exact = format.significant_bits() <= SIGNIFICANT_BITS;
    (format.group_size() == length && is_exact).then_some(blocks)
}

impl<F, S, const B: usize, const D: bool> Kernel for TileBlocks<'_, F, S, B, D>
where
    F: Fn(f32, [u32; 2], u32) -> u32 + Copy,
    S: Fn(u32) -> u32 + Copy,
{
    #[inline(always)]
    fn run(self) {
        let (plan, piece) = (self.plan, self.piece);
        // By value: loops without branches need their numbers in registers.
        let plain_blocks = self.blocks;
        let blocks = BlockRounding::<F, S, B> {
            blocks: &plain_blocks,
            rounding: self.rounding,
        };
        let mut bounds = Bounds {
            least: [u32::MAX; TOGETHER],
            most: [0; TOGETHER],
        };
        let (across, along) = (piece.free.len() / FREE, piece.summed.len() / SUMMED);
        let room = |matrix, i, j| {
            let (free, summed) = (piece.free.start / FREE + i, piece.summed.start / SUMMED + j);
            // SAFETY: pieces begin at tiles' beginnings, so that the tile is in this piece alone; the panels outlive the work
            // on them.
            let tile = unsafe { self.tiles.room(matrix, free, summed) };
            prefetch(tile.as_ptr().cast(), TILE);
            tile
        };
        let starts = self.starts.iter().zip(self.draws.starts);
        for (matrix, (start, place)) in piece.matrices.clone().zip(starts) {
            let data = &self.data[*start..];
            if plan.rows {
                for (i, j) in (0..across).flat_map(|i| (0..along).map(move |j| (i, j))) {
                    let data = &data[i * FREE * self.stride + j * SUMMED..];
                    let lines = TileLines::new(data, self.stride);
                    let draws = self.draws.tile::<D, FREE>(*place, i * FREE, j * SUMMED);
                    let tile = room(matrix, i, j);
                    let Some(tile) = blocks.rows::<D>(lines, &draws, tile, &mut bounds) else {
                        return;
                    };
                    if plan.side == Side::Rhs {
                        transpose(tile);
                    }
                }
            } else {
                let firsts = (0..across).step_by(ACROSS);
                for (i, j) in (0..along).flat_map(|j| firsts.clone().map(move |i| (i, j))) {
                    let data = &data[j * SUMMED * self.stride + i * FREE..];
                    let mut maxima = [[[0; TOGETHER]; B]; ACROSS];
                    let maxima = &mut maxima[..ACROSS.min(across - i)];
                    let mut copies = Copies(MaybeUninit::uninit());
                    let tiles = copies.gather(data, self.stride, maxima);
                    for (k, (lines, maxima)) in tiles.iter().zip(maxima).enumerate() {
                        let (line, at) = (j * SUMMED, (i + k) * FREE);
                        let draws = self.draws.tile::<D, SUMMED>(*place, line, at);
                        let tile = room(matrix, i + k, j);
                        let Some(tile) = blocks.columns(lines, maxima, &draws, tile, &mut bounds)
                        else {
                            return;
                        };
                        if plan.side == Side::Lhs {
                            transpose(tile);
                        }
                    }
                }
            }
        }
        bounds.add_to(self.seen);
        *self.done = true;
    }
}

/// The random numbers of the elements of a piece, which follow from their places in the tensor.
pub(super) struct TileDraws<'a> {
    pub(super) stream: RandomStream,
    /// Where the piece's part of each matrix begins.
    pub(super) starts: &'a [usize],
    /// How far apart lines begin.
    pub(super) stride: usize,
}

impl TileDraws<'_> {
    /// The words of a tile, if D is true. The tile begins at this line of a matrix's part, and at this place in the line. The order is: the
    /// first sixteen words of all lines, then the next sixteen. LINES is a constant, because the loops over words are vectors only then.
    #[inline(always)]
    fn tile<const D: bool, const LINES: usize>(
        &self,
        start: usize,
        line: usize,
        at: usize,
    ) -> [[u32; FREE]; SUMMED] {
        let mut words = [[0; FREE]; SUMMED];
        if D {
            let first = (start + line * self.stride + at) as u64;
            for (half, place) in words.chunks_exact_mut(LINES).zip((first..).step_by(FREE)) {
                self.stream.fill_rows(place, self.stride as u64, half);
            }
        }
        words
    }
}

/// How the blocks of a tile are quantized.
struct BlockRounding<'a, F, S, const B: usize> {
    blocks: &'a PlainBlocks,
    rounding: PlainRounding<F, S>,
}

impl<F, S, const B: usize> BlockRounding<'_, F, S, B>
where
    F: Fn(f32, [u32; 2], u32) -> u32 + Copy,
    S: Fn(u32) -> u32 + Copy,
{
    /// The scales of blocks with these largest magnitudes, and their reciprocals, if all are ordinary. The bounds then hold for these
    /// blocks, too.
    #[inline(always)]
    fn pairs(
        &self,
        maxima: &[[u32; TOGETHER]; B],
        bounds: &mut Bounds,
    ) -> Option<[[[u32; TOGETHER]; 2]; B]> {
        let mut all = [[[0; TOGETHER]; 2]; B];
        let PlainRounding { round, smallest } = self.rounding;
        for (pairs, maxima) in all.iter_mut().zip(maxima) {
            *pairs = self.blocks.pairs(maxima)?;
            let [scales, inverses] = &*pairs;
            for i in 0..TOGETHER {
                let least = smallest(scales[i]);
                let least = if maxima[i] == 0 { u32::MAX } else { least };
                bounds.least[i] = bounds.least[i].min(least);
                // Rounding keeps the order of magnitudes, and the largest draw rounds up.
                let pair = [scales[i], inverses[i]];
                let most = round(f32::from_bits(maxima[i]), pair, u32::MAX);
                bounds.most[i] = bounds.most[i].max(most);
            }
        }
        Some(all)
    }

    /// Blocks that are rows of the data, with the draws of the first half of each row, then of the second, if D is true. Returns the
    /// tile if all blocks are ordinary.
    #[inline(always)]
    fn rows<'t, const D: bool>(
        &self,
        lines: TileLines<'_, FREE, SUMMED>,
        draws: &[[u32; FREE]; SUMMED],
        tile: Room<'t>,
        bounds: &mut Bounds,
    ) -> Option<Tile<'t>> {
        let mut maxima = [[0; TOGETHER]; B];
        for i in 0..FREE {
            let line = lines.line(i);
            if B == 1 {
                maxima[0][i] = largest_of_block(line);
            } else {
                let halves = line.as_chunks::<FREE>().0;
                for (maxima, half) in maxima.iter_mut().zip(halves) {
                    maxima[i] = largest_of_block(half);
                }
            }
        }
        let pairs = &self.pairs(&maxima, bounds)?;
        let round = self.rounding.round;
        Some(written(
            tile,
            #[inline(always)]
            move |i| {
                let row = lines.line(i);
                let pair = |at: usize| {
                    let [scales, inverses] = &pairs[at * B / SUMMED];
                    [scales[i], inverses[i]]
                };
                let mut bits = [0; SUMMED];
                if D || B > 1 {
                    let (halves, _) = bits.as_chunks_mut::<FREE>();
                    let row = row.as_chunks::<FREE>().0;
                    for (k, (bits, row)) in halves.iter_mut().zip(row).enumerate() {
                        let (draws, pair) = (&draws[k * FREE + i], pair(k * FREE));
                        for j in 0..FREE {
                            bits[j] = round(row[j], pair, draws[j]);
                        }
                    }
                } else {
                    let pair = pair(0);
                    for j in 0..SUMMED {
                        bits[j] = round(row[j], pair, 0);
                    }
                }
                let mut words = [0; LINE];
                for p in 0..LINE {
                    words[p] = word(bits[2 * p], bits[2 * p + 1]);
                }
                words
            },
        ))
    }

    /// Blocks that are columns of the data, with their largest magnitudes, and their draws. Returns the tile if all are ordinary.
    #[inline(always)]
    fn columns<'t>(
        &self,
        lines: &[[f32; FREE]; SUMMED],
        maxima: &[[u32; TOGETHER]; B],
        draws: &[[u32; FREE]; SUMMED],
        tile: Room<'t>,
        bounds: &mut Bounds,
    ) -> Option<Tile<'t>> {
        let pairs = self.pairs(maxima, bounds)?;
        let round = self.rounding.round;
        Some(written(
            tile,
            #[inline(always)]
            move |p| {
                let [even, odd] = [&lines[2 * p], &lines[2 * p + 1]];
                let [even_draws, odd_draws] = [&draws[2 * p], &draws[2 * p + 1]];
                let [scales, inverses] = &pairs[2 * p * B / SUMMED];
                let mut bits = [[0; FREE]; 2];
                for j in 0..FREE {
                    bits[0][j] = round(even[j], [scales[j], inverses[j]], even_draws[j]);
                }
                for j in 0..FREE {
                    bits[1][j] = round(odd[j], [scales[j], inverses[j]], odd_draws[j]);
                }
                let mut words = [0; LINE];
                for j in 0..FREE {
                    words[j] = word(bits[0][j], bits[1][j]);
                }
                words
            },
        ))
    }
}

/// Tiles that are copied together: as many as lie next to each other in a piece.
const ACROSS: usize = 16;
/// Rows that are copied together.
const ROWS: usize = 8;

/// Room for copies of tiles whose blocks are columns.
#[repr(align(64))]
struct Copies(MaybeUninit<[[[f32; FREE]; SUMMED]; ACROSS]>);

impl Copies {
    /// Copies as many tiles as there are maxima, which are of zeros before, and of the tiles' blocks afterwards. Rows that are far apart
    /// push each other out of the nearest cache, so that all are read once, in stretches as long as possible.
    #[inline(always)]
    fn gather<const B: usize>(
        &mut self,
        data: &[f32],
        stride: usize,
        maxima: &mut [[[u32; TOGETHER]; B]],
    ) -> &[[[f32; FREE]; SUMMED]] {
        assert!(maxima.len() <= ACROSS);
        let copies: *mut [[f32; FREE]; SUMMED] = self.0.as_mut_ptr().cast();
        for first in (0..SUMMED).step_by(ROWS) {
            for (i, maxima) in maxima.iter_mut().enumerate() {
                let rows = TileLines::<ROWS, FREE>::new(&data[first * stride + i * FREE..], stride);
                // In registers, as a copy.
                let maxima = &mut maxima[first * B / SUMMED];
                let mut most = *maxima;
                for k in 0..ROWS {
                    let row = *rows.line(k);
                    // SAFETY: there is room for this tile, and a tile has this line.
                    unsafe { (&raw mut (*copies.add(i))[first + k]).write(row) };
                    for j in 0..FREE {
                        most[j] = most[j].max(row[j].to_bits() & ABS);
                    }
                }
                *maxima = most;
            }
        }
        // SAFETY: all lines of these tiles are written.
        unsafe { core::slice::from_raw_parts(copies, maxima.len()) }
    }
}

type Tile<'a> = &'a mut [u32; TILE];

/// A tile with the words of 16 lines.
#[inline(always)]
fn written(tile: Room<'_>, line: impl Fn(usize) -> [u32; LINE]) -> Tile<'_> {
    for (i, room) in tile.iter_mut().enumerate() {
        room.write(line(i));
    }
    // SAFETY: all lines are written.
    unsafe { &mut *tile.as_mut_ptr().cast() }
}

/// C lines of N elements.
struct TileLines<'a, const C: usize, const N: usize> {
    data: &'a [f32],
    /// How far apart they begin.
    stride: usize,
}

impl<'a, const C: usize, const N: usize> TileLines<'a, C, N> {
    #[inline(always)]
    fn new(data: &'a [f32], stride: usize) -> Self {
        assert!((C - 1) * stride + N <= data.len(), "a tile is whole");
        Self { data, stride }
    }

    #[inline(always)]
    fn line(&self, i: usize) -> &'a [f32; N] {
        assert!(i < C);
        // SAFETY: the last line ends where the data does, or before.
        unsafe { &*self.data.as_ptr().add(i * self.stride).cast() }
    }
}

/// Bounds of the quantized elements' magnitudes, as patterns, lane by lane.
struct Bounds {
    /// No more than the smallest one but zero.
    least: [u32; TOGETHER],
    /// The largest one.
    most: [u32; TOGETHER],
}

impl Bounds {
    #[inline(always)]
    fn add_to(self, seen: &mut KnownElements) {
        for i in 0..TOGETHER {
            seen.least = seen.least.min(self.least[i].wrapping_sub(1));
            seen.most = seen.most.max(self.most[i]);
        }
    }
}
