//! Output files: opened before the work, so that a place that cannot be written to is found out at
//! once, and written after it, so that a run that is broken off leaves an earlier result as it was.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// A file that can be written to.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    /// It was not there before and nothing is in it yet.
    placeholder: bool,
}

impl OutputFile {
    /// Opens `path`, or creates it; what is in it stays.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let placeholder = !path.exists();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            placeholder,
        })
    }

    /// Replaces the contents and returns the path.
    pub(crate) fn replace(mut self, contents: &[u8]) -> io::Result<PathBuf> {
        self.placeholder = false;
        // A pipe or `/dev/stdout` has no length to set.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(contents)?;
        Ok(self.path.clone())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.placeholder {
            // Whatever stopped the work is what the user has to hear of.
            let _ = fs::remove_file(&self.path);
        }
    }
}
