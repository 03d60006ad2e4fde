//! Shows on any host that `microscaling` needs no std: this crate has the panic handler of the program, and there may
//! be but one. If anything below brought std in, std's would be the second, and compiling this an error (E0152).
//!
//! `cargo check --manifest-path crates/microscaling/no_std/Cargo.toml`

#![no_std]

use core::panic::PanicInfo;
use microscaling::{BlockFormat, PackError, Packed, RandomStream, Rounding};

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// Serde's traits are there.
pub fn is_serde<T: serde::Serialize + serde::de::DeserializeOwned>(value: T) -> T {
    value
}

/// The functions that a program without std may call.
pub fn pack(format: BlockFormat, data: &mut [f32]) -> Result<Packed, PackError> {
    let rounder = is_serde(Rounding::Stochastic).with(RandomStream::new(1, 2));
    let shape = [data.len()];
    format.quantize(data, &shape, 0, rounder)?;
    Packed::encode(is_serde(format), data, &shape, 0, rounder)
}
