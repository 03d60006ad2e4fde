//! Tensors packed and unpacked on their device: the bytes and numbers of the slice functions.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_mx::MxKernels;
use burn_mx::{BlockFormat, PackError, Packed, RandomStream, Rounder, Rounding};
use microscaling::PackedParts;

use super::support::*;
use crate::backend::TestBackend;

type B = TestBackend;

/// One of each kind, with codes of 2 to 16 bits, blocks of one element to a whole axis, records of one byte and more.
const FORMATS: [&str; 30] = [
    "mxfp8_e4m3",
    "mxfp8_e5m2",
    "mxfp6_e2m3",
    "mxfp4",
    "mxint8",
    "mx(element=int2,block_size=5)",
    "mx(element=float16,block_size=7,scale_mode=rceil)",
    "mx(element=fp6_e3m2,block_size=0,scale_bits=5)",
    "mx(element=fp4_e2m1,scale_mode=rms,block_size=7)",
    "mx(element=fp6_e2m3,block_size=8,square=true)",
    "mx9",
    "microexponent(bit_width=12,block_size=30,sub_block_size=3,shift_bits=2)",
    "bfp16",
    "nvfp4",
    "nvfp4(tensor_scale=true,four_over_six=true)",
    "nvfp4(tensor_scale=true,square=true)",
    "mx(element=fp8_e4m3fnuz,block_size=32)",
    "block(element=fp8_e4m3,scale=ue4m3,block_size=16)",
    "block(element=fp8_e5m2,scale=ue5m2,block_size=16,tensor_scale=true)",
    "amdfp4",
    "block(element=int6,scale=ue3m3,block_size=16,tensor_scale=true)",
    // Scales of more than a byte, tables, and sub-scales.
    "block(element=table(if4),scale=bfloat16,block_size=16)",
    "block(element=table(0 1 2/0 1 3/0 1 4),scale=float32,block_size=16)",
    "block(element=e2m1,scale=float32,block_size=5)",
    "nf4",
    "razer",
    "hif4",
    "block(element=int4,scale=bfloat16,block_size=30,sub_scales=6/2)",
    "mx(element=int4,block_size=20,sign_scales=true)",
    "block(element=e2m1,scale=float32,block_size=16,sign_scales=true)",
];

