//! Without specs, every op of Burn's backend traits is the wrapped backend's, bit for bit, and so are its gradients.
//!
//! A process of its own: random ops share the seed of their backend.

#[path = "shared/one_thread.rs"]
mod one_thread;

mod every_op {
    mod compare;
    mod generate;
    mod run;
    mod table;
    mod traits;
}
