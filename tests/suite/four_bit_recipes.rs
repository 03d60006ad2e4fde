//! Published recipes in four bits: products against matrices written out in `f64`.

use burn::tensor::module::linear;
use burn_mx::{ColumnChoice, MxSpecs};

use super::recipes::{Matrix, fp4, hadamard, layer, matrices, reproducible, tensor};
use crate::support::*;

/// The signs of TransformerEngine's transform of 16.
const SIGNS: u128 = 0xd7e8;

fn largest<'a>(numbers: impl IntoIterator<Item = &'a f64>) -> f64 {
    let magnitudes = numbers.into_iter().map(|x| x.abs());
    magnitudes.fold(0.0, f64::max)
}

/// The nearest number of this mantissa, ties to even, with an exponent of at least `emin`.
fn float(x: f64, mantissa_bits: i32, emin: f64) -> f64 {
    let step = (x.log2().floor().max(emin) - f64::from(mantissa_bits)).exp2();
    (x / step).round_ties_even() * step
}

/// E4M3 without subnormal numbers.
fn e4m3(x: f64) -> f64 {
    float(x, 3, -6.0).clamp((-6.0_f64).exp2(), 448.0)
}

/// Each number in units of the scale.
fn in_units(block: &[f64], scale: f64, element: impl Fn(f64) -> f64) -> Vec<f64> {
    block.iter().map(|x| element(x / scale) * scale).collect()
}

/// Integers from −7 to 7.
fn int4(x: f64) -> f64 {
    x.round_ties_even().clamp(-7.0, 7.0)
}

/// In tiles of 16 × 16.
fn in_tiles(matrix: &Matrix, f: impl Fn(&[f64]) -> Vec<f64>) -> Matrix {
    let mut rows = matrix.rows.clone();
    for top in (0..rows.len()).step_by(16) {
        for left in (0..rows[0].len()).step_by(16) {
            let places: Vec<_> = (0..256).map(|i| (top + i / 16, left + i % 16)).collect();
            let tile: Vec<f64> = places.iter().map(|(i, j)| rows[*i][*j]).collect();
            for ((i, j), x) in places.into_iter().zip(f(&tile)) {
                rows[i][j] = x;
            }
        }
    }
    Matrix { rows }
}

/// A matrix with the transform of 16 along its rows.
fn transformed(matrix: &Matrix) -> Matrix {
    matrix.in_blocks(16, |block| hadamard(block, SIGNS))
}

/// NVFP4's blocks with the better of two scales, in a matrix with this tensor scale.
fn better_of_two(block: &[f64], tensor_scale: f64, headroom: f64) -> Vec<f64> {
    let [six, four] = [1.0, 1.5].map(|factor| {
        let scale = largest(block) / 6.0 / tensor_scale * headroom * factor;
        in_units(block, e4m3(scale) * tensor_scale, fp4)
    });
    let error = |q: &[f64]| {
        let squares = block.iter().zip(q).map(|(x, q)| (x - q).powi(2));
        squares.sum::<f64>()
    };
    match error(&four) < error(&six) {
        true => four,
        false => six,
    }
}

#[test]
fn four_over_six_is_in_every_operand() {
    let specs = reproducible(MxSpecs::nvfp4_four_over_six(), 0, SIGNS);
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    let tensor_scale = |matrix: &Matrix| largest(matrix.rows.iter().flatten()) / 1536.0;
    let rows = |matrix: &Matrix, headroom: f64| {
        let scale = tensor_scale(matrix) * headroom;
        matrix.in_blocks(16, |block| better_of_two(block, scale, headroom))
    };
    let scale = tensor_scale(&w);
    let wq = in_tiles(&w, |tile| better_of_two(tile, scale, 1.0));

    rows(&x, 1.0).times(&wq).assert_close(&y, "y");
    let gradient = rows(&g, 17.0 / 16.0);
    gradient.times(&wq.transposed()).assert_close(&dx, "dx");
    let (xt, gt) = (transformed(&x.transposed()), transformed(&g.transposed()));
    let gradient = rows(&gt, 17.0 / 16.0).transposed();
    rows(&xt, 1.0).times(&gradient).assert_close(&dw, "dw");
}

#[test]
fn ufp4_has_equal_steps_and_three_transforms() {
    let specs = reproducible(MxSpecs::ufp4(), SIGNS, SIGNS);
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    let q = |matrix: &Matrix| {
        let equal_steps = |block: &[f64]| in_units(block, largest(block) / 7.0, int4);
        transformed(matrix).in_blocks(16, equal_steps)
    };
    let wt = q(&w.transposed()).transposed();
    q(&x).times(&wt).assert_close(&y, "y");
    q(&g).times(&q(&w).transposed()).assert_close(&dx, "dx");
    let gt = q(&g.transposed()).transposed();
    q(&x.transposed()).times(&gt).assert_close(&dw, "dw");
}

