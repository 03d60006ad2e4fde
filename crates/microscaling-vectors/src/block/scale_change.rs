//! The scales of blocks by neighbouring rules.

use super::model::{BlockModel, ScaleChange};
use crate::element::input::InputType;
use crate::element::modes::ElementRounding;
use crate::element::rule::ElementRule;
use microscaling::Shifts;

impl BlockModel {
    /// Bytes of a scale's code at the beginning of a block's record.
    fn scale_bytes(&self) -> usize {
        self.format.scale.bits().div_ceil(8) as usize
    }

    /// The shift of an element of a block.
    pub(super) fn shift(&self, record: &[u8], i: usize) -> i32 {
        let Some(Shifts { block_size, bits }) = self.format.shifts else {
            return 0;
        };
        let first = i / block_size * bits as usize;
        let bit = |k: usize| i32::from(record[1 + (first + k) / 8] >> ((first + k) % 8) & 1);
        (0..bits as usize).map(|k| bit(k) << k).sum()
    }

    /// The code of the block's scale; `None` for NaN.
    pub(super) fn scale_code(&self, record: &[u8]) -> Option<u32> {
        let code = record[..self.scale_bytes()]
            .iter()
            .rev()
            .fold(0_u32, |code, byte| code << 8 | u32::from(*byte));
        let is_nan = match (self.format.scale.float(), self.format.has_exponent()) {
            (Some(float), _) => !float.decode(code).is_finite(),
            (None, true) => code == 255,
            (None, false) => !f32::from_bits(code).is_finite(),
        };
        (!is_nan).then_some(code)
    }

    /// Changes the scale of a block with this largest magnitude, in a tensor with this scale.
    pub(super) fn change_scale(
        &self,
        record: &mut [u8],
        (amax, tensor_scale): (f32, Option<f32>),
        change: ScaleChange,
    ) {
        let Some(code) = self.scale_code(record) else {
            return;
        };
        let scales = &mut record[..self.scale_bytes()];
        let is_power = amax > 0.0 && {
            let (significand, _) = microscaling::internal::bits::parts(amax.to_bits());
            significand.is_power_of_two()
        };
        let code = match change {
            ScaleChange::OneMoreAtPowers if is_power => self.shifted(code, amax, 1),
            ScaleChange::OneMoreBetweenPowers if !is_power && amax > 0.0 => {
                self.shifted(code, amax, 1)
            }
            ScaleChange::Shifted(by) if amax > 0.0 => self.shifted(code, amax, by),
            ScaleChange::SubnormalsAsNormal => {
                let normal = self.input.to_f32(1 << self.input.mantissa_bits());
                let length = if self.format.square {
                    self.format.block_size
                } else {
                    1
                };
                let block = vec![normal; length * length];
                let even = ElementRounding::TiesToEven;
                if let Ok(of_normal) = self.packed(&self.format, &block, even)
                    && amax > 0.0
                    && amax < normal
                {
                    scales.copy_from_slice(&of_normal.scales()[..scales.len()]);
                }
                return;
            }
            ScaleChange::Rounded(rounding) => match &self.scale {
                Some(plan) if amax > 0.0 => {
                    let in_units = amax / self.format.largest_unit() / tensor_scale.unwrap_or(1.0);
                    let wanted = in_units * self.format.headroom.value();
                    let lowest = self.format.scale_min();
                    let rule = ElementRule {
                        rounding,
                        ..ElementRule::default()
                    };
                    rule.convert(
                        plan,
                        InputType::Float32.number(wanted.max(lowest).to_bits()),
                        0,
                    )
                }
                _ => code,
            },
            _ => code,
        };
        let changed: Vec<u8> = (0..scales.len())
            .map(|byte| (code >> (8 * byte)) as u8)
            .collect();
        if self.scale_code(&changed).is_some() {
            scales.copy_from_slice(&changed);
        }
    }

    /// A scale's code, by some codes larger. The smallest power of two stands for all smaller ones.
    fn shifted(&self, code: u32, amax: f32, by: i32) -> u32 {
        let lowest = 127 + self.format.scale.emin();
        if self.format.has_exponent() && code as i32 == lowest {
            let wanted = microscaling::internal::bits::exponent(amax.to_bits())
                - self.format.element.emax()
                + 127;
            return (wanted + by).max(lowest) as u32;
        }
        code.saturating_add_signed(by)
    }
}
