//! One thread for what is not the same bits with several.

/// Runs a test in which burn-ndarray computes `deform_conv2d_backward`: its threads add to the same numbers in the
/// order in which they come, so that with several of them two calls differ in the last bits.
pub(crate) fn on_one_thread(test: impl FnOnce() + Send) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.expect("a thread can be started").install(test);
}
