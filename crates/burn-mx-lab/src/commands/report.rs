//! Shows the records of several runs side by side, as a table and as a page.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- compare --model cnn --preset mxfp4 --record out/cnn --what-if mxfp8_rceil
//! cargo run --release --bin burn-mx-lab -- report out/cnn
//! cargo run --release --bin burn-mx-lab -- report out/cnn out/other --out out/both
//! ```

use std::{error::Error, path::PathBuf};

use burn_mx::record::{REPORT_HTML, REPORT_JSON, Report};
use burn_mx_lab::{output, own_files};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

use burn_mx_lab::costing::StepCost;
use burn_mx_lab::costing::{CostArgs, Costing};

/// Show the records of one run or of several runs, side by side
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Folders with a records.jsonl, or records.jsonl files
    #[arg(required = true, value_name = "DIR")]
    records: Vec<PathBuf>,

    /// Folder for report.html and report.json, created if missing [default: the folder of the first records]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Write every recorded operand as CSV, a line each
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    #[command(flatten)]
    cost: CostArgs,
}

pub(crate) fn run(args: &ReportArgs) -> Result<(), Box<dyn Error>> {
    let costing = args.cost.plan()?;
    if let Some(path) = &args.csv {
        own_files::not_an_input("--csv", path, own_files::records(&args.records))?;
    }
    let report = Report::read(&args.records)?;
    let out = args.out.clone().unwrap_or_else(|| {
        let first = &args.records[0];
        match first.is_dir() {
            true => first.clone(),
            false => first.parent().unwrap_or("".as_ref()).to_owned(),
        }
    });
    report.save(&out)?;
    println!("{}", report.table());
    if let Some(costs) = costs(&report, &costing) {
        println!("{costs}\n\n{}", costing.legend());
    }
    if let Some(path) = &args.csv {
        output::write(path, report.csv())?;
        println!("{}", path.display());
    }
    for file in [REPORT_HTML, REPORT_JSON] {
        println!("{}", out.join(file).display());
    }
    Ok(())
}

/// The cost of the last recorded step of each run; `None` if no run has the sizes of its products.
fn costs(report: &Report, costing: &Costing) -> Option<Table> {
    let mut table = Table::new();
    let heads = [
        "run",
        "step",
        "bits",
        "area",
        "energy",
        &costing.chip().name,
    ];
    table.load_preset(ASCII_MARKDOWN).set_header(heads);
    for (title, step) in report.last_steps() {
        let products = step.cost_products();
        if products.is_empty() {
            continue;
        }
        let [bits, area, energy, time] = StepCost::of(costing, &products).cells();
        table.add_row([title, step.step.to_string(), bits, area, energy, time]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    (!table.is_empty()).then_some(table)
}
