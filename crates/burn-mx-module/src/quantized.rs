//! Burn's own quantized tensors, to and from packed bytes.

mod error;
mod read;
mod write;

use std::collections::BTreeMap;

use burn_backend::DType;
use burn_backend::quantization::QuantValue;
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::{Tensor, TensorPrimitive};
use microscaling::{ElementFormat, Packed};

pub use error::QuantizedError;
pub use read::packed_of_data;
pub use write::quantized_data;

/// Elements of both sides. Burn's integers count steps of 1, the integers here steps of 2^(2 − bits).
const ELEMENTS: [(QuantValue, ElementFormat); 9] = [
    (QuantValue::Q8S, ElementFormat::INT8),
    (QuantValue::Q4S, ElementFormat::INT4),
    (QuantValue::Q2S, ElementFormat::INT2),
    (QuantValue::Q8F, ElementFormat::INT8),
    (QuantValue::Q4F, ElementFormat::INT4),
    (QuantValue::Q2F, ElementFormat::INT2),
    (QuantValue::E4M3, ElementFormat::FP8_E4M3),
    (QuantValue::E5M2, ElementFormat::FP8_E5M2),
    (QuantValue::E2M1, ElementFormat::FP4_E2M1),
];

const fn is_float(value: QuantValue) -> bool {
    matches!(
        value,
        QuantValue::E4M3 | QuantValue::E5M2 | QuantValue::E2M1
    )
}

/// The step of an integer; 1 of a float.
fn step(value: QuantValue) -> f32 {
    match is_float(value) {
        true => 1.0,
        false => 2.0 / (1_u32 << (value.size_bits() - 1)) as f32,
    }
}

/// Compares Burn's value of each element with the packed tensor's. Zeros of either sign are equal, and so are NaN.
fn check(packed: &Packed, of_burn: impl Iterator<Item = f32>) -> Result<(), QuantizedError> {
    let own = packed.decode();
    for (position, (own, burn)) in own.into_iter().zip(of_burn).enumerate() {
        let is_same = own == burn || own.is_nan() && burn.is_nan();
        if !is_same {
            return Err(QuantizedError::Value {
                position,
                own: own.to_string(),
                burn: burn.to_string(),
            });
        }
    }
    Ok(())
}

/// Burn's quantized tensor with the values of a packed tensor, of [`quantized_data`]. `dequantize` gives the values of [`Packed::decode`], bit
/// for bit but for the sign of zero.
///
/// Backends of Burn 0.21: Flex takes integers. NdArray takes `int8` alone. CubeCL's backends take integers and floats, as their devices
/// allow. LibTorch has no quantized tensors.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::module::quantized_tensor;
/// use microscaling::{Packed, Rounder};
///
/// let weight = [0.5, -1.0, 0.25, 2.0];
/// let packed = Packed::encode("mxint8".parse()?, &weight, &[1, 4], 1, Rounder::NearestEven)?;
/// let quantized = quantized_tensor::<Flex, 2>(&packed, &FlexDevice)?;
/// assert_eq!(quantized.dequantize().into_data().to_vec::<f32>()?, weight);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The errors of [`quantized_data`]. [`QuantizedError::Backend`]: the backend does not take such elements.
///
/// # Panics
///
/// If the packed tensor has another number of axes than `D`.
pub fn quantized_tensor<B: Backend, const D: usize>(
    packed: &Packed,
    device: &B::Device,
) -> Result<Tensor<B, D>, QuantizedError> {
    let data = quantized_data(packed)?;
    if let DType::QFloat(scheme) = data.dtype {
        let backend = B::name(device);
        let value = scheme.value;
        let takes = match () {
            () if backend.contains("cubecl<") => true,
            () if backend.contains("flex") => !is_float(value),
            () if backend.contains("ndarray") => {
                matches!(value, QuantValue::Q8S | QuantValue::Q8F)
            }
            () => false,
        };
        if !takes {
            let element = packed.format().element.to_string();
            return Err(QuantizedError::Backend { backend, element });
        }
    }
    Ok(Tensor::from_data(data, device))
}

/// The quantized parameters of a module that Burn's `Quantizer` made or a record of one loaded, as packed tensors by path. Shapes are
/// the parameters' own: a linear layer's weight is `[in, out]`, and Burn's blocks lie along `out`. Other parameters are left out.
///
/// # Errors
///
/// The errors of [`packed_of_data`], with the path.
pub fn quantized_weights<B: Backend, M: Module<B>>(
    module: &M,
) -> Result<BTreeMap<String, Packed>, QuantizedError> {
    let mut found = QuantizedWeights {
        path: Vec::new(),
        weights: Ok(BTreeMap::new()),
    };
    module.visit(&mut found);
    found.weights
}

struct QuantizedWeights {
    path: Vec<String>,
    weights: Result<BTreeMap<String, Packed>, QuantizedError>,
}

impl<B: Backend> ModuleVisitor<B> for QuantizedWeights {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Ok(weights) = &mut self.weights else {
            return;
        };
        let primitive = param.val().into_primitive();
        if !matches!(primitive, TensorPrimitive::QFloat(_)) {
            return;
        }
        let path = self.path.join(".");
        match packed_of_data(&Tensor::<B, D>::from_primitive(primitive).into_data()) {
            Ok(packed) => {
                weights.insert(path, packed);
            }
            Err(error) => {
                let error = Box::new(error);
                self.weights = Err(QuantizedError::At { path, error });
            }
        }
    }
}
