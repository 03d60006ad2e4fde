//! Names of presets on the command line.

use std::str::FromStr;

use burn_mx::{MxSpecs, SpecsError};

/// Stands for every preset that emulates something.
const ALL: &str = "all";
/// Stands for the recipes of the literature.
const LITERATURE: &str = "literature";
/// The preset that emulates nothing.
const NO_EMULATION: &str = "none";

/// Names of formats without blocks, which `all` leaves out.
const BEYOND: [&str; 1] = ["bfloat16"];

/// The presets that `--preset` names: one preset, the recipes of the literature, or every preset that emulates something. Another name of a
/// format, such as AMD Quark's, becomes the preset's own, so that a run is called, saved and found again by one name.
#[derive(Debug, Clone)]
pub(crate) struct Presets(Vec<&'static str>);

impl FromStr for Presets {
    type Err = SpecsError;

    fn from_str(text: &str) -> Result<Self, SpecsError> {
        let presets = || MxSpecs::PRESETS.iter().copied();
        if text == ALL {
            return Ok(Self(
                presets().filter(|name| *name != NO_EMULATION).collect(),
            ));
        }
        if text == LITERATURE {
            return Ok(Self(MxSpecs::LITERATURE.to_vec()));
        }
        let specs = MxSpecs::preset(text)?;
        let own = presets().chain(BEYOND);
        let own = own.filter(|own| MxSpecs::preset(own).as_ref() == Ok(&specs));
        Ok(Self(own.take(1).collect()))
    }
}

/// The presets that the values of `--preset` stand for.
pub(crate) fn expand(named: &[Presets]) -> Vec<&'static str> {
    named
        .iter()
        .flat_map(|presets| presets.0.iter().copied())
        .collect()
}
