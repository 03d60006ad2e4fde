//! The report of recorded runs.

mod page;
mod rows;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use burn_mx_cost::{Cost, Tables};

use crate::config::RecorderConfig;
use crate::error::RecordError;
use crate::file;
use crate::file::figures::{Figures, Header, OperandRecord, ProductRecord, StepRecord, SumFigures};

/// Name of the file with the page.
pub const REPORT_HTML: &str = "report.html";
/// Name of the file with the page's data.
pub const REPORT_JSON: &str = "report.json";

/// The records of one run or of several, side by side.
#[derive(Clone, Debug)]
pub struct Report {
    runs: Vec<Run>,
}

/// The steps of one thread of a run.
#[derive(Clone, Debug)]
struct Run {
    name: String,
    source: PathBuf,
    thread: usize,
    config: RecorderConfig,
    product_path: Option<String>,
    steps: BTreeMap<u64, StepRecord>,
}

impl Report {
    /// Reads the records of folders, or of files themselves.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or has an invalid line. A torn last line is allowed: an interrupted run keeps all earlier
    /// records.
    pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, RecordError> {
        let mut runs = Vec::new();
        for path in paths {
            let (source, records) = file::read(path.as_ref())?;
            runs.extend(Run::all(&source, records));
        }
        Ok(Self { runs })
    }

    /// Whether no step was recorded.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(|run| run.steps.is_empty())
    }

    /// The last recorded step of each run and thread, with the run's title.
    pub fn last_steps(&self) -> impl Iterator<Item = (String, &StepRecord)> {
        let runs = self.runs.iter();
        runs.filter_map(|run| Some((run.title(), run.last()?)))
    }

    /// The recorded steps of all runs, run by run and thread by thread.
    pub fn steps(&self) -> impl Iterator<Item = &StepRecord> {
        self.runs.iter().flat_map(|run| run.steps.values())
    }

    /// Tables of each run's last recorded step: the ten worst layers, with a line that tries one of them in another format,
    /// and the ten worst operands, with suggestions. A third table has the ten worst roundings of elementwise ops, if these
    /// were recorded.
    pub fn table(&self) -> String {
        table::worst(&self.runs)
    }

    /// Every recorded step as CSV with a header: a line for each operand, for each of the further formats, and for each
    /// rounding of an elementwise op. A figure that was not recorded is empty.
    pub fn csv(&self) -> String {
        rows::csv(&self.runs)
    }

    /// The data of the page as JSON, every recorded step.
    pub fn json(&self) -> String {
        page::data(&self.runs, usize::MAX)
    }

    /// The report as a self-contained HTML page, which needs no network.
    pub fn html(&self) -> String {
        page::html(&self.runs)
    }

    /// Writes [`REPORT_HTML`] and [`REPORT_JSON`] to a folder. Creates the folder if it is missing. Replaces earlier reports,
    /// and no other file.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written to, or one of the two files exists and is not a report.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<(), RecordError> {
        let folder = folder.as_ref();
        file::create_folder(folder)?;
        let [html, json] = [REPORT_HTML, REPORT_JSON].map(|name| folder.join(name));
        for path in [&html, &json] {
            check_is_report(path).map_err(|error| RecordError::Io {
                path: path.clone(),
                error,
            })?;
        }
        let write = |path: PathBuf, text: String| {
            burn_mx_files::write(&path, text).map_err(|error| RecordError::Io { path, error })
        };
        write(html, self.html())?;
        write(json, self.json())
    }
}

/// Checks that nothing is at the path, or a report: the page and the JSON have [`page::KEY`].
fn check_is_report(path: &Path) -> io::Result<()> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(text) if String::from_utf8_lossy(&text).contains(page::KEY) => Ok(()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file is no report; allowed: another folder, because only reports are replaced",
        )),
    }
}

impl Run {
    /// The runs of a file, thread by thread.
    fn all(source: &Path, records: file::Records) -> Vec<Self> {
        let mut runs = Vec::<Self>::new();
        let run = |header: &Header, thread| Self {
            name: header.run.clone(),
            source: source.to_owned(),
            thread,
            config: header.config.clone(),
            product_path: header.product_path.clone(),
            steps: BTreeMap::new(),
        };
        for header in &records.headers {
            match runs.iter_mut().find(|run| run.name == header.run) {
                // The run went on, maybe with another configuration.
                Some(known) => {
                    known.config = header.config.clone();
                    known.product_path = header.product_path.clone();
                }
                None => runs.push(run(header, 0)),
            }
        }
        for step in records.steps {
            let place = runs
                .iter()
                .position(|run| (&run.name, run.thread) == (&step.run, step.thread));
            let place = place.unwrap_or_else(|| {
                let header = records.headers.iter().rev();
                let header = header.into_iter().find(|header| header.run == step.run);
                runs.push(run(header.expect("a step follows its header"), step.thread));
                runs.len() - 1
            });
            runs[place].steps.insert(step.step, step);
        }
        runs
    }

    /// The weights whose products were not emulated in any recorded step.
    fn not_emulated(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for step in self.steps.values() {
            let new = step
                .not_emulated
                .iter()
                .filter(|name| !names.contains(name));
            let new: Vec<String> = new.cloned().collect();
            names.extend(new);
        }
        let is_emulated = |name: &String| {
            let mut products = self.steps.values().flat_map(|step| &step.products);
            products.any(|product| product.layer == *name)
        };
        names.retain(|name| !is_emulated(name));
        names
    }

    /// How a processor computed products in bfloat16; `None` if it did not, or if the records are of an earlier version.
    fn products(&self) -> Option<String> {
        let path = self.product_path.as_deref()?;
        let others: u64 = self.steps.values().map(|step| step.by_another_path).sum();
        Some(match others {
            0 => format!("in bfloat16 by {path}"),
            others => format!(
                "in bfloat16 by {path}, {others} by another path, as a subnormal could occur"
            ),
        })
    }

    /// The name on the page.
    fn title(&self) -> String {
        match self.thread {
            0 => self.name.clone(),
            thread => format!("{}, thread {thread}", self.name),
        }
    }

    /// The cost of the last step's products, by the models' own tables; `None` if their sizes were not recorded.
    fn cost(&self) -> Option<Cost> {
        let products = self.last()?.cost_products();
        (!products.is_empty()).then(|| Tables::default().cost(&products))
    }

    fn last(&self) -> Option<&StepRecord> {
        self.steps.values().next_back()
    }
}

/// The operands of a step, with their products.
pub(super) fn operands(
    step: &StepRecord,
) -> impl Iterator<Item = (&ProductRecord, &OperandRecord)> {
    step.products.iter().flat_map(|product| {
        product
            .operands
            .iter()
            .map(move |operand| (product, operand))
    })
}
