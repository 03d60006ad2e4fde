//! Which arithmetic gives the rule's bits, and how the words of an operand lie.

use cubecl::prelude::*;
use microscaling::{OperandKind, OperandType, Order, ScaleAt, ScaleType, SumFormat};

use super::sums::{GROUPS, STEP, ScalesAt, Structure, Width};
use super::terms::{Content, SIGNIFICAND_BITS, SlotsLaunch};
use crate::kernels::cube::pack;
use crate::kernels::product::accumulated::{AccumulatedForm, AccumulatedProduct};

/// Turns of loops that a unit may take: Mesa's driver for processors ends it after 2^16.
const MOST_TURNS: usize = 60_000;

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
    /// The shift of a product with the largest exponent, to the left.
    pub(super) shift: i32,
    pub(super) scale_bits: i32,
    pub(super) output: SumFormat,
}

impl Plan {
    /// `None` where no kernel has the bits of the rule.
    pub(super) fn of(product: &AccumulatedProduct) -> Option<Self> {
        let AccumulatedProduct {
            accumulator,
            forms,
            shapes,
        } = product;
        let Order::Joint {
            terms,
            fraction_bits,
            floor_exponent,
            group,
            output,
        } = accumulator.order
        else {
            return None;
        };
        let is_empty = shapes.iter().any(|shape| shape.contains(&0));
        let each = || forms.iter().zip(shapes);
        if is_empty || !each().all(|(form, shape)| is_packed_on_device(form, shape)) {
            return None;
        }
        let length = product.layouts()[0].summed();
        let part = match accumulator.promote_every {
            0 => length,
            every => every.min(length),
        };
        let terms = terms.min(part);
        let grouped = group > 1;
        let group = if grouped { group.min(terms) } else { terms };
        let kinds = forms.map(|form| form.kind);
        let (content, scales_at) = match (accumulator.scale_at, grouped) {
            (ScaleAt::Promotion, true) => (Content::Fixed, ScalesAt::Promotion),
            (ScaleAt::Promotion, false) => (Content::Element, ScalesAt::Promotion),
            (_, true) => (Content::Fixed, ScalesAt::Groups),
            (_, false) => (Content::Scaled, ScalesAt::Terms),
        };
        let bits = Bits::of(kinds, content, scales_at, group)?;
        let shift = fraction_bits as i32 - bits.fraction;
        // Of a cut term, of c, and of all together.
        let term = (bits.magnitude + shift).max(fraction_bits as i32 + 1);
        let groups = terms.div_ceil(group);
        let together = term + log2_up(if grouped { groups } else { terms } + 1);
        let width = match term {
            _ if grouped && (together > 62 || groups > GROUPS) => return None,
            _ if grouped => Width::Double,
            _ if together <= 31 => Width::Single,
            ..=31 => Width::Split,
            _ if together <= 62 => Width::Double,
            _ => return None,
        };
        let additions = |length: usize| length.div_ceil(terms);
        let plan = Self {
            structure: Structure {
                width,
                grouped,
                promotes: accumulator.promote_every > 0,
                scales_at,
            },
            content,
            group,
            terms,
            part,
            groups,
            additions: length / part * additions(part) + additions(length % part),
            fraction_bits: fraction_bits as i32,
            floor_exponent,
            shift,
            scale_bits: bits.scales,
            output,
        };
        (plan.additions * plan.turns() <= MOST_TURNS).then_some(plan)
    }

    /// [`STEP`]s of a group.
    pub(super) fn steps(&self) -> usize {
        self.group.div_ceil(STEP)
    }

    /// Turns of an addition.
    fn turns(&self) -> usize {
        1 + self.groups * (2 * self.steps() + 2)
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

    /// How the words of this content lie in a line.
    pub(super) fn slots<R: Runtime>(&self, content: Content, length: usize) -> SlotsLaunch<R> {
        let additions = self.part.div_ceil(self.terms);
        let of_a_group = self.steps() * STEP;
        match (content, self.structure.scales_at) {
            (Content::Scale, ScalesAt::Promotion) => {
                SlotsLaunch::new(self.parts(length), 1, 1, self.part, self.part, self.part, 1)
            }
            (Content::Scale, _) => SlotsLaunch::new(
                self.scales(length),
                self.groups,
                1,
                self.group,
                self.terms,
                self.part,
                additions,
            ),
            _ => SlotsLaunch::new(
                self.words(),
                self.groups * of_a_group,
                of_a_group,
                self.group,
                self.terms,
                self.part,
                additions,
            ),
        }
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
        matches!(words, Ok(Some(_)))
    })
}

/// Bits of the numbers that are added.
struct Bits {
    /// Of the term with the largest exponent, above the last bit of its significand.
    magnitude: i32,
    /// Of that significand below 2^exponent.
    fraction: i32,
    /// Mantissa bits of two scales that come in at a promotion.
    scales: i32,
}

impl Bits {
    /// `None` if words have too few bits.
    fn of(
        kinds: [OperandKind; 2],
        content: Content,
        scales_at: ScalesAt,
        group: usize,
    ) -> Option<Self> {
        let (mut magnitude, mut fraction, mut scales, mut of_scales) = (0, 0, 0, 0);
        for kind in kinds {
            let element = kind.element;
            let mantissa_bits = element.mantissa_bits() as i32;
            let scale_mantissa = match kind.scale {
                Some(ScaleType::Float(format)) => format.mantissa_bits() as i32,
                _ => 0,
            };
            // A power of two has none.
            let scale = if scale_mantissa > 0 {
                scale_mantissa + 1
            } else {
                0
            };
            let mut significand = mantissa_bits + 1;
            match content {
                Content::Fixed => {
                    if !is_finite(element) {
                        return None;
                    }
                    significand += exponent_of(element.max()) - element.emin();
                    fraction += mantissa_bits - element.emin();
                }
                _ => fraction += mantissa_bits,
            }
            if content == Content::Scaled {
                significand += scale;
                fraction += scale_mantissa;
            } else {
                of_scales += scale;
                scales += scale_mantissa;
            }
            if significand > SIGNIFICAND_BITS || scale > SIGNIFICAND_BITS {
                return None;
            }
            magnitude += significand;
        }
        if content == Content::Fixed {
            magnitude += log2_up(group);
        }
        if scales_at == ScalesAt::Groups {
            magnitude += of_scales;
            fraction += scales;
        }
        // A float32 sum times both scales has 32 bits.
        let fits = magnitude <= 31 && (scales_at != ScalesAt::Promotion || of_scales <= 8);
        fits.then_some(Self {
            magnitude,
            fraction,
            scales,
        })
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
