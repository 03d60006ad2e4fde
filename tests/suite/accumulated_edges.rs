//! Accumulators at their edges: blocks that are longer than the axis, tensor scales that are very small, operands without blocks.

use std::time::{Duration, Instant};

use burn::nn::conv::Conv2dConfig;
use burn::nn::{LinearConfig, RotaryEncodingConfig};
use burn::tensor::Tensor;
use burn_mx::{BlockFormat, Hadamard, MxSpecs, Rounder};

use super::accumulators::specs;
use crate::support::*;

/// Output and gradients of a linear layer whose weight's gradient sums over two axes, 2 and 8 long.
fn linear(specs: &MxSpecs) -> Vec<Vec<f32>> {
    let device = mx_device(specs);
    let model = with_noise_weights(LinearConfig::new(16, 16).init::<Mx>(&device), 1);
    let x = noise_tensor::<Mx, 3>([2, 8, 16], 2, &device).require_grad();
    let factors = noise_tensor::<Mx, 3>([2, 8, 16], 3, &device);
    let output = model.forward(x.clone());
    let grads = (output.clone() * factors).sum().backward();
    let of_weight = model.weight.grad(&grads).expect("a parameter has one");
    let of_x = x.grad(&grads).expect("it is an input");
    vec![values(output), values(of_x), values(of_weight)]
}

/// The same of a convolution.
fn convolution(specs: &MxSpecs) -> Vec<Vec<f32>> {
    let device = mx_device(specs);
    let model = Conv2dConfig::new([8, 4], [3, 3]).init::<Mx>(&device);
    let model = with_noise_weights(model, 4);
    let x = noise_tensor::<Mx, 4>([2, 8, 6, 6], 5, &device).require_grad();
    let output = model.forward(x.clone());
    let factors = noise_tensor::<Mx, 4>([2, 4, 4, 4], 6, &device);
    let grads = (output.clone() * factors).sum().backward();
    let of_weight = model.weight.grad(&grads).expect("a parameter has one");
    let of_x = x.grad(&grads).expect("it is an input");
    vec![values(output), values(of_x), values(of_weight)]
}

/// A block that is longer than the axis is one block, however long it is.
#[test]
fn blocks_longer_than_the_axis() {
    for (format, accumulator) in [
        ("fp8_e4m3", "hopper"),
        ("fp8_e4m3", "hopper_promote128"),
        ("fp8_e4m3", "hopper(promote_every=32,scale_at=promotion)"),
        ("fp4_e2m1", "blackwell"),
        (
            "int8",
            "accumulator(order=integer,bits=24,promote_every=32)",
        ),
    ] {
        let with = |block_size: usize| MxSpecs {
            block_size,
            ..specs(format, accumulator)
        };
        for run in [linear, convolution] {
            // As long as the promoted sum.
            let expected = run(&with(128));
            for block_size in [1_000_000, 1_000_000_000_000, 1 << 63] {
                let start = Instant::now();
                let got = run(&with(block_size));
                let took = start.elapsed();
                let what = format!("{format} {accumulator} {block_size}");
                assert!(took < Duration::from_secs(1), "{what}: {took:?}");
                for (got, expected) in got.iter().zip(&expected) {
                    assert_same_bits(got, expected, &what);
                }
            }
        }
    }
}

/// A block of the whole axis is whole groups, or parts that are promoted, in a gradient that sums over several axes, too.
#[test]
fn blocks_of_the_whole_axis() {
    for (format, accumulator) in [
        ("mx(element=fp4_e2m1,block_size=0)", "blackwell"),
        (
            "mx(element=fp8_e4m3,block_size=0)",
            "hopper(promote_every=128,scale_at=promotion)",
        ),
        (
            "mx(element=int8,block_size=0)",
            "accumulator(order=integer,bits=32)",
        ),
    ] {
        let specs = specs(format, accumulator);
        for run in [linear, convolution] {
            let plain = run(&MxSpecs {
                accumulator: None,
                ..specs.clone()
            });
            for (got, plain) in run(&specs).iter().zip(&plain) {
                let largest = plain.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
                for (a, b) in got.iter().zip(plain) {
                    assert!((a - b).abs() <= 1e-3 * largest, "{accumulator}: {a} {b}");
                }
            }
        }
    }
}

