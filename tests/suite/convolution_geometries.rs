//! Convolutions of every geometry, transposed or not, in one to three dimensions, in both passes: against sums of single
//! products, window by window. All numbers are whole and small, so every sum is exact in any order.

use burn::backend::Autodiff;
#[cfg(test_backend = "flex")]
use burn::backend::NdArray;
use burn::tensor::Tensor;
use burn::tensor::TensorData;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::module::{
    conv_transpose1d, conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d,
};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs};
use proptest::prelude::*;

use crate::support::*;

/// A convolution and the lengths of its tensors, axis by axis.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) transposed: bool,
    pub(super) images: usize,
    /// Input and output channels of a group.
    pub(super) channels: [usize; 2],
    pub(super) groups: usize,
    pub(super) axes: Vec<AxisCase>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AxisCase {
    /// Of the input.
    pub(super) length: usize,
    pub(super) window: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
    /// Of a transposed convolution.
    pub(super) padding_out: usize,
}

impl AxisCase {
    /// The length of the output; `None` if there is no room for one.
    fn output(self, transposed: bool) -> Option<usize> {
        let reach = self.dilation * (self.window - 1) + 1;
        let padding = 2 * self.padding;
        let length = match transposed {
            false => (self.length + padding).checked_sub(reach)? / self.stride + 1,
            true => {
                let all = (self.length - 1) * self.stride + reach + self.padding_out;
                all.checked_sub(padding)?
            }
        };
        (length > 0).then_some(length)
    }
}

/// A product of an element of x and one of the weight.
pub(super) struct SingleProduct {
    /// Of the window, in row-major order.
    pub(super) position: usize,
    /// The element of the window, in row-major order.
    pub(super) tap: usize,
    pub(super) image: usize,
    /// Channel of x in its group.
    pub(super) input: usize,
    /// Channel of the output in its group.
    pub(super) output: usize,
    /// Where the elements of x and of the weight lie, and the place of the output which sums them up.
    pub(super) at: [usize; 3],
}

/// x, weight, bias, and the output's gradient.
pub(super) type Inputs = [TensorData; 4];
/// Output, and the gradients of x, weight and bias.
pub(super) type Results = [Vec<f32>; 4];

/// All positions along axes of these lengths, in row-major order.
fn positions(lengths: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..lengths.iter().product()).map(move |mut at| {
        let mut position = vec![0; lengths.len()];
        for (axis, length) in lengths.iter().enumerate().rev() {
            position[axis] = at % length;
            at /= length;
        }
        position
    })
}

impl Case {
    fn output(&self) -> Option<Vec<usize>> {
        let lengths = self.axes.iter().map(|axis| axis.output(self.transposed));
        lengths.collect()
    }

    fn lengths(&self, of: impl Fn(&AxisCase) -> usize) -> Vec<usize> {
        self.axes.iter().map(of).collect()
    }

    fn array<const N: usize>(&self, of: impl Fn(&AxisCase) -> usize) -> [usize; N] {
        core::array::from_fn(|axis| of(&self.axes[axis]))
    }

    /// Whole numbers from -4 to 4.
    fn whole_inputs(&self) -> Inputs {
        self.inputs(|seed, i| ((i * 7919 + seed as usize * 104_729) % 9) as f32 - 4.0)
    }

    /// Numbers that are a function of a seed for each tensor, and of the index.
    pub(super) fn inputs(&self, number: impl Fn(u64, usize) -> f32) -> Inputs {
        let [input, output] = self.channels;
        let whole = |seed, leading: &[usize], lengths: &[usize]| {
            let shape = [leading, lengths].concat();
            let count = shape.iter().product();
            TensorData::new(
                (0..count).map(|i| number(seed, i)).collect::<Vec<_>>(),
                shape,
            )
        };
        let weight = match self.transposed {
            false => [self.groups * output, input],
            true => [self.groups * input, output],
        };
        let out = self.output().expect("there is room");
        let (inputs, outputs) = (self.groups * input, self.groups * output);
        [
            whole(1, &[self.images, inputs], &self.lengths(|axis| axis.length)),
            whole(2, &weight, &self.lengths(|axis| axis.window)),
            whole(3, &[outputs], &[]),
            whole(4, &[self.images, outputs], &out),
        ]
    }

