//! Packed tensors: every code of every element format, with every scale.

use crate::float_state::ieee;
use crate::oracle;
use crate::packed::{assert_decodes_to, encode};
use microscaling::{BlockFormat, ElementFormat, Rounder, ScaleMode};

/// Every scale with every element code: a block whose largest element is the format's largest gets the codes of its
/// values.
#[test]
fn every_code_of_every_element_and_scale() {
    for element in ElementFormat::NAMED
        .into_iter()
        .filter(|element| element.bits() <= 8)
    {
        let codes: Vec<u32> = (0..1 << element.bits())
            .filter(|code| element.decode(*code).abs() <= element.max())
            .collect();
        let format = BlockFormat::mx(element, 0);
        for scale in -127..=127 - element.emax() {
            let value = |code: &u32| {
                ieee(|| (f64::from(element.decode(*code)) * oracle::pow2(scale)) as f32)
            };
            let data: Vec<f32> = codes.iter().map(value).collect();
            let packed = encode(format, &data, &[data.len()], 0);
            assert_eq!(packed.scales(), [(scale + 127) as u8]);
            let mut stored = vec![0; packed.elements().len()];
            for (i, code) in codes.iter().enumerate() {
                for bit in 0..element.bits() as usize {
                    let at = i * element.bits() as usize + bit;
                    stored[at / 8] |= ((code >> bit & 1) as u8) << (at % 8);
                }
            }
            assert_eq!(packed.elements(), stored, "{element} 2^{scale}");
            assert_eq!(packed.view().codes(), codes, "{element} 2^{scale}");
            // The bits above a code do not belong to the code.
            let next = |at: usize| codes[(at + 1) % codes.len()];
            let turned = packed.clone().map_codes(|at, code| {
                assert_eq!(code, codes[at]);
                next(at) | 1 << element.bits()
            });
            let expected: Vec<u32> = (0..codes.len()).map(next).collect();
            assert_eq!(turned.view().codes(), expected, "{element} 2^{scale}");
            assert_decodes_to(&packed, &data, &(element, scale));
        }
    }
}

/// Every code of the two-level formats: exponent, shift and magnitude.
#[test]
fn every_code_of_the_fixed_point_formats() {
    for name in ["mx4", "mx6", "mx9", "bfp16", "bfp(bit_width=11,block=3)"] {
        let format: BlockFormat = name.parse().unwrap();
        let bits = format.element_bits();
        let shifts = if name.starts_with("mx") { 2 } else { 1 };
        let block = format.group_size();
        for exponent in 1..=254_u8 {
            for shift in 0..shifts {
                // Normal numbers only: subnormal ones count as zero in some of the formats.
                if i32::from(exponent) - shift - bits as i32 <= 1 {
                    continue;
                }
                let step = i32::from(exponent) - 127 - shift + 2 - bits as i32;
                let value = |code: u32| {
                    let magnitude = f64::from(code & ((1 << (bits - 1)) - 1)) * oracle::pow2(step);
                    (if code >> (bits - 1) == 1 {
                        -magnitude
                    } else {
                        magnitude
                    }) as f32
                };
                for code in 0..1 << bits {
                    // The first two say the exponent, the next two the shift.
                    let top = (1 << (bits - 1)) - 1;
                    let mut codes = vec![top; block];
                    codes[block - 1] = code;
                    let mut data: Vec<f32> = codes.iter().map(|code| value(*code)).collect();
                    if shift == 1 {
                        data[0] *= 2.0;
                        data[1] *= 2.0;
                    }
                    let packed = encode(format, &data, &[block], 0);
                    assert_eq!(packed.scales()[0], exponent);
                    if name.starts_with("mx") {
                        assert_eq!(packed.scales()[1], [0, 0xfe][shift as usize]);
                    }
                    let mut stored = vec![0; packed.elements().len()];
                    for (i, code) in codes.iter().enumerate() {
                        for bit in 0..bits as usize {
                            let at = i * bits as usize + bit;
                            stored[at / 8] |= ((code >> bit & 1) as u8) << (at % 8);
                        }
                    }
                    assert_eq!(
                        packed.elements(),
                        stored,
                        "{name} {exponent} {shift} {code:x}"
                    );
                    assert_decodes_to(&packed, &data, &(name, exponent, shift, code));
                }
            }
        }
    }
}

/// Every scale of NVFP4 with every element code.
#[test]
fn every_code_of_nvfp4() {
    let format = BlockFormat::nvfp4(false);
    let codes: Vec<u8> = (0..8).map(|i| 2 * i + ((2 * i + 1) << 4)).collect();
    for scale in 0x08..=0x7e_u8 {
        let c = ElementFormat::FP8_E4M3.decode(u32::from(scale));
        let data: Vec<f32> = (0..16)
            .map(|code| ElementFormat::FP4_E2M1.decode(code) * c)
            .collect();
        let packed = encode(format, &data, &[16], 0);
        assert_eq!(
            (packed.scales(), packed.elements()),
            (&[scale][..], &codes[..])
        );
        assert_decodes_to(&packed, &data, &scale);
    }
}

/// In ceil-like modes an element near the top of float32 would be 2^128: it has the code of the largest number below.
#[test]
fn no_code_beyond_float32() {
    for scale_mode in ScaleMode::POWERS {
        for element in ElementFormat::NAMED {
            let format = BlockFormat {
                scale_mode,
                ..BlockFormat::mx(element, 0)
            };
            if format.validate().is_err() {
                assert_eq!(scale_mode, ScaleMode::Rms);
                continue;
            }
            let data = [f32::MAX, -f32::MAX, 1e38];
            let mut expected = data;
            format
                .quantize(&mut expected, &[3], 0, Rounder::NearestEven)
                .unwrap();
            assert_decodes_to(&encode(format, &data, &[3], 0), &expected, &format);
        }
    }
}
