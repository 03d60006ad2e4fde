//! Specs for single layers: `--layer 'head=fp32'`, `--layer 'blocks.*=mxfp4,block_size=16'`.

use std::fmt;

use burn::module::Module;
use burn_mx::{
    MxArgs, MxSpecs, ResolvedSpecs,
    module::{MxTensorOps, PathError, set_specs_at},
};
use clap::Parser;
use serde::{Serialize, Serializer};

/// A preset's name with fields that differ, and the resulting specs.
#[derive(Debug, Clone)]
pub(crate) struct LayerSpecs {
    text: String,
    pub(crate) specs: ResolvedSpecs,
}

/// Specs for the parameters that a path pattern matches.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Layer {
    pub(crate) pattern: String,
    #[serde(serialize_with = "fields")]
    pub(crate) specs: LayerSpecs,
}

fn fields<S: Serializer>(specs: &LayerSpecs, serializer: S) -> Result<S::Ok, S::Error> {
    specs.specs.specs().serialize(serializer)
}

/// The flags of the MX specs, without a program around them.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Fields {
    #[command(flatten)]
    specs: MxArgs,
}

impl LayerSpecs {
    /// Parses `PRESET[,FIELD=VALUE]...`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_fields(text).into_iter();
        let name = parts.next().expect("a split text has a first part");
        let preset = MxSpecs::preset(name).map_err(|_| {
            format!(
                "preset '{name}' is unknown; allowed: fp32, bfloat16, {}, or AMD Quark's name of a format",
                MxSpecs::PRESETS.join(", ")
            )
        })?;
        let flags = parts.flat_map(|field| match field.split_once('=') {
            Some((name, value)) => vec![format!("--{name}"), value.to_owned()],
            None => vec![format!("--{field}")],
        });
        let fields = Fields::try_parse_from(flags).map_err(|error| first_line(&error))?;
        let specs = fields
            .specs
            .specs(preset)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            text: text.to_owned(),
            specs,
        })
    }
}

/// Splits at the commas that stand outside of parentheses: block formats have commas inside.
fn split_fields(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth == 0
    })
    .collect()
}

/// clap's message without its advice on usage, which belongs to another program.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    format!("{line}; allowed after the preset: the options under \"MX specs\" as FIELD=VALUE")
}

impl Layer {
    /// A layer to which a recipe gives these specs.
    pub(crate) fn of(path: String, specs: ResolvedSpecs) -> Self {
        Self {
            pattern: path,
            specs: LayerSpecs {
                text: specs.to_string(),
                specs,
            },
        }
    }

    /// Parses `PATTERN=PRESET[,FIELD=VALUE]...`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (pattern, specs) = text
            .split_once('=')
            .filter(|(pattern, _)| !pattern.is_empty())
            .ok_or(
                "allowed: PATTERN=PRESET, such as head=fp32 or 'blocks.*=mxfp4,block_size=16'",
            )?;
        Ok(Self {
            pattern: pattern.to_owned(),
            specs: LayerSpecs::parse(specs)?,
        })
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.specs.text)
    }
}

/// Sets the specs of each of `layers` in turn: of two that match a parameter, the later one counts.
pub(crate) fn set_layers<B: MxTensorOps, M: Module<B>>(
    model: M,
    layers: &[Layer],
) -> Result<M, PathError> {
    layers.iter().try_fold(model, |model, layer| {
        set_specs_at(model, &layer.pattern, &layer.specs.specs)
    })
}
