//! Schemes of the literature.

use microscaling::{BlockFormat, ElementFormat, FloatFormat, ScaleFormat};

use crate::specs::fields::grouped::FieldGroup;

use super::{AttentionSpecs, Delta, PointFormat, RowSums, ValueAxis, ValueRange};

/// Elements with one float32 scale for the whole axis.
const fn of_axis(element: ElementFormat) -> Option<PointFormat> {
    Some(PointFormat::Block(BlockFormat::float_scale(
        element,
        ScaleFormat::FLOAT32,
        0,
    )))
}

/// INT8 with one float32 scale, amax / 127, for 64 numbers in a row, or for 64 × 64.
const fn int8(square: bool) -> Option<PointFormat> {
    let format = BlockFormat::float_scale(ElementFormat::INT8, ScaleFormat::FLOAT32, 64);
    Some(PointFormat::Block(BlockFormat { square, ..format }))
}

/// E2M1 elements in blocks of 16 with E4M3 scales, subnormal ones too, without a tensor scale.
const FP4: Option<PointFormat> = Some(PointFormat::Block(BlockFormat::float_scale(
    ElementFormat::FP4_E2M1,
    ScaleFormat::UE4M3,
    16,
)));

impl FieldGroup for AttentionSpecs {
    const NAME: &'static str = "attention";
    const WORDS: &'static str = "attention specs";
    const SCHEMES: &'static [&'static str] = Self::SCHEMES;

    fn scheme(name: &str) -> Option<Self> {
        match name {
            "sageattention2" => Some(Self::sageattention2()),
            "sageattention2pp" => Some(Self::sageattention2pp()),
            "sageattention3" => Some(Self::sageattention3()),
            "sagebwd" => Some(Self::sagebwd()),
            "attn_qat" => Some(Self::attn_qat()),
            _ => None,
        }
    }
}

impl AttentionSpecs {
    /// The names of schemes.
    pub const SCHEMES: &'static [&'static str] = &[
        "sageattention2",
        "sageattention2pp",
        "sageattention3",
        "sagebwd",
        "attn_qat",
    ];

    /// SageAttention2 (arXiv 2411.10958). The key is smoothed by its mean. INT8 has one scale for 128 rows of the query
    /// and one for 64 rows of the key, which is our choice: the kernels have finer groups. Exponentials times 448 are E4M3 without a scale; the value is E4M3 with one scale for each
    /// channel. Tiles have 64 keys. Sums are float32.
    pub fn sageattention2() -> Self {
        Self {
            q: of_axis(ElementFormat::INT8),
            q_rows: 128,
            k: of_axis(ElementFormat::INT8),
            k_rows: 64,
            smooth_k: true,
            v: of_axis(ElementFormat::FP8_E4M3),
            exponentials: Some(PointFormat::Element(ElementFormat::FP8_E4M3)),
            probability_scale: 448,
            row_sums: RowSums::Exact,
            tile: 64,
            ..Self::default()
        }
    }

    /// SageAttention2++ (arXiv 2505.21136): as SageAttention2, with the value's channels scaled to 2.25, and a tile's products summed
    /// up in FP16: 448 · 2.25 · 64 is less than its largest number. Our choice: 16 products at once, exactly, then to nearest.
    pub fn sageattention2pp() -> Self {
        let fp16 = "accumulator(order=exact,terms=16,output=f16_rne)";
        Self {
            v: Some(PointFormat::Element(ElementFormat::FP8_E4M3)),
            v_range: Some(ValueRange::SAGE),
            pv_accumulator: Some(fp16.parse().expect("it is an accumulator")),
            ..Self::sageattention2()
        }
    }

    /// SageAttention3 (arXiv 2505.11594): E2M1 in blocks of 16 with E4M3 scales for both products. Key and query are smoothed, the
    /// query by the mean of 128 rows. Exponentials have a second level of scale, 448 · 6. Row sums add
    /// unquantized exponentials. Tiles have 128 keys.
    pub fn sageattention3() -> Self {
        Self {
            smooth_k: true,
            smooth_q: 128,
            probability_scale: 2688,
            ..Self::fp4()
        }
    }

    /// SageBwd, which trains in INT8 (arXiv 2505.11594; arXiv 2603.02170). Six of seven products are INT8 with float32 scales, amax / 127. Query,
    /// smoothed key, value, dO in dv, dS, and the probabilities of dv have one scale for a tile. The exponentials of the forward pass have one
    /// scale for a row of a tile. dP = dO·vᵀ reads unquantized operands in FP16.
    ///
    /// This is second-hand: this project read the abstracts and other persons' notes, and found no code of the authors. These choices are this
    /// project's own:
    /// * Tiles have 64 queries and 64 keys, and 64 features of value and dO. The features of query and key are in one tile.
    /// * Row sums add unquantized exponentials.
    /// * `delta` is `output`.
    /// * Sums are float32. A unit's sums of INT8 products are INT32, which is exact in a tile.
    ///
    /// The second paper also needs a norm of queries and keys, which is the model's part.
    pub fn sagebwd() -> Self {
        let fp16 = Some(PointFormat::Float(
            FloatFormat::fp(16).expect("it is a format"),
        ));
        Self {
            q: of_axis(ElementFormat::INT8),
            q_rows: 64,
            k: of_axis(ElementFormat::INT8),
            k_rows: 64,
            smooth_k: true,
            v: int8(true),
            exponentials: int8(false),
            row_sums: RowSums::Exact,
            tile: 64,
            delta: Delta::Output,
            v_bp: fp16,
            probabilities_bp: int8(true),
            d_output: int8(true),
            d_output_dp: fp16,
            d_scores: int8(true),
            ..Self::default()
        }
    }

    /// Attn-QAT (arXiv 2603.00040), as in training: as SageAttention3 without smoothing, with one level of scale, and with the
    /// value's blocks along the head. The backward pass reads the quantized operands.
    pub fn attn_qat() -> Self {
        Self {
            v_axis: ValueAxis::Features,
            ..Self::fp4()
        }
    }

    fn fp4() -> Self {
        Self {
            q: FP4,
            k: FP4,
            v: FP4,
            exponentials: FP4,
            row_sums: RowSums::Exact,
            tile: 128,
            ..Self::default()
        }
    }
}
