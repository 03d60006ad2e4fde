//! What a convolution is, to a backend that computes its products.

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

/// Which product of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvolutionProduct {
    /// Of x and the weight.
    Output,
    /// Of the output's gradient and the weight, for an x of this shape.
    InputGradient(Vec<usize>),
    /// Of x and the output's gradient, for a weight of this shape.
    WeightGradient(Vec<usize>),
}

#[cfg(feature = "cube")]
impl Convolution {
    /// Of one dimension, the same in two.
    pub(super) fn in_a_plane(&self) -> Self {
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
    pub(super) fn in_a_plane(&self) -> Self {
        let and_one = |shape: &[usize]| shape.iter().copied().chain([1]).collect();
        match self {
            Self::Output => Self::Output,
            Self::InputGradient(shape) => Self::InputGradient(and_one(shape)),
            Self::WeightGradient(shape) => Self::WeightGradient(and_one(shape)),
        }
    }
}

#[cfg(feature = "fusion")]
impl ConvolutionProduct {
    /// The shape of the result, of operands of these shapes.
    pub(super) fn shape(&self, convolution: &Convolution, operands: [&[usize]; 2]) -> Vec<usize> {
        match self {
            Self::InputGradient(shape) | Self::WeightGradient(shape) => shape.clone(),
            Self::Output => {
                let [x, weight] = operands;
                let lengths = burn_backend::ops::conv::calculate_conv_output_sizes(
                    &weight[2..],
                    &convolution.stride,
                    &convolution.padding,
                    &convolution.dilation,
                    &x[2..],
                );
                [x[0], weight[0]].into_iter().chain(lengths).collect()
            }
        }
    }
}
