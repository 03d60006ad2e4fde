//! The tensors with elementwise emulation: activations, in both passes; a reduction of an activation to one element is float32.
//!
//! The independent sources are Burn alone and `half`.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::prelude::*;
use burn::tensor::activation;
use burn_mx::{ElementwiseScope, MxSpecs, module};
use half::bf16;

use super::data_and_parameters::preset;
use crate::support::*;

/// Rounded to bfloat16, ties to even.
fn rounded(values: &[f32]) -> Vec<f32> {
    let round = |x: &f32| bf16::from_f32(*x).to_f32();
    values.iter().map(round).collect()
}

fn plain(values: &[f32], shape: [usize; 2]) -> Tensor<Flex, 2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &FlexDevice)
}

/// One op on `[4, 8]` tensors.
type Op<B> = fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>;

/// Ops that compute one number of each of theirs, or one sum: round, compute, round.
fn ops<B: Backend>() -> Vec<(&'static str, Op<B>)> {
    vec![
        ("add", |x, y| x + y),
        ("add to", |x, y| y + x),
        ("sub", |x, y| x - y),
        ("mul", |x, y| x * y),
        ("div", |x, y| x / y),
        ("div of it", |x, y| y / x),
        ("atan2", |x, y| x.atan2(y)),
        ("powf", |x, y| y.abs().powf(x)),
        ("remainder", |x, y| x.remainder(y)),
        ("add scalar", |x, _| x + 0.1),
        ("mul scalar", |x, _| x * 1.1),
        ("div scalar", |x, _| x / 3.0),
        ("exp", |x, _| x.exp()),
        ("log", |x, _| x.abs().log()),
        ("log1p", |x, _| x.abs().log1p()),
        ("sqrt", |x, _| x.abs().sqrt()),
        ("recip", |x, _| x.recip()),
        ("sin", |x, _| x.sin()),
        ("tanh", |x, _| x.tanh()),
        ("erf", |x, _| x.erf()),
        ("sum_dim", |x, _| x.sum_dim(1)),
        ("prod_dim", |x, _| x.prod_dim(1)),
        ("cumsum", |x, _| x.cumsum(1)),
        ("scatter", |x, y| {
            let indices = Tensor::<B, 2, Int>::from_data([[1], [5], [0], [1]], &x.device());
            x.scatter(
                1,
                indices,
                y.narrow(1, 2, 1),
                burn::tensor::IndexingUpdateOp::Add,
            )
        }),
    ]
}

/// `[4, 8]`, of data and of a parameter.
fn hidden<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let w = noise_tensor::<B, 2>([16, 8], 2, device).require_grad();
    noise_tensor::<B, 2>([4, 16], 1, device).matmul(w)
}

fn assert_rounds<B: Backend>(device: &B::Device) {
    let hidden = hidden::<B>(device);
    let numbers = values(hidden.clone());
    assert_same_bits(&rounded(&numbers), &numbers, "a product's result");
    let other = noise(32, 3);
    let others: [(&str, Tensor<B, 2>); 3] = [
        ("data", noise_tensor([4, 8], 3, device)),
        ("parameter", noise_tensor([4, 8], 3, device).require_grad()),
        ("activation", hidden.clone()),
    ];
    for (kind, tensor) in others {
        let values_of = match kind {
            "activation" => &numbers,
            _ => &other,
        };
        let operands = || [plain(&numbers, [4, 8]), plain(&rounded(values_of), [4, 8])];
        for ((what, op), (_, expected)) in ops::<B>().into_iter().zip(ops::<Flex>()) {
            let [x, y] = operands();
            let expected = rounded(&values(expected(x, y)));
            let got = values(op(hidden.clone(), tensor.clone()));
            assert_same_bits(&got, &expected, &format!("{what}, {kind}"));
        }
    }
}

#[test]
fn ops_on_activations_are_rounded() {
    assert_rounds::<Mx>(&preset("mxfp8_e4m3"));
    assert_rounds::<Mx>(&preset("mxfp4"));
    assert_rounds::<burn_mx::MxBackend<Flex>>(&preset("mxfp8_e4m3"));
}

/// Functions that the reference has formulas for.
#[test]
fn functions_of_activations_are_rounded() {
    let device = preset("mxfp8_e4m3");
    let hidden = hidden::<Mx>(&device);
    type Function = fn(Tensor<Mx, 2>) -> Tensor<Mx, 2>;
    let functions: [(&str, Function); 6] = [
        ("softmax", |x| activation::softmax(x, 1)),
        ("gelu", activation::gelu),
        ("sigmoid", activation::sigmoid),
        ("silu", activation::silu),
        ("mean_dim", |x| x.mean_dim(0)),
        ("variance", |x| x.var(0)),
    ];
    for (what, function) in functions {
        let got = values(function(hidden.clone()));
        assert!(got.iter().all(|x| is_bfloat16(*x)), "{what}: {got:?}");
    }
}

