//! The portable path: read to host memory, compute there, write back.

use std::any::TypeId;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Backend, DType, TensorData, TensorMetadata, read_sync};

use microscaling::{BlockFormat, PackError, Packed, PackedView, RandomStream, Rounding};

use super::MxKernels;
use super::kernel_op::KernelOp;
use super::kernel_op::given;

static ROUND_TRIPS: AtomicU64 = AtomicU64::new(0);

/// How many tensors this process has sent through the host's memory, because their backend has no kernel for
/// quantization, an emulated function or the recorder's figures. On a backend with native kernels, a training step adds
/// none, except for long blocks of a few formats. The log also names the ops that take this way (`info`, once
/// for each backend).
///
/// Data that belong on the host are not counted: values that the program reads, packed tensors, the recorder's sums.
pub fn host_round_trips() -> u64 {
    ROUND_TRIPS.load(Ordering::Relaxed)
}

/// The results of an op, in host memory; of an op that IEEE 754 defines, by the ops of `B`.
///
/// # Panics
///
/// If the backend fails to read a tensor: an error of the device is not papered over.
pub(super) fn run<B: MxKernels>(
    op: KernelOp,
    first: FloatTensor<B>,
    others: [Option<FloatTensor<B>>; 2],
) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    match op {
        KernelOp::Unary(op, rounding) => {
            let tensor = rounding.operand::<B>(first);
            return (rounding.round::<B>(op.compute::<B>(tensor)), None);
        }
        KernelOp::Binary(op, rounding) => {
            let [other, _] = others;
            let [lhs, rhs] = [first, given(other)].map(|tensor| rounding.operand::<B>(tensor));
            return (rounding.round::<B>(op.compute::<B>(lhs, rhs)), None);
        }
        _ => {}
    }
    let device = B::float_device(&first);
    let shape = first.shape();
    let others = others.map(|tensor| tensor.map(read::<B>));
    let mut values = read::<B>(first);
    let second = op.apply(&mut values, &shape, others);
    let tensor = |values| B::float_from_data(TensorData::new(values, shape.clone()), &device);
    (tensor(values), second.map(tensor))
}

/// The row-major values of an `f32` tensor that is quantized.
///
/// # Panics
///
/// If the backend fails to read the tensor.
pub(super) fn read<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    read_for::<B>(tensor, "quantization")
}

/// The row-major values of an `f32` tensor for `what`.
///
/// # Panics
///
/// If the backend fails to read the tensor.
pub(super) fn read_for<B: Backend>(tensor: FloatTensor<B>, what: &'static str) -> Vec<f32> {
    note::<B>(&B::float_device(&tensor), what);
    values::<B>(tensor)
}

/// The row-major values of an `f32` tensor that is wanted on the host.
///
/// # Panics
///
/// If the backend fails to read the tensor.
pub(super) fn values<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = read_sync(B::float_into_data(tensor))
        .unwrap_or_else(|error| panic!("burn-mx: reading a tensor of the device failed: {error}"));
    // CUDA's bytes of a tensor without elements are not aligned for float32.
    if data.bytes.is_empty() {
        return Vec::new();
    }
    data.into_vec::<f32>()
        .unwrap_or_else(|error| panic!("burn-mx: expected {:?} data: {error:?}", DType::F32))
}

/// The words that a device wrote.
///
/// # Panics
///
/// If the backend fails to read the tensor.
pub(super) fn read_words<B: Backend>(words: IntTensor<B>) -> Vec<i32> {
    read_sync(B::int_into_data(words))
        .unwrap_or_else(|error| panic!("burn-mx: reading what a device wrote failed: {error}"))
        .into_vec::<i32>()
        .unwrap_or_else(|error| panic!("burn-mx: expected {:?} data: {error:?}", DType::I32))
}

/// Counts a tensor that passes through the host's memory, and logs once for each backend which kernel is missing.
pub fn note<B: Backend>(device: &B::Device, what: &'static str) {
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

/// A backend that has the portable kernels as they are. On the client's side: a device may be in another process or on another machine.
#[cfg(feature = "router")]
impl<R: burn_router::RunnerChannel + 'static> MxKernels for burn_router::BackendRouter<R> {}

/// [`KernelSet::pack`](crate::kernel_set::KernelSet::pack) in host memory.
pub(super) fn pack_on_host<B: Backend>(
    tensor: FloatTensor<B>,
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> Result<Packed, PackError> {
    let shape = tensor.shape();
    let values = values::<B>(tensor);
    Packed::encode(format, &values, &shape, axis, rounding.with(stream))
}

/// [`KernelSet::unpack`](crate::kernel_set::KernelSet::unpack) in host memory.
pub(super) fn unpack_on_host<B: Backend>(
    packed: &PackedView<'_>,
    device: &B::Device,
) -> FloatTensor<B> {
    let data = TensorData::new(packed.decode(), packed.shape().to_vec());
    B::float_from_data(data, device)
}
