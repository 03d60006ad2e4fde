//! Command-line flags for [`MxSpecs`], one for each field, like the reference's `add_mx_args`.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id};
use serde_json::{Map, Value};

use crate::specs::{MxSpecs, ResolvedSpecs, SpecsError};

const HEADING: &str = "MX specs";
const GROUP: &str = "MxArgs";

/// The flags: name, value, help. A flag without a value is a switch; it makes a boolean true, or false if it begins with `no_`.
#[rustfmt::skip]
const FLAGS: &[(&str, &str, &str)] = &[
    ("scale_bits", "BITS", "Bits of the scale that a block shares: 1 to 8, 0 means 8"),
    ("w_elem_format", "FORMAT", "Format of weights: an MX element such as fp8_e4m3, a block format such as mx6, or none"),
    ("a_elem_format", "FORMAT", "Format of activations, or none"),
    ("w_elem_format_bp", "FORMAT", "Backward: format of weights [default: w_elem_format]"),
    ("a_elem_format_bp", "FORMAT", "Backward: format of saved activations [default: a_elem_format]"),
    ("a_elem_format_bp_ex", "FORMAT", "Backward: format of the gradient in a weight's gradient [default: a_elem_format]"),
    ("a_elem_format_bp_os", "FORMAT", "Backward: format of the gradient in an input's gradient [default: a_elem_format]"),
    ("mx_flush_fp32_subnorms", "", "Make a block of float32 subnormals zero"),
    ("shared_exp_method", "METHOD", "Elements that share an exponent: max (a block) or none (every element has its own)"),
    ("scale_mode", "MODE", "Rule for the scale of a block: floor, ceil, even, rceil or rms"),
    ("block_size", "ELEMENTS", "Elements of an MX block, 0 for the whole axis"),
    ("bfloat", "BITS", "Bits of the elementwise format with 8 exponent bits: 10 to 32, 0 for none; excludes fp"),
    ("fp", "BITS", "Bits of the elementwise format with 5 exponent bits: 7 to 29, 0 for none; excludes bfloat"),
    ("no_bfloat_subnorms", "", "Flush subnormals of the elementwise format to zero"),
    ("no_quantize_backprop", "", "Run the backward pass in float32"),
    ("round", "ROUNDING", "Elementwise rounding, and the default of all other roundings: nearest, even, floor or stochastic"),
    ("round_m", "ROUNDING", "Rounding of optimizer state; has no effect"),
    ("round_weight", "ROUNDING", "Elementwise rounding of weights and biases [default: round]"),
    ("round_output", "ROUNDING", "Elementwise rounding of activations [default: round]"),
    ("round_grad_weight", "ROUNDING", "Elementwise rounding of weight gradients [default: round]"),
    ("round_grad_input", "ROUNDING", "Elementwise rounding of activation gradients [default: round]"),
    ("round_mx_output", "ROUNDING", "MX rounding, forward [default: round]"),
    ("round_mx_input_grad_input", "ROUNDING", "MX rounding of saved activations, between activations [default: round_grad_input]"),
    ("round_mx_weight_grad_input", "ROUNDING", "MX rounding of weights in an input's gradient [default: round_grad_input]"),
    ("round_mx_grad_output_grad_input", "ROUNDING", "MX rounding of the gradient in an input's gradient [default: round_grad_input]"),
    ("round_mx_input_grad_weight", "ROUNDING", "MX rounding of inputs in a weight's gradient [default: round_grad_input]"),
    ("round_mx_grad_output_grad_weight", "ROUNDING", "MX rounding of the gradient in a weight's gradient [default: round_grad_input]"),
    ("softmax_exp2", "", "Take powers of 2 instead of e in softmax"),
    ("vec_use_exp2", "", "Compute e^x as a power of 2"),
    ("vec_use_recip", "", "Compute a / b as a * (1 / b)"),
    ("custom_cuda", "", "Has no effect: native kernels always run where they exist"),
    ("hadamard_block_size", "ELEMENTS", "Random Hadamard transform in gradient products: blocks of 16, 32, 64 or 128, 0 for none"),
    ("hadamard_forward", "HADAMARD", "Hadamard transform in forward products: a block size as above, then :step, :product, :none or signs such as :0xd7e8"),
    ("hadamard_input_grad", "HADAMARD", "Hadamard transform in an input's gradient [default: hadamard_block_size]"),
    ("hadamard_weight_grad", "HADAMARD", "Hadamard transform in a weight's gradient [default: hadamard_block_size]"),
    ("headroom_bp", "RATIO", "Backward: headroom of MX blocks, such as 4/3"),
    ("gradient_operands", "OPERANDS", "Operands that gradient products read: original, or forward"),
    ("mask_clipped", "", "Make a gradient zero where its operand was clipped"),
    ("accumulator", "ACCUMULATOR", "Matrix unit that sums up every product: volta … blackwell, cdna1 … cdna3, hopper_promote128 or accumulator(…)"),
    ("accumulator_forward", "ACCUMULATOR", "Matrix unit of forward products [default: accumulator]"),
    ("accumulator_input_grad", "ACCUMULATOR", "Matrix unit of an input's gradient [default: accumulator]"),
    ("accumulator_weight_grad", "ACCUMULATOR", "Matrix unit of a weight's gradient [default: accumulator]"),
    ("no_quantize_matmul", "", "Leave products of two activations, such as attention's, without block formats"),
    ("quantize_constants", "", "Quantize products of an activation with a constant in blocks, too"),
    ("quantize_loss", "", "Emulate log_softmax and the loss that follows from it, too"),
    ("mx_seed", "SEED", "Seed of stochastic rounding and of the Hadamard transform"),
];

