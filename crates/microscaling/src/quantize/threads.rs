//! Threads: when and where work is split. Without the feature `std` nothing is.

/// Work on fewer elements than this runs on the calling thread; larger work is halved down to it.
/// Measured: a rayon join costs 6 to 12 µs, this many elements take 35 to 130 µs on one thread.
pub(crate) const PARALLEL_THRESHOLD: usize = 1 << 17;

/// Runs both, possibly at the same time.
pub(crate) fn join<A: Send, B: Send>(
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    #[cfg(feature = "std")]
    return rayon::join(a, b);
    #[cfg(not(feature = "std"))]
    (a(), b())
}

/// How many threads [`join`] can use.
pub(crate) fn threads() -> usize {
    #[cfg(feature = "std")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "std"))]
    1
}

/// Calls `work(start, piece)` on pieces of `data` that together are all of it, where `start` is
/// `first` plus the position of the piece's first element.
pub(crate) fn for_each_piece(
    data: &mut [f32],
    first: u64,
    work: &(impl Fn(u64, &mut [f32]) + Sync),
) {
    if data.len() < PARALLEL_THRESHOLD || threads() == 1 {
        return work(first, data);
    }
    let middle = data.len() / 2;
    let (low, high) = data.split_at_mut(middle);
    join(
        || for_each_piece(low, first, work),
        || for_each_piece(high, first + middle as u64, work),
    );
}
