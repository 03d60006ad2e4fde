//! The named specs.

mod literature;
mod qat;
pub(super) mod recipe;

use microscaling::{BlockFormat, ElementFormat, Rounding, ScaleMode};
use microscaling_product::Chip;

use super::suggestion;
use super::{ElementwiseScope, GradientOperands, MxSpecs, ResolvedSpecs, SpecsError};

type Preset = (&'static str, fn() -> MxSpecs);

impl ResolvedSpecs {
    /// The name of the preset that these specs are.
    pub(crate) fn preset(&self) -> Option<&'static str> {
        let is_preset = |specs: fn() -> MxSpecs| specs().resolve().as_ref() == Ok(self);
        let mut presets = PRESETS.iter();
        presets
            .find(|(_, specs)| is_preset(*specs))
            .map(|(name, _)| *name)
    }
}

/// The named specs, in the order in which [`MxSpecs::PRESETS`] lists them.
const PRESETS: [Preset; 42] = [
    ("none", MxSpecs::none),
    ("mxfp8_e4m3", MxSpecs::mxfp8_e4m3),
    ("mxfp8_e5m2", MxSpecs::mxfp8_e5m2),
    ("mxfp6_e3m2", MxSpecs::mxfp6_e3m2),
    ("mxfp6_e2m3", MxSpecs::mxfp6_e2m3),
    ("mxfp4", MxSpecs::mxfp4),
    ("mxint8", MxSpecs::mxint8),
    ("mxfp8_rceil", MxSpecs::mxfp8_rceil),
    ("mx4", MxSpecs::mx4),
    ("mx6", MxSpecs::mx6),
    ("mx9", MxSpecs::mx9),
    ("bfp16", MxSpecs::bfp16),
    ("nvfp4", MxSpecs::nvfp4),
    ("mxint4", MxSpecs::mxint4),
    ("nvint4", MxSpecs::nvint4),
    ("amdfp4", MxSpecs::amdfp4),
    ("amdfp4_g32", MxSpecs::amdfp4_g32),
    ("nf4", MxSpecs::nf4),
    ("if4", MxSpecs::if4),
    ("razer", MxSpecs::razer),
    ("hif4", MxSpecs::hif4),
    ("amxfp4", MxSpecs::amxfp4),
    ("bfp16ebs8", MxSpecs::bfp16ebs8),
    ("xdna2", MxSpecs::xdna2),
    ("mxfp4_sr_rht", MxSpecs::mxfp4_sr_rht),
    ("kimi_qat", MxSpecs::kimi_qat),
    ("gpt_oss_qat", MxSpecs::gpt_oss_qat),
    ("deepseek_v4_qat", MxSpecs::deepseek_v4_qat),
    ("mxfp8_pretraining", MxSpecs::mxfp8_pretraining),
    ("mxfp6_training", MxSpecs::mxfp6_training),
    ("mxfp4_backward", MxSpecs::mxfp4_backward),
    ("nvfp4_pretraining", MxSpecs::nvfp4_pretraining),
    ("quartet", MxSpecs::quartet),
    ("quartet_code", MxSpecs::quartet_code),
    ("quartet2", MxSpecs::quartet2),
    ("nvfp4_four_over_six", MxSpecs::nvfp4_four_over_six),
    ("ufp4", MxSpecs::ufp4),
    ("ufp4_baseline", MxSpecs::ufp4_baseline),
    ("hif4_pretraining", MxSpecs::hif4_pretraining),
    ("tetrajet_v2", MxSpecs::tetrajet_v2),
    ("chon", MxSpecs::chon),
    ("averis", MxSpecs::averis),
];

/// Names of floats without blocks.
const PLAIN: [Preset; 3] = [
    ("fp32", MxSpecs::none),
    ("float32", MxSpecs::none),
    ("bfloat16", || MxSpecs {
        bfloat: 16,
        elementwise_scope: ElementwiseScope::Activations,
        round: Rounding::NearestEven,
        ..MxSpecs::none()
    }),
];