fn format(text: &str) -> BlockFormat {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn assert_packed(x: &[f32], shape: &[usize], axis: usize, text: &str, rounder: Rounder) {
    let what = format!("{text}, {shape:?} along {axis}, {rounder:?}");
    let format = format(text);
    let stream = match rounder {
        Rounder::Stochastic(stream) => stream,
        _ => RandomStream::new(0, 0),
    };
    let expected = Packed::encode(format, x, shape, axis, rounder);
    // Unchanged, and with its axes turned.
    let turned = B::float_swap_dims(tensor::<B>(x, shape), 0, 1);
    let turned_shape = turned.shape();
    let turned = tensor::<B>(&values::<B>(turned), &turned_shape);
    for tensor in [tensor::<B>(x, shape), B::float_swap_dims(turned, 0, 1)] {
        let packed = B::kernels().pack(tensor, axis, format, rounder.rounding(), stream);
        assert_eq!(packed, expected, "{what}");
    }
    if let Ok(packed) = expected {
        let unpacked = B::kernels().unpack(&packed.view(), &Default::default());
        assert_eq!(*unpacked.shape(), *shape, "{what}");
        assert_same(&values::<B>(unpacked), &packed.decode(), &what);
    }
}

#[test]
fn tensors_of_every_kind_of_format() {
    for (number, text) in FORMATS.into_iter().enumerate() {
        // Nothing that BFP refuses.
        let finite = |x: f32| match text.starts_with("bfp") && !x.is_finite() {
            true => 1.0,
            false => x,
        };
        let shapes = [
            (&[5, 70][..], 1),
            (&[70, 5], 0),
            (&[6, 33, 3], 1),
            (&[40, 36], 0),
        ];
        for (i, (shape, axis)) in shapes.into_iter().enumerate() {
            // A device compiles a kernel for each: there a format has two of them.
            if !every_kernel() && (4 + i - number % 4) % 4 > 1 {
                continue;
            }
            let x = noise(shape.iter().product(), 21).into_iter().map(finite);
            let x: Vec<f32> = x.collect();
            assert_packed(&x, shape, axis, text, Rounder::NearestEven);
            assert_packed(&vec![0.0; x.len()], shape, axis, text, Rounder::NearestEven);
        }
    }
}

#[test]
fn each_way_of_rounding() {
    let shape = [37, 50];
    let x = noise(37 * 50, 22);
    for text in ["mxfp6_e3m2", "mx6", "nvfp4"] {
        for rounding in [
            Rounding::NearestAway,
            Rounding::TowardZero,
            Rounding::Stochastic,
        ] {
            let rounder = rounding.with(RandomStream::new(23, 5));
            assert_packed(&x, &shape, 1, text, rounder);
            assert_packed(&x, &shape, 0, text, rounder);
        }
    }
}

#[test]
fn what_has_no_code_and_what_has_no_elements() {
    let bfp = format("bfp16");
    let pack = |x: &[f32], shape: &[usize], axis| {
        let stream = RandomStream::new(0, 0);
        B::kernels().pack(
            tensor::<B>(x, shape),
            axis,
            bfp,
            Rounding::NearestEven,
            stream,
        )
    };
    let refused = pack(&[1.0, 2.0, f32::INFINITY, f32::NAN], &[4], 0);
    assert!(
        matches!(refused, Err(PackError::NotFinite { position: 2, .. })),
        "{refused:?}"
    );
    assert!(matches!(pack(&[1.0], &[1], 1), Err(PackError::Quantize(_))));
    let empty = pack(&[], &[0, 3], 1).expect("there is nothing to refuse");
    assert_eq!((empty.scales().len(), empty.elements().len()), (0, 0));
}

/// All codes, also those that nothing is packed to, under all scales.
#[test]
fn any_bytes() {
    let shape = [24, 64];
    let stream = RandomStream::new(24, 0);
    let bytes = |length: usize, from: u64| {
        let byte = |i: u64| (stream.draw(from + i) >> 11) as u8;
        (0..length as u64).map(byte).collect::<Vec<u8>>()
    };
    let of_tensors = [0.0, 1.0, -1.0, 1e-45, 3e-39, 1e38, f32::INFINITY, f32::NAN];
    for text in FORMATS {
        let rows = Packed::encode(
            format(text),
            &[0.0; 24 * 64],
            &shape,
            1,
            Rounder::NearestEven,
        );
        let parts = rows.expect("zeros have codes").into_parts();
        let of_tensors = match parts.tensor_scale {
            Some(_) => of_tensors.map(Some).to_vec(),
            None => vec![None],
        };
        for tensor_scale in of_tensors {
            let PackedParts {
                format,
                shape,
                axis,
                scales,
                elements,
                ..
            } = &parts;
            let mut records = bytes(scales.len(), 0);
            // The last byte of a record need not be full.
            let length = format.group_size().min(64);
            let of_shifts = format.shifts.map_or(0, |shifts| {
                length.div_ceil(shifts.block_size) * shifts.bits as usize
            });
            let of_sub_scales = format.sub_scales.map_or(0, |sub_scales| {
                let [first, second] = sub_scales.block_sizes();
                format.block_size / first + format.block_size / second
            });
            let of_sub_blocks = of_shifts + of_sub_scales;
            if of_sub_blocks % 8 > 0 {
                let record = records.len() / (24 * 64_usize.div_ceil(length));
                let lasts = records.iter_mut().skip(record - 1).step_by(record);
                lasts.for_each(|last| *last &= (1 << (of_sub_blocks % 8)) - 1);
            }
            let elements = bytes(elements.len(), 1 << 20);
            let packed = Packed::from_parts(*format, shape, *axis, tensor_scale, records, elements);
            let packed = packed.unwrap_or_else(|error| panic!("{text}: {error}"));
            let unpacked = values::<B>(B::kernels().unpack(&packed.view(), &Default::default()));
            let what = format!("{text}, tensor scale {tensor_scale:?}");
            assert_same(&unpacked, &packed.decode(), &what);
        }
    }
}
