//! Gates of a multiply-accumulate unit.

use crate::numbers::{Numbers, Scale};
use serde::Deserialize;

/// Elements of a unit whose operands share no scales.
const LANES: usize = 32;

/// Bits of a sum that nobody chose a width for: a float32's significand.
const WIDTH: u32 = 24;

/// Mantissa bits of the scales that [`Gates::float_scales`] is of.
const E4M3_MANTISSA_BITS: u32 = 3;

/// The area or the energy of each kind of cell.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gates {
    /// Where the numbers are from.
    pub source: String,
    /// An AND gate.
    pub and: f64,
    /// An OR gate.
    pub or: f64,
    /// An XOR gate.
    pub xor: f64,
    /// A multiplexer.
    pub mux: f64,
    /// A half adder.
    pub half_adder: f64,
    /// A full adder.
    pub full_adder: f64,
    /// The float32 accumulator of a unit.
    pub accumulator: f64,
    /// The cells that apply two block scales to a product, if the scales are powers of two.
    pub power_of_two_scales: f64,
    /// The cells that apply two block scales, if the scales are E4M3 floats. Other floats take cells in proportion to the
    /// multipliers of the two scales with each other, and with the sum of a block.
    pub float_scales: f64,
}

impl Gates {
    /// One lane of a unit: a multiplier, and the lane's part of the cells that the lanes of a block share.
    ///
    /// A unit multiplies a block of each operand, aligns the products, adds them in a tree, and adds the sum to a float32. `width` is
    /// how many bits of the products an adder keeps, 24 if it is `None`. For two operands of one format these are equations 44 to
    /// 48 of arXiv 2510.25602; of two formats the multiplier has the sides of both, and the aligner the mean of both widths.
    pub fn lane(&self, lhs: Numbers, rhs: Numbers, width: Option<u32>) -> f64 {
        let blocks = [lhs.block, rhs.block]
            .into_iter()
            .filter(|block| *block > 0);
        let lanes = blocks.min().unwrap_or(LANES) as f64;
        let sides = [lhs, rhs].map(|numbers| f64::from(numbers.mantissa_bits + 1));
        let exponent = f64::from(lhs.exponent_bits.max(rhs.exponent_bits));
        let (aligned, shared) = match exponent > 0.0 {
            false => (self.full_adder * (sides[0] + sides[1]), 0.0),
            true => {
                let width = self.width(lhs, rhs, width.unwrap_or(WIDTH));
                let steps = width * width.log2();
                let exponents =
                    exponent * (2.0 * self.full_adder + 2.0 * self.xor + self.and + self.or);
                let lane = self.full_adder * width + exponents + self.mux * steps;
                (lane, (self.mux + self.or) * steps)
            }
        };
        let scales = [lhs, rhs].map(|numbers| match numbers.scale {
            Scale::None => 0.0,
            Scale::PowerOfTwo => self.power_of_two_scales / 2.0,
            Scale::Float { mantissa_bits } => {
                let of = |mantissa_bits| self.scale_multipliers(mantissa_bits);
                self.float_scales / 2.0 * of(mantissa_bits) / of(E4M3_MANTISSA_BITS)
            }
        });
        let shared = shared + self.accumulator + scales[0] + scales[1];
        self.multiplier(sides) + aligned + shared / lanes
    }

    /// An array of AND gates and rows of adders.
    fn multiplier(&self, sides: [f64; 2]) -> f64 {
        let (long, short) = (sides[0].max(sides[1]), sides[0].min(sides[1]));
        let rows = (short - 1.0).max(0.0);
        let half = rows.min(1.0) * long;
        let full = (rows - 1.0).max(0.0) * long;
        self.and * long * short + self.half_adder * half + self.full_adder * full
    }

    /// The multipliers of two scales with these mantissa bits: of each other, and of their product and a block's sum.
    fn scale_multipliers(&self, mantissa_bits: u32) -> f64 {
        let side = f64::from(mantissa_bits + 1);
        self.multiplier([side, side]) + self.multiplier([2.0 * side, f64::from(WIDTH)])
    }

    /// Bits over which products are aligned (equation 44).
    fn width(&self, lhs: Numbers, rhs: Numbers, limit: u32) -> f64 {
        let of = |numbers: Numbers| {
            2.0_f64.powi(numbers.exponent_bits as i32) + f64::from(numbers.mantissa_bits)
        };
        (of(lhs) + of(rhs)).min(f64::from(limit)).max(2.0)
    }
}
