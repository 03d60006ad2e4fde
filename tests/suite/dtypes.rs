//! Tensors of other float types than `f32`: emulated ops compute in `f32` and round once to the tensor's type.

use burn::backend::{Flex, NdArray};
use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::{
    ConvOptions, ConvTransposeOptions, GridSampleOptions, InterpolateMode, InterpolateOptions,
};
use burn::tensor::{DType, IndexingUpdateOp, TensorData, TensorPrimitive, activation, module};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};
use half::{bf16, f16};

use crate::support::*;

/// [`noise`] that bfloat16 and float16 hold exactly.
fn short_noise(count: usize, seed: u64) -> Vec<f32> {
    let short = |value: f32| f32::from_bits(value.to_bits() & 0xffff_0000);
    noise(count, seed).into_iter().map(short).collect()
}

fn tensor<B: Backend, const D: usize>(
    shape: [usize; D],
    seed: u64,
    dtype: DType,
    device: &B::Device,
) -> Tensor<B, D> {
    let data = TensorData::new(short_noise(shape.iter().product(), seed), shape);
    Tensor::from_data(data, (device, dtype))
}

/// The values; `f64` has every other type's.
fn exact_values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    let data = tensor.into_data();
    match data.dtype {
        DType::F64 => data.iter::<f64>().collect(),
        DType::F32 => data.iter::<f32>().map(f64::from).collect(),
        DType::F16 => data.iter::<f16>().map(f64::from).collect(),
        DType::BF16 => data.iter::<bf16>().map(f64::from).collect(),
        other => panic!("{other:?} is no float type"),
    }
}

/// `half`'s rounding of `f32` values to the type.
fn rounded_to(dtype: DType, values: &[f64]) -> Vec<f64> {
    let round = |value: &f64| {
        let value = *value as f32;
        match dtype {
            DType::F16 => f16::from_f32(value).into(),
            DType::BF16 => bf16::from_f32(value).into(),
            _ => f64::from(value),
        }
    };
    values.iter().map(round).collect()
}

#[track_caller]
fn assert_same(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: number of values");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
        assert!(same, "{what}[{i}]: got {got:e}, expected {expected:e}");
    }
}

/// An op of the backend, which rounds to the tensor's type once; `composed` if its gradient does so more often:
/// it is several ops, or reads the op's result.
struct Op<B: Backend> {
    name: &'static str,
    composed: bool,
    op: fn(Tensor<B, 4>, Tensor<B, 4>) -> Tensor<B, 4>,
}

