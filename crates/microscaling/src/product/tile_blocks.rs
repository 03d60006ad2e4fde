//! Blocks that lie in a tile as they are: from the operand, or a copy of a piece, into the tile in one go.

use super::fill::{Seen, Tiles};
use super::panels::{FREE, PAIRS, SUMMED, Side, TILE, word};
use super::pieces::{Piece, Plan};
use super::transpose::transpose;
use crate::processor::instruction_set::Kernel;
use crate::quantize::blocks::contiguous::largest_of_block;
use crate::quantize::rules::{BlockRule, ElementRule, TOGETHER, UnitElement};
use crate::round::bits::ABS;
use core::hint::black_box;

const _: () = assert!(FREE == TOGETHER);

/// Quantizes whole tiles, each of 16 blocks of 32 elements whose scales are powers of two. The work ends at a block that is not
/// [tame](BlockRule::tame).
pub(super) struct TileBlocks<'a, R> {
    pub(super) rule: &'a BlockRule,
    pub(super) element_rule: R,
    /// The elements, line by line along the dense axis.
    pub(super) data: &'a [f32],
    /// Where the piece's part of each matrix begins.
    pub(super) starts: &'a [usize],
    /// How far apart lines begin.
    pub(super) stride: usize,
    pub(super) plan: &'a Plan,
    pub(super) piece: &'a Piece,
    pub(super) tiles: Tiles,
    pub(super) seen: &'a mut Seen,
    /// Set if all of the piece was worked on.
    pub(super) done: &'a mut bool,
}

impl BlockRule {
    /// Whether [`TileBlocks`] are blocks of this rule, of this length.
    pub(super) fn has_tile_blocks(&self, block: usize) -> bool {
        block == SUMMED
            && self.has_powers_of_two()
            && !self.has_sub_blocks(block)
            && !self.looks_twice()
    }
}

impl<R: ElementRule> Kernel for TileBlocks<'_, R> {
    #[inline(always)]
    fn run(self) {
        let (plan, piece) = (self.plan, self.piece);
        // By value: loops without branches need what they look at in registers.
        let rule = *self.rule;
        let blocks = Blocks {
            rule: &rule,
            element_rule: self.element_rule,
            element: rule.unit_element(),
            stride: self.stride,
        };
        let mut seen = Lanes::new();
        let (first_free, first_summed) = (piece.free.start / FREE, piece.summed.start / SUMMED);
        for (matrix, start) in piece.matrices.clone().zip(self.starts) {
            for i in 0..piece.free.len() / FREE {
                for j in 0..piece.summed.len() / SUMMED {
                    let at = match plan.rows {
                        true => i * FREE * self.stride + j * SUMMED,
                        false => j * SUMMED * self.stride + i * FREE,
                    };
                    let lines = &self.data[start + at..];
                    // SAFETY: pieces begin at tiles' beginnings, so that the tile is in this piece alone; the panels
                    // outlive the work on them.
                    let tile = unsafe { self.tiles.tile(matrix, first_free + i, first_summed + j) };
                    let all_tame = match plan.rows {
                        true => blocks.rows(lines, tile, &mut seen),
                        false => blocks.columns(lines, tile, &mut seen),
                    };
                    if !all_tame {
                        return;
                    }
                    if plan.rows != (plan.side == Side::Lhs) {
                        transpose(tile);
                    }
                }
            }
        }
        seen.add_to(self.seen);
        *self.done = true;
    }
}

/// How the blocks of a tile are quantized.
struct Blocks<'a, R> {
    rule: &'a BlockRule,
    element_rule: R,
    element: UnitElement,
    stride: usize,
}