/// The product of two tensor scales may be less than any float32, where the result is not.
#[test]
fn small_tensor_scales() {
    let text = "nvfp4(tensor_scale=true)";
    let device = mx_device(&specs(text, "blackwell"));
    let [x, w] = [([32, 64], 1e-24, 7), ([64, 32], 1e-14, 8)].map(|(shape, factor, seed)| {
        let tensor = noise_tensor::<Mx, 2>(shape, seed, &device);
        let values: Vec<f32> = values(tensor).iter().map(|x| x * factor).collect();
        values
    });
    let tensor = |values: &[f32], shape: [usize; 2]| {
        let data = burn::tensor::TensorData::new(values.to_vec(), shape);
        Tensor::<Mx, 2>::from_data(data, &device)
    };
    let weight = tensor(&w, [64, 32]).require_grad();
    let got = values(tensor(&x, [32, 64]).matmul(weight));

    // The quantized operands by microscaling alone, their product in float64.
    let format: BlockFormat = text.parse().unwrap();
    let quantized = |mut values: Vec<f32>, shape: [usize; 2], axis: usize| {
        format
            .quantize(&mut values, &shape, axis, Rounder::NearestAway)
            .unwrap();
        values
    };
    let (x, w) = (quantized(x, [32, 64], 1), quantized(w, [64, 32], 0));
    let product = |i: usize| -> f64 {
        let terms = (0..64).map(|k| f64::from(x[i / 32 * 64 + k]) * f64::from(w[k * 32 + i % 32]));
        terms.sum()
    };
    let expected: Vec<f64> = (0..32 * 32).map(product).collect();
    let largest = expected.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    assert!(largest > 1e-38 && largest < 1e-36, "{largest:e}");
    for (got, expected) in got.iter().zip(&expected) {
        let error = (f64::from(*got) - expected).abs();
        assert!(error < 1e-5 * largest, "{got:e} for {expected:e}");
    }
}

/// Products of operands without blocks, which the unit does not take, are float32's.
#[test]
fn operands_without_blocks() {
    let run = |specs: &MxSpecs| {
        let device = mx_device(specs);
        // A tensor that is computed from a parameter and from data is an activation.
        let scale = noise_tensor::<Mx, 3>([2, 8, 16], 9, &device).require_grad();
        let x = noise_tensor::<Mx, 3>([2, 8, 16], 10, &device) * scale.clone();
        let rotary = RotaryEncodingConfig::new(8, 16).init::<Mx>(&device);
        let turned = rotary.forward(x.clone());
        let of_constant = turned.clone().matmul(Tensor::ones([1, 16, 4], &device));
        let scores = turned.clone().matmul(x.transpose());
        let grads = (of_constant.clone().sum() + scores.clone().sum()).backward();
        let gradient = scale.grad(&grads).expect("it is a parameter");
        [
            values(turned),
            values(of_constant),
            values(scores),
            values(gradient),
        ]
    };
    for (format, accumulator, bfloat, fp) in [
        ("fp8_e4m3", "hopper", 0, 0),
        ("fp8_e4m3", "hopper", 24, 0),
        (
            "fp8_e4m3",
            "hopper(promote_every=32,scale_at=promotion)",
            24,
            0,
        ),
        ("float16", "turing", 0, 0),
        ("float16", "turing", 16, 0),
        (
            "int8",
            "accumulator(order=integer,bits=24,promote_every=32)",
            16,
            0,
        ),
        (
            "int8",
            "accumulator(order=integer,bits=24,promote_every=32)",
            0,
            16,
        ),
    ] {
        let with = MxSpecs {
            block_size: 32,
            bfloat,
            fp,
            quantize_matmul: false,
            ..specs(format, accumulator)
        };
        let expected = run(&MxSpecs {
            accumulator: None,
            ..with.clone()
        });
        let what = format!("{format} {accumulator} {bfloat} {fp}");
        for (got, expected) in run(&with).iter().zip(&expected) {
            assert_same_bits(got, expected, &what);
        }
    }
}

/// A transform leaves no numbers of the elementwise format: an operand without blocks is then one of float32.
#[test]
fn transformed_operands_without_blocks() {
    let with = |accumulator: &str| MxSpecs {
        a_elem_format: None,
        bfloat: 16,
        // Other specs draw other signs.
        hadamard_forward: Some("16:0xd7e8".parse::<Hadamard>().unwrap()),
        ..specs("mxfp8_e4m3", accumulator)
    };
    let exact = with("accumulator(order=exact,terms=16,output=f32_rne)");
    let plain = MxSpecs {
        accumulator: None,
        ..exact.clone()
    };
    for (got, plain) in linear(&exact).iter().zip(linear(&plain)) {
        let largest = plain.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        for (a, b) in got.iter().zip(plain) {
            assert!((a - b).abs() <= largest / 128.0, "{a} {b}");
        }
    }
    let error = with("hopper").resolve().unwrap_err().to_string();
    for part in ["`accumulator`", "hopper", "float32"] {
        assert!(error.contains(part), "{error}: {part}");
    }
}
