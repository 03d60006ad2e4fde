//! Elementwise formats in scalar code that was written from their definition alone.

#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Nearest,
    Even,
    Floor,
}

/// An elementwise format and what else bears on elementwise ops.
#[derive(Clone, Copy)]
pub(crate) struct Emulation {
    /// 8 of bfloat, 5 of fp.
    pub(crate) exponent_bits: i32,
    pub(crate) mantissa_bits: i32,
    pub(crate) subnormals: bool,
    pub(crate) mode: Mode,
    pub(crate) quantize_backprop: bool,
    pub(crate) exp2: bool,
    pub(crate) recip: bool,
    pub(crate) softmax_exp2: bool,
}

pub(crate) const BFLOAT16: Emulation = Emulation {
    exponent_bits: 8,
    mantissa_bits: 7,
    subnormals: true,
    mode: Mode::Even,
    quantize_backprop: true,
    exp2: false,
    recip: false,
    softmax_exp2: false,
};

pub(crate) const FP16: Emulation = Emulation {
    exponent_bits: 5,
    mantissa_bits: 10,
    ..BFLOAT16
};

impl Emulation {
    /// The exponent of the least normal number.
    pub(crate) fn least(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    pub(crate) fn r(self, x: f32) -> f32 {
        let magnitude = f64::from(x).abs();
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let least = 2.0_f64.powi(self.least());
        if !self.subnormals && magnitude < least {
            return 0.0;
        }
        let exponent = (magnitude.to_bits() >> 52) as i32 - 1023;
        let unit = 2.0_f64.powi(exponent.max(self.least()) - self.mantissa_bits);
        let steps = magnitude / unit;
        let steps = match self.mode {
            Mode::Nearest => (steps + 0.5).floor(),
            Mode::Even => steps.round_ties_even(),
            Mode::Floor => steps.floor(),
        };
        let max = (2.0 - 2.0_f64.powi(-self.mantissa_bits)) * 2.0_f64.powi(1 - self.least());
        let rounded = if steps * unit > max {
            f64::INFINITY
        } else {
            steps * unit
        };
        rounded.copysign(f64::from(x)) as f32
    }

    /// Of the backward pass.
    pub(crate) fn b(self, x: f32) -> f32 {
        if self.quantize_backprop { self.r(x) } else { x }
    }
}
