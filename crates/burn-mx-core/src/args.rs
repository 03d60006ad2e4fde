//! Command-line flags for [`MxSpecs`], one a field, as the reference's `add_mx_args` adds them.

use std::{fmt::Display, mem, str::FromStr};

use clap::{ArgMatches, Args, Command, FromArgMatches, Id};
use microscaling::{Headroom, Rounding, ScaleMode, SharedExpMethod};

use crate::specs::{
    BFLOAT, BitRange, FP, GradientOperands, Hadamard, MxSpecs, ResolvedSpecs, SCALE_BITS,
    SlotFormat, SpecsError, drop_field,
};

const HEADING: &str = "MX specs";

/// The value of a field that can be unset. An alias, because to clap `Option<Option<_>>` would mean
/// a flag that may lack its value.
type Unset<T> = Option<T>;

/// The fields of [`MxSpecs`] that a command line sets, to be applied over specs of your choice.
///
/// Flatten it into a clap parser. Every flag is read with `-` or, as the reference spells it, with
/// `_` between words. Booleans that default to true are negated: `--no-quantize-backprop`,
/// `--no-bfloat-subnorms`, `--no-quantize-matmul`. The seed is `--mx-seed`, because programs that train have a `--seed` of
/// their own. A flag can switch a boolean from its default, not back to it. `none` unsets a format
/// or a rounding, so that it takes its own default again.
///
/// The flags stand under the heading "MX specs", or the one that `next_help_heading` sets.
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
pub struct MxArgs(Flags);

