//! Quantization by the rules of other tools equals `Dialect::quantize`, for numbers of all kinds and any layout in memory.

use burn_mx::{BlockFormat, Dialect, MxKernels};
use burn_mx_kernels::internal::KernelOp;

use super::slices::for_each_layout;
use super::support::*;
use crate::backend::TestBackend;

fn assert_quantizes<B: MxKernels>(dialect: Dialect, format: BlockFormat) {
    for (shape, axis) in [(vec![5, 70], 1), (vec![70, 5], 0), (vec![3, 33, 9], 1)] {
        let mut x = noise(shape.iter().product(), 1);
        // A tensor scale is NaN beside one NaN.
        if format.tensor_scale {
            x.iter_mut()
                .for_each(|x| *x = if x.is_finite() { *x } else { 1.0 });
        }
        let mut expected = x.clone();
        (dialect.quantize(format, &mut expected, &shape, axis))
            .expect("the dialect has the format");
        for_each_layout::<B>(&x, &shape, |tensor, layout| {
            let op = KernelOp::Dialect {
                axis,
                dialect,
                format,
            };
            let got = B::kernel(op, [tensor]);
            let what = format!("{dialect} {format}, {layout} {shape:?}, axis {axis}");
            assert_same(&values::<B>(got), &expected, &what);
        });
    }
}

#[test]
fn every_dialect() {
    for dialect in Dialect::ALL {
        for name in dialect.formats() {
            assert_quantizes::<TestBackend>(dialect, name.parse().expect("it is a format"));
        }
    }
}

/// Tensors of like magnitudes, as a tensor scale takes them; zeros, NaN and Inf.
#[test]
fn tensor_scales() {
    for dialect in Dialect::ALL {
        let format: BlockFormat = "nvfp4(tensor_scale=true)".parse().expect("a format");
        if dialect.check(format).is_err() {
            continue;
        }
        for (exponent, special) in [
            (0, 0.5),
            (-100, 0.0),
            (60, 1.0),
            (-140, 0.0),
            (0, f32::NAN),
            (3, f32::INFINITY),
        ] {
            let mut x: Vec<f32> = (0..16 * 40)
                .map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 97.0 * 2.0_f32.powi(exponent))
                .collect();
            x[..16].fill(-0.0);
            x[20] = special;
            let mut expected = x.clone();
            (dialect.quantize(format, &mut expected, &[16, 40], 1))
                .expect("the dialect has the format");
            let op = KernelOp::Dialect {
                axis: 1,
                dialect,
                format,
            };
            let got = TestBackend::kernel(op, [tensor::<TestBackend>(&x, &[16, 40])]);
            let what = format!("{dialect}, 2^{exponent} and {special}");
            assert_same(&values::<TestBackend>(got), &expected, &what);
        }
    }
}
