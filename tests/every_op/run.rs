//! Running one call: its results or its panic, its gradients, and its operands afterwards.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{AutodiffBackend, Backend, DType, TensorData, TensorPrimitive, read_sync};

use super::generate::Arguments;
use super::table::Call;

/// A result of a call.
pub(crate) enum Part<B: Backend> {
    Float(FloatTensor<B>),
    Int(IntTensor<B>),
    Bool(BoolTensor<B>),
    Quantized(QuantizedTensor<B>),
    Data(TensorData),
    Text(String),
}

impl<B: Backend> From<TensorPrimitive<B>> for Part<B> {
    fn from(tensor: TensorPrimitive<B>) -> Self {
        match tensor {
            TensorPrimitive::Float(tensor) => Self::Float(tensor),
            TensorPrimitive::QFloat(tensor) => Self::Quantized(tensor),
        }
    }
}

/// The parts of a result that can be compared.
#[derive(Debug, PartialEq)]
pub(crate) enum Value {
    Bits(DType, Vec<usize>, Vec<u8>),
    Text(String),
}

impl From<TensorData> for Value {
    /// The bits; every NaN of `f32` and of `f64` has the same.
    fn from(data: TensorData) -> Self {
        let mut bytes = data.as_bytes().to_vec();
        if data.dtype == DType::F32 {
            for value in bytes.chunks_exact_mut(4) {
                let bits = u32::from_le_bytes(value.try_into().expect("4 bytes"));
                if f32::from_bits(bits).is_nan() {
                    value.copy_from_slice(&f32::NAN.to_bits().to_le_bytes());
                }
            }
        }
        if data.dtype == DType::F64 {
            for value in bytes.chunks_exact_mut(8) {
                let bits = u64::from_le_bytes(value.try_into().expect("8 bytes"));
                if f64::from_bits(bits).is_nan() {
                    value.copy_from_slice(&f64::NAN.to_bits().to_le_bytes());
                }
            }
        }
        Self::Bits(data.dtype, data.shape.to_vec(), bytes)
    }
}

fn read<B: Backend>(part: Part<B>) -> Value {
    let data = match part {
        Part::Float(tensor) => read_sync(B::float_into_data(tensor)),
        Part::Int(tensor) => read_sync(B::int_into_data(tensor)),
        Part::Bool(tensor) => read_sync(B::bool_into_data(tensor)),
        Part::Quantized(tensor) => read_sync(B::q_into_data(tensor)),
        Part::Data(data) => Ok(data),
        Part::Text(text) => return Value::Text(text),
    };
    match data {
        Ok(data) => data.into(),
        Err(error) => Value::Text(format!("{error}")),
    }
}

/// Results, or the message of a panic.
type Outcome = Result<Vec<Value>, String>;

#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) results: Outcome,
    pub(crate) gradients: Outcome,
    /// The operands after the call, where somebody else held them too.
    pub(crate) operands: Vec<Value>,
    /// The state before.
    pub(crate) originals: Vec<Value>,
}

impl Report {
    /// Whether an operand has a gradient.
    pub(crate) fn has_gradient(&self) -> bool {
        let gradients = self.gradients.as_ref();
        gradients.is_ok_and(|all| all.iter().any(|value| matches!(value, Value::Bits(..))))
    }
}

/// Gradients of the operands from the results.
pub(crate) type Gradients<B> = fn(Vec<FloatTensor<B>>, &mut Arguments<B>) -> Vec<Value>;

pub(crate) fn run<B: Backend>(
    call: &Call<B>,
    seed: u64,
    device: &Device<B>,
    gradients: Option<Gradients<B>>,
) -> Report {
    let mut arguments = Arguments::<B>::new(seed, device, gradients.is_some());
    let mut floats = Vec::new();
    let results = quietly(|| {
        let parts = (call.run)(&mut arguments);
        for part in &parts {
            if let Part::Float(tensor) = part {
                floats.push(tensor.clone());
            }
        }
        parts.into_iter().map(read).collect()
    });
    let gradients = quietly(|| match gradients {
        Some(gradients) => gradients(floats, &mut arguments),
        None => Vec::new(),
    });
    let Arguments {
        floats,
        ints,
        bools,
        data,
        ..
    } = arguments;
    let floats = floats.into_iter().map(Part::<B>::Float);
    let (ints, bools) = (
        ints.into_iter().map(Part::Int),
        bools.into_iter().map(Part::Bool),
    );
    Report {
        results,
        gradients,
        operands: floats.chain(ints).chain(bools).map(read).collect(),
        originals: data.into_iter().flatten().map(Value::from).collect(),
    }
}

/// The gradients of all float operands, given a random one of the first result.
pub(crate) fn gradients<B: AutodiffBackend>(
    results: Vec<FloatTensor<B>>,
    arguments: &mut Arguments<B>,
) -> Vec<Value> {
    let leaves = arguments.floats.clone();
    let Some(result) = results.into_iter().next() else {
        return Vec::new();
    };
    let weights = arguments.like(&result);
    let grads = B::backward(B::float_mul(result, weights));
    let read = |leaf| match B::grad(leaf, &grads) {
        Some(grad) => read(Part::<B::InnerBackend>::Float(grad)),
        None => Value::Text("no gradient".into()),
    };
    leaves.iter().map(read).collect()
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The result, or the message of a panic, which is not printed.
fn quietly<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |info| {
            if !QUIET.get() {
                print(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    result.map_err(|payload| match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => match payload.downcast::<&str>() {
            Ok(message) => (*message).to_owned(),
            Err(_) => "a panic without a message".to_owned(),
        },
    })
}
