//! `Portable`: a wrapper for backends that this crate does not know.

use core::fmt::Debug;
use core::marker::PhantomData;
use core::ops::Range;

use burn_backend::ops::{
    ActivationOps, AttentionModuleOptions, BoolTensorOps, ConvOptions, ConvTransposeOptions,
    DeformConv2dBackward, DeformConvOptions, FloatTensorOps, GridSampleOptions, IntTensorOps,
    InterpolateOptions, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward,
    MaxPool2dWithIndices, ModuleOps, QTensorOps, TransactionOps, TransactionPrimitive,
    TransactionPrimitiveData, UnfoldOptions,
};
use burn_backend::quantization::{QuantScheme, QuantizationParametersPrimitive};
use burn_backend::tensor::{
    BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor, QuantizedTensor,
};
use burn_backend::{
    Backend, BackendTypes, BoolDType, DType, DTypeUsageSet, Distribution, ExecutionError,
    FloatDType, IntDType, Scalar, Shape, Slice, TensorData, TensorPrimitive,
};

use super::delegate::tables::{
    averaging_gradient_ops, averaging_ops, bool_ops, float_creation_ops, float_kernel_ops,
    float_move_ops, float_new_ops, float_view_ops, indexed_pool_ops, int_ops, max_pool_ops,
    quantized_ops, struct_gradient_ops,
};
use super::delegate::{SeenTensors, delegate};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{KernelSet, PortableKernels};

/// Any Burn backend, for [`MxBackend`](crate::MxBackend) and [`MxAutodiff`](crate::MxAutodiff) to wrap:
/// `MxAutodiff<Portable<TheirBackend>>`.
///
/// A backend of another crate cannot get an `impl MxKernels` in yours: both the trait and the type would be foreign.
/// `Portable<B>` has this impl, and keeps the devices, tensors and ops of `B`. Quantization and emulated functions are computed in
/// host memory, with the bits of the native kernels; matrix products are `B`'s own.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_core::tensor::Tensor;
/// use burn_flex::{Flex, FlexDevice}; // a backend of any crate
/// use burn_mx::{MxBackend, MxDevice, Portable};
///
/// type B = MxBackend<Portable<Flex>>;
///
/// let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
/// let x = Tensor::<B, 2>::from_floats([[1.0, 0.3]], &device);
/// let w = Tensor::<B, 2>::from_floats([[1.0], [1.0]], &device);
/// assert_eq!(x.matmul(w).into_scalar(), 1.3125);
/// # Ok::<(), burn_mx::SpecsError>(())
/// ```
///
/// `W` is for the benches of this project, which count what the ops of `B` read and write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portable<B, W = Unwatched> {
    _inner: PhantomData<(B, W)>,
}

/// Looks on while the ops of `B` are called, and has the kernels of `Portable<B, Self>`.
#[doc(hidden)]
pub trait OpWatch<B: Backend>: Clone + Copy + Debug + Default + Send + Sync + 'static {
    /// The op and its operands, for the call of [`after`](Self::after).
    type Call;

    fn kernels() -> &'static dyn KernelSet<Portable<B, Self>>;

    /// Before the call of an op with these tensors.
    fn before(op: &'static str, tensors: &[SeenTensors<'_>]) -> Self::Call;

    /// After the call, whose results take this number of bytes.
    fn after(call: Self::Call, bytes: u64);
}

/// The watch of a [`Portable`] backend as programs use it: nothing is watched, and kernels go through host memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl<B: Backend> OpWatch<B> for Unwatched {
    type Call = ();

    fn kernels() -> &'static dyn KernelSet<Portable<B>> {
        &PortableKernels
    }

    fn before(_op: &'static str, _tensors: &[SeenTensors<'_>]) {}

    fn after((): (), _bytes: u64) {}
}

impl<B: Backend, W: OpWatch<B>> MxKernels for Portable<B, W> {
    fn kernels() -> &'static dyn KernelSet<Self> {
        W::kernels()
    }
}

impl<B: Backend, W: OpWatch<B>> BackendTypes for Portable<B, W> {
    type Device = B::Device;
    type FloatTensorPrimitive = B::FloatTensorPrimitive;
    type FloatElem = B::FloatElem;
    type IntTensorPrimitive = B::IntTensorPrimitive;
    type IntElem = B::IntElem;
    type BoolTensorPrimitive = B::BoolTensorPrimitive;
    type BoolElem = B::BoolElem;
    type QuantizedTensorPrimitive = B::QuantizedTensorPrimitive;
}

