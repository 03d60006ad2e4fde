//! Golden files: their content, and comparisons with it.

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::path::Path;

/// A golden file: tensors, and a list of cases in its metadata.
pub(crate) struct Golden {
    bytes: Vec<u8>,
}

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { bytes }
    }

    pub(crate) fn cases<T: for<'de> Deserialize<'de>>(&self) -> Vec<T> {
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).unwrap();
        let json = &metadata.metadata().as_ref().unwrap()["cases"];
        serde_json::from_str(json).unwrap()
    }

    pub(crate) fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }
}

pub(crate) fn floats(tensors: &SafeTensors<'_>, name: &str) -> (Vec<f32>, Vec<usize>) {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::F32);
    let words = view.data().chunks_exact(4);
    let floats = words
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    (floats, view.shape().to_vec())
}

pub(crate) fn bytes(tensors: &SafeTensors<'_>, name: &str) -> Vec<u8> {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::U8);
    view.data().to_vec()
}

/// The same bits, except the sign of zero and the payload of a NaN.
pub(crate) fn same(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

pub(crate) fn assert_same(
    got: &[f32],
    expected: &[f32],
    input: &[f32],
    case: &dyn std::fmt::Debug,
) {
    assert_eq!(got.len(), expected.len());
    for (i, ((got, expected), x)) in got.iter().zip(expected).zip(input).enumerate() {
        assert!(
            same(*got, *expected),
            "{case:?}, element {i}: {x:e} became {got:e}, not {expected:e}"
        );
    }
}

pub(crate) fn axis(axis: isize, rank: usize) -> usize {
    if axis < 0 {
        rank - axis.unsigned_abs()
    } else {
        axis as usize
    }
}
