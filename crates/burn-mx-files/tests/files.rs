//! Files of several writers, readers meanwhile, files of somebody else, and paths that cannot be written.

use std::collections::BTreeSet;
use std::env::{current_exe, var_os};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use burn_mx_files::{NewFile, input_at, put_all, write};

/// Larger than a write that a system does at once.
const LENGTH: usize = 1 << 20;

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// The byte that a whole file of [`LENGTH`] equal bytes has.
fn whole(path: &Path) -> u8 {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len(), LENGTH);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

#[test]
fn a_reader_sees_whole_files_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("model");
    write(path, vec![0; LENGTH]).unwrap();
    thread::scope(|scope| {
        let writer = |byte| move || (0..20).for_each(|_| write(path, vec![byte; LENGTH]).unwrap());
        let writers = [scope.spawn(writer(1)), scope.spawn(writer(2))];
        while !writers.iter().all(|writer| writer.is_finished()) {
            assert!(whole(path) <= 2);
        }
    });
    assert_eq!(names(folder.path()), ["model".to_owned()].into());
}

const FOLDER: &str = "BURN_MX_FILES_TEST_FOLDER";

/// The process that the next test starts twice. By itself it does nothing.
#[test]
fn writes_until_it_is_killed() {
    let Some(folder) = var_os(FOLDER) else { return };
    let path = Path::new(&folder).join("model");
    for byte in (0..=u8::MAX).cycle() {
        write(&path, vec![byte; LENGTH]).unwrap();
    }
}

#[test]
fn killed_processes_leave_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let start = || -> Child {
        Command::new(current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    for _ in 0..4 {
        let mut children = [start(), start()];
        while !path.exists() {
            assert!(children[0].try_wait().unwrap().is_none(), "it writes on");
            thread::yield_now();
        }
        let mut seen = BTreeSet::new();
        while seen.len() < 5 {
            seen.insert(whole(&path));
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        whole(&path);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn files_of_somebody_else_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mine = ["model.partial", ".partial-model", "model.tmp", "~model"];
    for name in mine {
        fs::write(folder.path().join(name), "mine").unwrap();
    }
    let path = folder.path().join("model");
    write(&path, "new").unwrap();
    let mut file = NewFile::at(&path).unwrap();
    file.write_all(b"never").unwrap();
    // Before the file has its path, and after it was given up.
    assert_eq!(names(folder.path()).len(), mine.len() + 2);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    drop(file);
    for name in mine {
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"mine");
    }
    let expected = mine.into_iter().chain(["model"]).map(str::to_owned);
    assert_eq!(names(folder.path()), expected.collect());
}

#[test]
fn a_file_that_is_there_is_replaced_only_by_request() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let new = |path: &Path| {
        let mut file = NewFile::at(path).unwrap();
        file.write_all(b"new").unwrap();
        file
    };
    fs::write(&other, "mine").unwrap();
    let error = new(&other).put(false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    // All or none: the first one is gone again.
    let error = put_all(vec![new(&one), new(&other)], false).unwrap_err();
    assert_eq!(
        (error.path.as_path(), error.source.kind()),
        (other.as_path(), ErrorKind::AlreadyExists)
    );
    let message = error.to_string();
    assert!(message.starts_with(&other.display().to_string()));
    assert_eq!(fs::read(&other).unwrap(), b"mine");
    assert_eq!(names(folder.path()), ["other".to_owned()].into());
    let done = put_all(vec![new(&one), new(&other)], true).unwrap();
    assert_eq!(done, [one.clone(), other.clone()]);
    assert_eq!(fs::read(&one).unwrap(), b"new");
    assert_eq!(fs::read(&other).unwrap(), b"new");
}

/// The errors equal the errors of the standard library, which writes the same path in place.
#[test]
fn paths_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("read_only")).unwrap();
    let mut permissions = fs::metadata(path("read_only")).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(path("read_only"), permissions).unwrap();
    let mut wanted = vec![
        path("missing/model"),
        path("file/model"),
        // Its owner may write nothing there, except for the superuser.
        path("read_only/model"),
        "/".into(),
        "".into(),
    ];
    if cfg!(target_os = "linux") {
        // Nobody may write there.
        wanted.push("/sys/kernel/model".into());
    }
    for path in wanted {
        let got = write(&path, "new").map_err(|error| error.kind());
        let expected = match path.file_name() {
            None => Err(ErrorKind::IsADirectory),
            Some(_) => fs::write(&path, "new").map_err(|error| error.kind()),
        };
        assert_eq!(got, expected, "{}", path.display());
    }
    let error = write(&path("missing/model"), "new").unwrap_err();
    assert!(!error.to_string().contains("partial"), "{error}");
    // A folder of the path's name.
    fs::create_dir(path("folder")).unwrap();
    write(&path("folder"), "new").unwrap_err();
    assert!(path("folder").is_dir());
    assert_eq!(names(folder.path()).len(), 3);
}

#[cfg(unix)]
#[test]
fn a_link_is_replaced_and_the_file_behind_it_stays() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let folder = tempfile::tempdir().unwrap();
    let [file, link, astray] = ["file", "link", "astray"].map(|name| folder.path().join(name));
    fs::write(&file, "mine").unwrap();
    symlink("file", &link).unwrap();
    symlink("nowhere", &astray).unwrap();
    for link in [&link, &astray] {
        let error = NewFile::at(link).unwrap().put(false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(link.is_symlink());
    }
    assert_eq!(input_at(&link, [&astray, &file]), Some(&file));
    assert_eq!(input_at(&astray, [&astray, &file]), None);
    write(&link, "new").unwrap();
    assert!(!link.is_symlink());
    assert_eq!(fs::read(&link).unwrap(), b"new");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    // The permissions equal a file's that the standard library creates.
    let [new, plain] = [&link, &file].map(|path| fs::metadata(path).unwrap().permissions().mode());
    assert_eq!(new, plain);
}

/// A library may write to the temporary path.
#[test]
fn others_write_to_the_temporary_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = NewFile::at(folder.path().join("model")).unwrap();
    let mut other = File::create(file.temporary()).unwrap();
    other.write_all(b"new").unwrap();
    drop(other);
    let path = file.path().to_owned();
    file.put(false).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"new");
}
