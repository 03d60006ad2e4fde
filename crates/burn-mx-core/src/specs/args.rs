//! Command-line flags for [`MxSpecs`], one for each field, like the reference's `add_mx_args`.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id};
use serde_json::{Map, Value};

use crate::specs::{MxSpecs, ResolvedSpecs, SpecsError, SpecsField, WITHOUT_EFFECT};

const HEADING: &str = "MX specs";
const GROUP: &str = "MxArgs";

/// The flag of all fields whose names begin with it.
const MX_ROUNDINGS: &str = "round_mx";

fn mx_roundings() -> impl Iterator<Item = &'static SpecsField> {
    let fields = MxSpecs::FIELDS.iter();
    fields.filter(|field| field.name.starts_with(MX_ROUNDINGS))
}

/// The flags of the fields, and the reference's flags without a field.
fn flags() -> impl Iterator<Item = &'static SpecsField> {
    MxSpecs::FIELDS.iter().chain(&WITHOUT_EFFECT)
}

/// The fields of [`MxSpecs`] that a command line sets. [`apply`](Self::apply) puts them over specs of your choice.
///
/// Flatten it into a clap parser. Words of a flag are joined by `-` or, as in the reference, by `_`. Booleans that default to
/// true are negated: `--no-quantize-backprop`, `--no-bfloat-subnorms`, `--no-quantize-matmul`. The seed is `--mx-seed`, because
/// programs that train have their own `--seed`. A flag can switch a boolean from its default, not back to it. `none` unsets a
/// format or a rounding, so that it takes its own default again. `--round-m` and `--custom-cuda` of the reference are read,
/// dropped and reported once.
///
/// `--round-mx` sets the six MX roundings, and no elementwise one. The flag of one of the six wins over it.
///
/// The flags stand under the heading "MX specs", or under the heading that `next_help_heading` sets.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_mx::{MxArgs, MxSpecs};
/// use clap::Parser;
///
/// #[derive(Parser)]
/// struct Args {
///     #[command(flatten)]
///     mx: MxArgs,
/// }
///
/// let line = ["train", "--a-elem-format", "fp8_e4m3", "--no_quantize_backprop"];
/// let args = Args::parse_from(line);
/// let specs = args.mx.specs(MxSpecs::mxfp4())?;
/// assert_eq!(specs.to_string(), "w fp4_e2m1, a fp8_e4m3, block 32, bfloat16, round even, forward only");
/// # Ok::<(), burn_mx::SpecsError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MxArgs(
    /// The given fields as JSON, each checked alone.
    Map<String, Value>,
);

impl MxArgs {
    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `base` with the given flags in place of its fields. Fields that `base` leaves unset still
    /// follow the field that they default to, so `--w-elem-format` reaches the backward pass too.
    ///
    /// JSON cannot hold a text that names no format. If `base` has such a text, and no flag replaces the field, this returns
    /// `base` unchanged: [`MxSpecs::resolve`] refuses those specs with or without the flags.
    pub fn apply(&self, base: MxSpecs) -> MxSpecs {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(&base) else {
            unreachable!("specs are a JSON object");
        };
        fields.extend(self.0.clone());
        serde_json::from_value(fields.into()).unwrap_or(base)
    }

    /// [`apply`](Self::apply), then [`MxSpecs::resolve`].
    ///
    /// # Errors
    /// [`MxSpecs::resolve`] returns them. The parser checks each flag alone; `resolve` checks all of them together.
    pub fn specs(&self, base: MxSpecs) -> Result<ResolvedSpecs, SpecsError> {
        self.apply(base).resolve()
    }
}

impl Args for MxArgs {
    /// The flags stand under the heading of `command` (`next_help_heading`), or under "MX specs" if it has none.
    fn augment_args(command: Command) -> Command {
        let has_heading = command.get_next_help_heading().is_some();
        let args = flags().map(|field| {
            let flag = field.flag;
            let arg = Arg::new(flag).long(flag.replace('_', "-")).help(field.help);
            let arg = match field.value {
                None => arg.action(ArgAction::SetTrue),
                Some(value) => arg
                    .value_name(value)
                    .allow_negative_numbers(true)
                    .value_parser(move |text: &str| parse(field.name, value, text)),
            };
            if flag.contains('_') {
                arg.alias(flag)
            } else {
                arg
            }
        });
        let (first, help) = (
            mx_roundings().next(),
            "All MX roundings, and no elementwise one",
        );
        let first = first.expect("there are six").name;
        let round_mx = Arg::new(MX_ROUNDINGS)
            .long("round-mx")
            .alias(MX_ROUNDINGS)
            .help(format!("{help}: nearest, even, floor or stochastic"))
            .value_name("ROUNDING")
            .value_parser(move |text: &str| parse(first, "ROUNDING", text));
        let args = args.chain([round_mx]).map(|arg| match has_heading {
            true => arg,
            false => arg.help_heading(HEADING),
        });
        let group = ArgGroup::new(GROUP).multiple(true);
        let names = flags().map(|field| field.flag).chain([MX_ROUNDINGS]);
        command.args(args).group(group.args(names))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }

    fn group_id() -> Option<Id> {
        Some(GROUP.into())
    }
}

impl FromArgMatches for MxArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(rounding) = matches.get_one::<Value>(MX_ROUNDINGS) {
            let fields = mx_roundings().map(|field| (field.name.to_owned(), rounding.clone()));
            self.0.extend(fields);
        }
        for field in flags() {
            let given = match field.value {
                None => matches
                    .get_flag(field.flag)
                    .then(|| Value::Bool(!field.flag.starts_with("no_"))),
                Some(_) => matches.get_one::<Value>(field.flag).cloned(),
            };
            if let Some(given) = given {
                self.0.insert(field.name.to_owned(), given);
            }
        }
        Ok(())
    }
}

/// The text of a flag as JSON that [`MxSpecs`] load, if its field alone may have it.
fn parse(field: &str, value: &str, text: &str) -> Result<Value, String> {
    let json = match value {
        "BITS" | "ELEMENTS" | "SEED" => match text.parse::<u64>() {
            Ok(number) => Value::from(number),
            Err(_) => return Err("allowed: a whole number from 0".into()),
        },
        _ => Value::from(text),
    };
    let alone = Map::from_iter([(field.to_owned(), json.clone())]);
    let specs: MxSpecs = serde_json::from_value(alone.into()).map_err(|error| error.to_string())?;
    match specs.resolve() {
        Err(error @ SpecsError::OutOfRange { .. }) => Err(error.to_string()),
        // A flag that contradicts the defaults may fit other specs.
        _ => Ok(json),
    }
}
