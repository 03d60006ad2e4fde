//! Compiled kernels on disk. CubeCL's settings belong to the process, so each case is a process: this test binary again.

use std::env::{current_exe, var_os};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use burn_core::tensor::{Tensor, TensorData};
use burn_mx_core::process::keep_compiled_kernels;
use burn_mx_core::{MxBackend, MxDevice};
use burn_wgpu::{Vulkan, WgpuDevice};
use tempfile::TempDir;

/// Set where a case uses a device before it keeps kernels.
const BEFORE: &str = "MX_KEPT_BEFORE";

/// The sums of products in MXFP8, with sums that depend on their order.
fn products() -> Vec<u32> {
    let device = MxDevice::new(WgpuDevice::default(), "mxfp8_e4m3").expect("a preset");
    let numbers = |count: usize, seed: usize| {
        (0..count).map(move |i| ((i + seed) * 7919 % 1013) as f32 / 1013.0 - 0.3)
    };
    let mut bits = Vec::new();
    for [m, k, n] in [[1, 1, 1], [64, 96, 64], [600, 520, 40]] {
        let tensor = |rows: usize, columns: usize, seed| {
            let values: Vec<f32> = numbers(rows * columns, seed).collect();
            let data = TensorData::new(values, [rows, columns]);
            Tensor::<MxBackend<Vulkan>, 2>::from_data(data, &device)
        };
        let product = tensor(m, k, 1).matmul(tensor(k, n, 2)).into_data();
        bits.extend(product.iter::<f32>().map(f32::to_bits));
    }
    bits
}

#[test]
#[ignore = "a case of the other tests"]
fn case() {
    if var_os(BEFORE).is_some() {
        products();
    }
    let folder = keep_compiled_kernels();
    assert_eq!(keep_compiled_kernels(), folder, "once more");
    let bits = products();
    let sum = bits.iter().fold(0_u64, |sum, bits| {
        sum.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*bits)
    });
    println!(
        "folder: {}",
        folder.map_or("none".into(), |folder| folder.display().to_string())
    );
    println!("products: {} {sum:016x}", bits.len());
}

/// Runs a case in this folder: the place of its kernels, and its products.
fn run(folder: &Path, caches: &Path, device_first: bool) -> (Option<PathBuf>, String) {
    let mut command = Command::new(current_exe().expect("this process has a file"));
    command
        .args(["--exact", "kept_kernels::case", "--ignored", "--nocapture"])
        .current_dir(folder)
        .env("XDG_CACHE_HOME", caches);
    if device_first {
        command.env(BEFORE, "1");
    }
    let output = command.output().expect("the process runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{all}");
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.split_once(name));
        line.unwrap_or_else(|| panic!("no {name} in {all}"))
            .1
            .to_owned()
    };
    let folder = Some(line("folder: ")).filter(|folder| folder != "none");
    (folder.map(PathBuf::from), line("products: "))
}

/// The bytes of compiled kernels in a folder.
fn compiled(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let size = |entry: fs::DirEntry| match entry.path() {
        path if path.is_dir() => compiled(&path),
        path if path
            .extension()
            .is_some_and(|extension| extension == "cbor") =>
        {
            entry.metadata().expect("it is there").len()
        }
        _ => 0,
    };
    entries.map(|entry| size(entry.expect("it is there"))).sum()
}

#[test]
fn kernels_are_loaded_again_and_give_the_same_bits() {
    let (folder, caches) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(
        folder.path().join("cubecl.toml"),
        "[streaming]\nmax_streams = 1\n",
    )
    .unwrap();
    let (kept, products) = run(folder.path(), caches.path(), false);
    let kept = kept.expect("kernels are kept");
    assert!(
        kept.starts_with(caches.path().join("burn-mx/kernels")),
        "{kept:?}"
    );
    let bytes = compiled(&kept);
    assert!(bytes > 10_000, "{bytes} bytes");
    let again = run(folder.path(), caches.path(), false);
    assert_eq!(again, (Some(kept.clone()), products.clone()));
    assert_eq!(compiled(&kept), bytes, "a kernel was compiled again");

    // The user's folder wins.
    let own = TempDir::new().unwrap();
    let settings = format!("[compilation]\ncache = {{ file = {:?} }}\n", own.path());
    fs::write(folder.path().join("cubecl.toml"), settings).unwrap();
    let by_user = run(folder.path(), caches.path(), false);
    assert_eq!(by_user, (Some(own.path().to_owned()), products.clone()));
    assert_eq!(compiled(own.path()), bytes);
    assert_eq!(compiled(caches.path()), bytes);
    fs::remove_file(folder.path().join("cubecl.toml")).unwrap();

    // Too late, and where nothing can be written.
    let late = run(folder.path(), caches.path(), true);
    assert_eq!(late, (None, products.clone()));
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    assert_eq!(run(folder.path(), &file, false), (None, products));
    assert_eq!(compiled(caches.path()), bytes);
}
