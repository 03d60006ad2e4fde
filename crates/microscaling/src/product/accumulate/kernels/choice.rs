//! Which arithmetic gives the rule's bits.

use super::additions::{
    Chain, EXACT_BINADES, Exact, GROUPS, Grouped, Integer, Joint, JointDouble, JointQuick,
    JointSingle, Late, LateQuick, Pairs, QUICK_BITS, QUICK_LEAST, Rounded, Single,
};
use super::lanes::SumRounding;
use super::pack::{Lanes, Range};
use super::{Block, ROWS};
use crate::product::accumulate::{Order, Overflow, ScaleAt, SumFormat};
use crate::round::bits;

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
        match product.accumulator.order {
            Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output,
            } => {
                let bits = fraction_bits as i32;
                let terms = terms.min(length) as i32;
                // A cut product is below 2^magnitude.
                let magnitude = bits + 2 + product.extra;
                let joint = |chunk| Joint {
                    fraction_bits: bits,
                    floor_exponent,
                    output: SumRounding::new(output),
                    chunk,
                };
                if group > 1 {
                    let exact = range.most - range.least + log2_up(group) <= 24
                        && range.least >= -126
                        && range.most + log2_up(group) <= 127
                        && product.value_bits <= 24;
                    let groups = (terms as usize).div_ceil(group);
                    let magnitude = bits + 2 + range.most.max(0) + log2_up(group);
                    let held = magnitude + log2_up(groups + 1) <= 51
                        && product.scale_bits <= 28
                        && groups <= GROUPS;
                    let nothing = range.least > range.most;
                    return (held && (exact || nothing))
                        && self.chain(
                            Grouped {
                                joint: joint(1),
                                group,
                            },
                            sums,
                        );
                }
                let of_sums = range_of(sums);
                let least = range.least.min(of_sums.least);
                let single = product.value_bits <= 24
                    && magnitude <= 30
                    && least >= bits - 120
                    && range.most <= 127;
                if single {
                    let most = self.most(range, of_sums);
                    let bits = magnitude + log2_up(terms as usize + 1);
                    let direct = !output.is_nearest() || output.mantissa_bits() == 23;
                    let quick = (bits <= 24 || direct && bits <= QUICK_BITS)
                        && most <= 126
                        && output.exponent_bits() == 8;
                    return match quick {
                        true => self.chain(JointQuick(joint(usize::MAX)), sums),
                        false => self.chain(JointSingle(joint(1 << (31 - magnitude))), sums),
                    };
                }
                let double =
                    product.value_bits <= 53 && magnitude + log2_up(terms as usize + 1) <= 51;
                double && self.chain(JointDouble(joint(1)), sums)
            }
            Order::Late {
                terms,
                fraction_bits,
                interleave,
                output,
            } => {
                let bits = fraction_bits as i32;
                let magnitude = bits + 2 + product.extra + log2_up(terms.min(length));
                let single = product.value_bits <= 24
                    && magnitude <= 31
                    && range.least >= bits - 120
                    && range.most <= 127;
                let late = Late {
                    fraction_bits: bits,
                    interleave,
                    output: SumRounding::new(output),
                };
                let quick = !interleave
                    && output == SumFormat::F32_RNE
                    && range.least >= QUICK_LEAST
                    && self.most(range, range_of(sums)) <= 126;
                single
                    && match quick {
                        true => self.chain(LateQuick(late), sums),
                        false => self.chain(late, sums),
                    }
            }
            Order::Exact { output, .. } => {
                let of_sums = range_of(sums);
                // Nothing but zeros has any.
                let least = range.least.min(of_sums.least).min(0);
                let most = self.most(range, of_sums);
                let exact = Exact {
                    least,
                    output: SumRounding::new(output),
                };
                let single = product.value_bits <= 24 && most - least <= EXACT_BINADES;
                single && self.chain(exact, sums)
            }
            Order::Pairs {
                terms,
                flush,
                output,
            } => {
                let smallest = match flush {
                    true => f32::from_bits(bits::pow2(output.emin())),
                    false => 0.0,
                };
                match self.is_single(output, range) {
                    true => self.chain(
                        Pairs {
                            adder: Single,
                            terms,
                            smallest,
                        },
                        sums,
                    ),
                    false => {
                        let adder = Rounded {
                            output: SumRounding::new(output),
                            flush,
                        };
                        self.chain(
                            Pairs {
                                adder,
                                terms,
                                smallest,
                            },
                            sums,
                        )
                    }
                }
            }
            Order::Fma { output } => match self.is_single(output, range) {
                true => self.chain(Chain(Single), sums),
                false => {
                    let output = SumRounding::new(output);
                    self.chain(
                        Chain(Rounded {
                            output,
                            flush: false,
                        }),
                        sums,
                    )
                }
            },
            Order::Integer { bits, overflow } => {
                let operands = product.operands.map(|operand| operand.kind.element);
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
                single && self.chain(integer, sums)
            }
        }
    }

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
