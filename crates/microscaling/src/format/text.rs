//! Block formats as text: names, and families with parameters.

mod fields;
pub(crate) mod parameters;

use crate::format::{BlockFormat, ElementFormat, NonFinite, ParseFormatError, ScaleMode};
use crate::names::{NameError, impl_serde_by_text};
use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;
use core::str::FromStr;
use fields::{FAMILIES, Family};
use parameters::Parameters;

/// The formats with a name: name, Quark's name if it has one, format.
const NAMED: [(&str, Option<&str>, BlockFormat); 22] = {
    type E = ElementFormat;
    type B = BlockFormat;
    let rceil = BlockFormat {
        scale_mode: ScaleMode::Rceil,
        ..B::mx(E::FP8_E4M3, 32)
    };
    [
        ("mxfp8_e5m2", Some("MXFP8E5M2"), B::mx(E::FP8_E5M2, 32)),
        ("mxfp8_e4m3", Some("MXFP8E4M3"), B::mx(E::FP8_E4M3, 32)),
        ("mxfp6_e3m2", Some("MXFP6E3M2"), B::mx(E::FP6_E3M2, 32)),
        ("mxfp6_e2m3", Some("MXFP6E2M3"), B::mx(E::FP6_E2M3, 32)),
        ("mxfp4", Some("MXFP4E2M1"), B::mx(E::FP4_E2M1, 32)),
        ("mxint8", Some("MXINT8"), B::mx(E::INT8, 32)),
        ("mxfp8_rceil", None, rceil),
        ("mx4", Some("MX4"), B::MX4),
        ("mx6", Some("MX6"), B::MX6),
        ("mx9", Some("MX9"), B::MX9),
        ("bfp16", Some("BFP16"), B::BFP16),
        ("nvfp4", Some("NVFP4"), B::NVFP4),
        ("mxint4", None, B::mx(E::INT4, 32)),
        ("nvint4", None, B::NVINT4),
        ("amdfp4", None, B::AMDFP4),
        ("amdfp4_g32", None, B::AMDFP4_G32),
        ("nf4", None, B::NF4),
        ("if4", None, B::IF4),
        ("razer", None, B::RAZER),
        ("hif4", None, B::HIF4),
        ("amxfp4", None, B::AMXFP4),
        ("bfp16ebs8", None, B::BFP16EBS8),
    ]
};

impl BlockFormat {
    /// The names without parameters: the concrete formats of OCP MX v1.0, NVIDIA's recipe for MXFP8 (E4M3, scale mode `rceil`),
    /// the microexponents, BFP16, NVFP4 without a tensor scale, [`mxint4`](ElementFormat::INT4) in MX blocks, and the other
    /// constants.
    pub const NAMES: [&'static str; NAMED.len()] = {
        let mut names = [""; NAMED.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = NAMED[i].0;
            i += 1;
        }
        names
    };

    /// The allowed values that an error lists: the names, then the families.
    pub(crate) fn expected() -> impl Iterator<Item = &'static str> {
        let families = FAMILIES.iter().map(|family| family.with_parameters);
        Self::NAMES.into_iter().chain(families)
    }

    /// The family whose parameters say the format.
    fn family(&self) -> &'static Family {
        let name = match self {
            Self {
                shifts: Some(_), ..
            } => "microexponent",
            Self {
                non_finite: NonFinite::TopExponent,
                ..
            } => "bfp16ebs8",
            Self {
                non_finite: NonFinite::Kept,
                ..
            } => "bfp",
            _ if self.has_exponent() => "mx",
            _ if self.is_nvfp4() => "nvfp4",
            _ => "block",
        };
        let family = FAMILIES.iter().find(|family| family.name == name);
        family.expect("it is one of the families")
    }
}

/// The allowed values of a parameter that has names.
pub(super) fn one_of(names: impl IntoIterator<Item = &'static str>) -> String {
    let mut text = String::from("one of ");
    for (i, name) in names.into_iter().enumerate() {
        text += if i == 0 { "" } else { ", " };
        text += name;
    }
    text
}

impl FromStr for BlockFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((.., format)) = named(text) {
            return Ok(format);
        }
        for family in &FAMILIES {
            if let Some(parameters) = Parameters::of(text, family.name, family.names) {
                let format = family.read(parameters?)?;
                let valid = format.validate();
                valid.map_err(|error| family.with_value(&format, error))?;
                return Ok(format);
            }
        }
        if let Some(error) = name_with_parameters(text) {
            return Err(error);
        }
        Err(ParseFormatError::Unknown(NameError {
            kind: "block format",
            value: text.to_string(),
            allowed: Self::expected().collect(),
        }))
    }
}

/// The row of a name.
fn named(text: &str) -> Option<(&'static str, Option<&'static str>, BlockFormat)> {
    let named = |(name, alias, _): &(_, _, _)| *name == text || *alias == Some(text);
    NAMED.into_iter().find(named)
}

/// The error of a name that is given parameters, which only families have: `mxfp4(block_size=16)`. The error has the family with the
/// parameters that make the name's format, and the given ones.
fn name_with_parameters(text: &str) -> Option<ParseFormatError> {
    let (head, given) = text.split_once('(')?;
    let (name, _, format) = named(head)?;
    let value = text.to_string();
    if !given.ends_with(')') {
        return Some(ParseFormatError::Bracket { value });
    }
    let family = format.family();
    let is_given = |field: &str| given.contains(&format!("{field}="));
    let own = family.needed(&format).filter(|(field, _)| !is_given(field));
    let mut parameters: String = own
        .map(|(field, value)| format!("{field}={value},"))
        .collect();
    parameters += given;
    Some(ParseFormatError::NameWithParameters {
        value,
        name,
        family: format!("{}({parameters}", family.name),
    })
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, ..)) = NAMED.iter().find(|(.., format)| format == self) {
            return f.pad(name);
        }
        let family = self.family();
        let mut text = format!("{}(", family.name);
        for (i, (field, value)) in family.shown(self).enumerate() {
            text += if i == 0 { "" } else { "," };
            text += &format!("{field}={value}");
        }
        text.push(')');
        f.pad(&text)
    }
}

impl_serde_by_text!(BlockFormat, "the name of a block format");
