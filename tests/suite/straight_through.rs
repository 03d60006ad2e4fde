//! Quantization-aware training with a float32 backward pass: the straight-through gradient is Burn's gradient at the quantized operands,
//! and a mask makes it zero where an operand was clipped.

use burn::tensor::module::{conv_transpose2d, conv2d, deform_conv2d, linear};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, DeformConvOptions};
use burn::tensor::{Tensor, TensorData};
use burn_mx::module::as_activation;
use burn_mx::{BlockFormat, GradientOperands, MxSpecs, Rounder, Rounding};

use super::recipes::{
    K, M, Matrix, N, by_rms, hadamard, inverse_hadamard, kept_by_rms, layer, matrices, reproducible,
};
use crate::support::*;

/// A layer of two operands, and the axes along which its forward product sums.
struct Layer<const D: usize> {
    name: &'static str,
    shapes: [[usize; D]; 2],
    axes: [usize; 2],
    mx: Op<Mx, D>,
    plain: Op<Plain, D>,
}

type Op<B, const D: usize> = fn(Tensor<B, D>, Tensor<B, D>) -> Tensor<B, D>;

macro_rules! layer {
    ($name:literal, $shapes:expr, $axes:expr, $op:expr) => {
        Layer {
            name: $name,
            shapes: $shapes,
            axes: $axes,
            mx: $op,
            plain: $op,
        }
    };
}

/// Output and gradients of both operands.
fn results<B: Exact, const D: usize>(
    op: Op<B, D>,
    shapes: [[usize; D]; 2],
    operands: &[Vec<f32>; 2],
    device: &B::Device,
) -> [Vec<f32>; 3] {
    let leaf = |i: usize| {
        let data = TensorData::new(operands[i].clone(), shapes[i]);
        Tensor::<B, D>::from_data(data, device).require_grad()
    };
    let [x, w] = [leaf(0), leaf(1)];
    let out = op(x.clone(), w.clone());
    let grad = noise_tensor(out.dims(), 9, device);
    let grads = B::loss_with_gradient(out.clone(), grad).backward();
    let gradient = |leaf: Tensor<B, D>| values(leaf.grad(&grads).expect("it is a leaf"));
    [values(out), gradient(x), gradient(w)]
}

fn bfloat16(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

/// In MXFP4: the operand as the forward product reads it, and 0 for clipped elements.
fn quantized(values: &[f32], shape: &[usize], axis: usize, rounds: bool) -> [Vec<f32>; 2] {
    let round = |x: &f32| if rounds { bfloat16(*x) } else { *x };
    let before: Vec<f32> = values.iter().map(round).collect();
    let mut after = before.clone();
    let format: BlockFormat = "mxfp4".parse().unwrap();
    (format.quantize(&mut after, shape, axis, Rounder::NearestEven)).unwrap();
    let stride: usize = shape[axis + 1..].iter().product();
    let place = |i: usize| i / stride % shape[axis];
    let kept = |i: usize| {
        let block = place(i) / 32 * 32;
        let first = i - (place(i) - block) * stride;
        let elements = (0..32.min(shape[axis] - block)).map(|j| before[first + j * stride].abs());
        let amax = elements.fold(0.0, f32::max);
        let largest = 6.0 * (amax.log2().floor() - 2.0).exp2();
        f32::from(u8::from(before[i].abs() < largest))
    };
    let kept = (0..before.len()).map(kept).collect();
    [after, kept]
}

fn specs(rounds: bool, operands: GradientOperands, mask_clipped: bool) -> MxSpecs {
    MxSpecs {
        bfloat: if rounds { 16 } else { 0 },
        round: Rounding::NearestEven,
        quantize_backprop: false,
        gradient_operands: operands,
        mask_clipped,
        ..MxSpecs::mxfp4()
    }
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f32], what: &str) {
    let largest = expected.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    assert!(largest > 0.0, "{what}: nothing to compare");
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let is_close = (got - expected).abs() < 1e-6 * largest;
        assert!(is_close, "{what}[{i}]: {got} is not {expected}");
    }
}

fn check<const D: usize>(layer: &Layer<D>) {
    let elements = |shape: &[usize]| shape.iter().product();
    let operands = [0, 1].map(|i| {
        let mut values = noise(elements(&layer.shapes[i]), 1 + i as u64);
        values.iter_mut().step_by(7).for_each(|x| *x *= 3.0);
        values
    });
    let plain = |operands: &[Vec<f32>; 2]| {
        results::<Plain, D>(layer.plain, layer.shapes, operands, &TestDevice::default())
    };
    for rounds in [false, true] {
        let parts =
            [0, 1].map(|i| quantized(&operands[i], &layer.shapes[i], layer.axes[i], rounds));
        let [[x, x_kept], [w, w_kept]] = parts;
        let clipped =
            [&x_kept, &w_kept].map(|kept| kept.iter().filter(|kept| **kept == 0.0).count());
        assert!(clipped.iter().all(|count| *count > 5), "{clipped:?}");
        let [out, ..] = plain(&[x.clone(), w.clone()]);
        for (of, at) in [
            (GradientOperands::Original, operands.clone()),
            (GradientOperands::Forward, [x, w]),
        ] {
            let [_, dx, dw] = plain(&at);
            for masked in [false, true] {
                let what = format!("{}, rounds {rounds}, {of}, masked {masked}", layer.name);
                let device = mx_device(&specs(rounds, of, masked));
                let got = results::<Mx, D>(layer.mx, layer.shapes, &operands, &device);
                if !rounds {
                    assert_close(&got[0], &out, &what);
                }
                for (got, gradient, kept) in [(&got[1], &dx, &x_kept), (&got[2], &dw, &w_kept)] {
                    let by_mask = |(gradient, kept): (&f32, &f32)| gradient * kept;
                    let expected = match masked {
                        true => gradient.iter().zip(kept).map(by_mask).collect(),
                        false => gradient.clone(),
                    };
                    assert_close(got, &expected, &what);
                }
            }
        }
    }
}

