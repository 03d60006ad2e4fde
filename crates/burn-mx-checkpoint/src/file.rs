//! Changes of the checkpoint's folder.

use std::fs;
use std::io;
use std::path::Path;

use burn_mx_files::NewFile;

/// A file that does not have its path yet.
pub(crate) fn new_at(path: &Path) -> io::Result<NewFile> {
    stop();
    NewFile::at(path)
}

/// Gives the file its path. Replaces a file at the path.
pub(crate) fn put(file: NewFile) -> io::Result<()> {
    stop();
    file.put(true)
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    stop();
    fs::remove_file(path)
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
