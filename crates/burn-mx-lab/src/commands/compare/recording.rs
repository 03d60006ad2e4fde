//! The options of the recorder.

use std::{fs, path::PathBuf};

use burn_mx::record::{RECORDS, REPORT_HTML, REPORT_JSON, RecorderConfig};
use burn_mx_lab::{
    output::{self, OutputFile, unwritable},
    own_files,
};
use clap::{Args, builder::RangedU64ValueParser};

/// Options of the records of MX runs.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Record the quantization of every operand of every product in the MX runs: records.jsonl and report.html in DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,

    /// Record one of this many steps
    #[arg(long, value_name = "N", default_value_t = 20, requires = "record")]
    #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    record_every: u64,

    /// Also quantize the recorded operands to this format, and record its loss: a preset or a block format. Repeat it
    #[arg(long = "what-if", value_name = "FORMAT", requires = "record")]
    what_if: Vec<String>,

    /// Another accumulator for some of the recorded sums, of runs with an accumulator. The record says which one loses less.
    /// Repeat the option for several accumulators
    #[arg(long = "what-if-accumulator", value_name = "NAME", requires = "record")]
    what_if_accumulators: Vec<String>,

    /// Record the roundings of elementwise ops, too
    #[arg(long, requires = "record")]
    record_elementwise: bool,

    /// Record the parts of each operand's squared error, too: scale, dead zone and grid
    #[arg(long, requires = "record")]
    record_error_parts: bool,
}

impl RecordArgs {
    /// The recorder's configuration and folder, tried before the work.
    pub(crate) fn plan(&self, resume: bool) -> Result<Option<(RecorderConfig, PathBuf)>, String> {
        let Some(folder) = &self.record else {
            return Ok(None);
        };
        let config = RecorderConfig {
            every: self.record_every,
            elementwise: self.record_elementwise,
            error_parts: self.record_error_parts,
            ..RecorderConfig::default()
        };
        let config = config.what_if(self.what_if.iter().map(String::as_str));
        let accumulators = self.what_if_accumulators.iter().map(String::as_str);
        let config = config.what_if_accumulators(accumulators);
        config
            .validate()
            .map_err(|error| format!("--record: {error}"))?;
        let records = folder.join(RECORDS);
        if records.exists() && !resume {
            return Err(format!(
                "--record '{}' has records already; name another folder",
                folder.display()
            ));
        }
        for name in [REPORT_HTML, REPORT_JSON] {
            own_files::check_report(&folder.join(name))
                .map_err(|error| format!("--record: {error}"))?;
        }
        fs::create_dir_all(folder)
            .and_then(|()| OutputFile::open(&folder.join(REPORT_HTML)).map(drop))
            .and_then(|()| output::has_room(&records))
            .map_err(|error| unwritable("--record", folder, &error))?;
        Ok(Some((config, folder.clone())))
    }
}
