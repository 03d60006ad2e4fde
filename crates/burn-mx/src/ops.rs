//! The seven op traits of Burn, implemented for `MxBackend`.
//!
//! In each file the methods stand in up to three sections: *Emulated*, which go by the semantics; *Composed*,
//! left to decompose into emulated ops; and *Delegated*, which are the wrapped backend's.

pub(crate) mod activation;
mod bool;
mod float;
mod int;
mod layers;
mod quantized;
mod transaction;
