//! Packed linear layers and their adapters equal float layers with the unpacked weight, train without touching the bytes, and merge.

mod adapters;
mod refused;

use std::sync::Arc;

use burn_core::module::{AutodiffModule, Module, Param};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::module::linear;
use burn_core::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxSpecs, SlotFormat, TensorChange, Unpacked};
use burn_mx_module::{
    LoraConfig, PackedLinear, as_activation, as_weight, change, set_specs, set_specs_at,
};
use microscaling::{BlockFormat, Dialect, Packed, Rounder};

type Train = MxAutodiff<Flex>;
type Test = Result<(), Box<dyn std::error::Error>>;

/// Normal numbers by the sum of twelve uniform ones of a linear congruential generator.
fn numbers(count: usize, mut seed: u64) -> Vec<f32> {
    let mut uniform = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f32 / (1_u64 << 24) as f32
    };
    (0..count)
        .map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0)
        .collect()
}

fn packed(format: BlockFormat, [outputs, inputs]: [usize; 2], seed: u64) -> Packed {
    let values = numbers(outputs * inputs, seed);
    Packed::encode(format, &values, &[outputs, inputs], 1, Rounder::NearestEven).expect("finite")
}

fn tensor<B: Backend, const D: usize>(
    values: &[f32],
    shape: [usize; D],
    on: &B::Device,
) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), on)
}

fn bits<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("float32")
}

/// The unpacked weight `[in, out]`, by this test's own transposition.
fn columns(packed: &Packed) -> Vec<f32> {
    let (rows, shape) = (packed.decode(), packed.shape());
    let (outputs, inputs) = (shape[0], shape[1]);
    (0..rows.len())
        .map(|i| rows[i % outputs * inputs + i / outputs])
        .collect()
}

const OUT: usize = 48;
const IN: usize = 64;
const CONFIG: LoraConfig = LoraConfig {
    rank: 4,
    alpha: 8.0,
    dora: false,
};

/// The layer with trained values in its adapter.
fn layer(
    packed: Packed,
    bias: bool,
    config: LoraConfig,
    on: &MxDevice<FlexDevice>,
) -> PackedLinear<Train> {
    let [outputs, inputs] = [packed.shape()[0], packed.shape()[1]];
    let bias = bias.then(|| tensor(&numbers(outputs, 5), [outputs], on));
    let layer = PackedLinear::<Train>::new(packed, bias, on).expect("it fits");
    let layer = layer.with_adapter(config).expect("the sizes are allowed");
    let mut record = layer.clone().into_record();
    let adapter = record.adapter.as_mut().expect("it has one");
    let rank = config.rank;
    adapter.a = Param::from_tensor(tensor(&numbers(rank * inputs, 6), [rank, inputs], on));
    adapter.b = Param::from_tensor(tensor(&numbers(outputs * rank, 7), [outputs, rank], on));
    layer.load_record(record)
}

/// Output, and gradients of x, a, b, bits each. `product` is the layer's frozen part.
fn run(
    [a, b]: [Tensor<Train, 2>; 2],
    on: &MxDevice<FlexDevice>,
    forward: impl FnOnce(Tensor<Train, 3>) -> Tensor<Train, 3>,
) -> [Vec<u32>; 4] {
    let x =
        as_activation(tensor::<Train, 3>(&numbers(2 * 5 * IN, 8), [2, 5, IN], on).require_grad());
    let y = forward(x.clone());
    let weights = tensor(&numbers(2 * 5 * OUT, 9), [2, 5, OUT], on);
    let grads = (y.clone() * weights).sum().backward();
    let of = |tensor: &Tensor<Train, 2>| bits(tensor.grad(&grads).expect("trained"));
    [
        bits(y),
        bits(x.grad(&grads).expect("tracked")),
        of(&a),
        of(&b),
    ]
}

fn specs_of(format: BlockFormat, specs: MxSpecs) -> MxSpecs {
    MxSpecs {
        w_elem_format: Some(SlotFormat::Block(format)),
        ..specs
    }
}

#[test]
fn outputs_and_gradients_are_a_float_layers() -> Test {
    let [mxfp4, nvfp4]: [BlockFormat; 2] = ["mxfp4".parse()?, BlockFormat::nvfp4(true)];
    let of_tool = |specs: MxSpecs, dialect| MxSpecs {
        dialect_w: Some(dialect),
        ..specs
    };
    let cases = [
        (mxfp4, MxSpecs::none()),
        (mxfp4, MxSpecs::mxfp4()),
        (mxfp4, MxSpecs::mxfp4().straight_through()),
        (
            mxfp4,
            MxSpecs {
                mask_clipped: true,
                ..MxSpecs::mxfp4().straight_through()
            },
        ),
        (
            mxfp4,
            MxSpecs {
                a_elem_format: None,
                ..MxSpecs::mxfp4().straight_through()
            },
        ),
        (
            mxfp4,
            of_tool(
                MxSpecs::mxfp4().straight_through(),
                Dialect::CompressedTensors,
            ),
        ),
        (nvfp4, specs_of(nvfp4, MxSpecs::nvfp4())),
        (nvfp4, specs_of(nvfp4, MxSpecs::nvfp4().straight_through())),
        (nvfp4, MxSpecs::none()),
    ];
    for (format, specs) in cases {
        let on = MxDevice::new(FlexDevice, &specs)?;
        let packed = packed(format, [OUT, IN], 1);
        for bias in [false, true] {
            let layer = layer(packed.clone(), bias, CONFIG, &on);
            let adapter = layer.adapter().expect("it has one");
            let [a, b] = [&adapter.a, &adapter.b].map(Param::val);
            let own = run([a.clone(), b.clone()], &on, |x| layer.forward(x));
            let mut float = as_weight(tensor::<Train, 2>(&columns(&packed), [IN, OUT], &on));
            // In MXFP4 quantizing the values again changes nothing. A tensor scale and a tool's scales follow from other values.
            if specs.dialect_w.is_some() || format == nvfp4 {
                let scale = packed.tensor_scale();
                let unpacked = Unpacked::new(packed.clone(), scale, &specs.resolve()?, 0);
                if let Some(unpacked) = unpacked {
                    float = change(float, TensorChange::Unpacked(Arc::new(unpacked)));
                }
            }
            let bias = bias.then(|| as_weight(tensor(&numbers(OUT, 5), [OUT], &on)));
            let reference = run([a.clone(), b.clone()], &on, |x| {
                let lora = linear(x.clone(), a.transpose(), None);
                linear(x, float, bias) + linear(lora, b.transpose(), None) * 2.0
            });
            let names = ["output", "gradient of x", "of a", "of b"];
            for ((name, own), reference) in names.into_iter().zip(own).zip(reference) {
                assert!(own == reference, "{specs:?}: {name}");
            }
        }
    }
    Ok(())
}