impl<B: Backend, W: OpWatch<B>> Backend for Portable<B, W> {
    fn memory_persistent_allocations<
        Output: Send,
        Input: Send,
        Func: Fn(Input) -> Output + Send,
    >(
        device: &Self::Device,
        input: Input,
        func: Func,
    ) -> Output {
        B::memory_persistent_allocations(device, input, func)
    }

    fn memory_cleanup(device: &Self::Device) {
        B::memory_cleanup(device)
    }

    fn seed(device: &Self::Device, seed: u64) {
        B::seed(device, seed)
    }

    fn staging<'a, Iter>(data: Iter, device: &Self::Device)
    where
        Iter: Iterator<Item = &'a mut TensorData>,
    {
        B::staging(data, device)
    }

    delegate! { B:
        fn ad_enabled(device: &Device<Self>) -> bool;
        fn name(device: &Device<Self>) -> String;
        fn sync(device: &Device<Self>) -> Result<(), ExecutionError>;
        fn supports_dtype(device: &Device<Self>, dtype: DType) -> bool;
        fn dtype_usage(device: &Device<Self>, dtype: DType) -> DTypeUsageSet;
        fn device_count(type_id: u16) -> usize;
    }
}

/// Methods that call `B`'s of the same name, listed by signature.
macro_rules! forward {
    (@ $name:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        delegate! { watched W, B: fn $name($($arg: $ty),*) -> $ret; }
    };
    ($($args:tt -> $ret:ty: $($name:ident)*;)*) => { $($( forward!(@ $name $args $ret); )*)* };
}

type F<B> = FloatTensor<B>;
type I<B> = IntTensor<B>;
type L<B> = BoolTensor<B>;
type Q<B> = QuantizedTensor<B>;
type D<B> = Device<B>;

impl<B: Backend, W: OpWatch<B>> FloatTensorOps<Self> for Portable<B, W> {
    async fn float_into_data(tensor: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::float_into_data(tensor).await
    }

    delegate! { B:
        fn float_device(tensor: &FloatTensor<Self>) -> Device<Self>;
        fn float_is_require_grad(tensor: &FloatTensor<Self>) -> bool;
    }

    float_view_ops!(delegate! watched W, B:);
    float_kernel_ops!(delegate! watched W, B:);
    float_move_ops!(delegate! watched W, B:);
    float_creation_ops!(delegate! watched W, B:);
    float_new_ops!(delegate! watched W, B:);

    forward! {
        (a: TensorData, b: &D<B>) -> F<B>: float_from_data;
        (a: Shape, b: Scalar, c: &D<B>, d: FloatDType) -> F<B>: float_full;
        (a: F<B>, b: &D<B>) -> F<B>: float_to_device;
        (a: F<B>, b: F<B>) -> F<B>: float_add float_sub float_mul float_div float_remainder float_matmul
            float_powf float_atan2;
        (a: F<B>, b: Scalar) -> F<B>: float_add_scalar float_clamp_min float_clamp_max float_sub_scalar
            float_mul_scalar float_div_scalar float_remainder_scalar float_powi_scalar float_powi_scalar_impl
            float_powf_scalar float_powf_scalar_impl;
        (a: F<B>, b: Scalar, c: Scalar) -> F<B>: float_clamp;
        (a: F<B>, b: F<B>, c: usize) -> F<B>: float_cross;
        (a: F<B>) -> F<B>: float_recip float_transpose float_detach float_sum float_prod float_mean float_exp
            float_log float_log1p float_sqrt float_cos float_sin float_tan float_cosh float_sinh float_tanh
            float_acos float_acosh float_asin float_asinh float_atan float_atanh float_round float_floor
            float_ceil float_trunc float_erf float_max float_min float_max_abs;
        (a: usize, b: F<B>, c: I<B>, d: F<B>) -> F<B>: float_scatter_add;
        (a: F<B>, b: I<B>, c: F<B>, d: IndexingUpdateOp) -> F<B>: float_scatter_nd;
        (a: F<B>, b: usize, c: I<B>, d: F<B>) -> F<B>: float_select_add;
        (a: F<B>, b: F<B>, c: BoolDType) -> L<B>: float_not_equal;
        (a: F<B>, b: Scalar, c: BoolDType) -> L<B>: float_not_equal_elem;
        (a: F<B>, b: bool) -> F<B>: float_set_require_grad;
        (a: F<B>, b: usize) -> F<B>: float_sum_dim float_prod_dim float_mean_dim float_cumsum float_cumprod
            float_max_abs_dim;
        (a: F<B>, b: FloatDType) -> F<B>: float_cast;
        (a: F<B>, b: I<B>) -> F<B>: float_powi;
        (a: F<B>, b: BoolDType) -> L<B>: float_any float_all;
        (a: F<B>, b: usize, c: BoolDType) -> L<B>: float_any_dim float_all_dim;
        (a: F<B>, b: F<B>, c: GridSampleOptions) -> F<B>: float_grid_sample_2d;
    }
}

