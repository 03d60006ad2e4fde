//! Quantization, rounding and transforms equal the slice functions', for numbers of all kinds and any layout in memory.

use burn_backend::{Shape, Slice, TensorMetadata};
use burn_mx::MxKernels;
use burn_mx::{
    BlockFormat, ElementFormat, FloatFormat, OperandQuantization, RandomHadamard, RandomStream,
    Rounding, ScaleFormat, ScaleMode, SharedExpMethod, Signs, Subnormals,
};
use burn_mx_kernels::internal::KernelOp;

use super::support::*;
use crate::backend::TestBackend;

/// Every named format.
fn named() -> impl Iterator<Item = BlockFormat> {
    let names = "mxfp8_e4m3 mxfp8_e5m2 mxfp6_e3m2 mxfp6_e2m3 mxfp4 mxint8 mx4 mx6 mx9 bfp16 nvfp4";
    let parse = |name: &str| name.parse().expect("the name is known");
    names.split(' ').map(parse)
}

/// Every layout of a tensor with this shape and these values: dense, with its axes in another order, and as a part of a
/// larger tensor. Another owner of the tensor must not see a change.
pub(super) fn for_each_layout<B: MxKernels>(
    x: &[f32],
    shape: &[usize],
    check: impl Fn(burn_backend::tensor::FloatTensor<B>, &str),
) {
    let rank = shape.len();
    let dense = || tensor::<B>(x, shape);
    check(dense(), "dense");
    if rank > 1 {
        let turned = values::<B>(B::float_swap_dims(dense(), 0, rank - 1));
        let mut turned_shape = shape.to_vec();
        turned_shape.swap(0, rank - 1);
        let turned = tensor::<B>(&turned, &turned_shape);
        check(B::float_swap_dims(turned, 0, rank - 1), "permuted");
        let mut slices = vec![Slice::from(0..shape[0])];
        slices.extend(shape[1..].iter().map(|&length| Slice::from(0..length)));
        slices[rank - 1] = Slice::from(2..2 + shape[rank - 1]);
        let mut wide = shape.to_vec();
        wide[rank - 1] += 5;
        let wide = tensor::<B>(&vec![f32::MAX; wide.iter().product()], &wide);
        let wide = B::float_slice_assign(wide, &slices, dense());
        check(B::float_slice(wide, &slices), "a part");
    }
    let shared = dense();
    check(shared.clone(), "shared");
    assert_same(&values::<B>(shared), x, "what somebody else holds");
}

pub(super) fn assert_quantizes<B: MxKernels>(format: BlockFormat, rounding: Rounding) {
    for (shape, axis) in [(vec![5, 70], 1), (vec![70, 5], 0), (vec![3, 33, 9], 1)] {
        let x = noise(shape.iter().product(), 1);
        let stream = RandomStream::new(3, 4);
        let mut expected = x.clone();
        format
            .quantize(&mut expected, &shape, axis, rounding.with(stream))
            .expect("the format is sound");
        for_each_layout::<B>(&x, &shape, |tensor, layout| {
            let got = B::mx_quantize(tensor, axis, format, rounding, stream);
            assert_eq!(got.shape(), Shape::from(shape.clone()));
            let what = format!("{format}, {rounding}, {shape:?} along {axis}, {layout}");
            assert_same(&values::<B>(got), &expected, &what);
        });
    }
}

#[test]
fn blocks_of_every_named_format() {
    for format in named() {
        for rounding in Rounding::ALL {
            assert_quantizes::<TestBackend>(format, rounding);
        }
    }
}

#[test]
fn blocks_of_every_element_and_scale() {
    // The first ones are the reference's.
    for (i, element) in ElementFormat::NAMED.into_iter().enumerate() {
        let modes = if i < 10 {
            &ScaleMode::POWERS[..]
        } else {
            &ScaleMode::POWERS[..1]
        };
        for &scale_mode in modes {
            let format = BlockFormat {
                scale_mode,
                ..BlockFormat::mx(element, 16)
            };
            if scale_mode == ScaleMode::Rms && element != ElementFormat::FP4_E2M1 {
                continue;
            }
            assert_quantizes::<TestBackend>(format, Rounding::NearestEven);
        }
    }
}