// One flag a field; what the command line leaves out is `None` or false. No doc comment: with it
// clap would describe the command that these flags are flattened into.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[group(id = "MxArgs")]
struct Flags {
    /// Bits of the scale that a block shares: 1 to 8, 0 means 8
    #[arg(long, value_name = "BITS", value_parser = bits(&SCALE_BITS), allow_negative_numbers = true)]
    scale_bits: Option<u32>,
    /// Format of weights: an MX element such as fp8_e4m3, a block format such as mx6, or none
    #[arg(long, value_name = "FORMAT", value_parser = unset_or::<SlotFormat>)]
    w_elem_format: Option<Unset<SlotFormat>>,
    /// Format of activations, or none
    #[arg(long, value_name = "FORMAT", value_parser = unset_or::<SlotFormat>)]
    a_elem_format: Option<Unset<SlotFormat>>,
    /// Backward: format of weights [default: w_elem_format]
    #[arg(long, value_name = "FORMAT", value_parser = unset_or::<SlotFormat>)]
    w_elem_format_bp: Option<Unset<SlotFormat>>,
    /// Backward: format of saved activations [default: a_elem_format]
    #[arg(long, value_name = "FORMAT", value_parser = unset_or::<SlotFormat>)]
    a_elem_format_bp: Option<Unset<SlotFormat>>,
    /// Backward: format of the gradient in a weight's gradient [default: a_elem_format]
    #[arg(long, value_name = "FORMAT", value_parser = unset_or::<SlotFormat>)]
    a_elem_format_bp_ex: Option<Unset<SlotFormat>>,
    /// Backward: format of the gradient in an input's gradient [default: a_elem_format]
    #[arg(long, value_name = "FORMAT", value_parser = unset_or::<SlotFormat>)]
    a_elem_format_bp_os: Option<Unset<SlotFormat>>,
    /// Make a block of float32 subnormals zero
    #[arg(long)]
    mx_flush_fp32_subnorms: bool,
    /// What shares an exponent: max (a block) or none (every element has its own)
    #[arg(long, value_name = "METHOD")]
    shared_exp_method: Option<SharedExpMethod>,
    /// How the scale follows from a block's largest element: floor, ceil, even or rceil
    #[arg(long, value_name = "MODE")]
    scale_mode: Option<ScaleMode>,
    /// Elements of an MX block, 0 for the whole axis
    #[arg(long, value_name = "ELEMENTS", value_parser = whole_number::<usize>, allow_negative_numbers = true)]
    block_size: Option<usize>,
    /// Bits of the elementwise format with 8 exponent bits: 10 to 32, 0 for none; excludes fp
    #[arg(long, value_name = "BITS", value_parser = bits(&BFLOAT), allow_negative_numbers = true)]
    bfloat: Option<u32>,
    /// Bits of the elementwise format with 5 exponent bits: 7 to 29, 0 for none; excludes bfloat
    #[arg(long, value_name = "BITS", value_parser = bits(&FP), allow_negative_numbers = true)]
    fp: Option<u32>,
    /// Flush subnormals of the elementwise format to zero
    #[arg(long)]
    no_bfloat_subnorms: bool,
    /// Run the backward pass in float32
    #[arg(long)]
    no_quantize_backprop: bool,
    /// Rounding, and the default of all others: nearest, even, floor or stochastic
    #[arg(long, value_name = "ROUNDING")]
    round: Option<Rounding>,
    /// Rounding of optimizer state; has no effect
    #[arg(long, value_name = "ROUNDING")]
    round_m: Option<String>,
    /// Elementwise rounding of weights and biases [default: round]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_weight: Option<Unset<Rounding>>,
    /// Elementwise rounding of activations [default: round]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_output: Option<Unset<Rounding>>,
    /// Elementwise rounding of weight gradients [default: round]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_grad_weight: Option<Unset<Rounding>>,
    /// Elementwise rounding of activation gradients [default: round]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_grad_input: Option<Unset<Rounding>>,
    /// MX rounding, forward [default: round]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_mx_output: Option<Unset<Rounding>>,
    /// MX rounding of saved activations, between activations [default: round_grad_input]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_mx_input_grad_input: Option<Unset<Rounding>>,
    /// MX rounding of weights in an input's gradient [default: round_grad_input]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_mx_weight_grad_input: Option<Unset<Rounding>>,
    /// MX rounding of the gradient in an input's gradient [default: round_grad_input]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_mx_grad_output_grad_input: Option<Unset<Rounding>>,
    /// MX rounding of inputs in a weight's gradient [default: round_grad_input]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_mx_input_grad_weight: Option<Unset<Rounding>>,
    /// MX rounding of the gradient in a weight's gradient [default: round_grad_input]
    #[arg(long, value_name = "ROUNDING", value_parser = unset_or::<Rounding>)]
    round_mx_grad_output_grad_weight: Option<Unset<Rounding>>,
    /// Take powers of 2 instead of e in softmax
    #[arg(long)]
    softmax_exp2: bool,
    /// Compute e^x as a power of 2
    #[arg(long)]
    vec_use_exp2: bool,
    /// Compute a / b as a * (1 / b)
    #[arg(long)]
    vec_use_recip: bool,
    /// Has no effect: native kernels are always used where there are some
    #[arg(long)]
    custom_cuda: bool,
    /// Random Hadamard transform in gradient products: blocks of 16, 32, 64 or 128, 0 for none
    #[arg(long, value_name = "ELEMENTS", value_parser = whole_number::<usize>, allow_negative_numbers = true)]
    hadamard_block_size: Option<usize>,
    /// Hadamard transform in forward products: a block size as above, then :step, :product, :none or signs such as :0xd7e8
    #[arg(long, value_name = "HADAMARD", value_parser = unset_or::<Hadamard>)]
    hadamard_forward: Option<Unset<Hadamard>>,
    /// Hadamard transform in an input's gradient [default: hadamard_block_size]
    #[arg(long, value_name = "HADAMARD", value_parser = unset_or::<Hadamard>)]
    hadamard_input_grad: Option<Unset<Hadamard>>,
    /// Hadamard transform in a weight's gradient [default: hadamard_block_size]
    #[arg(long, value_name = "HADAMARD", value_parser = unset_or::<Hadamard>)]
    hadamard_weight_grad: Option<Unset<Hadamard>>,
    /// Backward: headroom of MX blocks, such as 4/3
    #[arg(long, value_name = "RATIO")]
    headroom_bp: Option<Headroom>,
    /// Operands that gradient products read: original, or forward
    #[arg(long, value_name = "OPERANDS")]
    gradient_operands: Option<GradientOperands>,
    /// Make a gradient zero where its operand was clipped
    #[arg(long)]
    mask_clipped: bool,
    /// Leave products of two activations, as attention's, without block formats
    #[arg(long)]
    no_quantize_matmul: bool,
    /// Quantize products of an activation with a constant in blocks, too
    #[arg(long)]
    quantize_constants: bool,
    /// Emulate log_softmax and the loss that follows from it, too
    #[arg(long)]
    quantize_loss: bool,
    /// Seed of stochastic rounding and of the Hadamard transform
    #[arg(long, value_name = "SEED", value_parser = whole_number::<u64>)]
    mx_seed: Option<u64>,
}

