//! Elements that will be worked on soon.

/// Elements of a line of a cache.
const LINE: usize = 16;

/// Asks for elements, so that they are in the caches when they are worked on. Where no elements lie, and on processors without such
/// a request, nothing happens.
#[inline(always)]
pub fn prefetch(first: *const f32, count: usize) {
    for line in (0..count).step_by(LINE) {
        let address = first.wrapping_add(line);
        #[cfg(all(target_arch = "x86_64", target_feature = "sse"))]
        // SAFETY: the processor has SSE. The instruction changes nothing that the program sees and never faults, for any address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
        #[cfg(not(all(target_arch = "x86_64", target_feature = "sse")))]
        let _ = address;
    }
}
