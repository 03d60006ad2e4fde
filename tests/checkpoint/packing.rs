//! Tensors of a user's as the bytes of a format, and back.

use burn::prelude::*;
use burn_mx::module::{pack, unpack};
use burn_mx::{BlockFormat, PackError, Packed, RandomStream, Rounder};
use burn_mx::{MxBackend, MxSpecs};

use crate::support::*;

type Inference = MxBackend<TestBackend>;

fn format(text: &str) -> BlockFormat {
    text.parse().expect("the format is sound")
}

#[test]
fn a_tensor_is_the_bytes_of_its_values() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let (shape, seed) = ([6, 5, 40], 131);
    let x = noise(shape.iter().product(), seed);
    let tensor = || noise_tensor::<Mx, 3>(shape, seed, &device);
    let stochastic = Rounder::Stochastic(RandomStream::new(1, 2));
    for (text, axis, rounder) in [
        ("mxfp4", 2, Rounder::NearestEven),
        ("mx6", 0, Rounder::NearestAway),
        ("nvfp4(tensor_scale=true)", 2, Rounder::NearestEven),
        ("mxfp6_e3m2", 1, stochastic),
    ] {
        let format = format(text);
        let expected = Packed::encode(format, &x, &shape, axis, rounder).unwrap();
        let packed = pack(tensor(), axis, format, rounder).unwrap();
        assert_eq!(packed, expected, "{text}");
        assert_eq!(pack(tensor().inner(), axis, format, rounder), Ok(expected));

        // As the record marks it, and quantized already.
        let unpacked = unpack::<Mx, 3>(&packed.view(), &device);
        assert_eq!(unpacked.dims(), shape);
        assert_same_bits(&values(unpacked), &packed.decode(), text);
        let unpacked = unpack::<Inference, 3>(&packed.view(), &device);
        assert_same_bits(&values(unpacked), &packed.decode(), text);
    }
}

#[test]
fn what_cannot_be_packed_is_an_error() {
    let device = mx_device(&MxSpecs::none());
    let tensor = Tensor::<Inference, 1>::from_floats([1.0, f32::NAN, 2.0], &device);
    let packed = pack(tensor.clone(), 0, format("bfp16"), Rounder::NearestEven);
    let position = match packed {
        Err(PackError::NotFinite { position, .. }) => position,
        other => panic!("{other:?}"),
    };
    assert_eq!(position, 1);
    let packed = pack(tensor, 1, format("mxfp4"), Rounder::NearestEven);
    assert!(matches!(packed, Err(PackError::Quantize(_))), "{packed:?}");
}

#[test]
#[should_panic(expected = "shape [3, 4] is not a tensor of 1 axes")]
fn a_packed_tensor_has_as_many_axes_as_it_has() {
    let packed = Packed::encode(
        format("mxfp4"),
        &[1.0; 12],
        &[3, 4],
        1,
        Rounder::NearestEven,
    )
    .unwrap();
    unpack::<Inference, 1>(&packed.view(), &mx_device(&MxSpecs::none()));
}
