//! The seven op traits of Burn, implemented for `MxBackend`.
//!
//! In each file the methods stand in up to three sections: *Emulated*, which go by the semantics; *Composed*,
//! left to decompose into emulated ops; and *Delegated*, which are the wrapped backend's.
//! Under `cfg(burn_mx_distributed)` there is an eighth, for the communication between devices.

pub(crate) mod activation;
mod bool;
#[cfg(burn_mx_distributed)]
mod distributed;
mod float;
mod int;
mod layers;
mod quantized;
mod transaction;
