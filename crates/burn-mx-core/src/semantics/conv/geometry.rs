//! The geometry of a convolution: its direction, its strides, and the axes of its operands.

use super::CHANNELS;
use crate::semantics::product::{Along, ForwardOperand};
use crate::specs::Slot;
use burn_backend::ops::{ConvOptions, ConvTransposeOptions};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{Convolution, ConvolutionProduct};

/// Which way a convolution goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Normal,
    Transposed,
}

impl Direction {
    /// The axis of the weight along which the forward product sums.
    fn weight_input_axis(self) -> usize {
        match self {
            Self::Normal => 1,
            Self::Transposed => 0,
        }
    }

    /// Multiplications of the convolution of x, or of one of its gradients. Each element of the output meets all weights of its channel.
    /// Of a transposed convolution, each element of x does.
    pub(in crate::semantics) fn macs(self, [x, output]: [&Shape; 2], weight: &Shape) -> usize {
        let elements = match self {
            Self::Normal => output.num_elements(),
            Self::Transposed => x.num_elements(),
        };
        elements * weight.num_elements() / weight[0].max(1)
    }

    /// x and weight of the forward product, with the axes along which it sums.
    pub(in crate::semantics) fn forward_operands(self, groups: usize) -> [ForwardOperand; 2] {
        let weight_groups = match self {
            // A filter has the input channels of one group only.
            Self::Normal => 1,
            Self::Transposed => groups,
        };
        let weight = Along::axis(self.weight_input_axis(), weight_groups);
        [
            ForwardOperand {
                slot: Slot::A,
                along: Along::axis(CHANNELS, groups),
            },
            ForwardOperand {
                slot: Slot::W,
                along: weight,
            },
        ]
    }

    /// The axis of the weight along which the product for the input's gradient sums.
    pub(in crate::semantics) fn weight_output_axis(self) -> usize {
        1 - self.weight_input_axis()
    }
}

/// The windows of a convolution, and its direction. A transposed convolution computes the input's gradient of a convolution
/// with the same weight. The input's gradient of the transposed one is the output of the other.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) direction: Direction,
    pub(super) convolution: Convolution,
    /// Of a transposed one: zeros after its output.
    padding_out: Vec<usize>,
}

impl<const N: usize> From<&ConvOptions<N>> for Geometry {
    fn from(options: &ConvOptions<N>) -> Self {
        Self {
            direction: Direction::Normal,
            convolution: Convolution {
                stride: options.stride.to_vec(),
                padding: options.padding.to_vec(),
                dilation: options.dilation.to_vec(),
                groups: options.groups,
            },
            padding_out: vec![0; N],
        }
    }
}

impl<const N: usize> From<&ConvTransposeOptions<N>> for Geometry {
    fn from(options: &ConvTransposeOptions<N>) -> Self {
        Self {
            direction: Direction::Transposed,
            convolution: Convolution {
                stride: options.stride.to_vec(),
                padding: options.padding.to_vec(),
                dilation: options.dilation.to_vec(),
                groups: options.groups,
            },
            padding_out: options.padding_out.to_vec(),
        }
    }
}

impl Geometry {
    /// x and weight of the forward product.
    pub(crate) fn forward_operands(&self) -> [ForwardOperand; 2] {
        self.direction.forward_operands(self.convolution.groups)
    }

    /// The product that the output of operands of these shapes is; `None` if x has no room for a window.
    pub(super) fn output_product(
        &self,
        x: &[usize],
        weight: &[usize],
    ) -> Option<ConvolutionProduct> {
        Some(match self.direction {
            Direction::Normal => ConvolutionProduct::Output(self.convolved(x, weight)?),
            Direction::Transposed => ConvolutionProduct::InputGradient(self.transposed(x, weight)?),
        })
    }

    /// The same of the gradient of the input, which has the shape `x`.
    pub(super) fn input_gradient_product(
        &self,
        x: Option<&[usize]>,
        weight: &[usize],
        grad: &[usize],
    ) -> Option<ConvolutionProduct> {
        Some(match self.direction {
            Direction::Normal => ConvolutionProduct::InputGradient(x?.to_vec()),
            Direction::Transposed => {
                ConvolutionProduct::Output(self.transposed_from(grad, weight)?)
            }
        })
    }

    /// x and the output's gradient in the order in which the product for a weight's gradient has them.
    pub(super) fn of_weight_gradient<T>(&self, x: T, grad: T) -> [T; 2] {
        match self.direction {
            Direction::Normal => [x, grad],
            Direction::Transposed => [grad, x],
        }
    }

