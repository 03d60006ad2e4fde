//! Compiled kernels on disk, in a folder that CubeCL reads and writes.
//!
//! CubeCL 0.10 finds a kernel by the name of its type and its settings: neither the kernel's source nor the GPU is part of the key.
//! So the folder's name is a hash of the program, of the library with this code and of the machine's GPUs. CubeCL panics where it
//! cannot write, so that is tried before.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// A program that did not run for this time is an old build, and its kernels are removed.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);
/// A file of each folder, written and locked by each process that uses the folder.
const USED: &str = "used";

/// The folder where CubeCL keeps compiled kernels from now on.
///
/// # Errors
///
/// The reason why kernels are not kept, for a line of the log.
pub(crate) fn keep_compiled_kernels() -> Result<PathBuf, String> {
    let read = CubeClRuntimeConfig::storage().lock().clone();
    let mut config = match read {
        Some(config) => {
            let set = config.compilation.cache.as_ref().map(CacheConfig::root);
            return set.ok_or_else(|| {
                "CubeCL has settings without a cache, or a device was used before".to_owned()
            });
        }
        None => CubeClRuntimeConfig::from_current_dir().override_from_env(),
    };
    if let Some(cache) = &config.compilation.cache {
        return Ok(cache.root());
    }
    let folder = folder()?;
    config.compilation.cache = Some(CacheConfig::File(folder.clone()));
    let mut storage = CubeClRuntimeConfig::storage().lock();
    match storage.is_none() {
        true => *storage = Some(config.into()),
        false => return Err("a device was used meanwhile".to_owned()),
    }
    Ok(folder)
}

/// A folder for this program on this machine, which exists and is writable.
fn folder() -> Result<PathBuf, String> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let caches = caches.ok_or("neither XDG_CACHE_HOME nor HOME is an absolute path")?;
    let kernels = caches.join("burn-mx").join("kernels");
    let gpus = gpus(Path::new("/sys")).map_err(|error| format!("no list of GPUs: {error}"))?;
    let gpus = gpus?;
    let mut hash = DefaultHasher::new();
    hash.write(gpus.as_bytes());
    let files = files_of_code().map_err(|error| format!("no list of loaded files: {error}"))?;
    for file in files {
        File::open(&file)
            .and_then(|mut opened| hash_file(&mut opened, &mut hash))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let folder = kernels.join(format!("{:016x}", hash.finish()));
    let used = use_folder(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Locked until the process ends.
    std::mem::forget(used);
    remove_unused(&kernels, SystemTime::now());
    Ok(folder)
}

/// The program, and the library with this code if it is in one: a module of Python, say, whose program is the interpreter.
fn files_of_code() -> io::Result<Vec<PathBuf>> {
    let mut files = vec![env::current_exe()?];
    let maps = fs::read_to_string("/proc/self/maps")?;
    let own = file_at(&maps, files_of_code as *const () as usize as u64);
    let own = own.ok_or_else(|| io::Error::other("this code is in no file"))?;
    files.extend(Some(own).filter(|own| *own != files[0]));
    Ok(files)
}

/// The file that is mapped at an address, from Linux's list of mappings.
fn file_at(maps: &str, address: u64) -> Option<PathBuf> {
    let line = maps.lines().find(|line| {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        range.is_some_and(|(start, end)| {
            let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16));
            start.is_ok_and(|start| start <= address) && end.is_ok_and(|end| address < end)
        })
    })?;
    Some(line[line.find('/')?..].into())
}

/// Makes the folder one that this process uses, as long as the file is open.
fn use_folder(folder: &Path) -> io::Result<File> {
    loop {
        fs::create_dir_all(folder)?;
        let used = File::create(folder.join(USED))?;
        // File systems without locks: nobody else can lock the file either, and the folder stays.
        let _ = used.lock_shared();
        // Another process may have removed the folder before the lock.
        if folder.join(USED).exists() {
            return Ok(used);
        }
    }
}

/// Removes the kernels of programs that did not run for long, and do not run now.
fn remove_unused(kernels: &Path, now: SystemTime) {
    let Ok(folders) = fs::read_dir(kernels) else {
        return;
    };
    for folder in folders.flatten() {
        let name = folder.file_name();
        let is_ours = name.len() == 16
            && name
                .to_str()
                .is_some_and(|name| u64::from_str_radix(name, 16).is_ok());
        let Ok(used) = File::open(folder.path().join(USED)) else {
            continue;
        };
        let is_free = is_ours && used.try_lock().is_ok();
        let used_at = used.metadata().and_then(|used| used.modified());
        let age = used_at.ok().and_then(|at| now.duration_since(at).ok());
        if is_free && age.is_some_and(|age| age > UNUSED) {
            // Another process may remove the folder, too.
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

fn hash_file(file: &mut impl Read, hash: &mut DefaultHasher) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(()),
            length => hash.write(&bytes[..length]),
        }
    }
}

