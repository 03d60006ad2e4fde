//! The paths of products, and the choice of a path for a processor.

use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
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

/// Names the path that all products take, `float32` for products in plain float32, or `reproducible`.
#[cfg(feature = "std")]
const VARIABLE: &str = "MICROSCALING_PRODUCT";

/// The name of no path.
#[cfg(feature = "std")]
const NONE: &str = "float32";

/// The name of the fastest path that gives the bits of all.
#[cfg(feature = "std")]
const REPRODUCIBLE: &str = "reproducible";

/// The last call of [`reproducible_products`]: none yet, no, or yes.
static CALLED: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Makes all products of this process from the next one on reproducible, or as fast as possible.
///
/// With `true` processors compute products of [`Panels`](super::Panels) by a path that gives the bits of
/// [`ProductPath::Portable`]: the same bits on every processor. With `false` they take the [best](ProductPath::best) path, which on
/// processors with AMX has sums in another order. The call wins over the environment variable `MICROSCALING_PRODUCT`, except that
/// a path that the variable names remains if `on` allows it. Without a call, and without `MICROSCALING_PRODUCT=reproducible`, products
/// are as fast as possible.
pub fn reproducible_products(on: bool) {
    CALLED.store(if on { ON } else { OFF }, Ordering::Relaxed);
}

/// Whether products are to be reproducible: by the last call of [`reproducible_products`], else by the environment.
pub fn are_products_reproducible() -> bool {
    match CALLED.load(Ordering::Relaxed) {
        UNSET => requested() == Request::Reproducible,
        called => called == ON,
    }
}

/// A request of the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "std"),
    allow(dead_code, reason = "without std there is no environment")
)]
enum Request {
    Nothing,
    Reproducible,
    /// A path; `None` stands for `float32`.
    Path(Option<ProductPath>),
}

/// The request of the environment, read once.
///
/// # Panics
/// If the variable names an unknown path, or a path that this processor does not have.
fn requested() -> Request {
    #[cfg(feature = "std")]
    {
        static REQUEST: std::sync::OnceLock<Request> = std::sync::OnceLock::new();
        *REQUEST.get_or_init(|| match std::env::var_os(VARIABLE) {
            None => Request::Nothing,
            Some(name) => Request::named(&name.to_string_lossy())
                .unwrap_or_else(|error| panic!("{VARIABLE}: {error}")),
        })
    }
    #[cfg(not(feature = "std"))]
    Request::Nothing
}

impl Request {
    /// The path to take, after the last call of [`reproducible_products`].
    fn path(self, called: u8) -> Option<ProductPath> {
        match (self, called) {
            (Self::Path(path), ON) if !path.is_none_or(ProductPath::is_bit_exact) => {
                ProductPath::best_reproducible()
            }
            (Self::Path(path), _) => path,
            (Self::Nothing, ON) | (Self::Reproducible, ON | UNSET) => {
                ProductPath::best_reproducible()
            }
            (Self::Nothing | Self::Reproducible, _) => ProductPath::best(),
        }
    }

    #[cfg(feature = "std")]
    fn named(name: &str) -> Result<Self, NameError> {
        match name {
            NONE => return Ok(Self::Path(None)),
            REPRODUCIBLE => return Ok(Self::Reproducible),
            _ => {}
        }
        let available = || {
            ProductPath::ALL
                .into_iter()
                .filter(|path| path.is_available())
        };
        let found = available().find(|path| path.name() == name);
        found.map(|path| Self::Path(Some(path))).ok_or_else(|| {
            let allowed = available().map(ProductPath::name);
            let allowed = allowed.chain([NONE, REPRODUCIBLE]).collect();
            NameError::new("product path of this processor", name, allowed)
        })
    }
}

/// Products of panels in this process, of all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ProductCounts {
    /// All products.
    pub all: u64,
    /// Products by another path than the one asked for. The instructions of that path flush subnormals to zero, and an element, a
    /// product or a sum could be a subnormal.
    pub by_another_path: u64,
}

static ALL: AtomicU64 = AtomicU64::new(0);
static BY_ANOTHER_PATH: AtomicU64 = AtomicU64::new(0);

