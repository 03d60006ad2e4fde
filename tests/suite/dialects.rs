//! Forward products whose operands are quantized by the rules of another tool.

use burn::tensor::module::{conv2d, linear};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, TensorData};
use burn_mx::module::as_activation;
use burn_mx::{BlockFormat, Dialect, MxSpecs};

use crate::support::*;

/// The formats of an engine as specs, without elementwise rounding.
fn specs(format: &str, dialects: [Option<Dialect>; 2]) -> MxSpecs {
    MxSpecs {
        w_elem_format: Some(format.parse().unwrap()),
        a_elem_format: Some(format.parse().unwrap()),
        dialect_w: dialects[0],
        dialect_a: dialects[1],
        ..MxSpecs::default()
    }
}

/// Output, and the gradients of input and weight, of a layer.
fn results<B: Exact, const D: usize>(
    op: fn(Tensor<B, D>, Tensor<B, D>) -> Tensor<B, D>,
    operands: &[(Vec<f32>, [usize; D]); 2],
    device: &B::Device,
    activation: fn(Tensor<B, D>) -> Tensor<B, D>,
) -> [Vec<f32>; 3] {
    let leaf = |(values, shape): &(Vec<f32>, [usize; D])| {
        let data = TensorData::new(values.clone(), *shape);
        Tensor::<B, D>::from_data(data, device).require_grad()
    };
    let [x, w] = operands.each_ref().map(leaf);
    let out = op(activation(x.clone()), w.clone());
    let grad = noise_tensor(out.dims(), 9, device);
    let grads = B::loss_with_gradient(out.clone(), grad).backward();
    let gradient = |leaf: Tensor<B, D>| values(leaf.grad(&grads).expect("it is a leaf"));
    [values(out), gradient(x), gradient(w)]
}

/// The values that the tool serves.
fn served(
    dialect: Dialect,
    format: &str,
    values: &[f32],
    shape: &[usize],
    axis: usize,
) -> Vec<f32> {
    let format: BlockFormat = format.parse().unwrap();
    let mut values = values.to_vec();
    dialect.quantize(format, &mut values, shape, axis).unwrap();
    values
}

const CASES: [(&str, &str); 10] = [
    ("modelopt", "mxfp4"),
    ("modelopt", "nvfp4(tensor_scale=true)"),
    ("compressed-tensors", "mxfp8_e4m3"),
    ("compressed-tensors", "nvfp4(tensor_scale=true)"),
    ("quark", "mxfp6_e2m3"),
    ("ggml", "mxfp4"),
    ("ocp", "mxfp4"),
    ("transformer-engine", "nvfp4(tensor_scale=true)"),
    ("transformer-engine-fast-math", "nvfp4(tensor_scale=true)"),
    ("triton-kernels", "mxfp4"),
];

/// The output of a linear layer is the product of the values that the tool serves; gradients do not change.
#[test]
fn a_linear_layer() {
    const M: usize = 5;
    const K: usize = 96;
    const N: usize = 7;
    for (name, format) in CASES {
        let dialect: Dialect = name.parse().unwrap();
        let operands = [(noise(M * K, 1), [M, K]), (noise(K * N, 2), [K, N])];
        let run = |dialects| {
            let device = mx_device(&specs(format, dialects));
            results::<Mx, 2>(|x, w| linear(x, w, None), &operands, &device, as_activation)
        };
        let own = run([None; 2]);
        for dialects in [
            [Some(dialect), None],
            [None, Some(dialect)],
            [Some(dialect); 2],
        ] {
            let [out, dx, dw] = run(dialects);
            let rules = [dialects[1], dialects[0]];
            let rules = rules.map(|rule| rule.unwrap_or(Dialect::Microxcaling));
            let quantized = |i: usize, axis| {
                let (values, shape) = &operands[i];
                match [dialects[1], dialects[0]][i] {
                    Some(rule) => served(rule, format, values, shape, axis),
                    None => {
                        let format: BlockFormat = format.parse().unwrap();
                        let mut values = values.clone();
                        let rounder = burn_mx::Rounder::NearestAway;
                        format.quantize(&mut values, shape, axis, rounder).unwrap();
                        values
                    }
                }
            };
            let [x, w] = [quantized(0, 1), quantized(1, 0)];
            for (i, out) in out.iter().enumerate() {
                let terms =
                    (0..K).map(|k| f64::from(x[i / N * K + k]) * f64::from(w[k * N + i % N]));
                let (sum, magnitude) =
                    terms.fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()));
                let error = (f64::from(*out) - sum).abs();
                let bound = K as f64 * f64::from(f32::EPSILON) * magnitude;
                assert!(
                    error <= bound,
                    "{name} {format} {rules:?} {i}: {out} and {sum}"
                );
            }
            assert_eq!(
                [dx, dw],
                [own[1].clone(), own[2].clone()],
                "{name} {format}"
            );
        }
        // Another scale makes other numbers. NVFP4's differ where there are ties, of which noise has none.
        if (name, format) == ("modelopt", "mxfp4") {
            assert_ne!(run([Some(dialect), None])[0], own[0], "{name} {format}");
        }
    }
}

