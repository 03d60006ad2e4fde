//! Every loss of Burn with all its options, of an output in full precision and of targets as they are: values and gradients are
//! float32's.
//!
//! The independent source is Burn alone, and numbers computed by hand.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::nn::loss::*;
use burn::prelude::*;
use burn::tensor::activation::{log_softmax, sigmoid, softmax};
use burn_mx::module::full_precision;
use burn_mx::{MxBackend, MxDevice};

use crate::support::*;

const SHAPE: [usize; 2] = [8, 12];

/// A loss of an output of [`SHAPE`].
type Loss<B> = Box<dyn Fn(Tensor<B, 2>) -> Tensor<B, 1>>;

/// Targets are made beside the output, on its device.
struct Cases<B: Backend>(Vec<(String, Loss<B>)>);

fn noise_like<B: Backend>(output: &Tensor<B, 2>, seed: u64) -> Tensor<B, 2> {
    let data = TensorData::new(noise(SHAPE[0] * SHAPE[1], seed), output.shape());
    Tensor::from_data(data, &output.device())
}

/// Counts, some of them zero.
fn counts<B: Backend>(output: &Tensor<B, 2>) -> Tensor<B, 2> {
    (noise_like(output, 5) * 4.0).abs().floor()
}

fn classes<B: Backend>(device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::from_data([3, 0, 11, 3, 7, 5, 1, 9], device)
}

/// One positive number for each class.
fn class_weights() -> Vec<f32> {
    noise(SHAPE[1], 7).iter().map(|x| x.abs()).collect()
}