#[test]
fn gradients_of_a_float_backward_pass_are_burns_at_the_operands_that_the_specs_name() {
    check(&layer!("linear", [[34, 40], [40, 37]], [1, 0], |x, w| {
        linear(x, w, None)
    }));
    check(&layer!(
        "matmul with a weight",
        [[34, 40], [40, 37]],
        [1, 0],
        |x, w| x.matmul(w)
    ));
    check(&layer!(
        "batched linear",
        [[3, 14, 40], [1, 40, 37]],
        [2, 1],
        |x, w| { linear(x, w.reshape([40, 37]), None) }
    ));
    check(&layer!(
        "convolution",
        [[2, 40, 5, 4], [6, 40, 3, 3]],
        [1, 1],
        |x, w| { conv2d(x, w, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1)) }
    ));
    check(&layer!(
        "deformable convolution",
        [[2, 40, 5, 4], [6, 40, 3, 3]],
        [1, 1],
        |x, w| {
            let offset = Tensor::full([2, 18, 5, 4], 0.25, &x.device());
            let options = DeformConvOptions::new([1, 1], [1, 1], [1, 1], 1, 1);
            deform_conv2d(x, offset, w, None, None, options)
        }
    ));
}

/// Burn computes the gradient of a transposed convolution's input without the input, so nothing masks it.
#[test]
fn a_transposed_convolution_masks_its_weights_gradient_alone() {
    let op = |x: Tensor<Mx, 4>, w| {
        let options = ConvTransposeOptions::new([2, 2], [0, 0], [0, 0], [1, 1], 1);
        conv_transpose2d(x, w, None, options)
    };
    let shapes = [[2, 40, 5, 4], [40, 6, 2, 2]];
    let operands = [noise(1600, 1), noise(960, 2)];
    let [with, without] = [true, false].map(|masked| {
        let device = mx_device(&specs(false, GradientOperands::Forward, masked));
        results::<Mx, 4>(op, shapes, &operands, &device)
    });
    assert_same_bits(&with[1], &without[1], "dx");
    let [_, kept] = quantized(&operands[1], &shapes[1], 0, false);
    let expected: Vec<f32> = without[2]
        .iter()
        .zip(kept)
        .map(|(g, kept)| g * kept)
        .collect();
    assert_close(&with[2], &expected, "dw");
}

/// Products of two activations follow their own specs.
#[test]
fn a_product_of_activations_is_straight_through_only_if_it_is_quantized() {
    let gradients = |quantize_matmul, operands| {
        let specs = MxSpecs {
            quantize_matmul,
            ..specs(false, operands, false)
        };
        let op = |a: Tensor<Mx, 2>, b| as_activation(a).matmul(as_activation(b));
        let operands = [noise(34 * 40, 1), noise(40 * 37, 2)];
        results::<Mx, 2>(op, [[34, 40], [40, 37]], &operands, &mx_device(&specs))
    };
    let [original, forward] = [GradientOperands::Original, GradientOperands::Forward];
    let float = gradients(false, original);
    assert_eq!(gradients(false, forward), float);
    let quantized = gradients(true, forward);
    assert_ne!(quantized[1], float[1]);
    let operands = [
        (noise(34 * 40, 1), [34, 40], 1),
        (noise(40 * 37, 2), [40, 37], 0),
    ];
    let operands = operands.map(|(values, shape, axis)| {
        let [quantized, _] = self::quantized(&values, &shape, axis, false);
        quantized
    });
    let plain = results::<Plain, 2>(
        |a, b| a.matmul(b),
        [[34, 40], [40, 37]],
        &operands,
        &TestDevice::default(),
    );
    assert_close(&quantized[1], &plain[1], "da");
    assert_close(&quantized[2], &plain[2], "db");
}

/// y = q(x H) · q(Hᵀ w), so dx = (g · q(Hᵀ w)ᵀ, masked) · Hᵀ.
#[test]
fn a_straight_through_gradient_leaves_the_basis_of_the_forward_transform() {
    let specs = MxSpecs {
        quantize_backprop: false,
        hadamard_input_grad: None,
        hadamard_weight_grad: None,
        headroom_bp: Default::default(),
        ..reproducible(MxSpecs::quartet(), 0, 0)
    };
    let [_, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    let forward = |matrix: &Matrix| matrix.in_blocks(32, |block| hadamard(block, 0));
    let (x, w) = (forward(&x), forward(&w.transposed()));
    let quantized = |matrix: &Matrix| matrix.in_blocks(32, |block| by_rms(block, 1.5));
    let kept = |matrix: &Matrix| matrix.in_blocks(32, |block| kept_by_rms(block, 1.5));
    let back = |product: Matrix, mask: &Matrix| {
        let masked = product.masked(mask);
        masked.in_blocks(32, |block| inverse_hadamard(block, 0))
    };
    let product = g.times(&quantized(&w));
    back(product, &kept(&x)).assert_close(&dx, "dx");
    let product = g.transposed().times(&quantized(&x));
    let dw = Matrix::new(&dw, N).transposed().rows;
    let dw: Vec<f32> = dw.into_iter().flatten().map(|x| x as f32).collect();
    back(product, &kept(&w)).assert_close(&dw, "dw");
    assert_eq!([dx.len(), dw.len()], [M * K, K * N]);
}
