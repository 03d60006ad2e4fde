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
