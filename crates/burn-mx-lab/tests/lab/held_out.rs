//! The elementwise functions and norms on inputs that no golden file holds, against the scalar code of `oracle.rs`.
//!
//! The test writes a golden file with its own named specs, and `conformance` reads the file.

use std::collections::HashMap;

use safetensors::{Dtype, serialize, tensor::TensorView};
use serde_json::{Value, json};

use super::Place;
use super::emulation::{BFLOAT16, Emulation, FP16, Mode};
use super::noise::noise;

/// By name: the specs as a user writes them, and their resolved form.
fn specs() -> Vec<(&'static str, Value, Emulation)> {
    let nearest = Mode::Nearest;
    let floor = Mode::Floor;
    vec![
        ("bf16", json!({"bfloat": 16, "round": "even"}), BFLOAT16),
        (
            "bf16_nearest",
            json!({"bfloat": 16}),
            Emulation {
                mode: nearest,
                ..BFLOAT16
            },
        ),
        (
            "bf16_floor_nosub",
            json!({"bfloat": 16, "round": "floor", "bfloat_subnorms": false}),
            Emulation {
                mode: floor,
                subnormals: false,
                ..BFLOAT16
            },
        ),
        (
            "bf16_qat",
            json!({"bfloat": 16, "round": "even", "quantize_backprop": false}),
            Emulation {
                quantize_backprop: false,
                ..BFLOAT16
            },
        ),
        (
            "bf12_nosub",
            json!({"bfloat": 12, "bfloat_subnorms": false}),
            Emulation {
                mantissa_bits: 3,
                mode: nearest,
                subnormals: false,
                ..BFLOAT16
            },
        ),
        ("fp16_even", json!({"fp": 16, "round": "even"}), FP16),
        (
            "fp16_floor",
            json!({"fp": 16, "round": "floor"}),
            Emulation {
                mode: floor,
                ..FP16
            },
        ),
        (
            "fp16_nosub",
            json!({"fp": 16, "bfloat_subnorms": false}),
            Emulation {
                mode: nearest,
                subnormals: false,
                ..FP16
            },
        ),
        (
            "fp12_floor",
            json!({"fp": 12, "round": "floor"}),
            Emulation {
                mantissa_bits: 6,
                mode: floor,
                ..FP16
            },
        ),
        (
            "bf16_variants",
            json!({"bfloat": 16, "round": "even", "vec_use_exp2": true, "vec_use_recip": true, "softmax_exp2": true}),
            Emulation {
                exp2: true,
                recip: true,
                softmax_exp2: true,
                ..BFLOAT16
            },
        ),
        (
            "fp16_variants",
            json!({"fp": 16, "round": "floor", "vec_use_exp2": true, "vec_use_recip": true}),
            Emulation {
                mode: floor,
                exp2: true,
                recip: true,
                ..FP16
            },
        ),
    ]
}

/// Of every x.
const SHAPE: [usize; 3] = [4, 5, 24];
const COUNT: usize = 480;

/// A golden file as it grows.
#[derive(Default)]
struct File {
    tensors: Vec<(String, Vec<usize>, Vec<u8>)>,
    cases: Vec<Value>,
}

impl File {
    fn add(&mut self, op: &str, spec: &str, tensors: &[(&str, &[usize], Vec<f32>)]) {
        let id = self.cases.len();
        let eps = op.ends_with("_norm").then_some(1e-5);
        self.cases
            .push(json!({"id": id, "op": op, "spec": spec, "eps": eps}));
        for (name, shape, values) in tensors {
            assert_eq!(shape.iter().product::<usize>(), values.len(), "{op} {name}");
            let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            self.tensors
                .push((format!("{id}/{name}"), shape.to_vec(), bytes));
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            (name, view.expect("the shape fits"))
        });
        let cases = Value::from(self.cases.clone()).to_string();
        let metadata = HashMap::from([("cases".to_owned(), cases)]);
        serialize(views, Some(metadata)).expect("the tensors are sound")
    }
}

/// Inputs of one case: x as activations are, and gradients of any magnitude down to where the format ends.
struct Inputs {
    x: Vec<f32>,
    g: Vec<f32>,
    /// All of one magnitude: the order of float32 sums over rows does not show.
    g_of_norms: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
}

