//! Tensors of a backend, numbers of all kinds, exact comparisons.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorData, read_sync};
use burn_mx::{BlockFormat, FloatFormat, OperandQuantization, RandomStream, Rounding};
use burn_mx_kernels::internal::KernelOp;

/// Whether tests of many kernels run all of them: on processors, and where `MX_EVERY_KERNEL` is set. Compilers of devices take a second for
/// each.
pub(crate) fn every_kernel() -> bool {
    cfg!(any(
        test_backend = "flex",
        test_backend = "ndarray",
        test_backend = "tch"
    )) || std::env::var_os("MX_EVERY_KERNEL").is_some()
}

/// A tensor on the backend's default device.
pub(crate) fn tensor<B: Backend>(values: &[f32], shape: &[usize]) -> FloatTensor<B> {
    let data = TensorData::new(values.to_vec(), shape.to_vec());
    B::float_from_data(data, &Default::default())
}

/// The values in row-major order.
pub(crate) fn values<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = read_sync(B::float_into_data(tensor)).expect("the device computes");
    data.into_vec().expect("the tensor holds f32")
}

/// Rounds to an elementwise format, then quantizes in blocks along an axis.
pub(crate) fn round_and_quantize(
    elementwise: (FloatFormat, Rounding),
    axis: usize,
    blocks: (BlockFormat, Rounding),
) -> KernelOp {
    let quantization = OperandQuantization {
        elementwise: Some(elementwise),
        blocks: Some(blocks),
        ..OperandQuantization::default()
    };
    KernelOp::Quantize { axis, quantization }
}

/// Masks a gradient where quantizing in blocks along an axis clips.
pub(crate) fn mask_clipped(axis: usize, format: BlockFormat) -> KernelOp {
    let quantization = OperandQuantization {
        blocks: Some((format, Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    KernelOp::MaskClipped {
        axis,
        quantization,
        transformed: true,
    }
}

/// Runs of about forty numbers of one kind: any pattern, subnormals, numbers around the smallest normal one, huge ones with
/// few bits, and ordinary ones.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 7);
    let number = |i| {
        let word = stream.draw(i);
        let kind = stream.draw(1 << 33 | (i / 40));
        match kind % 8 {
            0 => f32::from_bits(word),
            1 => f32::from_bits(word & 0x80ff_ffff),
            2 => f32::from_bits(word & 0x8000_ffff),
            3 => f32::from_bits(word & 0x9fff_f000 | 0x7000_0000),
            _ => word as i32 as f32 * 2.0_f32.powi(-31 - (kind >> 8) as i32 % 6),
        }
    };
    (0..length as u64).map(number).collect()
}

/// How many numbers differ, and the first of them; any NaN equals any other.
pub(crate) fn differences(got: &[f32], expected: &[f32]) -> Option<String> {
    assert_eq!(got.len(), expected.len(), "number of values");
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let wrong: Vec<_> = (0..got.len())
        .filter(|&i| !same(got[i], expected[i]))
        .collect();
    let &first = wrong.first()?;
    let (got, expected) = (got[first], expected[first]);
    Some(format!(
        "{} differ, the first at {first}: {got:e} ({:#x}), expected {expected:e} ({:#x})",
        wrong.len(),
        got.to_bits(),
        expected.to_bits()
    ))
}

#[track_caller]
pub(crate) fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    if let Some(differences) = differences(got, expected) {
        panic!("{what}: {differences}");
    }
}

/// Whole numbers from -4 to 4: sums of their products are exact, in any order.
#[allow(dead_code, reason = "used by some")]
pub(crate) fn whole_numbers(shape: &[usize], seed: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 9) as f32 - 4.0;
    (0..shape.iter().product()).map(number).collect()
}