impl MxArgs {
    /// Whether no flag was given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `base` with the given flags in place of its fields. Fields that `base` leaves unset still
    /// follow the field that they default to, so `--w-elem-format` reaches the backward pass too.
    pub fn apply(&self, base: MxSpecs) -> MxSpecs {
        let flags = &self.0;
        // Every field by name: one that `MxSpecs` gains cannot be forgotten here.
        MxSpecs {
            scale_bits: flags.scale_bits.unwrap_or(base.scale_bits),
            w_elem_format: flags.w_elem_format.unwrap_or(base.w_elem_format),
            a_elem_format: flags.a_elem_format.unwrap_or(base.a_elem_format),
            w_elem_format_bp: flags.w_elem_format_bp.unwrap_or(base.w_elem_format_bp),
            a_elem_format_bp: flags.a_elem_format_bp.unwrap_or(base.a_elem_format_bp),
            a_elem_format_bp_ex: flags
                .a_elem_format_bp_ex
                .unwrap_or(base.a_elem_format_bp_ex),
            a_elem_format_bp_os: flags
                .a_elem_format_bp_os
                .unwrap_or(base.a_elem_format_bp_os),
            mx_flush_fp32_subnorms: base.mx_flush_fp32_subnorms || flags.mx_flush_fp32_subnorms,
            shared_exp_method: flags.shared_exp_method.unwrap_or(base.shared_exp_method),
            scale_mode: flags.scale_mode.unwrap_or(base.scale_mode),
            block_size: flags.block_size.unwrap_or(base.block_size),
            bfloat: flags.bfloat.unwrap_or(base.bfloat),
            fp: flags.fp.unwrap_or(base.fp),
            bfloat_subnorms: base.bfloat_subnorms && !flags.no_bfloat_subnorms,
            quantize_backprop: base.quantize_backprop && !flags.no_quantize_backprop,
            round: flags.round.unwrap_or(base.round),
            round_weight: flags.round_weight.unwrap_or(base.round_weight),
            round_output: flags.round_output.unwrap_or(base.round_output),
            round_grad_weight: flags.round_grad_weight.unwrap_or(base.round_grad_weight),
            round_grad_input: flags.round_grad_input.unwrap_or(base.round_grad_input),
            round_mx_output: flags.round_mx_output.unwrap_or(base.round_mx_output),
            round_mx_input_grad_input: flags
                .round_mx_input_grad_input
                .unwrap_or(base.round_mx_input_grad_input),
            round_mx_weight_grad_input: flags
                .round_mx_weight_grad_input
                .unwrap_or(base.round_mx_weight_grad_input),
            round_mx_grad_output_grad_input: flags
                .round_mx_grad_output_grad_input
                .unwrap_or(base.round_mx_grad_output_grad_input),
            round_mx_input_grad_weight: flags
                .round_mx_input_grad_weight
                .unwrap_or(base.round_mx_input_grad_weight),
            round_mx_grad_output_grad_weight: flags
                .round_mx_grad_output_grad_weight
                .unwrap_or(base.round_mx_grad_output_grad_weight),
            softmax_exp2: base.softmax_exp2 || flags.softmax_exp2,
            vec_use_exp2: base.vec_use_exp2 || flags.vec_use_exp2,
            vec_use_recip: base.vec_use_recip || flags.vec_use_recip,
            hadamard_block_size: flags
                .hadamard_block_size
                .unwrap_or(base.hadamard_block_size),
            hadamard_forward: flags.hadamard_forward.unwrap_or(base.hadamard_forward),
            hadamard_input_grad: flags
                .hadamard_input_grad
                .unwrap_or(base.hadamard_input_grad),
            hadamard_weight_grad: flags
                .hadamard_weight_grad
                .unwrap_or(base.hadamard_weight_grad),
            headroom_bp: flags.headroom_bp.unwrap_or(base.headroom_bp),
            gradient_operands: flags.gradient_operands.unwrap_or(base.gradient_operands),
            mask_clipped: base.mask_clipped || flags.mask_clipped,
            quantize_matmul: base.quantize_matmul && !flags.no_quantize_matmul,
            quantize_constants: base.quantize_constants || flags.quantize_constants,
            quantize_loss: base.quantize_loss || flags.quantize_loss,
            seed: flags.mx_seed.unwrap_or(base.seed),
        }
    }

    /// [`apply`](Self::apply), then [`MxSpecs::resolve`].
    ///
    /// # Errors
    /// Those of [`MxSpecs::resolve`]: each flag is checked alone while parsing, here all together.
    pub fn specs(&self, base: MxSpecs) -> Result<ResolvedSpecs, SpecsError> {
        self.apply(base).resolve()
    }
}

