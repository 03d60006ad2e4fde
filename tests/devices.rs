//! The kernels for graphics processors against the slices' of `microscaling`, bit for bit, on whatever device Vulkan finds:
//! with Mesa's `mesa-vulkan-drivers` that is the processor itself.

use burn::backend::wgpu::{CubeBackend, WgpuDevice, WgpuRuntime};
use burn::module::Param;
use burn::nn::{LayerNormConfig, RmsNormConfig};
use burn::tensor::Tensor;
use burn_backend::ops::FloatTensorOps;
use burn_backend::{Backend, TensorData, read_sync};
use burn_flex::{Flex, FlexDevice};
use burn_mx::microscaling::{BlockFormat, FloatFormat, RandomHadamard, RandomStream, Rounding};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs};

type B = CubeBackend<WgpuRuntime, f32, i32, u32>;
type T = <B as burn_backend::BackendTypes>::FloatTensorPrimitive;

fn tensor(values: &[f32], shape: &[usize]) -> T {
    B::float_from_data(
        TensorData::new(values.to_vec(), shape.to_vec()),
        &WgpuDevice::default(),
    )
}

fn values(tensor: T) -> Vec<f32> {
    read_sync(B::float_into_data(tensor))
        .unwrap()
        .into_vec()
        .unwrap()
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[track_caller]
fn assert_same(got: &[f32], expected: &[f32], input: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len());
    let wrong: Vec<_> = (0..got.len())
        .filter(|&i| !same(got[i], expected[i]))
        .collect();
    if let Some(&i) = wrong.first() {
        panic!(
            "{what}: {} of {} differ, the first at {i}: {:e} ({:08x}) became {:e} ({:08x}), not {:e} ({:08x})",
            wrong.len(),
            got.len(),
            input[i],
            input[i].to_bits(),
            got[i],
            got[i].to_bits(),
            expected[i],
            expected[i].to_bits()
        );
    }
}

/// Numbers of all sizes, with runs of one size.
fn noise(length: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 7);
    (0..length as u64)
        .map(|i| {
            let word = stream.draw(i);
            let size = stream.draw(1 << 40 | i / 40);
            match size % 8 {
                0 => f32::from_bits(word),
                1 => f32::from_bits(word & 0x80ff_ffff),
                2 => f32::from_bits(word & 0x8000_ffff),
                3 => f32::from_bits(word & 0x9fff_f000 | 0x7000_0000),
                _ => (word as i32 as f32) * 2f32.powi(-31 - (size >> 8) as i32 % 6),
            }
        })
        .collect()
}

fn formats() -> Vec<BlockFormat> {
    let texts = [
        "mxfp8_e4m3",
        "mxfp8_e5m2",
        "mxfp6_e3m2",
        "mxfp6_e2m3",
        "mxfp4",
        "mxint8",
        "mx4",
        "mx6",
        "mx9",
        "bfp16",
        "nvfp4",
    ];
    texts
        .iter()
        .map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}")))
        .collect()
}

#[test]
fn quantization() {
    for format in formats() {
        for rounding in Rounding::ALL {
            for (shape, axis) in [(vec![5, 70], 1), (vec![70, 5], 0), (vec![3, 33, 9], 1)] {
                let x = noise(shape.iter().product(), 1);
                let stream = RandomStream::new(3, 4);
                let mut expected = x.clone();
                format
                    .quantize(&mut expected, &shape, axis, rounding.with(stream))
                    .unwrap();
                let got = B::mx_quantize(tensor(&x, &shape), axis, format, rounding, stream);
                assert_same(
                    &values(got),
                    &expected,
                    &x,
                    &format!("{format} {rounding} {shape:?} {axis}"),
                );
            }
        }
    }
}

#[test]
fn elementwise_rounding() {
    let x = noise(1 << 14, 2);
    for format in [
        FloatFormat::bfloat(16),
        FloatFormat::bfloat(10),
        FloatFormat::fp(16),
        FloatFormat::fp(7),
        FloatFormat::bfloat(32),
    ] {
        let format = format.unwrap();
        for format in [format, format.with_subnormals(false)] {
            for rounding in Rounding::ALL {
                let stream = RandomStream::new(5, 6);
                let mut expected = x.clone();
                format.round_slice(&mut expected, rounding.with(stream));
                let got = B::float_round_to(tensor(&x, &[x.len()]), format, rounding, stream);
                assert_same(&values(got), &expected, &x, &format!("{format} {rounding}"));
            }
        }
    }
}