fn reductions() -> [(&'static str, Reduction); 3] {
    [
        ("mean", Reduction::Mean),
        ("sum", Reduction::Sum),
        ("auto", Reduction::Auto),
    ]
}

/// A scalar of all elements of a loss without a reduction.
fn weighted<B: Backend, const D: usize>(loss: Tensor<B, D>) -> Tensor<B, 1> {
    let count = loss.shape().num_elements();
    let loss = loss.reshape([count]);
    let factor = Tensor::from_data(TensorData::new(noise(count, 8), [count]), &loss.device());
    (loss * factor).sum()
}

impl<B: Backend> Cases<B> {
    fn add(
        &mut self,
        what: impl Into<String>,
        loss: impl Fn(Tensor<B, 2>) -> Tensor<B, 1> + 'static,
    ) {
        self.0.push((what.into(), Box::new(loss)));
    }

    fn cross_entropies(&mut self) {
        for logits in [true, false] {
            for smoothing in [None, Some(0.1)] {
                for weights in [None, Some(class_weights())] {
                    for pad in [None, Some(vec![3]), Some(vec![0, 7])] {
                        let config = CrossEntropyLossConfig::new()
                            .with_logits(logits)
                            .with_smoothing(smoothing)
                            .with_weights(weights.clone())
                            .with_pad_tokens(pad);
                        self.add(format!("{config}"), move |output| {
                            let loss = config.init(&output.device());
                            let targets = classes::<B>(&output.device());
                            let output = if logits { output } else { softmax(output, 1) };
                            loss.forward(output, targets)
                        });
                    }
                }
            }
        }
    }

    fn binary_cross_entropies(&mut self) {
        for logits in [true, false] {
            for smoothing in [None, Some(0.1)] {
                for weights in [None, Some(class_weights())] {
                    let config = BinaryCrossEntropyLossConfig::new()
                        .with_logits(logits)
                        .with_smoothing(smoothing)
                        .with_weights(weights);
                    let prepared = move |output| if logits { output } else { sigmoid(output) };
                    let several = config.clone();
                    self.add(format!("{config}"), move |output| {
                        let targets = noise_like(&output, 4).greater_elem(0.0).int();
                        let loss = several.init(&output.device());
                        loss.forward(prepared(output), targets)
                    });
                    let config = config.with_weights(Some(vec![0.3, 1.7]));
                    self.add(format!("one class, {config}"), move |output| {
                        let targets = noise_like(&output, 4).greater_elem(0.0).int();
                        let loss = config.init(&output.device());
                        let output = prepared(output).reshape([SHAPE[0] * SHAPE[1]]);
                        loss.forward(output, targets.reshape([SHAPE[0] * SHAPE[1]]))
                    });
                }
            }
        }
    }

    fn regressions(&mut self) {
        self.add("mse", |x| {
            let targets = noise_like(&x, 4);
            weighted(MseLoss::new().forward_no_reduction(x, targets))
        });
        self.add("huber", |x| {
            let targets = noise_like(&x, 4);
            let loss = HuberLossConfig::new(0.7).init();
            weighted(loss.forward_no_reduction(x, targets))
        });
        for (name, reduction) in reductions() {
            let of = reduction.clone();
            self.add(format!("mse, {name}"), move |x| {
                let targets = noise_like(&x, 4);
                MseLoss::new().forward(x, targets, of.clone())
            });
            let of = reduction.clone();
            self.add(format!("mse of normalized targets, {name}"), move |x| {
                let targets = noise_like(&x, 4);
                let (variance, mean) = targets.clone().var_mean(0);
                let targets = (targets - mean) / (variance + 1e-5).sqrt();
                MseLoss::new().forward(x, targets, of.clone())
            });
            let of = reduction.clone();
            self.add(format!("huber, {name}"), move |x| {
                let targets = noise_like(&x, 4);
                let loss = HuberLossConfig::new(0.7).init();
                loss.forward(x, targets, of.clone())
            });
            for beta in [0.3, 1.0] {
                let of = reduction.clone();
                self.add(format!("smooth l1, {beta}, {name}"), move |x| {
                    let targets = noise_like(&x, 4);
                    let loss = SmoothL1LossConfig::new().with_beta(beta).init();
                    loss.forward_with_reduction(x, targets, of.clone())
                });
            }
            for p in [1.0, 2.0, 2.5, 3.0] {
                let of = reduction.clone();
                self.add(format!("l{p}, {name}"), move |x| {
                    let targets = noise_like(&x, 4);
                    LpLossConfig::new(p).init().forward(x, targets, of.clone())
                });
            }
        }
        self.add("smooth l1 by rows", |x| {
            let targets = noise_like(&x, 4);
            let loss = SmoothL1LossConfig::new().init();
            weighted(loss.forward_reduce_dims(x, targets, &[1]))
        });
        self.add("l3 by rows", |x| {
            let targets = noise_like(&x, 4);
            weighted(
                LpLossConfig::new(3.0)
                    .init()
                    .forward_reduce_dims(x, targets, &[1]),
            )
        });
    }

    fn distributions(&mut self) {
        let mut reductions = reductions().to_vec();
        reductions.push(("batch mean", Reduction::BatchMean));
        for (name, reduction) in reductions {
            for log_target in [true, false] {
                let of = reduction.clone();
                self.add(format!("kl divergence, {log_target}, {name}"), move |x| {
                    let targets = noise_like(&x, 4);
                    let targets = match log_target {
                        true => log_softmax(targets, 1),
                        false => softmax(targets, 1),
                    };
                    let loss = KLDivLossConfig::new().with_log_target(log_target).init();
                    loss.forward(log_softmax(x, 1), targets, of.clone())
                });
            }
        }
        for (name, reduction) in self::reductions() {
            for (log_input, full) in [(true, true), (true, false), (false, true), (false, false)] {
                let of = reduction.clone();
                self.add(format!("poisson, {log_input}, {full}, {name}"), move |x| {
                    let targets = counts(&x);
                    let x = if log_input { x } else { x.abs() };
                    let config = PoissonNllLossConfig::new().with_full(full);
                    let loss = config.with_log_input(log_input).init();
                    loss.forward(x, targets, of.clone())
                });
            }
            for margin in [0.0, 0.2] {
                let of = reduction.clone();
                self.add(format!("cosine, {margin}, {name}"), move |x| {
                    let other = noise_like(&x, 4);
                    let data = [1, -1, 1, 1, -1, -1, -1, 1];
                    let targets = Tensor::from_data(data, &x.device());
                    let config = CosineEmbeddingLossConfig::new().with_margin(margin);
                    let loss = config.with_reduction(of.clone()).init();
                    loss.forward(x, other, targets)
                });
            }
        }
    }

    fn sequences(&mut self) {
        for (name, reduction) in reductions() {
            for zero_infinity in [true, false] {
                let of = reduction.clone();
                self.add(format!("ctc, {zero_infinity}, {name}"), move |x| {
                    let device = x.device();
                    let x = log_softmax(x.reshape([6, 2, 8]), 2);
                    let targets = Tensor::from_data([[1, 2, 2], [7, 1, 0]], &device);
                    let inputs = Tensor::from_data([6, 5], &device);
                    let lengths = Tensor::from_data([3, 2], &device);
                    let config = CTCLossConfig::new().with_zero_infinity(zero_infinity);
                    let loss = config.init();
                    loss.forward_with_reduction(x, targets, inputs, lengths, of.clone())
                });
            }
            for logits in [true, false] {
                let of = reduction.clone();
                self.add(format!("rnnt, {logits}, {name}"), move |x| {
                    let device = x.device();
                    let x = x.reshape([2, 4, 3, 4]);
                    let x = if logits { x } else { log_softmax(x, 3) };
                    let targets = Tensor::from_data([[1, 2], [3, 1]], &device);
                    let frames = Tensor::from_data([4, 3], &device);
                    let lengths = Tensor::from_data([2, 1], &device);
                    let loss = RNNTLossConfig::new().with_logits(logits).init();
                    loss.forward_with_reduction(x, targets, frames, lengths, of.clone())
                });
            }
        }
    }

    fn all() -> Self {
        let mut cases = Self(Vec::new());
        cases.cross_entropies();
        cases.binary_cross_entropies();
        cases.regressions();
        cases.distributions();
        cases.sequences();
        cases
    }
}

/// A loss and the gradient of the output, a leaf, as an activation.
fn trained<B: Exact>(
    loss: &Loss<B>,
    piece: fn(Tensor<B, 2>) -> Tensor<B, 2>,
    device: &B::Device,
) -> [Vec<f32>; 2] {
    let leaf = noise_tensor::<B, 2>(SHAPE, 1, device).require_grad();
    let loss = loss(piece(as_hidden(leaf.clone())));
    let grads = loss.backward();
    [values(loss), values(leaf.grad(&grads).expect("a leaf"))]
}

/// The cases in which training differs from Burn alone.
fn differing(
    cases: impl Fn(&str) -> bool,
    piece: fn(Tensor<Mx, 2>) -> Tensor<Mx, 2>,
) -> Vec<String> {
    let device = MxDevice::new(FlexDevice, "mxfp8_e4m3").expect("it is a preset");
    let mut wrong = Vec::new();
    let mut checked = 0;
    for ((what, mx), (_, plain)) in Cases::<Mx>::all().0.iter().zip(&Cases::<Plain>::all().0) {
        if !cases(what) {
            continue;
        }
        checked += 1;
        let expected = trained::<Plain>(plain, |x| x, &FlexDevice);
        assert!(
            expected.concat().iter().all(|x| x.is_finite()),
            "{what}: {expected:?}"
        );
        let got = trained::<Mx>(mx, piece, &device);
        for (kind, (got, expected)) in ["loss", "gradient"].iter().zip(got.iter().zip(&expected)) {
            let mut pairs = got.iter().zip(expected);
            if let Some((got, expected)) = pairs.find(|(a, b)| a.to_bits() != b.to_bits()) {
                wrong.push(format!(
                    "{what}, {kind}: got {got:e}, expected {expected:e}"
                ));
            }
        }
    }
    assert!(checked >= 12, "{checked} cases");
    wrong
}

#[test]
fn every_loss_of_a_full_precision_output_is_float32s() {
    assert_none(&differing(|_| true, Mx::exact));
}

/// Losses that begin with the logarithm of a softmax are full precision by themselves.
#[test]
fn every_loss_of_logits_is_float32s_without_a_word() {
    let of_logits = |what: &str| {
        let cross_entropy = what.contains("CrossEntropyLoss") && !what.contains("Binary");
        let logits = what.contains("logits: true") || what.contains("\"logits\":true");
        (cross_entropy && logits)
            || ["kl divergence", "ctc", "rnnt"]
                .iter()
                .any(|name| what.starts_with(name))
    };
    assert_none(&differing(of_logits, |x| x));
}

/// Validation: without autodiff, the same numbers.
#[test]
fn every_loss_of_an_inference_is_float32s() {
    let device = MxDevice::new(FlexDevice, "mxfp8_e4m3").expect("it is a preset");
    let mut wrong = Vec::new();
    let mx = Cases::<MxBackend<Flex>>::all().0;
    for ((what, mx), (_, plain)) in mx.iter().zip(&Cases::<Flex>::all().0) {
        let expected = values(plain(noise_tensor(SHAPE, 1, &FlexDevice)));
        // An activation: what a parameter selects of data.
        let parameter = noise_tensor::<MxBackend<Flex>, 2>(SHAPE, 1, &device).require_grad();
        let mask = parameter.greater_elem(f32::INFINITY);
        let output = noise_tensor(SHAPE, 1, &device).mask_fill(mask, 0.0);
        let got = values(mx(full_precision(output)));
        if got[0].to_bits() != expected[0].to_bits() {
            wrong.push(format!("{what}: got {got:?}, expected {expected:?}"));
        }
    }
    assert_none(&wrong);
}

/// Two tokens of equal logits: each loss is ln 2, and so is their weighted mean, (0.1 + 0.7) ln 2 / 0.8.
#[test]
fn a_weighted_cross_entropy_divides_by_the_weights_of_its_targets() {
    let device = MxDevice::new(FlexDevice, "mxfp8_e4m3").expect("it is a preset");
    let config = CrossEntropyLossConfig::new().with_weights(Some(vec![0.1, 0.7]));
    let logits = Tensor::<Mx, 2>::zeros([2, 2], &device).require_grad();
    let targets = Tensor::from_data([0, 1], &device);
    let loss = config.init(&device).forward(logits.clone(), targets);
    let got = values(loss.clone())[0];
    assert!((got - std::f32::consts::LN_2).abs() < 1e-7, "{got}");
    // By hand: weight / 0.8 · (p − 1 of the target, p of the other).
    let gradient = values(logits.grad(&loss.backward()).expect("a leaf"));
    for (got, expected) in gradient.iter().zip([-0.0625, 0.0625, 0.4375, -0.4375]) {
        assert!((got - expected).abs() < 1e-7, "{gradient:?}");
    }
}
