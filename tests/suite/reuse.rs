//! A parameter that is used several times gets the `f32` sum of what each use gives it, an activation the emulated one.
//!
//! The gradient of one use is the gradient of a separate leaf with the same values.

use burn::nn::{EmbeddingConfig, Lstm, LstmConfig, LstmState};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor, activation, module, ops::ConvOptions};
use burn_mx::MxSpecs;
use burn_mx::Rounding;
use burn_mx::module::{as_activation, as_weight, full_precision, rms_norm};
use half::bf16;

use crate::support::*;

type Device = burn_mx::MxDevice<TestDevice>;

fn device() -> Device {
    mx_device(&MxSpecs {
        round: Rounding::NearestEven,
        ..everywhere(MxSpecs::mxfp8_e4m3())
    })
}

/// The sum, added up from the last term on, as a backward pass comes by the uses.
fn sum(terms: &[Vec<f32>]) -> Vec<f32> {
    let mut terms = terms.iter().rev();
    let last = terms.next().expect("there is a term").clone();
    terms.fold(last, |sum, term| {
        assert_eq!(sum.len(), term.len());
        sum.iter().zip(term).map(|(a, b)| a + b).collect()
    })
}

/// That `tied` is the plain sum, and that no emulated addition gives that.
#[track_caller]
fn assert_plain_sum(tied: &[f32], uses: &[Vec<f32>], what: &str) {
    assert_same_bits(tied, &sum(uses), what);
    assert!(
        uses.iter().flatten().all(|x| is_bfloat16(*x)),
        "{what}: what each use gives is rounded"
    );
    let sums = tied.iter().filter(|x| !is_bfloat16(**x)).count();
    assert!(sums > 0, "{what}: nothing here shows a rounded sum");
}

type Use<const D: usize> = fn(Tensor<Mx, D>) -> Tensor<Mx, 2>;

/// The gradient of one leaf for both uses, and the gradients of a separate leaf for each use. `role` is put on the
/// leaf.
fn gradients_of<const D: usize>(
    shape: [usize; D],
    uses: [Use<D>; 2],
    role: fn(Tensor<Mx, D>) -> Tensor<Mx, D>,
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let device = device();
    let leaf = || noise_tensor::<Mx, D>(shape, 1, &device).require_grad();
    let loss = |tensor: Tensor<Mx, 2>, seed| {
        let gradient = noise_tensor(tensor.dims(), seed, &device);
        Mx::loss_with_gradient(tensor, gradient)
    };
    let tied = leaf();
    let [first, second] = uses;
    let used = role(tied.clone());
    let grads = (loss(first(used.clone()), 2) + loss(second(used), 3)).backward();
    let apart = [(first, 2), (second, 3)].map(|(one, seed)| {
        let leaf = leaf();
        let grads = loss(one(role(leaf.clone())), seed).backward();
        values(leaf.grad(&grads).expect("it is a leaf"))
    });
    let tied = values(tied.grad(&grads).expect("it is a leaf"));
    (tied, apart.to_vec())
}

fn x<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<Mx, D> {
    noise_tensor(shape, seed, &device())
}

fn left(w: Tensor<Mx, 2>) -> Tensor<Mx, 2> {
    x([7, 34], 11).matmul(w)
}

fn right(w: Tensor<Mx, 2>) -> Tensor<Mx, 2> {
    w.matmul(x([40, 7], 12))
}