#[test]
fn hadamard() {
    for block_size in RandomHadamard::BLOCK_SIZES {
        let transform = RandomHadamard { block_size };
        for (shape, axis) in [
            (vec![5, 128], 1),
            (vec![3, 131], 1),
            (vec![100, 5], 0),
            (vec![2, 33, 9], 1),
        ] {
            let x = noise(shape.iter().product(), 3);
            let stream = RandomStream::new(3, 4);
            let mut expected = x.clone();
            transform
                .transform(&mut expected, &shape, axis, stream)
                .unwrap();
            let got = B::random_hadamard(tensor(&x, &shape), axis, transform, stream);
            assert_same(
                &values(got),
                &expected,
                &x,
                &format!("{block_size} {shape:?} {axis}"),
            );
        }
    }
}

#[test]
fn name() {
    println!("{}", B::name(&WgpuDevice::default()));
}

/// What `MxAutodiff<B>` makes of a composition of everything that has a kernel of its own: outputs and gradients.
fn functions<B: MxKernels>(device: B::Device, specs: &MxSpecs) -> Vec<(&'static str, Vec<f32>)> {
    type A<B> = MxAutodiff<B>;
    let device = MxDevice::new(device, &specs.clone().resolve().unwrap());
    let shape = [6, 37];
    let make = |seed, scale: f32| {
        let values: Vec<f32> = noise(6 * 37, seed)
            .iter()
            .map(|x| if x.abs() < 10.0 { x * scale } else { scale })
            .collect();
        Tensor::<A<B>, 2>::from_data(TensorData::new(values, shape), &device)
    };
    let mut results = Vec::new();
    let mut check = |name, f: &dyn Fn(Tensor<A<B>, 2>) -> Tensor<A<B>, 2>| {
        let x = make(11, 4.0).require_grad();
        let y = f(x.clone());
        let grads = (y.clone() * make(12, 1.0)).sum().backward();
        let data = |t: TensorData| t.into_vec::<f32>().unwrap();
        let mut both = data(y.into_data());
        both.extend(data(x.grad(&grads).unwrap().into_data()));
        results.push((name, both));
    };
    check("exp", &|x| x.exp());
    check("sigmoid", &burn::tensor::activation::sigmoid);
    check("gelu", &burn::tensor::activation::gelu);
    check("silu", &burn::tensor::activation::silu);
    check("softmax", &|x| burn::tensor::activation::softmax(x, 1));
    check("softmax over rows", &|x| {
        burn::tensor::activation::softmax(x, 0)
    });
    check("sqrt", &|x| (x.clone() * x).sqrt());
    check("recip", &|x| x.recip());
    check("scalars", &|x| (x * 0.7 + 0.3) / 1.1 - 2.0);
    let other = make(13, 3.0);
    check("binary", &|x| {
        (x.clone() + other.clone()) * x.clone() / (x - other.clone())
    });
    let row = make(14, 2.0).slice([0..1]);
    check("broadcast", &|x| x * row.clone() + row.clone());
    let vector = |seed| Param::from_tensor(make(seed, 2.0).slice([0..1]).reshape([37]));
    let mut layer = LayerNormConfig::new(37).init::<A<B>>(&device);
    (layer.gamma, layer.beta) = (vector(15), Some(vector(16)));
    check("layer norm", &|x| layer.forward(x));
    let mut rms = RmsNormConfig::new(37).init::<A<B>>(&device);
    rms.gamma = vector(17);
    check("rms norm", &|x| rms.forward(x));
    results
}

fn functions_agree<B: MxKernels>(device: B::Device) {
    let base = MxSpecs {
        bfloat: 16,
        ..MxSpecs::default()
    };
    let cases = [
        base.clone(),
        MxSpecs {
            round: Rounding::Even,
            ..base.clone()
        },
        MxSpecs {
            round: Rounding::Floor,
            ..base.clone()
        },
        MxSpecs {
            bfloat: 0,
            fp: 12,
            ..base.clone()
        },
        MxSpecs {
            quantize_backprop: false,
            ..base.clone()
        },
        MxSpecs {
            vec_use_exp2: true,
            vec_use_recip: true,
            softmax_exp2: true,
            ..base.clone()
        },
        MxSpecs {
            round: Rounding::Stochastic,
            seed: 51,
            ..base
        },
    ];
    for specs in cases {
        let expected = functions::<Flex>(FlexDevice, &specs);
        let got = functions::<B>(device.clone(), &specs);
        for ((name, expected), (_, got)) in expected.iter().zip(&got) {
            let wrong = expected
                .iter()
                .zip(got)
                .filter(|(a, b)| !same(**a, **b))
                .count();
            println!("{name} {}: {wrong} of {} differ", specs.round, got.len());
        }
    }
}

#[test]
fn functions_without_fusion() {
    functions_agree::<B>(WgpuDevice::default());
}

#[test]
fn functions_with_fusion() {
    functions_agree::<burn::backend::Wgpu>(WgpuDevice::default());
}