fn ops<B: Backend>() -> Vec<Op<B>> {
    fn matrix<B: Backend>(tensor: Tensor<B, 4>) -> Tensor<B, 2> {
        let [batch, channels, height, width] = tensor.dims();
        tensor.reshape([batch * channels, height * width])
    }
    macro_rules! table {
        ($($name:ident: $kind:ident |$x:ident, $y:pat_param| $op:expr;)*) => { vec![$(Op {
            name: stringify!($name),
            composed: stringify!($kind) == "composed",
            op: |$x, $y| $op,
        }),*] };
    }
    table! {
        add: single |x, y| x + y;
        sub: single |x, y| x - y;
        mul: single |x, y| x * y;
        div: single |x, y| x / y;
        remainder: composed |x, y| x.remainder(y);
        powf: composed |x, y| x.abs().powf(y);
        mul_scalar: single |x, _| x * 0.123;
        exp: single |x, _| x.exp();
        log: single |x, _| x.abs().log();
        sqrt: single |x, _| x.abs().sqrt();
        tanh: single |x, _| x.tanh();
        sin: composed |x, _| x.sin();
        erf: composed |x, _| x.erf();
        recip: composed |x, _| x.recip();
        sum_dim: single |x, _| x.sum_dim(3);
        mean_dim: single |x, _| x.mean_dim(2);
        prod_dim: single |x, _| x.abs().prod_dim(3);
        cumsum: single |x, _| x.cumsum(1);
        relu: single |x, _| activation::relu(x);
        gelu: single |x, _| activation::gelu(x);
        sigmoid: single |x, _| activation::sigmoid(x);
        leaky_relu: single |x, _| activation::leaky_relu(x, 0.17);
        softmax: composed |x, _| activation::softmax(x, 3);
        matmul: single |x, y| x.matmul(y.swap_dims(2, 3));
        linear: single |x, y| {
            let (x, y) = (matrix(x), matrix(y));
            let bias = y.clone().slice([0..1, 0..6]).reshape([6]).detach();
            module::linear(x, y.transpose(), Some(bias)).unsqueeze()
        };
        layer_norm: single |x, y| {
            let gamma = y.clone().slice([0..1, 0..1, 0..1]).reshape([5]);
            let beta = y.slice([1..2, 1..2, 0..1]).reshape([5]);
            let [gamma, beta] = [gamma, beta].map(|tensor: Tensor<B, 1>| tensor.into_primitive().tensor());
            let x = x.into_primitive().tensor();
            Tensor::from_primitive(TensorPrimitive::Float(B::layer_norm(x, gamma, Some(beta), 1e-5)))
        };
        conv2d: single |x, y| {
            let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
            let bias = y.clone().slice([0..1, 0..1, 0..1, 0..3]).reshape([3]).detach();
            module::conv2d(x, y, Some(bias), options)
        };
        conv_transpose2d: single |x, y| {
            let options = ConvTransposeOptions::new([1, 1], [0, 0], [0, 0], [1, 1], 1);
            module::conv_transpose2d(x, y.slice([0..2, 0..2]), None, options)
        };
        avg_pool2d: single |x, _| module::avg_pool2d(x, [2, 2], [1, 1], [0, 0], true, false);
        max_pool2d: single |x, _| module::max_pool2d(x, [2, 2], [1, 1], [0, 0], [1, 1], false);
        interpolate: single |x, _| {
            module::interpolate(x, [7, 7], InterpolateOptions::new(InterpolateMode::Nearest))
        };
        embedding: single |x, _| {
            let ids = Tensor::from_data([[0, 3, 3], [5, 1, 0]], &x.device());
            module::embedding(matrix(x), ids).unsqueeze()
        };
        scatter: single |x, y| {
            let indices = Tensor::zeros(y.dims(), &x.device());
            x.scatter(3, indices, y, IndexingUpdateOp::Add)
        };
    }
}

fn op_specs() -> Vec<(&'static str, MxSpecs)> {
    let bfloat12 = MxSpecs {
        bfloat: 12,
        ..everywhere(MxSpecs::mxfp6_e3m2())
    };
    let fp16 = MxSpecs {
        bfloat: 0,
        fp: 16,
        vec_use_exp2: true,
        vec_use_recip: true,
        softmax_exp2: true,
        ..everywhere(MxSpecs::mxfp8_e4m3())
    };
    // Wider than f16 and bf16: results are rounded a second time, to the tensor's type.
    let bfloat24 = MxSpecs {
        bfloat: 24,
        ..everywhere(MxSpecs::mxint8())
    };
    let forward_only = MxSpecs {
        bfloat: 24,
        quantize_backprop: false,
        ..everywhere(MxSpecs::mxint8())
    };
    vec![
        ("bfloat12", bfloat12),
        ("fp16", fp16),
        ("bfloat24", bfloat24),
        ("forward only", forward_only),
    ]
}

/// Whether the type holds all values of the specs' elementwise format.
fn holds(dtype: DType, specs: &MxSpecs) -> bool {
    match dtype {
        DType::F16 => specs.fp != 0,
        DType::BF16 => specs.bfloat != 0 && specs.bfloat <= 16,
        _ => true,
    }
}

/// The value of an op and its gradients, given the gradient of its result.
fn pass<B: Exact>(op: &Op<B>, dtype: DType, device: &B::Device) -> [Vec<f64>; 3] {
    let x = tensor::<B, 4>([3, 2, 4, 5], 1, dtype, device).require_grad();
    let y = tensor::<B, 4>([3, 2, 4, 5], 2, dtype, device).require_grad();
    let out = (op.op)(x.clone(), y.clone());
    let grad = tensor::<B, 4>(out.dims(), 3, dtype, device);
    let grads = B::loss_with_gradient(out.clone(), grad).backward();
    let read = |grad: Option<Tensor<B::InnerBackend, 4>>| {
        grad.map_or(vec![], |grad| {
            assert_eq!(grad.dtype(), dtype, "{}: gradient", op.name);
            exact_values(grad)
        })
    };
    assert_eq!(out.dtype(), dtype, "{}", op.name);
    let (x, y) = (read(x.grad(&grads)), read(y.grad(&grads)));
    [exact_values(out), x, y]
}

