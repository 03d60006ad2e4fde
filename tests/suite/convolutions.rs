//! Convolutions of every kind against an independent composition: the operands quantized by hand, each with the format
//! and rounding of its slot, and Burn alone run on them.
//!
//! The product that gives a gradient is Burn's own autodiff through the plain op, whose other operand is the one
//! quantized for it. The section "Products" of `docs/src/semantics.md` has slots and axes.

use burn::backend::{Autodiff, Flex, NdArray};
use burn::tensor::module::{
    conv_transpose1d, conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d, deform_conv2d,
};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, DeformConvOptions};
use burn::tensor::{Tensor, backend::Backend};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs};

use crate::one_thread::on_one_thread;

use super::arrays::*;
use crate::support::*;

/// A convolution on R-dimensional tensors.
trait Convolution<const R: usize> {
    /// The axis of the weight along which the forward product sums; the other of the first two is summed over by the
    /// product for the input's gradient.
    const INPUT_AXIS: usize;

    fn apply<B: Backend>(
        &self,
        x: Tensor<B, R>,
        w: Tensor<B, R>,
        b: Option<Tensor<B, 1>>,
    ) -> Tensor<B, R>;
}

macro_rules! convolutions {
    ($($options:ty, $rank:literal, $input_axis:literal: $function:ident;)*) => { $(
        impl Convolution<$rank> for $options {
            const INPUT_AXIS: usize = $input_axis;

            fn apply<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
                w: Tensor<B, $rank>,
                b: Option<Tensor<B, 1>>,
            ) -> Tensor<B, $rank> {
                $function(x, w, b, self.clone())
            }
        }
    )* };
}

convolutions! {
    ConvOptions<1>, 3, 1: conv1d;
    ConvOptions<2>, 4, 1: conv2d;
    ConvOptions<3>, 5, 1: conv3d;
    ConvTransposeOptions<1>, 3, 0: conv_transpose1d;
    ConvTransposeOptions<2>, 4, 0: conv_transpose2d;
    ConvTransposeOptions<3>, 5, 0: conv_transpose3d;
}

/// The output, and the gradients of x, w and b for the gradient `g` of the output.
fn results<B: Exact, const R: usize, O: Convolution<R>>(
    op: &O,
    [x, w, b, g]: [&Array; 4],
    device: &B::Device,
) -> [Array; 4] {
    let x = x.tensor::<B, R>(device).require_grad();
    let w = w.tensor::<B, R>(device).require_grad();
    let b = b.tensor::<B, 1>(device).require_grad();
    let out = op.apply(x.clone(), w.clone(), Some(b.clone()));
    let grads = B::loss_with_gradient(out.clone(), g.tensor(device)).backward();
    [
        Array::of(out),
        Array::of(x.grad(&grads).expect("x is a leaf")),
        Array::of(w.grad(&grads).expect("w is a leaf")),
        Array::of(b.grad(&grads).expect("b is a leaf")),
    ]
}

fn assert_composition<B: MxKernels, const R: usize, O: Convolution<R>>(
    op: &O,
    x: [usize; R],
    w: [usize; R],
    channels: usize,
    bfloat16: bool,
) {
    let (x, w, b) = (
        Array::noise(&x, 1),
        Array::noise(&w, 2),
        Array::noise(&[channels], 3),
    );
    let device = B::Device::default();
    let output = op.apply::<B>(x.tensor(&device), w.tensor(&device), None);
    let g = Array::noise(&output.dims(), 4);

    let resolved = specs(bfloat16).resolve().expect("the specs are sound");
    let mx_device = MxDevice::new(B::Device::default(), &resolved).expect("resolved specs");
    let got = results::<MxAutodiff<B>, R, O>(op, [&x, &w, &b, &g], &mx_device);

    let plain = |inputs: [&Array; 4]| results::<Autodiff<B>, R, O>(op, inputs, &device);
    let rounded = |array: &Array| array.clone().rounded(bfloat16);
    let operand = |array: &Array, axis, slot| array.clone().operand(bfloat16, axis, slot);
    let (x_forward, w_forward) = (operand(&x, 1, A), operand(&w, O::INPUT_AXIS, W));
    let [out, _, _, _] = plain([&x_forward, &w_forward, &rounded(&b), &g]);
    let (w_back, g_os) = (
        operand(&w, 1 - O::INPUT_AXIS, W_BP),
        operand(&g, 1, A_BP_OS),
    );
    let [_, dx, _, _] = plain([&x, &w_back, &b, &g_os]);
    let (x_back, g_ex) = (operand(&x, 0, A_BP), operand(&g, 0, A_BP_EX));
    let [_, _, dw, _] = plain([&x_back, &w, &b, &g_ex]);
    let [_, _, _, db] = plain([&x, &w, &b, &rounded(&g)]);

    let expected = [out, dx, dw, db].map(|array| array.rounded(bfloat16));
    for (name, (got, expected)) in ["out", "dx", "dw", "db"]
        .into_iter()
        .zip(got.iter().zip(&expected))
    {
        assert_eq!(got.shape, expected.shape, "{name}");
        assert_same_bits(&got.values, &expected.values, name);
    }
}

