//! The lengths of a product.

use std::{fmt, str::FromStr};

/// Rows, summed elements and columns of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lengths: Vec<_> = text.split('x').map(str::parse).collect();
        match lengths[..] {
            [Ok(m), Ok(k), Ok(n)] if m > 0 && k > 0 && n > 0 => Ok(Self { m, k, n }),
            _ => Err("expected three lengths from 1 on, as 512x512x2048".to_owned()),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, k, n } = self;
        write!(f, "{m}x{k}x{n}")
    }
}