    /// The convolution of quantized tensors, if the backend has a product for it.
    pub(super) fn output<B: MxKernels>(
        &self,
        x: &FloatTensor<B>,
        weight: &FloatTensor<B>,
        bias: Option<&FloatTensor<B>>,
        bits: u32,
    ) -> Option<FloatTensor<B>> {
        let product = self.output_product(&x.shape(), &weight.shape())?;
        B::kernels().convolution_product(&self.convolution, &product, [x, weight], bias, bits)
    }

    /// The gradient of the input, which has the shape `x`, in the same way.
    pub(super) fn input_gradient<B: MxKernels>(
        &self,
        x: Option<Shape>,
        weight: &FloatTensor<B>,
        grad: &FloatTensor<B>,
        bits: u32,
    ) -> Option<FloatTensor<B>> {
        let x = x.as_ref().map(|x| x.as_slice());
        let product = self.input_gradient_product(x, &weight.shape(), &grad.shape())?;
        B::kernels().convolution_product(&self.convolution, &product, [grad, weight], None, bits)
    }

    /// The gradient of the weight, which has the shape `weight`, in the same way.
    pub(super) fn weight_gradient<B: MxKernels>(
        &self,
        x: &FloatTensor<B>,
        weight: Shape,
        grad: &FloatTensor<B>,
        bits: u32,
    ) -> Option<FloatTensor<B>> {
        let product = ConvolutionProduct::WeightGradient(weight.to_vec());
        let operands = self.of_weight_gradient(x, grad);
        B::kernels().convolution_product(&self.convolution, &product, operands, None, bits)
    }

    /// The gradient of a weight in one dimension and in groups, by `B`'s op in two dimensions. In one dimension Burn 0.21's
    /// own is wrong where the last window ends a dilation or more before the padded x does.
    pub(super) fn weight_gradient_in_a_plane<B: MxKernels>(
        &self,
        x: &FloatTensor<B>,
        weight: &FloatTensor<B>,
        grad: &FloatTensor<B>,
    ) -> Option<FloatTensor<B>> {
        let wrong = self.direction == Direction::Normal && self.convolution.groups > 1;
        if !wrong || self.convolution.stride.len() != 1 {
            return None;
        }
        let convolution = self.convolution.in_a_plane();
        let pair = |lengths: Vec<usize>| [lengths[0], lengths[1]];
        let options = ConvOptions::new(
            pair(convolution.stride),
            pair(convolution.padding),
            pair(convolution.dilation),
            convolution.groups,
        );
        let plane = |tensor: &FloatTensor<B>| {
            let [leading, channels, length] = tensor.shape().dims();
            B::float_reshape(tensor.clone(), Shape::new([leading, channels, length, 1]))
        };
        let gradient = B::conv2d_weight_backward(plane(x), plane(weight), plane(grad), options);
        Some(B::float_reshape(gradient, weight.shape()))
    }

    /// The shape of a convolution's output; `None` if x has no room for a window.
    fn convolved(&self, x: &[usize], weight: &[usize]) -> Option<Vec<usize>> {
        self.shape([x[0], weight[0]], |axis| {
            let padded = x[axis + 2] + 2 * self.convolution.padding[axis];
            let room = padded.checked_sub(self.reach(axis, weight))?;
            Some(room / self.convolution.stride[axis] + 1)
        })
    }

    /// The shape of a transposed convolution's output; `None` if its padding leaves nothing.
    fn transposed(&self, x: &[usize], weight: &[usize]) -> Option<Vec<usize>> {
        self.shape([x[0], self.convolution.groups * weight[1]], |axis| {
            let strides = x[axis + 2].checked_sub(1)? * self.convolution.stride[axis];
            let all = strides + self.reach(axis, weight) + self.padding_out[axis];
            all.checked_sub(2 * self.convolution.padding[axis])
        })
    }

    /// The shape of the x whose transposed convolution has an output of the shape `output`.
    fn transposed_from(&self, output: &[usize], weight: &[usize]) -> Option<Vec<usize>> {
        self.shape([output[0], weight[0]], |axis| {
            let all = output[axis + 2] + 2 * self.convolution.padding[axis];
            let strides = all.checked_sub(self.reach(axis, weight) + self.padding_out[axis])?;
            Some(strides / self.convolution.stride[axis] + 1)
        })
    }

    /// The shape that begins so and goes on with the lengths of the convolution's axes.
    pub(super) fn shape(
        &self,
        leading: [usize; 2],
        length: impl Fn(usize) -> Option<usize>,
    ) -> Option<Vec<usize>> {
        let lengths = (0..self.convolution.stride.len()).map(length);
        leading.map(Some).into_iter().chain(lengths).collect()
    }

    /// From the first element of a window of this weight to the last, both included.
    fn reach(&self, axis: usize, weight: &[usize]) -> usize {
        self.convolution.dilation[axis] * (weight[axis + 2] - 1) + 1
    }
}
