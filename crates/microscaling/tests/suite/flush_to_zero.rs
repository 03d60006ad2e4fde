//! The thread's flush-to-zero state, which other libraries set, does not matter.

use crate::inputs::numbers;
use microscaling::{BlockFormat, Packed, RandomHadamard, RandomStream, Rounding};
use std::hint::black_box;

/// Calls with subnormals flushed, as operands and as results.
fn flushing<T>(call: impl FnOnce() -> T) -> T {
    let mut before = 0_u32;
    // SAFETY: the pointer is to 4 bytes, which are written.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before) };
    let flush = before | 1 << 15 | 1 << 6;
    // SAFETY: the pointer is to 4 bytes; only the two flush bits are changed, and set back below.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const flush) };
    assert_eq!(black_box(f32::MIN_POSITIVE) * black_box(0.5), 0.0);
    let result = call();
    // SAFETY: as above.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const before) };
    result
}

#[test]
fn every_format_at_every_size() {
    let stream = RandomStream::new(0, 0);
    let others = [
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "mx(element=fp4_e2m1,scale_mode=rceil,square=true)",
        "nvfp4(tensor_scale=true,four_over_six=true)",
        "nvfp4(tensor_scale=true,square=true,four_over_six=true)",
        "nvfp4(tensor_scale=false,headroom=17/16,four_over_six=true)",
        "nvfp4(tensor_scale=true,headroom=4/3)",
        "mx(element=fp4_e2m1,scale_mode=rms)",
        "mx(element=fp4_e2m1,scale_mode=rms,square=true)",
        "mx(element=fp4_e2m1,scale_mode=rceil,headroom=4/3)",
        "mx(element=int8,scale_mode=even,headroom=3/2)",
    ];
    for name in BlockFormat::NAMES.into_iter().chain(others) {
        let format: BlockFormat = name.parse().unwrap();
        let shape: &[usize] = match format.is_square() {
            true => &[2, 32],
            false => &[64],
        };
        for center in -149..=128 {
            let data = numbers(64, center, false, center as u64);
            for rounding in Rounding::ALL {
                let run = || {
                    let mut values = data.clone();
                    format
                        .quantize(&mut values, shape, 0, rounding.with(stream))
                        .unwrap();
                    let packed =
                        Packed::encode(format, &data, shape, 0, rounding.with(stream)).unwrap();
                    let decoded = packed.decode();
                    #[cfg(feature = "half")]
                    let halves = {
                        let rows = 0..packed.view().rows();
                        let mut halves = vec![half::f16::ZERO; decoded.len()];
                        packed.view().decode_into(rows, &mut halves).unwrap();
                        halves
                            .into_iter()
                            .map(half::f16::to_bits)
                            .collect::<Vec<_>>()
                    };
                    #[cfg(not(feature = "half"))]
                    let halves = ();
                    let bits =
                        |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                    (bits(values), bits(decoded), halves, packed)
                };
                assert!(flushing(run) == run(), "{name} {rounding} 2^{center}");
            }
        }
    }
}

/// Numbers whose sums, differences and products are subnormal, alone and among others, along both kinds of axis.
#[test]
fn random_hadamard() {
    for block_size in RandomHadamard::BLOCK_SIZES {
        let transform = RandomHadamard { block_size };
        for (axis, inner) in [(128, 1), (100, 1), (128, 3), (255, 7), (128, 64), (33, 129)] {
            for center in (-149..=-90).chain([0]) {
                let mut data = numbers(axis * inner, center, false, center as u64);
                if center % 3 == 0 {
                    data.iter_mut().step_by(5).for_each(|x| *x = 1.0);
                }
                let run = || {
                    let mut values = data.clone();
                    let signs = RandomStream::new(1, 2);
                    let shape = [axis, inner];
                    transform.transform(&mut values, &shape, 0, signs).unwrap();
                    let mut back = data.clone();
                    transform.inverse(&mut back, &shape, 0, signs).unwrap();
                    values.extend(back);
                    values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                assert!(
                    flushing(run) == run(),
                    "{block_size} {axis} {inner} 2^{center}"
                );
            }
        }
    }
}
