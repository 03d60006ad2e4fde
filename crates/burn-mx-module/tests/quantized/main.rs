//! Burn's quantized tensors and packed bytes, against Burn's own `dequantize`, and against the definitions of the floats.

use std::error::Error;

use burn_backend::quantization::{
    QuantLevel, QuantParam, QuantScheme, QuantStore, QuantValue, QuantizationParametersPrimitive,
};
use burn_backend::{Bytes, DType};
use burn_core as burn;
use burn_core::module::{Module, Param, Quantizer};
use burn_core::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::quantization::Calibration;
use burn_core::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxBackend, MxDevice, MxSpecs};
use burn_mx_module::{packed_of_data, quantized_data, quantized_tensor, quantized_weights};
use burn_ndarray::{NdArray, NdArrayDevice};
use microscaling::{Packed, RandomStream, Rounder};

mod refused;

type Test = Result<(), Box<dyn Error>>;

/// Numbers of several magnitudes and of both signs, with a zero and a row of zeros.
fn numbers(shape: [usize; 2], seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 0);
    let word = |at: usize| f64::from(stream.draw(at as u64)) / f64::from(u32::MAX);
    let numbers = (0..shape[0] * shape[1]).map(|at| match at {
        0 => 0.0,
        _ if at / shape[1] == 1 => 0.0,
        _ => ((word(2 * at) - 0.5) * 2_f64.powf(8.0 * word(2 * at + 1) - 4.0)) as f32,
    });
    numbers.collect()
}

fn packed(format: &str, shape: [usize; 2]) -> Result<Packed, Box<dyn Error>> {
    let numbers = numbers(shape, 7);
    Ok(Packed::encode(
        format.parse()?,
        &numbers,
        &shape,
        1,
        Rounder::NearestEven,
    )?)
}

fn dequantized<B: Backend>(tensor: Tensor<B, 2>) -> Vec<f32> {
    let data = tensor.dequantize().into_data().convert::<f32>();
    data.into_vec().expect("the data were converted")
}

/// Equal bits, but for the sign of zero.
#[track_caller]
fn assert_same(one: &[f32], other: &[f32], name: &str) {
    assert_eq!(one.len(), other.len(), "{name}");
    for (at, (one, other)) in one.iter().zip(other).enumerate() {
        let [one, other] = [*one, *other].map(|x| (x + 0.0).to_bits());
        assert_eq!(one, other, "{name}, element {at}");
    }
}

fn scheme_of(data: &TensorData) -> QuantScheme {
    let DType::QFloat(scheme) = data.dtype else {
        panic!("{:?}", data.dtype);
    };
    scheme
}

#[test]
fn burn_dequantizes_packed_integers_to_their_values() -> Test {
    let formats = [
        "mxint8",
        "mx(element=int4,block_size=16)",
        "mx(element=int2,block_size=8)",
        "block(element=int8,scale=float32,block_size=0)",
        "block(element=int8,scale=bfloat16,block_size=32)",
        "block(element=int4,scale=float32,block_size=32)",
        "block(element=int4,scale=ue4m3,block_size=16,tensor_scale=true)",
        "block(element=int8,scale=float32,block_size=16,square=true)",
        "block(element=int4,scale=float32,block_size=512)",
    ];
    let mx = MxDevice::new(FlexDevice, MxSpecs::mxfp4())?;
    for format in formats {
        let packed = packed(format, [16, 512])?;
        let values = packed.decode();
        let flex = quantized_tensor::<Flex, 2>(&packed, &FlexDevice)?;
        assert_same(&dequantized(flex.clone()), &values, format);
        // The decorator leaves quantized tensors to the wrapped backend.
        let emulated = quantized_tensor::<MxBackend<Flex>, 2>(&packed, &mx)?;
        assert_same(&dequantized(emulated), &values, format);
        if format.contains("int8") {
            let ndarray = quantized_tensor::<NdArray, 2>(&packed, &NdArrayDevice::Cpu)?;
            assert_same(&dequantized(ndarray), &values, format);
        }
        for data in [flex.into_data(), quantized_data(&packed)?] {
            let back = packed_of_data(&data)?;
            assert_eq!(back.shape(), packed.shape());
            assert_same(&back.decode(), &values, format);
        }
    }
    Ok(())
}