/// The gradient of a product of numbers: r(r(g) · r(b)) for an activation, for any other factor.
#[test]
fn gradients_of_activations_are_rounded() {
    let device = preset("mxfp8_e4m3");
    let (a, b, g) = (noise(32, 1), noise(32, 2), noise(32, 3));
    let product = |x: &[f32], y: &[f32]| {
        let pairs = rounded(x).into_iter().zip(rounded(y));
        rounded(&pairs.map(|(x, y)| x * y).collect::<Vec<_>>())
    };
    let leaf = || noise_tensor::<Mx, 2>([4, 8], 1, &device).require_grad();
    let other = || noise_tensor::<Mx, 2>([4, 8], 2, &device);
    let gradient = || noise_tensor::<Mx, 2>([4, 8], 3, &device);
    let gradient_of = |leaf: &Tensor<Mx, 2>, out: Tensor<Mx, 2>| {
        let grads = Mx::loss_with_gradient(out, gradient()).backward();
        values(leaf.grad(&grads).expect("a leaf"))
    };
    let x = leaf();
    let got = gradient_of(&x, as_hidden(x.clone()) * other());
    assert_same_bits(&got, &product(&g, &b), "beside data");
    let parameter = other().require_grad();
    let got = gradient_of(&x, as_hidden(x.clone()) * parameter.clone());
    assert_same_bits(&got, &product(&g, &b), "beside a parameter");
    let got = gradient_of(&parameter, as_hidden(x) * parameter.clone());
    assert_same_bits(&got, &product(&g, &a), "of the parameter");
    let relu = leaf();
    let got = gradient_of(&relu, activation::relu(as_hidden(relu.clone())));
    let expected: Vec<f32> = a
        .iter()
        .zip(&g)
        .map(|(a, g)| if *a > 0.0 { *g } else { 0.0 })
        .collect();
    assert_same_bits(&got, &rounded(&expected), "relu");
}

/// The formula and its gradient, step by step, and the exact function. The numbers reach from an infinite exp(−x) to an infinite exp(x).
#[test]
fn mish_is_its_formula() {
    let device = preset("mxfp8_e4m3");
    let x: Vec<f32> = (-320..320).map(|i| i as f32 / 16.0).collect();
    let x = [rounded(&x), vec![-200.0, -0.0, 90.0, 200.0]].concat();
    let g = noise(x.len(), 3);
    let r = |x: f64| f64::from(bf16::from_f32(x as f32).to_f32());
    let steps = |(x, g): (&f32, &f32)| {
        let [x, g] = [x, g].map(|x| f64::from(*x));
        let inverse = r((-x).exp());
        let damped = r(r(r(x.exp()) * 0.5) + 1.0);
        let gate = r(1.0 / r(r(inverse / damped) + 1.0));
        let sigmoid = r(1.0 / r(inverse + 1.0));
        let slope = r(r(1.0 - r(gate * gate)) * sigmoid);
        [r(x * gate), r(r(gate + r(x * slope)) * r(g))].map(|x| x as f32)
    };
    let (expected, gradient): (Vec<f32>, Vec<f32>) =
        x.iter().zip(&g).map(steps).map(|[y, dx]| (y, dx)).unzip();

    let tensor = |data: &[f32]| Tensor::<Mx, 1>::from_data(data, &device);
    let leaf = tensor(&x).require_grad();
    let y = module::mish(as_hidden(leaf.clone()));
    let grads = Mx::loss_with_gradient(y.clone(), tensor(&g)).backward();
    assert_same_bits(&values(y.clone()), &expected, "mish");
    let got = values(leaf.grad(&grads).expect("a leaf"));
    assert_same_bits(&got, &gradient, "the gradient of mish");

    for (x, y) in x.iter().zip(values(y)) {
        let exact = f64::from(*x) * f64::from(*x).exp().ln_1p().tanh();
        let error = (f64::from(y) - exact).abs();
        assert!(
            error <= exact.abs() / 64.0 + f64::from(f32::MIN_POSITIVE),
            "mish of {x}: {y}, and exactly {exact}"
        );
    }
    // Burn's composition loses exp(−8) beside 1.
    assert_eq!(
        values(activation::mish(as_hidden(tensor(&[-8.0]).require_grad()))),
        [0.0]
    );
}