impl ProductCounts {
    /// The counts since the process began.
    pub fn now() -> Self {
        Self {
            all: ALL.load(Ordering::Relaxed),
            by_another_path: BY_ANOTHER_PATH.load(Ordering::Relaxed),
        }
    }

    /// Counts a product that was to take one path and takes another one, or the same.
    pub(crate) fn count(asked: ProductPath, taken: ProductPath) {
        ALL.fetch_add(1, Ordering::Relaxed);
        if asked != taken {
            BY_ANOTHER_PATH.fetch_add(1, Ordering::Relaxed);
        }
    }
}

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

    /// The fastest path of this processor: [`AmxBf16`](Self::AmxBf16) where there are tiles, else the fastest [reproducible
    /// path](Self::best_reproducible).
    pub fn best() -> Option<Self> {
        match Self::AmxBf16.is_available() {
            true => Some(Self::AmxBf16),
            false => Self::best_reproducible(),
        }
    }

    /// The fastest path of this processor that gives the bits of all, `None` where none is faster than a float32 matrix product
    /// is expected to be, or was seen to be.
    pub fn best_reproducible() -> Option<Self> {
        // From the best on.
        let paths = [Self::Avx512Bf16, Self::Avx512, Self::Avx2];
        let is_fast = |path| path != Self::Avx512Bf16 || is_bf16_fast();
        (paths.into_iter()).find(|path| path.is_available() && is_fast(*path))
    }

    /// The path to take: the [best](Self::best), unless [`reproducible_products`] was called, or the environment variable
    /// `MICROSCALING_PRODUCT` names another path, `float32` for none, or `reproducible` for the [reproducible
    /// one](Self::best_reproducible). The variable is read once.
    ///
    /// # Panics
    /// If the variable names an unknown path, or a path that this processor does not have.
    pub fn current() -> Option<Self> {
        requested().path(CALLED.load(Ordering::Relaxed))
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
        // Asked once: the instruction takes microseconds in a virtual machine, and each product asks for its path.
        static FAST: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *FAST.get_or_init(|| {
            let vendor = core::arch::x86_64::__cpuid(0);
            // "AuthenticAMD"
            [vendor.ebx, vendor.edx, vendor.ecx]
                == [b"Auth", b"enti", b"cAMD"].map(|part| u32::from_le_bytes(*part))
        })
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
        assert_eq!(Request::named("float32"), Ok(Request::Path(None)));
        assert_eq!(Request::named("reproducible"), Ok(Request::Reproducible));
        for path in ProductPath::ALL
            .into_iter()
            .filter(|path| path.is_available())
        {
            assert_eq!(Request::named(path.name()), Ok(Request::Path(Some(path))));
        }
        let error = Request::named("fast").unwrap_err().to_string();
        assert!(
            ["`fast`", "portable", "reproducible"].map(|name| error.contains(name)) == [true; 3],
            "{error}"
        );
    }

    #[test]
    fn the_best_path_is_available() {
        assert!(ProductPath::best().is_none_or(ProductPath::is_available));
        let reproducible = ProductPath::best_reproducible();
        assert!(reproducible.is_none_or(|path| path.is_available() && path.is_bit_exact()));
        assert!(ProductPath::Portable.is_available());
    }

    /// The call wins over the environment, the environment over the default.
    #[test]
    fn the_call_wins_over_the_environment() {
        let [best, exact] = [ProductPath::best(), ProductPath::best_reproducible()];
        let portable = Some(ProductPath::Portable);
        let amx = Some(ProductPath::AmxBf16);
        for (request, unset, off, on) in [
            (Request::Nothing, best, best, exact),
            (Request::Reproducible, exact, best, exact),
            (Request::Path(portable), portable, portable, portable),
            (Request::Path(amx), amx, amx, exact),
            (Request::Path(None), None, None, None),
        ] {
            let paths = [UNSET, OFF, ON].map(|called| request.path(called));
            assert_eq!(paths, [unset, off, on], "{request:?}");
        }
        // This library's tests emulate tiles where a processor has AVX-512 alone.
        if ProductPath::AmxBf16.is_available() {
            assert_eq!(best, amx);
        }
    }
}
