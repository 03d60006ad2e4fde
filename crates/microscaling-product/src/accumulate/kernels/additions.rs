//! One addition of each order, for the lanes of a strip: what the [rule](crate::accumulate::rule) says, by other means.

mod adders;
mod exact;
mod joint;
mod late;

use super::pack::{LANES, Lanes};
pub(super) use adders::{Chain, Pairs, Rounded, Single};
pub(super) use exact::{EXACT_BINADES, Exact, Integer};
pub(super) use joint::{GROUPS, Grouped, Joint, JointDouble, JointQuick, JointSingle, QUICK_BITS};
pub(super) use late::{Late, LateQuick, QUICK_LEAST};

/// The factors of one addition.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) row: &'a [f32],
    pub(super) row_exponents: &'a [i16],
    pub(super) strip: &'a [Lanes<f32>],
    pub(super) strip_exponents: &'a [Lanes<i16>],
    /// Of groups.
    pub(super) scales: Scales<'a>,
    /// Position of the first one along the summed axis.
    pub(super) at: usize,
}

/// Scales that are not in the values; without any they are 1.
#[derive(Clone, Copy)]
pub(super) struct Scales<'a> {
    pub(super) row: &'a [f32],
    pub(super) row_exponents: &'a [i16],
    pub(super) strip: &'a [Lanes<f32>],
    pub(super) strip_exponents: &'a [Lanes<i16>],
    /// Elements of a block, of both operands.
    pub(super) blocks: [usize; 2],
}

impl Scales<'_> {
    /// No scales.
    pub(super) const NONE: Self = Self {
        row: &[],
        row_exponents: &[],
        strip: &[],
        strip_exponents: &[],
        blocks: [usize::MAX; 2],
    };

    /// The products of the scales of an element.
    #[inline(always)]
    pub(super) fn products(&self, at: usize) -> Lanes<f64> {
        let mut products = [1.0; LANES];
        if let Some(row) = self.row.get(at / self.blocks[0]) {
            products = [f64::from(*row); LANES];
        }
        if let Some(strip) = self.strip.get(at / self.blocks[1]) {
            for lane in 0..LANES {
                products[lane] *= f64::from(strip[lane]);
            }
        }
        products
    }

    /// Their exponents.
    #[inline(always)]
    fn exponents(&self, at: usize) -> Lanes<i32> {
        let mut exponents = [0; LANES];
        if let Some(row) = self.row_exponents.get(at / self.blocks[0]) {
            exponents = [i32::from(*row); LANES];
        }
        if let Some(strip) = self.strip_exponents.get(at / self.blocks[1]) {
            for lane in 0..LANES {
                exponents[lane] += i32::from(strip[lane]);
            }
        }
        exponents
    }
}

/// An order, with the known properties of the numbers.
pub(super) trait Addition: Copy {
    /// Adds the terms to c: the terms of one addition, or of several additions with one term each.
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>);

    /// The number that a running sum is.
    #[inline(always)]
    fn value(&self, c: f32) -> f64 {
        f64::from(c)
    }
}
