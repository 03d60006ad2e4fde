//! Blocks against the numbers that microxcaling computed.

use microscaling::{BlockFormat, Rounding, ScaleFormat, SharedExpMethod, Subnormals};
use microscaling_vectors::{BlockSet, ElementRule, InputType, VectorSet};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::Path;

fn floats(tensors: &SafeTensors<'_>, name: &str) -> (Vec<f32>, Vec<usize>) {
    let view = tensors.tensor(name).unwrap();
    let words = view.data().as_chunks().0.iter();
    (
        words.map(|word| f32::from_le_bytes(*word)).collect(),
        view.shape().to_vec(),
    )
}

/// The format of a case, if its blocks lie along the last axis and its rounding draws no random numbers.
fn format_of(case: &Value, rank: usize) -> Option<(BlockFormat, Rounding)> {
    let text = |field: &str| case[field].as_str().unwrap();
    let number = |field: &str| case[field].as_i64().unwrap();
    let axis = number("axis");
    let rounding: Rounding = text("round").parse().unwrap();
    let shared: SharedExpMethod = text("shared_exp_method").parse().unwrap();
    let is_last = axis == -1 || axis == rank as i64 - 1;
    if !is_last || number("block_size") == 0 || shared != SharedExpMethod::Max {
        return None;
    }
    let subnormals = match case["flush_fp32_subnorms"].as_bool().unwrap() {
        true => Subnormals::FlushBlocks,
        false => Subnormals::Kept,
    };
    let format = BlockFormat {
        scale: ScaleFormat::exponent(number("scale_bits") as u32).unwrap(),
        subnormals,
        ..BlockFormat::mx(
            text("elem_format").parse().unwrap(),
            number("block_size") as usize,
        )
    };
    (rounding != Rounding::Stochastic).then_some((format, rounding))
}

/// The library computes the set's own rule. A model computes the rules that the library does not have. The second run asks for such a
/// rule, which loses the sign of zero, so the model is compared with the same numbers.
#[test]
fn blocks_are_those_of_microxcaling() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../microscaling/tests/data/mx_quantize.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let cases: Vec<Value> =
        serde_json::from_str(&metadata.metadata().as_ref().unwrap()["cases"]).unwrap();
    let mut compared = [0, 0];
    for case in &cases {
        let (input, shape) = floats(&tensors, &format!("in/{}", case["input"].as_str().unwrap()));
        let (expected, _) = floats(&tensors, &format!("out/{}", case["id"]));
        let Some((format, rounding)) = format_of(case, shape.len()) else {
            continue;
        };
        // The library has no rule that loses the sign of zero, so the model computes it.
        for (i, lose_negative_zero) in [false, true].into_iter().enumerate() {
            let rule = ElementRule {
                rounding: rounding.to_string().parse().unwrap(),
                lose_negative_zero,
                ..ElementRule::default()
            };
            let set = BlockSet::new(format, InputType::Float32, rule, true, 0, Some(1)).unwrap();
            let size = format.block_size;
            let row = shape[shape.len() - 1];
            let blocks = |x: &[f32]| -> Vec<Vec<f32>> {
                let rows = x.chunks(row);
                rows.flat_map(|row| row.chunks(size).map(<[f32]>::to_vec))
                    .collect()
            };
            for (x, expected) in blocks(&input).iter().zip(blocks(&expected)) {
                let mut words = vec![x.len() as u64];
                words.extend(x.iter().map(|x| u64::from(x.to_bits())));
                words.resize(1 + size, 0);
                let mut outputs = Vec::new();
                set.outputs(&words, &[], &mut outputs);
                for (at, expected) in expected.iter().enumerate() {
                    let got = f32::from_bits(outputs[1 + size + at] as u32);
                    let same = got == *expected || (got.is_nan() && expected.is_nan());
                    assert!(
                        same,
                        "{case} {lose_negative_zero}: {:e} gives {got:e}",
                        x[at]
                    );
                    compared[i] += 1;
                }
            }
        }
    }
    assert!(compared.iter().all(|count| *count > 10_000), "{compared:?}");
}
