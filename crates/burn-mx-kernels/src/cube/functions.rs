//! Elementwise ops and functions on a device, with the roundings before, between and after, in one pass.

pub(super) mod adamw;
mod arithmetic;
pub(super) mod column_sums;
pub(super) mod elementwise;
pub(super) mod rows;

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;

use super::launch::{self, Target};
use super::numbers::float::Float32;
use crate::arithmetic::Arithmetic;
use crate::arithmetic::Function;
use crate::kernel_op::op::{BinaryOp, OpRounding, UnaryOp};
use crate::kernel_op::rounding::FunctionRounding;
use arithmetic::{Device, Emitter, KernelArithmetic, Value};

/// The function of a kernel with one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Function(Function, FunctionRounding),
    /// With the other operand as an argument of the kernel, and whether the tensor's elements are rounded.
    Op(UnaryOp<()>, FunctionRounding, bool),
    /// 1 / x without any rounding to a format.
    Recip,
}

/// The function of a kernel with two tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Binary {
    /// Of the output's gradient and the input.
    Gradient(Function, FunctionRounding),
    /// With whether the operands are rounded.
    Op(BinaryOp, FunctionRounding, bool),
}

impl Unary {
    /// An op, and the number that it takes beside the tensor.
    pub(super) fn of(op: UnaryOp, rounding: OpRounding) -> (Self, f32) {
        let (op, scalar) = op.split();
        let how = rounding.of_function();
        (Self::Op(op, how, rounding.operands), scalar)
    }

    fn write(self, emitter: &Emitter, device: Device, x: Value, scalar: Value) -> Value {
        match self {
            Self::Function(function, how) => {
                let arith = KernelArithmetic::forward(emitter, device, how);
                function.of(&arith, arith.round(x))
            }
            Self::Op(op, how, operand) => {
                let arith = KernelArithmetic::forward(emitter, device, how);
                let x = if operand { arith.round(x) } else { x };
                match op {
                    UnaryOp::AddScalar(()) => arith.add(x, scalar),
                    UnaryOp::SubScalar(()) => arith.sub(x, scalar),
                    UnaryOp::MulScalar(()) => arith.mul(x, scalar),
                    UnaryOp::DivScalar(()) => arith.quotient(x, scalar),
                    UnaryOp::Sqrt => arith.sqrt(x),
                    UnaryOp::Recip => arith.recip(x),
                }
            }
            Self::Recip => KernelArithmetic::unrounded(emitter, device).recip(x),
        }
    }
}

impl Binary {
    pub(super) fn of(op: BinaryOp, rounding: OpRounding) -> Self {
        Self::Op(op, rounding.of_function(), rounding.operands)
    }

    fn write(self, emitter: &Emitter, device: Device, lhs: Value, rhs: Value) -> Value {
        match self {
            Self::Gradient(function, how) => {
                let (grad, input) = (lhs, rhs);
                let forward = KernelArithmetic::forward(emitter, device.clone(), how);
                let arith = KernelArithmetic::backward(emitter, device, how);
                let (forward_x, g) = (forward.round(input.clone()), arith.round(grad));
                function.gradient(&forward, &arith, forward_x, || arith.round(input), g)
            }
            Self::Op(op, how, operands) => {
                let arith = KernelArithmetic::forward(emitter, device, how);
                let operand = |x| if operands { arith.round(x) } else { x };
                let (lhs, rhs) = (operand(lhs), operand(rhs));
                match op {
                    BinaryOp::Add => arith.add(lhs, rhs),
                    BinaryOp::Sub => arith.sub(lhs, rhs),
                    BinaryOp::Mul => arith.mul(lhs, rhs),
                    BinaryOp::Div => arith.quotient(lhs, rhs),
                }
            }
        }
    }
}

/// Replaces every element.
pub(super) fn unary<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    function: Unary,
    scalar: f32,
) -> CubeTensor<R> {
    let elements = tensor.shape().num_elements();
    if elements == 0 {
        return tensor;
    }
    let target = Target::of(tensor);
    let (client, address_type) = (target.client(), target.address_type());
    let (cubes, cube) = launch::units(&client, elements);
    let (input, output) = target.views();
    let float32 = Float32::of(&client);
    // SAFETY: no unit writes outside of the view.
    unsafe {
        unary_kernel::launch_unchecked(
            &client,
            cubes,
            cube,
            address_type,
            input,
            output,
            scalar.to_bits(),
            -0.0,
            function,
            float32,
        );
    }
    target.into_output()
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn unary_kernel(
    input: &LinearView<u32>,
    output: &mut LinearView<u32, ReadWrite>,
    scalar: u32,
    zero: f32,
    #[comptime] function: Unary,
    #[comptime] float32: Float32,
) {
    if !output.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    output[ABSOLUTE_POS] = unary_value(input[ABSOLUTE_POS], scalar, zero, function, float32);
}

#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
fn unary_value(
    x: u32,
    scalar: u32,
    zero: f32,
    #[comptime] function: Unary,
    #[comptime] float32: Float32,
) -> u32 {
    intrinsic!(|scope| {
        let device = Device { zero, float32 };
        Emitter::within(scope, |emitter| function.write(emitter, device, x, scalar))
    })
}

/// An element of each of two tensors of the same rank, which broadcast.
pub(super) fn binary<R: CubeRuntime>(
    lhs: CubeTensor<R>,
    rhs: CubeTensor<R>,
    function: Binary,
) -> CubeTensor<R> {
    let shape = lhs.shape().broadcast(&rhs.shape());
    let shape = shape.unwrap_or_else(|error| panic!("burn-mx: {error:?}"));
    let elements = shape.num_elements();
    let target = Target::of_shape(lhs, shape);
    let (client, address_type) = (
        target.client(),
        target.address_type().max(rhs.required_address_type()),
    );
    if elements == 0 {
        return target.into_output();
    }
    let (cubes, cube) = launch::units(&client, elements);
    let float32 = Float32::of(&client);
    let rhs = rhs.into_linear_view_like(target.output());
    let (lhs, output) = target.views();
    // SAFETY: no unit writes outside of the view.
    unsafe {
        binary_kernel::launch_unchecked(
            &client,
            cubes,
            cube,
            address_type,
            lhs,
            rhs,
            output,
            -0.0,
            function,
            float32,
        );
    }
    target.into_output()
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn binary_kernel(
    lhs: &LinearView<u32>,
    rhs: &LinearView<u32>,
    output: &mut LinearView<u32, ReadWrite>,
    zero: f32,
    #[comptime] function: Binary,
    #[comptime] float32: Float32,
) {
    if !output.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    output[ABSOLUTE_POS] = binary_value(
        lhs[ABSOLUTE_POS],
        rhs[ABSOLUTE_POS],
        zero,
        function,
        float32,
    );
}

#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
fn binary_value(
    lhs: u32,
    rhs: u32,
    zero: f32,
    #[comptime] function: Binary,
    #[comptime] float32: Float32,
) -> u32 {
    intrinsic!(|scope| {
        let device = Device { zero, float32 };
        Emitter::within(scope, |emitter| function.write(emitter, device, lhs, rhs))
    })
}
