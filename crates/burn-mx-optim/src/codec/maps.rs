//! Tables of 16 and 256 numbers.

use std::sync::OnceLock;

use microscaling::ElementFormat;

/// A table of numbers, the largest of which is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Map {
    /// The signed dynamic exponent table of bitsandbytes.
    Dynamic8,
    /// The unsigned one.
    Dynamic8Unsigned,
    /// The signed table of arXiv 2309.01507 with 4 bits.
    Dynamic4,
    /// k/15 with k = 0 … 15.
    Linear4Zero,
}

impl Map {
    /// The numbers, in the order of their codes.
    pub fn numbers(self) -> Vec<f32> {
        match self {
            Self::Dynamic8 => dynamic(true),
            Self::Dynamic8Unsigned => dynamic(false),
            Self::Dynamic4 => {
                let magnitudes = [0.0055, 0.0325, 0.0775, 0.2125, 0.4375, 0.6625, 0.8875];
                let negative = magnitudes.iter().rev().map(|x: &f32| -x);
                negative
                    .chain([0.0])
                    .chain(magnitudes)
                    .chain([1.0])
                    .collect()
            }
            Self::Linear4Zero => (0..16).map(|k| k as f32 / 15.0).collect(),
        }
    }

    /// Elements of this table, made once.
    pub(crate) fn element(self) -> ElementFormat {
        static ELEMENTS: [OnceLock<ElementFormat>; 4] = [const { OnceLock::new() }; 4];
        let numbers = || ElementFormat::tables(&[&self.numbers()]).expect("numbers of a table");
        *ELEMENTS[self as usize].get_or_init(numbers)
    }
}

/// `create_dynamic_map` of bitsandbytes. For i = 0 … 6, the midpoints of 2^i equal parts of [0.1, 1] (2^(i + 1) parts if unsigned), times
/// 10^(i − 6). A signed table has their negatives, too. Every table has 0 and 1.
fn dynamic(is_signed: bool) -> Vec<f32> {
    let mut numbers = vec![0.0, 1.0];
    for i in 0..7 {
        let parts = 1 << (i + i32::from(!is_signed));
        for part in 0..parts {
            let midpoint = 0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts);
            let number = (midpoint * 10f64.powi(i - 6)) as f32;
            numbers.push(number);
            if is_signed {
                numbers.push(-number);
            }
        }
    }
    numbers.sort_by(f32::total_cmp);
    numbers
}
