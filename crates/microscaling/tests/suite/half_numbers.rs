//! Conversions between float32 and halves, against the crate `half`.

use half::{bf16, f16};
use microscaling::internal::bits::NAN;
use microscaling::internal::parts::{FromPattern, Widen};

/// Every pattern.
#[test]
fn halves_widen_as_the_crate_half_widens_them() {
    for bits in 0..=u16::MAX {
        let (wide, narrow) = (bf16::from_bits(bits), f16::from_bits(bits));
        let pairs = [
            (f32::from_bits(wide.pattern()), wide.to_f32()),
            (f32::from_bits(narrow.pattern()), narrow.to_f32()),
        ];
        for (got, expected) in pairs {
            let same = got.to_bits() == expected.to_bits();
            assert!(
                same || (got.is_nan() && expected.is_nan()),
                "{bits:#x}: {got:e}"
            );
        }
    }
}

/// Truncation is exact for every bf16 number but subnormals.
#[test]
fn short_patterns() {
    for bits in 0..=u16::MAX {
        let x = bf16::from_bits(bits);
        if x.is_nan() || (x != bf16::ZERO && !x.is_normal() && x.is_finite()) {
            continue;
        }
        let pattern = x.to_f32().to_bits();
        assert_eq!(bf16::from_short_pattern(pattern), x);
        assert_eq!(f16::from_short_pattern(pattern), f16::from_f32(x.to_f32()));
    }
    assert_eq!(
        bf16::from_short_pattern(NAN).to_bits(),
        bf16::from_f32(f32::NAN).to_bits()
    );
}

/// For every upper half of a pattern: the numbers, the ties, and the neighbours of both.
#[test]
fn halves_as_the_crate_half_rounds_them() {
    let ends = [
        0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff,
    ];
    for upper in 0..=0xffff_u32 {
        for lower in ends {
            let x = f32::from_bits(upper << 16 | lower);
            if x.is_nan() {
                continue;
            }
            let got = (
                bf16::from_pattern(x.to_bits()),
                f16::from_pattern(x.to_bits()),
            );
            assert_eq!(got.0.to_bits(), bf16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(got.1.to_bits(), f16::from_f32(x).to_bits(), "{x:e}");
        }
    }
    assert_eq!(
        bf16::from_pattern(NAN).to_bits(),
        bf16::from_f32(f32::NAN).to_bits()
    );
    assert_eq!(
        f16::from_pattern(NAN).to_bits(),
        f16::from_f32(f32::NAN).to_bits()
    );
}
