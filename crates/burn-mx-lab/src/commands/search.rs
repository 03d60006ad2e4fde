//! Finds a recipe under a budget: a format for every operand of every layer, from the records of a run.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- compare --model transformer --preset mxfp8_e4m3 --record out/seen \
//!     --what-if mxfp4 --what-if mxfp6_e2m3 --what-if mxfp8_e4m3
//! cargo run --release --bin burn-mx-lab -- search out/seen --bits 5 \
//!     --format mxfp4 --format mxfp6_e2m3 --format mxfp8_e4m3 --out found.json
//! cargo run --release --bin burn-mx-lab -- compare --model transformer --preset mxfp4 --recipe found.json
//! ```

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use burn_mx::{
    MxSpecs, Recipe, Slot,
    record::{Budget, FoundPlace, Report, Score, Search, Sensitivity},
};
use burn_mx_lab::{output, own_files};
use clap::Command;
use serde_json::json;

use burn_mx_lab::costing::CostArgs;

/// Find a format for every operand of every layer under a budget of mean bits, energy or time
#[derive(Debug, clap::Args)]
pub(crate) struct SearchArgs {
    /// Folders with a records.jsonl of runs of one model, or such files
    #[arg(
        required_unless_present = "scores",
        conflicts_with = "scores",
        value_name = "DIR"
    )]
    records: Vec<PathBuf>,

    /// Candidate, a preset or a block format that was recorded by --what-if; repeat it
    #[arg(long = "format", value_name = "FORMAT", required = true)]
    formats: Vec<String>,

    /// Budget: mean bits of an element of an operand, scales included
    #[arg(long, value_name = "BITS", required_unless_present_any = ["energy", "time"])]
    bits: Option<f64>,

    /// Budget in place of --bits: mean picojoules of a multiplication with its addition and its part of reading the operands, by a
    /// model
    #[arg(long, value_name = "PJ", conflicts_with_all = ["bits", "time"])]
    energy: Option<f64>,

    /// Budget in place of --bits: microseconds of a step's products at the peaks of --chip
    #[arg(long, value_name = "US", conflicts_with = "bits")]
    time: Option<f64>,

    #[command(flatten)]
    cost: CostArgs,

    /// Preset with the specs for all but the formats, such as roundings
    #[arg(long, value_name = "NAME", default_value = "mxfp8_e4m3")]
    preset: String,

    /// Weights of the operands: noise (each the same) or fisher (by the gradient; needs records of training steps)
    #[arg(long, value_name = "SCORE", default_value = Score::default().name(), value_parser = score)]
    score: Score,

    /// Scores of the places as JSON, in place of records and --score: by ModelOpt's formula, as `sensitivity` and
    /// `language_model record --outputs` write them
    #[arg(long, value_name = "FILE", conflicts_with = "score")]
    scores: Option<PathBuf>,

    /// Slot to choose formats for, such as w for the weights of a trained model; repeat it. Operands of other slots keep the
    /// preset's formats, and the budget does not count them [default: all six]
    #[arg(long = "slot", value_name = "SLOT", value_parser = slot)]
    slots: Vec<Slot>,

    /// Layer that the recipe leaves unchanged, by path or pattern; repeat it
    #[arg(long, value_name = "PATTERN")]
    keep: Vec<String>,

    /// Formats that the hardware multiplies with each other, as FORMAT:FORMAT; repeat it [default: any two]
    #[arg(long = "pair", value_name = "PAIR", value_parser = pair)]
    pairs: Vec<[String; 2]>,

    /// One format for each tensor in both of its products
    #[arg(long)]
    shared: bool,

    /// Also write a random recipe under the same budget, as <out>_random_<SEED>.json, to compare the found recipe with; repeat
    /// it
    #[arg(long = "random", value_name = "SEED")]
    random: Vec<u64>,

    /// File for the recipe. A map of layers and operands is drawn beside the file, with the ending .svg
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Write the choices as JSON: each operand's format, and the noise over the signal of every candidate
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the choices as CSV, a line for each operand and candidate
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// The command line. Options of a model have no effect under a budget of bits, so they are refused there.
pub(crate) fn refuse_options_without_effect(command: Command) -> Command {
    command
        .mut_arg("chip", |chip| chip.conflicts_with_all(["bits", "energy"]))
        .mut_arg("cost_tables", |tables| tables.conflicts_with("bits"))
}

