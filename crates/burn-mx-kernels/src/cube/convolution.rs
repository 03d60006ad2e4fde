//! Convolutions on a device, where Burn's own kernels do not fit. On CUDA and HIP they may round float32 operands to
//! tensor-float-32. With feature `autotune` they take the strategy that was the fastest in a trial.

use burn_backend::ops::ConvOptions;
use burn_backend::{Backend, FloatDType, Shape, Slice, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::conv::{ConvStrategy, conv_forward};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;

use super::numbers::float::Float32;
use crate::product::convolution::{Convolution, ConvolutionProduct};
use microscaling_product::are_products_reproducible;

/// Significant bits of a tensor-float-32 number.
const TENSOR_FLOAT_BITS: u32 = 11;

/// Whether [`convolve`] computes the products of tensors with this number of significant bits.
pub(super) fn is_own<R: CubeRuntime>(client: &ComputeClient<R>, significant_bits: u32) -> bool {
    let is_rounded = Float32::of(client) == Float32::Device && significant_bits > TENSOR_FLOAT_BITS;
    is_rounded || are_products_reproducible()
}

/// A product of a convolution in one, two or three dimensions, in true float32, number by number.
pub(super) fn convolve<R: CubeRuntime, T: Backend<FloatTensorPrimitive = CubeTensor<R>>>(
    convolution: &Convolution,
    product: &ConvolutionProduct,
    operands: [CubeTensor<R>; 2],
    bias: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    match convolution.stride.len() {
        1 => {
            let plane = |tensor: CubeTensor<R>| {
                let shape = tensor
                    .shape()
                    .iter()
                    .copied()
                    .chain([1])
                    .collect::<Vec<_>>();
                T::float_reshape(tensor, Shape::from(shape))
            };
            let result = convolve::<R, T>(
                &convolution.in_a_plane(),
                &product.in_a_plane(),
                operands.map(plane),
                bias,
            );
            let line = Shape::from(result.shape()[..3].to_vec());
            T::float_reshape(result, line)
        }
        2 => ConvolutionDims::<2>::of(convolution).product::<R, T>(product, operands, bias),
        3 => ConvolutionDims::<3>::of(convolution).product::<R, T>(product, operands, bias),
        dimensions => unreachable!("a convolution in {dimensions} dimensions"),
    }
}

/// A [`Convolution`] in `N` dimensions.
struct ConvolutionDims<const N: usize> {
    stride: [usize; N],
    padding: [usize; N],
    dilation: [usize; N],
    groups: usize,
}

impl<const N: usize> ConvolutionDims<N> {
    fn of(convolution: &Convolution) -> Self {
        let array = |lengths: &[usize]| -> [usize; N] {
            lengths.try_into().expect("there is one for each dimension")
        };
        Self {
            stride: array(&convolution.stride),
            padding: array(&convolution.padding),
            dilation: array(&convolution.dilation),
            groups: convolution.groups,
        }
    }

    fn product<R: CubeRuntime, T: Backend<FloatTensorPrimitive = CubeTensor<R>>>(
        &self,
        product: &ConvolutionProduct,
        [first, second]: [CubeTensor<R>; 2],
        bias: Option<CubeTensor<R>>,
    ) -> CubeTensor<R> {
        match product {
            ConvolutionProduct::Output(shape) => {
                let Self {
                    stride,
                    padding,
                    dilation,
                    groups,
                } = *self;
                let options = ConvOptions::new(stride, padding, dilation, groups);
                let output = directly(first, second, bias, options);
                // There may be room for more windows.
                let wanted: Vec<_> = shape.iter().map(|length| Slice::from(0..*length)).collect();
                match output.shape()[..] == shape[..] {
                    true => output,
                    false => T::float_slice(output, &wanted),
                }
            }
            ConvolutionProduct::InputGradient(shape) => {
                self.input_gradient::<R, T>(first, second, bias, &shape[2..])
            }
            ConvolutionProduct::WeightGradient(shape) => {
                self.weight_gradient::<R, T>(first, second, shape)
            }
        }
    }

    /// The gradient of an x with these lengths after its channels. The output's gradient, spread out by the stride, is
    /// convolved with the flipped weight. Burn's own kernels of transposed convolutions either multiply matrices, or leave
    /// windows out that are shorter than the stride.
    fn input_gradient<R: CubeRuntime, T: Backend<FloatTensorPrimitive = CubeTensor<R>>>(
        &self,
        grad: CubeTensor<R>,
        weight: CubeTensor<R>,
        bias: Option<CubeTensor<R>>,
        lengths: &[usize],
    ) -> CubeTensor<R> {
        let (of_grad, of_weight) = (grad.shape(), weight.shape());
        let beyond: [usize; N] =
            core::array::from_fn(|axis| self.dilation[axis] * (of_weight[axis + 2] - 1));
        let last = |axis: usize| (of_grad[axis + 2] - 1) * self.stride[axis];
        // With zeros behind where the result is longer than what the windows reach.
        let spread = (0..N).map(|axis| {
            let wanted = lengths[axis] + self.padding[axis];
            wanted.saturating_sub(beyond[axis]).max(last(axis) + 1)
        });
        let spread: Vec<_> = of_grad[..2].iter().copied().chain(spread).collect();
        let grad = match spread == of_grad[..] {
            true => grad,
            false => {
                let zeros = T::float_zeros(
                    Shape::from(spread),
                    &T::float_device(&grad),
                    FloatDType::F32,
                );
                let all = of_grad[..2].iter().map(|length| Slice::from(0..*length));
                let apart = (0..N).map(|axis| {
                    let stride = self.stride[axis] as isize;
                    Slice::new(0, Some(last(axis) as isize + 1), stride)
                });
                let places: Vec<_> = all.chain(apart).collect();
                T::float_slice_assign(zeros, &places, grad)
            }
        };
        // [G · O, C, ..] to [G · C, O, ..]
        let (outputs, inputs) = (of_weight[0] / self.groups, of_weight[1]);
        let shaped = |channels: &[usize], tensor| {
            let shape = channels.iter().chain(&of_weight[2..]).copied();
            let shape = Shape::from(shape.collect::<Vec<_>>());
            T::float_reshape(tensor, shape)
        };
        // Burn 0.21 reads a pitched tensor wrongly if the shape splits an axis and the last axis has one element.
        let weight = into_contiguous(weight);
        let weight = shaped(&[self.groups, outputs, inputs], weight);
        let weight = T::float_swap_dims(weight, 1, 2);
        let weight = shaped(&[self.groups * inputs, outputs], weight);
        let axes: Vec<_> = (2..N + 2).collect();
        let weight = T::float_flip(weight, &axes);
        let options = ConvOptions::new([1; N], beyond, self.dilation, self.groups);
        let gradient = directly(grad, weight, bias, options);
        let all = gradient.shape()[..2].to_vec();
        let all = all.into_iter().map(|length| Slice::from(0..length));
        let own = self.padding.iter().zip(lengths);
        let own = own.map(|(padding, length)| Slice::from(*padding..padding + length));
        T::float_slice(gradient, &all.chain(own).collect::<Vec<_>>())
    }

    /// The gradient of a weight of this shape: of each group the convolution of x's channels and the gradient's, the
    /// images summed over, with strides for dilations.
    fn weight_gradient<R: CubeRuntime, T: Backend<FloatTensorPrimitive = CubeTensor<R>>>(
        &self,
        x: CubeTensor<R>,
        grad: CubeTensor<R>,
        shape: &[usize],
    ) -> CubeTensor<R> {
        let (outputs, inputs) = (shape[0] / self.groups, shape[1]);
        let channels_of = |tensor: &CubeTensor<R>, group: usize, count: usize| {
            let [images, channels] = [0..tensor.shape()[0], group * count..(group + 1) * count];
            let slices = [images, channels].map(Slice::from);
            let channels = T::float_slice(tensor.clone(), &slices);
            T::float_swap_dims(channels, 0, 1)
        };
        let of_group = |group| {
            let x = channels_of(&x, group, inputs);
            let grad = channels_of(&grad, group, outputs);
            let options = ConvOptions::new(self.dilation, self.padding, self.stride, 1);
            let gradient = directly(x, grad, None, options);
            let gradient = T::float_swap_dims(gradient, 0, 1);
            // The rest of x behind the last stride has no place in a window.
            let window = [outputs, inputs]
                .into_iter()
                .chain(shape[2..].iter().copied());
            let window: Vec<_> = window.map(|length| Slice::from(0..length)).collect();
            T::float_slice(gradient, &window)
        };
        T::float_cat((0..self.groups).map(of_group).collect(), 0)
    }
}

fn directly<R: CubeRuntime, const N: usize>(
    x: CubeTensor<R>,
    weight: CubeTensor<R>,
    bias: Option<CubeTensor<R>>,
    options: ConvOptions<N>,
) -> CubeTensor<R> {
    conv_forward(x, weight, bias, options, ConvStrategy::Direct)
        .unwrap_or_else(|error| panic!("burn-mx: a convolution failed: {error:?}"))
}