impl Inputs {
    fn new(seed: u64, least: i32, wide: bool) -> Self {
        let x = noise(COUNT, seed).iter().map(|x| 3.0 * x).collect();
        let mut g = noise(COUNT, seed + 1000);
        let g_of_norms = g.clone();
        if wide {
            let scale = |(i, x): (usize, &mut f32)| {
                let exponent = (i as i32 * 7) % (8 - least) + least - 4;
                *x = (f64::from(*x) * 2.0_f64.powi(exponent)) as f32;
            };
            g.iter_mut().enumerate().for_each(scale);
        }
        let [w, bias] = [2000, 3000].map(|offset| noise(24, seed + offset));
        Self {
            x,
            g,
            g_of_norms,
            w,
            bias,
        }
    }
}

const UNARY: [&str; 11] = [
    "relu",
    "leaky_relu",
    "sigmoid",
    "tanh",
    "silu",
    "gelu",
    "gelu_first_order",
    "exp",
    "log",
    "sqrt",
    "square",
];

fn add_unary(file: &mut File, spec: &str, emulation: Emulation, inputs: &Inputs) {
    for op in UNARY {
        let x: Vec<f32> = match op {
            "log" | "sqrt" => inputs.x.iter().map(|x| x.abs()).collect(),
            _ => inputs.x.clone(),
        };
        let pairs = x.iter().zip(&inputs.g);
        let results: Vec<[f32; 2]> = pairs.map(|(&x, &g)| emulation.unary(op, x, g)).collect();
        let [out, dx] = [0, 1].map(|at| results.iter().map(|result| result[at]).collect());
        file.add(
            op,
            spec,
            &[
                ("in/x", &SHAPE, x),
                ("grad_out", &SHAPE, inputs.g.clone()),
                ("out", &SHAPE, out),
                ("grad/x", &SHAPE, dx),
            ],
        );
    }
}

/// `b` [5, 1] against `a` [4, 5, 24].
fn add_binary(file: &mut File, spec: &str, emulation: Emulation, inputs: &Inputs) {
    let b: Vec<f32> = inputs.w[..5]
        .iter()
        .map(|b| b + 0.5_f32.copysign(*b))
        .collect();
    for op in ["add", "sub", "mul", "div"] {
        let results: Vec<[f32; 3]> = (0..COUNT)
            .map(|i| emulation.binary(op, inputs.x[i], b[i / 24 % 5], inputs.g[i]))
            .collect();
        let [out, da] = [0, 1].map(|at| results.iter().map(|result| result[at]).collect());
        let db = (0..5)
            .map(|row| {
                let of_row = (0..COUNT).filter(|i| i / 24 % 5 == row);
                emulation.sum_b(of_row.map(|i| results[i][2]))
            })
            .collect();
        file.add(
            op,
            spec,
            &[
                ("in/a", &SHAPE, inputs.x.clone()),
                ("in/b", &[5, 1], b.clone()),
                ("grad_out", &SHAPE, inputs.g.clone()),
                ("out", &SHAPE, out),
                ("grad/a", &SHAPE, da),
                ("grad/b", &[5, 1], db),
            ],
        );
    }
}

/// Along the last axis, and along the one before.
fn add_softmax(file: &mut File, spec: &str, emulation: Emulation, inputs: &Inputs) {
    // The places of the elements of each line along the axis.
    let rows: Vec<Vec<usize>> = (0..20)
        .map(|row| (24 * row..24 * row + 24).collect())
        .collect();
    let columns: Vec<Vec<usize>> = (0..4 * 24)
        .map(|at| (0..5).map(|i| at / 24 * 120 + 24 * i + at % 24).collect())
        .collect();
    for (op, lines) in [("softmax", rows), ("softmax_dim1", columns)] {
        let (mut out, mut dx) = (vec![0.0; COUNT], vec![0.0; COUNT]);
        for line in lines {
            let of = |values: &[f32]| line.iter().map(|&i| values[i]).collect::<Vec<_>>();
            let [y, gradient] = emulation.softmax(&of(&inputs.x), &of(&inputs.g));
            for (at, &i) in line.iter().enumerate() {
                (out[i], dx[i]) = (y[at], gradient[at]);
            }
        }
        file.add(
            op,
            spec,
            &[
                ("in/x", &SHAPE, inputs.x.clone()),
                ("grad_out", &SHAPE, inputs.g.clone()),
                ("out", &SHAPE, out),
                ("grad/x", &SHAPE, dx),
            ],
        );
    }
}