#[test]
fn blocks_of_any_parameters() {
    let mx = BlockFormat::mx(ElementFormat::FP8_E4M3, 32);
    let formats: [BlockFormat; 7] = [
        BlockFormat {
            block_size: 0,
            ..mx
        },
        BlockFormat {
            scale: ScaleFormat::exponent(4).unwrap(),
            ..mx
        },
        BlockFormat {
            subnormals: Subnormals::FlushBlocks,
            ..mx
        },
        BlockFormat {
            shared_exp_method: SharedExpMethod::None,
            ..mx
        },
        BlockFormat::microexponent(14, 12, 4, 2).unwrap(),
        BlockFormat::bfp(20, 24).unwrap(),
        BlockFormat::nvfp4(true),
    ];
    for format in formats {
        for rounding in [Rounding::NearestAway, Rounding::Stochastic] {
            assert_quantizes::<TestBackend>(format, rounding);
        }
    }
}

#[test]
fn square_blocks() {
    for format in [
        "mx(element=fp8_e4m3,block_size=32,square=true)",
        "mx(element=fp4_e2m1,block_size=16,scale_mode=rceil,square=true)",
        "mx(element=int8,block_size=7,square=true)",
        "mx(element=fp6_e3m2,block_size=100,square=true)",
        "nvfp4(tensor_scale=false,square=true)",
        "nvfp4(tensor_scale=true,square=true)",
    ] {
        let format: BlockFormat = format.parse().expect("the format is sound");
        for rounding in Rounding::ALL {
            assert_quantizes::<TestBackend>(format, rounding);
        }
        // Several blocks along every axis, and axes beyond the two.
        for (shape, axis) in [
            (vec![70, 45], 0),
            (vec![70, 45], 1),
            (vec![3, 40, 37], 2),
            (vec![3, 40, 37], 1),
            (vec![40, 33, 3, 2], 1),
            (vec![40, 33, 3, 2], 0),
            (vec![300, 500], 1),
            (vec![2, 300, 250], 2),
            (vec![4, 6, 40], 2),
        ] {
            let mut x = noise(shape.iter().product(), 6);
            // So that blocks a little too long have other scales.
            for (i, rows) in x.chunks_mut(200).enumerate() {
                let size = 2.0_f32.powi(i as i32 * 3 % 13);
                rows.iter_mut().for_each(|x| *x *= size);
            }
            let stream = RandomStream::new(0, 0);
            let (mut expected, mut rounded) = (x.clone(), x.clone());
            let elementwise = FloatFormat::bfloat(16).expect("16 bits are allowed");
            elementwise.round_slice(&mut rounded, Rounding::NearestEven.with(stream));
            for data in [&mut expected, &mut rounded] {
                format
                    .quantize(data, &shape, axis, Rounding::NearestEven.with(stream))
                    .expect("the format is sound");
            }
            for_each_layout::<TestBackend>(&x, &shape, |tensor, layout| {
                let what = format!("{format}, {shape:?} along {axis}, {layout}");
                let clone = tensor.clone();
                let got =
                    TestBackend::mx_quantize(tensor, axis, format, Rounding::NearestEven, stream);
                assert_same(&values::<TestBackend>(got), &expected, &what);
                let first = (elementwise, Rounding::NearestEven);
                let op = round_and_quantize(first, axis, (format, Rounding::NearestEven));
                let got = TestBackend::kernel(op, [clone]);
                assert_same(&values::<TestBackend>(got), &rounded, &what);
            });
        }
    }
}

