//! The words of a kernel that is being written: a rule over `microscaling`'s [`Word`] becomes the instructions of a device.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::{replace, swap};
use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Not, Shl, Shr, Sub};

use cubecl::frontend::branch::if_else_expr_expand;
use cubecl::ir::{ManagedVariable, Scope};
use cubecl::prelude::*;
use microscaling::internal::{Condition, Int, Word};

use super::bits::{self, ABS, INFINITY, ONE, SIGN};
use super::float::{is_by_device, number};

const MINUS_ONE: u32 = SIGN | ONE;

thread_local! {
    static KERNEL: RefCell<Kernel> = RefCell::new(Kernel {
        scope: Scope::root(false),
        values: Vec::new(),
    });
}

/// The kernel that this thread writes.
struct Kernel {
    scope: Scope,
    /// The variables that the rule's values stand for.
    values: Vec<ManagedVariable>,
}

/// Writes the steps of `rule` into `scope`. The values do not outlive the rule: this function returns variables.
pub(in crate::cube) fn written<V: Variables>(
    scope: &mut Scope,
    rule: impl FnOnce() -> V::Values,
) -> V {
    let result = in_scope(scope, || V::of(rule()));
    KERNEL.with_borrow_mut(|kernel| kernel.values.clear());
    result
}

/// The result of a rule that writes into this scope.
fn in_scope<T>(scope: &mut Scope, rule: impl FnOnce() -> T) -> T {
    KERNEL.with_borrow_mut(|kernel| swap(scope, &mut kernel.scope));
    let result = rule();
    KERNEL.with_borrow_mut(|kernel| swap(scope, &mut kernel.scope));
    result
}

/// Variables of the kernel, as kernels' functions take and return them.
pub(in crate::cube) trait Variables {
    /// The same as a rule takes and returns them.
    type Values;

    fn values(self) -> Self::Values;
    fn of(values: Self::Values) -> Self;
}

impl<T: CubePrimitive> Variables for NativeExpand<T> {
    type Values = KernelValue<T>;

    fn values(self) -> KernelValue<T> {
        KernelValue::of(self)
    }

    fn of(value: KernelValue<T>) -> Self {
        value.variable()
    }
}

/// Tuples of variables.
macro_rules! tuples {
    ($(($($variables:ident $variable:ident),+);)+) => {$(
        impl<$($variables: Variables),+> Variables for ($($variables,)+) {
            type Values = ($($variables::Values,)+);

            fn values(self) -> Self::Values {
                let ($($variable,)+) = self;
                ($($variable.values(),)+)
            }

            fn of(($($variable,)+): Self::Values) -> Self {
                ($($variables::of($variable),)+)
            }
        }
    )+};
}

tuples! {
    (A a, B b);
    (A a, B b, C c);
}