fn assert_computed_in_f32<B: MxKernels>(dtype: DType) {
    for (name, specs) in op_specs() {
        let resolved = specs.resolve().expect("the specs are sound");
        let device = MxDevice::new(B::Device::default(), &resolved).expect("resolved specs");
        for op in ops::<MxAutodiff<B>>() {
            let got = pass(&op, dtype, &device);
            let expected = pass(&op, DType::F32, &device);
            let what = |part| format!("{} of {dtype:?}, {name}: {part}", op.name);
            assert_same(&got[0], &rounded_to(dtype, &expected[0]), &what("value"));
            // A backward pass that is not emulated is the wrapped backend's, in the tensor's type.
            if specs.quantize_backprop && (!op.composed || holds(dtype, &specs)) {
                assert_same(
                    &got[1],
                    &rounded_to(dtype, &expected[1]),
                    &what("gradient of x"),
                );
                assert_same(
                    &got[2],
                    &rounded_to(dtype, &expected[2]),
                    &what("gradient of y"),
                );
            }
        }
    }
}

#[test]
fn bf16_tensors_are_computed_in_f32_on_flex() {
    assert_computed_in_f32::<Flex>(DType::BF16);
}

#[test]
fn f16_tensors_are_computed_in_f32_on_flex() {
    assert_computed_in_f32::<Flex>(DType::F16);
}

#[test]
fn f64_tensors_are_computed_in_f32_on_flex() {
    assert_computed_in_f32::<Flex>(DType::F64);
}

#[test]
fn f64_tensors_are_computed_in_f32_on_ndarray() {
    assert_computed_in_f32::<NdArray>(DType::F64);
}

/// Inference only: burn-autodiff composes it.
#[test]
fn a_grid_sample_of_bf16_tensors_is_computed_in_f32() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let sample = |dtype| {
        let x = tensor::<MxBackend<Flex>, 4>([3, 2, 4, 5], 1, dtype, &device);
        let grid = tensor([3, 5, 4, 2], 2, dtype, &device);
        exact_values(x.grid_sample_2d(grid, GridSampleOptions::default()))
    };
    let expected = rounded_to(DType::BF16, &sample(DType::F32));
    assert_same(&sample(DType::BF16), &expected, "value");
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    norm: LayerNorm<B>,
    attention: MultiHeadAttention<B>,
    up: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn init(dtype: DType, device: &B::Device) -> Self {
        let net = Self {
            conv: Conv2dConfig::new([2, 3], [2, 2]).init(device),
            norm: LayerNormConfig::new(12).init(device),
            attention: MultiHeadAttentionConfig::new(12, 3)
                .with_dropout(0.0)
                .init(device),
            up: LinearConfig::new(12, 20).init(device),
            head: LinearConfig::new(20, 4).init(device),
        };
        struct Short(DType, u64);
        impl<B: Backend> ModuleMapper<B> for Short {
            fn map_float<const D: usize>(
                &mut self,
                param: Param<Tensor<B, D>>,
            ) -> Param<Tensor<B, D>> {
                self.1 += 1;
                let Self(dtype, seed) = *self;
                param.map(|old| tensor(old.dims(), seed, dtype, &old.device()).require_grad())
            }
        }
        net.map(&mut Short(dtype, 70))
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = activation::relu(self.conv.forward(x));
        let x = self.norm.forward(x.flatten::<3>(2, 3));
        let x = self.attention.forward(MhaInput::self_attn(x)).context;
        let x = activation::gelu(self.up.forward(x));
        activation::log_softmax(self.head.forward(x).flatten(0, 1), 1)
    }
}

