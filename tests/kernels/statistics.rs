//! The errors of quantization, summed up on the tensor's device: the figures of the slices. Sums are float64 sums in the same order in host
//! memory, and float32 sums on devices.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_mx::MxKernels;
use burn_mx::{BlockFormat, FloatFormat, OperandQuantization, RandomStream, Rounding, Statistics};
use burn_mx_kernels::internal::TensorStatistics;
use microscaling::Comparison;

use super::support::*;
use crate::backend::TestBackend;

fn formats() -> Vec<BlockFormat> {
    let formats = [
        "mxfp8_e4m3",
        "mxfp8_rceil",
        "mxint8",
        "mx6",
        "bfp16",
        "nvfp4",
        "mx(element=fp4_e2m1,block_size=0)",
        "mx(element=fp4_e2m1,scale_mode=rms,block_size=7)",
        "nvfp4(tensor_scale=true,four_over_six=true)",
        "mx(element=fp6_e2m3,block_size=8,square=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "hif4",
        "mx(element=fp4_e2m1,block_size=24,sign_scales=true)",
        "block(element=e2m1,scale=ue4m3,tensor_scale=true,sign_scales=true)",
        "nf4",
        "if4",
        "block(element=table(0 1 2.5),scale=ue5m3,block_size=16)",
    ];
    let parse = |text: &str| text.parse().expect("the format is sound");
    formats.into_iter().map(parse).collect()
}

/// Whether the test's backend sums up on a device.
const ON_DEVICE: bool = !cfg!(any(
    test_backend = "flex",
    test_backend = "ndarray",
    test_backend = "tch"
));

/// How far float32 sums of a device may be off; a thousandth is promised.
const TOLERANCE: f64 = 1e-5;

/// All figures are equal, but for the sums of devices.
pub(super) fn assert_figures(seen: &Statistics, expected: &Statistics, what: &str) {
    if !ON_DEVICE {
        assert_eq!(seen, expected, "{what}");
        return;
    }
    let counts = |s: &Statistics| {
        let of_elements = [s.elements(), s.non_finite(), s.overflow()];
        (of_elements, s.blocks(), s.underflow(), s.saturated())
    };
    assert_eq!(counts(seen), counts(expected), "{what}: counts");
    let extremes = |s: &Statistics| (s.amax(), s.smallest());
    assert_eq!(extremes(seen), extremes(expected), "{what}: extremes");
    let scales = |s: &Statistics| {
        let histogram: Vec<_> = s.scales().collect();
        (histogram, s.scale_log2(), s.scale_range())
    };
    assert_eq!(scales(seen), scales(expected), "{what}: scales");

    let near = |seen: f64, expected: f64, size: f64| {
        seen == expected || (seen - expected).abs() <= TOLERANCE * size
    };
    let sums = |s: &Statistics| [s.power(), s.error()];
    for (seen, expected) in sums(seen).into_iter().zip(sums(expected)) {
        assert!(near(seen, expected, expected), "{what}: {seen}, {expected}");
    }
    let both_near = |seen: Option<f64>, expected: Option<f64>| match (seen, expected) {
        (Some(seen), Some(expected)) => near(seen, expected, 1.0),
        _ => seen == expected,
    };
    let (slope, cosine) = (expected.slope(), expected.cosine());
    assert!(both_near(seen.slope(), slope), "{what}: slope");
    // The ratio of both is the quantized tensor's norm over the original's. Too small a norm counts as 0.
    let is_lost =
        matches!((slope, cosine), (Some(a), Some(b)) if a.abs() < b.abs() * 2f64.powi(-60));
    assert!(
        is_lost || both_near(seen.cosine(), cosine),
        "{what}: cosine"
    );
    // A factor of 1 + 1e-5 is 4.35e-5 dB.
    let of_blocks = |s: &Statistics| s.block_sqnr([0.0, 0.25, 0.5, 0.75, 1.0]);
    let is_near = match (of_blocks(seen), of_blocks(expected)) {
        (Some(seen), Some(expected)) => {
            (seen.iter().zip(expected)).all(|(&seen, expected)| near(seen, expected, 4.35))
        }
        (seen, expected) => seen == expected,
    };
    assert!(is_near, "{what}: SQNR of blocks");
}

/// The figures, if the backend's own kernels found them.
fn summed_up(statistics: TensorStatistics<TestBackend>, what: &str) -> Statistics {
    let on_device = matches!(statistics, TensorStatistics::OnDevice(_));
    assert_eq!(on_device, ON_DEVICE, "{what}: where it was summed up");
    statistics.read()
}

