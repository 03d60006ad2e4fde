//! Float32 arithmetic on a device with the bits of IEEE 754, rounded half to even, on patterns. A NaN is any NaN.

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::bits::{self, ABS, INFINITY, NAN, SIGN};

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) enum Float32 {
    /// The device, whose operations are IEEE's, subnormal numbers included.
    Device,
    /// Integers, where the device's operations are not, or nobody promises it.
    Integers,
}

impl Float32 {
    /// CUDA's are IEEE's as they are compiled by default (CUDA C++ Programming Guide, "Floating-Point Standard"), and so are
    /// HIP's on the GPUs that it supports. Vulkan, Metal and WebGPU flush subnormals and divide to some units of the last
    /// place.
    pub(in crate::cube) fn of<R: CubeRuntime>(client: &ComputeClient<R>) -> Self {
        #[cfg(test)]
        if let Some(forced) = FORCED.get() {
            return forced;
        }
        match R::name(client) {
            "cuda" | "hip" => Self::Device,
            _ => Self::Integers,
        }
    }
}

/// Marks a kernel whose products and quotients the device computes.
struct ByDevice;

/// Says who computes [`bits::product`] and [`bits::quotient`] in the rest of a kernel. Integers do where nobody says it.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(in crate::cube) fn computed_by(#[comptime] float32: Float32) {
    intrinsic!(|scope| if float32 == Float32::Device {
        scope.register_type::<ByDevice>(f32::as_type_native_unchecked().storage_type());
    })
}

/// Whether the device computes products and quotients of this kernel.
#[cube]
pub(super) fn is_by_device() -> comptime_type!(bool) {
    intrinsic!(|scope| scope.resolve_type::<ByDevice>().is_some())
}

#[cfg(test)]
thread_local! {
    /// The arithmetic that a test chooses for kernels.
    pub(in crate::cube) static FORCED: std::cell::Cell<Option<Float32>> = const { std::cell::Cell::new(None) };
}

/// The number with this pattern.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(in crate::cube) fn number(pattern: u32) -> f32 {
    // CUDA's source reinterprets a variable in place, which a constant has none of.
    intrinsic!(|scope| match pattern.expand.as_const() {
        Some(pattern) => f32::from_bits(pattern.as_u32()).into(),
        None => f32::__expand_reinterpret(scope, pattern),
    })
}

/// a + b
#[cube]
pub(in crate::cube) fn add(a: u32, b: u32, #[comptime] float32: Float32) -> u32 {
    if comptime!(float32 == Float32::Device) {
        u32::reinterpret(number(a) + number(b))
    } else {
        let a_abs = a & ABS;
        let b_abs = b & ABS;
        let is_finite = a_abs < INFINITY && b_abs < INFINITY;
        let sum = bits::sum(select(is_finite, a, 0), select(is_finite, b, 0));
        // Two Infs with different signs, or a NaN, give a NaN; else the result is the Inf.
        let larger = select(a_abs >= b_abs, a, b);
        let is_nan = larger & ABS > INFINITY || (a_abs == b_abs && a != b);
        select(is_finite, sum, select(is_nan, NAN, larger))
    }
}

/// −a
#[cube]
pub(in crate::cube) fn neg(a: u32) -> u32 {
    a ^ SIGN
}

/// a · b. `zero` is −0, a value that the compiler must not know. A product plus `zero` equals the product to the bit, and
/// the compiler cannot fuse it with another sum.
#[cube]
pub(in crate::cube) fn mul(a: u32, b: u32, zero: f32, #[comptime] float32: Float32) -> u32 {
    if comptime!(float32 == Float32::Device) {
        u32::reinterpret(fma(number(a), number(b), zero))
    } else {
        let a_abs = a & ABS;
        let b_abs = b & ABS;
        let is_finite = a_abs < INFINITY && b_abs < INFINITY;
        let product = bits::product(select(is_finite, a_abs, 0), select(is_finite, b_abs, 0));
        let larger = max(a_abs, b_abs);
        let is_nan = larger > INFINITY || a_abs == 0 || b_abs == 0;
        let special = select(is_nan, NAN, INFINITY);
        ((a ^ b) & SIGN) | select(is_finite, product, special)
    }
}