/// The machine's GPUs and the driver of NVIDIA's, from Linux's files of its devices.
fn gpus(sys: &Path) -> io::Result<Result<String, String>> {
    let mut models = Vec::new();
    for device in fs::read_dir(sys.join("bus/pci/devices"))? {
        let device = device?.path();
        let read =
            |name: &str| fs::read_to_string(device.join(name)).map(|text| text.trim().to_owned());
        let class = read("class")?;
        // Displays, and accelerators without one.
        if class.starts_with("0x03") || class.starts_with("0x12") {
            models.push((read("vendor")?, read("device")?));
        }
    }
    models.sort();
    models.dedup();
    if let Some(two) = models.windows(2).find(|two| two[0].0 == two[1].0) {
        return Ok(Err(format!(
            "the machine has different GPUs of one vendor (PCI {}: {} and {}), and CubeCL would take one's kernels for the other",
            two[0].0, two[0].1, two[1].1
        )));
    }
    let driver = fs::read_to_string(sys.join("module/nvidia/version")).unwrap_or_default();
    Ok(Ok(format!("{models:?} {driver}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test, empty.
    fn empty(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("burn-mx-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn gpus_are_those_of_the_bus() {
        let sys = empty("gpus");
        let devices = sys.join("bus/pci/devices");
        let add = |place: &str, class: &str, vendor: &str, device: &str| {
            let folder = devices.join(place);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in [("class", class), ("vendor", vendor), ("device", device)] {
                fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        };
        assert!(gpus(&sys).is_err());
        // A bridge, a network card, a board's display, and two equal GPUs.
        add("0000:00:00.0", "0x060000", "0x8086", "0x1234");
        add("0000:01:00.0", "0x020000", "0x10de", "0x1021");
        add("0000:02:00.0", "0x030000", "0x1a03", "0x2000");
        let without = gpus(&sys).unwrap().unwrap();
        add("0000:03:00.0", "0x030200", "0x10de", "0x2330");
        let one = gpus(&sys).unwrap().unwrap();
        add("0000:04:00.0", "0x030200", "0x10de", "0x2330");
        assert_ne!(without, one);
        assert_eq!(gpus(&sys).unwrap().unwrap(), one);
        fs::create_dir_all(sys.join("module/nvidia")).unwrap();
        fs::write(sys.join("module/nvidia/version"), "580.159\n").unwrap();
        assert_ne!(gpus(&sys).unwrap().unwrap(), one);
        // An accelerator of the same vendor and another model.
        add("0000:05:00.0", "0x120000", "0x10de", "0x2331");
        let reason = gpus(&sys).unwrap().unwrap_err();
        assert!(reason.contains("0x2330 and 0x2331"), "{reason}");
        fs::remove_dir_all(sys).unwrap();
    }

    #[test]
    fn the_file_of_this_code_is_found() {
        let maps = "\
55e0a0000000-55e0a0001000 r--p 00000000 08:01 131                        /usr/bin/python3
7f10c0000000-7f10c0400000 r-xp 00001000 08:01 272                        /home/a b/native.so
7ffd10000000-7ffd10021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        let file = |address| file_at(maps, address);
        assert_eq!(file(0x55e0_a000_0fff), Some("/usr/bin/python3".into()));
        assert_eq!(file(0x7f10_c000_0000), Some("/home/a b/native.so".into()));
        for address in [0, 0x55e0_a000_1000, 0x7ffd_1000_0000, u64::MAX] {
            assert_eq!(file(address), None);
        }
        #[cfg(target_os = "linux")]
        assert_eq!(files_of_code().unwrap(), [env::current_exe().unwrap()]);
    }

    #[test]
    fn only_unused_kernels_are_removed() {
        let kernels = empty("unused");
        let (used, other) = (
            kernels.join("0123456789abcdef"),
            kernels.join("somebody's notes"),
        );
        let by_program = use_folder(&used).unwrap();
        drop(use_folder(&other).unwrap());
        let day = Duration::from_secs(24 * 3600);
        remove_unused(&kernels, SystemTime::now() + 15 * day);
        assert!(used.exists(), "a program runs for long");
        drop(by_program);
        remove_unused(&kernels, SystemTime::now() + 13 * day);
        assert!(used.exists());
        remove_unused(&kernels, SystemTime::now() + 15 * day);
        assert!(!used.exists() && other.exists());
        fs::remove_dir_all(kernels).unwrap();
    }
}
