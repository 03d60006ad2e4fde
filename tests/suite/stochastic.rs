//! Stochastic rounding: a run that resumes from a record gives the bits of an uninterrupted run. A gradient's formula
//! takes the numbers that the forward pass drew.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::module::{AutodiffModule, Module};
use burn::nn::LayerNormConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Record, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, activation};
use burn_mx::{ElementFormat, Rounding};
use burn_mx::{MxSpecs, SlotFormat, module};

use super::digit_models::{Classify, Cnn, digits};
use crate::support::*;

type Device = burn_mx::MxDevice<TestDevice>;

/// Steps of Adam with the random numbers of `epoch`, then an evaluation, as a training loop does it.
fn train_epoch<O: Optimizer<Cnn<Mx>, Mx>>(
    mut model: Cnn<Mx>,
    optimizer: &mut O,
    epoch: u64,
    device: &Device,
) -> (Vec<f32>, Cnn<Mx>) {
    Mx::seed(device, epoch);
    let loss_function = CrossEntropyLossConfig::new().init(device);
    let mut losses = Vec::new();
    for _ in 0..3 {
        let (images, labels) = digits::<Mx>(device);
        let loss = loss_function.forward(model.logits(images), labels);
        losses.extend(values(loss.clone()));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.01, model, grads);
    }
    losses.extend(values(model.valid().logits(digits(device).0)));
    (losses, model)
}

fn through_a_recorder<R: Record<Mx>>(record: R, device: &Device) -> R {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Mx>::record(&recorder, record, ()).expect("it saves");
    Recorder::<Mx>::load(&recorder, bytes, device).expect("it loads")
}

/// The running statistics of batch norm have the mark of rounded numbers until they are in a record, and a tensor with this mark is not
/// rounded again.
#[test]
fn a_resumed_run_of_batch_norm_draws_the_numbers_of_an_uninterrupted_one() {
    let specs = MxSpecs {
        round: Rounding::Stochastic,
        seed: 4711,
        ..MxSpecs::mxfp8_e4m3()
    };
    let device = mx_device(&specs);
    let mut optimizer = AdamConfig::new().init::<Mx, Cnn<Mx>>();
    let (_, model) = train_epoch(Cnn::new(&device), &mut optimizer, 1, &device);

    let record = through_a_recorder(model.clone().into_record(), &device);
    let mut resumed_optimizer = AdamConfig::new().init::<Mx, Cnn<Mx>>();
    resumed_optimizer =
        resumed_optimizer.load_record(through_a_recorder(optimizer.to_record(), &device));
    let resumed = Cnn::<Mx>::new(&device).load_record(record);

    let (expected, model) = train_epoch(model, &mut optimizer, 2, &device);
    let (got, resumed) = train_epoch(resumed, &mut resumed_optimizer, 2, &device);
    assert_same_bits(&got, &expected, "losses and logits");
    assert_all_same_bits(&weights(&resumed), &weights(&model), "parameter");
    let (other, _) = train_epoch(resumed, &mut resumed_optimizer, 3, &device);
    assert_ne!(other, got, "rounding is random");
}

/// bfloat10, two significant bits, or fp7, which has subnormals that numbers of a test can have: formats so coarse that
/// two draws hardly ever agree.
fn coarse(bfloat: u32, fp: u32) -> Device {
    mx_device(&MxSpecs {
        bfloat,
        fp,
        ..stochastic()
    })
}

fn stochastic() -> MxSpecs {
    MxSpecs {
        round: Rounding::Stochastic,
        seed: 31,
        ..MxSpecs::none()
    }
}

/// The two results of a number's rounding to bfloat10.
fn r(x: f32) -> Vec<f32> {
    let down = f32::from_bits(x.to_bits() & !0x003f_ffff);
    match down == x {
        true => vec![x],
        false => vec![down, f32::from_bits(down.to_bits() + 0x0040_0000)],
    }
}

/// The possible results of a rounded function, for the possible values of some numbers.
fn then(of: &[f32], f: impl Fn(f32) -> f32) -> Vec<f32> {
    let mut all: Vec<f32> = of.iter().flat_map(|&x| r(f(x))).collect();
    all.sort_by(f32::total_cmp);
    all.dedup();
    all
}

fn sigmoid(x: f32) -> Vec<f32> {
    let denominator = then(&then(&[-x], near_exp), |e| e + 1.0);
    then(&denominator, f32::recip)
}

