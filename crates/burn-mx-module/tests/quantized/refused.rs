//! Wrong input.

use super::*;

#[test]
fn what_burn_lacks_is_an_error_that_names_the_part() -> Test {
    let cases = [
        (
            "mxfp6_e2m3",
            [4, 64],
            "the elements are fp6_e2m3; allowed: int8",
        ),
        (
            "MX6",
            [4, 64],
            "allowed: formats whose numbers are an element times one scale",
        ),
        ("mx(element=int3)", [4, 64], "the elements are int3"),
        ("mxint8", [4, 50], "blocks of 32 along an axis of 50"),
        (
            "block(element=int8,scale=float32,block_size=0)",
            [4, 509],
            "blocks of 509 along an axis of 509",
        ),
        (
            "mxfp4(block_size=5)",
            [4, 5],
            "the last axis has 5 elements of fp4_e2m1",
        ),
        ("mxint8", [0, 32], "the tensor has no elements"),
    ];
    for (format, shape, expected) in cases {
        let format = format.replace("mxfp4(", "mx(element=e2m1,");
        let error = quantized_data(&packed(&format, shape)?).expect_err("Burn lacks it");
        assert!(error.to_string().contains(expected), "{format}: {error}");
    }
    let columns = Packed::encode(
        "mxint8".parse()?,
        &[1.0; 64],
        &[32, 2],
        0,
        Rounder::NearestEven,
    )?;
    let error = quantized_data(&columns).expect_err("the blocks lie along the first axis");
    assert!(
        error
            .to_string()
            .starts_with("blocks lie along axis 0 of 2"),
        "{error}"
    );
    let int4 = packed("mx(element=int4)", [4, 64])?;
    let error = quantized_tensor::<NdArray, 2>(&int4, &NdArrayDevice::Cpu).expect_err("int4");
    assert!(
        error
            .to_string()
            .starts_with("ndarray takes no quantized tensor of int4"),
        "{error}"
    );
    Ok(())
}

#[test]
fn data_that_burn_does_not_make_are_an_error() -> Test {
    let scheme = QuantScheme::default().with_store(QuantStore::Native);
    let data = |scheme: QuantScheme, bytes: Vec<u8>| {
        TensorData::from_bytes(
            Bytes::from_bytes_vec(bytes),
            vec![2, 4],
            DType::QFloat(scheme),
        )
    };
    let float = |x: f32| [vec![1; 8], x.to_le_bytes().to_vec()].concat();
    let good = packed_of_data(&data(scheme, float(0.5)))?;
    assert_eq!(good.decode(), [0.5; 8]);
    for scale in [-0.5, f32::MIN_POSITIVE / 8.0] {
        let packed = packed_of_data(&data(scheme, float(scale)))?;
        assert_eq!(packed.decode(), [scale; 8]);
    }
    let q4 = scheme.with_value(QuantValue::Q4S);
    let e4m3 = scheme.with_value(QuantValue::E4M3);
    let cases = [
        (
            data(scheme, float(f32::INFINITY)),
            "element 0 is NaN in the packed tensor and inf as a float32 product",
        ),
        (data(scheme, float(3e38)), "element 0 is"),
        (
            data(scheme, vec![1; 7]),
            "the data's length is 7; allowed: at least 8 bytes",
        ),
        (
            data(scheme, vec![1; 10]),
            "the scales' length is 2; allowed: 1 scales of 4 or 4 bytes",
        ),
        (
            data(q4, [vec![0, 1, 2, 3, 4, 5, 6, 9], vec![0; 4]].concat()),
            "an element is 9; allowed: integers of 4 bits",
        ),
        (
            data(scheme.with_level(QuantLevel::block([2, 2])), vec![0; 16]),
            "level is Block(BlockSize([2, 2]))",
        ),
        (
            data(scheme.with_level(QuantLevel::block([3])), vec![0; 16]),
            "blocks of 3 along an axis of 4",
        ),
        (
            data(scheme.with_level(QuantLevel::block([0])), vec![0; 16]),
            "level is Block",
        ),
        (
            data(scheme.with_store(QuantStore::PackedU32(1)), vec![0; 16]),
            "store is PackedU32(1)",
        ),
        (
            data(e4m3.with_store(QuantStore::PackedU32(0)), vec![0; 16]),
            "store is PackedU32(0)",
        ),
        (
            TensorData::new(vec![1.0_f32], [1]),
            "dtype is F32; allowed: QFloat",
        ),
    ];
    for (data, expected) in cases {
        let error = packed_of_data(&data).expect_err(expected);
        assert!(
            error.to_string().contains(expected),
            "{error}, not {expected}"
        );
    }
    Ok(())
}
