//! Every Rust snippet of the README and of the book, compiled and run as a doctest.

#![cfg(doctest)]

include!(concat!(env!("OUT_DIR"), "/snippets.rs"));
