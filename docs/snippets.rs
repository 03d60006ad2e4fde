//! Every Rust snippet of the README and of `docs/`, compiled and run as a doctest.

#![cfg(doctest)]

include!(concat!(env!("OUT_DIR"), "/snippets.rs"));
