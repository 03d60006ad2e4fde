//! The table of the fields of [`MxSpecs`]: one row for each field. Defaults, JSON, the chain of defaults, flags, remarks
//! of the summary and the book's page of fields follow from the row.
//!
//! A row is a field with its type and its default, then the field's flag, then
//!
//! * `or(other)`: if the field is not set, [`resolve`](MxSpecs::resolve) takes `other`, which stands above;
//! * `beyond(…)`: the reference has no such field. JSON leaves out the default, so that the reference can read the rest.
//!   The text is the summary's for another value, which replaces `{}`. The text is empty if `summary.rs` has its own
//!   words.
//!
//! The flag `value(VALUE, help)` takes a value; `on(help)` and `off(help)` set a boolean that is false or true by default.

pub(super) mod attention;
pub(super) mod elementwise_scope;
pub(super) mod gradient_operands;
pub(super) mod grouped;
pub(super) mod hadamard;
pub(super) mod hot_columns;
pub(super) mod slot;
pub(super) mod slot_format;
pub(super) mod table;

use microscaling::{Dialect, Headroom, Rounding, ScaleMode, SharedExpMethod};
use microscaling_product::Accumulation;

use super::{
    AttentionSpecs, ElementwiseScope, GradientOperands, Hadamard, HotColumns, Slot, SlotFormat,
};
use table::specs_table;

