//! Delegation to another backend.
//!
//! [`delegate!`] takes a table of signatures, copied from Burn's traits. Each line becomes a method that calls the
//! method of the same name. Calls to the wrapped backend unwrap the arguments and wrap the result. Calls to a backend
//! with the same tensors change nothing. The impls of [`Unwrap`] and [`Wrap`] define once how each type is unwrapped
//! and wrapped.

pub(crate) mod tables;

use core::any::Any;
use core::ops::Range;

use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
    DeformConvOptions, GridSampleOptions, InterpolateOptions, MaxPool1dBackward,
    MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices, UnfoldOptions,
};
use burn_backend::quantization::QuantScheme;
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{
    Backend, BoolDType, Distribution, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
    TensorMetadata, TensorPrimitive,
};

use crate::backend::MxBackend;
use crate::tensor::device::MxDevice;
use crate::tensor::{Meta, MxTensor};
use burn_mx_kernels::MxKernels;

/// An argument of a delegated method.
pub(crate) trait Unwrap {
    type Inner;
    /// The argument's contribution to the meta of the result.
    fn meta(&self) -> Option<Meta>;
    fn unwrap(self) -> Self::Inner;
}

/// A result of a delegated method.
pub(crate) trait Wrap {
    type Inner;
    fn wrap(inner: Self::Inner, meta: Meta) -> Self;
}

impl<P> Unwrap for MxTensor<P> {
    type Inner = P;
    fn meta(&self) -> Option<Meta> {
        Some(self.meta)
    }
    fn unwrap(self) -> P {
        self.inner
    }
}

impl<P> Unwrap for Option<MxTensor<P>> {
    type Inner = Option<P>;
    fn meta(&self) -> Option<Meta> {
        self.as_ref().map(|tensor| tensor.meta)
    }
    fn unwrap(self) -> Option<P> {
        self.map(|tensor| tensor.inner)
    }
}

impl<P> Unwrap for Vec<MxTensor<P>> {
    type Inner = Vec<P>;
    fn meta(&self) -> Option<Meta> {
        self.iter().map(|tensor| tensor.meta).reduce(Meta::merged)
    }
    fn unwrap(self) -> Vec<P> {
        self.into_iter().map(|tensor| tensor.inner).collect()
    }
}

/// The device of a tensor that an op creates.
impl<'a, D> Unwrap for &'a MxDevice<D> {
    type Inner = &'a D;
    fn meta(&self) -> Option<Meta> {
        Some(self.meta.created_constant())
    }
    fn unwrap(self) -> &'a D {
        &self.inner
    }
}

impl<B: MxKernels> Unwrap for TensorPrimitive<MxBackend<B>> {
    type Inner = TensorPrimitive<B>;
    fn meta(&self) -> Option<Meta> {
        match self {
            Self::Float(tensor) => Some(tensor.meta),
            Self::QFloat(tensor) => Some(tensor.meta),
        }
    }
    fn unwrap(self) -> TensorPrimitive<B> {
        match self {
            Self::Float(tensor) => TensorPrimitive::Float(tensor.inner),
            Self::QFloat(tensor) => TensorPrimitive::QFloat(tensor.inner),
        }
    }
}

/// The tensors of an argument or a result.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenTensors<'a> {
    /// The bytes that the numbers of all of them take.
    pub bytes: u64,
    /// The tensor, if the argument is one tensor.
    pub tensor: Option<&'a dyn Any>,
}

impl<'a> SeenTensors<'a> {
    /// One tensor.
    pub fn of<P: TensorMetadata + 'static>(tensor: &'a P) -> Self {
        Self {
            bytes: (tensor.shape().num_elements() * tensor.dtype().size()) as u64,
            tensor: Some(tensor),
        }
    }
}

/// A tensor, as a kind of [`OpValue`].
pub(crate) struct OneTensor;

/// Tensors in an option, a vector, a pair or a struct, as a kind of [`OpValue`].
pub(crate) struct SomeTensors;

/// A value without tensors, as a kind of [`OpValue`].
pub(crate) struct NoTensor;

/// A reference, whose numbers the op does not read, as a kind of [`OpValue`].
pub(crate) struct Reference;

