//! The element formats with names.

use super::table::{Table, Tables};
use super::{ElementFormat, SpecialCodes};

impl ElementFormat {
    /// `fp8_e5m2`: 5 exponent bits, 2 mantissa bits, with Inf and NaN. Max 57344.
    pub const FP8_E5M2: Self = Self::of_float(5, 2, 15, SpecialCodes::Ieee);
    /// `fp8_e4m3`: 4 exponent bits, 3 mantissa bits, one NaN code for each sign, no Inf. Max 448.
    pub const FP8_E4M3: Self = Self::of_float(4, 3, 7, SpecialCodes::Nan);
    /// `fp6_e3m2`: 3 exponent bits, 2 mantissa bits, every code a number. Max 28.
    pub const FP6_E3M2: Self = Self::of_float(3, 2, 3, SpecialCodes::None);
    /// `fp6_e2m3`: 2 exponent bits, 3 mantissa bits, every code a number. Max 7.5.
    pub const FP6_E2M3: Self = Self::of_float(2, 3, 1, SpecialCodes::None);
    /// `fp4_e2m1` (alias `fp4`): 2 exponent bits, 1 mantissa bit, every code a number. Max 6.
    pub const FP4_E2M1: Self = Self::of_float(2, 1, 1, SpecialCodes::None);
    /// `fp4_e1m2` (alias `e1m2`): 1 exponent bit, 2 mantissa bits, every code a number: multiples of 1/4 up to 7/4.
    pub const E1M2: Self = Self::of_float(1, 2, 1, SpecialCodes::None);
    /// `int8`: 6 fraction bits. Max 127/64.
    pub const INT8: Self = Self::of_fixed(8, 6);
    /// `int4`: 2 fraction bits. Max 7/4.
    pub const INT4: Self = Self::of_fixed(4, 2);
    /// `int2`: no fraction bits. Max 1.
    pub const INT2: Self = Self::of_fixed(2, 0);
    /// `float16` (alias `fp16`): IEEE binary16. Max 65504.
    pub const FLOAT16: Self = Self::of_float(5, 10, 15, SpecialCodes::Ieee);
    /// `bfloat16` (alias `bf16`): the upper half of an IEEE binary32. Max 2^127 · (2 − 2^−7).
    pub const BFLOAT16: Self = Self::of_float(8, 7, 127, SpecialCodes::Ieee);

    /// `table(nf4)`: the sixteen numbers of QLoRA's NF4 (arXiv 2305.14314), which are quantiles of the normal distribution, by the codes
    /// of bitsandbytes.
    pub const NF4: Self = Self::of_tables(Tables(&NF4));
    /// `table(if4)`: FP4 E2M1 or, multiples of 6/7 up to 6, as a 4-bit integer is (arXiv 2603.28765). The codes are
    /// a sign above a magnitude.
    pub const IF4: Self = Self::of_tables(Tables(&IF4));
    /// `table(razer)`: FP4 E2M1 whose code of −0 is 5 or −5 (arXiv 2501.04052).
    pub const RAZER: Self = Self::of_tables(Tables(&RAZER));

    pub(super) const TABLES: [(&'static str, Self); 3] = [
        ("nf4", Self::NF4),
        ("if4", Self::IF4),
        ("razer", Self::RAZER),
    ];

    /// The names that `table(…)` understands.
    pub const TABLE_NAMES: [&'static str; Self::TABLES.len()] = {
        let mut names = [""; Self::TABLES.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::TABLES[i].0;
            i += 1;
        }
        names
    };

    /// The named formats: name, alias if there is one, format. The formats of OCP MX v1.0 come first. `int4`, `int2`,
    /// `float16` and `bfloat16` are additions of the reference emulation library.
    #[rustfmt::skip] // one row per format
    pub(super) const ROWS: [(&'static str, &'static str, Self); 23] = {
        use SpecialCodes::{Fnuz, Ieee, None};
        [
            ("fp8_e5m2", "e5m2", Self::FP8_E5M2),
            ("fp8_e4m3", "e4m3", Self::FP8_E4M3),
            ("fp6_e3m2", "e3m2", Self::FP6_E3M2),
            ("fp6_e2m3", "e2m3", Self::FP6_E2M3),
            ("fp4_e2m1", "e2m1", Self::FP4_E2M1),
            ("int8", "", Self::INT8),
            ("int4", "", Self::INT4),
            ("int2", "", Self::INT2),
            ("float16", "fp16", Self::FLOAT16),
            ("bfloat16", "bf16", Self::BFLOAT16),
            ("fp8_e3m4", "e3m4", Self::of_float(3, 4, 3, Ieee)),
            ("fp8_e2m5", "e2m5", Self::of_float(2, 5, 1, None)),
            ("fp8_e4m3fnuz", "e4m3fnuz", Self::of_float(4, 3, 8, Fnuz)),
            ("fp8_e4m3b11fnuz", "e4m3b11fnuz", Self::of_float(4, 3, 11, Fnuz)),
            ("fp8_e5m2fnuz", "e5m2fnuz", Self::of_float(5, 2, 16, Fnuz)),
            ("fp5_e3m1", "e3m1", Self::of_float(3, 1, 3, None)),
            ("fp5_e2m2", "e2m2", Self::of_float(2, 2, 1, None)),
            ("fp4_e3m0", "e3m0", Self::of_float(3, 0, 3, None)),
            ("fp4_e1m2", "e1m2", Self::E1M2),
            ("fp3_e2m0", "e2m0", Self::of_float(2, 0, 1, None)),
            ("int6", "", Self::of_fixed(6, 4)),
            ("int5", "", Self::of_fixed(5, 3)),
            ("int3", "", Self::of_fixed(3, 1)),
        ]
    };

    /// The formats with a name.
    pub const NAMED: [Self; Self::ROWS.len()] = {
        let mut formats = [Self::INT2; Self::ROWS.len()];
        let mut i = 0;
        while i < formats.len() {
            formats[i] = Self::ROWS[i].2;
            i += 1;
        }
        formats
    };

    /// Their names.
    pub const NAMES: [&'static str; Self::ROWS.len()] = {
        let mut names = [""; Self::ROWS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::ROWS[i].0;
            i += 1;
        }
        names
    };
}

/// The table of numbers that are right.
const fn table(numbers: &[f32]) -> Table {
    match Table::new(numbers) {
        Ok(table) => table,
        Err(_) => panic!("all tables with a name are tables"),
    }
}

#[rustfmt::skip] // by rows
const NF4: &[Table] = &[table(&[
    -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
    0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
])];

/// The magnitudes of FP4 E2M1, and their negatives, with this one for −0.
#[rustfmt::skip] // by rows
const fn fp4(negative_zero: f32) -> Table {
    table(&[
        0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0,
        negative_zero, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
    ])
}

const IF4: &[Table] = &[fp4(-0.0), {
    let mut numbers = [0.0; 16];
    let mut i = 0;
    while i < 8 {
        numbers[i] = i as f32 * 6.0 / 7.0;
        numbers[8 + i] = -numbers[i];
        i += 1;
    }
    table(&numbers)
}];

const RAZER: &[Table] = &[fp4(5.0), fp4(-5.0)];
