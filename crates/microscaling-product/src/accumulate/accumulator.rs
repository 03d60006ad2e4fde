//! The description of an accumulator, as data.

pub(super) mod accumulation;
pub(super) mod chip;
pub(super) mod output;
mod text;

use crate::accumulate::error::AccumulatorError;
use microscaling::internal::impl_by_name;
use output::SumFormat;

/// How a matrix unit sums up the products of a dot product: d = c + Σ aᵢ·bᵢ.
///
/// A unit adds a few products, its *terms*, to the running sum c at once. A longer dot product is a chain of such
/// *additions*, in the order of the summed axis: the result d of an addition is the c of the next one.
///
/// As text (`FromStr`, `Display`, serde) it is `accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)`; the
/// fields of each [`Order`] are listed there, and `promote_every` and `scale_at` go with all of them. A field that is left
/// out has its default.
///
/// ```
/// use microscaling_product::{Accumulator, Order, SumFormat};
///
/// let hopper: Accumulator = "accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)".parse()?;
/// assert_eq!(hopper, Accumulator::joint(32, 13, SumFormat::E8M13_RZ));
/// let promoted = Accumulator { promote_every: 128, ..hopper };
/// assert_eq!(
///     promoted.to_string(),
///     "accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz,promote_every=128)"
/// );
/// let Order::Joint { floor_exponent, .. } = promoted.order else { unreachable!() };
/// assert_eq!(floor_exponent, -133);
/// # Ok::<(), microscaling_product::ParseAccumulatorError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Accumulator {
    /// How products and running sum are added up.
    pub order: Order,
    /// After this number of elements of the summed axis the partial sum is added to a float32 register, with one rounding to
    /// nearest, half to even. With [`ScaleAt::Promotion`] the exact product of partial sum and scales is added. The running
    /// sum starts again at 0. A shorter partial sum at the end is promoted, too. The register starts from the c that the
    /// caller gives.
    ///
    /// 0 means never: the running sum starts from the caller's c.
    pub promote_every: usize,
    /// Where the scales of blocks come in.
    pub scale_at: ScaleAt,
}

/// How the products of one addition and the running sum c are added up.
///
/// The *exponent* of a term is the sum of its factors' exponents. A subnormal factor counts with the exponent of its type's
/// smallest normal number. No product is normalized. Zeros have no exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// `joint`: products and c are cut off toward zero at 2^(largest exponent − `fraction_bits`), added up as integers, and the
    /// sum is rounded to `output` (NVIDIA's tensor cores). The result is never −0.
    Joint {
        /// Products of an addition, 1 to 1024.
        terms: usize,
        /// Bits of a term below the largest exponent, 1 to 60.
        fraction_bits: u32,
        /// The largest exponent counts as at least this, −300 to 0; −133 if left out.
        floor_exponent: i32,
        /// This number of products, a divisor of `terms`, is summed exactly before the cut; 1 if left out. The scales
        /// alone make the exponent of a larger group.
        group: usize,
        /// The format of d, and so of the running sum.
        output: SumFormat,
    },
    /// `late`: the products are cut off as in `joint`, but without c, and added up (CDNA3). The largest exponent then includes
    /// c's. The sum of the products is rounded down to 32 bits below it, c to `fraction_bits` below it. The sum of the two is
    /// rounded down to 31 fraction bits, then to `output`. A product of at least 2^128 is Inf.
    Late {
        /// Products of an addition, 1 to 1024.
        terms: usize,
        /// Bits of a term below the largest exponent, 1 to 31.
        fraction_bits: u32,
        /// Whether even and odd products are summed apart. The two sums are rounded down to the larger one's last bit, and
        /// added before c. A c whose exponent is more than `fraction_bits` + 1 below the largest is 0. False if left out.
        interleave: bool,
        /// The format of d; `f32_rne` if left out.
        output: SumFormat,
    },
    /// `exact`: the exact sum of products and c, rounded once (CDNA1).
    Exact {
        /// Products of an addition, 1 to 1024.
        terms: usize,
        /// The format of d; `f32_rne` if left out.
        output: SumFormat,
    },
    /// `pairs`: the products are added in pairs, the sums again in pairs, and so on, and the last sum is added to c. Each sum
    /// is rounded to `output` (a tree of adders, as in CDNA2).
    Pairs {
        /// Products of an addition: a power of two, 2 to 1024.
        terms: usize,
        /// Whether products are rounded to `output`, too, and subnormal factors, c, products and sums are 0. False if left
        /// out.
        flush: bool,
        /// The format of the sums; `f32_rne` if left out.
        output: SumFormat,
    },
    /// `fma`: a chain of fused multiply-adds, one by one, each rounded to `output` (a CUDA core, with `f32_rne`).
    Fma {
        /// The format of the sums; `f32_rne` if left out.
        output: SumFormat,
    },
    /// `integer`: products of [fixed-point](microscaling::ElementFormat::fixed) elements are added one by one, as integers in two's
    /// complement (MXINT8). The sum becomes a float at a promotion, or at the end, with one rounding.
    Integer {
        /// Bits of the sum, sign included, 2 to 62.
        bits: u32,
        /// The treatment of sums beyond this range; `wrap` if left out.
        overflow: Overflow,
    },
}

