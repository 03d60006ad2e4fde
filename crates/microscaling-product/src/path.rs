//! The paths of products, and the choice of a path for a processor.

use core::fmt;
#[cfg(feature = "std")]
use microscaling::NameError;

/// A way to multiply [`Panels`](super::Panels). All but [`AmxBf16`](Self::AmxBf16) and [`NeonBf16`](Self::NeonBf16) give the
/// same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProductPath {
    /// The rule itself, in plain Rust: for comparison, on any processor.
    Portable,
    /// Float32 fused multiply-adds in 256 bits (AVX2 and FMA).
    Avx2,
    /// Float32 fused multiply-adds in 512 bits (AVX-512 F and BW).
    Avx512,
    /// `vdpbf16ps` in 512 bits (AVX-512 BF16). The instruction flushes subnormals to zero. So [`Avx512`](Self::Avx512)
    /// computes products in which a subnormal could occur.
    Avx512Bf16,
    /// `tdpbf16ps` on tiles (AMX-BF16, on Linux). The instruction adds [in another order](super::Panels::multiply) and flushes
    /// subnormals to zero. So [`Avx512`](Self::Avx512) computes products in which a subnormal could occur.
    AmxBf16,
    /// Float32 fused multiply-adds in 128 bits (NEON, 64-bit Arm).
    Neon,
    /// `bfmmla` (NEON with BF16). Its sums are [rounded in another way](super::Panels::multiply), and subnormals are flushed to
    /// zero, which leaves such products to [`Neon`](Self::Neon).
    NeonBf16,
}

/// Names the path that all products take, or `float32` for products in plain float32.
#[cfg(feature = "std")]
const VARIABLE: &str = "MICROSCALING_PRODUCT";

/// The name of no path.
#[cfg(feature = "std")]
const NONE: &str = "float32";

impl ProductPath {
    /// All paths.
    pub const ALL: [Self; 7] = [
        Self::Portable,
        Self::Avx2,
        Self::Avx512,
        Self::Avx512Bf16,
        Self::AmxBf16,
        Self::Neon,
        Self::NeonBf16,
    ];

    /// The name, as the environment variable `MICROSCALING_PRODUCT` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512_bf16",
            Self::AmxBf16 => "amx_bf16",
            Self::Neon => "neon",
            Self::NeonBf16 => "neon_bf16",
        }
    }

    /// Whether this processor has the instructions of the path.
    pub fn is_available(self) -> bool {
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        {
            use std::arch::is_x86_feature_detected as detected;
            let avx512 = || detected!("avx512f") && detected!("avx512bw");
            match self {
                Self::Portable => true,
                Self::Avx2 => detected!("avx2") && detected!("fma"),
                Self::Avx512 => avx512(),
                Self::Avx512Bf16 => avx512() && detected!("avx512bf16"),
                #[cfg(target_os = "linux")]
                Self::AmxBf16 => avx512() && super::kernels::amx::is_available(),
                _ => false,
            }
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little", feature = "std"))]
        {
            use std::arch::is_aarch64_feature_detected as detected;
            match self {
                Self::Portable => true,
                Self::Neon => detected!("neon"),
                Self::NeonBf16 => detected!("neon") && detected!("bf16"),
                _ => false,
            }
        }
        #[cfg(not(all(
            any(
                target_arch = "x86_64",
                all(target_arch = "aarch64", target_endian = "little")
            ),
            feature = "std"
        )))]
        {
            self == Self::Portable
        }
    }

    /// Whether the path gives [`Portable`](Self::Portable)'s bits, as most do.
    pub const fn is_bit_exact(self) -> bool {
        !matches!(self, Self::AmxBf16 | Self::NeonBf16)
    }

    /// The fastest path of this processor that gives the bits of all, `None` where none is faster than a float32 matrix product
    /// is expected to be, or was seen to be.
    pub fn best() -> Option<Self> {
        // From the best on.
        let paths = [Self::Avx512Bf16, Self::Avx512, Self::Avx2];
        let is_fast = |path| path != Self::Avx512Bf16 || is_bf16_fast();
        (paths.into_iter()).find(|path| path.is_available() && is_fast(*path))
    }

    /// The path to take: the [best](Self::best), unless the environment variable `MICROSCALING_PRODUCT` names another
    /// path, or `float32` for none. The variable is read once.
    ///
    /// # Panics
    /// If the variable names an unknown path, or a path that this processor does not have.
    pub fn current() -> Option<Self> {
        #[cfg(feature = "std")]
        {
            static PATH: std::sync::OnceLock<Option<ProductPath>> = std::sync::OnceLock::new();
            *PATH.get_or_init(|| match std::env::var_os(VARIABLE) {
                None => Self::best(),
                Some(name) => Self::named(&name.to_string_lossy())
                    .unwrap_or_else(|error| panic!("{VARIABLE}: {error}")),
            })
        }
        #[cfg(not(feature = "std"))]
        Self::best()
    }

    /// The path of this name, `None` for `float32`.
    #[cfg(feature = "std")]
    fn named(name: &str) -> Result<Option<Self>, NameError> {
        if name == NONE {
            return Ok(None);
        }
        let mut available = Self::ALL.into_iter().filter(|path| path.is_available());
        let found = available.find(|path| path.name() == name);
        found.map(Some).ok_or_else(|| {
            let available = Self::ALL.into_iter().filter(|path| path.is_available());
            let allowed = available.map(Self::name).chain([NONE]).collect();
            NameError::new("product path of this processor", name, allowed)
        })
    }
}

impl fmt::Display for ProductPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether `vdpbf16ps` does more in a cycle than two fused multiply-adds: on AMD's processors it does (Zen 4 and 5), on
/// Intel's up to Granite Rapids it takes twice as long.
fn is_bf16_fast() -> bool {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    {
        let vendor = core::arch::x86_64::__cpuid(0);
        // "AuthenticAMD"
        [vendor.ebx, vendor.edx, vendor.ecx]
            == [b"Auth", b"enti", b"cAMD"].map(|part| u32::from_le_bytes(*part))
    }
    #[cfg(not(all(target_arch = "x86_64", feature = "std")))]
    {
        false
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(ProductPath::named("float32"), Ok(None));
        for path in ProductPath::ALL
            .into_iter()
            .filter(|path| path.is_available())
        {
            assert_eq!(ProductPath::named(path.name()), Ok(Some(path)));
        }
        let error = ProductPath::named("fast").unwrap_err().to_string();
        assert!(
            error.contains("`fast`") && error.contains("portable"),
            "{error}"
        );
    }

    #[test]
    fn the_best_path_is_available() {
        assert!(ProductPath::best().is_none_or(ProductPath::is_available));
        assert!(ProductPath::Portable.is_available());
    }
}
