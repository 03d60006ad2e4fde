//! Formats of IEEE P3109, "Arithmetic formats for machine learning", by the working group's interim report 4.0 of 28 June 2026.
//!
//! The report is a draft: it may not be used for claims of conformance, and later versions may differ. This module has the formats
//! (sections 3.1, 3.2 and 4.7.6 of the report), the projection of a number onto a format (sections 4.7.3 to 4.7.5), and blocks
//! (`ConvertToBlockMaxAbsFinite` and `BlockDotProduct` of section 5). Every number
//! is exact: the formats of up to 16 bits have exponents that no float type of Rust has.
//!
//! ```
//! use microscaling::p3109::{P3109Format, Projection, P3109Rounding, Saturation};
//!
//! let format: P3109Format = "binary8p4se".parse()?;
//! assert_eq!(format.decode(0x40).to_f64(), Some(1.0));
//! assert_eq!(format.max().to_f64(), Some(224.0));
//! let nearest = Projection { rounding: P3109Rounding::NearestTiesToEven, saturation: Saturation::SatFinite };
//! assert_eq!(format.decode(format.project(1000.0, nearest)).to_f64(), Some(224.0));
//! # Ok::<(), microscaling::p3109::ParseP3109Error>(())
//! ```

mod block;
mod error;
mod format;
mod project;

pub use block::P3109Block;
pub use error::{P3109Error, ParseP3109Error};
pub use format::{CodeValue, P3109Format};
pub use project::{P3109Rounding, Projection, RandomBits, Saturation, StochasticVariant};