/// An argument or a result of an op. The kind tells the impls apart, as no two of them have the same.
pub(crate) trait OpValue<Kind> {
    fn seen(&self) -> SeenTensors<'_>;
}

impl<P: TensorMetadata + 'static> OpValue<OneTensor> for P {
    fn seen(&self) -> SeenTensors<'_> {
        SeenTensors::of(self)
    }
}

/// The tensors of one value, as a function for the macro, in which the kind is inferred.
pub(crate) fn seen<K, V: OpValue<K>>(value: &V) -> SeenTensors<'_> {
    value.seen()
}

/// The bytes of several tensors.
fn seen_together<'a, P: TensorMetadata + 'static>(
    tensors: impl IntoIterator<Item = &'a P>,
) -> SeenTensors<'a> {
    SeenTensors {
        bytes: tensors.into_iter().map(|tensor| tensor.seen().bytes).sum(),
        tensor: None,
    }
}

impl<P: TensorMetadata + 'static> OpValue<SomeTensors> for Option<P> {
    fn seen(&self) -> SeenTensors<'_> {
        seen_together(self)
    }
}

impl<P: TensorMetadata + 'static> OpValue<SomeTensors> for Vec<P> {
    fn seen(&self) -> SeenTensors<'_> {
        seen_together(self)
    }
}

impl<P: TensorMetadata + 'static, Q: TensorMetadata + 'static> OpValue<SomeTensors> for (P, Q) {
    fn seen(&self) -> SeenTensors<'_> {
        SeenTensors {
            bytes: self.0.seen().bytes + self.1.seen().bytes,
            tensor: None,
        }
    }
}

impl<T: ?Sized> OpValue<Reference> for &T {
    fn seen(&self) -> SeenTensors<'_> {
        SeenTensors::default()
    }
}

macro_rules! plain_values {
    (values $($value:ty),*; references $($reference:ty),*) => {
        $(
            impl OpValue<NoTensor> for $value {
                fn seen(&self) -> SeenTensors<'_> {
                    SeenTensors::default()
                }
            }
        )*
        plain_values!($($value),*, $($reference),*);
    };
    ($($ty:ty),*) => { $(
        impl Unwrap for $ty {
            type Inner = Self;
            fn meta(&self) -> Option<Meta> {
                None
            }
            fn unwrap(self) -> Self {
                self
            }
        }
    )* };
}

plain_values!(
    values usize,
    bool,
    f64,
    Scalar,
    Shape,
    TensorData,
    Distribution,
    FloatDType,
    IntDType,
    BoolDType,
    [usize; 2],
    Option<usize>,
    Range<i64>,
    IndexingUpdateOp,
    GridSampleOptions,
    InterpolateOptions,
    ConvOptions<1>,
    ConvOptions<2>,
    ConvOptions<3>,
    ConvTransposeOptions<1>,
    ConvTransposeOptions<2>,
    ConvTransposeOptions<3>,
    AttentionModuleOptions,
    DeformConvOptions<2>,
    UnfoldOptions;
    references &[usize], &[Slice], &QuantScheme
);

impl<P: TensorMetadata> Wrap for MxTensor<P> {
    type Inner = P;
    fn wrap(inner: P, meta: Meta) -> Self {
        Self::new(inner, meta)
    }
}

impl<P: TensorMetadata, Q: TensorMetadata> Wrap for (MxTensor<P>, MxTensor<Q>) {
    type Inner = (P, Q);
    fn wrap((first, second): (P, Q), meta: Meta) -> Self {
        (MxTensor::new(first, meta), MxTensor::new(second, meta))
    }
}

impl<B: MxKernels> Wrap for TensorPrimitive<MxBackend<B>> {
    type Inner = TensorPrimitive<B>;
    fn wrap(inner: TensorPrimitive<B>, meta: Meta) -> Self {
        match inner {
            TensorPrimitive::Float(tensor) => Self::Float(MxTensor::new(tensor, meta)),
            TensorPrimitive::QFloat(tensor) => Self::QFloat(MxTensor::new(tensor, meta)),
        }
    }
}