#[test]
fn the_baseline_of_ufp4_transforms_in_the_weights_gradient_alone() {
    let specs = reproducible(MxSpecs::ufp4_baseline(), 0, SIGNS);
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    let q =
        |matrix: &Matrix| matrix.in_blocks(16, |block| in_units(block, largest(block) / 6.0, fp4));
    let wt = q(&w.transposed()).transposed();
    q(&x).times(&wt).assert_close(&y, "y");
    q(&g).times(&q(&w).transposed()).assert_close(&dx, "dx");
    let gt = q(&transformed(&g.transposed())).transposed();
    let xt = q(&transformed(&x.transposed()));
    xt.times(&gt).assert_close(&dw, "dw");
}

/// HiF4: a bit for each 8 elements and a bit for each 4 double the scale.
fn hif4(block: &[f64]) -> Vec<f64> {
    let scale = float(largest(block) / 7.0, 2, -48.0);
    let mut q = Vec::new();
    for eight in block.chunks(8) {
        let is_large = largest(eight) >= 4.0 * scale;
        let scale = if is_large { 2.0 * scale } else { scale };
        for four in eight.chunks(4) {
            let is_large = largest(four) >= 2.0 * scale;
            let scale = if is_large { 2.0 * scale } else { scale };
            q.extend(in_units(four, scale / 4.0, int4));
        }
    }
    q
}

#[test]
fn hif4_transforms_its_gradients() {
    let (input, weight) = (0x5f3a_90c1_77e2_1d48, 0x0b6d_e217_39a5_c4f3);
    let specs = reproducible(MxSpecs::hif4_pretraining(), input, weight);
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    let q = |matrix: &Matrix| matrix.in_blocks(64, hif4);
    let transformed = |matrix: &Matrix, signs| matrix.in_blocks(64, |block| hadamard(block, signs));
    let wt = q(&w.transposed()).transposed();
    q(&x).times(&wt).assert_close(&y, "y");
    let [g_rows, w_rows] = [&g, &w].map(|matrix| q(&transformed(matrix, input)));
    g_rows.times(&w_rows.transposed()).assert_close(&dx, "dx");
    let [xt, gt] = [x, g].map(|matrix| q(&transformed(&matrix.transposed(), weight)));
    xt.times(&gt.transposed()).assert_close(&dw, "dw");
}

/// TetraJet-v2's two scales: of 128 elements, and of 16.
fn two_scales(group: &[f64]) -> Vec<f64> {
    let outer = largest(group) / 448.0 / 6.0;
    let block = |block: &[f64]| {
        let inner = float(largest(block) / outer / 6.0, 3, -6.0);
        let inner = inner.clamp((-9.0_f64).exp2(), 448.0);
        in_units(block, outer * inner, fp4)
    };
    group.chunks(16).flat_map(block).collect()
}

/// MXFP8 with the scale rounded up.
fn mxfp8(block: &[f64]) -> Vec<f64> {
    let scale = (largest(block) / 448.0).log2().ceil().exp2();
    in_units(block, scale, |x| float(x.abs(), 3, -6.0).copysign(x))
}

