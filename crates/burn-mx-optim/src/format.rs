//! The formats of states, and their names.

use core::{fmt, str::FromStr};

use microscaling::{BlockFormat, ElementFormat, FloatFormat, ScaleFormat};

use crate::codec::{integer::IntegerScale, maps::Map};

/// The format of a kept tensor.
///
/// As text (`FromStr`, `Display`):
///
/// | text | numbers | scale |
/// | --- | --- | --- |
/// | `bfloat16`, or `bfloatN` with N = 10 … 16 | a float with 8 exponent bits | none |
/// | `fp16`, or `fpN` with N = 7 … 16 | a float with 5 exponent bits; `fp8` is E5M2 | none |
/// | a [`BlockFormat`], such as `mxfp8_e4m3` or `block(element=int8,scale=float32,block_size=2048)` | any | any |
/// | `dynamic8`, `dynamic8_unsigned` | the 256 numbers of the dynamic exponent table of bitsandbytes | float32 per 256 |
/// | `dynamic4` | the 16 numbers of arXiv 2309.01507 for first moments | float32 per 128 |
/// | `linear4` | k/16 with k = 1 … 16, so no zero | float32 per row and per column, the smaller one; per 128 in vectors |
/// | `linear4_zero` | k/15 with k = 0 … 15 | float32 per 128 |
/// | `coat` | E4M3 of a power of the number, the power chosen per block | three float32 per 128 |
/// | `logarithmic2` | α^c with c = 0 … 3 and α chosen per block, of SOLO (arXiv 2505.00347) | two float32 per 128 |
///
/// | `int4_clipped`, `int8_clipped` | integers of ZeRO++, see [`IntegerScale::Clipped`] | float32 per 128; per 8,000 with 8 bits |
/// | `int4_signed`, `int6_signed`, `int8_signed` | integers of quick reduce, see [`IntegerScale::Signed`] | float32 per 32 |
/// | `int4_symmetric`, `int8_symmetric` | integers times m/7 or m/127, m the largest magnitude (code of MuonQ, arXiv 2605.11396) | float16 per tensor |
/// | `int4_companded`, `int8_companded` | the same of sign(x)·ln(1 + 255·\|x\|)/ln 256; numbers beyond ±1 are clipped | float16 per tensor |
///
/// Formats that no other format's text describes take other lengths of a block: `dynamic8(block_size=2048)`.
///
/// A tensor is one row of numbers in row-major order, so a block crosses the ends of a matrix' rows, as in bitsandbytes and torchao. A
/// block size of 0 gives the whole tensor one scale. [Square](BlockFormat::square) blocks and `linear4` see a matrix: the last axis has its
/// columns, and all other axes together its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateFormat {
    /// Each number on its own.
    Elementwise(FloatFormat),
    /// Blocks with a scale.
    Block(BlockFormat),
    /// Codes of a table, `block_size` of them with a float32 scale, their largest magnitude.
    Map {
        /// The table.
        map: Map,
        /// Numbers with one scale.
        block_size: usize,
    },
    /// Four bits without a zero, with the scales of rows and columns.
    RankOne {
        /// Numbers of a vector with one scale.
        block_size: usize,
    },
    /// E4M3 of powers.
    Coat {
        /// Numbers with one power and one scale.
        block_size: usize,
    },
    /// Two bits of a logarithm.
    Logarithmic {
        /// Numbers with one base.
        block_size: usize,
    },
    /// Integers of `bits` bits with a float32 number for a block.
    Integer {
        /// Bits of an integer: 4, 6 or 8.
        bits: u32,
        /// How the scale follows from the block.
        scale: IntegerScale,
        /// Numbers with one scale.
        block_size: usize,
    },
    /// Integers of `bits` bits times a float16 step, which is at least 1e-8 before it is rounded.
    Symmetric {
        /// Bits of an integer: 4 or 8.
        bits: u32,
        /// Whether the integers are of the number's μ-law logarithm, of numbers up to ±1.
        is_companded: bool,
        /// Numbers with one step; 0 for all of the tensor.
        block_size: usize,
    },
}