/// Both backends, with elementwise emulation and without.
fn assert_everywhere<const R: usize, O: Convolution<R>>(
    op: O,
    x: [usize; R],
    w: [usize; R],
    channels: usize,
) {
    for bfloat16 in [false, true] {
        assert_composition::<Flex, R, O>(&op, x, w, channels, bfloat16);
        assert_composition::<NdArray, R, O>(&op, x, w, channels, bfloat16);
    }
}

#[test]
fn conv1d_of_strides_paddings_dilations_and_groups() {
    assert_everywhere(
        ConvOptions::new([1], [0], [1], 1),
        [6, 10, 9],
        [7, 10, 3],
        7,
    );
    assert_everywhere(
        ConvOptions::new([2], [2], [1], 1),
        [6, 10, 9],
        [7, 10, 3],
        7,
    );
    assert_everywhere(ConvOptions::new([1], [1], [2], 2), [6, 10, 9], [6, 5, 3], 6);
}

#[test]
fn conv2d_of_strides_paddings_dilations_and_groups() {
    assert_everywhere(
        ConvOptions::new([1, 1], [1, 1], [1, 1], 1),
        [5, 9, 6, 5],
        [7, 9, 3, 3],
        7,
    );
    assert_everywhere(
        ConvOptions::new([2, 1], [0, 2], [1, 2], 1),
        [5, 9, 7, 6],
        [7, 9, 3, 2],
        7,
    );
    // Blocks of x and of the gradient run on across groups, and blocks of the weight have one group's channels.
    assert_everywhere(
        ConvOptions::new([1, 2], [1, 1], [2, 1], 3),
        [5, 9, 7, 6],
        [6, 3, 3, 3],
        6,
    );
    // Depthwise.
    assert_everywhere(
        ConvOptions::new([1, 1], [1, 1], [1, 1], 9),
        [5, 9, 5, 5],
        [9, 1, 3, 3],
        9,
    );
}

#[test]
fn conv3d_of_strides_paddings_dilations_and_groups() {
    assert_everywhere(
        ConvOptions::new([1, 2, 1], [1, 0, 1], [1, 1, 2], 1),
        [5, 6, 4, 5, 6],
        [7, 6, 2, 3, 3],
        7,
    );
    assert_everywhere(
        ConvOptions::new([1, 1, 1], [1, 1, 0], [1, 1, 1], 2),
        [5, 6, 3, 4, 3],
        [6, 3, 2, 3, 2],
        6,
    );
}

#[test]
fn conv_transpose1d_of_strides_paddings_dilations_and_groups() {
    let options = |stride, padding, padding_out, dilation, groups| {
        ConvTransposeOptions::new([stride], [padding], [padding_out], [dilation], groups)
    };
    assert_everywhere(options(1, 0, 0, 1, 1), [6, 10, 5], [10, 7, 3], 7);
    assert_everywhere(options(2, 1, 1, 1, 1), [6, 10, 5], [10, 7, 3], 7);
    assert_everywhere(options(2, 1, 1, 2, 2), [6, 10, 5], [10, 3, 3], 6);
}

#[test]
fn conv_transpose2d_of_strides_paddings_dilations_and_groups() {
    let options = |stride, padding, padding_out, dilation, groups| {
        ConvTransposeOptions::new(stride, padding, padding_out, dilation, groups)
    };
    assert_everywhere(
        options([1, 1], [0, 0], [0, 0], [1, 1], 1),
        [5, 9, 4, 3],
        [9, 7, 3, 3],
        7,
    );
    assert_everywhere(
        options([2, 1], [1, 0], [1, 0], [1, 2], 1),
        [5, 9, 4, 3],
        [9, 7, 3, 2],
        7,
    );
    assert_everywhere(
        options([2, 2], [1, 1], [1, 1], [1, 1], 3),
        [5, 9, 4, 3],
        [9, 2, 3, 3],
        6,
    );
}