/// The formats that the literature's recipes add.
fn of_the_recipes() -> impl Iterator<Item = BlockFormat> {
    let formats = [
        "mx(element=fp4_e2m1,headroom=4/3)",
        "mx(element=fp8_e4m3,scale_mode=ceil,headroom=17/16)",
        "mx(element=int8,scale_mode=even,headroom=3/2)",
        "mx(element=int2,scale_mode=even,headroom=255/128)",
        "mx(element=fp6_e2m3,scale_mode=rceil,headroom=4/3)",
        "mx(element=fp4_e2m1,scale_bits=4,scale_mode=rceil,headroom=4/3)",
        "mx(element=fp4_e2m1,scale_mode=rms)",
        "mx(element=fp4_e2m1,scale_mode=rms,block_size=7,headroom=4/3)",
        "mx(element=fp4_e2m1,scale_mode=rms,block_size=0)",
        "mx(element=fp4_e2m1,scale_mode=rms,square=true)",
        "nvfp4(tensor_scale=false,headroom=17/16)",
        "nvfp4(tensor_scale=true,headroom=4/3)",
        "nvfp4(tensor_scale=false,four_over_six=true)",
        "nvfp4(tensor_scale=true,four_over_six=true)",
        "nvfp4(tensor_scale=true,headroom=17/16,four_over_six=true)",
        "nvfp4(tensor_scale=true,square=true,four_over_six=true)",
        "hif4",
        "mx(element=fp4_e2m1,scale_mode=even,sign_scales=true)",
        "block(element=e2m1,scale=ue5m2,sign_scales=true)",
        "nf4",
        "if4",
        "block(element=table(0 1 2.5/0 1 -3),scale=bfloat16,block_size=8)",
    ];
    let parse = |text: &str| text.parse().expect("the format is sound");
    formats.into_iter().map(parse)
}

#[test]
fn scales_of_the_recipes() {
    for format in of_the_recipes() {
        assert_quantizes::<TestBackend>(format, Rounding::NearestEven);
    }
    // Elements are rounded as they are under any other scale.
    for format in [
        "mx(element=fp4_e2m1,scale_mode=rms)",
        "nvfp4(tensor_scale=true,headroom=17/16,four_over_six=true)",
    ] {
        let format: BlockFormat = format.parse().expect("the format is sound");
        for rounding in Rounding::ALL {
            assert_quantizes::<TestBackend>(format, rounding);
        }
    }
}

/// Every size of numbers, also those whose errors and squares are not ordinary; blocks that a second look chooses for.
#[test]
fn scales_of_the_recipes_of_any_size() {
    let shape = [64, 32];
    let stream = RandomStream::new(8, 0);
    for format in of_the_recipes() {
        for exponent in [-149, -140, -130, -127, -110, -80, -20, 0, 60, 120, 126] {
            let number = |i: u64| {
                let uniform = f64::from(stream.draw(i)) / 2.0_f64.powi(31) - 1.0;
                (uniform * 2.0_f64.powi(exponent + (i % 5) as i32 - 2)) as f32
            };
            let x: Vec<f32> = (0..64 * 32)
                .map(number)
                .map(|x| x.clamp(-f32::MAX, f32::MAX))
                .collect();
            for axis in [0, 1] {
                let mut expected = x.clone();
                let rounder = Rounding::NearestEven.with(stream);
                format
                    .quantize(&mut expected, &shape, axis, rounder)
                    .expect("the format is sound");
                let got = tensor::<TestBackend>(&x, &shape);
                let got =
                    TestBackend::mx_quantize(got, axis, format, Rounding::NearestEven, stream);
                let what = format!("{format} along {axis}, 2^{exponent}");
                assert_same(&values::<TestBackend>(got), &expected, &what);
            }
        }
    }
}

/// Blocks that are too long for a device's sums.
#[test]
fn the_root_mean_square_of_long_blocks() {
    let x = noise(2 * 40_000, 9);
    let stream = RandomStream::new(0, 0);
    for format in [
        "mx(element=fp4_e2m1,scale_mode=rms,block_size=0)",
        "mx(element=fp4_e2m1,scale_mode=rms,block_size=16383)",
        "mx(element=fp4_e2m1,scale_mode=rms,block_size=40000)",
    ] {
        let format: BlockFormat = format.parse().expect("the format is sound");
        let mut expected = x.clone();
        let shape = [2, 40_000];
        let rounder = Rounding::NearestEven.with(stream);
        format
            .quantize(&mut expected, &shape, 1, rounder)
            .expect("the format is sound");
        let got = tensor::<TestBackend>(&x, &shape);
        let got = TestBackend::mx_quantize(got, 1, format, Rounding::NearestEven, stream);
        assert_same(&values::<TestBackend>(got), &expected, &format.to_string());
    }
}

