//! The portable path: read to host memory, compute there, write back.

use std::any::TypeId;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Backend, DType, TensorData, TensorMetadata, read_sync};

static ROUND_TRIPS: AtomicU64 = AtomicU64::new(0);

/// How many tensors this process has sent through the host's memory, because their backend has no kernels of its own for
/// what was to be done with them: quantization, emulated functions, or the recorder's figures. Over a training step there
/// are none on a backend with native kernels, but for the few formats that it has none for. A backend says in the
/// log, too, what goes this way (`info`, once).
///
/// What is wanted on the host is not counted: values that the program reads, packed tensors, the recorder's sums.
pub fn host_round_trips() -> u64 {
    ROUND_TRIPS.load(Ordering::Relaxed)
}

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

/// The row-major values of an `f32` tensor that is quantized.
///
/// # Panics
///
/// As [`apply`].
pub(super) fn read<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    read_for::<B>(tensor, "quantization")
}

/// The row-major values of an `f32` tensor for `what`.
///
/// # Panics
///
/// As [`apply`].
pub(super) fn read_for<B: Backend>(tensor: FloatTensor<B>, what: &'static str) -> Vec<f32> {
    note::<B>(&B::float_device(&tensor), what);
    values::<B>(tensor)
}

/// The row-major values of an `f32` tensor that is wanted on the host.
///
/// # Panics
///
/// As [`apply`].
pub(super) fn values<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    read_sync(B::float_into_data(tensor))
        .unwrap_or_else(|error| panic!("burn-mx: reading a tensor of the device failed: {error}"))
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

/// Counts a tensor that passes through the host's memory, and says once a backend what it has no kernels of its own for.
pub(super) fn note<B: Backend>(device: &B::Device, what: &'static str) {
    ROUND_TRIPS.fetch_add(1, Ordering::Relaxed);
    static SEEN: LazyLock<Mutex<HashSet<(TypeId, &str)>>> = LazyLock::new(Default::default);
    let mut seen = SEEN.lock().unwrap_or_else(|poison| poison.into_inner());
    if seen.insert((TypeId::of::<B>(), what)) {
        log::info!(
            "burn-mx: backend {} has no MX kernels for {what}, which goes through host memory",
            B::name(device)
        );
    }
}