/// Output, gradients, and output after a step of plain SGD.
fn trained<B: MxKernels>(specs: &MxSpecs, dtype: DType) -> Vec<Vec<f64>> {
    struct Gradients<'a, B: AutodiffBackend>(&'a B::Gradients, Vec<Vec<f64>>);
    impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_, B> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let grad = param.val().grad(self.0).expect("every parameter is used");
            self.1.push(exact_values(grad));
        }
    }
    // A loss in full precision has the precision of its tensors' type.
    let specs = MxSpecs {
        quantize_loss: true,
        ..specs.clone()
    };
    let specs = specs.resolve().expect("the specs are sound");
    let device = MxDevice::new(B::Device::default(), &specs).expect("resolved specs");
    let net = Net::<MxAutodiff<B>>::init(dtype, &device);
    let out = net.forward(tensor([3, 2, 4, 5], 1, dtype, &device));
    assert_eq!(out.dtype(), dtype);
    let grad = tensor(out.dims(), 3, dtype, &device);
    let grads = MxAutodiff::<B>::loss_with_gradient(out.clone(), grad).backward();
    let mut collect = Gradients(&grads, vec![exact_values(out)]);
    net.visit(&mut collect);
    let values = collect.1;
    let valid = net.valid();
    let again = valid.forward(tensor([3, 2, 4, 5], 1, dtype, &device));
    assert_same(&exact_values(again), &values[0], "inference");
    let grads = GradientsParams::from_grads(grads, &net);
    let net = SgdConfig::new().init().step(0.01, net, grads);
    assert_eq!(net.head.weight.val().dtype(), dtype);
    values
}

/// Where the type holds the elementwise format, a model computes the same values as in `f32`.
#[test]
fn a_model_of_bf16_tensors_trains_in_bfloat16_as_one_of_f32_does() {
    for specs in [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4(), bfloat16_only()] {
        let expected = trained::<Flex>(&specs, DType::F32);
        let got = trained::<Flex>(&specs, DType::BF16);
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_same(got, expected, &format!("tensor {i}"));
        }
    }
}

#[test]
fn a_model_of_f16_tensors_trains_in_fp16_as_one_of_f32_does() {
    let fp16 = MxSpecs {
        bfloat: 0,
        fp: 16,
        ..MxSpecs::mxfp8_e4m3()
    };
    let expected = trained::<Flex>(&fp16, DType::F32);
    let got = trained::<Flex>(&fp16, DType::F16);
    for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
        assert_same(got, expected, &format!("tensor {i}"));
    }
}

fn assert_f64_trains_as_f32<B: MxKernels>() {
    for specs in [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4(), bfloat16_only()] {
        let expected = trained::<B>(&specs, DType::F32);
        let got = trained::<B>(&specs, DType::F64);
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_same(got, expected, &format!("tensor {i}"));
        }
    }
}

#[test]
fn a_model_of_f64_tensors_trains_as_one_of_f32_does_on_flex() {
    assert_f64_trains_as_f32::<Flex>();
}

#[test]
fn a_model_of_f64_tensors_trains_as_one_of_f32_does_on_ndarray() {
    assert_f64_trains_as_f32::<NdArray>();
}

#[test]
fn f64_operands_are_rounded_to_f32_first() {
    type B = MxAutodiff<NdArray<f64>>;
    let specs = MxSpecs::mxfp8_e4m3()
        .resolve()
        .expect("the preset is sound");
    let device = MxDevice::new(Default::default(), &specs).expect("resolved specs");
    // 1 + 2^-30 is 1 as f32; fp8_e4m3 under the scale 2^-7 of 2 holds 0.3 as 0.3125.
    let x = Tensor::<B, 2>::from_data([[1.0 + 2f64.powi(-30), 0.3, -2.0]], (&device, DType::F64));
    let y = x.matmul(Tensor::from_data(
        [[1.0], [1.0], [1.0]],
        (&device, DType::F64),
    ));
    assert_eq!(y.dtype(), DType::F64);
    assert_eq!(exact_values(y), [-0.6875]);
}

/// Half a step of bfloat16 and a little more: a cast by way of a narrower mantissa loses the little, and the tie.
#[test]
fn a_result_is_rounded_to_the_tensors_type_once() {
    let specs = MxSpecs {
        bfloat: 31,
        ..MxSpecs::none()
    };
    let terms = [[1.0, 2f32.powi(-8), 2f32.powi(-22)]];
    let device = mx_device(&specs);
    let terms = Tensor::<Mx, 2>::from_data(terms, (&device, DType::BF16));
    assert_eq!(exact_values(terms.sum_dim(1)), [1.0 + 2f64.powi(-7)]);
}

#[test]
#[should_panic(
    expected = "operands of an op are of different float types, BF16 and F32; cast one of them"
)]
fn operands_of_different_types_are_refused() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let x = tensor::<Mx, 2>([3, 4], 1, DType::BF16, &device);
    let y = tensor::<Mx, 2>([4, 3], 1, DType::F32, &device);
    let _ = x.matmul(y);
}