/// The mask of a gradient, of both tensors as they may lie.
#[test]
fn masks_of_what_is_clipped() {
    let shapes = [(vec![70, 5], 0), (vec![5, 70], 1), (vec![3, 33, 9], 1)];
    // Where blocks lie does not depend on their scales.
    let of_the_recipes = of_the_recipes().map(|format| (format, &shapes[..1]));
    for (format, shapes) in of_the_recipes.chain(named().map(|format| (format, &shapes[..]))) {
        for (shape, axis) in shapes {
            let axis = *axis;
            let x = noise(shape.iter().product(), 10);
            let gradient = noise(x.len(), 11);
            let mut expected = gradient.clone();
            format
                .mask_clipped(&x, shape, axis, &mut expected)
                .expect("the format is sound");
            for_each_layout::<TestBackend>(&x, shape, |x, layout| {
                let what = format!("{format}, {shape:?} along {axis}, values {layout}");
                let dense = tensor::<TestBackend>(&gradient, shape);
                let got = TestBackend::kernel(mask_clipped(axis, format), [dense, x]);
                assert_same(&values::<TestBackend>(got), &expected, &what);
            });
            for_each_layout::<TestBackend>(&gradient, shape, |gradient, layout| {
                let what = format!("{format}, {shape:?} along {axis}, gradient {layout}");
                let x = tensor::<TestBackend>(&x, shape);
                let got = TestBackend::kernel(mask_clipped(axis, format), [gradient, x]);
                assert_same(&values::<TestBackend>(got), &expected, &what);
            });
        }
    }
}

/// Tensors all of whose numbers are so small that a tensor scale, its inverse or its products are not ordinary.
#[test]
fn a_tensor_scale_of_any_size() {
    let format = BlockFormat::nvfp4(true);
    for exponent in [-149, -140, -130, -120, -110, -100, -80, 0, 100, 125] {
        let scale = f32::from_bits(if exponent < -126 {
            1 << (exponent + 149)
        } else {
            ((exponent + 127) as u32) << 23
        });
        let x: Vec<f32> = (0..96).map(|i| (i % 7) as f32 * 0.3 * scale).collect();
        let mut expected = x.clone();
        let stream = RandomStream::new(0, 0);
        format
            .quantize(
                &mut expected,
                &[3, 32],
                1,
                Rounding::NearestEven.with(stream),
            )
            .expect("the format is sound");
        let got = tensor::<TestBackend>(&x, &[3, 32]);
        let got = TestBackend::mx_quantize(got, 1, format, Rounding::NearestEven, stream);
        assert_same(
            &values::<TestBackend>(got),
            &expected,
            &format!("2^{exponent}"),
        );
    }
}

#[test]
fn every_bfloat16_number_in_blocks() {
    let x: Vec<f32> = (0..=u16::MAX)
        .map(|bits| f32::from_bits(u32::from(bits) << 16))
        .collect();
    for format in named() {
        for (shape, axis) in [([2048, 32], 1), ([32, 2048], 0)] {
            let stream = RandomStream::new(0, 0);
            let mut expected = x.clone();
            format
                .quantize(
                    &mut expected,
                    &shape,
                    axis,
                    Rounding::NearestEven.with(stream),
                )
                .expect("the format is sound");
            let got = tensor::<TestBackend>(&x, &shape);
            let got = TestBackend::mx_quantize(got, axis, format, Rounding::NearestEven, stream);
            assert_same(&values::<TestBackend>(got), &expected, &format.to_string());
        }
    }
}

