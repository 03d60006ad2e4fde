//! The subcommands.

mod accumulator_sweep;
mod checkpoint;
mod compare;
mod conformance;
mod gradient_bias;
mod pretrained;
mod published;
mod quantize;
mod report;
mod search;
mod sensitivity;

use std::{error::Error, fmt::Write as _, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

/// Experiments with number formats in Burn models
#[derive(Debug, Parser)]
#[command(name = "burn-mx-lab", version)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    Compare(Box<compare::CompareArgs>),
    Sensitivity(sensitivity::SensitivityArgs),
    Search(Box<search::SearchArgs>),
    #[command(alias = "gradient_bias")]
    GradientBias(Box<gradient_bias::GradientBiasArgs>),
    #[command(alias = "accumulator_sweep")]
    AccumulatorSweep(accumulator_sweep::AccumulatorSweepArgs),
    Quantize(quantize::QuantizeArgs),
    Pretrained(pretrained::PretrainedArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Report(report::ReportArgs),
    Published(published::PublishedArgs),
    Conformance(conformance::ConformanceArgs),
}

/// The subcommands by purpose, for the help.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Train and compare",
        &["compare", "search", "sensitivity", "accumulator-sweep"],
    ),
    (
        "Quantize a trained network",
        &["quantize", "pretrained", "checkpoint"],
    ),
    ("Look at one run", &["report", "gradient-bias"]),
    ("Check the numbers", &["published", "conformance"]),
];

/// A value of the command line that a command refuses before any work.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refusal(pub(crate) String);

impl LabCommand {
    /// The exit status. An error that is a [`Refusal`] ends the program with status 2 and the usage, any other error with status 1.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        let done = match self {
            Self::Published(args) => return published::run(args),
            Self::Conformance(args) => return Ok(conformance::run(args)),
            Self::Compare(args) => compare::run(args),
            Self::Sensitivity(args) => sensitivity::run(args),
            Self::Search(args) => search::run(args),
            Self::GradientBias(args) => gradient_bias::run(args),
            Self::AccumulatorSweep(args) => accumulator_sweep::run(args),
            Self::Quantize(args) => quantize::run(args),
            Self::Pretrained(args) => pretrained::run(args),
            Self::Checkpoint(args) => checkpoint::run(args),
            Self::Report(args) => report::run(args),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// The command line, whose help lists the subcommands under the headings of [`GROUPS`].
pub(crate) fn command() -> clap::Command {
    let command = Lab::command().mut_subcommand("search", search::refuse_options_without_effect);
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, "{heading}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(|it| it.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {name:18} {about}");
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}\n\n\
         `burn-mx-lab COMMAND --help` lists a command's options.\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_group() {
        let of_clap = Lab::command();
        let mut of_clap: Vec<_> = of_clap
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        let mut grouped = GROUPS.map(|(_, names)| names).concat();
        of_clap.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(of_clap, grouped);
    }
}