fn assert_seen(x: &[f32], shape: &[usize], axis: usize, format: Option<BlockFormat>) {
    let even = Rounding::NearestEven.with(RandomStream::new(0, 0));
    let what = format!("{format:?}, {shape:?} along {axis}");
    let mut q = x.to_vec();
    match format {
        Some(format) => format
            .quantize(&mut q, shape, axis, even)
            .expect("the format is sound"),
        None => FloatFormat::bfloat(12)
            .expect("12 bits are allowed")
            .round_slice(&mut q, even),
    }
    let comparison = Comparison {
        original: x,
        quantized: &q,
        shape,
        axis,
        format,
    };
    let expected = Statistics::of(comparison).expect("all fits");
    let before = tensor::<TestBackend>(x, shape);
    let after = tensor::<TestBackend>(&q, shape);
    let seen = TestBackend::kernels().quantization_statistics([&before, &after], axis, format);
    assert_figures(&summed_up(seen, &what), &expected, &what);

    // As parts of larger tensors, with their axes turned.
    let turned = |values: &[f32]| {
        let turned = TestBackend::float_swap_dims(tensor::<TestBackend>(values, shape), 0, 1);
        let shape = turned.shape();
        let turned = tensor::<TestBackend>(&self::values::<TestBackend>(turned), &shape);
        TestBackend::float_swap_dims(turned, 0, 1)
    };
    let (before, after) = (turned(x), turned(&q));
    let seen = TestBackend::kernels().quantization_statistics([&before, &after], axis, format);
    assert_figures(
        &summed_up(seen, &what),
        &expected,
        &format!("{what}, turned"),
    );
}

#[test]
fn of_every_kind_of_format() {
    for format in formats() {
        for (shape, axis) in [([5, 70], 1), ([70, 5], 0), ([40, 33], 0)] {
            assert_seen(&noise(shape[0] * shape[1], 11), &shape, axis, Some(format));
        }
    }
}

/// Several parts: of rows, of columns.
#[test]
fn of_large_tensors() {
    let shape = [300, 130];
    let x = noise(shape[0] * shape[1], 12);
    for format in ["mxfp4", "mx(element=int8,block_size=0)", "mx9"] {
        let format = format.parse().expect("the format is sound");
        for axis in [0, 1] {
            assert_seen(&x, &shape, axis, Some(format));
        }
    }
    assert_seen(&x, &shape, 0, None);
    let square = "mx(element=fp8_e4m3,block_size=32,square=true)";
    let square = square.parse().expect("the format is sound");
    assert_seen(&noise(40 * 40 * 20, 13), &[40, 800], 1, Some(square));
    assert_seen(&noise(40 * 40 * 20, 13), &[40, 40, 20], 1, Some(square));
}

/// Sums whose terms differ by many binades, and blocks of zeros.
#[test]
fn of_numbers_of_any_size() {
    let stream = RandomStream::new(14, 0);
    let shape = [64, 64];
    let number = |i: u64| match i % 640 {
        0..32 => 0.0,
        i => f32::from_bits(stream.draw(i) & 0x807f_ffff | (stream.draw(i + 1000) % 0xfe) << 23),
    };
    let x: Vec<f32> = (0..64 * 64).map(number).collect();
    for format in formats() {
        assert_seen(&x, &shape, 1, Some(format));
    }
    assert_seen(&x, &shape, 0, None);
    assert_seen(&vec![0.0; 64 * 64], &shape, 1, "mxfp4".parse().ok());
    assert_seen(&vec![1e-45; 64 * 64], &shape, 1, "nvfp4".parse().ok());
}

/// A tensor that is quantized only for its statistics.
#[test]
fn of_what_is_quantized_on_the_way() {
    let shape = [33, 70];
    let x = noise(33 * 70, 15);
    let elementwise = FloatFormat::bfloat(16).expect("16 bits are allowed");
    for format in formats() {
        let quantization = OperandQuantization {
            elementwise: Some((elementwise, Rounding::NearestEven)),
            blocks: Some((format, Rounding::NearestEven)),
            ..OperandQuantization::default()
        };
        let expected = Statistics::of_quantizing(&x, &shape, 1, quantization).expect("all fits");
        let tensor = tensor::<TestBackend>(&x, &shape);
        let seen = TestBackend::kernels().quantizing_statistics(&tensor, 1, quantization);
        let what = format!("{format} on the way");
        assert_figures(&summed_up(seen, &what), &expected, &what);
    }
}
