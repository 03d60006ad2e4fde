//! Plain elementwise ops in one pass: operands rounded, the op computed, the result rounded.

use burn_backend::tensor::FloatTensor;
use microscaling::{FloatFormat, RandomStream, Rounding};

#[cfg(feature = "host")]
use super::loops::{map_in_place, zip_in_place};
#[cfg(feature = "host")]
use super::rounding::with_rounding;
use crate::MxKernels;
#[cfg(feature = "host")]
use crate::arithmetic::{Arithmetic, ScalarArithmetic};
#[cfg(feature = "host")]
use crate::host::memory::{self, InMemory, Other};
use crate::kernel_op::KernelOp;
#[cfg(any(feature = "cube", feature = "host"))]
use crate::kernel_op::rounding::FunctionRounding;

/// An op on one tensor that IEEE 754 defines to the bit. A kernel of a device is compiled for `UnaryOp<()>`, and takes the number `c`
/// as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp<N = f32> {
    /// x + c
    AddScalar(N),
    /// x - c
    SubScalar(N),
    /// x · c
    MulScalar(N),
    /// x / c
    DivScalar(N),
    /// √x
    Sqrt,
    /// 1 / x
    Recip,
}

/// An op on two tensors that IEEE 754 defines to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// x + y
    Add,
    /// x - y
    Sub,
    /// x · y
    Mul,
    /// x / y
    Div,
}

/// How an elementwise op rounds. Stochastic rounding is not among the modes, because its random numbers follow the
/// tensors of a composition.
#[derive(Clone, Copy, Debug)]
pub struct OpRounding {
    /// The elementwise format.
    pub format: FloatFormat,
    /// How numbers are rounded to it.
    pub rounding: Rounding,
    /// Whether operands are rounded, or taken as they are, because they are rounded already.
    pub operands: bool,
}

impl OpRounding {
    /// A function of each number, its operand and its result rounded.
    pub(crate) fn around<B: MxKernels>(
        self,
        function: fn(FloatTensor<B>) -> FloatTensor<B>,
        tensor: FloatTensor<B>,
    ) -> FloatTensor<B> {
        self.round::<B>(function(self.operand::<B>(tensor)))
    }

    /// A product, rounded, plus a bias that is rounded, too, and broadcasts, rounded again.
    pub(crate) fn of_product<B: MxKernels>(
        self,
        product: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match bias {
            Some(bias) => B::kernel(KernelOp::Binary(BinaryOp::Add, self), [product, bias]),
            None => self.round::<B>(product),
        }
    }

    /// The rounding of a function that is this op.
    #[cfg(any(feature = "cube", feature = "host"))]
    pub(crate) fn of_function(self) -> FunctionRounding {
        FunctionRounding {
            format: self.format,
            rounding: self.rounding,
            quantize_backward: true,
            exp2: false,
            reciprocal: false,
        }
    }

    /// A tensor, rounded.
    pub fn round<B: MxKernels>(self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        B::float_round_to(tensor, self.format, self.rounding, RandomStream::new(0, 0))
    }

    pub(crate) fn operand<B: MxKernels>(self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match self.operands {
            true => self.round::<B>(tensor),
            false => tensor,
        }
    }
}

impl UnaryOp {
    /// The op's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AddScalar(_) => "add_scalar",
            Self::SubScalar(_) => "sub_scalar",
            Self::MulScalar(_) => "mul_scalar",
            Self::DivScalar(_) => "div_scalar",
            Self::Sqrt => "sqrt",
            Self::Recip => "recip",
        }
    }

    /// The op without its number, and the number; 0 for an op that has none.
    #[cfg(feature = "cube")]
    pub(crate) fn split(self) -> (UnaryOp<()>, f32) {
        match self {
            Self::AddScalar(c) => (UnaryOp::AddScalar(()), c),
            Self::SubScalar(c) => (UnaryOp::SubScalar(()), c),
            Self::MulScalar(c) => (UnaryOp::MulScalar(()), c),
            Self::DivScalar(c) => (UnaryOp::DivScalar(()), c),
            Self::Sqrt => (UnaryOp::Sqrt, 0.0),
            Self::Recip => (UnaryOp::Recip, 0.0),
        }
    }

    /// The op by the ops of `B`, without any rounding.
    pub fn compute<B: MxKernels>(self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Self::AddScalar(c) => B::float_add_scalar(tensor, c.into()),
            Self::SubScalar(c) => B::float_sub_scalar(tensor, c.into()),
            Self::MulScalar(c) => B::float_mul_scalar(tensor, c.into()),
            Self::DivScalar(c) => B::float_div_scalar(tensor, c.into()),
            Self::Sqrt => B::float_sqrt(tensor),
            Self::Recip => B::kernel(KernelOp::Recip, [tensor]),
        }
    }
}

