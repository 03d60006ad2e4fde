//! Packing in tests.

use crate::float_state::ieee;
use crate::oracle::identical;
use microscaling::{BlockFormat, Packed, Rounder};

pub(crate) fn encode(format: BlockFormat, data: &[f32], shape: &[usize], axis: usize) -> Packed {
    Packed::encode(format, data, shape, axis, Rounder::NearestEven).unwrap()
}

fn is_integer(format: BlockFormat) -> bool {
    let text = format.to_string();
    // IF4's table alone has a −0, among the tables that tests pack.
    let none = ["int", "fixed", "fnuz", "table", "nf4", "razer"];
    none.iter().any(|name| text.contains(name)) && !text.contains("if4")
}

/// That decoding gives the same bits, but that integer elements have no −0, nor have FNUZ and some tables.
pub(crate) fn assert_decodes_to(packed: &Packed, expected: &[f32], context: &dyn std::fmt::Debug) {
    let decoded = packed.decode();
    // −0 becomes 0. A thread that flushes subnormals would take them for zeros.
    let expected: Vec<f32> = match is_integer(packed.format()) {
        true => ieee(|| {
            expected
                .iter()
                .map(|x| if *x == 0.0 { 0.0 } else { *x })
                .collect()
        }),
        false => expected.to_vec(),
    };
    assert_eq!(decoded.len(), expected.len());
    for (i, (got, expected)) in decoded.iter().zip(expected).enumerate() {
        assert!(
            identical(*got, expected),
            "{context:?}, {i}: {got:e}, not {expected:e}"
        );
    }
}
