//! Modules of the test binaries that check behaviour on any backend.

pub(crate) mod backend;
pub(crate) mod models;
pub(crate) mod noise;
pub(crate) mod support;