/// Names of formats that only this crate has, with the usual length of a block.
const NAMED: [(&str, StateFormat); 16] = [
    ("dynamic8", map(Map::Dynamic8, 256)),
    ("dynamic8_unsigned", map(Map::Dynamic8Unsigned, 256)),
    ("dynamic4", map(Map::Dynamic4, 128)),
    ("linear4_zero", map(Map::Linear4Zero, 128)),
    ("linear4", StateFormat::RankOne { block_size: 128 }),
    ("coat", StateFormat::Coat { block_size: 128 }),
    ("logarithmic2", StateFormat::Logarithmic { block_size: 128 }),
    ("int4_clipped", integer(4, IntegerScale::Clipped, 128)),
    ("int8_clipped", integer(8, IntegerScale::Clipped, 8000)),
    ("int4_signed", integer(4, IntegerScale::Signed, 32)),
    ("int6_signed", integer(6, IntegerScale::Signed, 32)),
    ("int8_signed", integer(8, IntegerScale::Signed, 32)),
    ("int4_symmetric", symmetric(4, false)),
    ("int8_symmetric", symmetric(8, false)),
    ("int4_companded", symmetric(4, true)),
    ("int8_companded", symmetric(8, true)),
];

const fn symmetric(bits: u32, is_companded: bool) -> StateFormat {
    StateFormat::Symmetric {
        bits,
        is_companded,
        block_size: 0,
    }
}

const fn integer(bits: u32, scale: IntegerScale, block_size: usize) -> StateFormat {
    StateFormat::Integer {
        bits,
        scale,
        block_size,
    }
}

const fn map(map: Map, block_size: usize) -> StateFormat {
    StateFormat::Map { map, block_size }
}

/// The longest block of a format that only this crate has.
const LONGEST_BLOCK: usize = 1 << 20;

impl StateFormat {
    /// Whether every number of the format is 0 or positive.
    pub fn is_unsigned(self) -> bool {
        match self {
            Self::Elementwise(_)
            | Self::Coat { .. }
            | Self::Integer { .. }
            | Self::Symmetric { .. } => false,
            Self::Block(format) => {
                let tables = format.element.table_numbers();
                format.element.is_table() && tables.iter().flatten().all(|number| *number >= 0.0)
            }
            Self::Map { map, .. } => map.numbers().iter().all(|number| *number >= 0.0),
            Self::RankOne { .. } | Self::Logarithmic { .. } => true,
        }
    }

    /// Whether numbers come from a table, a logarithm or a power rather than floats or integers.
    pub(crate) fn is_table(self) -> bool {
        match self {
            Self::Elementwise(_) | Self::Integer { .. } => false,
            Self::Block(format) => format.element.is_table(),
            Self::Symmetric { is_companded, .. } => is_companded,
            _ => true,
        }
    }

    /// Whether numbers beyond ±1 are clipped.
    pub(crate) fn is_companded(self) -> bool {
        matches!(self, Self::Symmetric { is_companded, .. } if is_companded)
    }

    /// The format with one scale for each row of this length, if only this crate has the format.
    pub(crate) fn with_rows(mut self, length: usize) -> Self {
        if let Some(size) = self.own_block_size() {
            *size = length.clamp(1, LONGEST_BLOCK);
        }
        self
    }

    /// The block format that packs the numbers, or of `coat` their powers.
    pub(crate) fn as_block(self) -> Option<BlockFormat> {
        let with_float = |element, block_size| {
            Some(BlockFormat::float_scale(
                element,
                ScaleFormat::FLOAT32,
                block_size,
            ))
        };
        match self {
            Self::Block(format) => Some(format),
            Self::Map { map, block_size } => with_float(map.element(), block_size),
            Self::Coat { block_size } => with_float(ElementFormat::FP8_E4M3, block_size),
            _ => None,
        }
    }

