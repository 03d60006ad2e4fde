//! The kinds of element formats.

use super::table::Tables;
use super::{ElementFormat, SpecialCodes};

/// The properties that tell kinds apart.
pub(super) enum Kind {
    /// All numbers have one exponent.
    Fixed,
    Table(Tables),
    Float {
        exponent_bits: u8,
        specials: SpecialCodes,
    },
}

impl ElementFormat {
    pub(super) const fn kind(self) -> Kind {
        match (self.tables, self.float) {
            (Some(tables), _) => Kind::Table(tables),
            (None, Some((exponent_bits, specials))) => Kind::Float {
                exponent_bits,
                specials,
            },
            (None, None) => Kind::Fixed,
        }
    }
}

const _: () = assert!(size_of::<ElementFormat>() == 16 || size_of::<usize>() < 8);
