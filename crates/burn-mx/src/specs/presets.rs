//! The named specs.

use microscaling::{ElementFormat, Rounding};

use super::{MxSpecs, SpecsError};

type Preset = (&'static str, fn() -> MxSpecs);

/// The named specs, in the order in which [`MxSpecs::PRESETS`] lists them.
const PRESETS: [Preset; 7] = [
    ("none", MxSpecs::none),
    ("mxfp8_e4m3", MxSpecs::mxfp8_e4m3),
    ("mxfp8_e5m2", MxSpecs::mxfp8_e5m2),
    ("mxfp6_e3m2", MxSpecs::mxfp6_e3m2),
    ("mxfp6_e2m3", MxSpecs::mxfp6_e2m3),
    ("mxfp4", MxSpecs::mxfp4),
    ("mxint8", MxSpecs::mxint8),
];

impl MxSpecs {
    /// The names that [`preset`](Self::preset) knows.
    pub const PRESETS: &'static [&'static str] = &{
        let mut names = [""; PRESETS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = PRESETS[i].0;
            i += 1;
        }
        names
    };

    /// The block of OCP MX v1.0 (32 elements, 8 scale bits) with no format set: a base for struct
    /// updates.
    ///
    /// ```
    /// # use burn_mx::MxSpecs;
    /// use microscaling::ElementFormat;
    /// let weights_only = MxSpecs { w_elem_format: Some(ElementFormat::Int8), ..MxSpecs::mx() };
    /// ```
    pub fn mx() -> Self {
        Self {
            scale_bits: 8,
            block_size: 32,
            ..Self::default()
        }
    }

    /// Deliberately no emulation. Equal to the default, but says at the place of use that float32
    /// is meant.
    pub fn none() -> Self {
        Self::default()
    }

    /// MXFP8 with E4M3 elements (OCP MX v1.0) for weights and activations, forward and backward;
    /// block 32, 8 scale bits, bfloat16 elementwise, ties to even. So are the other five but for
    /// their element.
    pub fn mxfp8_e4m3() -> Self {
        Self::concrete(ElementFormat::Fp8E4M3)
    }

    /// MXFP8 with E5M2 elements, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp8_e5m2() -> Self {
        Self::concrete(ElementFormat::Fp8E5M2)
    }

    /// MXFP6 with E3M2 elements, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp6_e3m2() -> Self {
        Self::concrete(ElementFormat::Fp6E3M2)
    }

    /// MXFP6 with E2M3 elements, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp6_e2m3() -> Self {
        Self::concrete(ElementFormat::Fp6E2M3)
    }

    /// MXFP4 (E2M1 elements), else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxfp4() -> Self {
        Self::concrete(ElementFormat::Fp4E2M1)
    }

    /// MXINT8, else as [`mxfp8_e4m3`](Self::mxfp8_e4m3).
    pub fn mxint8() -> Self {
        Self::concrete(ElementFormat::Int8)
    }

    fn concrete(element: ElementFormat) -> Self {
        Self {
            w_elem_format: Some(element),
            a_elem_format: Some(element),
            bfloat: 16,
            round: Rounding::Even,
            ..Self::mx()
        }
    }

    /// The specs of that name, one of [`PRESETS`](Self::PRESETS); the constructor of the same name
    /// gives the same.
    ///
    /// # Errors
    /// [`SpecsError::UnknownPreset`].
    pub fn preset(name: &str) -> Result<Self, SpecsError> {
        PRESETS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, specs)| specs())
            .ok_or_else(|| SpecsError::UnknownPreset { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_what_the_constructors_give() {
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
        ];
        assert_eq!(
            MxSpecs::PRESETS,
            expected.each_ref().map(|(name, ..)| *name)
        );
        for (name, specs, summary) in expected {
            assert_eq!(specs.resolve().unwrap().to_string(), summary);
            assert_eq!(MxSpecs::preset(name), Ok(specs));
        }
        assert_eq!(MxSpecs::mxint8().round, Rounding::Even);
        assert_eq!(MxSpecs::mxint8().scale_bits, 8);
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
             mxfp6_e2m3, mxfp4, mxint8"
        );
    }

    #[test]
    fn mx_alone_and_none_emulate_nothing() {
        assert!(MxSpecs::mx().resolve().unwrap().is_none());
        assert!(MxSpecs::none().resolve().unwrap().is_none());
        assert_eq!(MxSpecs::none(), MxSpecs::default());
    }
}
