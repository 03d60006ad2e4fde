//! The decorator of [burn-mx](https://docs.rs/burn-mx): Microscaling (MX) number formats for the [Burn](https://burn.dev)
//! deep-learning framework. Programs depend on `burn-mx`, which has all of this and the helpers for modules.
//!
//! [`MxBackend<B>`] decorates a Burn backend so that the operands of matrix products are fake-quantized to MX
//! formats and elementwise ops run in an emulated bfloat or fp format; [`MxAutodiff<B>`] trains on it. Models
//! need no change: the specs travel with the device, then with every tensor.
//!
//! ```
//! # extern crate burn_mx_core as burn_mx;
//! use burn_core::tensor::{Tensor, backend::AutodiffBackend};
//! use burn_flex::{Flex, FlexDevice};
//! use burn_mx::{MxAutodiff, MxDevice, MxSpecs};
//!
//! type B = MxAutodiff<Flex>; // was: Autodiff<Flex>
//!
//! let specs = MxSpecs::mxfp8_e4m3().resolve()?;
//! let device = MxDevice::new(FlexDevice, &specs).expect("resolved specs"); // was: FlexDevice
//!
//! let x = Tensor::<B, 2>::from_floats([[1.0, 0.3]], &device);
//! let w = Tensor::<B, 2>::from_floats([[1.0], [1.0]], &device).require_grad();
//! let y = x.matmul(w.clone());
//! // 0.3 is 0.3125 as an element of a block with scale 2^-8: fp8_e4m3 has 3 mantissa bits.
//! assert_eq!(y.clone().into_scalar(), 1.3125);
//! let grads = y.backward();
//! assert_eq!(w.grad(&grads).unwrap().into_data().to_vec::<f32>()?, [1.0, 0.3125]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which number is rounded, and how
//!
//! The rules follow the PyTorch reference emulation library for MX formats. The formats follow the [OCP MX
//! specification v1.0](https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf), which
//! the crate [`microscaling`] implements without Burn.
//!
//! * A product first rounds its operands to the elementwise format. Then it quantizes each operand along the summed
//!   axis, to the format of the operand's [`Slot`]. The result is rounded to the elementwise format.
//! * An elementwise op rounds every tensor operand, computes in `f32` on the wrapped backend, and rounds the result.
//!   relu, gelu, sigmoid, softmax and layer norm follow the reference's formulas. If Burn composes an op of smaller
//!   ops, burn-mx emulates the smaller ops.
//! * Data movement, comparison, minimum and maximum round nothing.
//! * Tensors may be of any float type. An emulated op converts `f16`, `bf16` and `f64` operands to `f32`, which may
//!   round `f64`, and computes in `f32`. The result is rounded to the tensors' own type, to nearest even. Operands of
//!   different float types are refused.
//! * Gradients and parameters that leave autodiff belong to an optimizer, which computes in full precision.
//! * Without specs, results equal the wrapped backend's.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod autodiff;
mod backend;
pub mod hooks;
mod phase;
pub mod process;
mod semantics;
mod specs;
mod tensor;
mod warnings;

pub use autodiff::MxAutodiff;
pub use backend::MxBackend;
pub use backend::portable::Portable;
pub use backend::tensor_ops::{MxModelOps, MxTensorOps, Packing, TensorChange};
pub use burn_mx_kernels::{Function, MxKernels, from_f32, to_f32};
pub use semantics::attention::scope::attention_scope;
#[cfg(feature = "clap")]
pub use specs::args::MxArgs;
pub use specs::{
    AsResolvedSpecs, AttentionBackward, AttentionSpecs, ColumnChoice, ColumnRanking, ColumnScore,
    Delta, ElementwiseScope, Exemptions, GradientOperands, Hadamard, HadamardSigns, HotColumns,
    HotTreatment, MxSpecs, ParseColumnRankingError, ParseElementwiseScopeError,
    ParseGradientOperandsError, ParseGroupError, ParseHadamardError, ParsePointFormatError,
    ParseQatBackwardError, ParseValueRangeError, PointFormat, QatBackward, QatConfig, Recipe,
    ResolvedSpecs, RowSums, Slot, SlotFormat, SpecsError, SpecsField, StaticInput, ToResolvedSpecs,
    ValueAxis, ValueRange,
};
pub use tensor::MxTensor;
pub use tensor::device::MxDevice;
pub use tensor::frozen_weight::{FrozenWeight, FrozenWeightError};
pub use tensor::weight_cache::Unpacked;

/// Items for the other crates of the project.
#[doc(hidden)]
pub mod internal {
    pub use crate::backend::delegate::SeenTensors;
    pub use crate::backend::portable::{OpWatch, Unwatched};
    pub use crate::specs::suggestion;
    pub use crate::warnings::{unset_on_purpose, warn};
    pub use burn_mx_kernels::internal::AdamWStep;
}
