//! How far functions that Burn composes are from the reference's formula, or, without a formula, from the exact value. The table of
//! measured differences is in `docs/src/op-coverage.md` and this test measures the differences.
//!
//! Elementwise bfloat16, ties to even, on Flex, which repeats bit for bit. A step is 2^-7 of the largest term of the element:
//! twice the largest error of one rounding. The formulas are written here in scalar code with `half`'s rounding, after
//! the reference's source, or are the ones that the golden files hold.

use burn::module::Param;
use burn::nn::{BatchNormConfig, GroupNormConfig, InstanceNormConfig, RmsNormConfig, SwiGluConfig};
use burn::tensor::{Tensor, TensorData, activation};
use burn_mx::Rounding;
use burn_mx::{MxSpecs, module};
use half::bf16;

use crate::support::*;

const TABLE: &str = include_str!("../../docs/src/op-coverage.md");

fn r(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

fn device() -> burn_mx::MxDevice<burn::backend::flex::FlexDevice> {
    mx_device(&MxSpecs {
        round: Rounding::NearestEven,
        quantize_loss: true,
        ..bfloat16_only()
    })
}

/// Values about as activations are distributed: sums of three numbers of any magnitude.
fn bell(count: usize, seed: u64) -> Vec<f32> {
    let [a, b, c] = [seed, seed + 100, seed + 200].map(|seed| noise(count, seed));
    (0..count).map(|i| a[i] + b[i] + c[i]).collect()
}

fn tensor<const D: usize>(values: &[f32], shape: [usize; D]) -> Tensor<Mx, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &device())
}

/// Output and gradient of the input, for a gradient `g` of the output.
fn results<const D: usize>(
    x: &[f32],
    g: &[f32],
    shape: [usize; D],
    function: impl FnOnce(Tensor<Mx, D>) -> Tensor<Mx, D>,
) -> [Vec<f32>; 2] {
    let x = tensor(x, shape).require_grad();
    // An input, not a parameter: emulated ops add its gradients from several uses.
    let out = function(module::as_activation(x.clone()));
    let grads = Mx::loss_with_gradient(out.clone(), tensor(g, shape)).backward();
    [values(out), values(x.grad(&grads).expect("x is a leaf"))]
}

/// The row of the table: the share of elements that differ, and the farthest of them in steps.
fn row(what: &str, got: &[f32], expected: &[f32], terms: &[f32]) -> String {
    assert_eq!(
        (got.len(), expected.len()),
        (terms.len(), terms.len()),
        "{what}"
    );
    let mut differ = 0;
    let mut farthest = 0.0_f32;
    for ((got, expected), term) in got.iter().zip(expected).zip(terms) {
        let largest = term.abs().max(expected.abs()).max(f32::MIN_POSITIVE);
        let step = largest / 128.0;
        let distance = (got - expected).abs();
        // An exact value is as good as its own rounding.
        differ += usize::from(*got != r(*expected) && got != expected);
        farthest = farthest.max(distance / step);
    }
    let share = 100.0 * differ as f64 / got.len() as f64;
    format!("| {what} | {share:.1} % | {farthest:.1} |")
}

/// The normalized rows by the reference's formula: output, gradient of x, and the magnitude of the largest terms of both.
struct Formula {
    out: Vec<f32>,
    dx: Vec<f32>,
    out_terms: Vec<f32>,
    dx_terms: Vec<f32>,
}