/// A convolution's weight has blocks along its second axis, its input along the channels.
#[test]
fn a_convolution() {
    let shapes = [[2, 40, 5, 4], [3, 40, 3, 2]];
    let operands = [1, 2].map(|seed| {
        let shape: [usize; 4] = shapes[seed as usize - 1];
        (noise(shape.iter().product(), seed), shape)
    });
    let dialect = Dialect::ModelOpt;
    let by_tool = mx_device(&specs("mxfp4", [Some(dialect); 2]));
    let op = |x, w| conv2d(x, w, None, ConvOptions::new([1, 1], [1, 0], [1, 1], 1));
    let [out, ..] = results::<Mx, 4>(op, &operands, &by_tool, as_activation);
    // The same products of values that a format leaves as they are.
    let quantized = operands
        .each_ref()
        .map(|(values, shape)| (served(dialect, "mxfp4", values, shape, 1), *shape));
    let wide = specs(
        "mx(element=fp8_e4m3,block_size=32,scale_mode=floor)",
        [None; 2],
    );
    let [expected, ..] = results::<Mx, 4>(op, &quantized, &mx_device(&wide), as_activation);
    assert_eq!(out, expected);
}

/// Fields that contradict a dialect.
#[test]
fn contradictions() {
    let error = |specs: MxSpecs| specs.resolve().unwrap_err().to_string();
    let modelopt = [Some(Dialect::ModelOpt), None];
    assert_eq!(
        error(specs("mxfp6_e2m3", modelopt)),
        "`dialect_w` is modelopt, and the format of its slot is mxfp6_e2m3; allowed with this dialect: mxfp8_e4m3, mxfp4, \
         nvfp4(tensor_scale=true)"
    );
    let of = |change: fn(&mut MxSpecs)| {
        let mut specs = specs("mxfp4", modelopt);
        change(&mut specs);
        error(specs)
    };
    for (message, change) in [
        (
            "no block format",
            (|specs| specs.w_elem_format = None) as fn(&mut MxSpecs),
        ),
        ("stochastic", |specs| {
            specs.round = burn_mx::Rounding::Stochastic
        }),
        ("accumulator", |specs| {
            specs.accumulator = Some("blackwell".parse().unwrap())
        }),
        ("mask_clipped", |specs| {
            specs.mask_clipped = true;
            specs.quantize_backprop = false;
        }),
    ] {
        let text = of(change);
        assert!(
            text.starts_with("`dialect_w` is modelopt, but") && text.contains(message),
            "{text}"
        );
    }
}

/// As text and JSON.
#[test]
fn names() {
    let specs = specs(
        "mxfp4",
        [Some(Dialect::CompressedTensors), Some(Dialect::Ggml)],
    );
    let json = specs.to_json();
    assert!(
        json.contains("\"dialect_w\": \"compressed-tensors\""),
        "{json}"
    );
    assert_eq!(MxSpecs::from_json(&json).unwrap(), specs);
    let text = specs.resolve().unwrap().to_string();
    assert!(
        text.contains("weights as compressed-tensors, activations as ggml"),
        "{text}"
    );
    assert!(!MxSpecs::mxfp4().to_json().contains("dialect"));
}
