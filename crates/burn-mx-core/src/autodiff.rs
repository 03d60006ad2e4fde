//! `MxAutodiff`: the decorator's training side.

/// Ops with burn-autodiff's gradient, which may compute their result again for the gradients of other ops.
macro_rules! recorded {
    ($(fn $name:ident($tensor:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)*) -> FloatTensor<Self>;)*) => { $(
        fn $name($tensor: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            $crate::autodiff::backward::check_recorded_by_autodiff::<B, C, 1>([&$tensor]);
            let $tensor = $crate::autodiff::backward::edge::used::<B, C>($tensor);
            $crate::hooks::tracked(|| Ad::<B, C>::$name($tensor $(, $arg)*))
        }
    )* };
}

mod backward;
mod bool;
#[cfg(burn_mx_distributed)]
mod distributed;
mod float;
mod int;
mod layers;
mod quantized;
mod tensor_ops;
mod walk;

use core::marker::PhantomData;

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::{CheckpointStrategy, NoCheckpointing};
#[cfg(burn_mx_distributed)]
use burn_backend::distributed::{DistributedParamId, DistributedParams};
use burn_backend::ops::{TransactionOps, TransactionPrimitive, TransactionPrimitiveData};
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{
    AutodiffBackend, Backend, BackendTypes, DType, DTypeUsageSet, ExecutionError, TensorData,
    TensorMetadata,
};

use crate::backend::MxBackend;
use crate::tensor::{Meta, MxTensor, Rule};
use backward::Tracked;
use burn_mx_kernels::MxKernels;

/// The autodiff backend that `MxAutodiff` decorates.
type Ad<B, C> = Autodiff<MxBackend<B>, C>;

/// Autodiff over [`MxBackend<B>`]: write `MxAutodiff<B>` in place of `Autodiff<B>`.
///
/// Three things differ from `Autodiff<MxBackend<B>>`. Backward products take the backward formats. Leaves that require
/// gradients take the weight formats. The optimizer computes with gradients and parameters that leave autodiff in full
/// precision. Without specs, values and gradients equal `Autodiff<B>`'s.
#[derive(Clone, Copy, Debug, Default)]
pub struct MxAutodiff<B, C = NoCheckpointing> {
    _inner: PhantomData<(B, C)>,
}

impl<B: MxKernels, C: CheckpointStrategy> BackendTypes for MxAutodiff<B, C> {
    type Device = <MxBackend<B> as BackendTypes>::Device;
    type FloatTensorPrimitive = FloatTensor<Ad<B, C>>;
    type FloatElem = B::FloatElem;
    type IntTensorPrimitive = IntTensor<MxBackend<B>>;
    type IntElem = B::IntElem;
    type BoolTensorPrimitive = BoolTensor<MxBackend<B>>;
    type BoolElem = B::BoolElem;
    type QuantizedTensorPrimitive = QuantizedTensor<MxBackend<B>>;
}

impl<B: MxKernels, C: CheckpointStrategy> Backend for MxAutodiff<B, C> {
    fn ad_enabled(device: &Self::Device) -> bool {
        Ad::<B, C>::ad_enabled(device)
    }

    fn memory_persistent_allocations<
        Output: Send,
        Input: Send,
        Func: Fn(Input) -> Output + Send,
    >(
        device: &Self::Device,
        input: Input,
        func: Func,
    ) -> Output {
        MxBackend::<B>::memory_persistent_allocations(device, input, func)
    }

    fn memory_cleanup(device: &Self::Device) {
        MxBackend::<B>::memory_cleanup(device)
    }

    fn name(device: &Self::Device) -> String {
        Ad::<B, C>::name(device)
    }

    fn seed(device: &Self::Device, seed: u64) {
        MxBackend::<B>::seed(device, seed)
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        MxBackend::<B>::sync(device)
    }

    fn staging<'a, Iter>(data: Iter, device: &Self::Device)
    where
        Iter: Iterator<Item = &'a mut TensorData>,
    {
        MxBackend::<B>::staging(data, device)
    }

    fn supports_dtype(device: &Self::Device, dtype: DType) -> bool {
        MxBackend::<B>::supports_dtype(device, dtype)
    }

