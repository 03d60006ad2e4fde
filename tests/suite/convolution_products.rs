//! Convolutions as products of windows in bfloat16: what the wrapped backend computes.

use burn::backend::flex::FlexDevice;
use burn::backend::{Flex, NdArray};
use burn::prelude::*;
use burn::tensor::TensorPrimitive;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::module::conv_transpose2d;
use burn::tensor::ops::FloatTensor;
use burn_backend::ops::{ConvOptions, ConvTransposeOptions};
use burn_mx::ProductPath;
use burn_mx::{MxKernels, MxSpecs};
use burn_mx_kernels::internal::{Convolution, ConvolutionProduct};
use proptest::prelude::*;

use crate::support::{Mx, Plain, mx_device, values};

/// Whole numbers from -4 to 4: sums of their products are exact, in any order.
fn whole_numbers<B: Backend>(shape: &[usize], seed: usize) -> FloatTensor<B> {
    let count: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 9) as f32 - 4.0;
    let data = TensorData::new((0..count).map(number).collect::<Vec<_>>(), shape.to_vec());
    B::float_from_data(data, &B::Device::default())
}

/// Shape and values; of zeros either sign is the same.
fn read<B: Backend>(tensor: FloatTensor<B>) -> ([usize; 4], Vec<f32>) {
    let tensor = Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(tensor));
    (tensor.dims(), values(tensor))
}

/// A convolution, and the lengths of its tensors.
#[derive(Clone, Copy, Debug)]
struct Case {
    images: usize,
    /// In each group.
    channels: [usize; 2],
    groups: usize,
    plane: [usize; 2],
    window: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

impl Case {
    /// Whether a window finds room.
    fn fits(&self) -> bool {
        (0..2).all(|axis| {
            let reach = self.dilation[axis] * (self.window[axis] - 1) + 1;
            self.plane[axis] + 2 * self.padding[axis] >= reach
        })
    }

