//! One command-line flag a field.

use burn_mx::{MxArgs, MxSpecs, Rounding, SpecsError};
use clap::{Arg, Args, Command, CommandFactory, Parser};
use serde_json::{Map, Value};

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

fn args_of(command: &Command) -> Vec<&Arg> {
    let ours = |arg: &&Arg| arg.get_help_heading() == Some("MX specs");
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
        "SCOPE" => "activations",
        "ACCUMULATOR" => "hopper",
        "ATTENTION" => "attention(q=nvfp4,tile=64)",
        "DIALECT" => "quark",
        "COLUMNS" => "hot_columns(percent=10,format=mxfp8_e4m3)",
        other => panic!("no sample for <{other}>"),
    })
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
fn every_flag_in_both_spellings_sets_its_field_alone() {
    let before = fields(&MxSpecs::default());
    for arg in args_of(&Train::command()) {
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
        let field = match id {
            "mx_seed" => "seed",
            _ => id.strip_prefix("no_").unwrap_or(id),
        };
        let expected: &[&str] = match id {
            "round_m" | "custom_cuda" => &[],
            // In the order of the alphabet, as JSON has them.
            "round_mx" => &MX_ROUNDINGS,
            _ => &[field],
        };
        assert_eq!(changed, expected, "{long}");
    }
}

const MX_ROUNDINGS: [&str; 6] = [
    "round_mx_grad_output_grad_input",
    "round_mx_grad_output_grad_weight",
    "round_mx_input_grad_input",
    "round_mx_input_grad_weight",
    "round_mx_output",
    "round_mx_weight_grad_input",
];

/// `--round-mx` rounds all blocks, and nothing else; the flag of one product wins.
#[test]
fn one_flag_for_all_mx_roundings() {
    let args = parse(&["--round-mx-output", "floor", "--round-mx", "stochastic"]).unwrap();
    let specs = args.specs(MxSpecs::mxfp4()).unwrap();
    let (floor, stochastic) = (Rounding::TowardZero, Rounding::Stochastic);
    assert_eq!(specs.round_mx_output(), floor);
    for rounding in [
        specs.round_mx_input_grad_input(),
        specs.round_mx_weight_grad_input(),
        specs.round_mx_grad_output_grad_input(),
        specs.round_mx_input_grad_weight(),
        specs.round_mx_grad_output_grad_weight(),
    ] {
        assert_eq!(rounding, stochastic);
    }
    for rounding in [
        specs.round(),
        specs.round_weight(),
        specs.round_output(),
        specs.round_grad_weight(),
        specs.round_grad_input(),
    ] {
        assert_eq!(rounding, Rounding::NearestEven);
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
    assert_eq!(specs.to_string(), "a fp4_e2m1, block 32, round even");
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
        "w int8, block 32, fp16 everywhere"
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
    for arg in args_of(&Train::command()) {
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
            "activations" => "`all`",
            "hopper" => "blackwell",
            "quark" => "compressed-tensors",
            "attention(q=nvfp4,tile=64)" => "sageattention3",
            "hot_columns(percent=10,format=mxfp8_e4m3)" => "hot_columns(field=value,…)",
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