/// Functions of kernels that rules write. Variables of the kernel come first, then facts that are known when the kernel is compiled.
macro_rules! written_by_rules {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($variable:ident: $kind:ident),* $(; $($fact:ident: $of:ident),*)?) -> $result:ty {
            $($rule:tt)*
        }
    )*) => {$(
        $(#[$attribute])*
        #[cube]
        #[allow(unused_variables, reason = "used where the kernel is written")]
        $visibility fn $name($($variable: $kind,)* $($(#[comptime] $fact: $of),*)?) -> $result {
            intrinsic!(|scope| $crate::cube::numbers::words::written::<<$result as CubeType>::ExpandType>(scope, || {
                $(let $variable = $crate::cube::numbers::words::Variables::values($variable);)*
                $($rule)*
            }))
        }
    )*};
}
pub(in crate::cube) use written_by_rules;

/// A value of the kernel: a word, a number with a sign, or what a comparison says.
pub(in crate::cube) struct KernelValue<T> {
    index: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for KernelValue<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for KernelValue<T> {}

impl<T: CubePrimitive> KernelValue<T> {
    /// The value of a variable.
    fn of(value: NativeExpand<T>) -> Self {
        KERNEL.with_borrow_mut(|kernel| {
            kernel.values.push(value.expand);
            Self {
                index: kernel.values.len() - 1,
                kind: PhantomData,
            }
        })
    }

    /// The variable with the value.
    fn variable(self) -> NativeExpand<T> {
        KERNEL.with_borrow(|kernel| kernel.values[self.index].clone().into())
    }

    /// An instruction with this value, or several.
    pub(in crate::cube) fn then<U: CubePrimitive>(
        self,
        write: impl FnOnce(&mut Scope, NativeExpand<T>) -> NativeExpand<U>,
    ) -> KernelValue<U> {
        let value = self.variable();
        let result = KERNEL.with_borrow_mut(|kernel| write(&mut kernel.scope, value));
        KernelValue::of(result)
    }

    /// An instruction with two values.
    fn with<U: CubePrimitive, V: CubePrimitive>(
        self,
        other: KernelValue<U>,
        write: impl FnOnce(&mut Scope, NativeExpand<T>, NativeExpand<U>) -> NativeExpand<V>,
    ) -> KernelValue<V> {
        let other = other.variable();
        self.then(|scope, value| write(scope, value, other))
    }

    /// One value, or the other.
    fn selected(condition: KernelValue<bool>, then: Self, otherwise: Self) -> Self {
        let otherwise = otherwise.variable();
        condition.with(then, |scope, condition, then| {
            select::expand(scope, condition, then, otherwise)
        })
    }
}

impl From<u32> for KernelValue<u32> {
    fn from(value: u32) -> Self {
        Self::of(value.into())
    }
}

impl From<i32> for KernelValue<i32> {
    fn from(value: i32) -> Self {
        Self::of(value.into())
    }
}

/// Operators that are one instruction.
macro_rules! operators {
    ($($operator:ident::$method:ident: $instruction:ident of $($kind:ty),+;)*) => {$($(
        impl $operator for KernelValue<$kind> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.with(other, |scope, a, b| $instruction::expand(scope, a, b))
            }
        }
    )+)*};
}

operators! {
    Add::add: add of u32, i32;
    Sub::sub: sub of u32, i32;
    Mul::mul: mul of u32;
    Shl::shl: shl of u32, i32;
    Shr::shr: shr of u32;
    BitAnd::bitand: bitand of u32;
    BitAnd::bitand: and of bool;
    BitOr::bitor: bitor of u32;
    BitOr::bitor: or of bool;
    BitXor::bitxor: bitxor of u32;
}

impl Not for KernelValue<u32> {
    type Output = Self;

    fn not(self) -> Self {
        self.then(not::expand)
    }
}

impl Not for KernelValue<bool> {
    type Output = Self;

    fn not(self) -> Self {
        self.then(not::expand)
    }
}

impl Condition for KernelValue<bool> {}

impl Word for KernelValue<u32> {
    type Int = KernelValue<i32>;
    type Condition = KernelValue<bool>;

    fn is_below(self, limit: Self) -> Self::Condition {
        self.with(limit, lt::expand)
    }

    fn equals(self, other: Self) -> Self::Condition {
        self.with(other, eq::expand)
    }

    fn select(condition: Self::Condition, then: Self, otherwise: Self) -> Self {
        Self::selected(condition, then, otherwise)
    }

    fn to_int(self) -> Self::Int {
        self.then(i32::__expand_cast_from)
    }

    fn log2(self) -> Self::Int {
        self.then(bits::log2::expand)
    }

    fn leading_zeros(self) -> Self {
        self.then(u32::__expand_leading_zeros)
    }

    fn split(self) -> (Self, Self) {
        let value = self.variable();
        let parts = KERNEL.with_borrow_mut(|kernel| bits::split::expand(&mut kernel.scope, value));
        (Self::of(parts.0), Self::of(parts.1))
    }

    fn scale(self, exponent: Self::Int) -> Self {
        self.with(exponent, bits::scale::expand)
    }

    fn fixed(self, exponent: Self::Int) -> Self {
        self.with(exponent, bits::fixed::expand)
    }

    fn wrapping_sum(self, other: Self) -> Self {
        self + other
    }

    fn product(self, other: Self) -> Self {
        self.with(other, bits::product::expand)
    }

    fn quotient(self, other: Self) -> Self {
        self.with(other, bits::quotient::expand)
    }

    fn sum(self, other: Self) -> Self {
        self.with(other, sum::expand)
    }

    fn steps(self, exponent: Self::Int) -> Self {
        self.with(exponent, bits::steps::expand)
    }

    fn times_power(self, exponent: i32) -> Self {
        if device_computes() {
            self.product(microscaling::internal::bits::pow2(exponent).into())
        } else {
            self + ((exponent << 23) as u32).into()
        }
    }

    fn plus(self, other: Self) -> Self {
        self.with(other, device_sum::expand)
    }

    fn minus(self, other: Self) -> Self {
        self.with(other, device_difference::expand)
    }

    fn truncated(self) -> Self {
        self.then(truncated::expand)
    }

    fn choose(
        condition: Self::Condition,
        then: impl FnOnce() -> Self,
        otherwise: impl FnOnce() -> Self,
    ) -> Self {
        // A branch spares a device its slow quotients, which few numbers need. Integers compute both words without a branch.
        if !device_computes() {
            return Self::select(condition, then(), otherwise());
        }
        let condition = condition.variable();
        let mut scope =
            KERNEL.with_borrow_mut(|kernel| replace(&mut kernel.scope, Scope::root(false)));
        let result = if_else_expr_expand(&mut scope, condition, |scope| {
            in_scope(scope, then).variable()
        })
        .or_else(&mut scope, |scope| in_scope(scope, otherwise).variable());
        KERNEL.with_borrow_mut(|kernel| kernel.scope = scope);
        Self::of(result)
    }

    fn larger(self, other: Self) -> Self {
        self.with(other, max::expand)
    }

    fn smaller(self, other: Self) -> Self {
        self.with(other, min::expand)
    }
}

impl Int for KernelValue<i32> {
    type Word = KernelValue<u32>;
    type Condition = KernelValue<bool>;

    fn is_below(self, limit: Self) -> Self::Condition {
        self.with(limit, lt::expand)
    }

    fn select(condition: Self::Condition, then: Self, otherwise: Self) -> Self {
        Self::selected(condition, then, otherwise)
    }

    fn to_word(self) -> Self::Word {
        self.then(u32::__expand_cast_from)
    }

    fn larger(self, other: Self) -> Self {
        self.with(other, max::expand)
    }

    fn smaller(self, other: Self) -> Self {
        self.with(other, min::expand)
    }
}

/// Whether the device computes float32 in the kernel that is written.
fn device_computes() -> bool {
    KERNEL.with_borrow_mut(|kernel| is_by_device::expand(&mut kernel.scope))
}

/// The sum of two finite numbers, by the device if it computes. Neither is a product.
#[cube]
fn device_sum(a: u32, b: u32) -> u32 {
    let by_device = is_by_device();
    if comptime!(by_device) {
        u32::reinterpret(number(a) + number(b))
    } else {
        bits::sum(a, b)
    }
}

/// The difference of two finite numbers. Vulkan's compilers take (a + b) − b for a, so the −1 here is one that a compiler does not know. CUDA's
/// knows that there are fewer than 2^31 cubes, and subtracts.
#[cube]
fn device_difference(a: u32, b: u32) -> u32 {
    let by_device = is_by_device();
    if comptime!(by_device) {
        let minus_one = number((CUBE_COUNT_X >> 31) | MINUS_ONE);
        u32::reinterpret(fma(number(b), minus_one, number(a)))
    } else {
        bits::sum(a, b ^ SIGN)
    }
}

/// The whole part of a number without a sign, which is less than 2^31.
#[cube]
fn truncated(a: u32) -> u32 {
    let by_device = is_by_device();
    if comptime!(by_device) {
        u32::cast_from(number(a))
    } else {
        bits::steps(a, 0)
    }
}

/// The float32 sum of Inf or a finite number and a finite one.
#[cube]
fn sum(a: u32, b: u32) -> u32 {
    let is_finite = a & ABS < INFINITY;
    select(is_finite, bits::sum(select(is_finite, a, 0), b), a)
}