    fn expected(&self, inputs: &Inputs) -> Results {
        let [x, weight, bias, grad] = inputs.each_ref().map(|data| data.to_vec::<f32>().unwrap());
        let of_output = self
            .output()
            .expect("there is room")
            .iter()
            .product::<usize>();
        let channel = |i: usize| i / of_output % bias.len();
        let mut out: Vec<f32> = (0..grad.len()).map(|i| bias[channel(i)]).collect();
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
        let mut db = vec![0.0; bias.len()];
        (0..grad.len()).for_each(|i| db[channel(i)] += grad[i]);
        self.for_each_product(|product| {
            let [x_at, w_at, out_at] = product.at;
            out[out_at] += x[x_at] * weight[w_at];
            dx[x_at] += grad[out_at] * weight[w_at];
            dw[w_at] += grad[out_at] * x[x_at];
        });
        [out, dx, dw, db]
    }

    /// All products of elements of x and the weight that the output sums up.
    pub(super) fn for_each_product(&self, mut function: impl FnMut(SingleProduct)) {
        let lengths = self.lengths(|axis| axis.length);
        let output = self.output().expect("there is room");
        let window = self.lengths(|axis| axis.window);
        let [of_plane, of_output, taps] =
            [&lengths, &output, &window].map(|lengths| lengths.iter().product::<usize>());
        // A window lies on the input, for each element of the output; transposed, the other way round.
        let (sparse, dense) = match self.transposed {
            false => (&output, &lengths),
            true => (&lengths, &output),
        };
        for (position, first) in positions(sparse).enumerate() {
            for (tap, element) in positions(&window).enumerate() {
                let place = self
                    .axes
                    .iter()
                    .enumerate()
                    .try_fold(0, |place, (i, axis)| {
                        let along = first[i] * axis.stride + element[i] * axis.dilation;
                        let along = along.checked_sub(axis.padding)?;
                        (along < dense[i]).then_some(place * dense[i] + along)
                    });
                let Some(place) = place else { continue };
                let (in_x, in_out) = match self.transposed {
                    false => (place, position),
                    true => (position, place),
                };
                let [inputs, outputs] = self.channels;
                for all in positions(&[self.images, self.groups, inputs, outputs]) {
                    let [image, group, input, output] = all[..] else {
                        unreachable!()
                    };
                    let plane = image * self.groups + group;
                    let filter = match self.transposed {
                        false => (group * outputs + output) * inputs + input,
                        true => (group * inputs + input) * outputs + output,
                    };
                    function(SingleProduct {
                        position,
                        tap,
                        image,
                        input,
                        output,
                        at: [
                            (plane * inputs + input) * of_plane + in_x,
                            filter * taps + tap,
                            (plane * outputs + output) * of_output + in_out,
                        ],
                    });
                }
            }
        }
    }

    /// The backend's result.
    pub(super) fn results<B: AutodiffBackend>(
        &self,
        inputs: &Inputs,
        device: &B::Device,
    ) -> Results {
        macro_rules! in_dimensions {
            ($n:literal, $rank:literal, $conv:ident, $transposed:ident) => {{
                let [x, weight, bias, grad] = inputs.clone();
                let x = Tensor::<B, $rank>::from_data(x, device).require_grad();
                let weight = Tensor::<B, $rank>::from_data(weight, device).require_grad();
                let bias = Tensor::<B, 1>::from_data(bias, device).require_grad();
                let (operand, filters, added) = (x.clone(), weight.clone(), Some(bias.clone()));
                let stride = self.array::<$n>(|axis| axis.stride);
                let padding = self.array::<$n>(|axis| axis.padding);
                let dilation = self.array::<$n>(|axis| axis.dilation);
                let out = match self.transposed {
                    false => {
                        let options = ConvOptions::new(stride, padding, dilation, self.groups);
                        $conv(operand, filters, added, options)
                    }
                    true => {
                        let padding_out = self.array::<$n>(|axis| axis.padding_out);
                        let options = ConvTransposeOptions::new(
                            stride,
                            padding,
                            padding_out,
                            dilation,
                            self.groups,
                        );
                        $transposed(operand, filters, added, options)
                    }
                };
                let loss = out.clone() * Tensor::from_data(grad, device);
                let grads = loss.sum().backward();
                let dx = x.grad(&grads).expect("x is a leaf");
                assert_eq!(dx.dims(), x.dims(), "dx of {self:?}");
                [
                    values(out),
                    values(dx),
                    values(weight.grad(&grads).expect("the weight is a leaf")),
                    values(bias.grad(&grads).expect("the bias is a leaf")),
                ]
            }};
        }
        match self.axes.len() {
            1 => in_dimensions!(1, 3, conv1d, conv_transpose1d),
            2 => in_dimensions!(2, 4, conv2d, conv_transpose2d),
            _ => in_dimensions!(3, 5, conv3d, conv_transpose3d),
        }
    }

