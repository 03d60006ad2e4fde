//! The functions of a number that are a dozen rounded ops each: for each its name, its formula and its gradient.

use super::{Arithmetic, activation};

macro_rules! functions {
    ($dollar:tt ($arith:ident, $x:ident) ($forward:ident, $backward:ident, $forward_x:ident, $any_x:ident, $g:ident) $(
        $(#[$doc:meta])* $variant:ident $name:literal: $value:expr, $gradient:expr;
    )*) => {
        /// A function of each number, which is a dozen rounded ops, and its gradient.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Function {
            $($(#[$doc])* $variant,)*
        }

        impl Function {
            /// All functions.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The function's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The function of a rounded number.
            #[inline(always)]
            pub fn of<A: Arithmetic>(self, $arith: &A, $x: A::Value) -> A::Value {
                match self { $(Self::$variant => $value,)* }
            }

            /// The gradient of the input, from the output's. `forward` is the arithmetic of the forward pass, whose results are
            /// computed again. `forward_x` is the input as the forward pass rounded it, and `x` the input as the backward pass
            /// rounds it.
            #[inline(always)]
            pub fn gradient<V: Clone>(
                self,
                $forward: &impl Arithmetic<Value = V>,
                $backward: &impl Arithmetic<Value = V>,
                $forward_x: V,
                $any_x: impl FnOnce() -> V,
                $g: V,
            ) -> V {
                match self { $(Self::$variant => $gradient,)* }
            }
        }

        /// `$body` with the function as the constant `$constant`, so that a loop is compiled for each function.
        macro_rules! with_function {
            ($dollar function:expr, $dollar constant:ident => $dollar body:expr) => {
                match $dollar function {
                    $($crate::arithmetic::Function::$variant => {
                        const $dollar constant: $crate::arithmetic::Function =
                            $crate::arithmetic::Function::$variant;
                        $dollar body
                    })*
                }
            };
        }
        pub(crate) use with_function;
    };
}

functions! { $ (arith, x) (forward, backward, forward_x, x, g)
    /// e to the power of x: `g y`.
    Exp "exp": arith.exp(x), backward.mul(g, forward.exp(forward_x));
    /// 2 to the power of x: `g (ln(2) y)`.
    Exp2 "exp2": arith.exp2(x),
        backward.mul(g, backward.mul_scalar(forward.exp2(forward_x), core::f32::consts::LN_2));
    /// The logistic function: `y (1 - y) g`.
    Sigmoid "sigmoid": activation::sigmoid(arith, x),
        activation::sigmoid_backward(backward, activation::sigmoid(forward, forward_x), g);
    /// Gelu: `(Φ + x Φ') g`.
    Gelu "gelu": activation::gelu(arith, x),
        activation::gelu_backward(forward, backward, forward_x, x(), g);
    /// First-order gelu, `x · sigmoid(1.702 x)`: `(Φ + x Φ') g`.
    GeluFirstOrder "gelu_first_order": activation::gelu_first_order(arith, x),
        activation::gelu_first_order_backward(forward, backward, forward_x, x(), g);
    /// Silu, `x · sigmoid(x)`: `(σ + y (1 - σ)) g`.
    Silu "silu": activation::silu(arith, x),
        activation::silu_backward(forward, backward, forward_x, g);
    /// Mish, `x · t` with `t = tanh(ln(1 + exp(x)))`: `(t + x ((1 - t²) σ)) g`.
    Mish "mish": activation::mish(arith, x),
        activation::mish_backward(forward, backward, forward_x, x(), g);
}