#[test]
fn rounded_and_quantized_at_once() {
    let shape = [40, 70];
    let x = noise(40 * 70, 5);
    let elementwise = FloatFormat::bfloat(16).expect("16 bits are allowed");
    for format in ["mxfp8_e4m3", "mx6", "nvfp4"] {
        let format: BlockFormat = format.parse().expect("the name is known");
        let mut expected = x.clone();
        let stream = RandomStream::new(0, 0);
        elementwise.round_slice(&mut expected, Rounding::NearestEven.with(stream));
        format
            .quantize(&mut expected, &shape, 0, Rounding::NearestAway.with(stream))
            .expect("the format is sound");
        let first = (elementwise, Rounding::NearestEven);
        let op = round_and_quantize(first, 0, (format, Rounding::NearestAway));
        let got = TestBackend::kernel(op, [tensor::<TestBackend>(&x, &shape)]);
        assert_same(&values::<TestBackend>(got), &expected, &format.to_string());
    }
}

#[test]
fn elementwise_formats() {
    let mut x = noise(1 << 12, 2);
    x.extend((0..=u16::MAX).map(|bits| f32::from_bits(u32::from(bits) << 16 | 0x8000)));
    let shape = [x.len() / 64, 64];
    for format in [
        FloatFormat::bfloat(16),
        FloatFormat::bfloat(10),
        FloatFormat::bfloat(31),
        FloatFormat::bfloat(32),
        FloatFormat::fp(16),
        FloatFormat::fp(7),
        FloatFormat::fp(29),
    ] {
        let format = format.expect("the width is allowed");
        for format in [format, format.with_subnormals(false)] {
            for rounding in Rounding::ALL {
                let stream = RandomStream::new(u64::MAX - 5, 6 << 40);
                let mut expected = x.clone();
                format.round_slice(&mut expected, rounding.with(stream));
                for_each_layout::<TestBackend>(&x, &shape, |tensor, layout| {
                    let got = TestBackend::float_round_to(tensor, format, rounding, stream);
                    let what = format!("{format}, {rounding}, {layout}");
                    assert_same(&values::<TestBackend>(got), &expected, &what);
                });
            }
        }
    }
}

#[test]
fn random_hadamard_transforms() {
    for block_size in RandomHadamard::BLOCK_SIZES {
        let transform = RandomHadamard { block_size };
        for (shape, axis) in [
            (vec![5, 128], 1),
            (vec![3, 131], 1),
            (vec![100, 5], 0),
            (vec![2, 33, 9], 1),
        ] {
            let x = noise(shape.iter().product(), 3);
            for signs in [
                RandomStream::new(3, 4).into(),
                Signs::Repeated(0xd7e8_0123_4567_89ab_cdef_fedc_ba98_d7e8),
            ] {
                let (mut expected, mut inverse) = (x.clone(), x.clone());
                transform
                    .transform(&mut expected, &shape, axis, signs)
                    .expect("the block size is allowed");
                transform
                    .inverse(&mut inverse, &shape, axis, signs)
                    .expect("the block size is allowed");
                for_each_layout::<TestBackend>(&x, &shape, |tensor, layout| {
                    let what = format!("{block_size}, {shape:?} along {axis}, {layout}, {signs:?}");
                    let hadamard = |inverse| KernelOp::Hadamard {
                        axis,
                        transform,
                        signs,
                        inverse,
                    };
                    let got = TestBackend::kernel(hadamard(false), [tensor.clone()]);
                    assert_same(&values::<TestBackend>(got), &expected, &what);
                    let got = TestBackend::kernel(hadamard(true), [tensor]);
                    assert_same(&values::<TestBackend>(got), &inverse, &what);
                });
            }
        }
    }
}