#[test]
fn conv_transpose3d_of_strides_paddings_dilations_and_groups() {
    let options = |stride, padding, padding_out, dilation, groups| {
        ConvTransposeOptions::new(stride, padding, padding_out, dilation, groups)
    };
    assert_everywhere(
        options([2, 1, 1], [1, 0, 1], [1, 0, 0], [1, 1, 1], 1),
        [5, 6, 3, 2, 3],
        [6, 7, 2, 2, 3],
        7,
    );
    assert_everywhere(
        options([1, 2, 1], [0, 1, 0], [0, 1, 0], [1, 1, 1], 2),
        [5, 6, 3, 2, 3],
        [6, 3, 2, 3, 2],
        6,
    );
}

/// Inputs of a deformable convolution and the gradient of its output.
struct Deformable {
    x: Array,
    offset: Array,
    w: Array,
    mask: Array,
    b: Array,
    g: Array,
}

impl Deformable {
    /// Output and gradients of x, offset, weight, mask and bias.
    fn results<B: Exact>(&self, options: &DeformConvOptions<2>, device: &B::Device) -> [Array; 6] {
        let leaf = |array: &Array| array.tensor::<B, 4>(device).require_grad();
        let [x, offset, w, mask] = [&self.x, &self.offset, &self.w, &self.mask].map(leaf);
        let b = self.b.tensor::<B, 1>(device).require_grad();
        let out = deform_conv2d(
            x.clone(),
            offset.clone(),
            w.clone(),
            Some(mask.clone()),
            Some(b.clone()),
            options.clone(),
        );
        let grads = B::loss_with_gradient(out.clone(), self.g.tensor(device)).backward();
        let grad = |leaf: Tensor<B, 4>| Array::of(leaf.grad(&grads).expect("it is a leaf"));
        [
            Array::of(out),
            grad(x),
            grad(offset),
            grad(w),
            grad(mask),
            Array::of(b.grad(&grads).expect("it is a leaf")),
        ]
    }
}

/// Four weight groups' worth of channels in two groups, each position read by its own offsets.
fn deformable() -> (Deformable, DeformConvOptions<2>) {
    let options = DeformConvOptions::new([1, 2], [1, 1], [1, 1], 2, 2);
    let (batch, height, width) = (5, 4, 3);
    let deformable = Deformable {
        x: Array::noise(&[batch, 6, 4, 5], 1),
        offset: Array::noise(&[batch, 2 * 2 * 9, height, width], 2),
        w: Array::noise(&[6, 3, 3, 3], 3),
        mask: Array::noise(&[batch, 2 * 9, height, width], 4),
        b: Array::noise(&[6], 5),
        g: Array::noise(&[batch, 6, height, width], 6),
    };
    (deformable, options)
}

fn assert_deformable<B: MxKernels>(bfloat16: bool) {
    let (inputs, options) = deformable();
    let resolved = specs(bfloat16).resolve().expect("the specs are sound");
    let got = inputs.results::<MxAutodiff<B>>(
        &options,
        &MxDevice::new(B::Device::default(), &resolved).expect("resolved specs"),
    );

    let plain = |x: Array, w: Array, b: Array, g: Array| {
        let operands = Deformable {
            x,
            w,
            b,
            g,
            offset: inputs.offset.clone(),
            mask: inputs.mask.clone().rounded(bfloat16),
        };
        operands.results::<Autodiff<B>>(&options, &B::Device::default())
    };
    let rounded = |array: &Array| array.clone().rounded(bfloat16);
    let operand = |array: &Array, axis, slot| array.clone().operand(bfloat16, axis, slot);
    let Deformable { x, w, b, g, .. } = &inputs;
    let [out, ..] = plain(operand(x, 1, A), operand(w, 1, W), rounded(b), g.clone());
    let [_, dx, d_offset, _, d_mask, _] = plain(
        rounded(x),
        operand(w, 0, W_BP),
        b.clone(),
        operand(g, 1, A_BP_OS),
    );
    let [_, _, _, dw, _, _] = plain(
        operand(x, 0, A_BP),
        w.clone(),
        b.clone(),
        operand(g, 0, A_BP_EX),
    );
    let [.., db] = plain(x.clone(), w.clone(), b.clone(), rounded(g));

    let names = ["out", "dx", "d_offset", "dw", "d_mask", "db"];
    let expected = [out, dx, d_offset, dw, d_mask, db].map(|array| array.rounded(bfloat16));
    for (name, (got, expected)) in names.into_iter().zip(got.iter().zip(&expected)) {
        assert_eq!(got.shape, expected.shape, "{name}");
        if bfloat16 || name != "db" {
            assert_same_bits(&got.values, &expected.values, name);
            continue;
        }
        // The bias's gradient is summed as a convolution's is, in its own order.
        for (got, expected) in got.values.iter().zip(&expected.values) {
            assert!(
                (got - expected).abs() <= 1e-5 * expected.abs().max(1.0),
                "{name}: {got} {expected}"
            );
        }
    }
}