/// The formula of the reference's batch and group norm over rows of `width`, each element with its own parameters. Its
/// gradient is not layer norm's, step by step.
fn norm(x: &[f32], g: &[f32], gamma: &[f32], beta: &[f32], width: usize) -> Formula {
    let mean = |values: &[f32]| r(r(values.iter().sum::<f32>()) / values.len() as f32);
    let mean_size = |values: &[f32]| values.iter().map(|x| x.abs()).sum::<f32>() / width as f32;
    let mut formula = Formula {
        out: Vec::new(),
        dx: Vec::new(),
        out_terms: Vec::new(),
        dx_terms: Vec::new(),
    };
    for start in (0..x.len()).step_by(width) {
        let part = |values: &[f32]| -> Vec<f32> {
            values[start..start + width].iter().map(|x| r(*x)).collect()
        };
        let [x, g, gamma, beta] = [x, g, gamma, beta].map(part);
        let center = mean(&x);
        let c: Vec<f32> = x.iter().map(|x| r(x - center)).collect();
        let squares: Vec<f32> = c.iter().map(|c| r(c * c)).collect();
        let inverse = r(1.0 / r(r(mean(&squares) + 1e-5).sqrt()));
        let n: Vec<f32> = c.iter().map(|c| r(c * inverse)).collect();
        let t: Vec<f32> = g.iter().zip(&gamma).map(|(g, w)| r(g * w)).collect();
        let a: Vec<f32> = t.iter().map(|t| r(t * inverse)).collect();
        let shift = -mean(&a);
        let products: Vec<f32> = t.iter().zip(&c).map(|(t, c)| r(t * c)).collect();
        let q = r(r(mean(&products) * r(inverse * inverse)) * inverse);
        let (q_size, shift_size) = (mean_size(&products) * inverse.powi(3), mean_size(&a));
        for i in 0..width {
            formula.out.push(r(r(gamma[i] * n[i]) + beta[i]));
            formula
                .out_terms
                .push((gamma[i] * n[i]).abs().max(beta[i].abs()));
            formula.dx.push(r(r(a[i] + r(-q * c[i])) + shift));
            let terms = a[i].abs().max((q_size * c[i]).abs());
            formula.dx_terms.push(terms.max(shift_size));
        }
    }
    formula
}

/// [B, C, P] as [C, B, P], or back with the sizes exchanged.
fn swapped(values: &[f32], [first, second, pixels]: [usize; 3]) -> Vec<f32> {
    let mut swapped = Vec::with_capacity(values.len());
    for j in 0..second {
        for i in 0..first {
            let at = (i * second + j) * pixels;
            swapped.extend_from_slice(&values[at..at + pixels]);
        }
    }
    swapped
}

/// The parameter of each channel at every element of [B, C, P].
fn spread(parameter: &[f32], [batch, _, pixels]: [usize; 3]) -> Vec<f32> {
    let image = parameter
        .iter()
        .flat_map(|p| std::iter::repeat_n(*p, pixels));
    let image: Vec<f32> = image.collect();
    image.repeat(batch)
}

const SIZES: [usize; 3] = [8, 12, 25];
const SHAPE: [usize; 4] = [8, 12, 5, 5];

fn norm_rows(rows: &mut Vec<String>) {
    let [batch, channels, pixels] = SIZES;
    let count = batch * channels * pixels;
    let (x, g) = (bell(count, 1), bell(count, 2));
    let (gamma, beta) = (noise(channels, 3), noise(channels, 4));
    let (gammas, betas) = (spread(&gamma, SIZES), spread(&beta, SIZES));
    let parameters = || {
        let leaf = |values: &[f32]| Param::from_tensor(tensor(values, [channels]).require_grad());
        (leaf(&gamma), leaf(&beta))
    };
    let mut add = |name: &str, [out, dx]: [Vec<f32>; 2], formula: Formula| {
        rows.push(row(
            &format!("`nn::{name}`"),
            &out,
            &formula.out,
            &formula.out_terms,
        ));
        rows.push(row(
            &format!("`nn::{name}` ∂x"),
            &dx,
            &formula.dx,
            &formula.dx_terms,
        ));
    };

    let mut batch_norm = BatchNormConfig::new(channels).init::<Mx>(&device());
    (batch_norm.gamma, batch_norm.beta) = parameters();
    let by_channel = |values: &[f32]| swapped(values, SIZES);
    let formula = norm(
        &by_channel(&x),
        &by_channel(&g),
        &by_channel(&gammas),
        &by_channel(&betas),
        batch * pixels,
    );
    let back = |values: Vec<f32>| swapped(&values, [channels, batch, pixels]);
    let formula = Formula {
        out: back(formula.out),
        dx: back(formula.dx),
        out_terms: back(formula.out_terms),
        dx_terms: back(formula.dx_terms),
    };
    add(
        "BatchNorm",
        results(&x, &g, SHAPE, |x| batch_norm.forward(x)),
        formula,
    );

    let mut group_norm = GroupNormConfig::new(3, channels).init::<Mx>(&device());
    let (gamma, beta) = parameters();
    (group_norm.gamma, group_norm.beta) = (Some(gamma), Some(beta));
    let formula = norm(&x, &g, &gammas, &betas, channels / 3 * pixels);
    add(
        "GroupNorm",
        results(&x, &g, SHAPE, |x| group_norm.forward(x)),
        formula,
    );

    let mut instance_norm = InstanceNormConfig::new(channels).init::<Mx>(&device());
    let (gamma, beta) = parameters();
    (instance_norm.gamma, instance_norm.beta) = (Some(gamma), Some(beta));
    let formula = norm(&x, &g, &gammas, &betas, pixels);
    add(
        "InstanceNorm",
        results(&x, &g, SHAPE, |x| instance_norm.forward(x)),
        formula,
    );

    // The formula of rms norm is the library's, which the golden files hold bit for bit.
    let shape = [200, 12];
    let mut rms_norm = RmsNormConfig::new(channels).init::<Mx>(&device());
    rms_norm.gamma = parameters().0;
    let gamma = rms_norm.gamma.val();
    let [out, dx] = results(&x, &g, shape, |x| rms_norm.forward(x));
    let [formula_out, formula_dx] = results(&x, &g, shape, |x| {
        module::rms_norm(x, gamma, None, rms_norm.epsilon)
    });
    let gamma = values(rms_norm.gamma.val());
    let terms: Vec<f32> = (0..count)
        .map(|at| {
            let row = at / channels * channels;
            let product = |i: usize| (g[row + i] * gamma[i] * x[row + i]).abs();
            let square: f32 = (0..channels).map(|i| x[row + i] * x[row + i]).sum();
            let root = (square / channels as f32).sqrt();
            let mean = (0..channels).map(product).sum::<f32>() / channels as f32;
            let own = g[at] * gamma[at % channels] / root;
            own.abs().max((x[at] * mean / root.powi(3)).abs())
        })
        .collect();
    rows.push(row("`nn::RmsNorm`", &out, &formula_out, &formula_out));
    rows.push(row("`nn::RmsNorm` ∂x", &dx, &formula_dx, &terms));
}

