//! Files, whole or not at all.

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
    builder.prefix(".partial-").tempfile_in(folder)
}

/// Puts the file at this path, in place of what is there, when all of it is on the disk.
pub(crate) fn put(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
