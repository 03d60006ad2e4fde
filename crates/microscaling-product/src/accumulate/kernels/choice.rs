//! Which arithmetic gives the rule's bits.

use super::additions::{
    Chain, EXACT_BINADES, Exact, GROUPS, Grouped, Integer, Joint, JointDouble, JointQuick,
    JointSingle, Late, LateQuick, Pairs, QUICK_BITS, QUICK_LEAST, Rounded, Single,
};
use super::lanes::SumRounding;
use super::pack::{Lanes, Range};
use super::{Block, ROWS};
use crate::accumulate::{Order, Overflow, ScaleAt, SumFormat};
use microscaling::internal::bits;

impl Block<'_> {
    /// Adds all products to the sums, or none, if no kernel gives the rule's bits.
    #[inline(always)]
    pub(super) fn add(&self, sums: &mut [Lanes<f32>; ROWS]) -> bool {
        let product = self.product;
        let of_rows = product.lhs.ranges[self.rows.clone()].iter();
        let of_rows = of_rows.fold(Range::NOTHING, |range, row| range.and(*row));
        let of_strip = product.rhs.ranges[self.strip];
        let range = Range {
            least: of_rows.least + of_strip.least,
            most: of_rows.most + of_strip.most,
        };
        let promoted_bits = match product.accumulator.order {
            Order::Integer { bits, .. } => bits as i32,
            _ => 24,
        };
        let at_promotion = product.accumulator.scale_at == ScaleAt::Promotion;
        if at_promotion && promoted_bits + product.scale_bits > 53 {
            return false;
        }
        let length = product.length();
        let choice = Choice {
            block: self,
            range,
            sums,
        };
        match product.accumulator.order {
            Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output,
            } => {
                let joint = Joint {
                    fraction_bits: fraction_bits as i32,
                    floor_exponent,
                    output: SumRounding::new(output),
                    chunk: 1,
                };
                let terms = terms.min(length);
                match group > 1 {
                    true => choice.grouped(Grouped { joint, group }, terms),
                    false => choice.joint(joint, terms, output),
                }
            }
            Order::Late {
                terms,
                fraction_bits,
                interleave,
                output,
            } => {
                let late = Late {
                    fraction_bits: fraction_bits as i32,
                    interleave,
                    output: SumRounding::new(output),
                };
                choice.late(late, terms.min(length), output)
            }
            Order::Exact { output, .. } => choice.exact(output),
            Order::Pairs {
                terms,
                flush,
                output,
            } => choice.pairs(terms, flush, output),
            Order::Fma { output } => choice.fma(output),
            Order::Integer { bits, overflow } => choice.integer(bits, overflow),
        }
    }
}

/// The choice for a block of sums: each method adds all products to the sums, or none, if no kernel of the order gives the rule's
/// bits.
struct Choice<'a, 'b> {
    block: &'a Block<'a>,
    /// The range of the products.
    range: Range,
    sums: &'b mut [Lanes<f32>; ROWS],
}

impl Choice<'_, '_> {
    #[inline(always)]
    fn grouped(self, grouped: Grouped, terms: usize) -> bool {
        let (product, range) = (self.block.product, self.range);
        let group = grouped.group;
        let exact = range.most - range.least + log2_up(group) <= 24
            && range.least >= -126
            && range.most + log2_up(group) <= 127
            && product.value_bits <= 24;
        let groups = terms.div_ceil(group);
        let magnitude = grouped.joint.fraction_bits + 2 + range.most.max(0) + log2_up(group);
        let held =
            magnitude + log2_up(groups + 1) <= 51 && product.scale_bits <= 28 && groups <= GROUPS;
        let nothing = range.least > range.most;
        (held && (exact || nothing)) && self.block.chain(grouped, self.sums)
    }

    #[inline(always)]
    fn joint(self, joint: Joint, terms: usize, output: SumFormat) -> bool {
        let (product, range) = (self.block.product, self.range);
        let bits = joint.fraction_bits;
        // A cut product is below 2^magnitude.
        let magnitude = bits + 2 + product.extra;
        let of_sums = range_of(self.sums);
        let least = range.least.min(of_sums.least);
        let single =
            product.value_bits <= 24 && magnitude <= 30 && least >= bits - 120 && range.most <= 127;
        let sum_bits = magnitude + log2_up(terms + 1);
        if !single {
            let double = product.value_bits <= 53 && sum_bits <= 51;
            return double && self.block.chain(JointDouble(joint), self.sums);
        }
        let direct = !output.is_nearest() || output.mantissa_bits() == 23;
        let quick = (sum_bits <= 24 || direct && sum_bits <= QUICK_BITS)
            && self.block.most(range, of_sums) <= 126
            && output.exponent_bits() == 8;
        let of_chunk = |chunk| Joint { chunk, ..joint };
        match quick {
            true => (self.block).chain(JointQuick(of_chunk(usize::MAX)), self.sums),
            false => (self.block).chain(JointSingle(of_chunk(1 << (31 - magnitude))), self.sums),
        }
    }

