//! Every function with a kernel, in models' terms: outputs and gradients have Flex's bits.

use burn::backend::Flex;
use burn::module::Param;
use burn::nn::{LayerNormConfig, RmsNormConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData, activation};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs};
use burn_mx::{Rounding, module};

use super::support::*;
use crate::backend::TestBackend;

/// Outputs and gradients of each function, by name.
fn results<B: MxKernels>(specs: &MxSpecs) -> Vec<(&'static str, Vec<f32>)> {
    type Mx<B> = MxAutodiff<B>;
    let specs = specs.resolve().expect("the specs are sound");
    let device = MxDevice::new(B::Device::default(), &specs).expect("resolved specs");
    Mx::<B>::seed(&device, 1);
    let ordinary = |seed, scale: f32| {
        let numbers = noise(6 * 37, seed).into_iter();
        let values: Vec<f32> = numbers
            .map(|x| if x.abs() < 10.0 { x * scale } else { scale })
            .collect();
        Tensor::<Mx<B>, 2>::from_data(TensorData::new(values, [6, 37]), &device)
    };
    let row = |seed| ordinary(seed, 2.0).narrow(0, 0, 1);
    let parameter = |seed| Param::from_tensor(row(seed).reshape([37]));

    let mut results = Vec::new();
    let mut check = |name, function: &dyn Fn(Tensor<Mx<B>, 2>) -> Tensor<Mx<B>, 2>| {
        let x = ordinary(11, 4.0).require_grad();
        let y = function(x.clone());
        let grads = (y.clone() * ordinary(12, 1.0)).sum().backward();
        let grad = x.grad(&grads).expect("x is a leaf");
        let both = [y.into_data(), grad.into_data()];
        let both = both.map(|data| data.into_vec::<f32>().expect("the tensor holds f32"));
        results.push((name, both.concat()));
    };
    check("exp", &|x| x.exp());
    check("sigmoid", &activation::sigmoid);
    check("gelu", &activation::gelu);
    check("silu", &activation::silu);
    check("mish", &module::mish);
    check("softmax", &|x| activation::softmax(x, 1));
    check("softmax along the first axis", &|x| {
        activation::softmax(x, 0)
    });
    check("sqrt", &|x| (x.clone() * x).sqrt());
    check("recip", &|x| x.recip());
    check("scalars", &|x| (x * 0.7 + 0.3) / 1.1 - 2.0);
    let other = ordinary(13, 3.0);
    check("two tensors", &|x| {
        (x.clone() + other.clone()) * x.clone() / (x - other.clone())
    });
    check("broadcast", &|x| x * row(14) + row(15));
    check("sum of a broadcast", &|x| {
        row(14) - x.clone() * x.narrow(0, 0, 1)
    });
    let mut layer = LayerNormConfig::new(37).init::<Mx<B>>(&device);
    (layer.gamma, layer.beta) = (parameter(16), Some(parameter(17)));
    check("layer norm", &|x| layer.forward(x));
    let mut rms = RmsNormConfig::new(37).init::<Mx<B>>(&device);
    rms.gamma = parameter(18);
    check("rms norm", &|x| rms.forward(x));
    results
}

#[track_caller]
fn assert_same_results<B: MxKernels>(specs: MxSpecs) {
    let mut wrong = Vec::new();
    for ((name, expected), (_, got)) in results::<Flex>(&specs).iter().zip(results::<B>(&specs)) {
        wrong.extend(differences(&got, expected).map(|text| format!("{name}: {text}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const BFLOAT16: fn() -> MxSpecs = || MxSpecs {
    bfloat: 16,
    ..MxSpecs::none()
};

#[test]
fn in_bfloat16() {
    for round in [
        Rounding::NearestAway,
        Rounding::NearestEven,
        Rounding::TowardZero,
    ] {
        let specs = BFLOAT16();
        assert_same_results::<TestBackend>(MxSpecs { round, ..specs });
    }
}

#[test]
fn in_other_formats() {
    let fp = MxSpecs {
        fp: 12,
        ..MxSpecs::none()
    };
    assert_same_results::<TestBackend>(fp);
    let flushed = MxSpecs {
        bfloat: 13,
        bfloat_subnorms: false,
        ..MxSpecs::none()
    };
    assert_same_results::<TestBackend>(flushed);
}

#[test]
fn by_powers_of_two_and_reciprocals() {
    assert_same_results::<TestBackend>(MxSpecs {
        vec_use_exp2: true,
        vec_use_recip: true,
        softmax_exp2: true,
        ..BFLOAT16()
    });
}

/// Without burn-fusion around it, too.
#[cfg(any(
    test_backend = "vulkan",
    test_backend = "metal",
    test_backend = "webgpu",
    test_backend = "wgpu"
))]
#[test]
fn without_fusion() {
    use crate::backend::Unfused;
    assert_same_results::<Unfused>(BFLOAT16());
}