    fn dtype_usage(device: &Self::Device, dtype: DType) -> DTypeUsageSet {
        MxBackend::<B>::dtype_usage(device, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        MxBackend::<B>::device_count(type_id)
    }
}

/// For exactly those `B` for which burn-autodiff has it: all backends, or with its feature `distributed` those that
/// are a `DistributedBackend`.
impl<B: MxKernels, C: CheckpointStrategy> AutodiffBackend for MxAutodiff<B, C>
where
    Ad<B, C>: AutodiffBackend<InnerBackend = MxBackend<B>, FloatTensorPrimitive = Tracked<B>>,
{
    type InnerBackend = MxBackend<B>;
    type Gradients = <Ad<B, C> as AutodiffBackend>::Gradients;

    fn backward(tensor: FloatTensor<Self>) -> Self::Gradients {
        walk::backward(|| Ad::<B, C>::backward(tensor))
    }

    fn grad(
        tensor: &FloatTensor<Self>,
        grads: &Self::Gradients,
    ) -> Option<FloatTensor<MxBackend<B>>> {
        let grad = Ad::<B, C>::grad(tensor, grads)?;
        Some(for_optimizer(grad, tensor.primitive.meta))
    }

    fn grad_remove(
        tensor: &FloatTensor<Self>,
        grads: &mut Self::Gradients,
    ) -> Option<FloatTensor<MxBackend<B>>> {
        let grad = Ad::<B, C>::grad_remove(tensor, grads)?;
        Some(for_optimizer(grad, tensor.primitive.meta))
    }

    fn grad_replace(
        tensor: &FloatTensor<Self>,
        grads: &mut Self::Gradients,
        grad: FloatTensor<MxBackend<B>>,
    ) {
        Ad::<B, C>::grad_replace(tensor, grads, unmarked(grad))
    }

    /// The tensor outside of autodiff. A parameter keeps its master values there: optimizers come by here.
    fn inner(tensor: FloatTensor<Self>) -> FloatTensor<MxBackend<B>> {
        let mut inner = Ad::<B, C>::inner(tensor);
        inner.meta = inner.meta.after(Rule::LEAVES_AUTODIFF);
        inner
    }

    fn int_inner(tensor: IntTensor<Self>) -> IntTensor<MxBackend<B>> {
        tensor
    }

    fn bool_inner(tensor: BoolTensor<Self>) -> BoolTensor<MxBackend<B>> {
        tensor
    }

    fn q_inner(tensor: QuantizedTensor<Self>) -> QuantizedTensor<MxBackend<B>> {
        tensor
    }

    fn from_inner(tensor: FloatTensor<MxBackend<B>>) -> FloatTensor<Self> {
        tracked::<B>(tensor)
    }

    fn int_from_inner(tensor: IntTensor<MxBackend<B>>) -> IntTensor<Self> {
        unmarked(tensor)
    }

    fn bool_from_inner(tensor: BoolTensor<MxBackend<B>>) -> BoolTensor<Self> {
        unmarked(tensor)
    }

    fn q_from_inner(tensor: QuantizedTensor<MxBackend<B>>) -> QuantizedTensor<Self> {
        unmarked(tensor)
    }

    #[cfg(burn_mx_distributed)]
    fn set_distributed_params(
        tensor: FloatTensor<Self>,
        param_id: DistributedParamId,
    ) -> FloatTensor<Self> {
        Ad::<B, C>::set_distributed_params(tensor, param_id)
    }

    #[cfg(burn_mx_distributed)]
    fn distributed_params(tensor: &FloatTensor<Self>) -> Option<DistributedParams> {
        Ad::<B, C>::distributed_params(tensor)
    }

    #[cfg(burn_mx_distributed)]
    fn is_distributed(tensor: &FloatTensor<Self>) -> bool {
        Ad::<B, C>::is_distributed(tensor)
    }
}

/// A gradient that leaves autodiff. Every op on the gradient is an optimizer's arithmetic, and the gradient has the
/// specs of its parameter's device. Specs set by name and the label stay with the parameter: an optimizer's state, which
/// follows from gradients, outlives both.
fn for_optimizer<P: TensorMetadata>(grad: MxTensor<P>, parameter: Meta) -> MxTensor<P> {
    let parameter = parameter.unpin();
    let meta = Meta {
        specs: parameter.specs,
        rounded: grad.meta.rounded,
        ..Meta::default()
    };
    MxTensor::new(grad.inner, meta.after(Rule::OPTIMIZER_GRADIENT))
}

/// A float tensor that enters autodiff, as a leaf that requires no gradients.
fn tracked<B: MxKernels>(tensor: FloatTensor<MxBackend<B>>) -> Tracked<B> {
    Tracked::<B>::new(unmarked(tensor))
}

/// A tensor that enters autodiff, free of the optimizer's marks.
fn unmarked<P: TensorMetadata>(tensor: MxTensor<P>) -> MxTensor<P> {
    let meta = tensor.meta.after(Rule::ENTERS_AUTODIFF);
    let unpacked = tensor.unpacked();
    MxTensor::new(tensor.inner, meta).with_values_of(unpacked)
}

impl<B: MxKernels, C: CheckpointStrategy> TransactionOps<Self> for MxAutodiff<B, C> {
    async fn tr_execute(
        transaction: TransactionPrimitive<Self>,
    ) -> Result<TransactionPrimitiveData, ExecutionError> {
        let floats = transaction.read_floats.into_iter();
        MxBackend::<B>::tr_execute(TransactionPrimitive::new(
            floats.map(|tensor| tensor.primitive).collect(),
            transaction.read_qfloats,
            transaction.read_ints,
            transaction.read_bools,
        ))
        .await
    }
}
