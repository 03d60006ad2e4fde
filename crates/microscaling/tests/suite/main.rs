//! The crate's behaviour through its public API. One binary, so that tests run side by side and link once. Tests that
//! need a separate process stand next to this folder.
//!
//! `MICROSCALING_LEVEL=baseline`, `avx2` or `avx512` runs every test on this instruction set,
//! `MICROSCALING_FLUSH_TO_ZERO=1` with subnormals flushed to zero in every thread.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod bit_streams;
mod block_rules;
mod conversion;
#[cfg(all(feature = "serde", feature = "std"))]
mod dialects;
mod eden;
mod edges;
#[cfg(feature = "std")]
mod error_parts;
mod errors;
#[cfg(feature = "std")]
mod every_level;
mod exhaustive;
mod float_state;
#[cfg(target_arch = "x86_64")]
mod flush_to_zero;
#[cfg(feature = "serde")]
mod formats;
mod fused_layers;
#[cfg(feature = "serde")]
mod golden;
#[cfg(feature = "serde")]
mod golden_file;
mod hadamard;
#[cfg(feature = "half")]
mod half_numbers;
#[cfg_attr(
    not(feature = "serde"),
    allow(dead_code, reason = "used by tests that need serde")
)]
mod inputs;
#[cfg(feature = "safetensors")]
mod layout_files;
#[cfg(feature = "serde")]
mod names;
#[cfg_attr(
    not(feature = "serde"),
    allow(dead_code, reason = "used by tests that need serde")
)]
mod oracle;
#[cfg(feature = "safetensors")]
mod other_quantized;
mod outer_scales;
#[cfg(feature = "std")]
mod p3109;
#[cfg(feature = "std")]
mod p3109_blocks;
#[cfg(feature = "serde")]
mod pack;
mod pack_codes;
#[cfg(feature = "std")]
mod pack_every_level;
#[cfg(feature = "half")]
mod pack_numbers;
mod pack_rows;
mod packed;
mod properties;
mod random_stream;
#[cfg(feature = "safetensors")]
mod safetensors;
#[cfg(feature = "std")]
mod scale_rules;
mod sign_scales;
mod square;
#[cfg(feature = "std")]
mod statistics;
mod sub_scales;
mod tables;
mod tame;
#[cfg(feature = "rayon")]
mod threads;
mod weight_layouts;