#[test]
fn tetrajet_v2_keeps_hot_channels_in_fp8() {
    const INPUT_SIGNS: u128 = 0x1b2c;
    let preset = reproducible(MxSpecs::tetrajet_v2(), INPUT_SIGNS, SIGNS);
    let mut hot_columns = preset.hot_columns.clone().expect("the preset has them");
    hot_columns.multiple = 32;
    hot_columns.chosen = ColumnChoice::Product;
    let specs = MxSpecs {
        hot_columns: Some(hot_columns),
        ..preset
    };
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    let xt = x.transposed();
    let norm = |channel: &usize| xt.rows[*channel].iter().map(|x| x * x).sum::<f64>();
    let mut order: Vec<usize> = (0..xt.rows.len()).collect();
    order.sort_by(|a, b| norm(b).total_cmp(&norm(a)));
    let (hot, others) = order.split_at(32);
    let rows_of = |matrix: &Matrix, rows: &[usize]| Matrix {
        rows: rows.iter().map(|row| matrix.rows[*row].clone()).collect(),
    };
    // Of x its transpose is gathered: channels are rows.
    let q4 = |matrix: &Matrix| matrix.in_blocks(128, two_scales);
    let q8 = |matrix: &Matrix| matrix.in_blocks(32, mxfp8);
    let [x4, w4] = [&xt, &w].map(|matrix| q4(&rows_of(matrix, others).transposed()));
    let [x8, w8] = [&xt, &w].map(|matrix| q8(&rows_of(matrix, hot).transposed()));
    let sum = |a: Matrix, b: Matrix| {
        let add = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
        let rows = a.rows.iter().zip(&b.rows).map(add).collect();
        Matrix { rows }
    };
    let expected = sum(x4.times(&w4.transposed()), x8.times(&w8.transposed()));
    expected.assert_close(&y, "y");

    let placed = |hot: Matrix, others: Matrix| {
        let mut rows = vec![Vec::new(); order.len()];
        for (row, place) in hot.rows.into_iter().chain(others.rows).zip(&order) {
            rows[*place] = row;
        }
        Matrix { rows }
    };
    let transformed = |matrix: &Matrix, signs| matrix.in_blocks(16, |block| hadamard(block, signs));
    let saved = placed(w8.transposed(), w4.transposed());
    let [g_rows, w_rows] = [&g, &saved].map(|matrix| q4(&transformed(matrix, INPUT_SIGNS)));
    g_rows.times(&w_rows.transposed()).assert_close(&dx, "dx");
    let gt = g.transposed();
    let of_others = q4(&transformed(&x4.transposed(), SIGNS));
    let of_others = of_others.times(&q4(&transformed(&gt, SIGNS)).transposed());
    let of_hot = q8(&x8.transposed()).times(&q8(&gt).transposed());
    placed(of_hot, of_others).assert_close(&dw, "dw");
}

/// Only the weight has blocks, and gradients read the quantized weight.
fn weights_alone(preset: MxSpecs, block: fn(&[f64]) -> Vec<f64>) {
    let specs = reproducible(preset, 0, 0);
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    let w = w.transposed().in_blocks(32, block).transposed();
    x.times(&w).assert_close(&y, "y");
    g.times(&w.transposed()).assert_close(&dx, "dx");
    x.transposed().times(&g).assert_close(&dw, "dw");
}

#[test]
fn quantization_aware_training_of_weights_alone() {
    weights_alone(MxSpecs::kimi_qat(), |block| {
        let scale = half::bf16::from_f64(largest(block) / 7.0).to_f64();
        in_units(block, scale, int4)
    });
    for preset in [MxSpecs::gpt_oss_qat(), MxSpecs::deepseek_v4_qat()] {
        weights_alone(preset, |block| {
            let scale = (largest(block) / 6.0).log2().ceil().exp2();
            in_units(block, scale, fp4)
        });
    }
}

/// The products of the weight [K, 1] with the unit vectors.
fn weight_in_products(specs: &MxSpecs, weight: &[f32]) -> Vec<f32> {
    let device = mx_device(specs);
    let n = weight.len();
    let unit = |i: usize| f32::from(u8::from(i / n == i % n));
    let units: Vec<f32> = (0..n * n).map(unit).collect();
    let w = tensor(weight, [n, 1], &device).require_grad();
    let x = tensor(&units, [n, n], &device).require_grad();
    values(linear(x, w, None))
}

#[test]
fn ties_of_exported_weights_go_toward_zero() {
    let ties = [
        6.0, 0.25, -0.25, 0.75, 1.25, -1.75, 2.5, 3.5, -5.0, 5.0, 1.0,
    ];
    let q = weight_in_products(&MxSpecs::gpt_oss_qat(), &ties);
    let expected = [6.0, 0.0, 0.0, 0.5, 1.0, -1.5, 2.0, 3.0, -4.0, 4.0, 1.0];
    assert_eq!(q, expected);
}

#[test]
fn weights_of_few_or_strange_numbers() {
    for name in [
        "kimi_qat",
        "gpt_oss_qat",
        "deepseek_v4_qat",
        "nvfp4_four_over_six",
        "ufp4",
        "ufp4_baseline",
        "hif4_pretraining",
        "tetrajet_v2",
    ] {
        let specs = MxSpecs {
            bfloat: 0,
            ..MxSpecs::preset(name).expect("it is a preset")
        };
        let q = |weight: &[f32]| weight_in_products(&specs, weight);
        assert_eq!(q(&[0.0; 5]), [0.0; 5], "{name}");
        // The largest number of a block keeps its sign, and has an error of a fourth at most.
        for x in [-3.0e-5, 0.7, 1.0, 448.0, -3.0e5] {
            let got = q(&[x])[0];
            assert!((got / x - 1.0).abs() < 0.25, "{name}: {x} became {got}");
        }
        let q = q(&[1.0, f32::NAN, 2.0]);
        assert!(q.iter().all(|x| x.is_nan()), "{name}: {q:?}");
    }
}
