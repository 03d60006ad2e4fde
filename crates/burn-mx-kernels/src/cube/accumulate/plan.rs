//! Which arithmetic gives the rule's bits, and how the words of an operand lie.

use cubecl::prelude::*;
use microscaling_product::{
    OperandKind, OperandType, Order, Overflow, ScaleAt, ScaleType, SumFormat,
};

use super::sums::{Adding, GROUPS, LEAVES, STEP, ScalesAt, Structure, Width};
use super::terms::{Content, SIGNIFICAND_BITS, SlotsLaunch};
use crate::cube::numbers::bits::SIGN;
use crate::cube::pack;
use crate::product::accumulated::{AccumulatedForm, AccumulatedProduct};

/// Turns of loops that a unit may take: Mesa's driver for processors ends it after 2^16.
const MOST_TURNS: usize = 60_000;
/// The most terms of an addition whose terms are added one by one.
const IN_TURN: usize = 1 << 10;

/// How a product is computed.
pub(super) struct Plan {
    pub(super) structure: Structure,
    pub(super) content: Content,
    /// Elements of a group, an addition and a part.
    pub(super) group: usize,
    pub(super) terms: usize,
    pub(super) part: usize,
    /// Groups of an addition.
    pub(super) groups: usize,
    pub(super) additions: usize,
    pub(super) fraction_bits: i32,
    pub(super) floor_exponent: i32,
    pub(super) bits: Bits,
    pub(super) output: SumFormat,
}

impl Plan {
    /// `None` where no kernel has the bits of the rule.
    pub(super) fn of(product: &AccumulatedProduct) -> Option<Self> {
        let AccumulatedProduct {
            accumulator,
            forms,
            shapes,
            ..
        } = product;
        let is_empty =
            shapes.iter().any(|shape| shape.contains(&0)) || product.shape().contains(&0);
        let each = || forms.iter().zip(shapes);
        if is_empty || !each().all(|(form, shape)| is_packed_on_device(form, shape)) {
            return None;
        }
        let length = product.layouts()[0].length();
        let part = match accumulator.promote_every {
            0 => length,
            every => every.min(length),
        };
        let Sum {
            terms,
            group,
            fraction_bits,
            floor_exponent,
            output,
        } = Sum::of(accumulator.order, part)?;
        let kinds = forms.map(|form| form.kind);
        let integers = matches!(accumulator.order, Order::Integer { .. });
        let grouped = matches!(accumulator.order, Order::Joint { group: 2.., .. });
        let content = match (accumulator.scale_at, grouped || integers) {
            (_, true) => Content::Fixed,
            (ScaleAt::Promotion, _) => Content::Element,
            (ScaleAt::Product, _) => Content::Scaled,
        };
        let scales_at = match (accumulator.scale_at, content) {
            (ScaleAt::Promotion, _) => ScalesAt::Promotion,
            (_, Content::Fixed) => ScalesAt::Groups,
            _ => ScalesAt::Terms,
        };
        let bits = Bits::of(kinds, content, scales_at)?;
        let fraction_bits = fraction_bits as i32;
        let adding = bits.adding(accumulator.order, [terms, group])?;
        let promoted_bits = if integers { fraction_bits } else { 24 };
        if scales_at == ScalesAt::Promotion && promoted_bits + bits.of_scales > 32 {
            return None;
        }
        let additions = |length: usize| length.div_ceil(terms);
        let plan = Self {
            structure: Structure {
                adding,
                promotes: accumulator.promote_every > 0 || integers,
                scales_at,
            },
            content,
            group,
            terms,
            part,
            groups: terms.div_ceil(group),
            additions: length / part * additions(part) + additions(length % part),
            fraction_bits,
            floor_exponent,
            bits,
            output,
        };
        (plan.additions_together() > 0).then_some(plan)
    }

    /// Additions of a part.
    pub(super) fn additions_of_a_part(&self) -> usize {
        self.part.div_ceil(self.terms)
    }

    /// Additions of a launch. Parts that are promoted stay whole, so that a launch leaves one number behind.
    pub(super) fn additions_together(&self) -> usize {
        let whole = match self.structure.promotes {
            true => self.additions_of_a_part(),
            false => 1,
        };
        MOST_TURNS / (whole * self.turns()) * whole
    }

    /// The shift of a product with the largest exponent, to the left.
    pub(super) fn shift(&self) -> i32 {
        match self.structure.adding {
            Adding::Joint(_) | Adding::Groups | Adding::Late { .. } => {
                self.fraction_bits - self.bits.fraction
            }
            Adding::Pairs { .. } | Adding::InTurn | Adding::Integers { .. } => 0,
        }
    }