    #[inline(always)]
    fn late(self, late: Late, terms: usize, output: SumFormat) -> bool {
        let (product, range) = (self.block.product, self.range);
        let bits = late.fraction_bits;
        let single = product.value_bits <= 24
            && bits + 2 + product.extra + log2_up(terms) <= 31
            && range.least >= bits - 120
            && range.most <= 127;
        let quick = !late.interleave
            && output == SumFormat::F32_RNE
            && range.least >= QUICK_LEAST
            && self.block.most(range, range_of(self.sums)) <= 126;
        single
            && match quick {
                true => self.block.chain(LateQuick(late), self.sums),
                false => self.block.chain(late, self.sums),
            }
    }

    #[inline(always)]
    fn exact(self, output: SumFormat) -> bool {
        let range = self.range;
        let of_sums = range_of(self.sums);
        // Nothing but zeros has any.
        let least = range.least.min(of_sums.least).min(0);
        let most = self.block.most(range, of_sums);
        let exact = Exact {
            least,
            output: SumRounding::new(output),
        };
        let single = self.block.product.value_bits <= 24 && most - least <= EXACT_BINADES;
        single && self.block.chain(exact, self.sums)
    }

    #[inline(always)]
    fn pairs(self, terms: usize, flush: bool, output: SumFormat) -> bool {
        let smallest = match flush {
            true => f32::from_bits(bits::pow2(output.emin())),
            false => 0.0,
        };
        if self.block.is_single(output, self.range) {
            let pairs = Pairs {
                adder: Single,
                terms,
                smallest,
            };
            return self.block.chain(pairs, self.sums);
        }
        let adder = Rounded {
            output: SumRounding::new(output),
            flush,
        };
        let pairs = Pairs {
            adder,
            terms,
            smallest,
        };
        self.block.chain(pairs, self.sums)
    }

    #[inline(always)]
    fn fma(self, output: SumFormat) -> bool {
        if self.block.is_single(output, self.range) {
            return self.block.chain(Chain(Single), self.sums);
        }
        let adder = Rounded {
            output: SumRounding::new(output),
            flush: false,
        };
        self.block.chain(Chain(adder), self.sums)
    }

    #[inline(always)]
    fn integer(self, bits: u32, overflow: Overflow) -> bool {
        let operands = (self.block.product.operands).map(|operand| operand.kind.element);
        let fraction_bits = operands.map(|element| element.fraction_bits().unwrap_or(0));
        let (held, range_bits) = match overflow {
            Overflow::Wrap => (32, 32),
            Overflow::Saturate => (30, bits),
        };
        let single = bits <= held && operands.iter().all(|e| e.mantissa_bits() <= 14);
        let integer = Integer {
            bits,
            range_bits,
            unit: -fraction_bits[0] - fraction_bits[1],
        };
        single && self.block.chain(integer, self.sums)
    }
}

impl Block<'_> {
    /// All sums are below 2^this.
    fn most(&self, products: Range, sums: Range) -> i32 {
        let length = self.product.length();
        (products.most + log2_up(length + 1)).max(sums.most) + 1
    }

    /// Whether float32 holds all products, sums are float32's, and subnormal ones do not occur or are kept.
    fn is_single(&self, output: SumFormat, products: Range) -> bool {
        output == SumFormat::F32_RNE
            && self.product.value_bits <= 24
            && products.least >= -126
            && products.most <= 127
    }
}

/// The least exponent e with n ≤ 2^e.
fn log2_up(n: usize) -> i32 {
    n.max(1).next_power_of_two().trailing_zeros() as i32
}

/// Of the sums that a product starts from.
#[inline(always)]
fn range_of(sums: &[Lanes<f32>; ROWS]) -> Range {
    let mut range = Range::NOTHING;
    for sum in sums.as_flattened() {
        let exponent = (sum.to_bits() >> 23 & 0xff) as i32 - 127;
        if *sum != 0.0 {
            range = range.and(Range {
                least: exponent.max(-126) - 23,
                most: exponent + 1,
            });
        }
    }
    range
}