/// A struct of tensors of another backend with the same tensors.
pub(crate) trait SameTensors<T> {
    fn same_tensors(self) -> T;
}

macro_rules! same_tensors {
    ($($ty:ident { $($field:ident),* })*) => { $(
        impl<A, B> SameTensors<$ty<B>> for $ty<A>
        where
            A: Backend,
            B: Backend<
                FloatTensorPrimitive = A::FloatTensorPrimitive,
                IntTensorPrimitive = A::IntTensorPrimitive,
            >,
        {
            fn same_tensors(self) -> $ty<B> {
                $ty { $($field: self.$field),* }
            }
        }

        impl<B: Backend> OpValue<SomeTensors> for $ty<B> {
            fn seen(&self) -> SeenTensors<'_> {
                SeenTensors {
                    bytes: [$(seen(&self.$field).bytes),*].into_iter().sum(),
                    tensor: None,
                }
            }
        }
    )* };
}

same_tensors! {
    MaxPool1dWithIndices { output, indices }
    MaxPool1dBackward { x_grad }
    MaxPool2dWithIndices { output, indices }
    MaxPool2dBackward { x_grad }
    DeformConv2dBackward { x_grad, offset_grad, weight_grad, mask_grad, bias_grad }
}

macro_rules! structs_of_tensors {
    ($($ty:ident { $($field:ident),* })*) => { $(
        impl<B: MxKernels> Wrap for $ty<MxBackend<B>> {
            type Inner = $ty<B>;
            fn wrap(inner: $ty<B>, meta: Meta) -> Self {
                Self { $($field: MxTensor::new(inner.$field, meta)),* }
            }
        }
    )* };
}

structs_of_tensors! {
    MaxPool1dWithIndices { output, indices }
    MaxPool2dWithIndices { output, indices }
}

/// Methods that call the method of the same name of another backend.
///
/// `unwrapped, RULE:` calls the wrapped backend `B` on what the arguments wrap; the rule by which the meta of the result
/// comes from theirs is [`Meta::computed`], [`Meta::moved`] or [`Meta::viewed`]. `TYPE:` calls a backend that has the
/// same tensor types, and `structs TYPE:` also turns the result, a struct of that backend's, by [`SameTensors`].
///
/// `watched W,` before the type calls the methods of the [`OpWatch`](super::portable::OpWatch) `W` around the op.
macro_rules! delegate {
    (structs watched $watch:ty, $to:ty: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => { $(
        fn $name($($arg: $ty),*) -> $ret {
            let result = $crate::backend::delegate::delegate!(@watched $watch, $to, $name($($arg),*));
            $crate::backend::delegate::SameTensors::same_tensors(result)
        }
    )* };
    (watched $watch:ty, $to:ty: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => { $(
        fn $name($($arg: $ty),*) -> $ret {
            $crate::backend::delegate::delegate!(@watched $watch, $to, $name($($arg),*))
        }
    )* };
    (@watched $watch:ty, $to:ty, $name:ident($($arg:ident),*)) => {{
        let seen = [$($crate::backend::delegate::seen(&$arg)),*];
        let call = <$watch>::before(stringify!($name), &seen);
        let result = <$to>::$name($($arg),*);
        <$watch>::after(call, $crate::backend::delegate::seen(&result).bytes);
        result
    }};
    (unwrapped, $rule:ident: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => { $(
        fn $name($($arg: $ty),*) -> $ret {
            let meta = $crate::tensor::Meta::$rule([$($crate::backend::delegate::Unwrap::meta(&$arg)),*]);
            let inner = B::$name($($crate::backend::delegate::Unwrap::unwrap($arg)),*);
            $crate::backend::delegate::Wrap::wrap(inner, meta)
        }
    )* };
    (structs $to:ty: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => { $(
        fn $name($($arg: $ty),*) -> $ret {
            $crate::backend::delegate::SameTensors::same_tensors(<$to>::$name($($arg),*))
        }
    )* };
    ($to:ty: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => { $(
        fn $name($($arg: $ty),*) -> $ret {
            <$to>::$name($($arg),*)
        }
    )* };
}

pub(crate) use delegate;
