//! One thread for tests whose bits differ with several threads.

/// Runs a test in which burn-ndarray computes `deform_conv2d_backward`. Its threads add to the same numbers in any
/// order, so two calls with several threads differ in the last bits.
pub(crate) fn on_one_thread(test: impl FnOnce() + Send) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.expect("a thread can be started").install(test);
}
