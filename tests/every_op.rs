//! Without specs, every op of Burn's backend traits is the wrapped backend's, bit for bit, and so are its gradients.
//!
//! A separate process, because random ops share the seed of their backend.

#![allow(clippy::too_many_lines, reason = "the table of ops is long")]

#[cfg(not(any(test_backend = "flex", test_backend = "ndarray", test_backend = "tch")))]
#[path = "shared/backend.rs"]
mod backend;
#[path = "shared/one_thread.rs"]
mod one_thread;

mod every_op {
    mod compare;
    mod generate;
    // The others compute in this process's memory, and are above.
    #[cfg(not(any(test_backend = "flex", test_backend = "ndarray", test_backend = "tch")))]
    mod on_a_device;
    mod run;
    mod table;
    mod traits;
}
