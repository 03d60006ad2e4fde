//! Output files. Each file is tried before the work, so that an unusable path is an error at once. Each file is written
//! after the work in one step, so that an interrupted run leaves an earlier result unchanged.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::own_files;

/// A file that can be written to.
pub struct OutputFile {
    path: PathBuf,
    target: OutputTarget,
}

enum OutputTarget {
    /// A file beside `path`, which is to take its place.
    File(NamedTempFile),
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
                OutputTarget::File(beside(&path.canonicalize()?)?)
            }
            Err(_) => OutputTarget::File(beside(path)?),
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
            // Through a link, into the file that it leads to.
            OutputTarget::File(mut file) => file.write_all(contents).and_then(|()| {
                let path = self.path.canonicalize().unwrap_or(self.path.clone());
                Ok(file.persist(path).map(drop)?)
            }),
            OutputTarget::Own => own_files::write(&self.path, contents).map_err(io::Error::other),
            OutputTarget::Stream(mut stream) => stream.write_all(contents),
        };
        match written {
            Ok(()) => Ok(self.path),
            Err(error) => {
                let message = format!("cannot write '{}': {error}", self.path.display());
                Err(io::Error::new(error.kind(), message))
            }
        }
    }
}

/// Whether there is room for something more beside `path`.
pub fn has_room(path: &Path) -> io::Result<()> {
    beside(path)?.write_all(&[0; 1 << 16])
}

/// A new file in the folder of `path`, which vanishes unless it is persisted.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        None => return Err(io::ErrorKind::IsADirectory.into()),
        Some(folder) if folder == Path::new("") => Path::new("."),
        Some(folder) => folder,
    };
    let mut builder = tempfile::Builder::new();
    // Readable by whom other new files are: the umask takes off what it takes off them.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}
