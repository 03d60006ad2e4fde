//! The formats of attention's points, as a field of the specs.

mod named;
mod point;
mod range;

use microscaling_product::Accumulation;

use super::grouped::{fields_table, named};
pub use point::{ParsePointFormatError, PointFormat};
pub use range::{ParseValueRangeError, ValueRange};

fields_table! {
    /// The number formats of Burn's `attention`, point by point. Each [`PointFormat`] is a format or none; with none, the point
    /// stays float32.
    ///
    /// With [`MxSpecs::attention`](crate::MxSpecs::attention), the fields here replace the slots, transforms and accumulators
    /// of the specs inside attention. As in every op, the inputs, the output and their gradients are rounded to the elementwise
    /// format. Everything between is float32, except for the points with a format.
    ///
    /// query is [B, H, Q, D], key [B, H, K, D], value [B, H, K, E]. Blocks of `q` and `k` lie along D. Blocks of scores,
    /// differences, exponentials and probabilities lie along the keys and begin anew in each tile. Blocks of `output` lie along E.
    /// Blocks and elements are rounded by `round_mx_output`, `bfloat…` and `fp…` by `round_output`; gradients have roundings of their own.
    ///
    /// The text form (`FromStr`, `Display`, serde) is `attention(field=value,…)` with the fields that are not at their
    /// default, or the name of a scheme: `sageattention2`, `sageattention2pp`, `sageattention3`, `sagebwd`,
    /// `attn_qat`.
    ///
    /// ```
    /// # extern crate burn_mx_core as burn_mx;
    /// use burn_mx::AttentionSpecs;
    ///
    /// let specs: AttentionSpecs = "attention(q=nvfp4,k=nvfp4,v=nvfp4,probabilities=nvfp4,output=bfloat16)".parse()?;
    /// assert_eq!(specs.probabilities, Some("nvfp4".parse()?));
    /// assert_eq!(specs.scores, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Copy)]
    pub struct AttentionSpecs;

    /// Format of the query.
    q: Option<PointFormat> = None;
    /// Format of the key.
    k: Option<PointFormat> = None;
    /// Format of the value.
    v: Option<PointFormat> = None;
    /// Axis of the value's blocks: `keys` (the summed axis, the default) or `features`.
    v_axis: ValueAxis = ValueAxis::Keys;
    /// Gives each channel of the value its own scale, before it is rounded to elements without a scale. The channel is divided by
    /// amax / range, amax over all keys, and the output's column is multiplied by the same number. Default: none, no scale.
    v_range: Option<ValueRange> = None;
    /// Rows of the query in one line of blocks. A format whose block is the whole axis then has one scale for these rows. 0, the
    /// default: each row is one line.
    q_rows: usize = 0;
    /// Rows of the key in one line of blocks, as `q_rows`.
    k_rows: usize = 0;
    /// Whether the mean over all keys is subtracted from the key before quantization. Softmax does not change by this. If a softcap
    /// comes before, the product of query and mean is added to the scores in float32.
    smooth_k: bool = false;
    /// Rows of the query whose mean is subtracted before quantization. The product of that mean and the key, which is smoothed
    /// but not quantized, is added to the scores. 0, the default: nothing is subtracted.
    smooth_q: usize = 0;
    /// The matrix unit of the product of query and key. Default: float32.
    qk_accumulator: Option<Accumulation> = None;
    /// Format of the scores before they are scaled.
    scores: Option<PointFormat> = None;
    /// Format of the scores after scale and softcap, before masks and bias.
    scaled_scores: Option<PointFormat> = None;
    /// Format of a row's maximum, of elements or floats. With tiles it is the running maximum.
    maximum: Option<PointFormat> = None;
    /// Format of the scores less their maximum. Masked scores count as 0 in their block.
    differences: Option<PointFormat> = None;
    /// Format of the exponentials. With tiles it is the format of the second product's left operand.
    exponentials: Option<PointFormat> = None;
    /// Whether a row's sum is of the exponentials as they are `rounded` (default), or of the `exact` ones.
    row_sums: RowSums = RowSums::Rounded;
    /// Format of a row's sum, of elements or floats. With tiles it is the running sum.
    sum: Option<PointFormat> = None;
    /// Format of the probabilities, the second product's left operand. Not with tiles, where exponentials take this place.
    probabilities: Option<PointFormat> = None;
    /// A factor of the second product's left operand before quantization, which is divided out afterwards. 448 · 6 = 2688 gives
    /// rows a second level of scale beside E4M3 scales of E2M1 blocks. Default: 1.
    probability_scale: usize = 1;
    /// The matrix unit of the product of probabilities and value. Default: float32.
    pv_accumulator: Option<Accumulation> = None;
    /// Format of the output.
    output: Option<PointFormat> = None;
    /// Keys of a tile of the online softmax. 0, the default: softmax of whole rows.
    tile: usize = 0;
    /// Whether the backward pass computes the scores again from the `quantized` operands (default), or from the `float` ones.
    /// `quantize_backprop = false` means float.
    backward: AttentionBackward = AttentionBackward::Quantized;
    /// Format of a row's logarithm of the sum of exponentials, which is kept for the backward pass, of elements or floats.
    statistics: Option<PointFormat> = None;
    /// The number that the backward pass subtracts from the gradient of a row's probabilities: the sum of the unrounded `probabilities`
    /// times their gradient (default), or of the rounded `output` times its gradient. Without formats both are equal.
    delta: Delta = Delta::Probabilities;
    /// Format of the query where dk = dSᵀ·q, in place of [`q`](Self::q)'s. The unrounded query is rounded, with blocks along the queries, the
    /// summed axis. Default: none, the product reads the query as the forward pass rounded it; `bfloat32` reads it unrounded. Blocks and elements are
    /// rounded by `round_mx_input_grad_input`, `bfloat…` and `fp…` by `round_output`. The three fields below have the same roundings.
    q_bp: Option<PointFormat> = None;
    /// Format of the key where dq = dS·k, as `q_bp`, with blocks along the keys.
    k_bp: Option<PointFormat> = None;
    /// Format of the value where dP = dO·vᵀ, as `q_bp`, with blocks along E and without `v_range`.
    v_bp: Option<PointFormat> = None;
    /// Format of the probabilities where dv = pᵀ·dO, as `q_bp`, with blocks along the queries and without `probability_scale`.
    probabilities_bp: Option<PointFormat> = None;
    /// Format of the output's gradient, dO, in both products that read the gradient. Blocks lie along the summed axis of each product: along E
    /// where dP = dO·vᵀ, along the queries where dv = pᵀ·dO. Blocks and elements are rounded by
    /// `round_mx_grad_output_grad_input`, `bfloat…` and `fp…` by `round_grad_input`. The three fields below have the same roundings.
    d_output: Option<PointFormat> = None;
    /// Format of dO where dP = dO·vᵀ, in place of `d_output`. Default: none, `d_output` counts; `bfloat32` is unrounded.
    d_output_dp: Option<PointFormat> = None;
    /// Format of the gradient of the probabilities, dP. Blocks lie along the keys.
    d_probabilities: Option<PointFormat> = None;
    /// Format of the gradient of the scores before they are scaled, dS, in both products that read the gradient. Blocks lie along the summed
    /// axis of each product: along the keys where dq = dS·k, along the queries where dk = dSᵀ·q.
    d_scores: Option<PointFormat> = None;
    /// The matrix unit of dv = pᵀ·dO. Default: float32.
    dv_accumulator: Option<Accumulation> = None;
    /// The matrix unit of dP = dO·vᵀ. Default: float32.
    dp_accumulator: Option<Accumulation> = None;
    /// The matrix unit of dq = dS·k. The mean of a smoothed key is multiplied in float32 and added. Default: float32.
    dq_accumulator: Option<Accumulation> = None;
    /// The matrix unit of dk = dSᵀ·q. The means of a smoothed query are multiplied in float32 and added. Default: float32.
    dk_accumulator: Option<Accumulation> = None;
}

named! {
    /// The axis of the value's blocks.
    ValueAxis {
        /// The summed axis of the second product.
        Keys = "keys",
        /// The features of a head.
        Features = "features",
    }
}

named! {
    /// The exponentials that a row's sum is of.
    RowSums {
        /// As they are rounded.
        Rounded = "rounded",
        /// Before they are rounded.
        Exact = "exact",
    }
}

named! {
    /// The operands of attention's backward pass.
    AttentionBackward {
        /// Query, key, value and probabilities as the forward pass quantized them.
        Quantized = "quantized",
        /// All of them unrounded: the gradients of attention without formats.
        Float = "float",
    }
}

named! {
    /// The number that the backward pass subtracts from the gradient of a row's probabilities.
    Delta {
        /// The sum of probabilities times their gradient.
        Probabilities = "probabilities",
        /// The sum of the output times its gradient.
        Output = "output",
    }
}