fn activation_rows(rows: &mut Vec<String>) {
    let shape = [40, 25];
    let (x, g) = (bell(1000, 5), bell(1000, 6));
    let gated = |gate: fn(f32) -> [f32; 2]| -> Vec<f32> {
        let term = |(x, g): (&f32, &f32)| {
            let [value, slope] = gate(*x);
            (g * value).abs().max((g * x * slope).abs())
        };
        x.iter().zip(&g).map(term).collect()
    };
    let sigmoid = |x: f32| {
        let y = 1.0 / (1.0 + (-x).exp());
        [y, y * (1.0 - y)]
    };
    let [out, dx] = results(&x, &g, shape, activation::silu);
    let [formula_out, formula_dx] = results(&x, &g, shape, module::silu);
    rows.push(row("`activation::silu`", &out, &formula_out, &formula_out));
    rows.push(row(
        "`activation::silu` ∂x",
        &dx,
        &formula_dx,
        &gated(sigmoid),
    ));

    let gelu_gate = |x: f32| {
        let inner = 1.595_769 * (x + 0.044_715 * x * x * x);
        let y = 1.0 / (1.0 + (-inner).exp());
        [y, y * (1.0 - y) * 1.595_769 * (1.0 + 0.134_145 * x * x)]
    };
    let [out, dx] = results(&x, &g, shape, activation::gelu_approximate);
    let [formula_out, formula_dx] = results(&x, &g, shape, activation::gelu);
    rows.push(row(
        "`activation::gelu_approximate`",
        &out,
        &formula_out,
        &x,
    ));
    // `1 + tanh`, which cancels.
    let terms: Vec<f32> = gated(gelu_gate)
        .iter()
        .zip(&g)
        .map(|(term, g)| term.max(g.abs() / 2.0))
        .collect();
    rows.push(row(
        "`activation::gelu_approximate` ∂x",
        &dx,
        &formula_dx,
        &terms,
    ));

    // No formula: against the exact function of the rounded input. A sum with 1 or 0.5 is the largest term.
    let (ones, halves) = (vec![1.0; 1000], vec![0.5; 1000]);
    let exact = |function: fn(f64) -> f64| -> Vec<f32> {
        x.iter()
            .map(|x| function(f64::from(r(*x))) as f32)
            .collect()
    };
    let output = |function: fn(Tensor<Mx, 2>) -> Tensor<Mx, 2>| values(function(tensor(&x, shape)));
    let expected = exact(|x| -(1.0 + (-x).exp()).ln());
    rows.push(row(
        "`activation::log_sigmoid`, exact",
        &output(activation::log_sigmoid),
        &expected,
        &ones,
    ));
    let expected = exact(|x| (0.2 * x + 0.5).clamp(0.0, 1.0));
    let got = output(|x| activation::hard_sigmoid(x, 0.2, 0.5));
    rows.push(row(
        "`activation::hard_sigmoid`, exact",
        &got,
        &expected,
        &halves,
    ));
    let expected = exact(|x| (1.0 + x.exp()).ln());
    let got = output(|x| activation::softplus(x, 1.0));
    rows.push(row("`activation::softplus`, exact", &got, &expected, &ones));
    let got = output(|x| activation::log_softmax(x, 1));
    let expected: Vec<f32> = x
        .chunks(25)
        .flat_map(|row| {
            let row: Vec<f64> = row.iter().map(|x| f64::from(r(*x))).collect();
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            row.into_iter().map(move |x| (x - sum.ln()) as f32)
        })
        .collect();
    rows.push(row(
        "`activation::log_softmax`, exact",
        &got,
        &expected,
        &expected,
    ));
}