impl BinaryOp {
    /// The op's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
        }
    }

    /// The op by the ops of `B`, without any rounding.
    pub fn compute<B: MxKernels>(self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Self::Add => B::float_add(lhs, rhs),
            Self::Sub => B::float_sub(lhs, rhs),
            Self::Mul => B::float_mul(lhs, rhs),
            Self::Div => B::float_div(lhs, rhs),
        }
    }
}

#[cfg(feature = "host")]
impl UnaryOp {
    /// The op on every element, as `rounding` says.
    pub(crate) fn apply<T: InMemory>(self, tensor: T, rounding: OpRounding) -> T {
        let tensor = tensor.row_major();
        tensor.change(1, |_, piece| self.replace(piece, rounding))
    }

    fn replace(self, data: &mut [f32], rounding: OpRounding) {
        macro_rules! op {
            ($arith:ident, |$x:ident| $operand:expr) => {
                match self {
                    Self::AddScalar(c) => op!(@ |$x| $arith.add_scalar($operand, c)),
                    // The same number, to the bit.
                    Self::SubScalar(c) => op!(@ |$x| $arith.add_scalar($operand, -c)),
                    Self::MulScalar(c) => op!(@ |$x| $arith.mul_scalar($operand, c)),
                    Self::DivScalar(c) => op!(@ |$x| $arith.div_scalar($operand, c)),
                    Self::Sqrt => op!(@ |$x| $arith.sqrt($operand)),
                    Self::Recip => op!(@ |$x| $arith.recip($operand)),
                }
            };
            (@ |$x:ident| $result:expr) => {
                map_in_place(
                    data,
                    #[inline(always)]
                    move |$x| $result,
                )
            };
        }
        with_rounding!(rounding, round => {
            let arith = ScalarArithmetic::<_, false>::new(round, false);
            match rounding.operands {
                true => op!(arith, |x| arith.round(x)),
                false => op!(arith, |x| x),
            }
        })
    }
}

#[cfg(feature = "host")]
impl BinaryOp {
    /// The op on two tensors of the same rank that broadcast, as `rounding` says.
    pub(crate) fn apply<T: InMemory>(self, lhs: T, rhs: T, rounding: OpRounding) -> T {
        let elements = |tensor: &T| tensor.dims().iter().product::<usize>();
        // The result gets the first one's buffer.
        let (lhs, rhs) = match self {
            Self::Add | Self::Mul if elements(&lhs) < elements(&rhs) => (rhs, lhs),
            _ => (lhs, rhs),
        };
        memory::zip(lhs, rhs, |data, other| self.replace(data, other, rounding))
    }

    fn replace(self, data: &mut [f32], other: Other<'_>, rounding: OpRounding) {
        macro_rules! op {
            ($arith:ident, |$x:ident, $y:ident| $lhs:expr, $rhs:expr) => {
                match self {
                    Self::Add => op!(@ |$x, $y| $arith.add($lhs, $rhs)),
                    Self::Sub => op!(@ |$x, $y| $arith.sub($lhs, $rhs)),
                    Self::Mul => op!(@ |$x, $y| $arith.mul($lhs, $rhs)),
                    Self::Div => op!(@ |$x, $y| $arith.quotient($lhs, $rhs)),
                }
            };
            (@ |$x:ident, $y:ident| $result:expr) => {
                match other {
                    Other::Each(other) => zip_in_place(
                        data,
                        other,
                        #[inline(always)]
                        move |$x, $y| $result,
                    ),
                    Other::Number($y) => map_in_place(
                        data,
                        #[inline(always)]
                        move |$x| $result,
                    ),
                }
            };
        }
        with_rounding!(rounding, round => {
            let arith = ScalarArithmetic::<_, false>::new(round, false);
            match rounding.operands {
                true => op!(arith, |x, y| arith.round(x), arith.round(y)),
                false => op!(arith, |x, y| x, y),
            }
        })
    }
}
