//! The processor, for every loop over memory of [microscaling](https://docs.rs/microscaling) and
//! [burn-mx](https://docs.rs/burn-mx): its [instruction sets](instruction_set), its [threads] and the
//! [state of its float unit](float_state).
//!
//! The crate knows nothing of number formats. Its items change without notice.

#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod float_state;
pub mod instruction_set;
mod memory;
mod prefetch;
pub mod threads;

pub use memory::keep_freed_memory;
pub use prefetch::prefetch;