fn score(text: &str) -> Result<Score, String> {
    let mut scores = Score::ALL.into_iter();
    let found = scores.find(|score| score.name() == text);
    found.ok_or_else(|| format!("allowed: {}", Score::ALL.map(Score::name).join(", ")))
}

fn pair(text: &str) -> Result<[String; 2], String> {
    let pair = text.split_once(':');
    let pair = pair.map(|(one, other)| [one.to_owned(), other.to_owned()]);
    pair.ok_or_else(|| "expected two formats, such as mxfp4:mxfp8_e4m3".to_owned())
}

fn slot(text: &str) -> Result<Slot, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &SearchArgs) -> Result<(), Box<dyn Error>> {
    let costing = args.cost.plan()?;
    let budget = match (args.energy, args.time) {
        (Some(picojoules), _) => Budget::Energy {
            picojoules,
            operations: costing.tables().operations.clone(),
        },
        (None, Some(microseconds)) => Budget::Time {
            microseconds,
            chip: costing.chip().clone(),
        },
        (None, None) => Budget::Bits(args.bits.expect("clap wants one of the three")),
    };
    let search = Search {
        formats: args.formats.clone(),
        budget,
        specs: MxSpecs::preset(&args.preset)?,
        score: args.score,
        slots: args.slots.clone(),
        keep: args.keep.clone(),
        pairs: args.pairs.clone(),
        shared: args.shared,
    };
    let outputs = outputs(args)?;
    let places = match &args.scores {
        None => Report::read(&args.records)?.sensitivities(args.score)?,
        Some(file) => {
            scores(file).map_err(|error| format!("--scores '{}': {error}", file.display()))?
        }
    };
    let found = search.find_by(places.clone())?;
    write(&args.out, &found.recipe)?;
    println!("{}", found.table());
    if args.bits.is_none() {
        println!("\n{}", costing.legend());
    }
    for (seed, path) in args.random.iter().zip(&outputs.random) {
        let random = search.random(places.clone(), *seed)?;
        write(path, &random.recipe)?;
        println!(
            "random {seed}: {}: {}",
            random.total.text(random.unit),
            path.display()
        );
    }
    if let Some(path) = &args.json {
        let all = json!({
            "bits": found.total.bits,
            "cost": found.total.cost,
            "unit": found.unit,
            "score": found.total.score,
            "places": found.places,
        });
        output::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    if let Some(path) = &args.csv {
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record([
            "layer", "product", "slot", "elements", "chosen", "format", "noise",
        ])?;
        for found in &found.places {
            let FoundPlace {
                place,
                format: chosen,
                ..
            } = found;
            for (format, noise) in &place.noise {
                let product = place.product.to_string();
                let (slot, elements) = (place.slot.field(), place.elements);
                csv.serialize((&place.layer, product, slot, elements, chosen, format, noise))?;
            }
        }
        output::write(path, csv.into_inner()?)?;
    }
    let map = outputs.map;
    own_files::write(&map, found.map()?)?;
    println!("recipe: {}\nmap: {}", args.out.display(), map.display());
    Ok(())
}

/// The files beside `--out`.
struct Outputs {
    map: PathBuf,
    random: Vec<PathBuf>,
}

/// The outputs, none of which is an input or somebody else's file.
fn outputs(args: &SearchArgs) -> Result<Outputs, String> {
    let stem = args.out.file_stem().unwrap_or_default().to_string_lossy();
    let random = |seed| {
        args.out
            .with_file_name(format!("{stem}_random_{seed}.json"))
    };
    let outputs = Outputs {
        map: args.out.with_extension("svg"),
        random: args.random.iter().map(random).collect(),
    };
    let inputs: Vec<PathBuf> = own_files::records(&args.records)
        .chain(args.scores.clone())
        .collect();
    for (option, path) in [("--json", &args.json), ("--csv", &args.csv)] {
        if let Some(path) = path {
            own_files::not_an_input(option, path, &inputs)?;
        }
    }
    for path in outputs.random.iter().chain([&args.out, &outputs.map]) {
        own_files::not_an_input("--out", path, &inputs)?;
        own_files::check(path).map_err(|error| format!("--out: {error}"))?;
    }
    Ok(outputs)
}

fn scores(file: &Path) -> Result<Vec<Sensitivity>, Box<dyn Error>> {
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

fn write(path: &Path, recipe: &Recipe) -> Result<(), Box<dyn Error>> {
    let text = serde_json::to_string_pretty(recipe)?;
    Ok(own_files::write(path, text).map_err(|error| format!("--out: {error}"))?)
}
