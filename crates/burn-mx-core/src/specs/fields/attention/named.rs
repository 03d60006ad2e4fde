//! Schemes of the literature.

use microscaling::{BlockFormat, ElementFormat, ScaleFormat};

use super::{AttentionSpecs, PointFormat, RowSums, ValueAxis, ValueRange};

/// Elements with one float32 scale for the whole axis.
const fn of_axis(element: ElementFormat) -> Option<PointFormat> {
    Some(PointFormat::Block(BlockFormat::float_scale(
        element,
        ScaleFormat::FLOAT32,
        0,
    )))
}

/// E2M1 elements in blocks of 16 with E4M3 scales, subnormal ones too, without a tensor scale.
const FP4: Option<PointFormat> = Some(PointFormat::Block(BlockFormat::float_scale(
    ElementFormat::FP4_E2M1,
    ScaleFormat::UE4M3,
    16,
)));

impl AttentionSpecs {
    /// The names of schemes.
    pub const SCHEMES: &'static [&'static str] = &[
        "sageattention2",
        "sageattention2pp",
        "sageattention3",
        "attn_qat",
    ];

    pub(super) fn scheme(name: &str) -> Option<Self> {
        match name {
            "sageattention2" => Some(Self::sageattention2()),
            "sageattention2pp" => Some(Self::sageattention2pp()),
            "sageattention3" => Some(Self::sageattention3()),
            "attn_qat" => Some(Self::attn_qat()),
            _ => None,
        }
    }

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
