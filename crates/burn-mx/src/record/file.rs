//! `records.jsonl`: a line for each recorded step, written when the step is over.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::figures::VERSION;
use super::{Header, RecordError, StepRecord};

/// Name of the file of records.
pub const RECORDS: &str = "records.jsonl";

/// The file while it is written.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
}

impl Writer {
    /// Creates the folder if it is missing and the file, or adds to it, and writes the header.
    pub(super) fn open(folder: &Path, append: bool, header: &Header) -> Result<Self, RecordError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |error| RecordError::Io { path, error }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(RECORDS);
        let mut options = OpenOptions::new();
        match append {
            true => options.append(true).create(true),
            false => options.write(true).create_new(true),
        };
        let file = options.open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecordError::Exists { path: path.clone() },
            _ => failed(&path)(error),
        })?;
        let mut writer = Self {
            path,
            file,
            line: Vec::new(),
        };
        if append {
            writer.end_torn_line()?;
        }
        writer.write(header)?;
        Ok(writer)
    }

    /// Writes a line, so that it is there whatever becomes of this process.
    pub(super) fn write(&mut self, line: &impl Serialize) -> Result<(), RecordError> {
        self.line.clear();
        let written = serde_json::to_writer(&mut self.line, line).map_err(io::Error::from);
        let written = written.and_then(|()| {
            self.line.push(b'\n');
            self.file.write_all(&self.line)?;
            self.file.flush()
        });
        written.map_err(|error| RecordError::Io {
            path: self.path.clone(),
            error,
        })
    }

    /// A run that died while it wrote has left a part of a line, after which a new one begins.
    fn end_torn_line(&mut self) -> Result<(), RecordError> {
        let ended = fs::read(&self.path).and_then(|bytes| match bytes.last() {
            None | Some(b'\n') => Ok(()),
            Some(_) => self.file.write_all(b"\n"),
        });
        ended.map_err(|error| RecordError::Io {
            path: self.path.clone(),
            error,
        })
    }
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) headers: Vec<Header>,
    pub(super) steps: Vec<StepRecord>,
}

/// Reads the file of a folder, or the file itself. The last line may be torn: the run that wrote it died.
pub(super) fn read(path: &Path) -> Result<(PathBuf, Records), RecordError> {
    let path = match path.is_dir() {
        true => path.join(RECORDS),
        false => path.to_owned(),
    };
    let failed = |error| RecordError::Io {
        path: path.clone(),
        error,
    };
    let mut lines = BufReader::new(File::open(&path).map_err(failed)?).lines();
    let mut records = Records::default();
    let (mut number, mut torn) = (0, None);
    while let Some(line) = lines.next().transpose().map_err(failed)? {
        number += 1;
        if line.is_empty() {
            continue;
        }
        match records.read_line(&line) {
            Ok(()) => {}
            // A torn line, and the header of the run that went on after it.
            Err(reason) => {
                let error = RecordError::Line {
                    path: path.clone(),
                    line: number,
                    reason,
                };
                if torn.replace(error).is_some() || !is_torn(&line) {
                    return Err(torn.expect("it was put there"));
                }
                continue;
            }
        }
        if let Some(error) = torn.take()
            && !line.contains("burn_mx_records")
        {
            return Err(error);
        }
    }
    if let Some(error) = torn {
        log::warn!("burn-mx: {error}: left out, as the end of a run that was interrupted");
    }
    Ok((path, records))
}

/// Whether a line is the beginning of JSON.
fn is_torn(line: &str) -> bool {
    let error = serde_json::from_str::<Value>(line).err();
    error.is_some_and(|error| error.is_eof())
}

impl Records {
    fn read_line(&mut self, line: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if let Some(version) = value.get("burn_mx_records") {
            if version != VERSION {
                return Err(format!(
                    "`burn_mx_records` is {version}; allowed: {VERSION}"
                ));
            }
            let header = serde_json::from_value(value).map_err(|error| error.to_string())?;
            self.headers.push(header);
            return Ok(());
        }
        let step: StepRecord = serde_json::from_value(value).map_err(|error| error.to_string())?;
        if !self.headers.iter().any(|header| header.run == step.run) {
            return Err(format!(
                "`run` is `{}`, which no line before it begins",
                step.run
            ));
        }
        self.steps.push(step);
        Ok(())
    }
}
