//! Memory that large results are written into.

/// Lets glibc keep freed memory for the next results, up to 64 MiB.
///
/// glibc returns freed memory to the system above a threshold, and every page of new memory is a page fault: half the time of
/// quantizing an operand of a megabyte. The threshold grows with the blocks that a program frees, up to twice 32 MiB
/// (`mallopt(3)`), so that one free block of this size is enough. Nothing is written to the block, and the environment variables
/// `MALLOC_TRIM_THRESHOLD_` and `MALLOC_MMAP_THRESHOLD_` still decide. Another allocator ignores the block.
pub fn keep_freed_memory() {
    #[cfg(all(feature = "std", target_os = "linux", target_env = "gnu"))]
    {
        use core::hint::black_box;
        use std::sync::Once;

        /// The largest block that counts, less the allocator's own words.
        const LARGEST: usize = (32 << 20) - (8 << 10);
        static ONCE: Once = Once::new();
        ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(LARGEST))));
    }
}