#[test]
fn packed_tensors_have_the_values_of_burns_quantized_tensors() -> Test {
    use QuantValue::*;
    let shape = [8, 64];
    let levels = [
        (QuantLevel::Tensor, "block_size=0"),
        (QuantLevel::block([16]), "block_size=16"),
        (QuantLevel::block([1, 32]), "block_size=32"),
    ];
    let values = [Q8S, Q8F, Q4S, Q4F, Q2S, Q2F];
    let data = TensorData::new(numbers(shape, 3), shape);
    for (value, (level, block)) in values
        .into_iter()
        .flat_map(|value| levels.map(|own| (value, own)))
    {
        let scheme = QuantScheme::default()
            .with_value(value)
            .with_level(level)
            .with_store(QuantStore::Native);
        let name = format!("{scheme:?}");
        let tensor = Tensor::<Flex, 2>::from_data(data.clone(), &FlexDevice);
        let quantized = tensor.quantize_dynamic(&scheme);
        let packed = packed_of_data(&quantized.clone().into_data())?;
        assert_same(&packed.decode(), &dequantized(quantized), &name);
        let text = packed.format().to_string();
        let bits = value.size_bits();
        assert!(
            text.contains(&format!("element=int{bits},scale=float32")),
            "{text}"
        );
        assert!(
            text.contains(block) || block == "block_size=32" && !text.contains("block_size"),
            "{text}"
        );
        let again = Tensor::<Flex, 2>::from_data(quantized_data(&packed)?, &FlexDevice);
        assert_same(&dequantized(again), &packed.decode(), &name);

        if value == Q8S {
            let tensor = Tensor::<NdArray, 2>::from_data(data.clone(), &NdArrayDevice::Cpu);
            let quantized = tensor.quantize_dynamic(&scheme);
            let packed = packed_of_data(&quantized.clone().into_data())?;
            assert_same(&packed.decode(), &dequantized(quantized), &name);
        }
    }
    Ok(())
}

/// The number of a code, by the definition of OCP FP8 and MX.
fn float(code: u8, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let exponent = i32::from(code >> mantissa_bits & ((1 << exponent_bits) - 1));
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1));
    let unit = mantissa / f64::from(1 << mantissa_bits);
    let magnitude = match exponent {
        0 => unit * 2_f64.powi(1 - bias),
        _ => (1.0 + unit) * 2_f64.powi(exponent - bias),
    };
    match code >> (exponent_bits + mantissa_bits) {
        0 => magnitude,
        _ => -magnitude,
    }
}

#[test]
fn floats_keep_their_codes_and_scales() -> Test {
    use QuantParam::*;
    let cases = [
        ("mxfp8_e4m3", QuantValue::E4M3, UE8M0, [4, 3], 32),
        ("mxfp8_e5m2", QuantValue::E5M2, UE8M0, [5, 2], 32),
        ("mxfp4", QuantValue::E2M1, UE8M0, [2, 1], 32),
        ("nvfp4", QuantValue::E2M1, UE4M3, [2, 1], 16),
        (
            "nvfp4(tensor_scale=true)",
            QuantValue::E2M1,
            F32,
            [2, 1],
            16,
        ),
        (
            "block(element=fp8_e4m3,scale=float32,block_size=128)",
            QuantValue::E4M3,
            F32,
            [4, 3],
            128,
        ),
    ];
    for (format, value, param, [exponent_bits, mantissa_bits], block) in cases {
        let shape = [8, 256];
        let packed = packed(format, shape)?;
        let data = quantized_data(&packed)?;
        let scheme = scheme_of(&data);
        assert_eq!((scheme.value, scheme.param), (value, param), "{format}");
        assert_eq!(scheme.level, QuantLevel::block([block as u8]), "{format}");

        // As CubeCL's kernel dequantizes: scale · element, in float32.
        let elements = 8 * 256 * value.size_bits() / 8;
        let (codes, scales) = data.bytes.split_at(elements);
        let codes: Vec<u8> = match value {
            QuantValue::E2M1 => codes
                .iter()
                .flat_map(|byte| [byte & 15, byte >> 4])
                .collect(),
            _ => codes.to_vec(),
        };
        let scale = |at: usize| match param {
            UE8M0 => 2_f64.powi(i32::from(scales[at]) - 127),
            UE4M3 => float(scales[at], 4, 3),
            _ => f64::from(f32::from_le_bytes(
                scales[4 * at..][..4].try_into().expect("four bytes"),
            )),
        };
        let values: Vec<f32> = codes
            .iter()
            .enumerate()
            .map(|(at, code)| {
                (scale(at / block) * float(*code, exponent_bits, mantissa_bits)) as f32
            })
            .collect();
        assert_same(&values, &packed.decode(), format);

        let back = packed_of_data(&data)?;
        assert_same(&back.decode(), &values, format);
        if param != F32 {
            assert_eq!(back.scales(), packed.scales(), "{format}");
        }
        // Processor backends do not take floats.
        let error = quantized_tensor::<Flex, 2>(&packed, &FlexDevice).expect_err("floats");
        assert!(
            error
                .to_string()
                .starts_with("flex takes no quantized tensor of fp"),
            "{error}"
        );
    }
    // One scale for the tensor.
    let fp8 = packed(
        "block(element=fp8_e4m3,scale=float32,block_size=0)",
        [1, 300],
    )?;
    assert_eq!(scheme_of(&quantized_data(&fp8)?).level, QuantLevel::Tensor);
    // A format of the same name comes back.
    for format in ["mxfp4", "mxfp8_e5m2"] {
        let data = quantized_data(&packed(format, [4, 64])?)?;
        assert_eq!(packed_of_data(&data)?.format(), format.parse()?);
    }
    Ok(())
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    layers: Vec<Param<Tensor<B, 2>>>,
    norm: Param<Tensor<B, 1>>,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        let layer = |seed| {
            let data = TensorData::new(numbers([8, 64], seed), [8, 64]);
            Param::from_tensor(Tensor::from_data(data, device))
        };
        Self {
            layers: vec![layer(1), layer(2)],
            norm: Param::from_tensor(Tensor::ones([64], device)),
        }
    }
}

