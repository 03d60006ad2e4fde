//! The fields of [`MxSpecs`], as a user writes them.

use microscaling::{Accumulation, Headroom, Rounding, ScaleMode, SharedExpMethod};
use serde::Serialize;

use super::json::{is_default, is_true};
use super::{GradientOperands, Hadamard, Slot, SlotFormat};

/// Which number formats the emulation uses, and where.
///
/// Block formats apply to the operands of matrix products and convolutions (`*_elem_format`, one slot for each role,
/// see [`Slot`]). A bfloat or fp format applies to elementwise operations and to the results of products. The default
/// sets no field and emulates nothing.
///
/// A slot holds the element of an MX block, such as `fp8_e4m3`, or a whole [block
/// format](microscaling::BlockFormat), such as `mx6`, `nvfp4` or `mx(element=int4,block_size=16)`.
/// `block_size`, `scale_bits`, `scale_mode`, `shared_exp_method` and `mx_flush_fp32_subnorms` shape the
/// MX blocks of the slots that name an element.
///
/// Only [`resolve`](Self::resolve) checks the fields.
///
/// In JSON every field may be missing, and unknown fields are errors. `null` is the default of any field but a boolean
/// or the seed. `""` and `"none"` also unset formats and the roundings after `round`. The reference's `round_m` and
/// `custom_cuda` change no number: they are read, dropped and reported once to the log.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_mx::MxSpecs;
///
/// let specs = MxSpecs::from_json(
///     r#"{ "w_elem_format": "fp6_e3m2", "a_elem_format": "int8", "block_size": 32, "fp": 16 }"#,
/// )?;
/// assert_eq!(specs.resolve()?.to_string(), "w fp6_e3m2, a int8, block 32, fp16");
/// # Ok::<(), burn_mx::SpecsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct MxSpecs {
    /// Bits of the scale that a block shares, 1 to 8; 0, the default, means 8 (E8M0 of OCP MX
    /// v1.0).
    pub scale_bits: u32,
    /// Format of weights in the forward pass. Default: not quantized.
    pub w_elem_format: Option<SlotFormat>,
    /// Format of activations in the forward pass. Default: not quantized.
    pub a_elem_format: Option<SlotFormat>,
    /// Format of weights in the backward pass. Default: `w_elem_format`.
    pub w_elem_format_bp: Option<SlotFormat>,
    /// Format of saved activations in the backward pass. Default: `a_elem_format`.
    pub a_elem_format_bp: Option<SlotFormat>,
    /// Format of the output's gradient where a weight's gradient is computed. Default:
    /// `a_elem_format`.
    pub a_elem_format_bp_ex: Option<SlotFormat>,
    /// Format of the output's gradient where an input's gradient is computed. Default:
    /// `a_elem_format`.
    pub a_elem_format_bp_os: Option<SlotFormat>,
    /// Whether a block of float32 subnormals becomes zero. Default: false.
    pub mx_flush_fp32_subnorms: bool,
    /// Whether a block shares the exponent of its largest element (`max`, the default), or every
    /// element is its own block (`none`).
    pub shared_exp_method: SharedExpMethod,
    /// The rule that computes a block's scale. Default: `floor`, the rule of OCP MX v1.0. Beyond the reference,
    /// therefore not written to JSON at its default.
    #[serde(skip_serializing_if = "is_default")]
    pub scale_mode: ScaleMode,
    /// Elements of an MX block; 0, the default, makes the whole axis one block. The concrete formats of
    /// OCP MX v1.0 have 32.
    pub block_size: usize,
    /// Total bits of the elementwise format with 8 exponent bits: 10 to 32, 16 is bfloat16. 0, the default, is off; 32
    /// is float32 itself and the same as off, with any `bfloat_subnorms`. Excludes `fp`.
    pub bfloat: u32,
    /// Total bits of the elementwise format with 5 exponent bits: 7 to 29, 16 is IEEE half
    /// precision. 0, the default, is off. Excludes `bfloat`.
    pub fp: u32,
    /// Whether the elementwise format, `bfloat` or `fp`, has subnormals; without subnormals, they become zero before
    /// rounding. Default: true.
    pub bfloat_subnorms: bool,
    /// Whether the backward pass is emulated. If false, the backward pass runs in plain float32 on the unrounded
    /// inputs, and all `*_bp*` formats and gradient roundings are ignored, as in the reference. Default: true.
    pub quantize_backprop: bool,
    /// Rounding of elementwise operations, and the default of all other roundings. Default: `nearest` (ties away from
    /// zero).
    pub round: Rounding,
    /// Elementwise rounding of weights and biases. Default: `round`.
    pub round_weight: Option<Rounding>,
    /// Elementwise rounding of the other operands of a product, and of its result. Default:
    /// `round`.
    pub round_output: Option<Rounding>,
    /// Elementwise rounding of the gradients of weights and biases. Default: `round`.
    pub round_grad_weight: Option<Rounding>,
    /// Elementwise rounding of the gradients of activations. Default: `round`.
    pub round_grad_input: Option<Rounding>,
    /// MX rounding of both operands of a forward product. Default: `round`.
    pub round_mx_output: Option<Rounding>,
    /// MX rounding of the saved operands in the backward pass of a product of two activations.
    /// Default: `round_grad_input`.
    pub round_mx_input_grad_input: Option<Rounding>,
    /// MX rounding of the weight where an input's gradient is computed. Default:
    /// `round_grad_input`.
    pub round_mx_weight_grad_input: Option<Rounding>,
    /// MX rounding of the output's gradient where an input's gradient is computed. Default:
    /// `round_grad_input`.
    pub round_mx_grad_output_grad_input: Option<Rounding>,
    /// MX rounding of the input where a weight's gradient is computed. Default: `round_grad_input`.
    pub round_mx_input_grad_weight: Option<Rounding>,
    /// MX rounding of the output's gradient where a weight's gradient is computed. Default:
    /// `round_grad_input`.
    pub round_mx_grad_output_grad_weight: Option<Rounding>,
    /// Whether softmax takes powers of 2 instead of e. Default: false. No effect while `bfloat` and
    /// `fp` are off, like the next two.
    pub softmax_exp2: bool,
    /// Whether e^x is computed as a power of 2. Default: false.
    pub vec_use_exp2: bool,
    /// Whether a / b is computed as a · (1 / b). Default: false.
    pub vec_use_recip: bool,
    /// Block size of a random Hadamard transform: 16, 32, 64 or 128; 0, the default, is off. Every gradient product transforms
    /// both operands along the summed axis, before quantization. The transform does not change the exact product, and spreads
    /// outliers over their block, see [`RandomHadamard`](microscaling::RandomHadamard). The signs follow from the seed. No
    /// effect while no backward slot has a format. Beyond the reference, therefore not written to JSON at its default, like the
    /// fields below.
    #[serde(skip_serializing_if = "is_default")]
    pub hadamard_block_size: usize,
    /// Hadamard transform of both operands of every forward product. Default: none.
    #[serde(skip_serializing_if = "is_default")]
    pub hadamard_forward: Option<Hadamard>,
    /// Hadamard transform of both operands where an input's gradient is computed. Default: the transform of
    /// `hadamard_block_size`.
    #[serde(skip_serializing_if = "is_default")]
    pub hadamard_input_grad: Option<Hadamard>,
    /// Hadamard transform of both operands where a weight's gradient is computed. Default: the transform of
    /// `hadamard_block_size`.
    #[serde(skip_serializing_if = "is_default")]
    pub hadamard_weight_grad: Option<Hadamard>,
    /// Headroom of the MX blocks in the operands of gradient products, such as 4/3. Operands are divided by the headroom
    /// after their blocks have their scales, and the product is multiplied by the headroom once for each operand. With
    /// 4/3, scale mode `floor` and FP4 elements no element saturates. Stochastic rounding is unbiased only without
    /// saturation. Default: 1. The headroom of an NVFP4 slot is a parameter of its format.
    #[serde(skip_serializing_if = "is_default")]
    pub headroom_bp: Headroom,
    /// Which operands the gradient products read. `original`, the default: the operands before quantization. `forward`:
    /// the operands that the forward product used, quantized again.
    #[serde(skip_serializing_if = "is_default")]
    pub gradient_operands: GradientOperands,
    /// Whether the gradient of an operand is zero where the forward product's quantization clipped the operand (a
    /// masked straight-through gradient). The mask applies in the basis of the forward product's transform, if there is
    /// one. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub mask_clipped: bool,
    /// The accumulator that sums up every product, see [`Accumulation`]: the matrix unit of a chip (`hopper`, `blackwell`,
    /// …), or a unit with your own parameters (`accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)`). The
    /// unit sums elements and block scales apart, in host memory. Default: none, which is the backend's own float32.
    #[serde(skip_serializing_if = "is_default")]
    pub accumulator: Option<Accumulation>,
    /// The accumulator of forward products. Default: `accumulator`.
    #[serde(skip_serializing_if = "is_default")]
    pub accumulator_forward: Option<Accumulation>,
    /// The accumulator where an input's gradient is computed. Default: `accumulator`.
    #[serde(skip_serializing_if = "is_default")]
    pub accumulator_input_grad: Option<Accumulation>,
    /// The accumulator where a weight's gradient is computed. Default: `accumulator`.
    #[serde(skip_serializing_if = "is_default")]
    pub accumulator_weight_grad: Option<Accumulation>,
    /// Whether products of two activations, such as attention's, are quantized in blocks, in both passes. If false, they
    /// have the elementwise format alone. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub quantize_matmul: bool,
    /// Whether a matrix product of an activation with a constant is quantized in blocks, in both passes. A constant is a
    /// tensor that neither an input nor a parameter has taken part in, such as a table of positions or a matrix of signs. If
    /// false, both operands have the elementwise format alone. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub quantize_constants: bool,
    /// Whether `log_softmax`, and the ops from its result up to the loss, are emulated like every other op. If false, they
    /// are computed in full precision. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub quantize_loss: bool,
    /// Seed of `stochastic` rounding and of the signs of the Hadamard transform. Specs that differ in another field
    /// draw other numbers from the same seed. Default: 0.
    #[serde(skip_serializing_if = "is_default")]
    pub seed: u64,
}

