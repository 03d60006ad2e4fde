//! The portable path: read to host memory, compute there, write back.

use std::any::TypeId;
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Backend, DType, TensorData, TensorMetadata, read_sync};

/// Applies `kernel(data, shape)` to the row-major values of an `f32` tensor.
///
/// # Panics
///
/// If the backend fails to read the tensor: an error of the device is not papered over.
pub(super) fn apply<B: Backend>(
    tensor: FloatTensor<B>,
    kernel: impl FnOnce(&mut [f32], &[usize]),
) -> FloatTensor<B> {
    let device = B::float_device(&tensor);
    note_once::<B>(&device, "quantization");
    let shape = tensor.shape();
    let mut values = read::<B>(tensor);
    kernel(&mut values, &shape);
    B::float_from_data(TensorData::new(values, shape), &device)
}

/// Applies `kernel(first, second)` to the row-major values of two `f32` tensors, both of which it changes.
///
/// # Panics
///
/// As [`apply`].
pub(super) fn apply_to_two<B: Backend>(
    first: FloatTensor<B>,
    second: FloatTensor<B>,
    kernel: impl FnOnce(&mut [f32], &mut [f32]),
) -> (FloatTensor<B>, FloatTensor<B>) {
    let device = B::float_device(&first);
    let shapes = (first.shape(), second.shape());
    let (mut first, mut second) = (read::<B>(first), read::<B>(second));
    kernel(&mut first, &mut second);
    (
        B::float_from_data(TensorData::new(first, shapes.0), &device),
        B::float_from_data(TensorData::new(second, shapes.1), &device),
    )
}

/// The row-major values of an `f32` tensor.
///
/// # Panics
///
/// As [`apply`].
pub(super) fn read<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    read_sync(B::float_into_data(tensor))
        .unwrap_or_else(|error| panic!("burn-mx: reading a tensor to quantize failed: {error}"))
        .into_vec::<f32>()
        .unwrap_or_else(|error| panic!("burn-mx: expected {:?} data: {error:?}", DType::F32))
}

/// The words that a device wrote.
///
/// # Panics
///
/// As [`apply`].
pub(super) fn read_words<B: Backend>(words: IntTensor<B>) -> Vec<i32> {
    read_sync(B::int_into_data(words))
        .unwrap_or_else(|error| panic!("burn-mx: reading what a device wrote failed: {error}"))
        .into_vec::<i32>()
        .unwrap_or_else(|error| panic!("burn-mx: expected {:?} data: {error:?}", DType::I32))
}

/// The row-major values of an `f32` tensor of which statistics are taken.
///
/// # Panics
///
/// As [`apply`].
pub(super) fn observe<B: Backend>(tensor: &FloatTensor<B>) -> Vec<f32> {
    note_once::<B>(&B::float_device(tensor), "the recorder");
    read::<B>(tensor.clone())
}

/// Says once a backend what it has no kernels of its own for.
pub(super) fn note_once<B: Backend>(device: &B::Device, what: &'static str) {
    static SEEN: LazyLock<Mutex<HashSet<(TypeId, &str)>>> = LazyLock::new(Default::default);
    let mut seen = SEEN.lock().unwrap_or_else(|poison| poison.into_inner());
    if seen.insert((TypeId::of::<B>(), what)) {
        log::info!(
            "burn-mx: backend {} has no MX kernels for {what}, which goes through host memory",
            B::name(device)
        );
    }
}