/// Our own backward ops and burn-autodiff's, views among them.
#[test]
fn whatever_uses_a_parameter_adds_to_a_plain_sum() {
    let uses: [(&str, [Use<2>; 2]); 13] = [
        ("matrix products", [left, right]),
        (
            "linear layers",
            [
                |w| module::linear(x([7, 34], 11), w, None),
                |w| module::linear(x([5, 34], 12), w, None),
            ],
        ),
        (
            "a view and itself",
            [left, |w| x([7, 40], 12).matmul(w.transpose())],
        ),
        (
            "slices",
            [
                |w| w.clone().narrow(0, 0, 20).matmul(x([40, 7], 11)),
                |w| w.narrow(0, 9, 21).matmul(x([40, 7], 12)),
            ],
        ),
        (
            "the input of layers",
            [
                |w| module::linear(w, x([40, 3], 11), None),
                |w| module::linear(w, x([40, 3], 12), None),
            ],
        ),
        (
            "products",
            [|w| w * x([34, 40], 11), |w| x([34, 40], 12) * w],
        ),
        (
            "a product and a sum",
            [|w| w * x([34, 40], 11), |w| w + x([34, 40], 12)],
        ),
        ("squares", [|w| w.square(), |w| w.powf_scalar(2.0)]),
        ("functions", [activation::sigmoid, activation::gelu]),
        (
            "softmax",
            [|w| activation::softmax(w, 1), |w| activation::softmax(w, 0)],
        ),
        ("burn-autodiff's own", [|w| w.sin(), |w| w * 0.3]),
        (
            "data movement",
            [
                |w| w.select(0, Tensor::from_ints([3, 1, 3], &device())),
                |w| Tensor::cat(vec![w, x([2, 40], 12)], 0) * x([36, 40], 13),
            ],
        ),
        (
            "full precision",
            [|w| full_precision(w) * 0.3, |w| w * x([34, 40], 12)],
        ),
    ];
    for (what, uses) in uses {
        let (tied, apart) = gradients_of([34, 40], uses, |w| w);
        if what == "full precision" {
            assert_same_bits(&tied, &sum(&apart), what);
        } else {
            assert_plain_sum(&tied, &apart, what);
        }
    }
}

#[test]
fn convolutions_and_norms_add_to_plain_sums() {
    let convolution: [Use<4>; 2] = [11, 12].map(|_| -> Use<4> {
        |w| {
            let options = ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
            let out = module::conv2d(x([2, 3, 6, 6], 11), w, None, options);
            out.flatten::<2>(1, 3)
        }
    });
    let (tied, apart) = gradients_of([5, 3, 3, 3], convolution, |w| w);
    assert_plain_sum(&tied, &apart, "weight of a convolution");

    let norms: [Use<1>; 2] = [
        |gamma| rms_norm(x([6, 40], 11), gamma, None, 1e-5),
        |beta| rms_norm(x([6, 40], 12), x([40], 13), Some(beta), 1e-5),
    ];
    let (tied, apart) = gradients_of([40], norms, |w| w);
    assert_plain_sum(&tied, &apart, "parameters of norms");

    let biases: [Use<1>; 2] = [
        |b| module::linear(x([6, 34], 11), x([34, 40], 14), Some(b)),
        |b| x([6, 40], 12) + b.unsqueeze(),
    ];
    let (tied, apart) = gradients_of([40], biases, |w| w);
    assert_plain_sum(&tied, &apart, "biases");
}

/// As PyTorch's engine sums at any tensor that is used several times.
#[test]
fn a_view_of_a_parameter_adds_up_without_rounding() {
    let uses: [Use<2>; 2] = [left, right];
    let (tied, apart) = gradients_of([40, 34], uses, |w| w.transpose());
    assert_plain_sum(&tied, &apart, "a view that is used twice");
    let (tied, apart) = gradients_of([34, 40], uses, |w| as_weight(as_activation(w)));
    assert_plain_sum(&tied, &apart, "a weight by hand");
}

#[test]
fn an_activation_adds_up_rounded() {
    let uses: [Use<2>; 2] = [left, right];
    let roles: [(&str, Use<2>); 2] = [
        ("an input", as_activation),
        ("a computed tensor", |w| as_activation(w) * 1.0),
    ];
    for (what, role) in roles {
        let (tied, apart) = gradients_of([34, 40], uses, role);
        let rounded: Vec<f32> = sum(&apart)
            .into_iter()
            .map(|x| bf16::from_f32(x).to_f32())
            .collect();
        assert_same_bits(&tied, &rounded, what);
    }
}

const STEPS: usize = 6;

