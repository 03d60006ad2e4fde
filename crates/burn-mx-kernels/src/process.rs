//! Settings of the process for CubeCL's devices: GPUs, and every device of Vulkan and WebGPU.

use std::path::PathBuf;

/// Keeps compiled kernels of CubeCL's devices on disk, so that the next run of this program loads them. Call the function
/// before the process uses a device. Returns the folder of the kernels, or `None` if kernels are not kept, with one line in the log
/// that gives the reason.
///
/// The user's own choice wins: `[compilation] cache` in `cubecl.toml`, in the section `cubecl` of `burn.toml`, or by
/// `CubeClRuntimeConfig::set`. All other settings of these files and of CubeCL's environment variables stay.
///
/// Otherwise the folder is `$XDG_CACHE_HOME/burn-mx/kernels/HASH`, or `~/.cache` in place of the variable. CubeCL finds kernels by
/// name and not by their source. So the hash covers the program's file, the shared library with this code if there is one, the models
/// of GPUs and the version of NVIDIA's driver. Another build has another folder. The call removes folders that no program began to
/// use for 14 days, unless a program still runs with them.
///
/// Kernels are not kept
/// * on systems other than Linux, whose list of GPUs is not read;
/// * on a machine with different GPUs of one vendor, because CubeCL would load one GPU's kernels on the other;
/// * if the folder cannot be written;
/// * if the process used a device before;
/// * without a backend of CubeCL.
///
/// Results of [trials](crate::reproducible_products) lie elsewhere, where CubeCL keeps them: in the folder `target` of the cargo
/// project around the current directory, or in the user's cache directory.
pub fn keep_compiled_kernels() -> Option<PathBuf> {
    #[cfg(feature = "cube")]
    let kept = crate::cube::kept::keep_compiled_kernels();
    #[cfg(not(feature = "cube"))]
    let kept: Result<PathBuf, String> = Err("the program has no backend of CubeCL".to_owned());
    match &kept {
        Ok(folder) => log::info!("compiled kernels are kept in {}", folder.display()),
        Err(reason) => log::info!("compiled kernels are not kept: {reason}"),
    }
    kept.ok()
}

/// Turns lines on stderr on or off, from now on. They say which matrix product a program waits for when CubeCL's device compiles its
/// kernel, if that takes more than two seconds. They are on by default.
#[cfg_attr(
    not(feature = "cube"),
    expect(unused_variables, reason = "there is no device")
)]
pub fn show_waits(on: bool) {
    #[cfg(feature = "cube")]
    crate::cube::waiting::show_waits(on);
}
