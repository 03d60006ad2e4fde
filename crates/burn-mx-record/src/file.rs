//! `records.jsonl`: a line for each recorded step, written when the step is over.

pub(super) mod dialect_figures;
pub(super) mod figures;
pub(super) mod own_thread;
pub(super) mod part_figures;
mod sizes;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::Error as _;
use serde_json::{Error, Value};

use crate::error::RecordError;
use crate::file::figures::{Header, StepRecord};
use figures::VERSION;

/// Name of the file of records.
pub const RECORDS: &str = "records.jsonl";

/// Creates a folder and the folders above it, if they are missing.
pub(super) fn create_folder(folder: &Path) -> Result<(), RecordError> {
    let created = match folder.exists() && !folder.is_dir() {
        true => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "the path is a file; allowed: a folder, which may be missing",
        )),
        false => fs::create_dir_all(folder),
    };
    created.map_err(|error| RecordError::Io {
        path: folder.to_owned(),
        error,
    })
}

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
        create_folder(folder)?;
        let path = folder.join(RECORDS);
        let mut options = OpenOptions::new();
        match append {
            true => options.read(true).append(true).create(true),
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

    /// Writes a line and flushes it, so that the line survives a crash of this process.
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

    /// Ends the torn line of a run that died while writing, before a new line begins.
    fn end_torn_line(&mut self) -> Result<(), RecordError> {
        let end = |file: &mut File| {
            if file.metadata()?.len() == 0 {
                return Ok(());
            }
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            match last {
                [b'\n'] => Ok(()),
                _ => file.write_all(b"\n"),
            }
        };
        end(&mut self.file).map_err(|error| RecordError::Io {
            path: self.path.clone(),
            error,
        })
    }
}

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) headers: Vec<Header>,
    pub(super) steps: Vec<StepRecord>,
}

/// Reads the file of a folder, or the file itself. The last line may be torn if the run died.
pub(super) fn read(path: &Path) -> Result<(PathBuf, Records), RecordError> {
    let path = match path.is_dir() {
        true => path.join(RECORDS),
        false => path.to_owned(),
    };
    let failed = |error| RecordError::Io {
        path: path.clone(),
        error,
    };
    let lines = BufReader::new(File::open(&path).map_err(failed)?).split(b'\n');
    let mut records = Records::default();
    // For a line that is torn: the end of the file comes after it, or the header of the run that went on.
    let mut torn = None;
    for (number, line) in (1..).zip(lines) {
        let line = line.map_err(failed)?;
        if line.is_empty() {
            continue;
        }
        let read = records.read_line(&line);
        if let Some(error) = torn.take()
            && !matches!(read, Ok(FileLine::Header))
        {
            return Err(error);
        }
        if let Err(reason) = read {
            let error = RecordError::Line {
                path: path.clone(),
                line: number,
                reason: reason.to_string(),
            };
            if !reason.is_eof() {
                return Err(error);
            }
            torn = Some(error);
        }
    }
    if let Some(error) = torn {
        log::warn!("burn-mx: {error}: the line is left out, because an interrupted run may end so");
    }
    Ok((path, records))
}

/// The kinds of lines.
enum FileLine {
    Header,
    Step,
}

impl Records {
    fn read_line(&mut self, line: &[u8]) -> serde_json::Result<FileLine> {
        let value: Value = serde_json::from_slice(line)?;
        if let Some(version) = value.get("burn_mx_records") {
            if version != VERSION {
                return Err(Error::custom(format_args!(
                    "`burn_mx_records` is {version}; allowed: {VERSION}"
                )));
            }
            self.headers.push(serde_json::from_value(value)?);
            return Ok(FileLine::Header);
        }
        let step: StepRecord = serde_json::from_value(value)?;
        if !self.headers.iter().any(|header| header.run == step.run) {
            return Err(Error::custom(format_args!(
                "`run` is `{}`, which no line before it begins",
                step.run
            )));
        }
        self.steps.push(step);
        Ok(FileLine::Step)
    }
}
