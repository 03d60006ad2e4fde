//! Rounded arithmetic that writes kernels: every function's formula, written once over
//! [`Arithmetic`], becomes the instructions of a device.

use std::cell::RefCell;
use std::mem::swap;

use cubecl::ir::Scope;
use cubecl::prelude::*;
use microscaling::{FloatFormat, Rounding};

use crate::arithmetic::{Arithmetic, LOG2_E};
use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::round::round_float;
use crate::kernel_op::rounding::FunctionRounding;

/// A number of a kernel that is being written: its pattern.
pub(super) type Value = NativeExpand<u32>;

/// Where instructions go: the innermost block of the kernel that is being written.
pub(super) struct Emitter {
    scope: RefCell<Scope>,
}

impl Emitter {
    /// Writes into `scope` what `write` says.
    pub(super) fn within<T>(scope: &mut Scope, write: impl FnOnce(&Self) -> T) -> T {
        let emitter = Self {
            scope: RefCell::new(Scope::root(false)),
        };
        emitter.swapped(scope, || write(&emitter))
    }

    /// One instruction, or several.
    pub(super) fn emit<T>(&self, write: impl FnOnce(&mut Scope) -> T) -> T {
        write(&mut self.scope.borrow_mut())
    }

    /// A nested block, such as a loop's. `open` writes the statement that holds the block, and gets a function that
    /// writes into the block.
    pub(super) fn block<I>(
        &self,
        open: impl FnOnce(&mut Scope, &mut dyn FnMut(&mut Scope, I)),
        mut body: impl FnMut(I),
    ) {
        let mut outer = Scope::root(false);
        swap(&mut outer, &mut self.scope.borrow_mut());
        open(&mut outer, &mut |inner, item| {
            self.swapped(inner, || body(item))
        });
        swap(&mut outer, &mut self.scope.borrow_mut());
    }

    fn swapped<T>(&self, scope: &mut Scope, write: impl FnOnce() -> T) -> T {
        swap(scope, &mut self.scope.borrow_mut());
        let result = write();
        swap(scope, &mut self.scope.borrow_mut());
        result
    }
}

/// Further arguments of a device's arithmetic, beside the numbers: see [`float::mul`].
#[derive(Clone)]
pub(super) struct Device {
    pub(super) zero: NativeExpand<f32>,
    pub(super) float32: Float32,
}

/// Arithmetic of single numbers of a kernel.
pub(super) struct KernelArithmetic<'e> {
    emitter: &'e Emitter,
    device: Device,
    /// `None` leaves results as they are.
    rounding: Option<(FloatFormat, Rounding)>,
    exp2: bool,
    reciprocal: bool,
}

impl<'e> KernelArithmetic<'e> {
    /// The arithmetic of a forward pass.
    pub(super) fn forward(emitter: &'e Emitter, device: Device, how: FunctionRounding) -> Self {
        Self {
            emitter,
            device,
            rounding: Some((how.format, how.rounding)),
            exp2: how.exp2,
            reciprocal: how.reciprocal,
        }
    }

    /// The arithmetic of a backward pass, which has no exponentials.
    pub(super) fn backward(emitter: &'e Emitter, device: Device, how: FunctionRounding) -> Self {
        let rounding = (how.format, how.rounding);
        Self {
            rounding: how.quantize_backward.then_some(rounding),
            exp2: false,
            ..Self::forward(emitter, device, how)
        }
    }

    /// Plain float32.
    pub(super) fn unrounded(emitter: &'e Emitter, device: Device) -> Self {
        Self {
            emitter,
            device,
            rounding: None,
            exp2: false,
            reciprocal: false,
        }
    }

    fn add_unrounded(&self, lhs: Value, rhs: Value) -> Value {
        let float32 = self.device.float32;
        self.emitter
            .emit(|scope| float::add::expand(scope, lhs, rhs, float32))
    }
}

/// A number that is known when the kernel is written.
fn constant(x: f32) -> Value {
    x.to_bits().into()
}

impl Arithmetic for KernelArithmetic<'_> {
    type Value = Value;

    fn round(&self, value: Value) -> Value {
        match self.rounding {
            Some((format, rounding)) => self
                .emitter
                .emit(|scope| round_float::expand(scope, value, 0.into(), format, rounding)),
            None => value,
        }
    }

    fn add(&self, lhs: Value, rhs: Value) -> Value {
        self.round(self.add_unrounded(lhs, rhs))
    }

    fn sub(&self, lhs: Value, rhs: Value) -> Value {
        self.round(self.sub_unrounded(lhs, rhs))
    }

    fn sub_unrounded(&self, lhs: Value, rhs: Value) -> Value {
        self.add_unrounded(lhs, self.neg(rhs))
    }

    fn mul(&self, lhs: Value, rhs: Value) -> Value {
        let Device { zero, float32 } = self.device.clone();
        let product = self
            .emitter
            .emit(|scope| float::mul::expand(scope, lhs, rhs, zero, float32));
        self.round(product)
    }

    fn quotient(&self, lhs: Value, rhs: Value) -> Value {
        let float32 = self.device.float32;
        let quotient = self
            .emitter
            .emit(|scope| float::div::expand(scope, lhs, rhs, float32));
        self.round(quotient)
    }

    fn add_scalar(&self, lhs: Value, rhs: f32) -> Value {
        self.add(lhs, constant(rhs))
    }

    fn mul_scalar(&self, lhs: Value, rhs: f32) -> Value {
        self.mul(lhs, constant(rhs))
    }

    fn div_scalar(&self, lhs: Value, rhs: f32) -> Value {
        self.quotient(lhs, constant(rhs))
    }

    fn neg(&self, value: Value) -> Value {
        self.emitter.emit(|scope| float::neg::expand(scope, value))
    }

    fn recip(&self, value: Value) -> Value {
        self.quotient(constant(1.0), value)
    }

    fn sqrt(&self, value: Value) -> Value {
        let float32 = self.device.float32;
        let root = self
            .emitter
            .emit(|scope| float::sqrt::expand(scope, value, float32));
        self.round(root)
    }

    fn exp(&self, value: Value) -> Value {
        if self.exp2 {
            return self.exp2(self.mul_scalar(value, LOG2_E));
        }
        let zero = self.device.zero.clone();
        let power = self
            .emitter
            .emit(|scope| float::exp::expand(scope, value, zero));
        self.round(power)
    }

    fn exp2(&self, value: Value) -> Value {
        let zero = self.device.zero.clone();
        let power = self
            .emitter
            .emit(|scope| float::exp2::expand(scope, value, zero));
        self.round(power)
    }

    fn ln(&self, value: Value) -> Value {
        let logarithm = self.emitter.emit(|scope| float::ln::expand(scope, value));
        self.round(logarithm)
    }

    fn divides_by_reciprocal(&self) -> bool {
        self.reciprocal
    }
}