/// Where the scales of blocks come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ScaleAt {
    /// `product`: scales take part in the alignment, as in hardware with block scales.
    #[default]
    Product,
    /// `promotion`: elements alone are multiplied, and the promotion multiplies the partial sum by the two scales
    /// (block scaling in software). A block is a multiple of [`promote_every`](Accumulator::promote_every).
    Promotion,
}

impl_by_name! {
    ScaleAt, "place of scales",
    Product: "product",
    Promotion: "promotion",
}

/// The treatment of an integer sum with too many bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overflow {
    /// `wrap`: the upper bits are lost.
    #[default]
    Wrap,
    /// `saturate`: after each product the sum is the largest or the smallest integer.
    Saturate,
}

impl_by_name! {
    Overflow, "overflow",
    Wrap: "wrap",
    Saturate: "saturate",
}

/// The floor of the largest exponent if none is given: Hopper's and Blackwell's.
pub(super) const FLOOR_EXPONENT: i32 = -133;
/// The allowed values of a field.
pub(super) const TERMS: (i64, i64) = (1, 1024);
pub(super) const FRACTION_BITS: (i64, i64) = (1, 60);
pub(super) const LATE_FRACTION_BITS: (i64, i64) = (1, 31);
pub(super) const FLOOR_EXPONENTS: (i64, i64) = (-300, 0);
pub(super) const INTEGER_BITS: (i64, i64) = (2, 62);

impl Accumulator {
    /// An accumulator of this order that promotes nothing. Scales come in at the product, for integers at the end.
    pub const fn new(order: Order) -> Self {
        let scale_at = match order {
            Order::Integer { .. } => ScaleAt::Promotion,
            _ => ScaleAt::Product,
        };
        Self {
            order,
            promote_every: 0,
            scale_at,
        }
    }

    /// A [joint](Order::Joint) one with the usual floor, without groups.
    pub const fn joint(terms: usize, fraction_bits: u32, output: SumFormat) -> Self {
        Self::new(Order::Joint {
            terms,
            fraction_bits,
            floor_exponent: FLOOR_EXPONENT,
            group: 1,
            output,
        })
    }

    /// That all fields are in range.
    ///
    /// # Errors
    /// [`AccumulatorError::Range`] names the field, its value and its range; [`AccumulatorError::Field`] names a
    /// field that contradicts the others.
    pub fn validate(&self) -> Result<(), AccumulatorError> {
        let check = |field, got: i64, (min, max): (i64, i64)| {
            if got >= min && got <= max {
                return Ok(());
            }
            Err(AccumulatorError::Range {
                order: self.order.name(),
                field,
                min,
                max,
                got,
            })
        };
        let wrong = |field, got: i64, allowed| {
            Err(AccumulatorError::Field {
                order: self.order.name(),
                field,
                got,
                allowed,
            })
        };
        check("terms", self.order.terms() as i64, TERMS)?;
        match self.order {
            Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output: _,
            } => {
                check("fraction_bits", fraction_bits.into(), FRACTION_BITS)?;
                check("floor_exponent", floor_exponent.into(), FLOOR_EXPONENTS)?;
                check("group", group as i64, (1, terms as i64))?;
                if !terms.is_multiple_of(group) {
                    return wrong("group", group as i64, "a divisor of terms");
                }
                if !self.promote_every.is_multiple_of(group) {
                    let got = self.promote_every as i64;
                    return wrong("promote_every", got, "a multiple of group");
                }
            }
            Order::Late { fraction_bits, .. } => {
                check("fraction_bits", fraction_bits.into(), LATE_FRACTION_BITS)?;
            }
            Order::Pairs { terms, .. } => {
                if terms < 2 || !terms.is_power_of_two() {
                    return wrong("terms", terms as i64, "a power of two from 2 on");
                }
            }
            Order::Integer { bits, .. } => check("bits", bits.into(), INTEGER_BITS)?,
            Order::Exact { .. } | Order::Fma { .. } => {}
        }
        let integer = matches!(self.order, Order::Integer { .. });
        if self.scale_at == ScaleAt::Promotion && self.promote_every == 0 && !integer {
            return wrong("promote_every", 0, "at least 1 with scale_at promotion");
        }
        if self.scale_at == ScaleAt::Product && integer {
            return Err(AccumulatorError::IntegerScale);
        }
        Ok(())
    }
}

impl Order {
    /// The name, for example `joint`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Joint { .. } => "joint",
            Self::Late { .. } => "late",
            Self::Exact { .. } => "exact",
            Self::Pairs { .. } => "pairs",
            Self::Fma { .. } => "fma",
            Self::Integer { .. } => "integer",
        }
    }

    /// Products of an addition.
    pub const fn terms(&self) -> usize {
        match *self {
            Self::Joint { terms, .. }
            | Self::Late { terms, .. }
            | Self::Exact { terms, .. }
            | Self::Pairs { terms, .. } => terms,
            Self::Fma { .. } | Self::Integer { .. } => 1,
        }
    }

    /// Products that are summed exactly before they are aligned.
    pub const fn group(&self) -> usize {
        match *self {
            Self::Joint { group, .. } => group,
            _ => 1,
        }
    }
}
