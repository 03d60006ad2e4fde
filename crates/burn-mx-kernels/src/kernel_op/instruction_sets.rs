//! The instruction set of loops: the processor's best one, or a test's choice.

use std::cell::Cell;

use pulp::Arch;

thread_local! {
    static CHOSEN: Cell<Option<Arch>> = const { Cell::new(None) };
}

/// The instruction set for the loops of this thread.
pub(super) fn chosen() -> Arch {
    CHOSEN.get().unwrap_or_default()
}

/// The instruction sets of this processor, the plainest first.
pub fn available() -> Vec<Arch> {
    #[cfg(target_arch = "x86_64")]
    let vectors = [
        pulp::x86::V3::try_new().map(Arch::V3),
        pulp::x86::V4::try_new().map(Arch::V4),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let vectors = [Some(Arch::new())];
    let vectors = vectors.into_iter().flatten();
    [Arch::Scalar].into_iter().chain(vectors).collect()
}

/// Does `work` with the loops of this thread on another instruction set. Tests compare them.
pub fn on<T>(arch: Arch, work: impl FnOnce() -> T) -> T {
    CHOSEN.set(Some(arch));
    let result = work();
    CHOSEN.set(None);
    result
}
