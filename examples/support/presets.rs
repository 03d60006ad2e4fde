//! Names of presets on the command line.

use std::ffi::OsStr;

use burn_mx::MxSpecs;
use clap::{
    Arg, Command,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

/// Stands for every preset that emulates something.
const ALL: &str = "all";
/// The preset that emulates nothing.
const NO_EMULATION: &str = "none";

/// Accepts a preset's name, another name of its format, such as AMD Quark's, or `all`. Its value is the preset's own
/// name, so that a run is called, saved and found again by one name.
#[derive(Clone)]
pub(crate) struct PresetParser(PossibleValuesParser);

impl PresetParser {
    pub(crate) fn new() -> Self {
        Self(MxSpecs::PRESETS.iter().copied().chain([ALL]).into())
    }
}

impl TypedValueParser for PresetParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let known = value.to_str().and_then(own_name);
        let value = known.map_or(value, OsStr::new);
        self.0.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// The name under which [`MxSpecs::PRESETS`] lists what `name` stands for.
fn own_name(name: &str) -> Option<&'static str> {
    let specs = MxSpecs::preset(name).ok()?;
    let mut presets = MxSpecs::PRESETS.iter().copied();
    presets.find(|own| MxSpecs::preset(own).as_ref() == Ok(&specs))
}

/// The presets that `names` stand for.
pub(crate) fn expand(names: &[String]) -> Vec<&str> {
    let presets = || MxSpecs::PRESETS.iter().copied();
    let named = names.iter().map(String::as_str);
    named
        .flat_map(|name| match name {
            ALL => presets().filter(|name| *name != NO_EMULATION).collect(),
            _ => vec![name],
        })
        .collect()
}
