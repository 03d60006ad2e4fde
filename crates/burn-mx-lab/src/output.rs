//! Output files. Each file is tried before the work, so that an unusable path is an error at once. Each file is written
//! after the work in one step, so that an interrupted run leaves an earlier result unchanged.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use burn_mx_files::NewFile;

use crate::own_files;

/// A file that can be written to.
pub struct OutputFile {
    path: PathBuf,
    target: OutputTarget,
}

enum OutputTarget {
    /// A file beside `path`, which is to take its place.
    File(NewFile),
    /// A file in a folder of results, which is new or which a program here wrote.
    Own,
    /// A pipe, a terminal or the like, of which there is nothing to replace.
    Stream(File),
}

impl OutputFile {
    /// Opens `path` without a change to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let target = match path.metadata() {
            Ok(metadata) if !metadata.is_file() => {
                OutputTarget::Stream(OpenOptions::new().write(true).open(path)?)
            }
            Ok(_) => {
                OpenOptions::new().append(true).open(path)?; // not one that is write-protected
                // Through a link, into the file that it leads to.
                OutputTarget::File(NewFile::at(path.canonicalize()?)?)
            }
            Err(_) => OutputTarget::File(NewFile::at(path)?),
        };
        Ok(Self {
            path: path.to_owned(),
            target,
        })
    }

    /// Opens a file of a folder of results, without a change to it.
    ///
    /// # Errors
    /// Also if something is there that no program here wrote.
    pub fn open_own(path: &Path) -> io::Result<Self> {
        own_files::check(path)
            .map_err(|reason| io::Error::new(io::ErrorKind::AlreadyExists, reason))?;
        let opened = Self::open(path)?;
        let target = match opened.target {
            OutputTarget::File(_) => OutputTarget::Own,
            target => target,
        };
        Ok(Self { target, ..opened })
    }

    /// Replaces the contents and returns the path, which an error names, too.
    pub fn replace(self, contents: &[u8]) -> io::Result<PathBuf> {
        let written = match self.target {
            OutputTarget::File(mut file) => file.write_all(contents).and_then(|()| file.put(true)),
            OutputTarget::Own => own_files::write(&self.path, contents).map_err(io::Error::other),
            OutputTarget::Stream(mut stream) => stream.write_all(contents),
        };
        match written {
            Ok(()) => Ok(self.path),
            Err(error) => Err(with_path(&self.path, &error)),
        }
    }
}

/// Writes a file that was not tried before the work. The error names the path.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let file = OutputFile::open(path).map_err(|error| with_path(path, &error))?;
    file.replace(contents.as_ref()).map(drop)
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    let message = format!("cannot write '{}': {error}", path.display());
    io::Error::new(error.kind(), message)
}

/// The error of an option whose path cannot be written.
pub fn unwritable(option: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "{option}: cannot write '{}' ({error}); name a writable path",
        path.display()
    )
}

/// Whether there is room for something more beside `path`.
pub fn has_room(path: &Path) -> io::Result<()> {
    let mut file = NewFile::at(path)?;
    file.write_all(&[0; 1 << 16])?;
    file.flush()
}
