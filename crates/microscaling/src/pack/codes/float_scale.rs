//! Blocks whose scale is a float as codes.

use super::bitstream;
use super::{BlockCodec, ElementCodes};
use crate::format::BlockFormat;
use crate::format::element::table::Tables;
use crate::quantize::rules::{BlockRule, FloatScaleRule, Grid, SubScaleRule};
use crate::round::RoundingRule;
use crate::round::bits::{self, ABS, INFINITY, NAN, SIGN};

/// The number that a tensor applies to its blocks' scales, as a pattern.
#[derive(Clone, Copy)]
pub(crate) enum TensorFactor {
    /// The tensor scale.
    Factor(u32),
    /// A number by which scales are divided.
    Divisor(u32),
}

impl TensorFactor {
    pub(crate) const ONE: Self = Self::Factor(bits::ONE);

    /// Times a scale, in IEEE's default state.
    #[inline(always)]
    fn times(self, abs: u32) -> u32 {
        match self {
            Self::Factor(factor) => bits::product(factor, abs),
            Self::Divisor(divisor) => bits::quotient(abs, divisor),
        }
    }

    /// The pattern of the number.
    #[inline(always)]
    const fn pattern(self) -> u32 {
        match self {
            Self::Factor(number) | Self::Divisor(number) => number,
        }
    }
}

/// The bytes of the scale's code, low ones first, then the element's own codes.
#[derive(Clone, Copy)]
pub(crate) struct FloatScaleCodec {
    rule: BlockRule,
    scaled: FloatScaleRule,
    tensor: TensorFactor,
    codes: ElementCodes,
    tables: Option<Tables>,
    /// Bytes of the scale's code.
    scale_bytes: usize,
    /// Bits of the first level of sub-blocks, which come before the bits of the second level.
    first_bits: usize,
}

impl FloatScaleCodec {
    pub(crate) fn of(format: &BlockFormat, tensor: TensorFactor) -> Self {
        // Encoding knows no divisor.
        let factor = match tensor {
            TensorFactor::Factor(factor) => f32::from_bits(factor),
            TensorFactor::Divisor(_) => 1.0,
        };
        let scaled = FloatScaleRule::of(format, factor);
        Self {
            rule: BlockRule::FloatScale(scaled),
            scaled,
            tensor,
            codes: ElementCodes::of(format),
            tables: format.element.as_tables(),
            scale_bytes: format.scale_bits().div_ceil(8) as usize,
            first_bits: format
                .sub_scales
                .map_or(0, |sub_scales| sub_scales.bits(format.block_size)[0]),
        }
    }

    /// The same codec in a tensor with this scale, given as a pattern.
    #[inline(always)]
    pub(super) fn with_tensor_scale(self, tensor_scale: u32) -> Self {
        let scaled = self.scaled.with_tensor_scale(tensor_scale);
        Self {
            rule: BlockRule::FloatScale(scaled),
            scaled,
            tensor: TensorFactor::Factor(tensor_scale),
            ..self
        }
    }

    /// The places of the bits of a sub-block of the second level.
    #[inline(always)]
    fn places(&self, sub_scales: SubScaleRule, index: usize) -> [usize; 2] {
        let [first, second] = sub_scales.blocks;
        [index * second / first, self.first_bits + index]
    }
}

impl BlockCodec for FloatScaleCodec {
    type Scale = Grid;
    /// The pattern of the scale, its sign, and the number of the table.
    type Unit = [u32; 3];

    #[inline(always)]
    fn rule(&self) -> &BlockRule {
        &self.rule
    }

    fn scale(&self, maxima: [u32; 2], index: usize, record: &mut [u8]) -> Grid {
        let grid = self.rule.grid(maxima[0], maxima[1]);
        // Also where only the product with the tensor scale is too large.
        let code = match self.scaled.pair_of(grid).is_nan() {
            true => u64::from(self.scaled.scale.code(NAN)),
            false => self.scaled.block_scale_code(maxima),
        };
        let (of_block, of_parts) = record.split_at_mut(self.scale_bytes);
        of_block.copy_from_slice(&code.to_le_bytes()[..of_block.len()]);
        if let Some(sub_scales) = self.scaled.sub_scales {
            let scale = self.scaled.block_scale_with(maxima[0], 0);
            let doubled = match self.scaled.pair_of(grid).is_nan() {
                true => [false; 2],
                false => sub_scales.doubled(scale, maxima[1]),
            };
            for (place, doubled) in self.places(sub_scales, index).into_iter().zip(doubled) {
                bitstream::put(of_parts, place, 1, u32::from(doubled));
            }
        }
        grid
    }

    #[inline(always)]
    fn code<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> u32 {
        let pair = self.scaled.pair_of(grid);
        // In a block of NaN x may be NaN or Inf.
        if pair.is_nan() {
            return match self.scaled.special_elements {
                true => self.codes.code(NAN, 0),
                false => 0,
            };
        }
        if let Some(tables) = self.tables {
            let table = &tables.0[grid[1] as usize];
            return FloatScaleRule::round_in::<R>(table, pair, x.to_bits(), draw)[1];
        }
        let unit = self.scaled.round_unit::<R>(pair, x.to_bits(), draw);
        self.codes.code(unit, 0)
    }

    #[inline(always)]
    fn unit(&self, record: &[u8], index: usize) -> [u32; 3] {
        let (of_block, of_parts) = record.split_at(self.scale_bytes);
        let joined = of_block
            .iter()
            .rev()
            .fold(0, |code, byte| code << 8 | u64::from(*byte));
        let (code, table) = self.scaled.split(joined);
        let scale = self.scaled.scale.decode(code);
        let (sign, abs) = (scale & SIGN, scale & ABS);
        if abs >= INFINITY || self.tensor.pattern() >= INFINITY {
            return [NAN, 0, 0];
        }
        let abs = match self.scaled.sub_scales {
            Some(sub_scales) => {
                let doubled = self.places(sub_scales, index);
                let doubled = doubled.map(|place| bitstream::get(of_parts, place, 1) == 1);
                SubScaleRule::times(abs, doubled)
            }
            None => abs,
        };
        [self.tensor.times(abs), sign, table]
    }

    #[inline(always)]
    fn value(&self, [scale, sign, table]: [u32; 3], code: u32) -> f32 {
        let unit = match self.tables {
            Some(tables) => tables.0[table as usize].number(code),
            None => self.codes.value(code, 0),
        };
        // Codes of NaN and Inf: 0 times Inf is NaN.
        if unit & ABS >= INFINITY {
            let is_nan = unit & ABS > INFINITY || scale == 0 || scale > INFINITY;
            let infinity = INFINITY | (sign ^ (unit & SIGN));
            return f32::from_bits(if is_nan { NAN } else { infinity });
        }
        let factor = if scale >= INFINITY { 0 } else { scale };
        let product = bits::product(unit & ABS, factor);
        // Inf only of a tensor scale that no tensor has; 0 is 0 times anything.
        let infinite = scale >= INFINITY && unit & ABS != 0;
        let magnitude = if infinite { INFINITY } else { product };
        let signed = magnitude | (sign ^ (unit & SIGN));
        f32::from_bits(if scale > INFINITY { NAN } else { signed })
    }
}