/// The sum of the weight and the adapter by float64, packed and compared without the crate's merge.
#[test]
fn training_moves_the_adapter_and_no_frozen_byte() -> Test {
    let on = MxDevice::new(FlexDevice, MxSpecs::mxfp4().straight_through())?;
    let packed = packed("mxfp4".parse()?, [OUT, IN], 1);
    let mut layer = PackedLinear::<Train>::new(packed.clone(), None, &on)?.with_adapter(CONFIG)?;
    let x = tensor::<Train, 2>(&numbers(8 * IN, 2), [8, IN], &on);
    let target = tensor::<Train, 2>(&numbers(8 * OUT, 3), [8, OUT], &on);
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss = (layer.forward(x.clone()) - target.clone())
            .powi_scalar(2)
            .mean();
        losses.push(loss.clone().into_scalar());
        let grads = loss.backward();
        let mut record = layer.clone().into_record();
        let adapter = record.adapter.as_mut().expect("it has one");
        for param in [&mut adapter.a, &mut adapter.b] {
            let value = param.val();
            let step = value.grad(&grads).expect("trained") * 0.05;
            *param = Param::from_tensor(Tensor::from_inner(value.inner() - step).require_grad());
        }
        layer = layer.load_record(record);
    }
    assert!(losses[19] < 0.9 * losses[0], "{losses:?}");
    assert_eq!(layer.packed(), &packed);
    // Inference without autodiff has the values of training.
    let inner = on.clone();
    let x = tensor::<MxBackend<Flex>, 2>(&numbers(8 * IN, 2), [8, IN], &inner);
    let trained = tensor::<Train, 2>(&numbers(8 * IN, 2), [8, IN], &on);
    assert_eq!(bits(layer.valid().forward(x)), bits(layer.forward(trained)));
    Ok(())
}

#[test]
fn odd_sizes_empty_batches_and_vectors_work() -> Test {
    let nvfp4 = BlockFormat::nvfp4(true);
    for (format, specs) in [
        ("mxfp4".parse()?, MxSpecs::mxfp4().straight_through()),
        (nvfp4, specs_of(nvfp4, MxSpecs::nvfp4().straight_through())),
        (nvfp4, MxSpecs::none()),
    ] {
        let on = MxDevice::new(FlexDevice, specs)?;
        // 37 inputs: the last block of a row is short.
        let layer = layer(packed(format, [5, 37], 1), true, CONFIG, &on);
        let x = numbers(37, 8);
        let vector = layer.forward(tensor::<Train, 1>(&x, [37], &on));
        let row = layer.forward(tensor::<Train, 2>(&x, [1, 37], &on));
        assert_eq!(bits(vector), bits(row));
        let x = Tensor::<Train, 2>::zeros([0, 37], &on).require_grad();
        let y = layer.forward(x.clone());
        assert_eq!(y.dims(), [0, 5]);
        let grads = y.sum().backward();
        assert_eq!(x.grad(&grads).expect("tracked").dims(), [0, 37]);
        assert_eq!(layer.merge()?.layer.packed().shape(), [5, 37]);
    }
    Ok(())
}

#[test]
fn a_linear_layers_weight_goes_in_and_out() -> Test {
    let specs = MxSpecs {
        bfloat: 0,
        ..MxSpecs::mxfp4().straight_through()
    };
    let on = MxDevice::new(FlexDevice, MxSpecs::none())?;
    let weight = Param::from_tensor(tensor::<Train, 2>(&numbers(IN * OUT, 1), [IN, OUT], &on));
    // Specs by path are the weight's, not the device's.
    let weight = set_specs_at(vec![weight], "0", &specs.resolve()?)?
        .remove(0)
        .val();
    let layer = PackedLinear::from_weight(weight.clone(), None)?;
    let x = tensor::<Train, 2>(&numbers(3 * IN, 8), [3, IN], &on);
    let float = bits(linear(x.clone(), weight, None));
    assert_eq!(bits(layer.forward(x.clone())), float);
    assert_eq!(bits(linear(x.clone(), layer.weight(), None)), float);
    assert_eq!(values(layer.weight()), columns(layer.packed()));
    // Other specs for the whole module reach the frozen weight.
    let layer = set_specs(layer, &MxSpecs::none().resolve()?);
    assert_ne!(bits(layer.forward(x)), float);
    Ok(())
}
