//! Files that are written: none that is an input, none that exists without `--force`, and none before it is complete.

use crate::error::Error;
use burn_mx_files::{NewFile, folder_of, input_at};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Checks that the files can be written, before any work is done.
pub(crate) fn check_targets(
    targets: &[PathBuf],
    inputs: &[PathBuf],
    force: bool,
) -> Result<(), Error> {
    for target in targets {
        if let Some(input) = input_at(target, inputs) {
            return Err(Error::Input {
                path: target.clone(),
                input: input.clone(),
            });
        }
        if target.is_dir() {
            return Err(Error::io(target, io::ErrorKind::IsADirectory.into()));
        }
        // A pipe or a device, which has no place in a rename.
        if target
            .metadata()
            .is_ok_and(|target| !target.is_file() && !target.is_dir())
        {
            return Err(Error::NotAFile {
                path: target.clone(),
            });
        }
        // A link that leads nowhere is there, too.
        if !force && target.symlink_metadata().is_ok() {
            return Err(Error::Exists {
                path: target.clone(),
            });
        }
        let folder = folder_of(target);
        let above = folder.ancestors().find(|folder| folder.exists());
        if let Some(file) = above.filter(|above| !above.is_dir()) {
            return Err(Error::io(file, io::ErrorKind::NotADirectory.into()));
        }
    }
    Ok(())
}

/// A file that is whole, but does not have its path yet. Its folder is created if it is missing.
pub(crate) fn new_file(
    path: &Path,
    write: impl FnOnce(&mut NewFile) -> io::Result<()>,
) -> Result<NewFile, Error> {
    let written = || {
        fs::create_dir_all(folder_of(path))?;
        let mut file = NewFile::at(path)?;
        write(&mut file)?;
        Ok(file)
    };
    written().map_err(|source| Error::io(path, source))
}

pub(crate) fn json_file(path: &Path, json: &Value) -> Result<NewFile, Error> {
    new_file(path, |file| Ok(serde_json::to_writer_pretty(file, json)?))
}
