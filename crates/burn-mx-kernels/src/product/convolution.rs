//! The description of a convolution for a backend that computes its products.

/// A convolution, not transposed, of x [B, G · C, ..] and a weight [G · O, C, ..] in G groups: how its windows lie, axis by
/// axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// From one window to the next.
    pub stride: Vec<usize>,
    /// Zeros on both sides of x.
    pub padding: Vec<usize>,
    /// From one element of a window to the next.
    pub dilation: Vec<usize>,
    /// G.
    pub groups: usize,
}

/// Which product of a convolution, and the shape of its result.
///
/// The shapes of the operands do not fix this shape, for two reasons. A stride passes over elements behind the last window.
/// A transposed convolution may pad its output by whole strides, where a convolution of the padded tensor would have more
/// windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvolutionProduct {
    /// From x and the weight: the first windows of x, as many as this shape has.
    Output(Vec<usize>),
    /// From the output's gradient and the weight, for an x of this shape.
    InputGradient(Vec<usize>),
    /// From x and the output's gradient, for a weight of this shape. x may have room for more windows than the gradient
    /// has.
    WeightGradient(Vec<usize>),
}

impl Convolution {
    /// Of one dimension, the same in two.
    pub fn in_a_plane(&self) -> Self {
        let and = |lengths: &[usize], other| lengths.iter().copied().chain([other]).collect();
        Self {
            stride: and(&self.stride, 1),
            padding: and(&self.padding, 0),
            dilation: and(&self.dilation, 1),
            groups: self.groups,
        }
    }
}

#[cfg(feature = "cube")]
impl ConvolutionProduct {
    /// Of one dimension, the same in two.
    pub fn in_a_plane(&self) -> Self {
        let and_one = |shape: &[usize]| shape.iter().copied().chain([1]).collect();
        match self {
            Self::Output(shape) => Self::Output(and_one(shape)),
            Self::InputGradient(shape) => Self::InputGradient(and_one(shape)),
            Self::WeightGradient(shape) => Self::WeightGradient(and_one(shape)),
        }
    }
}

impl ConvolutionProduct {
    /// The shape of the result.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Output(shape) | Self::InputGradient(shape) | Self::WeightGradient(shape) => shape,
        }
    }
}
