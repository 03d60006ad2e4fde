//! Threads: when and where work is divided. Without the feature `rayon` nothing is.

/// Work on fewer elements than this runs on the calling thread; larger work is halved down to it.
/// Measured: a rayon join costs 6 to 12 µs, this many elements take 35 to 130 µs on one thread.
const PARALLEL_THRESHOLD: usize = 1 << 17;

/// Work that can be done in pieces, at the same time.
pub trait Divide: Sized + Send {
    /// How many elements are worked on.
    fn elements(&self) -> usize;

    /// Two smaller pieces that together are the whole work, or the unchanged work if there is no place to divide it.
    fn halves(self) -> Result<[Self; 2], Self>;
}

/// Does work, divided among the threads of the current rayon pool if it is large, and joins the results of the
/// pieces, in any order. Small work asks for no pool: asking for one starts it.
pub fn share<W: Divide, T: Send>(
    work: W,
    run: &(impl Fn(W) -> T + Sync),
    join_results: &(impl Fn(T, T) -> T + Sync),
) -> T {
    if !is_divided(work.elements()) || threads() == 1 {
        return run(work);
    }
    match work.halves() {
        Err(work) => run(work),
        Ok([low, high]) => {
            debug_assert!(low.elements() > 0 && high.elements() > 0);
            let (low, high) = join(
                || share(low, run, join_results),
                || share(high, run, join_results),
            );
            join_results(low, high)
        }
    }
}

/// [`share`] of work without a result.
pub fn share_all<W: Divide>(work: W, run: &(impl Fn(W) + Sync)) {
    share(work, run, &|(), ()| ());
}

/// Whether work on this number of elements is divided.
pub fn is_divided(elements: usize) -> bool {
    elements >= PARALLEL_THRESHOLD
}

/// Runs both, possibly at the same time.
fn join<T: Send>(a: impl FnOnce() -> T + Send, b: impl FnOnce() -> T + Send) -> (T, T) {
    let (mut a, mut b) = (Some(a), Some(b));
    let (mut of_a, mut of_b) = (None, None);
    join_dyn(&mut || of_a = a.take().map(|a| a()), &mut || {
        of_b = b.take().map(|b| b())
    });
    of_a.zip(of_b).expect("both ran")
}

/// Not generic: rayon's code for one join is longer than most kernels, and would be compiled once for each.
fn join_dyn(a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
    #[cfg(feature = "rayon")]
    rayon::join(a, b);
    #[cfg(not(feature = "rayon"))]
    {
        a();
        b();
    }
}

/// How many threads work is shared among. Starts the global pool if there is no other: only to be asked where work
/// [is divided](is_divided).
pub fn threads() -> usize {
    #[cfg(feature = "rayon")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "rayon"))]
    1
}

impl<T: Sync> Divide for &[T] {
    fn elements(&self) -> usize {
        self.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let (low, high) = self.split_at(self.len() / 2);
        Ok([low, high])
    }
}

/// Consecutive elements of a tensor.
pub struct Piece<'a> {
    /// The elements.
    pub data: &'a mut [f32],
    /// Position of the first one in the tensor.
    pub start: u64,
}

impl Divide for Piece<'_> {
    fn elements(&self) -> usize {
        self.data.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let Self { data, start } = self;
        let middle = data.len() / 2;
        let (low, high) = data.split_at_mut(middle);
        let low = Self { data: low, start };
        let start = start + middle as u64;
        Ok([low, Self { data: high, start }])
    }
}