    fn check<B: MxKernels>(&self) {
        let inputs = self.whole_inputs();
        let expected = self.expected(&inputs);
        // The first fits bfloat16 products, the second is left to the wrapped backend's own, the last one has a matrix unit.
        for (element, accumulator) in [
            ("mx(element=bfloat16)", None),
            ("mx(element=float16)", None),
            ("mx(element=bfloat16)", Some("hopper")),
        ] {
            let format = Some(element.into());
            let specs = MxSpecs {
                w_elem_format: format,
                a_elem_format: format,
                accumulator: accumulator.map(|name| name.parse().expect("a chip")),
                ..MxSpecs::none()
            };
            let device = device::<B>(&specs);
            let got = self.results::<MxAutodiff<B>>(&inputs, &device);
            let names = ["out", "dx", "dw", "db"].into_iter();
            for (name, (got, expected)) in names.zip(got.iter().zip(&expected)) {
                assert_eq!(got, expected, "{name} of {element}, {self:?}");
            }
        }
        if !self.is_wrong_in_burn() {
            let device = device::<B>(&MxSpecs::none());
            let got = self.results::<MxAutodiff<B>>(&inputs, &device);
            let plain = self.results::<Autodiff<B>>(&inputs, &B::Device::default());
            assert_eq!(got, plain, "without specs, {self:?}");
            assert_eq!(plain, expected, "Burn's own, {self:?}");
        }
    }

    /// Burn 0.21's gradient of a weight of groups in one dimension, where the last window ends early.
    fn is_wrong_in_burn(&self) -> bool {
        !self.transposed && self.axes.len() == 1 && self.groups > 1
    }
}

pub(super) fn device<B: MxKernels>(specs: &MxSpecs) -> MxDevice<B::Device> {
    let specs = specs.resolve().expect("the specs are sound");
    MxDevice::new(B::Device::default(), &specs).expect("resolved specs")
}

fn cases() -> impl Strategy<Value = Case> {
    let axis = |length| {
        (
            1..=length,
            1..=3_usize,
            1..=3_usize,
            0..=3_usize,
            1..=3_usize,
            0..=3_usize,
        )
            .prop_map(|(length, window, stride, padding, dilation, padding_out)| {
                AxisCase {
                    length,
                    window,
                    stride,
                    padding,
                    dilation,
                    padding_out,
                }
            })
    };
    let axes = prop_oneof![
        proptest::collection::vec(axis(12_usize), 1),
        proptest::collection::vec(axis(7_usize), 2),
        proptest::collection::vec(axis(4_usize), 3),
    ];
    let channels = [1..=6_usize, 1..=6];
    (any::<bool>(), 1..=3_usize, channels, 1..=3_usize, axes)
        .prop_map(|(transposed, images, channels, groups, axes)| Case {
            transposed,
            images,
            channels,
            groups,
            axes,
        })
        .prop_filter("room", |case| case.output().is_some())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn convolutions_of_any_geometry_are_sums_of_products(case in cases()) {
        case.check::<TestBackend>();
        #[cfg(test_backend = "flex")]
        case.check::<NdArray>();
    }
}

/// Whole strides of zeros behind the output, where a convolution of the gradient has more windows than the input has
/// elements; many channels, so that the products are own ones.
#[test]
fn transposed_convolutions_padded_by_whole_strides() {
    let axis = AxisCase {
        length: 5,
        window: 3,
        stride: 1,
        padding: 1,
        dilation: 2,
        padding_out: 1,
    };
    for dimensions in 1..=3 {
        let case = Case {
            transposed: true,
            images: 2,
            channels: [4, 8],
            groups: 1,
            axes: vec![axis; dimensions],
        };
        case.check::<TestBackend>();
        #[cfg(test_backend = "flex")]
        case.check::<NdArray>();
    }
}

/// A weight in groups, each of a window that ends a dilation before its input does: Burn 0.21's own gradient is wrong.
#[test]
fn strided_convolutions_in_groups_in_one_dimension() {
    for (channels, groups) in [([2, 3], 2), ([1, 1], 6)] {
        let case = Case {
            transposed: false,
            images: 2,
            channels,
            groups,
            axes: vec![AxisCase {
                length: 8,
                window: 3,
                stride: 2,
                padding: 0,
                dilation: 1,
                padding_out: 0,
            }],
        };
        case.check::<TestBackend>();
        #[cfg(test_backend = "flex")]
        case.check::<NdArray>();
    }
}
