//! Files that are written: none that is an input, none that exists without `--force`, and none before it is complete.

use crate::error::Error;
use crate::npy;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Checks that the files can be written, before any work is done.
pub(crate) fn check_targets(
    targets: &[PathBuf],
    inputs: &[PathBuf],
    force: bool,
) -> Result<(), Error> {
    for target in targets {
        // What does not exist is no input.
        let is_same = |input: &&PathBuf| same_file::is_same_file(input, target).unwrap_or(false);
        if let Some(input) = inputs.iter().find(is_same) {
            return Err(Error::Input {
                path: target.clone(),
                input: input.clone(),
            });
        }
        if target.extension().is_some_and(|end| end == npy::ENDING) {
            return Err(Error::Arguments(format!(
                "the output is `{}`; allowed: another ending, because safetensors files are written",
                target.display()
            )));
        }
        if target.is_dir() {
            return Err(Error::io(target, io::ErrorKind::IsADirectory.into()));
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

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// A file that is whole, but does not have its name yet. Dropped, it is gone. No other file has its temporary name.
pub(crate) struct Partial {
    file: NamedTempFile,
    to: PathBuf,
}

impl Partial {
    pub(crate) fn write(
        to: PathBuf,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<Self, Error> {
        let written = || {
            let folder = folder_of(&to);
            fs::create_dir_all(folder)?;
            let mut builder = Builder::new();
            // What a new file has; the process's mask takes away from it.
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let temporary = builder.prefix(".partial-").tempfile_in(folder);
            // The error of tempfile names its own file, which nobody asked for.
            let temporary = temporary.map_err(|error| io::Error::from(error.kind()))?;
            let mut file = BufWriter::new(temporary.reopen()?);
            write(&mut file)?;
            file.into_inner()?.sync_all()?;
            Ok(temporary)
        };
        match written() {
            Ok(file) => Ok(Self { file, to }),
            Err(source) => Err(Error::io(&to, source)),
        }
    }

    pub(crate) fn of_json(to: PathBuf, json: &Value) -> Result<Self, Error> {
        Self::write(to, |file| Ok(serde_json::to_writer_pretty(file, json)?))
    }

    /// Gives the files their names. With `force`, files that had the names before are replaced. Without it, a file that
    /// another process wrote meanwhile stays, and none is written.
    pub(crate) fn put(all: Vec<Self>, force: bool) -> Result<Vec<PathBuf>, Error> {
        let mut done = Vec::new();
        for Self { file, to } in all {
            let put = match force {
                true => file.persist(&to),
                false => file.persist_noclobber(&to),
            };
            if let Err(error) = put {
                if !force {
                    // They are new.
                    done.iter().for_each(|path| drop(fs::remove_file(path)));
                }
                return Err(match error.error.kind() {
                    io::ErrorKind::AlreadyExists => Error::Exists { path: to },
                    _ => Error::io(&to, error.error),
                });
            }
            done.push(to);
        }
        Ok(done)
    }
}
