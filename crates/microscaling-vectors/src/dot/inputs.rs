//! Dot products that tell rules apart.

use super::operand::DotOperand;
use crate::choice::Dice;

/// Cases of each kind.
const OF_EACH_KIND: usize = 48;
/// Kinds of dot products.
pub(super) const KINDS: usize = 8;

/// A dot product, in codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DotCase {
    pub(super) c: u32,
    pub(super) elements: [Vec<u64>; 2],
    pub(super) scales: [Vec<u64>; 2],
}

/// Makes dot products of a length.
pub(super) struct DotMaker {
    pub(super) operands: [DotOperand; 2],
    pub(super) length: usize,
    pub(super) dice: Dice,
    /// The codes of finite numbers above 0, by size.
    positive: [Vec<u64>; 2],
    /// The codes for NaN and Inf.
    special: [Vec<u64>; 2],
}

impl DotMaker {
    pub(super) fn new(operands: [DotOperand; 2], length: usize, seed: u64) -> Self {
        let codes = |operand: DotOperand| {
            let codes = 0..1_u64 << operand.element().bits();
            codes
                .map(move |code| (code, operand.element().decode(code as u32)))
                .filter(move |(code, _)| operand.allows(*code))
        };
        let positive = operands.map(|operand| {
            let mut positive: Vec<(u64, f32)> = codes(operand)
                .filter(|(_, x)| x.is_finite() && *x > 0.0)
                .collect();
            positive.sort_by(|(_, a), (_, b)| a.total_cmp(b));
            positive.into_iter().map(|(code, _)| code).collect()
        });
        let special = operands.map(|operand| {
            codes(operand)
                .filter(|(_, x)| !x.is_finite())
                .map(|(code, _)| code)
                .collect()
        });
        Self {
            operands,
            length,
            dice: Dice::new(seed, 3),
            positive,
            special,
        }
    }

    /// The code of −x, for the code of x; of x, in a format without a sign.
    fn negative(&self, side: usize, code: u64) -> u64 {
        let element = self.operands[side].element();
        let sign = u64::from(element.sign_bit());
        match element.is_integer() {
            _ if element.is_unsigned() => code,
            true => code.wrapping_neg() & (2 * sign - 1),
            false => code | sign,
        }
    }

    pub(super) fn zeros(&self) -> DotCase {
        let scales = self
            .operands
            .map(|operand| vec![operand.middle_scale(); operand.blocks(self.length)]);
        DotCase {
            c: 0,
            elements: [vec![0; self.length], vec![0; self.length]],
            scales,
        }
    }

    /// A code of a positive number, in a part of all by size.
    fn code(&mut self, side: usize, from: usize, to: usize) -> u64 {
        let all = self.positive[side].len();
        let (first, end) = (all * from / 8, (all * to / 8).max(all * from / 8 + 1));
        self.positive[side][first + self.dice.below(end - first)]
    }

    fn with_sign(&mut self, side: usize, code: u64) -> u64 {
        if self.dice.word() & 1 == 0 {
            code
        } else {
            self.negative(side, code)
        }
    }

    /// A dot product of a kind.
    pub(super) fn case(&mut self, kind: usize) -> DotCase {
        let mut case = self.zeros();
        for side in 0..2 {
            let reach = [2, 0, 4, 6, 0, 1, 2, 40][kind];
            for scale in &mut case.scales[side] {
                let by = self.dice.below(2 * reach + 1) as i64 - reach as i64;
                *scale = scale
                    .saturating_add_signed(by)
                    .min(self.operands[side].nan_scale() - 1);
            }
            for at in 0..self.length {
                let code = match kind {
                    // Large numbers among small ones: alignment at the edge, and sticky bits.
                    2 | 3 if self.dice.below(8) > 0 => self.code(side, 0, 3),
                    2 | 3 => self.code(side, 6, 8),
                    // Mostly zeros.
                    4 if self.dice.below(4) > 0 => 0,
                    // Extremes.
                    7 if self.dice.word() & 1 == 0 => self.code(side, 7, 8),
                    7 => self.code(side, 0, 1),
                    _ => self.code(side, 0, 8),
                };
                // A sum of one sign grows: promotions and widths show.
                let positive = matches!(kind, 1 | 6) || code == 0;
                case.elements[side][at] = if positive {
                    code
                } else {
                    self.with_sign(side, code)
                };
            }
        }
        if kind == 5 {
            self.cancel(&mut case);
        }
        if kind != 6 {
            case.c = self.c(kind);
        }
        case
    }

    /// Each second product takes the one before away, but for a few.
    fn cancel(&mut self, case: &mut DotCase) {
        for at in (1..self.length).step_by(2) {
            if self.dice.below(8) == 0 {
                continue;
            }
            let before = at - 1;
            case.elements[1][at] = case.elements[1][before];
            let code = case.elements[0][before];
            case.elements[0][at] = match code {
                0 => 0,
                code if self.positive[0].contains(&code) => self.negative(0, code),
                code => self.absolute(0, code),
            };
        }
    }

    fn absolute(&self, side: usize, code: u64) -> u64 {
        let element = self.operands[side].element();
        let sign = u64::from(element.sign_bit());
        match element.is_integer() {
            true => code.wrapping_neg() & (2 * sign - 1),
            false => code & !sign,
        }
    }

    /// A float32 to start from: 0, an ordinary one, one with all bits, or any finite one.
    fn c(&mut self, kind: usize) -> u32 {
        let word = self.dice.word();
        match (self.dice.below(4), kind) {
            (0, _) | (_, 1) => 0,
            (1, _) => (word & 0x807f_ffff) | (120 + word % 16) << 23,
            (2, _) => (word & 0x8000_0000) | (118 + word % 24) << 23 | 0x7f_ffff,
            (_, 7) if word >> 23 & 255 != 255 => word,
            _ => (word & 0x8000_0000) | (127 + word % 4) << 23,
        }
    }

    /// Cases with zeros, single products, NaN and Inf.
    pub(super) fn special(&mut self) -> Vec<DotCase> {
        let zeros = self.zeros();
        let mut cases = vec![zeros.clone()];
        let c = |c: f32| DotCase {
            c: c.to_bits(),
            ..zeros.clone()
        };
        let ones = [
            1.0,
            -1.0,
            -0.0,
            f32::MAX,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        cases.extend(ones.map(c));
        for place in [0, self.length - 1] {
            for part in [0, 4, 7] {
                let mut case = zeros.clone();
                case.elements = [0, 1].map(|side| {
                    let mut codes = vec![0; self.length];
                    codes[place] = self.code(side, part, part + 1);
                    codes
                });
                cases.push(case);
            }
        }
        for side in 0..2 {
            for code in self.special[side].clone().into_iter().take(4) {
                // With an ordinary product, and times zero.
                let mut case = self.case(0);
                case.elements[side][0] = code;
                cases.push(case.clone());
                case.elements[1 - side][0] = 0;
                cases.push(case);
            }
            if let DotOperand::Blocks(_) = self.operands[side] {
                let mut case = self.case(0);
                case.scales[side][0] = self.operands[side].nan_scale();
                cases.push(case);
            }
        }
        cases
    }

    /// Cases of every kind.
    pub(super) fn ordinary(&mut self) -> Vec<DotCase> {
        (0..OF_EACH_KIND)
            .flat_map(|_| 0..KINDS)
            .map(|kind| self.case(kind))
            .collect()
    }
}