    /// All three products are the backend's own, number for number.
    fn check<B: MxKernels>(self) {
        let Self {
            images,
            channels: [input, output],
            groups,
            plane: [height, width],
            window: [rows, columns],
            stride,
            padding,
            dilation,
        } = self;
        let options = || ConvOptions::new(stride, padding, dilation, groups);
        let convolution = Convolution {
            stride: stride.to_vec(),
            padding: padding.to_vec(),
            dilation: dilation.to_vec(),
            groups,
        };
        let x_shape = [images, groups * input, height, width];
        let weight_shape = [groups * output, input, rows, columns];
        let x = whole_numbers::<B>(&x_shape, 1);
        let weight = whole_numbers::<B>(&weight_shape, 2);
        let bias = whole_numbers::<B>(&[groups * output], 4);
        let product = |product, first: &FloatTensor<B>, second: &FloatTensor<B>, rows: usize| {
            let bias = matches!(product, ConvolutionProduct::Output(_)).then_some(&bias);
            let own =
                B::kernels().convolution_product(&convolution, &product, [first, second], bias, 8);
            let wanted = ProductPath::current().is_some() && rows >= 4;
            assert_eq!(own.is_some(), wanted, "{product:?} of {self:?}");
            own.map(read::<B>)
        };
        let check = |own: Option<([usize; 4], Vec<f32>)>, expected: FloatTensor<B>, what: &str| {
            if let Some(own) = own {
                assert_eq!(own, read::<B>(expected), "{what} of {self:?}");
            }
        };

        let expected = B::conv2d(x.clone(), weight.clone(), Some(bias.clone()), options());
        let (out_shape, _) = read::<B>(expected.clone());
        let of_output = ConvolutionProduct::Output(out_shape.to_vec());
        check(product(of_output, &x, &weight, output), expected, "output");

        let grad = whole_numbers::<B>(&out_shape, 3);
        let gradient = ConvolutionProduct::InputGradient(x_shape.to_vec());
        let own = product(gradient, &grad, &weight, input);
        let expected = B::conv2d_x_backward(x.clone(), weight.clone(), grad.clone(), options());
        check(own, expected, "input gradient");

        let gradient = ConvolutionProduct::WeightGradient(weight_shape.to_vec());
        let own = product(gradient, &x, &grad, output);
        let expected = B::conv2d_weight_backward(x, weight, grad, options());
        check(own, expected, "weight gradient");
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let pair = |range: std::ops::RangeInclusive<usize>| [range.clone(), range];
    let lengths = (
        1..=4_usize,
        [1..=6_usize, 1..=9],
        1..=3_usize,
        pair(1..=11),
        pair(1..=4),
    );
    (lengths, pair(1..=3), pair(0..=3), pair(1..=3)).prop_map(
        |((images, channels, groups, plane, window), stride, padding, dilation)| Case {
            images,
            channels,
            groups,
            plane,
            window,
            stride,
            padding,
            dilation,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn products_of_windows_are_convolutions(case in cases().prop_filter("room", Case::fits)) {
        case.check::<Flex>();
    }
}

#[test]
fn products_of_windows_are_convolutions_on_ndarray() {
    let case = Case {
        images: 3,
        channels: [5, 6],
        groups: 2,
        plane: [9, 8],
        window: [3, 2],
        stride: [2, 1],
        padding: [1, 2],
        dilation: [1, 2],
    };
    case.check::<NdArray>();
}

/// Too many windows to lay them out at once.
#[test]
fn many_windows() {
    let case = Case {
        images: 7,
        channels: [16, 12],
        groups: 1,
        plane: [64, 63],
        window: [3, 3],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
    };
    case.check::<Flex>();
}

/// Output and gradients of a transposed convolution of whole numbers.
fn transposed<B: AutodiffBackend>(
    [stride, padding, padding_out, dilation]: [[usize; 2]; 4],
    groups: usize,
    device: &B::Device,
) -> [Vec<f32>; 3] {
    let tensor = |shape: [usize; 4], seed| {
        let data = whole_numbers::<Flex>(&shape, seed);
        let data = Tensor::<Flex, 4>::from_primitive(TensorPrimitive::Float(data)).into_data();
        Tensor::<B, 4>::from_data(data, device).require_grad()
    };
    let x = tensor([3, 8, 6, 5], 1);
    let weight = tensor([8, 10 / groups, 3, 2], 2);
    let options = ConvTransposeOptions::new(stride, padding, padding_out, dilation, groups);
    let out = conv_transpose2d(x.clone(), weight.clone(), None, options);
    let grad = tensor(out.dims(), 3);
    let grads = (out.clone() * grad.detach()).sum().backward();
    let gradient = |leaf: &Tensor<B, 4>| values(leaf.grad(&grads).expect("it is a leaf"));
    [values(out), gradient(&x), gradient(&weight)]
}

/// Where every number is exact, emulated transposed convolutions are plain ones.
#[test]
fn transposed_convolutions_of_exact_numbers_are_plain_ones() {
    let format = Some("mx(element=bfloat16)".into());
    let specs = MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        ..MxSpecs::none()
    };
    let device = mx_device(&specs);
    let one = [1, 1];
    for geometry in [
        [one, [0, 0], [0, 0], one],
        [[2, 3], [1, 0], [1, 2], one],
        [[2, 2], [1, 2], [0, 1], [2, 1]],
        [[3, 1], [2, 1], [2, 0], [1, 2]],
    ] {
        for groups in [1, 2] {
            let emulated = transposed::<Mx>(geometry, groups, &device);
            let plain = transposed::<Plain>(geometry, groups, &FlexDevice);
            assert_eq!(emulated, plain, "{geometry:?} in {groups} groups");
        }
    }
}

/// The backend multiplies formats that do not fit in bfloat16.
#[test]
fn finer_numbers_are_left_to_the_backend() {
    let convolution = Convolution {
        stride: vec![1, 1],
        padding: vec![0, 0],
        dilation: vec![1, 1],
        groups: 1,
    };
    let x = whole_numbers::<Flex>(&[2, 4, 6, 6], 1);
    let weight = whole_numbers::<Flex>(&[8, 4, 3, 3], 2);
    let product = |x: &FloatTensor<Flex>, bits| {
        let product = ConvolutionProduct::Output(vec![2, 8, 4, 4]);
        Flex::kernels()
            .convolution_product(&convolution, &product, [x, &weight], None, bits)
            .is_some()
    };
    assert_eq!(product(&x, 8), ProductPath::current().is_some());
    assert!(!product(&x, 9));
    let fine = Tensor::<Flex, 4>::from_primitive(TensorPrimitive::Float(x)) * 1.01;
    assert!(!product(&fine.into_primitive().tensor(), 8));
}
