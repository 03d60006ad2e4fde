//! NVFP4 blocks as codes.

use super::{BlockCodec, ElementCodes};
use crate::quantize::rules::{BlockRule, Nvfp4Rule, ScalePair};
use crate::round::RoundingRule;
use crate::round::bits::{self, ABS, INFINITY, NAN, SIGN};
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

/// NVFP4: a byte of E4M3, then FP4 codes.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4Codec {
    rule: BlockRule,
    nvfp4: Nvfp4Rule,
    tensor_scale: u32,
    codes: ElementCodes,
}

impl Nvfp4Codec {
    pub(crate) fn of(format: &Nvfp4Format, tensor_scale: f32) -> Self {
        let nvfp4 = Nvfp4Rule::of(format, tensor_scale);
        Self {
            rule: BlockRule::Nvfp4(nvfp4),
            nvfp4,
            tensor_scale: tensor_scale.to_bits(),
            codes: ElementCodes::of(ElementFormat::Fp4E2M1),
        }
    }
}

impl BlockCodec for Nvfp4Codec {
    type Scale = ScalePair;
    /// The pattern of the scale, and its sign.
    type Unit = [u32; 2];

    #[inline(always)]
    fn rule(&self) -> &BlockRule {
        &self.rule
    }

    fn scale(&self, maxima: [u32; 2], _: usize, record: &mut [u8]) -> ScalePair {
        record[0] = self.nvfp4.block_scale_code(maxima);
        ScalePair::of(self.rule.grid(maxima[0], maxima[1]))
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, pair: ScalePair, x: f32, draw: u32) -> u32 {
        // In a block of NaN x may be NaN or Inf.
        if pair.is_nan() {
            return 0;
        }
        let unit = self.nvfp4.round_unit::<R>(pair, x.to_bits() & ABS, draw);
        self.codes.code((x.to_bits() & SIGN) | unit, 0)
    }

    #[inline(always)]
    fn unit(&self, record: &[u8], _: usize) -> [u32; 2] {
        let scale = E4M3[usize::from(record[0])];
        let (sign, abs) = (scale & SIGN, scale & ABS);
        if abs >= INFINITY || self.tensor_scale >= INFINITY {
            return [NAN, 0];
        }
        [bits::product(self.tensor_scale, abs), sign]
    }

    #[inline(always)]
    fn value(&self, [scale, sign]: [u32; 2], code: u32) -> f32 {
        let unit = self.codes.value(code, 0).to_bits();
        let factor = if scale >= INFINITY { 0 } else { scale };
        let product = bits::product(unit & ABS, factor);
        // Inf only of a tensor scale that no tensor has; 0 is 0 times anything.
        let infinite = scale >= INFINITY && unit & ABS != 0;
        let magnitude = if infinite { INFINITY } else { product };
        let signed = magnitude | (sign ^ (unit & SIGN));
        f32::from_bits(if scale > INFINITY { NAN } else { signed })
    }
}