impl Default for MxSpecs {
    /// No field is set: no emulation.
    fn default() -> Self {
        Self {
            scale_bits: 0,
            w_elem_format: None,
            a_elem_format: None,
            w_elem_format_bp: None,
            a_elem_format_bp: None,
            a_elem_format_bp_ex: None,
            a_elem_format_bp_os: None,
            mx_flush_fp32_subnorms: false,
            shared_exp_method: SharedExpMethod::Max,
            scale_mode: ScaleMode::Floor,
            block_size: 0,
            bfloat: 0,
            fp: 0,
            bfloat_subnorms: true,
            quantize_backprop: true,
            round: Rounding::NearestAway,
            round_weight: None,
            round_output: None,
            round_grad_weight: None,
            round_grad_input: None,
            round_mx_output: None,
            round_mx_input_grad_input: None,
            round_mx_weight_grad_input: None,
            round_mx_grad_output_grad_input: None,
            round_mx_input_grad_weight: None,
            round_mx_grad_output_grad_weight: None,
            softmax_exp2: false,
            vec_use_exp2: false,
            vec_use_recip: false,
            hadamard_block_size: 0,
            hadamard_forward: None,
            hadamard_input_grad: None,
            hadamard_weight_grad: None,
            headroom_bp: Headroom::NONE,
            gradient_operands: GradientOperands::Original,
            mask_clipped: false,
            accumulator: None,
            accumulator_forward: None,
            accumulator_input_grad: None,
            accumulator_weight_grad: None,
            quantize_matmul: true,
            quantize_constants: false,
            quantize_loss: false,
            seed: 0,
        }
    }
}
impl MxSpecs {
    /// The value of the slot's field.
    pub(super) fn slot_format(&self, slot: Slot) -> Option<SlotFormat> {
        match slot {
            Slot::W => self.w_elem_format,
            Slot::A => self.a_elem_format,
            Slot::WBp => self.w_elem_format_bp,
            Slot::ABp => self.a_elem_format_bp,
            Slot::ABpEx => self.a_elem_format_bp_ex,
            Slot::ABpOs => self.a_elem_format_bp_os,
        }
    }
}
