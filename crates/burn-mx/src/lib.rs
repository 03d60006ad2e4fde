//! Microscaling (MX) number formats for the [Burn](https://burn.dev) deep-learning framework.
//!
//! [`MxBackend<B>`] decorates a Burn backend so that the operands of matrix products are fake-quantized to MX
//! formats and elementwise ops run in an emulated bfloat or fp format; [`MxAutodiff<B>`] trains on it. Models
//! need no change: the specs travel with the device, then with every tensor.
//!
//! ```
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
//! * Gradients and parameters that leave autodiff are an optimizer's: computed in untouched full precision.
//! * Where no specs are set, everything is exactly the wrapped backend's.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "checkpoint")]
pub use burn_mx_checkpoint as checkpoint;
#[cfg(feature = "clap")]
pub use burn_mx_core::MxArgs;
pub use burn_mx_core::{
    AsResolvedSpecs, AttentionBackward, AttentionSpecs, ColumnChoice, ColumnRanking, ColumnScore,
    Delta, ElementwiseScope, Exemptions, FrozenWeight, FrozenWeightError, GradientOperands,
    Hadamard, HadamardSigns, HotColumns, HotTreatment, MxAutodiff, MxBackend, MxDevice, MxKernels,
    MxSpecs, MxTensor, ParseColumnRankingError, ParseElementwiseScopeError,
    ParseGradientOperandsError, ParseGroupError, ParseHadamardError, ParsePointFormatError,
    ParseQatBackwardError, ParseValueRangeError, PointFormat, Portable, QatBackward, QatConfig,
    Recipe, ResolvedSpecs, RowSums, Slot, SlotFormat, SpecsError, SpecsField, ToResolvedSpecs,
    ValueAxis, ValueRange, attention_scope, hooks, process,
};
#[cfg(feature = "record")]
pub use burn_mx_cost as cost;
#[cfg(feature = "optim")]
pub use burn_mx_optim as optim;
#[cfg(feature = "ptq")]
pub use burn_mx_ptq as ptq;
#[cfg(feature = "record")]
pub use burn_mx_record as record;
#[cfg(feature = "record")]
pub use burn_mx_record::diagnose;
pub use microscaling::{
    BlockFormat, Dialect, ElementFormat, FloatFormat, FormatError, FusedGroup, FusedLayers,
    FusedLayersError, FusedNames, Headroom, NonFinite, OperandQuantization, OuterScale, PackError,
    Packed, PackedView, ParseFormatError, RandomHadamard, RandomStream, Rounder, Rounding,
    ScaleFormat, ScaleMode, SharedExpMethod, Shifts, Signs, SpecialCodes, Statistics, StoredType,
    SubScales, Subnormals, WeightLayout,
};
pub use microscaling_product::{Accumulation, Accumulator, Chip, ProductPath, Side};

/// Helpers at the level of modules and tensors: specs by parameter path, full-precision pieces, roles.
pub mod module {
    #[cfg(feature = "checkpoint")]
    pub use burn_mx_checkpoint::{load_checkpoint, save_checkpoint};
    pub use burn_mx_module::{
        Adapter, ColumnRanks, ColumnRanksError, ColumnRecord, ColumnWatch, ExemptError, FusedError,
        LerpError, Limit, LoraConfig, Merged, MxModelOps, MxTensorOps, PackedLinear,
        PackedLinearError, PathError, Phase, QuantizedError, Schedule, ScheduleError, Stage,
        Stages, as_activation, as_weight, clear_specs_at, distillation_loss, emulated,
        exempt_layers, full_precision, fused_linear, gelu_first_order, hidden_state_loss, label_of,
        label_parameters, layers, lerp, load_adapters, log_sum_exp, master, mish, pack,
        packed_of_data, quantized_data, quantized_tensor, quantized_weights, rms_norm,
        set_exemptions, set_exemptions_at, set_recipe_layers, set_specs, set_specs_at,
        share_tensor_scales, silu, specs_of, unpack, with_specs,
    };
    #[cfg(feature = "record")]
    pub use burn_mx_record::scope;
    #[cfg(feature = "train")]
    pub use burn_mx_record::{Distillation, StagedBatcher, StagedOptimizer, Teacher};
}