#[test]
fn the_record_of_a_quantized_model_becomes_packed_weights() -> Test {
    let scheme = QuantScheme::default()
        .with_value(QuantValue::Q4S)
        .with_level(QuantLevel::block([16]))
        .with_store(QuantStore::Native);
    let calibration = Calibration::MinMax;
    let mut model = Model::<Flex>::new(&FlexDevice);
    let mut quantizer = Quantizer {
        calibration,
        scheme,
    };
    model.layers = model.layers.quantize_weights(&mut quantizer);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let record = Recorder::<Flex>::record(&recorder, model.clone().into_record(), ())?;
    let loaded = Recorder::<Flex>::load(&recorder, record, &FlexDevice)?;
    let loaded = Model::<Flex>::new(&FlexDevice).load_record(loaded);

    let weights = quantized_weights(&loaded)?;
    assert_eq!(weights.keys().collect::<Vec<_>>(), ["layers.0", "layers.1"]);
    for (layer, packed) in model.layers.iter().zip(weights.values()) {
        assert_same(&packed.decode(), &dequantized(layer.val()), "a layer");
    }
    Ok(())
}

/// A scale of a block may be a NaN or too small for a normal number.
#[test]
fn scales_at_the_ends_of_float32() -> Test {
    let mxint8 = "mxint8".parse()?;
    for scales in [[255, 127], [0, 254], [5, 6]] {
        let codes: Vec<u8> = (0..64).map(|at| (at * 4) as u8).collect();
        let packed = Packed::from_parts(mxint8, &[1, 64], 1, None, scales.to_vec(), codes)?;
        let burn = dequantized(quantized_tensor::<Flex, 2>(&packed, &FlexDevice)?);
        for (burn, own) in burn.iter().zip(packed.decode()) {
            assert!(
                *burn == own || burn.is_nan() && own.is_nan(),
                "{burn}, {own}"
            );
        }
    }
    // Burn's `Quantizer` gives zeros the smallest normal scale.
    let zeros = Tensor::<Flex, 2>::zeros([2, 32], &FlexDevice);
    let scales = Tensor::<Flex, 1>::zeros([1], &FlexDevice);
    let scales = scales.into_primitive().tensor();
    let scheme = QuantScheme::default().with_store(QuantStore::Native);
    let zeros = zeros.into_primitive().tensor();
    let quantized = <Flex as burn_core::tensor::ops::QTensorOps<Flex>>::quantize(
        zeros,
        &scheme,
        QuantizationParametersPrimitive { scales },
    );
    let tensor =
        Tensor::<Flex, 2>::from_primitive(burn_core::tensor::TensorPrimitive::QFloat(quantized));
    assert_eq!(packed_of_data(&tensor.into_data())?.decode(), [0.0; 64]);
    Ok(())
}