/// e^x. Rounding this value equals rounding the library's, which errs by an ulp of float32, unless the format is as
/// close to both.
fn near_exp(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

const COUNT: usize = 512;

/// The output of an op on one tensor, and the gradient of the input for an output's gradient of 1, which no format rounds.
fn unary(
    device: &Device,
    x: &[f32],
    op: impl Fn(Tensor<Mx, 1>) -> Tensor<Mx, 1>,
) -> (Vec<f32>, Vec<f32>) {
    let x = Tensor::<Mx, 1>::from_floats(x, device).require_grad();
    let y = op(x.clone());
    let ones = Tensor::ones_like(&y).detach();
    let grads = Mx::loss_with_gradient(y.clone(), ones).backward();
    (values(y), values(x.grad(&grads).expect("it is tracked")))
}

/// An op on one tensor, whose gradient has to be one that `gradients` gives for an input as it may have been rounded and
/// the output that was drawn for it.
#[track_caller]
fn check(
    name: &str,
    x: &[f32],
    op: impl Fn(Tensor<Mx, 1>) -> Tensor<Mx, 1>,
    gradients: impl Fn(f32, f32) -> Vec<f32>,
) {
    let (y, dx) = unary(&coarse(10, 0), x, op);
    for i in 0..x.len() {
        let possible: Vec<f32> = r(x[i]).iter().flat_map(|&x| gradients(x, y[i])).collect();
        assert!(
            possible.contains(&dx[i]),
            "{name} of {}: y = {}, dx = {}, possible: {possible:?}",
            x[i],
            y[i],
            dx[i]
        );
    }
}

fn positive(count: usize) -> Vec<f32> {
    noise(count, 5).into_iter().map(f32::abs).collect()
}

/// The derivatives that are functions of the output alone.
#[test]
fn gradients_take_the_output_that_was_drawn() {
    let x = noise(COUNT, 4);
    check("exp", &x, Tensor::exp, |_, y| vec![y]);
    check("sqrt", &positive(COUNT), Tensor::sqrt, |_, y| {
        // r(r(g / 2) / y) of a gradient of 1.
        r(0.5 / y)
    });
    check("tanh", &x, Tensor::tanh, |_, y| {
        then(&r(y * y), |square| 1.0 - square)
    });
    check("tan", &x, Tensor::tan, |_, y| {
        then(&r(y * y), |square| square + 1.0)
    });
    check("sigmoid", &x, activation::sigmoid, |_, y| {
        then(&r(1.0 - y), |rest| y * rest)
    });
}

/// The derivatives that take the input or a part of the function, too: both are what the output was made of.
#[test]
fn gradients_take_what_the_output_was_made_of() {
    let x = noise(COUNT, 4);
    check("log", &positive(COUNT), Tensor::log, |x, y| {
        match r(x.ln()).contains(&y) {
            true => r(1.0 / x),
            false => vec![],
        }
    });
    let gate_of_y = |x: f32, y: f32, gates: Vec<f32>| {
        gates
            .into_iter()
            .filter(move |gate| r(x * gate).contains(&y))
    };
    check("silu", &x, module::silu, |x, y| {
        let gates = gate_of_y(x, y, sigmoid(x));
        let derivative = |gate: f32| {
            let rest = then(&r(1.0 - gate), |rest| y * rest);
            then(&rest, |rest| gate + rest)
        };
        gates.flat_map(derivative).collect()
    });
    check("gelu_first_order", &x, module::gelu_first_order, |x, y| {
        let gates = r(1.703125 * x).into_iter().flat_map(sigmoid).collect();
        let derivative = |gate: f32| {
            let slope = then(&r(1.0 - gate), |rest| gate * rest);
            let slope = then(&slope, |slope| 1.703125 * slope);
            then(&then(&slope, |slope| x * slope), |rest| gate + rest)
        };
        gate_of_y(x, y, gates).flat_map(derivative).collect()
    });
    check("gelu", &x, activation::gelu, |x, y| {
        let cube = then(&then(&r(x * x), |square| square * x), |cube| {
            0.044677734 * cube
        });
        let argument = then(&then(&cube, |cube| cube + x), |sum| 1.59375 * sum);
        let gates = argument.into_iter().flat_map(sigmoid).collect();
        let inner = then(&then(&r(x * x), |square| 0.21386719 * square), |inner| {
            inner + 1.59375
        });
        let derivative = |gate: f32| {
            let slope = then(&r(1.0 - gate), |rest| gate * rest);
            let slope: Vec<f32> = slope
                .iter()
                .flat_map(|slope| then(&inner, |inner| inner * slope))
                .collect();
            then(&then(&slope, |slope| x * slope), |rest| gate + rest)
        };
        gate_of_y(x, y, gates).flat_map(derivative).collect()
    });
    check("log_sigmoid", &x, activation::log_sigmoid, |x, y| {
        let max = f32::max(-x, 0.0);
        let (first, second) = (r(near_exp(-max)), then(&r(-x - max), near_exp));
        let sums: Vec<f32> = second
            .iter()
            .flat_map(|second| then(&first, |first| first + second))
            .collect();
        let sums = sums
            .into_iter()
            .filter(|z| then(&r(z.ln()), |log| -max - log).contains(&y));
        let (m, s) = if x > 0.0 { (0.0, -1.0) } else { (1.0, 1.0) };
        let derivative = |z: f32| then(&then(&r(1.0 / z), |part| 1.0 - part), |part| m - s * part);
        sums.flat_map(derivative).collect()
    });
}

/// A backward pass without quantization takes rounded outputs, too, and rounds nothing else.
#[test]
fn an_unquantized_backward_pass_takes_the_output_that_was_drawn() {
    for vec_use_exp2 in [false, true] {
        let device = mx_device(&MxSpecs {
            bfloat: 10,
            quantize_backprop: false,
            vec_use_exp2,
            ..stochastic()
        });
        let same = |name: &str, (y, dx): (Vec<f32>, Vec<f32>), of: fn(f32) -> f32| {
            assert!(y.iter().all(|&y| r(y) == [y]), "{name} is rounded");
            let expected: Vec<f32> = y.into_iter().map(of).collect();
            assert_same_bits(&dx, &expected, name);
        };
        let x = noise(COUNT, 4);
        same("exp", unary(&device, &x, Tensor::exp), |y| y);
        let sqrt = unary(&device, &positive(COUNT), Tensor::sqrt);
        same("sqrt", sqrt, |y| 0.5 / y);
        same("tanh", unary(&device, &x, Tensor::tanh), |y| 1.0 - y * y);
        let sigmoid = unary(&device, &x, activation::sigmoid);
        same("sigmoid", sigmoid, |y| y * (1.0 - y));
    }
}

/// A number below the least subnormal is 0 or that: a mask that is drawn for itself is wrong on half of the elements.
#[test]
fn masks_are_those_of_the_output() {
    const LEAST: f32 = 1.0 / 32_768.0;
    let device = coarse(0, 7);
    for sign in [1.0, -1.0] {
        let x = [sign * LEAST / 2.0; COUNT];
        let expect = |name: &str, (y, dx): (Vec<f32>, Vec<f32>), zero: f32, other: f32| {
            assert!(y.contains(&0.0) && y.iter().any(|&y| y != 0.0), "{name}");
            let expected = y.iter().map(|&y| if y == 0.0 { zero } else { other });
            let expected: Vec<f32> = expected.collect();
            assert_eq!(dx, expected, "{name} of {}", x[0]);
        };
        if sign > 0.0 {
            expect("relu", unary(&device, &x, activation::relu), 0.0, 1.0);
            continue;
        }
        let leaky = |x| activation::leaky_relu(x, 2.0);
        expect("leaky_relu", unary(&device, &x, leaky), 1.0, 2.0);
        let prelu = |x: Tensor<Mx, 1>| activation::prelu(x, Tensor::from_floats([2.0], &device));
        expect("prelu", unary(&device, &x, prelu), 1.0, 2.0);
    }
}

/// The output and the gradients of an op on two tensors, for an output's gradient of `g`.
fn binary(
    [a, b]: [Vec<f32>; 2],
    g: &[f32],
    op: impl Fn(Tensor<Mx, 1>, Tensor<Mx, 1>) -> Tensor<Mx, 1>,
) -> [Vec<f32>; 3] {
    let device = coarse(10, 0);
    let operand = |x: Vec<f32>| Tensor::<Mx, 1>::from_floats(&x[..], &device).require_grad();
    let (a, b) = (operand(a), operand(b));
    let y = op(a.clone(), b.clone());
    let g = Tensor::from_floats(g, &device);
    let grads = Mx::loss_with_gradient(y.clone(), g).backward();
    let gradient = |x: Tensor<Mx, 1>| values(x.grad(&grads).expect("it is tracked"));
    [values(y), gradient(a), gradient(b)]
}

/// With factors, a divisor and a gradient of 1 the output is the other rounded operand, and so is its part in the
/// gradients.
#[test]
fn gradients_take_the_operands_that_were_drawn() {
    let (x, ones) = (noise(COUNT, 4), vec![1.0; COUNT]);
    let [y, _, db] = binary([x.clone(), ones.clone()], &ones, |a, b| a * b);
    assert_ne!(y, x);
    assert_eq!(db, y, "a factor");
    let [y, da, _] = binary([ones.clone(), x.clone()], &ones, |a, b| a * b);
    assert_eq!(da, y, "the other factor");
    let [y, _, db] = binary([x.clone(), ones.clone()], &ones, |a, b| a / b);
    let negative: Vec<f32> = y.iter().map(|y| -y).collect();
    assert_eq!(db, negative, "-y");
    let [y, da, db] = binary([ones.clone(), x.clone()], &ones, |a, b| a / b);
    for i in 0..COUNT {
        let possible = |b: &f32| {
            let by_b = |y: f32| r(y / b);
            by_b(1.0).contains(&y[i]) && by_b(1.0).contains(&da[i]) && by_b(-y[i]).contains(&db[i])
        };
        assert!(r(x[i]).iter().any(possible), "1 / {}", x[i]);
    }

    // Pairs of a number and 1.
    let device = coarse(10, 0);
    let pairs: Vec<f32> = x.iter().flat_map(|&x| [x, 1.0]).collect();
    let of_pairs = |op: fn(Tensor<Mx, 2>) -> Tensor<Mx, 2>| {
        unary(&device, &pairs, |x| op(x.reshape([COUNT, 2])).flatten(0, 1))
    };
    let (y, dx) = of_pairs(|x| x.prod_dim(1));
    let expected: Vec<f32> = y.iter().flat_map(|&y| [1.0, y]).collect();
    assert_eq!(dx, expected, "product");
    let (y, dx) = of_pairs(|x| x.cumprod(1));
    let expected = y.chunks(2).flat_map(|y| [2.0, y[1]]);
    assert_eq!(dx, expected.collect::<Vec<f32>>(), "cumulative product");
}

/// The gradient of an output is rounded once for all results.
#[test]
fn all_gradients_of_an_op_take_one_rounding_of_its_outputs_gradient() {
    let (g, ones) = (noise(COUNT, 4), vec![1.0; COUNT]);
    let [_, da, db] = binary([ones.clone(), ones.clone()], &g, |a, b| a * b);
    assert_ne!(da, g);
    assert_eq!(da, db, "product");
    let [_, da, db] = binary([ones.clone(), ones], &g, |a, b| a + b);
    assert_eq!(da, db, "sum");
}

/// With an operand and a gradient of 1, output and gradient of a product are the other rounded operand. With operands
/// of 1, all gradients are the rounded gradient of the output.
#[test]
fn products_of_an_op_take_one_rounding_of_each_operand() {
    let device = coarse(10, 0);
    let tensor = |x: &[f32], shape: [usize; 3]| {
        Tensor::<Mx, 1>::from_floats(x, &device)
            .reshape(shape)
            .require_grad()
    };
    let (x, ones) = (noise(COUNT, 4), vec![1.0; COUNT]);
    for linear in [false, true] {
        // As many products of one number each, or one of them all with one weight.
        let (a_shape, b_shape) = match linear {
            false => ([COUNT, 1, 1], [COUNT, 1, 1]),
            true => ([1, COUNT, 1], [1, 1, 1]),
        };
        let count = b_shape[0];
        let product = |a: &[f32], b: &[f32], g: &[f32]| {
            let (a, b) = (tensor(a, a_shape), tensor(&b[..count], b_shape));
            let y = match linear {
                false => a.clone().matmul(b.clone()),
                true => burn::tensor::module::linear(a.clone(), b.clone().reshape([1, 1]), None),
            };
            let g = tensor(g, a_shape).detach();
            let grads = Mx::loss_with_gradient(y.clone(), g).backward();
            let gradient = |x: Tensor<Mx, 3>| values(x.grad(&grads).expect("it is tracked"));
            [values(y), gradient(a), gradient(b)]
        };
        let [_, da, db] = product(&ones, &ones, &x);
        assert_ne!(da, x);
        if linear {
            // The sum of the gradients, rounded.
            assert!(r(da.iter().sum()).contains(&db[0]), "{db:?}");
            let [y, da, _] = product(&ones, &x, &ones);
            assert_eq!(da, y, "the weight, linear");
            continue;
        }
        assert_eq!(da, db, "gradient");
        let [y, _, db] = product(&x, &ones, &ones);
        assert_eq!(db, y, "left operand");
        let [y, da, _] = product(&ones, &x, &ones);
        assert_eq!(da, y, "right operand");
    }
}

/// The output of a norm with γ = 1 is the normalized input, and γ's gradient the sum of its products with the output's.
#[test]
fn norms_multiply_by_the_normalized_input_that_was_drawn() {
    const FEATURES: usize = 8;
    let device = coarse(10, 0);
    let (mut outputs, mut differ) = (Vec::new(), false);
    for seed in 0..20 {
        let x = noise_tensor::<Mx, 2>([1, FEATURES], seed, &device);
        let ones = || Tensor::<Mx, 1>::ones([FEATURES], &device).require_grad();
        let layer = LayerNormConfig::new(FEATURES).init::<Mx>(&device);
        let (y, gamma) = match seed % 2 {
            0 => (layer.forward(x), layer.gamma.val()),
            _ => {
                let gamma = ones();
                (module::rms_norm(x, gamma.clone(), None, 1e-5), gamma)
            }
        };
        let g = Tensor::ones([1, FEATURES], &device);
        let grads = Mx::loss_with_gradient(y.clone(), g).backward();
        let y = values(y);
        assert_eq!(values(gamma.grad(&grads).expect("it is tracked")), y);
        differ |= outputs.last().is_some_and(|last| *last != y);
        outputs.push(y);
    }
    assert!(differ);
}

#[test]
fn softmax_takes_the_output_that_was_drawn() {
    let device = coarse(10, 0);
    let x = noise_tensor::<Mx, 2>([COUNT, 2], 4, &device).require_grad();
    let y = activation::softmax(x.clone(), 1);
    let g = Tensor::<Mx, 2>::from_floats([[1.0, 0.0]], &device).expand([COUNT, 2]);
    let grads = Mx::loss_with_gradient(y.clone(), g).backward();
    let dx = values(x.grad(&grads).expect("it is tracked"));
    for (y, dx) in values(y).chunks(2).zip(dx.chunks(2)) {
        assert!(then(&r(1.0 - y[0]), |rest| y[0] * rest).contains(&dx[0]));
        assert!(r(-y[0] * y[1]).contains(&dx[1]));
    }
}

/// `softmax_exp2` has no effect on this product, and yet these are other specs.
#[test]
fn specs_that_differ_draw_different_numbers_of_one_seed() {
    let drawn = |softmax_exp2| {
        let device = mx_device(&MxSpecs {
            bfloat: 10,
            round: Rounding::Stochastic,
            softmax_exp2,
            seed: 32,
            ..MxSpecs::none()
        });
        Mx::seed(&device, 7);
        values(noise_tensor::<Mx, 1>([COUNT], 4, &device) * 1.5)
    };
    let first = drawn(false);
    assert_same_bits(&drawn(false), &first, "the same specs");
    assert_ne!(drawn(true), first);
}

/// Both operands are transformed by the same signs, even if another thread seeds meanwhile. So the product equals the
/// product of the original operands, except for their rounding to bfloat16.
#[test]
fn a_product_is_right_while_another_thread_seeds() {
    let specs = MxSpecs {
        w_elem_format: Some(SlotFormat::Element(ElementFormat::BFLOAT16)),
        a_elem_format: Some(SlotFormat::Element(ElementFormat::BFLOAT16)),
        block_size: 32,
        hadamard_block_size: 32,
        seed: 33,
        ..MxSpecs::none()
    };
    let device = mx_device(&specs);
    fn gradients<B: Exact>(device: &B::Device) -> [Vec<f32>; 2] {
        let x = noise_tensor::<B, 2>([32, 32], 1, device).require_grad();
        let w = noise_tensor::<B, 2>([32, 32], 2, device).require_grad();
        let g = noise_tensor::<B, 2>([32, 32], 3, device);
        let grads = B::loss_with_gradient(x.clone().matmul(w.clone()), g).backward();
        [x, w].map(|x| values(x.grad(&grads).expect("it is tracked")))
    }
    let exact = gradients::<Plain>(&Default::default());
    let (done, mut worst) = (AtomicBool::new(false), 0.0f32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 0.. {
                Mx::seed(&device, seed);
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..500 {
            for (got, exact) in gradients::<Mx>(&device).iter().zip(&exact) {
                let norm =
                    |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
                let error = norm(&mut got.iter().zip(exact).map(|(got, exact)| got - exact));
                let error = (error / norm(&mut exact.iter().copied())).sqrt();
                worst = error.max(worst);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(worst < 0.01, "relative error {worst}");
}
