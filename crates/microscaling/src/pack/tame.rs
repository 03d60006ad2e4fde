//! Codes of ordinary blocks, whose largest magnitude is neither very large nor very small: few operations on the numbers that
//! they are rounded to, in place of those that [`BlockCodec::code`](super::codes::BlockCodec::code) takes for any block.

use super::places::Places;
use crate::quantize::block_rule::{BlockRule, Words};
use crate::quantize::rules::{BfpRule, Grid, MicroexponentRule, MxRule, Nvfp4Rule, ScalePair};
use crate::round::RoundingRule;
use crate::round::bits::{ABS, BIAS, MANTISSA_BITS, ONE, SIGN};
use crate::{BfpFormat, ElementFormat, MicroexponentFormat, MxFormat, Nvfp4Format};

/// A block format as codes, of blocks that are [tame](BlockRule::tame) by its rule. The other ones are for the
/// [`BlockCodec`](super::codes::BlockCodec), which is the specification of these, too.
pub(crate) trait TameCodec: Copy + Sync {
    type Rule: BlockRule;

    /// Whether blocks of so many elements are packed together: those that formats have. Each is a loop of its own.
    const OF_8: bool = false;
    /// The same of sixteen.
    const OF_16: bool = false;
    /// The same of thirty-two.
    const OF_32: bool = false;

    fn rule(&self) -> Self::Rule;

    /// The first byte of a block's record, and its [`tame_grid`](BlockRule::tame_grid); where there are sub-blocks, that is
    /// nobody's. The maxima are the largest magnitude, and what a second look at the block says.
    fn block(&self, maxima: [u32; 2]) -> (u8, [u32; 2]);

    /// The code of an element. `draw` matters only to a rule that uses draws.
    fn code<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32, draw: u32) -> u32;
}

/// An element of a tame block with a scale that is a power of two, rounded; given 2^emin and the largest number as patterns.
#[inline(always)]
fn round<G: BlockRule<Grid = Grid>, R: RoundingRule>(
    block_rule: G,
    grid: [u32; 2],
    rule: R,
    x: f32,
    draw: u32,
) -> u32 {
    let rounded = if R::USES_DRAWS {
        block_rule.round(Grid::of_tame(grid), rule, x, draw)
    } else {
        block_rule.round_tame(grid, rule, x)
    };
    rounded.to_bits()
}

/// MX blocks.
#[derive(Clone, Copy)]
pub(crate) struct TameMx<const RMS: bool> {
    rule: MxRule<RMS>,
    places: Places,
    /// The record of a block of zeros.
    zeros: u8,
}

impl<const RMS: bool> TameMx<RMS> {
    pub(crate) fn of(format: &MxFormat) -> Self {
        let rule = MxRule::<RMS>::of(format);
        let (exponent, _) = rule.scale([0, rule.verdict(0, 0, 1)]);
        Self {
            rule,
            places: Places::of_element(format.element),
            zeros: (exponent + BIAS) as u8,
        }
    }
}

impl<const RMS: bool> TameCodec for TameMx<RMS> {
    type Rule = MxRule<RMS>;

    const OF_16: bool = !RMS;
    const OF_32: bool = true;

    #[inline(always)]
    fn rule(&self) -> Self::Rule {
        self.rule
    }

    #[inline(always)]
    fn block(&self, [amax, verdict]: [u32; 2]) -> (u8, [u32; 2]) {
        let least = self.rule.tame().start;
        let grid = self.rule.tame_grid(amax.max(least), verdict);
        let scale = (grid[0] >> MANTISSA_BITS) as i32 - self.rule.row.emin;
        (if amax == 0 { self.zeros } else { scale as u8 }, grid)
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32, draw: u32) -> u32 {
        let rounded = round(self.rule, grid, rule, x, draw);
        self.places.code(grid[0], rounded)
    }
}

/// BFP blocks.
#[derive(Clone, Copy)]
pub(crate) struct TameBfp {
    rule: BfpRule,
    places: Places,
}

impl TameBfp {
    pub(crate) fn of(format: &BfpFormat) -> Self {
        Self {
            rule: BfpRule::of(format),
            places: Places::of_fixed_point(format.mantissa_bits()),
        }
    }
}

impl TameCodec for TameBfp {
    type Rule = BfpRule;

    const OF_8: bool = true;
    const OF_16: bool = true;

    #[inline(always)]
    fn rule(&self) -> Self::Rule {
        self.rule
    }

    #[inline(always)]
    fn block(&self, [amax, second]: [u32; 2]) -> (u8, [u32; 2]) {
        let least = self.rule.tame().start;
        let grid = self.rule.tame_grid(amax.max(least), second);
        ((amax >> MANTISSA_BITS) as u8, grid)
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32, draw: u32) -> u32 {
        let rounded = round(self.rule, grid, rule, x, draw);
        self.places.code(grid[0], rounded)
    }
}

/// Microexponents.
#[derive(Clone, Copy)]
pub(crate) struct TameMicroexponent {
    rule: MicroexponentRule,
    places: Places,
}

impl TameMicroexponent {
    pub(crate) fn of(format: &MicroexponentFormat) -> Self {
        Self {
            rule: MicroexponentRule::of(format),
            places: Places::of_fixed_point(format.mantissa_bits()),
        }
    }
}

impl TameCodec for TameMicroexponent {
    type Rule = MicroexponentRule;

    const OF_16: bool = true;

    #[inline(always)]
    fn rule(&self) -> Self::Rule {
        self.rule
    }

    #[inline(always)]
    fn block(&self, [amax, _]: [u32; 2]) -> (u8, [u32; 2]) {
        ((amax >> MANTISSA_BITS) as u8, [0; 2])
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32, draw: u32) -> u32 {
        let rounded = round(self.rule, grid, rule, x, draw);
        self.places.code(grid[0], rounded)
    }
}

/// NVFP4 with a [large](crate::quantize::rules::is_large) tensor scale.
#[derive(Clone, Copy)]
pub(crate) struct TameNvfp4<const FOUR: bool> {
    rule: Nvfp4Rule<false, FOUR>,
}

/// The elements of NVFP4.
pub(crate) const FP4: Places = Places::of_element(ElementFormat::Fp4E2M1);

impl<const FOUR: bool> TameNvfp4<FOUR> {
    pub(crate) fn of(format: &Nvfp4Format, tensor_scale: f32) -> Self {
        Self {
            rule: Nvfp4Rule::of(format, tensor_scale),
        }
    }
}

impl<const FOUR: bool> TameCodec for TameNvfp4<FOUR> {
    type Rule = Nvfp4Rule<false, FOUR>;

    const OF_16: bool = true;

    #[inline(always)]
    fn rule(&self) -> Self::Rule {
        self.rule
    }

    #[inline(always)]
    fn block(&self, [amax, verdict]: [u32; 2]) -> (u8, [u32; 2]) {
        let code = self.rule.block_scale_code([amax, verdict]);
        (code, self.rule.tame_grid(amax, verdict))
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32, draw: u32) -> u32 {
        let grid = ScalePair::of(grid);
        let unit = self.rule.round_unit(grid, rule, x.to_bits() & ABS, draw);
        FP4.code(ONE, (x.to_bits() & SIGN) | unit)
    }
}
