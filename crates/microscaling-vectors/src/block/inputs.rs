//! Blocks that tell rules apart.

use super::model::BlockModel;
use crate::choice::Dice;
use crate::element::input::ExactInput;
use crate::element::modes::ElementRounding;
use microscaling::NonFinite;

/// Formats with scales of more bits get some scales, not all.
const LISTED_SCALE_BITS: u32 = 8;
/// Scales of such formats.
const SOME_SCALES: u32 = 64;
/// Blocks of each random distribution.
const OF_EACH_DISTRIBUTION: usize = 24;

/// A block, in patterns.
#[derive(Debug, Clone)]
pub(super) struct CandidateBlock {
    pub(super) count: usize,
    pub(super) patterns: Vec<u32>,
}

/// Makes blocks of a length.
pub(super) struct BlockMaker<'a> {
    pub(super) model: &'a BlockModel,
    /// Elements of a case.
    pub(super) length: usize,
    pub(super) dice: Dice,
    pub(super) blocks: Vec<CandidateBlock>,
}

impl BlockMaker<'_> {
    /// All blocks, and how many of them come before any limit.
    pub(super) fn make(mut self) -> (usize, Vec<CandidateBlock>) {
        self.special();
        self.ragged();
        let must = self.blocks.len();
        self.boundaries();
        self.ties();
        for distribution in 0..6 {
            for _ in 0..OF_EACH_DISTRIBUTION {
                let block = self.random(distribution);
                self.push(block);
            }
        }
        (must, self.blocks)
    }

    pub(super) fn push(&mut self, patterns: Vec<u32>) {
        let count = patterns.len();
        self.blocks.push(CandidateBlock { count, patterns });
    }

    pub(super) fn infinity(&self) -> u32 {
        self.model.input.infinity()
    }

    /// The pattern next to a number, toward zero.
    pub(super) fn pattern(&self, x: f64) -> u32 {
        let bits = x.abs().to_bits();
        let (field, mantissa) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
        let abs = match field {
            0 => 0,
            field => self
                .model
                .input
                .at_most((mantissa | 1 << 52).into(), field - 1075),
        };
        if x < 0.0 {
            abs | self.model.input.sign()
        } else {
            abs
        }
    }

    fn with_first(&mut self, amax: u32, mut block: Vec<u32>) {
        let at = self.dice.below(self.length);
        let sign = if self.dice.word() & 1 == 0 {
            0
        } else {
            self.model.input.sign()
        };
        block[at] = amax | sign;
        self.push(block);
    }

    /// Elements whose magnitudes are at most this one.
    fn below(&mut self, amax: u32) -> Vec<u32> {
        let largest = f64::from(self.model.input.to_f32(amax));
        (0..self.length)
            .map(|_| {
                let part = self.dice.unit() * self.dice.sign();
                self.pattern(part * largest)
            })
            .collect()
    }

    fn special(&mut self) {
        let (infinity, sign, length) = (self.infinity(), self.model.input.sign(), self.length);
        let normal = 1_u32 << self.model.input.mantissa_bits();
        self.push(vec![0; length]);
        self.push(
            (0..length)
                .map(|i| if i % 2 == 0 { sign } else { 0 })
                .collect(),
        );
        for abs in [1, 2, normal / 2, normal - 1, normal, infinity - 1] {
            // Subnormal blocks, the smallest and the largest numbers: alone, everywhere, and with smaller ones.
            let mut alone = vec![0; length];
            alone[length - 1] = abs | sign;
            self.push(alone);
            self.push(
                (0..length)
                    .map(|i| if i % 2 == 0 { abs } else { abs | sign })
                    .collect(),
            );
            let block = self.below(abs);
            self.with_first(abs, block);
        }
        let ordinary = self.random(0);
        self.push(ordinary.iter().map(|pattern| pattern & !sign).collect());
        self.push(ordinary.iter().map(|pattern| pattern | sign).collect());
        if self.model.format.non_finite != NonFinite::Kept {
            for abs in [infinity, infinity | (normal / 2), infinity | 1] {
                for pattern in [abs, abs | sign] {
                    for at in [0, length - 1] {
                        let mut block = ordinary.clone();
                        block[at] = pattern;
                        self.push(block);
                    }
                }
            }
            self.push(vec![infinity; length]);
        }
    }

    /// Blocks that end early: the last block of an axis.
    fn ragged(&mut self) {
        if self.model.format.square {
            return;
        }
        let length = self.length;
        for count in [1, 2, 3, length / 2, length / 2 + 1, length - 1] {
            if (1..length).contains(&count) {
                let mut block = self.random(0);
                block.truncate(count);
                self.push(block);
            }
        }
    }

    /// The record of the scale of a block with this largest magnitude alone.
    fn record(&self, amax: u32) -> Vec<u8> {
        let mut block = vec![0.0; self.length];
        block[0] = self.model.input.to_f32(amax);
        let packed = self
            .model
            .packed(&self.model.format, &block, ElementRounding::TiesToEven);
        packed.map_or(Vec::new(), |packed| packed.scales().to_vec())
    }

    /// The first magnitude of each scale, next to the last one of the scale before. Scales grow with the largest magnitude.
    fn boundaries(&mut self) {
        let (first, last) = (1, self.infinity() - 1);
        let mut found = Vec::new();
        let format = &self.model.format;
        let follows_one_block = !format.tensor_scale && format.outer.is_none();
        match format.scale.bits() <= LISTED_SCALE_BITS && follows_one_block {
            true => {
                let ends = (first, self.record(first), last, self.record(last));
                self.split(ends, &mut found);
            }
            false => found.extend(
                (1..SOME_SCALES)
                    .map(|i| (u64::from(last) * u64::from(i) / u64::from(SOME_SCALES)) as u32),
            ),
        }
        // Powers of two, where rules that look at the exponent alone change.
        let normal = 1_u32 << self.model.input.mantissa_bits();
        let binades = self.infinity() / normal;
        found.extend(
            (1..binades)
                .step_by((binades as usize / 32).max(1))
                .map(|field| field * normal),
        );
        found.sort_unstable();
        found.dedup();
        for boundary in found {
            for amax in [boundary - 1, boundary, boundary + 1] {
                let block = self.below(amax.max(1));
                self.with_first(amax.clamp(1, last), block);
            }
        }
    }

    fn split(
        &self,
        (low, low_record, high, high_record): (u32, Vec<u8>, u32, Vec<u8>),
        found: &mut Vec<u32>,
    ) {
        if low_record == high_record {
            return;
        }
        if high - low == 1 {
            found.push(high);
            return;
        }
        let middle = low + (high - low) / 2;
        let record = self.record(middle);
        self.split((low, low_record, middle, record.clone()), found);
        self.split((middle, record, high, high_record), found);
    }

    /// A block of numbers of a distribution.
    pub(super) fn random(&mut self, distribution: usize) -> Vec<u32> {
        let scale = 2.0_f64.powi(self.dice.below(17) as i32 - 8);
        let one = |maker: &mut Self| {
            let dice = &mut maker.dice;
            let x = match distribution {
                0 => dice.normal() * scale,
                1 => (2.0 * dice.unit() - 1.0) * scale,
                // Wide: each exponent of 24 as often.
                2 => {
                    dice.sign()
                        * (1.0 + dice.unit())
                        * 2.0_f64.powi(dice.below(24) as i32 - 16)
                        * scale
                }
                // An outlier among 16.
                3 => dice.normal() * scale * if dice.below(16) == 0 { 64.0 } else { 1.0 },
                // Mostly zeros.
                4 => {
                    if dice.below(5) == 0 {
                        dice.normal() * scale
                    } else {
                        0.0 * dice.sign()
                    }
                }
                // Any finite pattern.
                _ => {
                    let pattern = dice.word() >> (32 - maker.model.input.bits());
                    return match maker.model.input.number(pattern) {
                        ExactInput::Finite { .. } => pattern,
                        _ => 0,
                    };
                }
            };
            let sign = if x.is_sign_negative() {
                maker.model.input.sign()
            } else {
                0
            };
            maker.pattern(x) | sign
        };
        (0..self.length).map(|_| one(self)).collect()
    }
}
