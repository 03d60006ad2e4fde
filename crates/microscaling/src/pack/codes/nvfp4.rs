//! NVFP4 blocks as codes.

use super::{BlockCodec, ElementCodes};
use crate::pack::tame::TameNvfp4;
use crate::quantize::block_rule::BlockRule;
use crate::quantize::rules::{Nvfp4Rule, ScalePair};
use crate::round::RoundingRule;
use crate::round::bits::{ABS, INFINITY, NAN, SIGN};
use crate::{ElementFormat, Nvfp4Format};

/// The patterns of all codes of E4M3.
static E4M3: [u32; 256] = {
    let mut patterns = [0; 256];
    let mut code = 0;
    while code < patterns.len() {
        patterns[code] = ElementFormat::Fp8E4M3.decode(code as u32).to_bits();
        code += 1;
    }
    patterns
};

/// NVFP4: a byte of E4M3, then FP4 codes. `TINY` and `FOUR` as in [`Nvfp4Rule`].
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Codec<const TINY: bool, const FOUR: bool> {
    rule: Nvfp4Rule<TINY, FOUR>,
    tensor_scale: u32,
    codes: ElementCodes,
    /// `None` if `TINY`.
    tame: Option<TameNvfp4<FOUR>>,
}

impl<const TINY: bool, const FOUR: bool> Nvfp4Codec<TINY, FOUR> {
    pub(crate) fn of(format: &Nvfp4Format, tensor_scale: f32) -> Self {
        Self {
            rule: Nvfp4Rule::of(format, tensor_scale),
            tensor_scale: tensor_scale.to_bits(),
            codes: ElementCodes::of(ElementFormat::Fp4E2M1),
            tame: (!TINY).then(|| TameNvfp4::of(format, tensor_scale)),
        }
    }
}

impl<const TINY: bool, const FOUR: bool> BlockCodec for Nvfp4Codec<TINY, FOUR> {
    type Scale = ScalePair;
    /// The pattern of the scale, and its sign.
    type Unit = [u32; 2];
    type Tame = TameNvfp4<FOUR>;

    fn tame(&self) -> Option<Self::Tame> {
        self.tame
    }

    #[inline(always)]
    fn second(&self, amax: u32, elements: impl Iterator<Item = f32>) -> Option<u32> {
        FOUR.then(|| self.rule.second(amax, elements))
    }

    #[inline(always)]
    fn scale(&self, maxima: [u32; 2], _: usize, record: &mut [u8]) -> ScalePair {
        record[0] = self.rule.block_scale_code(maxima);
        self.rule.grid(maxima[0], maxima[1])
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, grid: ScalePair, rule: R, x: f32, draw: u32) -> u32 {
        // In a block of NaN x may be NaN or Inf.
        let abs = if grid.is_nan() { 0 } else { x.to_bits() & ABS };
        let unit = self.rule.round_unit(grid, rule, abs, draw);
        let code = self.codes.code((x.to_bits() & SIGN) | unit, 0);
        if grid.is_nan() { 0 } else { code }
    }

    #[inline(always)]
    fn unit(&self, record: &[u8], _: usize) -> [u32; 2] {
        let scale = E4M3[usize::from(record[0])];
        let (sign, abs) = (scale & SIGN, scale & ABS);
        if abs >= INFINITY || self.tensor_scale >= INFINITY {
            return [NAN, 0];
        }
        [
            Nvfp4Rule::<TINY, FOUR>::product(self.tensor_scale, abs),
            sign,
        ]
    }

    #[inline(always)]
    fn value(&self, [scale, sign]: [u32; 2], code: u32) -> f32 {
        let unit = self.codes.value(code, 0).to_bits();
        let factor = if scale >= INFINITY { 0 } else { scale };
        let product = Nvfp4Rule::<TINY, FOUR>::product(unit & ABS, factor);
        // Inf only of a tensor scale that no tensor has; 0 is 0 times anything.
        let infinite = scale >= INFINITY && unit & ABS != 0;
        let magnitude = if infinite { INFINITY } else { product };
        let signed = magnitude | (sign ^ (unit & SIGN));
        f32::from_bits(if scale > INFINITY { NAN } else { signed })
    }
}
