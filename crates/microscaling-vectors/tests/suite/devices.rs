//! Devices under test, written without the crate: a search among all codes, in float64.

use microscaling::ElementFormat;
use std::sync::OnceLock;

/// The magnitudes of a format of 8 bits, by code.
fn numbers(element: ElementFormat) -> &'static [f64] {
    static E4M3: OnceLock<Vec<f64>> = OnceLock::new();
    static E5M2: OnceLock<Vec<f64>> = OnceLock::new();
    let table = if element == ElementFormat::FP8_E4M3 {
        &E4M3
    } else {
        &E5M2
    };
    table.get_or_init(|| {
        (0..128)
            .map(|code| f64::from(element.decode(code)))
            .take_while(|x| x.is_finite())
            .collect()
    })
}

/// How a device handles a tie, or any number between two codes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Nearest {
    Even,
    Away,
    Zero,
    Truncate,
}

/// A device's rule for numbers that are too large.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Beyond {
    Maximum,
    Infinity,
    Nan,
}

/// A converter from float32 to a float of 8 bits.
#[derive(Clone, Copy)]
pub(crate) struct Converter {
    pub(crate) element: ElementFormat,
    nearest: Nearest,
    beyond: Beyond,
    flush_outputs: bool,
    lose_zero_sign: bool,
    all_448: bool,
}

impl Converter {
    pub(crate) fn of(element: ElementFormat) -> Self {
        Self {
            element,
            nearest: Nearest::Even,
            beyond: Beyond::Maximum,
            flush_outputs: false,
            lose_zero_sign: false,
            all_448: false,
        }
    }

    pub(crate) fn nearest(self, nearest: Nearest) -> Self {
        Self { nearest, ..self }
    }

    pub(crate) fn beyond(self, beyond: Beyond) -> Self {
        Self { beyond, ..self }
    }

    /// Subnormal results become zero.
    pub(crate) fn flushing(self) -> Self {
        Self {
            flush_outputs: true,
            ..self
        }
    }

    pub(crate) fn without_negative_zero(self) -> Self {
        Self {
            lose_zero_sign: true,
            ..self
        }
    }

    /// From 256 on every number becomes 448.
    pub(crate) fn all_448(self) -> Self {
        Self {
            all_448: true,
            ..self
        }
    }

    /// The code of a number.
    pub(crate) fn code(&self, x: f64) -> u64 {
        let element = self.element;
        let finite = numbers(element);
        let last = finite.len() - 1;
        let (nan, infinity) = (0x7f, finite.len() as u64);
        if x.is_nan() {
            return nan;
        }
        let sign = if x.is_sign_negative() { 0x80 } else { 0 };
        let magnitude = x.abs();
        let too_large = match self.beyond {
            Beyond::Maximum => last as u64 | sign,
            Beyond::Infinity => infinity | sign,
            Beyond::Nan => nan,
        };
        if magnitude.is_infinite() {
            return too_large;
        }
        // One number more, where the exponents would go on.
        let next = 2.0 * finite[last] - finite[last - 1];
        let number = |code: usize| if code > last { next } else { finite[code] };
        let below = finite.partition_point(|number| *number <= magnitude) - 1;
        let fraction = (magnitude - number(below)) / (number(below + 1) - number(below));
        let up = match self.nearest {
            Nearest::Even => fraction > 0.5 || (fraction == 0.5 && below % 2 == 1),
            Nearest::Away => fraction >= 0.5,
            Nearest::Zero => fraction > 0.5,
            Nearest::Truncate => false,
        };
        let mut code = if magnitude >= next {
            last + 1
        } else {
            below + usize::from(up)
        };
        let mantissa_bits = element.mantissa_bits();
        if self.flush_outputs && code < 1 << mantissa_bits {
            code = 0;
        }
        if self.all_448 && number(code) >= 256.0 {
            code = code.max(last);
        }
        match code {
            0 if self.lose_zero_sign => 0,
            code if code > last => too_large,
            code => code as u64 | sign,
        }
    }
}