/// Without emulation the function is Burn's, with its gradient.
#[test]
fn mish_on_a_plain_backend_is_burns() {
    let leaf = || noise_tensor::<Plain, 2>([4, 8], 1, &FlexDevice).require_grad();
    let [got, expected] = [module::mish, activation::mish].map(|mish| {
        let leaf = leaf();
        let y = mish(leaf.clone());
        let grads = y.clone().sum().backward();
        [values(y), values(leaf.grad(&grads).expect("a leaf"))]
    });
    assert_all_same_bits(&got, &expected, "mish");
}

/// Values of a reduction to one element, and the gradients of its operand.
fn reduced<B: Exact>(op: fn(Tensor<B, 2>) -> Tensor<B, 1>, device: &B::Device) -> [Vec<f32>; 2] {
    let leaf = noise_tensor::<B, 2>([3, 7], 1, device).require_grad();
    let out = op(as_hidden(leaf.clone()));
    let grads = out.backward();
    [values(out), values(leaf.grad(&grads).expect("a leaf"))]
}

#[test]
fn a_reduction_to_one_element_is_float32() {
    type Reduction<B> = fn(Tensor<B, 2>) -> Tensor<B, 1>;
    fn reductions<B: Backend>() -> [(&'static str, Reduction<B>); 5] {
        [
            ("sum", |x| x.sum()),
            ("mean", |x| x.mean()),
            ("max", |x| x.max()),
            ("min", |x| x.min()),
            ("prod", |x| x.prod()),
        ]
    }
    let device = preset("mxfp8_e4m3");
    for ((what, mx), (_, plain)) in reductions::<Mx>().into_iter().zip(reductions::<Plain>()) {
        let expected = reduced::<Plain>(plain, &FlexDevice);
        assert_all_same_bits(&reduced::<Mx>(mx, &device), &expected, what);
    }
}

/// In scope `all`, as the reference has it, ops on data and on parameters are emulated, too.
#[test]
fn in_the_scope_of_the_reference_all_is_emulated() {
    let device = mx_device(&MxSpecs {
        elementwise_scope: ElementwiseScope::All,
        ..MxSpecs::mxfp8_e4m3()
    });
    let pixel = Tensor::<Mx, 1, Int>::from_data([35_682], &device).float();
    assert_eq!(values(pixel * 1.0), [35_584.0]);
    let hits = Tensor::<Mx, 1>::from_data([1.0, 1.0, 0.0], &device);
    assert_eq!(values(hits.mean()), rounded(&[2.0 / 3.0]));
    // 1.0 + 0.005 and 1.005 + 0.005 are bfloat16s or near, further sums round back.
    let leaf = |value: f32| Tensor::<Mx, 1>::from_data([value], &device).require_grad();
    let (mut target, online) = (leaf(1.0), leaf(2.0));
    for _ in 0..400 {
        target = (target * 0.995 + online.clone() * 0.005).detach();
    }
    assert_eq!(values(target), [1.007_812_5]);
    let masters = noise_tensor::<Mx, 1>([32], 1, &device).require_grad() * 0.9;
    let expected: Vec<f32> = rounded(&noise(32, 1)).iter().map(|x| x * 0.9).collect();
    assert_same_bits(&values(masters), &rounded(&expected), "a scaled parameter");
    let x = noise_tensor::<Mx, 1>([32], 1, &device).require_grad();
    let grads = (x.clone() * 0.9).sum().backward();
    let gradient = values(x.grad(&grads).expect("a leaf"));
    assert_same_bits(&gradient, &rounded(&[0.9; 32]), "its gradient");
}

#[test]
fn presets_emulate_activations_and_the_reference_all() {
    use ElementwiseScope::{Activations, All};
    assert_eq!(MxSpecs::default().elementwise_scope, All);
    assert_eq!(MxSpecs::mx().elementwise_scope, All);
    let read = |json: &str| {
        MxSpecs::from_json(json)
            .expect("it is sound")
            .elementwise_scope
    };
    assert_eq!(
        read(r#"{ "w_elem_format": "fp8_e4m3", "bfloat": 16 }"#),
        All
    );
    assert_eq!(read(r#"{ "bfloat": 16, "elementwise_scope": "all" }"#), All);
    assert_eq!(
        read(r#"{ "bfloat": 16, "elementwise_scope": "activations" }"#),
        Activations
    );
    for name in [
        "mxfp8_e4m3",
        "mxfp4",
        "mxint8",
        "mx6",
        "nvfp4",
        "mxfp4_sr_rht",
    ] {
        let specs = MxSpecs::preset(name).expect("it is one");
        assert_eq!(specs.elementwise_scope, Activations, "{name}");
    }
}