/// The field of [`MxSpecs`] that a flag sets.
fn field(flag: &str) -> &str {
    match flag {
        "mx_seed" => "seed",
        _ => flag.strip_prefix("no_").unwrap_or(flag),
    }
}

/// The fields of [`MxSpecs`] that a command line sets. [`apply`](Self::apply) puts them over specs of your choice.
///
/// Flatten it into a clap parser. Words of a flag are joined by `-` or, as in the reference, by `_`. Booleans that default to
/// true are negated: `--no-quantize-backprop`, `--no-bfloat-subnorms`, `--no-quantize-matmul`. The seed is `--mx-seed`, because
/// programs that train have their own `--seed`. A flag can switch a boolean from its default, not back to it. `none` unsets a
/// format or a rounding, so that it takes its own default again. `--round-m` and `--custom-cuda` of the reference are read,
/// dropped and logged once.
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
/// assert_eq!(specs.to_string(), "w fp4_e2m1, a fp8_e4m3, block 32, bfloat16, forward only");
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
        let flags = FLAGS.iter().map(|&(flag, value, help)| {
            let arg = Arg::new(flag).long(flag.replace('_', "-")).help(help);
            let arg = match value {
                "" => arg.action(ArgAction::SetTrue),
                _ => arg
                    .value_name(value)
                    .allow_negative_numbers(true)
                    .value_parser(move |text: &str| parse(flag, value, text)),
            };
            let arg = if has_heading {
                arg
            } else {
                arg.help_heading(HEADING)
            };
            if flag.contains('_') {
                arg.alias(flag)
            } else {
                arg
            }
        });
        let group = ArgGroup::new(GROUP).multiple(true);
        command
            .args(flags)
            .group(group.args(FLAGS.iter().map(|&(flag, ..)| flag)))
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
        for &(flag, value, _) in FLAGS {
            let given = match value {
                "" => matches
                    .get_flag(flag)
                    .then(|| Value::Bool(!flag.starts_with("no_"))),
                _ => matches.get_one::<Value>(flag).cloned(),
            };
            if let Some(given) = given {
                self.0.insert(field(flag).to_owned(), given);
            }
        }
        Ok(())
    }
}