impl<B: Backend, W: OpWatch<B>> IntTensorOps<Self> for Portable<B, W> {
    async fn int_into_data(tensor: IntTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::int_into_data(tensor).await
    }

    delegate! { B: fn int_device(tensor: &IntTensor<Self>) -> Device<Self>; }

    int_ops!(delegate! watched W, B:);

    forward! {
        (a: TensorData, b: &D<B>) -> I<B>: int_from_data;
        (a: I<B>, b: &D<B>) -> I<B>: int_to_device;
        (a: I<B>, b: FloatDType) -> F<B>: int_into_float;
    }
}

impl<B: Backend, W: OpWatch<B>> BoolTensorOps<Self> for Portable<B, W> {
    async fn bool_into_data(tensor: BoolTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::bool_into_data(tensor).await
    }

    async fn bool_argwhere(tensor: BoolTensor<Self>, out_dtype: IntDType) -> IntTensor<Self> {
        B::bool_argwhere(tensor, out_dtype).await
    }

    delegate! { B: fn bool_device(tensor: &BoolTensor<Self>) -> Device<Self>; }

    bool_ops!(delegate! watched W, B:);

    forward! {
        (a: TensorData, b: &D<B>) -> L<B>: bool_from_data;
        (a: L<B>, b: FloatDType) -> F<B>: bool_into_float;
        (a: L<B>, b: &D<B>) -> L<B>: bool_to_device;
    }
}

impl<B: Backend, W: OpWatch<B>> ModuleOps<Self> for Portable<B, W> {
    delegate! { B: fn has_ctc_loss_backward() -> bool; }

    averaging_ops!(delegate! watched W, B:);
    averaging_gradient_ops!(delegate! watched W, B:);
    max_pool_ops!(delegate! watched W, B:);
    indexed_pool_ops!(delegate! structs watched W, B:);
    struct_gradient_ops!(delegate! structs watched W, B:);

    forward! {
        (a: F<B>, b: I<B>) -> F<B>: embedding;
        (a: F<B>, b: F<B>, c: I<B>) -> F<B>: embedding_backward;
        (a: F<B>, b: F<B>, c: Option<F<B>>) -> F<B>: linear;
        (a: F<B>, b: F<B>) -> F<B>: linear_x_backward linear_weight_backward adaptive_avg_pool1d_backward;
        (a: F<B>) -> F<B>: linear_bias_backward;
        (a: F<B>, b: F<B>, c: Option<F<B>>, d: ConvOptions<1>) -> F<B>: conv1d;
        (a: F<B>, b: F<B>, c: F<B>, d: ConvOptions<1>) -> F<B>: conv1d_x_backward conv1d_weight_backward;
        (a: F<B>, b: F<B>, c: F<B>) -> F<B>: conv1d_bias_backward conv2d_bias_backward conv3d_bias_backward
            conv_transpose1d_bias_backward conv_transpose2d_bias_backward conv_transpose3d_bias_backward;
        (a: F<B>, b: F<B>, c: Option<F<B>>, d: ConvOptions<2>) -> F<B>: conv2d;
        (a: F<B>, b: F<B>, c: F<B>, d: ConvOptions<2>) -> F<B>: conv2d_x_backward conv2d_weight_backward;
        (a: F<B>, b: F<B>, c: F<B>, d: Option<F<B>>, e: Option<F<B>>, f: DeformConvOptions<2>) -> F<B>:
            deform_conv2d;
        (a: F<B>, b: F<B>, c: Option<F<B>>, d: ConvOptions<3>) -> F<B>: conv3d;
        (a: F<B>, b: F<B>, c: F<B>, d: ConvOptions<3>) -> F<B>: conv3d_x_backward conv3d_weight_backward;
        (a: F<B>, b: F<B>, c: Option<F<B>>, d: ConvTransposeOptions<1>) -> F<B>: conv_transpose1d;
        (a: F<B>, b: F<B>, c: ConvTransposeOptions<1>) -> F<B>: conv_transpose1d_x_backward;
        (a: F<B>, b: F<B>, c: F<B>, d: ConvTransposeOptions<1>) -> F<B>: conv_transpose1d_weight_backward;
        (a: F<B>, b: F<B>, c: Option<F<B>>, d: ConvTransposeOptions<2>) -> F<B>: conv_transpose2d;
        (a: F<B>, b: F<B>, c: ConvTransposeOptions<2>) -> F<B>: conv_transpose2d_x_backward;
        (a: F<B>, b: F<B>, c: F<B>, d: ConvTransposeOptions<2>) -> F<B>: conv_transpose2d_weight_backward;
        (a: F<B>, b: F<B>, c: Option<F<B>>, d: ConvTransposeOptions<3>) -> F<B>: conv_transpose3d;
        (a: F<B>, b: F<B>, c: ConvTransposeOptions<3>) -> F<B>: conv_transpose3d_x_backward;
        (a: F<B>, b: F<B>, c: F<B>, d: ConvTransposeOptions<3>) -> F<B>: conv_transpose3d_weight_backward;
        (a: F<B>, b: [usize; 2], c: UnfoldOptions) -> F<B>: unfold4d;
        (a: F<B>, b: F<B>, c: usize, d: usize, e: usize, f: bool, g: bool) -> F<B>: avg_pool1d_backward;
        (a: F<B>, b: F<B>, c: F<B>, d: Option<L<B>>, e: Option<F<B>>, f: AttentionModuleOptions) -> F<B>:
            attention;
        (a: F<B>, b: F<B>, c: Option<F<B>>, d: f64) -> F<B>: layer_norm;
        (a: F<B>, b: I<B>, c: I<B>, d: I<B>, e: usize) -> F<B>: ctc_loss;
        (a: F<B>, b: I<B>, c: I<B>, d: I<B>, e: F<B>, f: usize) -> F<B>: ctc_loss_backward;
        (a: F<B>, b: usize, c: Option<usize>) -> (F<B>, F<B>): rfft;
        (a: F<B>, b: F<B>, c: usize, d: Option<usize>) -> F<B>: irfft;
    }
}