specs_table! {
    /// Which number formats the emulation uses, and where.
    ///
    /// Block formats apply to the operands of matrix products and convolutions (`*_elem_format`, one slot for each
    /// role, see [`Slot`]). A bfloat or fp format applies to elementwise operations and to the results of products. The
    /// default sets no field and emulates nothing.
    ///
    /// A slot holds the element of an MX block, such as `fp8_e4m3`, or a whole [block
    /// format](microscaling::BlockFormat), such as `mx6`, `nvfp4` or `mx(element=int4,block_size=16)`.
    /// `block_size`, `scale_bits`, `scale_mode`, `shared_exp_method` and `mx_flush_fp32_subnorms` shape the
    /// MX blocks of the slots that name an element.
    ///
    /// Only [`resolve`](Self::resolve) checks the fields.
    ///
    /// In JSON every field may be missing, and unknown fields are errors. `null` is the default of any field but a
    /// boolean or the seed. `""` and `"none"` also unset formats and the roundings after `round`. The reference's
    /// `round_m` and `custom_cuda` change no number: they are read, dropped and reported once, in the log or on stderr. A field
    /// beyond the reference is not written to JSON at its default.
    ///
    /// ```
    /// # extern crate burn_mx_core as burn_mx;
    /// use burn_mx::MxSpecs;
    ///
    /// let specs = MxSpecs::from_json(
    ///     r#"{ "w_elem_format": "fp6_e3m2", "a_elem_format": "int8", "block_size": 32, "fp": 16 }"#,
    /// )?;
    /// assert_eq!(specs.resolve()?.to_string(), "w fp6_e3m2, a int8, block 32, fp16 everywhere");
    /// # Ok::<(), burn_mx::SpecsError>(())
    /// ```
    pub struct MxSpecs;

    /// Bits of the scale that a block shares, 1 to 8; 0, the default, means 8 (E8M0 of OCP MX
    /// v1.0).
    scale_bits: u32 = 0,
        value("BITS", "Bits of the scale that a block shares: 1 to 8, 0 means 8");
    /// Format of weights in the forward pass. Default: not quantized.
    w_elem_format: Option<SlotFormat> = None,
        value("FORMAT", "Format of weights: an MX element such as fp8_e4m3, a block format such as mx6, or none");
    /// Format of activations in the forward pass. Default: not quantized.
    a_elem_format: Option<SlotFormat> = None,
        value("FORMAT", "Format of activations, or none");
    /// Format of weights in the backward pass. Default: `w_elem_format`.
    w_elem_format_bp: Option<SlotFormat> = None,
        value("FORMAT", "Backward: format of weights [default: w_elem_format]"), or(w_elem_format);
    /// Format of saved activations in the backward pass. Default: `a_elem_format`.
    a_elem_format_bp: Option<SlotFormat> = None,
        value("FORMAT", "Backward: format of saved activations [default: a_elem_format]"), or(a_elem_format);
    /// Format of the output's gradient where a weight's gradient is computed. Default:
    /// `a_elem_format`.
    a_elem_format_bp_ex: Option<SlotFormat> = None,
        value("FORMAT", "Backward: format of the gradient in a weight's gradient [default: a_elem_format]"), or(a_elem_format);
    /// Format of the output's gradient where an input's gradient is computed. Default:
    /// `a_elem_format`.
    a_elem_format_bp_os: Option<SlotFormat> = None,
        value("FORMAT", "Backward: format of the gradient in an input's gradient [default: a_elem_format]"), or(a_elem_format);
    /// Whether a block of float32 subnormals becomes zero. Default: false.
    mx_flush_fp32_subnorms: bool = false,
        on("Make a block of float32 subnormals zero");
    /// Whether a block shares the exponent of its largest element (`max`, the default), or every
    /// element is its own block (`none`).
    shared_exp_method: SharedExpMethod = SharedExpMethod::Max,
        value("METHOD", "Elements that share an exponent: max (a block) or none (every element has its own)");
    /// The rule that computes a block's scale. Default: `floor`, the rule of OCP MX v1.0.
    scale_mode: ScaleMode = ScaleMode::Floor,
        value("MODE", "Rule for the scale of a block: floor, ceil, even, rceil or rms"), beyond("");
    /// Elements of an MX block; 0, the default, makes the whole axis one block. The concrete formats of
    /// OCP MX v1.0 have 32.
    block_size: usize = 0,
        value("ELEMENTS", "Elements of an MX block, 0 for the whole axis");
    /// Total bits of the elementwise format with 8 exponent bits: 10 to 32, 16 is bfloat16. 0, the default, is off; 32
    /// is float32 itself and the same as off, with any `bfloat_subnorms`. Excludes `fp`.
    bfloat: u32 = 0,
        value("BITS", "Bits of the elementwise format with 8 exponent bits: 10 to 32, 0 for none; excludes fp");
    /// Total bits of the elementwise format with 5 exponent bits: 7 to 29, 16 is IEEE half
    /// precision. 0, the default, is off. Excludes `bfloat`.
    fp: u32 = 0,
        value("BITS", "Bits of the elementwise format with 5 exponent bits: 7 to 29, 0 for none; excludes bfloat");
    /// Whether the elementwise format, `bfloat` or `fp`, has subnormals. If false, they become zero before rounding.
    /// Default: true.
    bfloat_subnorms: bool = true,
        off("Flush subnormals of the elementwise format to zero");
    /// Which ops the elementwise format applies to. `all`, the default, is the reference's scope: every op that an input or a
    /// parameter has taken part in. `activations`, the presets' scope: ops whose operands follow from data and from
    /// parameters, see [`ElementwiseScope`].
    elementwise_scope: ElementwiseScope = ElementwiseScope::All,
        value("SCOPE", "Ops that the elementwise format applies to: all, or activations"), beyond("");
    /// Whether the backward pass is emulated. If false, the backward pass runs in plain float32 on the unrounded
    /// inputs, and all `*_bp*` formats and gradient roundings are ignored, as in the reference; `gradient_operands` and
    /// `mask_clipped` count. Default: true.
    quantize_backprop: bool = true,
        off("Run the backward pass in float32");
    /// Rounding of elementwise operations, and the default of all other roundings. Default: `nearest` (ties away from
    /// zero).
    round: Rounding = Rounding::NearestAway,
        value("ROUNDING", "Elementwise rounding, and the default of all other roundings: nearest, even, floor or stochastic");
    /// Elementwise rounding of weights and biases. Default: `round`.
    round_weight: Option<Rounding> = None,
        value("ROUNDING", "Elementwise rounding of weights and biases [default: round]"), or(round);
    /// Elementwise rounding of the other operands of a product, and of its result. Default:
    /// `round`.
    round_output: Option<Rounding> = None,
        value("ROUNDING", "Elementwise rounding of activations [default: round]"), or(round);
    /// Elementwise rounding of the gradients of weights and biases. Default: `round`.
    round_grad_weight: Option<Rounding> = None,
        value("ROUNDING", "Elementwise rounding of weight gradients [default: round]"), or(round);
    /// Elementwise rounding of the gradients of activations. Default: `round`.
    round_grad_input: Option<Rounding> = None,
        value("ROUNDING", "Elementwise rounding of activation gradients [default: round]"), or(round);
    /// MX rounding of both operands of a forward product. Default: `round`.
    round_mx_output: Option<Rounding> = None,
        value("ROUNDING", "MX rounding, forward [default: round]"), or(round);
    /// MX rounding of the saved operands in the backward pass of a product of two activations.
    /// Default: `round_grad_input`.
    round_mx_input_grad_input: Option<Rounding> = None,
        value("ROUNDING", "MX rounding of saved activations, between activations [default: round_grad_input]"), or(round_grad_input);
    /// MX rounding of the weight where an input's gradient is computed. Default:
    /// `round_grad_input`.
    round_mx_weight_grad_input: Option<Rounding> = None,
        value("ROUNDING", "MX rounding of weights in an input's gradient [default: round_grad_input]"), or(round_grad_input);
    /// MX rounding of the output's gradient where an input's gradient is computed. Default:
    /// `round_grad_input`.
    round_mx_grad_output_grad_input: Option<Rounding> = None,
        value("ROUNDING", "MX rounding of the gradient in an input's gradient [default: round_grad_input]"), or(round_grad_input);
    /// MX rounding of the input where a weight's gradient is computed. Default: `round_grad_input`.
    round_mx_input_grad_weight: Option<Rounding> = None,
        value("ROUNDING", "MX rounding of inputs in a weight's gradient [default: round_grad_input]"), or(round_grad_input);
    /// MX rounding of the output's gradient where a weight's gradient is computed. Default:
    /// `round_grad_input`.
    round_mx_grad_output_grad_weight: Option<Rounding> = None,
        value("ROUNDING", "MX rounding of the gradient in a weight's gradient [default: round_grad_input]"), or(round_grad_input);
    /// Whether softmax takes powers of 2 instead of e. Default: false. No effect while `bfloat` and
    /// `fp` are off, like the next two.
    softmax_exp2: bool = false,
        on("Take powers of 2 instead of e in softmax");
    /// Whether e^x is computed as a power of 2. Default: false.
    vec_use_exp2: bool = false,
        on("Compute e^x as a power of 2");
    /// Whether a / b is computed as a · (1 / b). Default: false.
    vec_use_recip: bool = false,
        on("Compute a / b as a * (1 / b)");
    /// Block size of a random Hadamard transform: 16, 32, 64 or 128; 0, the default, is off. Every gradient product transforms
    /// both operands along the summed axis, before quantization. The transform does not change the exact product, and spreads
    /// outliers over their block, see [`RandomHadamard`](microscaling::RandomHadamard). The signs follow from the seed. No
    /// effect while no backward slot has a format.
    hadamard_block_size: usize = 0,
        value("ELEMENTS", "Random Hadamard transform in gradient products: blocks of 16, 32, 64 or 128, 0 for none"), beyond("");
    /// Hadamard transform of both operands of every forward product. Default: none.
    hadamard_forward: Option<Hadamard> = None,
        value("HADAMARD", "Hadamard transform in forward products: a block size as above, then :step, :product, :none or signs such as :0xd7e8"), beyond("");
    /// Hadamard transform of both operands where an input's gradient is computed. Default: the transform of
    /// `hadamard_block_size`.
    hadamard_input_grad: Option<Hadamard> = None,
        value("HADAMARD", "Hadamard transform in an input's gradient [default: hadamard_block_size]"), beyond("");
    /// Hadamard transform of both operands where a weight's gradient is computed. Default: the transform of
    /// `hadamard_block_size`.
    hadamard_weight_grad: Option<Hadamard> = None,
        value("HADAMARD", "Hadamard transform in a weight's gradient [default: hadamard_block_size]"), beyond("");
    /// Headroom of the MX blocks in the operands of gradient products, such as 4/3. Operands are divided by the headroom
    /// after their blocks have their scales, and the product is multiplied by the headroom once for each operand. With
    /// 4/3, scale mode `floor` and FP4 elements no element saturates. Stochastic rounding is unbiased only without
    /// saturation. Default: 1. The headroom of an NVFP4 slot is a parameter of its format.
    headroom_bp: Headroom = Headroom::NONE,
        value("RATIO", "Backward: headroom of MX blocks, such as 4/3"), beyond("backward headroom {}");
    /// Which operands the gradient products read. `original`, the default: the operands before quantization. `forward`:
    /// the operands that the forward product used, quantized again if the backward pass is quantized.
    gradient_operands: GradientOperands = GradientOperands::Original,
        value("OPERANDS", "Operands that gradient products read: original, or forward"), beyond("gradients of {} operands");
    /// Whether the gradient of an operand is zero where the forward product's quantization clipped the operand (a
    /// masked straight-through gradient). The mask applies in the basis of the forward product's transform, if there is
    /// one. Default: false.
    mask_clipped: bool = false,
        on("Make a gradient zero where its operand was clipped"), beyond("clipped ones masked");
    /// The tool whose rules quantize weights in forward products, bit for bit, see [`Dialect`]: the scale's arithmetic, ties and zeros
    /// of the engine that will serve the model. `w_elem_format` has to be a format of the tool. Gradient products keep the
    /// rules of their own formats. Default: none.
    dialect_w: Option<Dialect> = None,
        value("DIALECT", "Tool whose rules quantize weights, forward: compressed-tensors, modelopt, torchao, quark, ggml, transformer-engine, transformer-engine-fast-math, triton-kernels, microxcaling or ocp"), beyond("weights as {}");
    /// The same for activations in forward products. `a_elem_format` has to be a format of the tool. Default: none.
    dialect_a: Option<Dialect> = None,
        value("DIALECT", "Tool whose rules quantize activations, forward"), beyond("activations as {}");
    /// The accumulator that sums up every product, see [`Accumulation`]: the matrix unit of a chip (`hopper`, `blackwell`,
    /// …), or a unit with your own parameters (`accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)`). The
    /// unit sums elements and block scales apart. Default: none, which is the backend's own float32.
    accumulator: Option<Accumulation> = None,
        value("ACCUMULATOR", "Matrix unit that sums up every product: volta … blackwell, cdna1 … cdna3, xdna2, hopper_promote128 or accumulator(…)"), beyond("accumulator {}");
    /// The accumulator of forward products. Default: `accumulator`.
    accumulator_forward: Option<Accumulation> = None,
        value("ACCUMULATOR", "Matrix unit of forward products [default: accumulator]"), beyond("forward accumulator {}");
    /// The accumulator where an input's gradient is computed. Default: `accumulator`.
    accumulator_input_grad: Option<Accumulation> = None,
        value("ACCUMULATOR", "Matrix unit of an input's gradient [default: accumulator]"), beyond("input gradient accumulator {}");
    /// The accumulator where a weight's gradient is computed. Default: `accumulator`.
    accumulator_weight_grad: Option<Accumulation> = None,
        value("ACCUMULATOR", "Matrix unit of a weight's gradient [default: accumulator]"), beyond("weight gradient accumulator {}");
    /// The hot columns of linear layers, which a product keeps in another format or multiplies once more, see [`HotColumns`]:
    /// `hot_columns(percent=10,format=mxfp8_e4m3)`. Default: none.
    hot_columns: Option<HotColumns> = None,
        value("COLUMNS", "Input channels of linear layers that are apart: hot_columns(percent=10,format=mxfp8_e4m3,…), or none"), beyond("{}");
    /// Whether linear layers quantize the mean of an operand's rows apart (Averis, arXiv 2603.10444). An input or an output's
    /// gradient x becomes 1·Q(μ) + Q(x − 1μ). Q is the slot's format, and μ is the mean over all rows, in float32. Blocks of μ lie
    /// along its channels, which is our choice in weights' gradients. Weights stay whole. Default: false.
    mean_apart: bool = false,
        on("Quantize the mean of inputs and of output gradients of linear layers apart from the rest"), beyond("mean apart");
    /// Whether products of two activations, such as attention's, are quantized in blocks, in both passes. If false, they
    /// have the elementwise format alone. Default: true.
    quantize_matmul: bool = true,
        off("Leave products of two activations, such as attention's, without block formats"), beyond("no blocks between activations");
    /// The formats of attention's points, see [`AttentionSpecs`]: `attention(field=value,…)` or the name of a scheme. Inside of
    /// attention they replace the slots, transforms and accumulators of the other fields. Default: none, attention is two
    /// products of activations and a softmax.
    attention: Option<AttentionSpecs> = None,
        value("ATTENTION", "Formats of attention's points: attention(q=nvfp4,…), sageattention2, sageattention2pp, sageattention3, sagebwd, attn_qat, or none"), beyond("{}");
    /// Whether a matrix product of an activation with a constant is quantized in blocks, in both passes. A constant is a
    /// tensor that neither an input nor a parameter has taken part in, such as a table of positions or a matrix of signs. If
    /// false, both operands have the elementwise format alone. Default: false.
    quantize_constants: bool = false,
        on("Quantize products of an activation with a constant in blocks, too"), beyond("constants in blocks");
    /// Whether `log_softmax`, and the ops from its result up to the loss, are emulated like every other op. If false, they are
    /// computed in full precision. Default: false.
    quantize_loss: bool = false,
        on("Emulate log_softmax and the loss that follows from it, too"), beyond("emulated loss");
    /// Seed of `stochastic` rounding and of the signs of the Hadamard transform. Specs that differ in another field
    /// draw other numbers from the same seed. Default: 0.
    seed: u64 = 0,
        value("SEED", "Seed of stochastic rounding and of the Hadamard transform"), beyond("");
}

impl MxSpecs {
    /// The slot's field, such as `w_elem_format`.
    pub fn slot_format(&self, slot: Slot) -> Option<SlotFormat> {
        match slot {
            Slot::W => self.w_elem_format,
            Slot::A => self.a_elem_format,
            Slot::WBp => self.w_elem_format_bp,
            Slot::ABp => self.a_elem_format_bp,
            Slot::ABpEx => self.a_elem_format_bp_ex,
            Slot::ABpOs => self.a_elem_format_bp_os,
        }
    }

    /// The slot's field, such as `w_elem_format`, to change it.
    pub fn slot_format_mut(&mut self, slot: Slot) -> &mut Option<SlotFormat> {
        match slot {
            Slot::W => &mut self.w_elem_format,
            Slot::A => &mut self.a_elem_format,
            Slot::WBp => &mut self.w_elem_format_bp,
            Slot::ABp => &mut self.a_elem_format_bp,
            Slot::ABpEx => &mut self.a_elem_format_bp_ex,
            Slot::ABpOs => &mut self.a_elem_format_bp_os,
        }
    }
}