/// All steps of an operand together, and the mask of a gradient by the same steps. Some tensors are worked on in several pieces.
#[test]
fn transforms_before_blocks() {
    let bfloat16 = FloatFormat::bfloat(16).expect("16 bits are allowed");
    let (stream, even) = (RandomStream::new(3, 4), Rounding::NearestEven);
    let formats = [
        ("mx(element=fp4_e2m1,scale_mode=rms,headroom=3/2)", even),
        ("mx(element=fp8_e4m3,block_size=24)", even),
        ("mx(element=fp6_e2m3,block_size=0)", Rounding::TowardZero),
        ("mxfp4", Rounding::Stochastic),
        ("nvfp4(tensor_scale=true)", even),
    ];
    let shapes = [
        (vec![5, 128], 1),
        (vec![3, 131], 1),
        (vec![700, 64], 0),
        (vec![40, 1000], 1),
        (vec![3, 96, 80], 1),
    ];
    for (i, (format, rounding)) in formats.into_iter().enumerate() {
        let format: BlockFormat = format.parse().expect("the format is sound");
        let transform = RandomHadamard {
            block_size: RandomHadamard::BLOCK_SIZES[i % 4],
        };
        let signs = Signs::from(RandomStream::new(5, 6));
        let quantization = OperandQuantization {
            elementwise: (i % 2 == 0).then_some((bfloat16, even)),
            hadamard: Some((transform, signs)),
            factor: (i % 3 == 0).then_some(0.75),
            blocks: Some((format, rounding)),
            stream,
        };
        for (shape, axis) in &shapes {
            let axis = *axis;
            let known = "the block size is allowed";
            let x = noise(shape.iter().product(), 3);
            let mut before = x.clone();
            if let Some((format, rounding)) = quantization.elementwise {
                format.round_slice(&mut before, rounding.with(stream));
            }
            (transform.transform(&mut before, shape, axis, signs)).expect(known);
            let factor = quantization.factor.unwrap_or(1.0);
            before.iter_mut().for_each(|x| *x *= factor);
            let mut expected = before.clone();
            (format.quantize(&mut expected, shape, axis, rounding.with(stream))).expect(known);
            let what = |layout: &str| format!("{quantization:?}, {shape:?} along {axis}, {layout}");
            for_each_layout::<TestBackend>(&x, shape, |tensor, layout| {
                let op = KernelOp::Quantize { axis, quantization };
                let got = TestBackend::kernel(op, [tensor]);
                assert_same(&values::<TestBackend>(got), &expected, &what(layout));
            });
            if rounding == Rounding::Stochastic {
                continue;
            }
            for transformed in [false, true] {
                let gradient = noise(x.len(), 7);
                let mut expected = gradient.clone();
                if !transformed {
                    (transform.transform(&mut expected, shape, axis, signs)).expect(known);
                }
                (format.mask_clipped(&before, shape, axis, &mut expected)).expect(known);
                (transform.inverse(&mut expected, shape, axis, signs)).expect(known);
                for_each_layout::<TestBackend>(&x, shape, |tensor, layout| {
                    let op = KernelOp::MaskClipped {
                        axis,
                        quantization,
                        transformed,
                    };
                    let gradient = self::tensor::<TestBackend>(&gradient, shape);
                    let got = TestBackend::kernel(op, [gradient, tensor]);
                    assert_same(&values::<TestBackend>(got), &expected, &what(layout));
                });
            }
        }
    }
}

#[test]
fn tensors_without_elements() {
    let format: BlockFormat = "mxfp4".parse().expect("the name is known");
    let stream = RandomStream::new(0, 0);
    let empty = || tensor::<TestBackend>(&[], &[0, 32]);
    let quantized = TestBackend::mx_quantize(empty(), 1, format, Rounding::NearestEven, stream);
    assert_eq!(quantized.shape(), Shape::new([0, 32]));
    let bfloat16 = FloatFormat::bfloat(16).expect("16 bits are allowed");
    let rounded = TestBackend::float_round_to(empty(), bfloat16, Rounding::NearestEven, stream);
    assert_eq!(rounded.shape(), Shape::new([0, 32]));
}

/// Without burn-fusion around it, too.
#[cfg(any(
    test_backend = "vulkan",
    test_backend = "metal",
    test_backend = "webgpu",
    test_backend = "wgpu"
))]
#[test]
fn without_fusion() {
    use crate::backend::Unfused;
    for format in ["mxfp8_e4m3", "mx9", "bfp16", "nvfp4"] {
        let format = format.parse().expect("the name is known");
        assert_quantizes::<Unfused>(format, Rounding::Stochastic);
    }
}