impl Args for MxArgs {
    fn augment_args(command: Command) -> Command {
        add_flags(command, Flags::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add_flags(command, Flags::augment_args_for_update)
    }

    fn group_id() -> Option<Id> {
        Flags::group_id()
    }
}

impl FromArgMatches for MxArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)?;
        if self.0.round_m.take().is_some() {
            drop_field("round_m");
        }
        if mem::take(&mut self.0.custom_cuda) {
            drop_field("custom_cuda");
        }
        Ok(())
    }
}

/// Adds the flags, each with a second spelling: the id, which clap takes from the field. They stand
/// under the heading that `command` has set for what comes next, else under their own, which ends
/// with them.
fn add_flags(command: Command, augment: fn(Command) -> Command) -> Command {
    let command = match command.get_next_help_heading() {
        Some(_) => augment(command),
        None => augment(command.next_help_heading(HEADING)).next_help_heading(None::<&str>),
    };
    let own = augment(Command::new(HEADING));
    command.mut_args(|arg| {
        let id = arg.get_id().clone();
        let is_own = own.get_arguments().any(|arg| *arg.get_id() == id);
        if is_own && id.as_str().contains('_') {
            arg.alias(id)
        } else {
            arg
        }
    })
}

fn unset_or<T: FromStr<Err: Display>>(text: &str) -> Result<Unset<T>, String> {
    match text {
        "" | "none" => Ok(None),
        _ => text
            .parse()
            .map(Some)
            .map_err(|error| format!("{error}, or none")),
    }
}

fn bits(range: &'static BitRange) -> impl Fn(&str) -> Result<u32, String> + Clone {
    |text| {
        let bits = text
            .parse()
            .map_err(|_| format!("allowed: {}", range.allowed()))?;
        range.check(bits).map_err(|error| error.to_string())
    }
}

fn whole_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "allowed: a whole number from 0".into())
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory, Parser};
    use serde_json::{Map, Value};

    use super::*;

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
        let ours =
            |arg: &&Arg| ours(arg) && !["round_m", "custom_cuda"].contains(&arg.get_id().as_str());
        command.get_arguments().filter(ours).collect()
    }

    /// A value that is no flag's default; `None` for a switch.
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
            other => panic!("no sample for <{other}>"),
        })
    }

    /// The field of `MxSpecs` that a flag sets.
    fn field(arg: &Arg) -> &str {
        match arg.get_id().as_str() {
            "mx_seed" => "seed",
            id => id.strip_prefix("no_").unwrap_or(id),
        }
    }

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
            quantize_matmul: false,
            quantize_constants: true,
            quantize_loss: true,
            seed: 1,
            ..MxSpecs::default()
        };
        let command = Train::command();
        let mut ids: Vec<_> = flags(&command).into_iter().map(field).collect();
        ids.sort();
        let fields = fields(&specs);
        let mut fields: Vec<_> = fields.keys().map(String::as_str).collect();
        fields.sort();
        assert_eq!(ids, fields);
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
            assert_eq!(changed, [field(arg)], "{long}");
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
    fn what_contradicts_the_base_is_an_error_of_the_specs() {
        let args = parse(&["--fp", "16"]).unwrap();
        let error = args.specs(MxSpecs::mxfp4()).unwrap_err();
        assert_eq!(error, SpecsError::BfloatAndFp { bfloat: 16, fp: 16 });
        assert!(args.specs(MxSpecs::mx()).is_ok());
    }

    #[test]
    fn errors_name_flag_value_and_what_is_allowed() {
        for arg in flags(&Train::command()) {
            let Some(good) = sample(arg) else { continue };
            let long = format!("--{}", arg.get_long().unwrap());
            let allowed = match good {
                "fp6_e2m3" => "fp8_e4m3",
                "floor" => "stochastic",
                "none" => "max",
                "rceil" => "ceil",
                "4" => "1 to 8",
                "12" if long == "--bfloat" => "10 to 32",
                "12" => "7 to 29",
                "32:step" => "`:product`",
                "4/3" => "less than 2",
                "forward" => "original",
                _ => "a whole number from 0",
            };
            let mut bad = vec!["bogus"];
            bad.extend(matches!(good, "4" | "12").then_some("33"));
            for bad in bad {
                let message = parse(&[&long, bad]).unwrap_err().to_string();
                for part in [long.as_str(), bad, allowed] {
                    assert!(message.contains(part), "{message}: no {part}");
                }
            }
        }
        let message = parse(&["--a_elem_format", "fp5"]).unwrap_err().to_string();
        assert!(message.contains("none"), "{message}");
    }
}
