//! Blocks that are full of ties.

use super::inputs::BlockMaker;
use crate::element::format::{CodeFormat, CodePlan};
use crate::element::modes::ElementRounding;

/// Blocks that are full of ties.
const OF_TIES: usize = 64;
/// Such blocks of formats that the library alone knows: a search finds each tie.
const OF_FOUND_TIES: usize = 16;
/// Elements of such a block that become ties.
const FOUND_TIES: usize = 8;

impl BlockMaker<'_> {
    /// Elements half-way between two codes, under a scale that the largest code of the first element fixes.
    pub(super) fn ties(&mut self) {
        if let (Some(plan), 1, false) = (
            self.model.element,
            self.length,
            self.model.format.has_exponent(),
        ) {
            self.ties_of_single_elements(plan);
        }
        let (format, length) = (self.model.format, self.length);
        let is_alone = length > 1 && !format.tensor_scale && format.shifts.is_none();
        let Some(plan) = self.model.element.filter(|_| is_alone) else {
            let (size, format) = (self.model.format.scale_block_size(), self.model.format);
            return match CodeFormat::Element(format.element).plan() {
                Ok(plan) if size == 1 && (format.tensor_scale || format.outer.is_some()) => {
                    self.ties_beside_a_shared_scale(plan);
                }
                _ => self.found_ties(),
            };
        };
        let value = |code: u64| {
            let (significand, exponent) = plan.number(code);
            significand as f64 * 2.0_f64.powi(exponent)
        };
        for round in 0..OF_TIES {
            let scale = 2.0_f64.powi(round as i32 % 9 - 4);
            let mut block = vec![self.pattern(value(plan.largest) * scale)];
            while block.len() < self.length {
                let code = self.dice.below(plan.largest as usize) as u64;
                let tie = (value(code) + value(code + 1)) / 2.0 * scale * self.dice.sign();
                block.push(self.pattern(tie));
            }
            self.push(block);
        }
        // The better one of two scales may be the other one.
        if self.model.format.four_over_six {
            self.found_ties();
        }
    }

    /// [`ties`](Self::ties) of blocks of one element, whose scale is a float: its numbers are near the largest one.
    fn ties_of_single_elements(&mut self, plan: CodePlan) {
        let value = |code: u64| {
            let (significand, exponent) = plan.number(code);
            significand as f64 * 2.0_f64.powi(exponent)
        };
        let Some(scale) = self.model.format.scale.float() else {
            return;
        };
        let codes = 1_u32 << scale.bits().min(9).saturating_sub(1);
        let mut found = Vec::new();
        for scale in (1..codes).map(|code| f64::from(scale.decode(code))) {
            for code in plan.largest.saturating_sub(8)..plan.largest {
                let tie = self.pattern((value(code) + value(code + 1)) / 2.0 * scale);
                let x = [self.model.input.to_f32(tie)];
                let of = |rounding| {
                    let packed = self.model.packed(&self.model.format, &x, rounding);
                    packed.map_or(Vec::new(), |packed| packed.elements().to_vec())
                };
                if of(ElementRounding::TiesToEven) != of(ElementRounding::TiesToAway) {
                    found.push(tie);
                }
            }
        }
        let step = (found.len() / OF_TIES).max(1);
        for tie in found.into_iter().step_by(step) {
            self.push(vec![tie]);
        }
    }

    /// [`ties`](Self::ties) of blocks of one element whose tensor, or part of an axis, has a scale, too. Without
    /// headroom, an element of the largest magnitude makes the shared scale a power of two.
    fn ties_beside_a_shared_scale(&mut self, plan: CodePlan) {
        let format = self.model.format;
        let Some(scale) = format.scale.float() else {
            return;
        };
        let value = |code: u64| {
            let (significand, exponent) = plan.number(code);
            significand as f64 * 2.0_f64.powi(exponent)
        };
        let largest = f64::from(format.tensor_max());
        let shared = f64::from(format.headroom.value());
        // Under the smallest scale elements have any code. Under others they are near the largest number.
        let smallest = (0..plan.largest).map(|code| (f64::from(format.scale_min()), code));
        let codes = 1_u32 << scale.bits().min(9).saturating_sub(1);
        let near = plan.largest.saturating_sub(8)..plan.largest;
        let others = (1..codes).map(|code| f64::from(scale.decode(code)));
        let others = others.filter(|scale| scale.is_finite());
        let others = others.flat_map(|scale| near.clone().map(move |code| (scale, code)));
        let is_tie = |tie: f64| {
            let x = [largest, tie].map(|x| self.model.input.to_f32(self.pattern(x)));
            let of = |rounding| {
                let packed = self.model.packed(&format, &x, rounding);
                packed.map_or(Vec::new(), |packed| packed.elements().to_vec())
            };
            of(ElementRounding::TiesToEven) != of(ElementRounding::TiesToAway)
        };
        let all = smallest.chain(others);
        let all = all.map(|(scale, code)| (value(code) + value(code + 1)) / 2.0 * scale * shared);
        let found: Vec<f64> = all.filter(|tie| *tie > 0.0 && is_tie(*tie)).collect();
        if found.is_empty() {
            return;
        }
        let mut next = 0;
        for round in 0..OF_FOUND_TIES {
            let power = 2.0_f64.powi(round as i32 % 9 - 4);
            let mut block = vec![self.pattern(largest * power)];
            while block.len() < self.length {
                // Prime to most lengths, so that all ties come up.
                next = (next + 61) % found.len();
                let tie = found[next] * power * self.dice.sign();
                block.push(self.pattern(tie));
            }
            self.push(block);
        }
    }

    /// [`ties`](Self::ties) of formats that the library alone knows: some elements of random blocks become ties.
    fn found_ties(&mut self) {
        let sign = self.model.input.sign();
        for _ in 0..OF_FOUND_TIES {
            let mut block = self.random(0);
            let largest = block.iter().map(|pattern| pattern & !sign).max();
            let most = match self.length {
                1 => self.infinity() - 1,
                _ => largest.unwrap_or(0),
            };
            let step = (self.length / FOUND_TIES).max(1);
            for at in (self.dice.below(step)..self.length).step_by(step) {
                if let Some(tie) = self.tie_at(&block, at, most) {
                    block[at] = tie | block[at] & sign;
                }
            }
            self.push(block);
        }
    }

    /// The magnitude half-way between the number that an element becomes and the next one, which a search up to the magnitude `most`
    /// finds.
    fn tie_at(&self, block: &[u32], at: usize, most: u32) -> Option<u32> {
        let numbers = block
            .iter()
            .map(|pattern| self.model.input.to_f32(*pattern));
        let numbers: Vec<f32> = numbers.collect();
        let value = |abs: u32| {
            let mut numbers = numbers.clone();
            numbers[at] = self.model.input.to_f32(abs);
            let even = ElementRounding::TiesToEven;
            let packed = self.model.packed(&self.model.format, &numbers, even);
            packed.map_or(f32::NAN, |packed| packed.decode()[at])
        };
        let (mut low, mut high) = (block[at] & !self.model.input.sign(), most);
        let first = value(low);
        if value(high) <= first {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match value(middle) <= first {
                true => low = middle,
                false => high = middle,
            }
        }
        Some(self.pattern((f64::from(first) + f64::from(value(high))) / 2.0))
    }
}