    /// The format with blocks of this length; `None` if numbers have no blocks along a row.
    pub(crate) fn with_block_size(mut self, size: usize) -> Option<Self> {
        match &mut self {
            Self::Block(format) if !format.square => format.block_size = size,
            own => *own.own_block_size()? = size,
        }
        Some(self)
    }

    /// Whether only elements of the even and stochastic rounding modes exist.
    pub(crate) fn has_own_rounding(self) -> bool {
        use StateFormat::{Integer, Logarithmic, RankOne, Symmetric};
        matches!(
            self,
            RankOne { .. } | Logarithmic { .. } | Integer { .. } | Symmetric { .. }
        )
    }

    /// The length of blocks of a format that only this crate has.
    fn own_block_size(&mut self) -> Option<&mut usize> {
        match self {
            Self::Elementwise(_) | Self::Block(_) => None,
            Self::Map { block_size, .. }
            | Self::RankOne { block_size }
            | Self::Coat { block_size }
            | Self::Logarithmic { block_size }
            | Self::Integer { block_size, .. }
            | Self::Symmetric { block_size, .. } => Some(block_size),
        }
    }
}

impl fmt::Display for StateFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut usual = *self;
        match *self {
            Self::Elementwise(format) => return format.fmt(f),
            Self::Block(format) => return format.fmt(f),
            _ => {}
        }
        for (name, format) in NAMED {
            let (mut own, mut of_name) = (*self, format);
            let (Some(own), Some(size)) = (own.own_block_size(), of_name.own_block_size()) else {
                continue;
            };
            *usual.own_block_size().expect("a format of this crate") = *size;
            if usual != format {
                continue;
            }
            return match own == size {
                true => f.write_str(name),
                false => write!(f, "{name}(block_size={own})"),
            };
        }
        unreachable!("every format of this crate has a name")
    }
}

/// The texts of formats.
fn allowed() -> String {
    let names: Vec<_> = NAMED.iter().map(|(name, _)| *name).collect();
    format!(
        "float32, bfloat10 to bfloat16, fp7 to fp16, {}, or a block format such as mxfp8_e4m3 or \
         block(element=int8,scale=float32,block_size=2048)",
        names.join(", ")
    )
}

impl FromStr for StateFormat {
    /// The allowed texts.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(format) = elementwise(text) {
            return format.map(Self::Elementwise);
        }
        let (name, parameters) = match text.split_once('(') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let Some((_, mut format)) = NAMED.into_iter().find(|(own, _)| *own == name) else {
            let block: BlockFormat = text
                .parse()
                .map_err(|error| format!("{} ({error})", allowed()))?;
            block
                .validate()
                .map_err(|error| format!("{} ({error})", allowed()))?;
            return Ok(Self::Block(block));
        };
        if let Some(parameters) = parameters {
            let usual = *format.own_block_size().expect("a format of this crate");
            let size = parameters
                .strip_prefix("block_size=")
                .and_then(|rest| rest.strip_suffix(')'))
                .and_then(|number| number.parse().ok())
                .filter(|size| (1..=LONGEST_BLOCK).contains(size) || *size == usual);
            let size = size.ok_or_else(|| {
                format!("{name}, or {name}(block_size=N) with N = 1 to {LONGEST_BLOCK}")
            })?;
            *format.own_block_size().expect("a format of this crate") = size;
        }
        Ok(format)
    }
}

/// The float format of a text such as `bfloat16`. `None` if the text is something else.
fn elementwise(text: &str) -> Option<Result<FloatFormat, String>> {
    let (family, bits) = match text.strip_prefix("bfloat") {
        Some(bits) => ("bfloat", bits),
        None => ("fp", text.strip_prefix("fp")?),
    };
    let bits: u32 = bits.parse().ok()?;
    let format = match family {
        "bfloat" => FloatFormat::bfloat(bits),
        _ => FloatFormat::fp(bits),
    };
    let format = format.ok().filter(|format| format.bits() <= 16);
    Some(format.ok_or_else(allowed))
}