    /// The pattern of the smallest magnitude of an element that is not flushed to 0.
    pub(super) fn smallest(&self, element: OperandType) -> u32 {
        match self.structure.adding {
            Adding::Pairs { flush: true, .. } => (2.0_f64.powi(element.emin()) as f32).to_bits(),
            _ => 0,
        }
    }

    /// [`STEP`]s of a group.
    pub(super) fn steps(&self) -> usize {
        self.group.div_ceil(STEP)
    }

    /// Turns of an addition.
    fn turns(&self) -> usize {
        // The one that ends a loop counts, too.
        let all = |turns: usize| turns + 1;
        let steps = all(self.steps());
        1 + match self.structure.adding {
            Adding::Joint(_) | Adding::Late { .. } => 3 * steps,
            Adding::Groups => all(self.groups * (1 + steps)) + all(self.groups),
            Adding::InTurn => all(STEP * self.steps()),
            Adding::Integers { .. } => steps,
            Adding::Pairs { terms, .. } => {
                let levels = log2_up(terms) as usize;
                all(terms) + all(levels) + terms + levels
            }
        }
    }

    /// Parts of a sum.
    fn parts(&self, length: usize) -> usize {
        length.div_ceil(self.part)
    }

    /// Scales of a line that are not in the terms.
    pub(super) fn scales(&self, length: usize) -> usize {
        match self.structure.scales_at {
            ScalesAt::Terms => 0,
            ScalesAt::Groups => self.additions * self.groups,
            ScalesAt::Promotion => self.parts(length),
        }
    }

    /// How the words of this content lie in a line of an operand.
    pub(super) fn slots<R: Runtime>(
        &self,
        content: Content,
        length: usize,
        is_lhs: bool,
    ) -> SlotsLaunch<R> {
        let of_a_group = self.steps() * STEP;
        let (slots, of_an_addition, of_a_group) = match (content, self.structure.scales_at) {
            (Content::Scale, ScalesAt::Promotion) => {
                let (parts, part) = (self.parts(length), self.part);
                return SlotsLaunch::new(parts, 1, 1, part, part, part, 1, 0);
            }
            (Content::Scale, _) => (self.scales(length), self.groups, 1),
            _ => (self.words(), self.groups * of_a_group, of_a_group),
        };
        // A product of such zeros is −0, which changes no sum, where the next adder would make +0 of −0.
        let is_negative = is_lhs && self.structure.adding == Adding::InTurn;
        SlotsLaunch::new(
            slots,
            of_an_addition,
            of_a_group,
            self.group,
            self.terms,
            self.part,
            self.additions_of_a_part(),
            if is_negative { SIGN } else { 0 },
        )
    }

    /// Words of a line.
    pub(super) fn words(&self) -> usize {
        self.additions * self.groups * self.steps() * STEP
    }
}

/// Whether the codes of an operand are found on the device, or the operand has no blocks.
fn is_packed_on_device(form: &AccumulatedForm, shape: &[usize]) -> bool {
    form.blocks.is_none_or(|(format, _)| {
        let words = pack::Words::of(format, shape, form.block_axis(&format));
        // The kernel reads scales of one byte.
        matches!(words, Ok(Some(words)) if words.layout().0.record == 1)
    })
}

/// The parameters of an addition, from the order.
struct Sum {
    terms: usize,
    /// Terms of a group.
    group: usize,
    /// Of integers all bits.
    fraction_bits: u32,
    floor_exponent: i32,
    output: SumFormat,
}

impl Sum {
    /// For parts of this length; `None` of an order without a kernel.
    fn of(order: Order, part: usize) -> Option<Self> {
        let sum = |terms: usize, fraction_bits, output| Self {
            terms,
            group: terms,
            fraction_bits,
            floor_exponent: 0,
            output,
        };
        match order {
            Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output,
            } => {
                let terms = terms.min(part);
                Some(Self {
                    group: if group > 1 { group.min(terms) } else { terms },
                    floor_exponent,
                    ..sum(terms, fraction_bits, output)
                })
            }
            Order::Late {
                terms,
                fraction_bits,
                output,
                ..
            } => Some(sum(terms.min(part), fraction_bits, output)),
            Order::Pairs { terms, output, .. } => Some(sum(terms, 0, output)),
            Order::Fma { output } => Some(sum(part.min(IN_TURN), 0, output)),
            Order::Integer { bits, .. } => Some(sum(part, bits, SumFormat::F32_RNE)),
            _ => None,
        }
    }
}