impl<R: ElementRule> Blocks<'_, R> {
    /// The scales of blocks with these largest magnitudes, if all are tame.
    #[inline(always)]
    fn scales(&self, maxima: &[u32; TOGETHER]) -> Option<[u32; TOGETHER]> {
        if !self.rule.are_tame(maxima) {
            return None;
        }
        let mut pairs = [[0; TOGETHER]; 2];
        let words = pairs.each_mut().map(|words| &mut words[..]);
        self.rule.tame_pairs(maxima, maxima, words);
        Some(pairs[0])
    }

    #[inline(always)]
    fn round(&self, x: f32, scale: u32) -> u32 {
        let rule = &self.element_rule;
        rule.tame_unscaled(&self.element, scale, x, 0).to_bits()
    }

    /// Blocks that are rows of the data. Returns whether all are tame, and written.
    #[inline(always)]
    fn rows(&self, data: &[f32], tile: &mut [u32; TILE], seen: &mut Lanes) -> bool {
        let mut maxima = [0; TOGETHER];
        for (i, amax) in maxima.iter_mut().enumerate() {
            *amax = largest_of_block(line::<SUMMED>(data, i * self.stride));
        }
        let Some(scales) = self.scales(&maxima) else {
            return false;
        };
        let (words, _) = tile.as_chunks_mut::<PAIRS>();
        for (i, words) in words.iter_mut().enumerate() {
            let row = line::<SUMMED>(data, i * self.stride);
            let mut bits = [0; SUMMED];
            for j in 0..SUMMED {
                bits[j] = self.round(row[j], scales[i]);
            }
            let (halves, _) = bits.as_chunks::<FREE>();
            seen.see(&halves[0]);
            seen.see(&halves[1]);
            for p in 0..PAIRS {
                words[p] = word(bits[2 * p], bits[2 * p + 1]);
            }
        }
        true
    }

    /// Blocks that are columns of the data. Returns whether all are tame, and written.
    #[inline(always)]
    fn columns(&self, data: &[f32], tile: &mut [u32; TILE], seen: &mut Lanes) -> bool {
        let mut maxima = [0; TOGETHER];
        for i in 0..SUMMED / 4 {
            // Hidden: unrolled, the loop gets vectors of unlike lengths.
            let first = black_box(i) * 4;
            let [a, b, c, d] = [0, 1, 2, 3].map(|k| line::<FREE>(data, (first + k) * self.stride));
            for j in 0..FREE {
                let [a, b, c, d] = [a, b, c, d].map(|row| row[j].to_bits() & ABS);
                maxima[j] = maxima[j].max(a.max(b).max(c.max(d)));
            }
        }
        let Some(scales) = self.scales(&maxima) else {
            return false;
        };
        let (words, _) = tile.as_chunks_mut::<FREE>();
        for (p, words) in words.iter_mut().enumerate() {
            let even = line::<FREE>(data, 2 * p * self.stride);
            let odd = line::<FREE>(data, (2 * p + 1) * self.stride);
            let mut bits = [[0; FREE]; 2];
            for j in 0..FREE {
                bits[0][j] = self.round(even[j], scales[j]);
            }
            for j in 0..FREE {
                bits[1][j] = self.round(odd[j], scales[j]);
            }
            seen.see(&bits[0]);
            seen.see(&bits[1]);
            for j in 0..FREE {
                words[j] = word(bits[0][j], bits[1][j]);
            }
        }
        true
    }
}

/// The beginning of a line.
#[inline(always)]
fn line<const N: usize>(data: &[f32], start: usize) -> &[f32; N] {
    data[start..].first_chunk().expect("a tile is whole")
}

/// [`Seen`], lane by lane.
struct Lanes {
    low: [u32; FREE],
    least: [u32; FREE],
    most: [u32; FREE],
}

impl Lanes {
    #[inline(always)]
    fn new() -> Self {
        let Seen { low, least, most } = Seen::NOTHING;
        Self {
            low: [low; FREE],
            least: [least; FREE],
            most: [most; FREE],
        }
    }

    #[inline(always)]
    fn see(&mut self, bits: &[u32; FREE]) {
        for (i, bits) in bits.iter().enumerate() {
            self.low[i] |= bits;
            self.least[i] = self.least[i].min((bits & ABS).wrapping_sub(1));
            self.most[i] = self.most[i].max(bits & ABS);
        }
    }

    #[inline(always)]
    fn add_to(self, seen: &mut Seen) {
        for i in 0..FREE {
            seen.low |= self.low[i];
            seen.least = seen.least.min(self.least[i]);
            seen.most = seen.most.max(self.most[i]);
        }
    }
}
