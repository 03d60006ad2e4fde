//! The named specs.

use microscaling::{
    BfpFormat, BlockFormat, ElementFormat, FloatScaleFormat, MicroexponentFormat, MxFormat,
    Nvfp4Format, Rounding, ScaleMode,
};

use super::{MxSpecs, SpecsError};

type Preset = (&'static str, fn() -> MxSpecs);

/// The named specs, in the order in which [`MxSpecs::PRESETS`] lists them.
const PRESETS: [Preset; 29] = [
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
    ("mxfp4_sr_rht", MxSpecs::mxfp4_sr_rht),
    ("mxfp8_pretraining", MxSpecs::mxfp8_pretraining),
    ("mxfp6_training", MxSpecs::mxfp6_training),
    ("mxfp4_backward", MxSpecs::mxfp4_backward),
    ("nvfp4_pretraining", MxSpecs::nvfp4_pretraining),
    ("quartet", MxSpecs::quartet),
    ("quartet_code", MxSpecs::quartet_code),
    ("quartet2", MxSpecs::quartet2),
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

    /// The [`PRESETS`](Self::PRESETS) that are training recipes of the literature; [`Recipe`](crate::Recipe) has their
    /// exemptions.
    pub const LITERATURE: &'static [&'static str] = &[
        "mxfp8_pretraining",
        "mxfp6_training",
        "mxfp4_backward",
        "nvfp4_pretraining",
        "quartet",
        "quartet_code",
        "quartet2",
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

    /// MXFP8 with E4M3 elements (OCP MX v1.0) for weights and activations, forward and backward; block 32, 8 scale
    /// bits, bfloat16 elementwise, ties to even. The other five presets of MX formats differ only in their element.
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

    /// Microexponents with 4 bits an element ([`MicroexponentFormat::MX4`]) for weights and activations, forward and
    /// backward; bfloat16 elementwise, ties to even. The next four presets differ only in their format.
    pub fn mx4() -> Self {
        Self::of(MicroexponentFormat::MX4)
    }

    /// Microexponents with 6 bits an element ([`MicroexponentFormat::MX6`]), else as [`mx4`](Self::mx4).
    pub fn mx6() -> Self {
        Self::of(MicroexponentFormat::MX6)
    }

    /// Microexponents with 9 bits an element ([`MicroexponentFormat::MX9`]), else as [`mx4`](Self::mx4).
    pub fn mx9() -> Self {
        Self::of(MicroexponentFormat::MX9)
    }

    /// Block floating point with 16 bits before blocks share the exponent ([`BfpFormat::BFP16`]), else as
    /// [`mx4`](Self::mx4).
    pub fn bfp16() -> Self {
        Self::of(BfpFormat::BFP16)
    }

    /// NVFP4 ([`Nvfp4Format`]) with the tensor scale, else as [`mx4`](Self::mx4). Without the tensor scale, the blocks'
    /// E4M3 scales are too large for most gradients.
    pub fn nvfp4() -> Self {
        Self::of(Nvfp4Format::new(true))
    }

    /// MX blocks of INT4, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxint4() -> Self {
        Self::concrete(ElementFormat::INT4)
    }

    /// NVINT4 ([`FloatScaleFormat::NVINT4`]), else as [`mx4`](Self::mx4).
    pub fn nvint4() -> Self {
        Self::of(FloatScaleFormat::NVINT4)
    }

    /// AMDFP4 ([`FloatScaleFormat::AMDFP4`]), else as [`mx4`](Self::mx4).
    pub fn amdfp4() -> Self {
        Self::of(FloatScaleFormat::AMDFP4)
    }

    /// AMDFP4 in blocks of 32 ([`FloatScaleFormat::AMDFP4_G32`]), else as [`mx4`](Self::mx4).
    pub fn amdfp4_g32() -> Self {
        Self::of(FloatScaleFormat::AMDFP4_G32)
    }

    /// NF4 ([`FloatScaleFormat::NF4`]), else as [`mx4`](Self::mx4).
    pub fn nf4() -> Self {
        Self::of(FloatScaleFormat::NF4)
    }

    /// IF4 ([`FloatScaleFormat::IF4`]), else as [`mx4`](Self::mx4).
    pub fn if4() -> Self {
        Self::of(FloatScaleFormat::IF4)
    }

    /// RaZeR ([`FloatScaleFormat::RAZER`]), else as [`mx4`](Self::mx4).
    pub fn razer() -> Self {
        Self::of(FloatScaleFormat::RAZER)
    }

    /// HiF4 ([`FloatScaleFormat::HIF4`]), else as [`mx4`](Self::mx4).
    pub fn hif4() -> Self {
        Self::of(FloatScaleFormat::HIF4)
    }

    /// [`mxfp4`](Self::mxfp4) with stochastic rounding and a random Hadamard transform in blocks of 64 in gradient products.
    /// According to Tseng, Yu and Park ("Training LLMs with MXFP4", AISTATS 2025), this recovers most of MXFP4's loss of
    /// accuracy. This preset is this project's own. The paper's recipe, [`mxfp4_backward`](Self::mxfp4_backward), leaves the
    /// forward pass in bfloat16.
    ///
    /// Backward operands have scale mode `rceil`: stochastic rounding is unbiased only without saturation. The paper
    /// avoids saturation by its factor of 3/4.
    pub fn mxfp4_sr_rht() -> Self {
        let backward = BlockFormat::Mx(MxFormat {
            scale_mode: ScaleMode::Rceil,
            ..MxFormat::new(ElementFormat::FP4_E2M1, 32)
        });
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
            round: Rounding::NearestEven,
            ..Self::default()
        }
    }

    /// The specs of this name, one of [`PRESETS`](Self::PRESETS) in upper or lower case. The constructor of the same name
    /// returns the same specs. AMD Quark's names of the formats (`MXFP8E4M3`, `MX6`, `BFP16`, …) are allowed, too.
    ///
    /// # Errors
    /// [`SpecsError::UnknownPreset`].
    pub fn preset(name: &str) -> Result<Self, SpecsError> {
        let find = |name: &str| {
            let mut presets = PRESETS.iter();
            presets.find(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        let alias = |name: &str| find(&name.parse::<BlockFormat>().ok()?.to_string());
        find(name)
            .or_else(|| alias(name))
            .or_else(|| alias(&name.to_ascii_uppercase()))
            .map(|(_, specs)| specs())
            .ok_or_else(|| SpecsError::UnknownPreset { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specs::Slot;

    #[test]
    fn names_give_what_the_constructors_give() {
        let eden = "block(element=fp4_e2m1,scale=ue4m3,block_size=16,tensor_scale=true,eden=true,headroom=1581/1600)";
        let expected = [
            ("none", MxSpecs::none(), "no emulation"),
            (
                "mxfp8_e4m3",
                MxSpecs::mxfp8_e4m3(),
                "w fp8_e4m3, a fp8_e4m3, block 32, bfloat16",
            ),
            (
                "mxfp8_e5m2",
                MxSpecs::mxfp8_e5m2(),
                "w fp8_e5m2, a fp8_e5m2, block 32, bfloat16",
            ),
            (
                "mxfp6_e3m2",
                MxSpecs::mxfp6_e3m2(),
                "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16",
            ),
            (
                "mxfp6_e2m3",
                MxSpecs::mxfp6_e2m3(),
                "w fp6_e2m3, a fp6_e2m3, block 32, bfloat16",
            ),
            (
                "mxfp4",
                MxSpecs::mxfp4(),
                "w fp4_e2m1, a fp4_e2m1, block 32, bfloat16",
            ),
            (
                "mxint8",
                MxSpecs::mxint8(),
                "w int8, a int8, block 32, bfloat16",
            ),
            (
                "mxfp8_rceil",
                MxSpecs::mxfp8_rceil(),
                "w fp8_e4m3, a fp8_e4m3, block 32, scale mode rceil, bfloat16",
            ),
            ("mx4", MxSpecs::mx4(), "w mx4, a mx4, bfloat16"),
            ("mx6", MxSpecs::mx6(), "w mx6, a mx6, bfloat16"),
            ("mx9", MxSpecs::mx9(), "w mx9, a mx9, bfloat16"),
            ("bfp16", MxSpecs::bfp16(), "w bfp16, a bfp16, bfloat16"),
            (
                "nvfp4",
                MxSpecs::nvfp4(),
                "w nvfp4(tensor_scale=true), a nvfp4(tensor_scale=true), bfloat16",
            ),
            (
                "mxint4",
                MxSpecs::mxint4(),
                "w int4, a int4, block 32, bfloat16",
            ),
            ("nvint4", MxSpecs::nvint4(), "w nvint4, a nvint4, bfloat16"),
            ("amdfp4", MxSpecs::amdfp4(), "w amdfp4, a amdfp4, bfloat16"),
            (
                "amdfp4_g32",
                MxSpecs::amdfp4_g32(),
                "w amdfp4_g32, a amdfp4_g32, bfloat16",
            ),
            ("nf4", MxSpecs::nf4(), "w nf4, a nf4, bfloat16"),
            ("if4", MxSpecs::if4(), "w if4, a if4, bfloat16"),
            ("razer", MxSpecs::razer(), "w razer, a razer, bfloat16"),
            ("hif4", MxSpecs::hif4(), "w hif4, a hif4, bfloat16"),
            (
                "mxfp4_sr_rht",
                MxSpecs::mxfp4_sr_rht(),
                "w fp4_e2m1, a fp4_e2m1, \
                 w_bp mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
                 a_bp mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
                 a_bp_ex mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
                 a_bp_os mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
                 block 32, Hadamard 64, bfloat16",
            ),
            (
                "mxfp8_pretraining",
                MxSpecs::mxfp8_pretraining(),
                "w fp8_e4m3, a fp8_e4m3, block 32, scale mode rceil, no blocks between activations, bfloat16",
            ),
            (
                "mxfp6_training",
                MxSpecs::mxfp6_training(),
                "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16",
            ),
            (
                "mxfp4_backward",
                MxSpecs::mxfp4_backward(),
                "w_bp mxfp4, a_bp mxfp4, a_bp_ex mxfp4, a_bp_os mxfp4, Hadamard 64:product, \
                 backward headroom 4/3, no blocks between activations, bfloat16",
            ),
            (
                "nvfp4_pretraining",
                MxSpecs::nvfp4_pretraining(),
                "w nvfp4(tensor_scale=true,square=true), a nvfp4(tensor_scale=true), \
                 weight gradient Hadamard 16:0xd7e8, no blocks between activations, bfloat16",
            ),
            (
                "quartet",
                MxSpecs::quartet(),
                "w mx(element=fp4_e2m1,block_size=32,scale_mode=rms,headroom=3/2), \
                 a mx(element=fp4_e2m1,block_size=32,scale_mode=rms,headroom=3/2), w_bp mxfp4, a_bp mxfp4, a_bp_ex mxfp4, \
                 a_bp_os mxfp4, forward Hadamard 32:none, Hadamard 32:product, backward headroom 4/3, \
                 gradients of forward operands, clipped ones masked, no blocks between activations, bfloat16",
            ),
            (
                "quartet_code",
                MxSpecs::quartet_code(),
                "w mx(element=fp4_e2m1,block_size=32,scale_mode=rms), \
                 a mx(element=fp4_e2m1,block_size=32,scale_mode=rms), w_bp mxfp4, a_bp mxfp4, a_bp_ex mxfp4, \
                 a_bp_os mxfp4, forward Hadamard 32:none, Hadamard 32:product, backward headroom 4/3, \
                 gradients of forward operands, clipped ones masked, no blocks between activations, bfloat16",
            ),
            (
                "quartet2",
                MxSpecs::quartet2(),
                &format!(
                    "w nvfp4(tensor_scale=true,four_over_six=true), a nvfp4(tensor_scale=true,four_over_six=true), \
                     w_bp {eden}, a_bp {eden}, a_bp_ex {eden}, a_bp_os {eden}, Hadamard 128:product, \
                     gradients of forward operands, no blocks between activations, bfloat16"
                ),
            ),
        ];
        assert_eq!(
            MxSpecs::PRESETS,
            expected.each_ref().map(|(name, ..)| *name)
        );
        for (name, specs, summary) in expected {
            assert_eq!(specs.resolve().unwrap().to_string(), summary);
            assert_eq!(MxSpecs::preset(name), Ok(specs));
        }
        assert!(MxSpecs::PRESETS.ends_with(MxSpecs::LITERATURE));
        assert_eq!(MxSpecs::mxint8().round, Rounding::NearestEven);
        assert_eq!(MxSpecs::mxint8().scale_bits, 8);
    }

    #[test]
    fn quarks_names() {
        for (name, specs) in [
            ("MX4", MxSpecs::mx4()),
            ("MX6", MxSpecs::mx6()),
            ("MX9", MxSpecs::mx9()),
            ("MXFP8E5M2", MxSpecs::mxfp8_e5m2()),
            ("MXFP8E4M3", MxSpecs::mxfp8_e4m3()),
            ("MXFP6E3M2", MxSpecs::mxfp6_e3m2()),
            ("MXFP6E2M3", MxSpecs::mxfp6_e2m3()),
            ("MXFP4E2M1", MxSpecs::mxfp4()),
            ("MXINT8", MxSpecs::mxint8()),
            ("BFP16", MxSpecs::bfp16()),
        ] {
            assert_eq!(MxSpecs::preset(name), Ok(specs));
        }
    }

    #[test]
    fn names_are_understood_in_any_case() {
        for name in MxSpecs::PRESETS
            .iter()
            .copied()
            .chain(["mxfp8e4m3", "MxFp6E3M2", "bFp16"])
        {
            let expected = MxSpecs::preset(name);
            assert!(expected.is_ok(), "{name}");
            for name in [name.to_uppercase(), name.to_lowercase()] {
                assert_eq!(MxSpecs::preset(&name), expected, "{name}");
            }
        }
        assert_eq!(MxSpecs::preset("mxfp8_E4M3"), Ok(MxSpecs::mxfp8_e4m3()));
    }

    #[test]
    fn every_named_format_has_a_preset_of_its_name() {
        for name in BlockFormat::NAMES {
            let format = match name {
                "nvfp4" => "nvfp4(tensor_scale=true)",
                name => name,
            };
            let specs = MxSpecs::preset(name).unwrap().resolve().unwrap();
            for slot in Slot::ALL {
                assert_eq!(
                    specs.block_format(slot),
                    Some(format.parse().unwrap()),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = MxSpecs::preset("mxfp5").unwrap_err();
        assert_eq!(
            error,
            SpecsError::UnknownPreset {
                name: "mxfp5".into()
            }
        );
        assert_eq!(
            error.to_string(),
            "preset `mxfp5` is unknown; allowed: none, mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, \
             mxfp6_e2m3, mxfp4, mxint8, mxfp8_rceil, mx4, mx6, mx9, bfp16, nvfp4, mxint4, nvint4, amdfp4, \
             amdfp4_g32, nf4, if4, razer, hif4, mxfp4_sr_rht, mxfp8_pretraining, \
             mxfp6_training, mxfp4_backward, nvfp4_pretraining, quartet, quartet_code, quartet2"
        );
    }

    #[test]
    fn mx_alone_and_none_emulate_nothing() {
        assert!(MxSpecs::mx().resolve().unwrap().is_none());
        assert!(MxSpecs::none().resolve().unwrap().is_none());
        assert_eq!(MxSpecs::none(), MxSpecs::default());
    }
}