fn add_reductions(file: &mut File, spec: &str, emulation: Emulation, inputs: &Inputs) {
    let g = inputs.g[..20].to_vec();
    for op in ["reduce_sum", "reduce_mean"] {
        let mean = op == "reduce_mean";
        let reduced = |row: &[f32]| {
            let row: Vec<f32> = row.iter().map(|&x| emulation.r(x)).collect();
            match mean {
                true => emulation.mean(&row),
                false => emulation.sum(row.into_iter()),
            }
        };
        let gradient = |i: usize| {
            let g = emulation.b(g[i / 24]);
            if mean { emulation.b(g / 24.0) } else { g }
        };
        file.add(
            op,
            spec,
            &[
                ("in/x", &SHAPE, inputs.x.clone()),
                ("grad_out", &[4, 5, 1], g.clone()),
                (
                    "out",
                    &[4, 5, 1],
                    inputs.x.chunks(24).map(reduced).collect(),
                ),
                ("grad/x", &SHAPE, (0..COUNT).map(gradient).collect()),
            ],
        );
    }
}

fn add_norms(file: &mut File, spec: &str, emulation: Emulation, inputs: &Inputs) {
    for op in ["layer_norm", "rms_norm"] {
        let rows = inputs.x.chunks(24).zip(inputs.g_of_norms.chunks(24));
        let row = |(x, g): (&[f32], &[f32])| match op {
            "layer_norm" => emulation.layer_norm(x, &inputs.w, &inputs.bias, g),
            _ => emulation.rms_norm(x, &inputs.w, &inputs.bias, g),
        };
        let results: Vec<[Vec<f32>; 3]> = rows.map(row).collect();
        let [out, dx, products] = [0, 1, 2].map(|at| {
            results
                .iter()
                .flat_map(|row| row[at].clone())
                .collect::<Vec<f32>>()
        });
        let over_rows = |values: &[f32]| {
            (0..24)
                .map(|i| emulation.sum_b(values.iter().skip(i).step_by(24).copied()))
                .collect()
        };
        let g: Vec<f32> = inputs.g_of_norms.iter().map(|&g| emulation.b(g)).collect();
        file.add(
            op,
            spec,
            &[
                ("in/x", &SHAPE, inputs.x.clone()),
                ("in/weight", &[24], inputs.w.clone()),
                ("in/bias", &[24], inputs.bias.clone()),
                ("grad_out", &SHAPE, inputs.g_of_norms.clone()),
                ("out", &SHAPE, out),
                ("grad/x", &SHAPE, dx),
                ("grad/weight", &[24], over_rows(&products)),
                ("grad/bias", &[24], over_rows(&g)),
            ],
        );
    }
}

fn check(backend: &str, seeds: core::ops::Range<u64>) {
    let place = Place::new();
    let mut file = File::default();
    let mut named = serde_json::Map::new();
    for (name, json, emulation) in specs() {
        named.insert(name.to_owned(), json);
        for seed in seeds.clone() {
            let inputs = Inputs::new(seed, emulation.least(), seed % 2 == 1);
            add_unary(&mut file, name, emulation, &inputs);
            add_binary(&mut file, name, emulation, &inputs);
            add_softmax(&mut file, name, emulation, &inputs);
            add_reductions(&mut file, name, emulation, &inputs);
            add_norms(&mut file, name, emulation, &inputs);
        }
    }
    let written = "the file can be written";
    std::fs::write(place.path("vector.safetensors"), file.bytes()).expect(written);
    std::fs::write(place.path("specs.json"), Value::from(named).to_string()).expect(written);
    // silu, gelu_first_order and rms_norm are checked twice: as the reference has them and as Burn composes them.
    let expected = file.cases.len() + 3 * specs().len() * seeds.count();
    let report = format!("vector[{backend}]: {expected} passed, 0 failed, 0 skipped");
    let output = place.command("conformance", &[".", "--backend", backend]);
    let text = String::from_utf8(output.stdout).expect("it prints text");
    assert_eq!(text.lines().next(), Some(report.as_str()), "{text}");
}

#[test]
fn flex_agrees_with_scalar_code_on_other_inputs() {
    check("flex", 0..4);
}

#[test]
fn ndarray_agrees_with_scalar_code_on_other_inputs() {
    check("ndarray", 4..6);
}