fn lstm() -> Lstm<Mx> {
    with_noise_weights(LstmConfig::new(5, 8, true).init(&device()), 40)
}

/// The gradients of the parameters of the modules, for a fixed gradient of the last state.
fn trained(modules: [&Lstm<Mx>; STEPS]) -> <Mx as AutodiffBackend>::Gradients {
    let device = device();
    let mut state: Option<LstmState<Mx, 2>> = None;
    for (t, module) in modules.into_iter().enumerate() {
        let x = noise_tensor([3, 1, 5], 50 + t as u64, &device);
        state = Some(module.forward(x, state).1);
    }
    let hidden = state.expect("there are steps").hidden;
    let gradient = noise_tensor(hidden.dims(), 60, &device);
    Mx::loss_with_gradient(hidden, gradient).backward()
}

#[test]
fn the_weights_of_an_lstm_get_the_sum_over_its_steps() {
    let module = lstm();
    let tied = named_gradients::<Mx, _>(&module, &trained([&module; STEPS]));

    let modules: [Lstm<Mx>; STEPS] = core::array::from_fn(|_| lstm());
    let grads = trained(core::array::from_fn(|t| &modules[t]));
    let apart = modules.map(|module| named_gradients::<Mx, _>(&module, &grads));

    assert_eq!(tied.len(), 16, "weights and biases of the gates");
    for (at, (path, tied)) in tied.into_iter().enumerate() {
        let uses: Vec<Vec<f32>> = apart.iter().map(|step| step[at].1.clone()).collect();
        assert_plain_sum(&tied, &uses, &path);
    }
}

#[test]
fn a_weight_that_is_tied_gets_the_sum_of_both_uses() {
    let device = device();
    let embedding = || with_noise_weights(EmbeddingConfig::new(11, 36).init::<Mx>(&device), 7);
    let tokens = || Tensor::<Mx, 2, Int>::from_ints([[3, 1, 4, 1], [5, 9, 2, 6]], &device);
    let [tied, input, output] = [embedding(), embedding(), embedding()];
    let loss = |input: &burn::nn::Embedding<Mx>, output: &burn::nn::Embedding<Mx>| {
        let hidden = activation::relu(input.forward(tokens()));
        let logits = hidden.matmul(output.weight.val().transpose().unsqueeze());
        let gradient = noise_tensor(logits.dims(), 8, &device);
        Mx::loss_with_gradient(logits, gradient).backward()
    };
    let gradient = |module: &burn::nn::Embedding<Mx>, grads: &_| {
        values(module.weight.grad(grads).expect("it is a leaf"))
    };
    let of_tied = gradient(&tied, &loss(&tied, &tied));
    let grads = loss(&input, &output);
    let apart = [gradient(&input, &grads), gradient(&output, &grads)];
    assert_plain_sum(&of_tied, &apart, "embedding and output");
}

/// Uses of one parameter that begin graphs of their own, while other threads clean up after their backward passes.
#[test]
fn no_use_is_forgotten_while_other_threads_train() {
    const ROUNDS: usize = if cfg!(test_backend = "flex") { 500 } else { 4 };
    let device = device();
    let gradient = || {
        let x = noise_tensor::<Mx, 3>([6, 4, 8], 1, &device).require_grad();
        let [w, u] = [2, 3].map(|seed| noise_tensor::<Mx, 2>([8, 8], seed, &device).require_grad());
        let hidden = (0..6).fold(None, |hidden: Option<Tensor<Mx, 2>>, t| {
            let input = x.clone().narrow(0, t, 1).reshape([4, 8]);
            let input = input.matmul(w.clone());
            Some(match hidden {
                Some(hidden) => input + hidden.matmul(u.clone()),
                None => input,
            })
        });
        let grads = hidden.expect("there are inputs").sum().backward();
        values(x.grad(&grads).expect("it requires gradients"))
    };
    let expected = gradient();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    assert_same_bits(&gradient(), &expected, "gradient of x");
                }
            });
        }
    });
}