impl<B: Backend, W: OpWatch<B>> ActivationOps<Self> for Portable<B, W> {
    forward! {
        (a: F<B>, b: Scalar) -> F<B>: leaky_relu;
        (a: F<B>) -> F<B>: relu gelu sigmoid log_sigmoid;
        (a: F<B>, b: F<B>) -> F<B>: relu_backward prelu gelu_backward sigmoid_backward log_sigmoid_backward;
        (a: F<B>, b: Scalar, c: Scalar) -> F<B>: hard_sigmoid;
        (a: F<B>, b: usize) -> F<B>: softmax log_softmax softmin;
    }
}

/// Arithmetic of quantized tensors is Burn's default: by way of floats.
impl<B: Backend, W: OpWatch<B>> QTensorOps<Self> for Portable<B, W> {
    async fn q_into_data(tensor: QuantizedTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::q_into_data(tensor).await
    }

    fn quantize(
        tensor: FloatTensor<Self>,
        scheme: &QuantScheme,
        qparams: QuantizationParametersPrimitive<Self>,
    ) -> QuantizedTensor<Self> {
        let scales = qparams.scales;
        B::quantize(tensor, scheme, QuantizationParametersPrimitive { scales })
    }

    fn q_matmul(lhs: TensorPrimitive<Self>, rhs: TensorPrimitive<Self>) -> TensorPrimitive<Self> {
        let inner = |tensor: TensorPrimitive<Self>| match tensor {
            TensorPrimitive::Float(tensor) => TensorPrimitive::Float(tensor),
            TensorPrimitive::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
        };
        match B::q_matmul(inner(lhs), inner(rhs)) {
            TensorPrimitive::Float(tensor) => TensorPrimitive::Float(tensor),
            TensorPrimitive::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
        }
    }

    delegate! { B:
        fn q_device(tensor: &QuantizedTensor<Self>) -> Device<Self>;
        fn q_is_require_grad(tensor: &QuantizedTensor<Self>) -> bool;
    }

    quantized_ops!(delegate! watched W, B:);

    forward! {
        (a: TensorData, b: &D<B>) -> Q<B>: q_from_data;
        (a: F<B>, b: &QuantScheme) -> Q<B>: quantize_dynamic;
        (a: Q<B>, b: FloatDType) -> F<B>: dequantize;
        (a: Q<B>, b: &D<B>) -> Q<B>: q_to_device;
        (a: Q<B>, b: bool) -> Q<B>: q_set_require_grad;
    }
}

impl<B: Backend, W: OpWatch<B>> TransactionOps<Self> for Portable<B, W> {
    async fn tr_execute(
        transaction: TransactionPrimitive<Self>,
    ) -> Result<TransactionPrimitiveData, ExecutionError> {
        let TransactionPrimitive {
            read_floats,
            read_qfloats,
            read_ints,
            read_bools,
            ..
        } = transaction;
        let inner =
            TransactionPrimitive::<B>::new(read_floats, read_qfloats, read_ints, read_bools);
        B::tr_execute(inner).await
    }
}
