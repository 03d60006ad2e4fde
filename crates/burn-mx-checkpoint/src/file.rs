//! Files, whole or not at all.

use std::fs;
#[cfg(unix)]
use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// A file in this folder that is gone again unless it gets a name.
pub(crate) fn new_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    #[cfg(unix)]
    {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt;
        // What a new file has; the process's mask takes away from it.
        builder.permissions(Permissions::from_mode(0o666));
    }
    stop();
    builder.prefix(".partial-").tempfile_in(folder)
}

/// Puts the file at this path, in place of what is there, when all of it is on the disk.
pub(crate) fn put(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    stop();
    file.persist(path).map_err(|error| error.error)?;
    sync_folder(path);
    Ok(())
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    stop();
    fs::remove_file(path)
}

/// Brings the new name in a folder to the disk, before anything is removed that the name is to replace. File systems that
/// cannot do that for a folder say so by an error, and there is nothing else to be done.
#[cfg_attr(not(unix), allow(unused_variables))]
fn sync_folder(path: &Path) {
    #[cfg(unix)]
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

/// A place where a kill would leave another folder than the place before. Tests look at the folder there.
fn stop() {
    #[cfg(test)]
    stops::here();
}

#[cfg(test)]
pub(crate) mod stops {
    use std::cell::RefCell;

    thread_local! {
        static LOOK: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    /// Calls `look` at each stop of `work`.
    pub(crate) fn at_each<R>(look: impl FnMut() + 'static, work: impl FnOnce() -> R) -> R {
        LOOK.set(Some(Box::new(look)));
        let result = work();
        LOOK.set(None);
        result
    }

    pub(super) fn here() {
        LOOK.with_borrow_mut(|look| {
            if let Some(look) = look {
                look();
            }
        });
    }
}