impl MxSpecs {
    /// The names for [`preset`](Self::preset), which also takes AMD Quark's names of the formats.
    pub const PRESETS: &'static [&'static str] = &{
        let mut names = [""; PRESETS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = PRESETS[i].0;
            i += 1;
        }
        names
    };

    /// The [`PRESETS`](Self::PRESETS) that are recipes of the literature for training from the start; [`Recipe`](crate::Recipe) has their
    /// exemptions.
    pub const LITERATURE: &'static [&'static str] = &[
        "mxfp8_pretraining",
        "mxfp6_training",
        "mxfp4_backward",
        "nvfp4_pretraining",
        "quartet",
        "quartet_code",
        "quartet2",
        "nvfp4_four_over_six",
        "ufp4",
        "ufp4_baseline",
        "hif4_pretraining",
        "tetrajet_v2",
        "chon",
        "averis",
    ];

    /// The block of OCP MX v1.0 (32 elements, 8 scale bits) with no format set: a base for struct
    /// updates.
    ///
    /// ```
    /// # extern crate burn_mx_core as burn_mx;
    /// # use burn_mx::MxSpecs;
    /// use microscaling::ElementFormat;
    /// let weights_only = MxSpecs { w_elem_format: Some(ElementFormat::INT8.into()), ..MxSpecs::mx() };
    /// ```
    pub fn mx() -> Self {
        Self {
            scale_bits: 8,
            block_size: 32,
            ..Self::default()
        }
    }

    /// No emulation, on purpose. Equal to the default, but a reader sees that float32 is meant.
    pub fn none() -> Self {
        Self::default()
    }

    /// The same forward pass with a straight-through gradient: the gradient of the quantized layer in float32, as if quantization
    /// had the derivative 1. This is quantization-aware training. Formats and roundings of the backward pass have no effect any more.
    /// The field [`mask_clipped`](Self::mask_clipped) is kept.
    #[must_use]
    pub fn straight_through(self) -> Self {
        Self {
            quantize_backprop: false,
            gradient_operands: GradientOperands::Forward,
            ..self
        }
    }

    /// MXFP8 with E4M3 elements (OCP MX v1.0) for weights and activations, forward and backward; block 32, 8 scale
    /// bits, bfloat16 for elementwise ops on activations, ties to even. The other five presets of MX formats differ only in their element.
    pub fn mxfp8_e4m3() -> Self {
        Self::concrete(ElementFormat::FP8_E4M3)
    }

    /// MXFP8 with E5M2 elements, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp8_e5m2() -> Self {
        Self::concrete(ElementFormat::FP8_E5M2)
    }

    /// MXFP6 with E3M2 elements, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp6_e3m2() -> Self {
        Self::concrete(ElementFormat::FP6_E3M2)
    }

    /// MXFP6 with E2M3 elements, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp6_e2m3() -> Self {
        Self::concrete(ElementFormat::FP6_E2M3)
    }

    /// MXFP4 (E2M1 elements), else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp4() -> Self {
        Self::concrete(ElementFormat::FP4_E2M1)
    }

    /// MXINT8, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxint8() -> Self {
        Self::concrete(ElementFormat::INT8)
    }

    /// MXFP8 with E4M3 elements and scale mode `rceil`, NVIDIA's recipe for MXFP8 training; else as
    /// [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp8_rceil() -> Self {
        Self {
            scale_mode: ScaleMode::Rceil,
            ..Self::mxfp8_e4m3()
        }
    }

    /// Microexponents with 4 bits an element ([`BlockFormat::MX4`]) for weights and activations, forward and
    /// backward; bfloat16 elementwise, ties to even. The next four presets differ only in their format.
    pub fn mx4() -> Self {
        Self::of(BlockFormat::MX4)
    }

    /// Microexponents with 6 bits an element ([`BlockFormat::MX6`]), else as [`mx4`](Self::mx4).
    pub fn mx6() -> Self {
        Self::of(BlockFormat::MX6)
    }

    /// Microexponents with 9 bits an element ([`BlockFormat::MX9`]), else as [`mx4`](Self::mx4).
    pub fn mx9() -> Self {
        Self::of(BlockFormat::MX9)
    }

    /// Block floating point with 16 bits before blocks share the exponent ([`BlockFormat::BFP16`]), else as
    /// [`mx4`](Self::mx4).
    pub fn bfp16() -> Self {
        Self::of(BlockFormat::BFP16)
    }

    /// NVFP4 ([`BlockFormat::nvfp4`]) with the tensor scale, else as [`mx4`](Self::mx4). Without the tensor scale, the blocks'
    /// E4M3 scales are too large for most gradients.
    pub fn nvfp4() -> Self {
        Self::of(BlockFormat::nvfp4(true))
    }

    /// MX blocks of INT4, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxint4() -> Self {
        Self::concrete(ElementFormat::INT4)
    }

    /// NVINT4 ([`BlockFormat::NVINT4`]), else as [`mx4`](Self::mx4).
    pub fn nvint4() -> Self {
        Self::of(BlockFormat::NVINT4)
    }

    /// AMDFP4 ([`BlockFormat::AMDFP4`]), else as [`mx4`](Self::mx4).
    pub fn amdfp4() -> Self {
        Self::of(BlockFormat::AMDFP4)
    }

    /// AMDFP4 in blocks of 32 ([`BlockFormat::AMDFP4_G32`]), else as [`mx4`](Self::mx4).
    pub fn amdfp4_g32() -> Self {
        Self::of(BlockFormat::AMDFP4_G32)
    }

    /// NF4 ([`BlockFormat::NF4`]), else as [`mx4`](Self::mx4).
    pub fn nf4() -> Self {
        Self::of(BlockFormat::NF4)
    }

    /// IF4 ([`BlockFormat::IF4`]), else as [`mx4`](Self::mx4).
    pub fn if4() -> Self {
        Self::of(BlockFormat::IF4)
    }

    /// RaZeR ([`BlockFormat::RAZER`]), else as [`mx4`](Self::mx4).
    pub fn razer() -> Self {
        Self::of(BlockFormat::RAZER)
    }

    /// HiF4 ([`BlockFormat::HIF4`]), else as [`mx4`](Self::mx4).
    pub fn hif4() -> Self {
        Self::of(BlockFormat::HIF4)
    }

    /// AMXFP4 ([`BlockFormat::AMXFP4`]), else as [`mx4`](Self::mx4).
    pub fn amxfp4() -> Self {
        Self::of(BlockFormat::AMXFP4)
    }

    /// The block floating point of AMD's XDNA2 ([`BlockFormat::BFP16EBS8`]), else as [`mx4`](Self::mx4). Numbers are rounded toward −∞, with
    /// any rounding of the specs.
    pub fn bfp16ebs8() -> Self {
        Self::of(BlockFormat::BFP16EBS8)
    }

    /// [`bfp16ebs8`](Self::bfp16ebs8) with the sums of the chip ([`Chip::Xdna2`]): exact sums of 8 products, which are added up in
    /// float32.
    pub fn xdna2() -> Self {
        Self {
            accumulator: Some(Chip::Xdna2.into()),
            ..Self::bfp16ebs8()
        }
    }

    /// [`mxfp4`](Self::mxfp4) with stochastic rounding and a random Hadamard transform in blocks of 64 in gradient products.
    /// According to Tseng, Yu and Park ("Training LLMs with MXFP4", AISTATS 2025), this recovers most of MXFP4's loss of
    /// accuracy. This preset is this project's own. The paper's recipe, [`mxfp4_backward`](Self::mxfp4_backward), leaves the
    /// forward pass in bfloat16.
    ///
    /// Backward operands have scale mode `rceil`: stochastic rounding is unbiased only without saturation. The paper
    /// avoids saturation by its factor of 3/4.
    pub fn mxfp4_sr_rht() -> Self {
        let backward = BlockFormat {
            scale_mode: ScaleMode::Rceil,
            ..BlockFormat::mx(ElementFormat::FP4_E2M1, 32)
        };
        let stochastic = Some(Rounding::Stochastic);
        Self {
            w_elem_format_bp: Some(backward.into()),
            a_elem_format_bp: Some(backward.into()),
            a_elem_format_bp_ex: Some(backward.into()),
            a_elem_format_bp_os: Some(backward.into()),
            round_mx_input_grad_input: stochastic,
            round_mx_weight_grad_input: stochastic,
            round_mx_grad_output_grad_input: stochastic,
            round_mx_input_grad_weight: stochastic,
            round_mx_grad_output_grad_weight: stochastic,
            hadamard_block_size: 64,
            ..Self::mxfp4()
        }
    }

    fn concrete(element: ElementFormat) -> Self {
        Self {
            w_elem_format: Some(element.into()),
            a_elem_format: Some(element.into()),
            bfloat: 16,
            elementwise_scope: ElementwiseScope::Activations,
            round: Rounding::NearestEven,
            ..Self::mx()
        }
    }

    fn of(format: impl Into<BlockFormat>) -> Self {
        let format = Some(format.into().into());
        Self {
            w_elem_format: format,
            a_elem_format: format,
            bfloat: 16,
            elementwise_scope: ElementwiseScope::Activations,
            round: Rounding::NearestEven,
            ..Self::default()
        }
    }

    /// The specs of this name, one of [`PRESETS`](Self::PRESETS) in upper or lower case. The constructor of the same name
    /// returns the same specs. AMD Quark's names of the formats (`MXFP8E4M3`, `MX6`, `BFP16`, …) are allowed, too. So are `fp32` and
    /// `float32`, which emulate nothing, and `bfloat16`, for elementwise operations and results of products in bfloat16 and operands
    /// without blocks.
    ///
    /// # Errors
    /// [`SpecsError::UnknownPreset`].
    pub fn preset(name: &str) -> Result<Self, SpecsError> {
        let find = |name: &str| {
            let mut presets = PRESETS.iter();
            presets.find(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        let alias = |name: &str| find(&name.parse::<BlockFormat>().ok()?.to_string());
        let plain = || {
            let mut plain = PLAIN.iter();
            plain.find(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        find(name)
            .or_else(|| alias(name))
            .or_else(|| alias(&name.to_ascii_uppercase()))
            .or_else(plain)
            .map(|(_, specs)| specs())
            .ok_or_else(|| SpecsError::UnknownPreset { name: name.into() })
    }
}

/// A hint for the error of an unknown preset: the preset of an element, the place for a block format, or names that are alike.
pub(super) fn hint(name: &str) -> String {
    let slot = "`w_elem_format` and the other slots take it";
    if let Ok(element) = name.parse::<ElementFormat>() {
        let preset = BlockFormat::mx(element, 32).to_string();
        return match MxSpecs::PRESETS.contains(&preset.as_str()) {
            true => format!("; `{name}` is an element format, and the preset is `{preset}`"),
            false => format!("; `{name}` is an element format: {slot}"),
        };
    }
    match name.parse::<BlockFormat>() {
        Ok(_) => format!("; `{name}` is a block format: {slot}"),
        Err(error) if name.contains('(') => {
            format!("; presets have no parameters. As a block format: {error}")
        }
        Err(_) => suggestion::nearest(name, MxSpecs::PRESETS.iter().copied()),
    }
}