/// The text of a flag as JSON that [`MxSpecs`] load, if its field alone may have it.
fn parse(flag: &str, value: &str, text: &str) -> Result<Value, String> {
    let json = match value {
        "BITS" | "ELEMENTS" | "SEED" => match text.parse::<u64>() {
            Ok(number) => Value::from(number),
            Err(_) => return Err("allowed: a whole number from 0".into()),
        },
        _ => Value::from(text),
    };
    let alone = Map::from_iter([(field(flag).to_owned(), json.clone())]);
    let specs: MxSpecs = serde_json::from_value(alone.into()).map_err(|error| error.to_string())?;
    match specs.resolve() {
        Err(error @ SpecsError::OutOfRange { .. }) => Err(error.to_string()),
        // What contradicts the defaults may fit other specs.
        _ => Ok(json),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use microscaling::{Rounding, ScaleMode};

    use super::*;
    use crate::specs::{GradientOperands, Hadamard};

    #[derive(Debug, Parser)]
    #[command(name = "train")]
    struct Train {
        #[arg(long = "batch-size")]
        batch_size: Option<usize>,
        #[command(flatten)]
        mx: MxArgs,
        #[arg(long)]
        seed: Option<u64>,
    }

    fn parse(line: &[&str]) -> Result<MxArgs, clap::Error> {
        Train::try_parse_from([&["train"], line].concat()).map(|train| train.mx)
    }

    fn flags(command: &Command) -> Vec<&Arg> {
        let ours = |arg: &&Arg| arg.get_help_heading() == Some(HEADING);
        command.get_arguments().filter(ours).collect()
    }

    /// A value other than the flag's default; `None` for a switch.
    fn sample(arg: &Arg) -> Option<&'static str> {
        let name = arg
            .get_value_names()
            .filter(|_| arg.get_action().takes_values())?;
        Some(match name[0].as_str() {
            "FORMAT" => "fp6_e2m3",
            "ROUNDING" => "floor",
            "METHOD" => "none",
            "MODE" => "rceil",
            "BITS" if arg.get_id() == "scale_bits" => "4",
            "BITS" => "12",
            "ELEMENTS" | "SEED" => "16",
            "HADAMARD" => "32:step",
            "RATIO" => "4/3",
            "OPERANDS" => "forward",
            "ACCUMULATOR" => "hopper",
            other => panic!("no sample for <{other}>"),
        })
    }

    /// The flags of the reference that set no field.
    const WITHOUT_EFFECT: [&str; 2] = ["round_m", "custom_cuda"];

    fn fields(specs: &MxSpecs) -> Map<String, Value> {
        serde_json::from_str(&specs.to_json()).unwrap()
    }

    #[test]
    fn the_command_is_sound_and_keeps_to_itself() {
        Train::command().debug_assert();
        let command = Train::command();
        assert_eq!(command.get_about(), None);
        for own in ["batch_size", "seed"] {
            let arg = command
                .get_arguments()
                .find(|arg| arg.get_id() == own)
                .unwrap();
            assert_eq!(arg.get_help_heading(), None, "{own}");
            assert_eq!(arg.get_all_aliases(), None, "{own}");
        }
    }

    #[test]
    fn a_heading_of_the_command_is_kept() {
        let command = Command::new("train").next_help_heading("Numbers");
        let command = MxArgs::augment_args(command);
        assert_eq!(command.get_next_help_heading(), Some("Numbers"));
        let mut args = command.get_arguments();
        assert!(args.all(|arg| arg.get_help_heading() == Some("Numbers")));
    }

    #[test]
    fn every_field_has_a_flag() {
        let specs = MxSpecs {
            scale_mode: ScaleMode::Even,
            hadamard_block_size: 64,
            hadamard_forward: Some(Hadamard::new(32)),
            hadamard_input_grad: Some(Hadamard::new(32)),
            hadamard_weight_grad: Some(Hadamard::new(32)),
            headroom_bp: "4/3".parse().unwrap(),
            gradient_operands: GradientOperands::Forward,
            mask_clipped: true,
            accumulator: Some("hopper".parse().unwrap()),
            accumulator_forward: Some("ada".parse().unwrap()),
            accumulator_input_grad: Some("ada".parse().unwrap()),
            accumulator_weight_grad: Some("ada".parse().unwrap()),
            quantize_matmul: false,
            quantize_constants: true,
            quantize_loss: true,
            seed: 1,
            ..MxSpecs::default()
        };
        let fields = fields(&specs);
        let mut expected: Vec<_> = fields.keys().map(String::as_str).collect();
        expected.extend(WITHOUT_EFFECT);
        expected.sort_unstable();
        let mut got: Vec<_> = FLAGS.iter().map(|(flag, ..)| field(flag)).collect();
        got.sort_unstable();
        assert_eq!(got, expected);
    }

    #[test]
    fn every_flag_in_both_spellings_sets_its_field_alone() {
        let before = fields(&MxSpecs::default());
        for arg in flags(&Train::command()) {
            let long = format!("--{}", arg.get_long().unwrap());
            assert!(!long.contains('_'), "{long}");
            let underscored = format!("--{}", arg.get_id());
            let line = |flag| -> Vec<&str> { [flag].into_iter().chain(sample(arg)).collect() };

            let args = parse(&line(&long)).unwrap();
            assert_eq!(args, parse(&line(&underscored)).unwrap(), "{underscored}");
            assert!(!args.is_empty(), "{long}");

            let after = fields(&args.apply(MxSpecs::default()));
            let changed = after
                .iter()
                .filter(|(field, value)| before.get(*field) != Some(value));
            let changed: Vec<_> = changed.map(|(field, _)| field.as_str()).collect();
            let id = arg.get_id().as_str();
            let expected = [field(id)];
            let expected = match WITHOUT_EFFECT.contains(&id) {
                true => &[],
                false => expected.as_slice(),
            };
            assert_eq!(changed, expected, "{long}");
        }
    }

    #[test]
    fn no_flag_leaves_the_base_alone() {
        let args = parse(&["--seed", "3"]).unwrap();
        assert!(args.is_empty());
        let base = MxSpecs {
            quantize_backprop: false,
            bfloat_subnorms: false,
            softmax_exp2: true,
            round_weight: Some(Rounding::TowardZero),
            seed: 3,
            ..MxSpecs::mxfp4()
        };
        assert_eq!(args.apply(base.clone()), base);
    }

    #[test]
    fn none_unsets() {
        let base = MxSpecs {
            round_weight: Some(Rounding::TowardZero),
            ..MxSpecs::mxfp4()
        };
        let args = parse(&[
            "--w-elem-format",
            "none",
            "--round-weight=none",
            "--bfloat=0",
        ])
        .unwrap();
        let specs = args.specs(base).unwrap();
        assert_eq!(specs.to_string(), "a fp4_e2m1, block 32");
        assert_eq!(specs.round_weight(), Rounding::NearestEven);
    }

    #[test]
    fn a_base_with_an_unknown_format_is_an_error_of_the_specs() {
        let base = MxSpecs {
            w_elem_format: Some("fp5".into()),
            ..MxSpecs::mx()
        };
        let error = parse(&["--fp=16"]).unwrap().specs(base.clone());
        assert!(
            matches!(error, Err(SpecsError::UnknownFormat { .. })),
            "{error:?}"
        );
        let args = parse(&["--fp=16", "--w-elem-format=int8"]).unwrap();
        assert_eq!(
            args.specs(base).unwrap().to_string(),
            "w int8, block 32, fp16"
        );
    }

    #[test]
    fn what_contradicts_the_base_is_an_error_of_the_specs() {
        let args = parse(&["--fp", "16"]).unwrap();
        let error = args.specs(MxSpecs::mxfp4()).unwrap_err();
        assert_eq!(error, SpecsError::BfloatAndFp { bfloat: 16, fp: 16 });
        assert!(args.specs(MxSpecs::mx()).is_ok());
    }

    #[test]
    fn errors_name_flag_value_and_what_is_allowed() {
        for arg in flags(&Train::command()) {
            let Some(good) = sample(arg).filter(|_| arg.get_id() != "round_m") else {
                continue;
            };
            let long = format!("--{}", arg.get_long().unwrap());
            let allowed = match good {
                "fp6_e2m3" => "fp8_e4m3",
                "floor" => "stochastic",
                "none" => "max",
                "rceil" => "ceil",
                "32:step" => "`:product`",
                "4/3" => "less than 2",
                "forward" => "original",
                "hopper" => "blackwell",
                _ => "a whole number from 0",
            };
            let mut bad = vec![("bogus", allowed)];
            bad.extend(match long.as_str() {
                "--scale-bits" => Some(("9", "1 to 8")),
                "--bfloat" => Some(("33", "10 to 32")),
                "--fp" => Some(("-16", "a whole number from 0")),
                "--hadamard-block-size" => Some(("48", "128")),
                _ => None,
            });
            for (bad, allowed) in bad {
                let message = parse(&[&long, bad]).unwrap_err().to_string();
                for part in [long.as_str(), bad, allowed] {
                    assert!(message.contains(part), "{message}: no {part}");
                }
            }
        }
        let message = parse(&["--fp", "33"]).unwrap_err().to_string();
        assert!(message.contains("7 to 29"), "{message}");
        let message = parse(&["--a_elem_format", "fp5"]).unwrap_err().to_string();
        assert!(message.contains("none"), "{message}");
    }
}