#[test]
fn deformable_convolution_quantizes_each_operand_of_each_product() {
    for bfloat16 in [false, true] {
        assert_deformable::<Flex>(bfloat16);
        on_one_thread(|| assert_deformable::<NdArray>(bfloat16));
    }
}

/// Numbers of few bits and of one magnitude, whose sums of products are exact in any order.
fn coarse(shape: &[usize], seed: u64) -> Array {
    let mut array = Array::noise(shape, seed);
    let coarse = |x: &mut f32| *x = (*x * 16.0).round() / 16.0;
    array.values.iter_mut().for_each(coarse);
    array
}

fn assert_plain_convolution<B: MxKernels>(bfloat16: bool) {
    let inputs = Deformable {
        x: coarse(&[5, 9, 5, 6], 1),
        offset: Array {
            values: vec![0.0; 5 * 18 * 20],
            shape: vec![5, 18, 5, 4],
        },
        w: coarse(&[6, 3, 3, 3], 2),
        mask: Array {
            values: vec![1.0; 5 * 9 * 20],
            shape: vec![5, 9, 5, 4],
        },
        b: coarse(&[6], 3),
        g: coarse(&[5, 6, 5, 4], 4),
    };
    let resolved = specs(bfloat16).resolve().expect("the specs are sound");
    let device = MxDevice::new(B::Device::default(), &resolved).expect("resolved specs");
    let options = DeformConvOptions::new([1, 1], [1, 0], [1, 1], 3, 1);
    let [out, dx, _, dw, _, db] = inputs.results::<MxAutodiff<B>>(&options, &device);
    let options = ConvOptions::new([1, 1], [1, 0], [1, 1], 3);
    let Deformable { x, w, b, g, .. } = &inputs;
    let expected = results::<MxAutodiff<B>, 4, _>(&options, [x, w, b, g], &device);
    let got = [out, dx, dw, db];
    for (name, (got, expected)) in ["out", "dx", "dw", "db"]
        .into_iter()
        .zip(got.iter().zip(&expected))
    {
        // −0 and 0 are told apart by the order of summation.
        let positive = |array: &Array| array.values.iter().map(|x| x + 0.0).collect::<Vec<_>>();
        assert_same_bits(&positive(got), &positive(expected), name);
    }
}

#[test]
fn deformable_convolution_without_offset_is_the_convolution() {
    for bfloat16 in [false, true] {
        assert_plain_convolution::<Flex>(bfloat16);
        on_one_thread(|| assert_plain_convolution::<NdArray>(bfloat16));
    }
}

#[test]
fn deformable_convolution_without_emulation_is_the_wrapped_backends() {
    let (inputs, options) = deformable();
    let got = inputs.results::<Mx>(&options, &mx_device(&MxSpecs::none()));
    let expected = inputs.results::<Plain>(&options, &Default::default());
    for (got, expected) in got.iter().zip(&expected) {
        assert_same_bits(&got.values, &expected.values, "deform_conv2d");
    }
}

/// Formats so fine that nearly all the difference is the transform's own.
#[test]
fn a_hadamard_transform_leaves_a_deformable_convolutions_products_as_they_are() {
    let (inputs, options) = deformable();
    let results = |hadamard_block_size| {
        let format = Some(
            "bfp(bit_width=32,block_size=8)"
                .parse()
                .expect("it is a format"),
        );
        let specs = MxSpecs {
            w_elem_format: format,
            a_elem_format: format,
            hadamard_block_size,
            ..MxSpecs::default()
        };
        inputs.results::<Mx>(&options, &mx_device(&specs))
    };
    let names = ["out", "dx", "d_offset", "dw", "d_mask", "db"];
    for (name, (got, expected)) in names.into_iter().zip(results(16).iter().zip(&results(0))) {
        let transformed = ["dx", "d_offset", "d_mask"].contains(&name);
        assert_eq!(
            got.values != expected.values,
            transformed,
            "{name} is transformed"
        );
        let largest = expected
            .values
            .iter()
            .fold(0.0_f32, |max, x| max.max(x.abs()));
        for (got, expected) in got.values.iter().zip(&expected.values) {
            assert!(
                (got - expected).abs() <= 4e-6 * largest,
                "{name}: {got:e} {expected:e}"
            );
        }
    }
}
