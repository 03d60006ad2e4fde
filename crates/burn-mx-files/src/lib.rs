//! Files that appear whole or not at all.
//!
//! A [`NewFile`] is written under a temporary name in the folder of its path. The name is the file's own: two writers of one path do
//! not meet, and no other file is touched. When all bytes are on the disk, the file gets its path by a rename. A reader
//! sees the old file or the new one, also after a crash.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use same_file::is_same_file;
use tempfile::{Builder, TempPath};

/// The folder of a path; `.` for a path without a folder.
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// The input that is the same file as the one at `path`. Links lead to the same file, too. `None` if no input is, or if the path has no
/// file.
pub fn input_at<P: AsRef<Path>>(path: &Path, inputs: impl IntoIterator<Item = P>) -> Option<P> {
    let mut inputs = inputs.into_iter();
    inputs.find(|input| is_same_file(input, path).unwrap_or(false))
}

/// Writes a file whole, and replaces a file of that path.
///
/// # Errors
///
/// See [`NewFile::at`] and [`NewFile::put`].
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = NewFile::at(path)?;
    file.write_all(contents.as_ref())?;
    file.put(true)
}

/// A file that does not have its path yet. Dropped, it is gone.
#[derive(Debug)]
pub struct NewFile {
    file: BufWriter<File>,
    temporary: TempPath,
    path: PathBuf,
}

impl NewFile {
    /// Creates the file, empty and with a temporary name in the folder of `path`. The file has the permissions of any new file.
    ///
    /// # Errors
    ///
    /// If the folder is missing or cannot be written to, or `path` names no file. The error names no path.
    pub fn at(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if path.file_name().is_none() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut builder = Builder::new();
        // The permissions of a new file; the process's mask takes away some.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.prefix(".partial-").tempfile_in(folder_of(&path));
        // The error of tempfile names its own file, which nobody asked for.
        let (file, temporary) = file.map_err(|error| error.kind())?.into_parts();
        Ok(Self {
            file: BufWriter::new(file),
            temporary,
            path,
        })
    }

    /// The path that the file is going to have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The temporary path, for a library that opens a path and writes there.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives the file its path when all bytes are on the disk. With `replace`, the file replaces a file of that path; of a symbolic link
    /// it replaces the link, and not the file behind it. Without `replace`, anything at the path stays.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be written, or the path cannot be taken: `AlreadyExists` without `replace`. The new file is gone then.
    pub fn put(mut self, replace: bool) -> io::Result<()> {
        self.sync()?;
        self.rename(replace).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }

    fn rename(self, replace: bool) -> io::Result<PathBuf> {
        let Self {
            file,
            temporary,
            path,
        } = self;
        match replace {
            true => temporary.persist(&path),
            false => temporary.persist_noclobber(&path),
        }
        .map_err(|error| error.error)?;
        drop(file);
        sync_folder(folder_of(&path));
        Ok(path)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The path that a file could not get.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{}: {source}", .path.display())]
pub struct PutError {
    /// The path.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// Gives several files their paths, in this order, when the bytes of all are on the disk. See [`NewFile::put`].
///
/// # Errors
///
/// For the first file that fails. Without `replace`, none of the files is left then.
pub fn put_all(mut files: Vec<NewFile>, replace: bool) -> Result<Vec<PathBuf>, PutError> {
    let fail = |path: PathBuf| move |source| PutError { path, source };
    for file in &mut files {
        file.sync().map_err(fail(file.path.clone()))?;
    }
    let mut done: Vec<PathBuf> = Vec::new();
    for file in files {
        let path = file.path.clone();
        match file.rename(replace) {
            Ok(path) => done.push(path),
            Err(source) => {
                if !replace {
                    // They are new.
                    done.iter().for_each(|path| drop(fs::remove_file(path)));
                }
                return Err(fail(path)(source));
            }
        }
    }
    Ok(done)
}

/// Puts a new name on the disk. Some file systems cannot sync a folder and return an error, which is ignored.
#[cfg_attr(not(unix), allow(unused_variables))]
fn sync_folder(folder: &Path) {
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}