/// `nn::SwiGlu` as Burn composes it, and with the reference's silu between the same layers. Weights of the identity make
/// it `x σ(x) x`, so that no product of matrices hides the terms.
fn swiglu_rows(rows: &mut Vec<String>) {
    let shape = [40, 25];
    let (x, g) = (bell(1000, 7), bell(1000, 8));
    let mut gate = SwiGluConfig::new(25, 25).init::<Mx>(&device());
    let eye = || Param::from_tensor(Tensor::eye(25, &device()).require_grad());
    (gate.linear_inner.weight, gate.linear_outer.weight) = (eye(), eye());
    let [out, dx] = results(&x, &g, shape, |x| gate.forward(x));
    let [formula_out, formula_dx] = results(&x, &g, shape, |x| {
        module::silu(gate.linear_inner.forward(x.clone())) * gate.linear_outer.forward(x)
    });
    let terms: Vec<f32> = x
        .iter()
        .zip(&g)
        .map(|(x, g)| {
            let sigmoid = 1.0 / (1.0 + (-x).exp());
            let through_sigmoid = x * x * sigmoid * (1.0 - sigmoid);
            (g * x * sigmoid).abs().max((g * through_sigmoid).abs())
        })
        .collect();
    rows.push(row("`nn::SwiGlu`", &out, &formula_out, &formula_out));
    rows.push(row("`nn::SwiGlu` ∂x", &dx, &formula_dx, &terms));
}

/// The reference updates the running statistics by emulated ops, too: `r(r((1 - m) s) + r(m batch))`.
#[test]
fn running_statistics_of_batch_norm_are_updated_as_the_reference_does() {
    let [batch, channels, pixels] = SIZES;
    let norm = BatchNormConfig::new(channels).init::<Mx>(&device());
    let mut expected = [vec![0.0; channels], vec![1.0; channels]];
    for step in 0..3 {
        let x = bell(batch * channels * pixels, 20 + step);
        norm.forward(tensor(&x, SHAPE));
        let count = batch * pixels;
        let mean = |values: &mut dyn Iterator<Item = f32>| {
            r(r(values.map(f64::from).sum::<f64>() as f32) / count as f32)
        };
        for (channel, x) in swapped(&x, SIZES).chunks(count).enumerate() {
            let center = mean(&mut x.iter().map(|x| r(*x)));
            let spread = mean(&mut x.iter().map(|x| r(r(r(*x) - center).powi(2))));
            for (statistic, batch) in expected.iter_mut().zip([center, spread]) {
                statistic[channel] = r(r(0.9 * statistic[channel]) + r(0.1 * batch));
            }
        }
    }
    let got = [&norm.running_mean, &norm.running_var].map(|state| values(state.value_sync()));
    assert_all_same_bits(&got, &expected, "statistic");
}

#[test]
fn differences_from_the_reference_are_as_documented() {
    let mut rows = Vec::new();
    norm_rows(&mut rows);
    activation_rows(&mut rows);
    swiglu_rows(&mut rows);
    let missing: Vec<&String> = rows.iter().filter(|row| !TABLE.contains(*row)).collect();
    assert!(
        missing.is_empty(),
        "not in docs/src/op-coverage.md:\n{}",
        rows.join("\n")
    );
}
