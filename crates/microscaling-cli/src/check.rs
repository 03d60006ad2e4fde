//! `microscaling check`.

use crate::done::Done;
use crate::error::Error;
use crate::formats::table;
use crate::vectors::{SetCommand, error};
use microscaling_vectors::{CheckReport, DumpInputs, DumpPart, DumpReader, VectorSet, check};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Compare a device's outputs with a set of vectors, and name what the device does; the exit status is 1 if any differ
///
/// The dump has the form and the fields of `microscaling vectors`, or the outputs alone. Options name the rule that the device should
/// follow. Where outputs differ, neighbouring rules are tried, one at a time and two at once: the one that explains the most is named.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(subcommand)]
    set: SetCommand,
    /// The dump: a file, or `-` for the standard input
    #[arg(long, short, global = true, value_name = "FILE", default_value = "-")]
    dump: PathBuf,
    /// A file with the inputs, such as the file of vectors [default: the cases of the set]
    #[arg(long, global = true, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Take the inputs from the dump, which has them
    #[arg(long, global = true, conflicts_with = "inputs")]
    own_inputs: bool,
}

fn open(path: &Path, set: &dyn VectorSet, parts: &[DumpPart]) -> Result<DumpReader, Error> {
    let layout = set.layout();
    let reader = match path.to_str() {
        Some("-") => DumpReader::new("the standard input", io::stdin(), layout, parts),
        _ => {
            let file = File::open(path).map_err(|source| Error::io(path, source))?;
            DumpReader::new(&path.display().to_string(), file, layout, parts)
        }
    };
    reader.map_err(error)
}

/// The report on a dump in memory, which has the outputs alone or the inputs, too.
pub(crate) fn report_on(args: &CheckArgs, dump: Vec<u8>) -> Result<Done, Error> {
    if args.inputs.is_some() || args.dump.as_os_str() != "-" || args.set.trace().is_some() {
        let text = "allowed: the options of the set and own_inputs, without dump, inputs and trace";
        return Err(Error::Arguments(text.to_owned()));
    }
    let set = args.set.set()?;
    let parts = [DumpPart::Whole, DumpPart::Outputs];
    let dump = DumpReader::new("the array", io::Cursor::new(dump), set.layout(), &parts);
    let inputs = match args.own_inputs {
        true => DumpInputs::OfDump,
        false => DumpInputs::OfSet,
    };
    let report = check(&*set, &mut dump.map_err(error)?, inputs).map_err(error)?;
    Ok(done(&*set, &report))
}

pub(crate) fn run(args: &CheckArgs) -> Result<Done, Error> {
    if args.set.trace().is_some() {
        return Err(Error::Arguments(
            "--trace is an option of `vectors`".to_owned(),
        ));
    }
    let set = args.set.set()?;
    let set = &*set;
    let mut dump = open(&args.dump, set, &[DumpPart::Whole, DumpPart::Outputs])?;
    let inputs = match (&args.inputs, args.own_inputs) {
        (Some(path), _) => {
            let reader = open(path, set, &[DumpPart::Whole, DumpPart::Inputs])?;
            DumpInputs::Of(Box::new(reader))
        }
        (None, true) => DumpInputs::OfDump,
        (None, false) => DumpInputs::OfSet,
    };
    let report = check(set, &mut dump, inputs).map_err(error)?;
    Ok(done(set, &report))
}

fn done(set: &dyn VectorSet, report: &CheckReport) -> Done {
    let mut done = Done::default();
    let CheckReport {
        cases,
        differ,
        examined,
        ..
    } = *report;
    done.fact("set", set.name());
    done.fact("cases", cases);
    done.fact("differ", differ);
    done.fact("examined", examined);
    done.fact("rules", report.rules.clone());
    done.fact("also", report.also.clone());
    done.fact("contradicted", report.contradicted);
    done.fact("share_unexplained", report.share_unexplained());
    if differ == 0 {
        done.text(format!("{cases} cases, no difference: {}\n", set.name()));
    } else {
        done.text(format!("{differ} of {cases} cases differ\n"));
        done.status = 1;
    }
    let mut rows = table(["Cause", "Cases", "Share", "Smallest example"]);
    for cause in report.causes.iter().chain(&report.unexplained) {
        let share = 100.0 * cause.cases as f64 / examined.max(1) as f64;
        rows.add_row([
            cause.name.clone(),
            cause.cases.to_string(),
            format!("{share:.1} %"),
            cause.example.clone(),
        ]);
    }
    done.table("causes", rows);
    if examined < differ {
        done.text(format!(
            "{examined} of the differences were examined, spread evenly\n"
        ));
    }
    match &report.rules[..] {
        [] if differ > 0 => done.text("No neighbouring rule explains the differences.\n"),
        [] => {}
        rules if report.share_unexplained() > 0.5 => done.text(format!(
            "A part of the differences alone fits another rule: {}\n",
            rules.join(", and ")
        )),
        rules => done.text(format!(
            "The device follows another rule: {}\n",
            rules.join(", and ")
        )),
    }
    if !report.also.is_empty() {
        done.text(format!(
            "These cases do not tell it from: {}\n",
            report.also.join("; ")
        ));
    }
    if report.contradicted > 0 {
        done.text(format!(
            "{} cases agree with the set's rule and contradict the named one\n",
            report.contradicted
        ));
    }
    if let Some(unexplained) = report
        .unexplained
        .as_ref()
        .filter(|_| !report.rules.is_empty())
    {
        let share = 100.0 * report.share_unexplained();
        done.text(format!(
            "Unexplained: {} cases, {share:.1} % of the differences\n",
            unexplained.cases
        ));
    }
    done
}