/// a / b
#[cube]
pub(in crate::cube) fn div(a: u32, b: u32, #[comptime] float32: Float32) -> u32 {
    if comptime!(float32 == Float32::Device) {
        u32::reinterpret(number(a) / number(b))
    } else {
        let a_abs = a & ABS;
        let b_abs = b & ABS;
        let is_usual = a_abs < INFINITY && b_abs < INFINITY && b_abs != 0;
        let quotient = bits::quotient(select(is_usual, a_abs, 0), select(is_usual, b_abs, 1));
        let is_nan = a_abs > INFINITY
            || b_abs > INFINITY
            || (a_abs == b_abs && (a_abs == 0 || a_abs == INFINITY));
        let is_infinite = a_abs == INFINITY || b_abs == 0;
        let special = select(is_nan, NAN, select(is_infinite, INFINITY, 0));
        ((a ^ b) & SIGN) | select(is_usual, quotient, special)
    }
}

/// √a
#[cube]
pub(in crate::cube) fn sqrt(a: u32, #[comptime] float32: Float32) -> u32 {
    if comptime!(float32 == Float32::Device) {
        u32::reinterpret(number(a).sqrt())
    } else {
        let is_usual = a > 0 && a < INFINITY;
        let root = bits::square_root(select(is_usual, a, 0));
        // Zeros, +Inf and NaN are their own roots.
        let is_negative = a > SIGN;
        select(is_usual, root, select(is_negative, NAN, a))
    }
}

/// The seal of [`mul`] for numbers.
#[cube]
fn sealed(a: f32, b: f32, zero: f32) -> f32 {
    fma(a, b, zero)
}

/// e^x: the steps of [`crate::arithmetic::exp`], all of whose numbers are normal up to the last.
#[cube]
pub(in crate::cube) fn exp(x: u32, zero: f32) -> u32 {
    let bounded = bound(number(x), -104.0, 89.0);
    let integer = nearest_integer(sealed(bounded, core::f32::consts::LOG2_E, zero));
    let n = integer as f32;
    let r = (bounded - sealed(n, 0.693_359_4, zero)) - sealed(n, -2.121_944_4e-4, zero);
    scaled(exp_near_zero(r, zero), integer, x)
}

/// 2^x, as [`exp`].
#[cube]
pub(in crate::cube) fn exp2(x: u32, zero: f32) -> u32 {
    let bounded = bound(number(x), -151.0, 129.0);
    let integer = nearest_integer(bounded);
    let r = sealed(bounded - integer as f32, core::f32::consts::LN_2, zero);
    scaled(exp_near_zero(r, zero), integer, x)
}

/// `x` clamped; a NaN becomes some number.
#[cube]
fn bound(x: f32, low: f32, high: f32) -> f32 {
    let x = select(x > low, x, low);
    select(x < high, x, high)
}

/// The nearest integer of a number of magnitude less than 2^22, ties to even.
#[cube]
fn nearest_integer(x: f32) -> i32 {
    // 1.5 · 2^23, whose last place is worth 1.
    (u32::reinterpret(x + 12_582_912.0) - 0x4b40_0000u32) as i32
}

/// e^r for |r| ≤ ln 2 / 2.
#[cube]
fn exp_near_zero(r: f32, zero: f32) -> f32 {
    let p = sealed(1.987_569_1e-4, r, zero) + 1.398_199_9e-3;
    let p = sealed(p, r, zero) + 8.333_452e-3;
    let p = sealed(p, r, zero) + 4.166_579_6e-2;
    let p = sealed(p, r, zero) + 1.666_666_5e-1;
    let p = sealed(p, r, zero) + 0.5;
    sealed(p, sealed(r, r, zero), zero) + r + 1.0
}

/// `y · 2^n`, which may be too large or subnormal; the argument's NaN.
#[cube]
fn scaled(y: f32, n: i32, argument: u32) -> u32 {
    let half = n >> 1;
    let partly = u32::reinterpret(y) + ((half as u32) << 23);
    let power = ((n - half + 127) as u32) << 23;
    select(
        argument & ABS > INFINITY,
        argument,
        bits::product(partly, power),
    )
}

/// ln x, by the device's own function, whose last places differ from one device to the next.
#[cube]
pub(in crate::cube) fn ln(x: u32) -> u32 {
    u32::reinterpret(number(x).ln())
}

/// The numbers in their order, -Inf to Inf, as unsigned ones. NaN is at the ends.
#[cube]
pub(in crate::cube) fn to_ordered(x: u32) -> u32 {
    select(x >= SIGN, !x, x | SIGN)
}

/// The number of [`to_ordered`].
#[cube]
pub(in crate::cube) fn of_ordered(key: u32) -> u32 {
    select(key >= SIGN, key & ABS, !key)
}
