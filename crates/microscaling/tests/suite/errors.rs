//! Every error, with its message and unchanged data, and invalid shapes.

use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, FormatError, Headroom, QuantizeError, Rounder,
    ScaleFormat,
};

fn quantize(
    format: BlockFormat,
    data: &mut [f32],
    shape: &[usize],
    axis: usize,
) -> Result<(), QuantizeError> {
    let before = data.to_vec();
    let result = format.quantize(data, shape, axis, Rounder::NearestEven);
    if result.is_err() {
        assert_eq!(data, before);
    }
    result
}

/// A format that is none is an error also where nothing would be done.
#[test]
fn without_tensor_scale_the_format_is_checked_too() {
    let format = BlockFormat {
        headroom: Headroom::new(1, 2).unwrap(),
        ..int2()
    };
    let mut data = [1.1; 6];
    let error = format.quantize_without_tensor_scale(&mut data, &[2, 3], 1, Rounder::NearestEven);
    assert_eq!(
        error.unwrap_err().to_string(),
        "quantize: MX format: headroom is 1/2, expected at least 1"
    );
    assert_eq!(data, [1.1; 6]);
}

fn int2() -> BlockFormat {
    BlockFormat::mx(ElementFormat::INT2, 32)
}

#[test]
fn length_mismatch() {
    let error = quantize(int2(), &mut [1.1; 5], &[2, 3], 1).unwrap_err();
    let expected = QuantizeError::LengthMismatch {
        shape: vec![2, 3],
        expected: 6,
        got: 5,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "quantize: shape [2, 3] has 6 elements, the data have 5"
    );
    assert!(quantize(int2(), &mut [1.1; 5], &[0, 3], 1).is_err());
    assert!(quantize(int2(), &mut [], &[2], 0).is_err());
}

#[test]
fn axis_out_of_range() {
    let error = quantize(int2(), &mut [1.1; 6], &[2, 3], 2).unwrap_err();
    assert_eq!(error, QuantizeError::AxisOutOfRange { axis: 2, rank: 2 });
    assert_eq!(
        error.to_string(),
        "quantize: axis 2 is out of range for a tensor of rank 2"
    );
}

#[test]
fn rank_zero_has_no_axis() {
    let error = quantize(int2(), &mut [1.1], &[], 0).unwrap_err();
    assert_eq!(error, QuantizeError::AxisOutOfRange { axis: 0, rank: 0 });
}

#[test]
fn shape_overflow() {
    let error = quantize(int2(), &mut [], &[usize::MAX, 2], 0).unwrap_err();
    assert_eq!(
        error,
        QuantizeError::ShapeOverflow {
            shape: vec![usize::MAX, 2]
        }
    );
}

#[test]
fn invalid_scale_bits() {
    for got in [0, 9, u32::MAX] {
        let expected = FormatError::ScaleBits {
            min: 1,
            max: 8,
            got,
        };
        assert_eq!(ScaleFormat::exponent(got), Err(expected));
        let text = format!("mx(element=int2,scale_bits={got})");
        let error = text.parse::<BlockFormat>().unwrap_err();
        let text = format!("MX format: scale_bits is {got}, expected 1 to 8");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn invalid_float_formats() {
    for got in [0, 9, 33] {
        let error = FloatFormat::bfloat(got).unwrap_err();
        assert_eq!(
            error,
            FormatError::FloatBits {
                family: "bfloat",
                min: 10,
                max: 32,
                got
            }
        );
    }
    for got in [0, 6, 30] {
        let error = FloatFormat::fp(got).unwrap_err();
        let text = format!("fp{got}: the number of bits is {got}, expected 7 to 29");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn nothing_to_do() {
    for shape in [&[0][..], &[0, 3], &[3, 0], &[2, 0, usize::MAX, 2]] {
        for axis in 0..shape.len() {
            assert_eq!(quantize(int2(), &mut [], shape, axis), Ok(()));
        }
    }
    FloatFormat::fp(8)
        .unwrap()
        .round_slice(&mut [], Rounder::NearestEven);
}

#[test]
fn a_block_longer_than_the_axis_is_short() {
    for block_size in [0, 3, 4, usize::MAX] {
        let mut data = [4.0, 0.4, 3.0, 1.0, 0.4, 0.3];
        let format = BlockFormat {
            block_size,
            ..int2()
        };
        quantize(format, &mut data, &[2, 3], 1).unwrap();
        assert_eq!(data, [4.0, 0.0, 4.0, 1.0, 0.0, 0.0]);
    }
}
