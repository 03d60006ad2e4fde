//! The seven op traits of Burn, implemented for `MxBackend`.
//!
//! In each file the methods stand in up to three sections. *Emulated* methods call the semantics, *composed* methods
//! decompose into emulated ops, and *delegated* methods call the wrapped backend. Under `cfg(burn_mx_distributed)` there is
//! an eighth file, for the communication between devices.

pub(crate) mod activation;
mod bool;
#[cfg(burn_mx_distributed)]
mod distributed;
mod float;
mod int;
mod layers;
mod quantized;
mod transaction;
