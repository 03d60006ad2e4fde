//! Files that are written completely or not at all.

use std::fs;
#[cfg(unix)]
use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// A temporary file in this folder. Dropping it removes the file unless the file got a name.
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
    let file = builder.prefix(".partial-").tempfile_in(folder);
    // The error of tempfile names its own file, which nobody asked for.
    file.map_err(|error| error.kind().into())
}

/// Moves the file to this path when all bytes are on the disk. Replaces a file at the path.
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

/// Syncs a folder, so that a new name is on the disk before the old file is removed. Some file systems cannot sync a folder
/// and return an error, which is ignored.
#[cfg_attr(not(unix), allow(unused_variables))]
fn sync_folder(path: &Path) {
    #[cfg(unix)]
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

/// A point between two changes of the folder. Tests look at the folder here, as a kill at this point would leave it.
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