/// Bits of the numbers that are added.
pub(super) struct Bits {
    /// Of the product of two significands.
    magnitude: i32,
    /// Of these the ones below 2^exponent.
    pub(super) fraction: i32,
    /// Of two scales that are not in the words.
    of_scales: i32,
    /// Of these the ones below 2^exponent.
    pub(super) scales: i32,
}

impl Bits {
    /// `None` if words have too few bits.
    fn of(kinds: [OperandKind; 2], content: Content, scales_at: ScalesAt) -> Option<Self> {
        let mut bits = Self {
            magnitude: 0,
            fraction: 0,
            of_scales: 0,
            scales: 0,
        };
        for kind in kinds {
            let element = kind.element;
            let mantissa_bits = element.mantissa_bits() as i32;
            let scale_mantissa = match kind.scale {
                Some(ScaleType::Float(format)) => format.mantissa_bits() as i32,
                _ => 0,
            };
            // A power of two has none.
            let scale = scale_mantissa + i32::from(scale_mantissa > 0);
            let mut significand = mantissa_bits + 1;
            bits.fraction += mantissa_bits;
            match content {
                Content::Fixed if !is_finite(element) => return None,
                Content::Fixed => {
                    significand += exponent_of(element.max()) - element.emin();
                    bits.fraction -= element.emin();
                }
                Content::Scaled => {
                    significand += scale;
                    bits.fraction += scale_mantissa;
                }
                Content::Element | Content::Scale => {}
            }
            if content != Content::Scaled {
                bits.of_scales += scale;
                bits.scales += scale_mantissa;
            }
            if significand > SIGNIFICAND_BITS || scale > SIGNIFICAND_BITS {
                return None;
            }
            bits.magnitude += significand;
        }
        if scales_at == ScalesAt::Groups {
            bits.magnitude += bits.of_scales;
            bits.fraction += bits.scales;
        }
        (bits.magnitude <= 31).then_some(bits)
    }

    /// `None` where sums have too many bits.
    fn adding(&self, order: Order, [terms, group]: [usize; 2]) -> Option<Adding> {
        // Of a product that is cut.
        let cut = |fraction_bits: u32| self.magnitude + fraction_bits as i32 - self.fraction;
        match order {
            Order::Joint {
                fraction_bits,
                group: 2..,
                ..
            } => {
                let groups = terms.div_ceil(group);
                let term = cut(fraction_bits) + log2_up(group);
                let term = term.max(fraction_bits as i32 + 1);
                let fits = self.magnitude + log2_up(group) <= 31
                    && term + log2_up(groups + 1) <= 62
                    && groups <= GROUPS;
                fits.then_some(Adding::Groups)
            }
            Order::Joint { fraction_bits, .. } => {
                let term = cut(fraction_bits).max(fraction_bits as i32 + 1);
                let together = term + log2_up(terms + 1);
                Some(Adding::Joint(match term {
                    _ if together <= 31 => Width::Single,
                    ..=31 => Width::Split,
                    _ if together <= 62 => Width::Double,
                    _ => return None,
                }))
            }
            Order::Late {
                fraction_bits,
                interleave,
                ..
            } => {
                let together = cut(fraction_bits) + log2_up(terms);
                (together <= 31).then_some(Adding::Late { interleave })
            }
            Order::Pairs { terms, flush, .. } => {
                (terms <= LEAVES).then_some(Adding::Pairs { terms, flush })
            }
            Order::Fma { .. } => Some(Adding::InTurn),
            Order::Integer { bits, overflow } => {
                let saturate = overflow == Overflow::Saturate;
                let most = if saturate { 30 } else { 32 };
                let fits = bits <= most && self.magnitude <= 30;
                fits.then_some(Adding::Integers { saturate })
            }
            _ => None,
        }
    }
}

/// Whether no code is NaN or Inf.
fn is_finite(element: OperandType) -> bool {
    match element {
        OperandType::Element(format) if format.bits() <= 8 => {
            (0..1 << format.bits()).all(|code| format.decode(code).is_finite())
        }
        _ => false,
    }
}

/// floor(log2(x)) of a normal number.
fn exponent_of(x: f32) -> i32 {
    (x.to_bits() >> 23) as i32 - 127
}

/// The least e with n ≤ 2^e.
fn log2_up(n: usize) -> i32 {
    n.next_power_of_two().trailing_zeros() as i32
}
