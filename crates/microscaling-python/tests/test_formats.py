"""Formats: their text, and the values of their elements, which are those of ml_dtypes' types."""

import pickle

import ml_dtypes
import numpy as np
import pytest

import microscaling as ms

TYPES = {
    "fp4_e2m1": "float4_e2m1fn",
    "fp6_e2m3": "float6_e2m3fn",
    "fp6_e3m2": "float6_e3m2fn",
    "fp8_e3m4": "float8_e3m4",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e4m3b11fnuz": "float8_e4m3b11fnuz",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e5m2fnuz": "float8_e5m2fnuz",
    "bfloat16": "bfloat16",
    "float16": "float16",
}


@pytest.mark.parametrize("element", TYPES)
def test_every_code_has_the_value_of_ml_dtypes(element):
    format = ms.Format(f"mx(element={element})")
    dtype = np.dtype(getattr(ml_dtypes, TYPES[element], None) or TYPES[element])
    assert format.dtype == dtype and format.element == element
    codes = np.arange(2**format.element_bits, dtype=f"u{dtype.itemsize}")
    values = format.values()
    with np.errstate(invalid="ignore"):
        expected = codes.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values[~np.isnan(values)]), np.signbit(expected[~np.isnan(values)]))


@pytest.mark.parametrize("element", [e for e in TYPES if "16" not in e])
def test_elements_round_as_ml_dtypes_rounds(element):
    """Of one block whose scale is 1: ties to even, subnormals, saturation."""
    format = ms.Format(f"mx(element={element})")
    numbers = format.values()
    numbers = np.unique(numbers[np.isfinite(numbers)])
    # The numbers, their means, and what is next to both.
    points = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2]).astype(np.float32)
    points = np.concatenate([points, np.nextafter(points, np.float32(-9e9)), np.nextafter(points, np.float32(9e9))])
    points = points[np.abs(points) <= numbers.max()]
    blocks = np.zeros((len(points), 32), np.float32)
    blocks[:, 0], blocks[:, 1] = points, numbers.max()
    got = ms.quantize(blocks, format)
    np.testing.assert_array_equal(got[:, 0], points.astype(format.dtype).astype(np.float32))


def test_text():
    for name in ms.Format.names():
        format = ms.Format(name)
        assert str(format) == name and repr(format) == f"Format('{name}')"
        assert pickle.loads(pickle.dumps(format)) == format and hash(ms.Format(name)) == hash(format)
        assert format.describe().startswith(name)
        assert len(format.values()) == 2**format.element_bits
    assert ms.Format("mx(element=fp4)") == ms.Format("MXFP4E2M1") == ms.Format("mxfp4") != ms.Format("mxint4")
    bits = {"mxfp8_e4m3": 8.25, "mxfp4": 4.25, "nvfp4": 4.5, "mx6": 6, "bfp16": 9}
    assert {name: ms.Format(name).bits for name in bits} == bits
    with pytest.raises(ValueError, match="unknown block format `mxfp5`: expected one of mxfp8_e5m2"):
        ms.Format("mxfp5")


@pytest.mark.parametrize("format", ["mxfp4", "nvfp4", "bfp16"])
def test_scale_values_are_those_of_their_type(format):
    format = ms.Format(format)
    codes = np.arange(256, dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        expected = codes.view(format.scale_dtype).astype(np.float32)
    np.testing.assert_array_equal(format.scale_values(), expected)


def test_scales_that_no_type_has():
    """UE5M3 is E5M3 without a sign: a bias of 15, and NaN where all bits are set."""
    format = ms.Format("amdfp4")
    assert format.scale_dtype is None
    codes = np.arange(256)
    exponents, mantissas = codes >> 3, codes & 7
    normal = np.ldexp(1 + mantissas / 8, exponents - 15)
    expected = np.where(exponents == 0, np.ldexp(mantissas / 8, -14), normal).astype(np.float32)
    expected[255] = np.nan
    np.testing.assert_array_equal(format.scale_values(), expected)
    x = np.geomspace(1e-3, 1e5, 160, dtype=np.float32).reshape(10, 16)
    packed = ms.pack(x, format)
    scales = format.scale_values()[packed.scales]
    values = format.values()[packed.codes()] * np.repeat(scales, 16, axis=-1)
    np.testing.assert_array_equal(values, packed.unpack())
    # A bit above the scale names the block's table.
    tables = ms.Format("if4").scale_values()
    np.testing.assert_array_equal(tables[:128], tables[128:])
    assert ms.Format("nf4").scale_values() is None and ms.Format("mx9").scale_values() is None


def test_datasheets():
    sheet = ms.Format("amdfp4").datasheet()
    assert sheet["scale"] == "ue5m3: no sign, 5 exponent bits (bias 15), 3 mantissa bits"
    assert sheet["scale values"] == "2^-17 to 114688, subnormal numbers included"
    assert sheet["scale codes without a number"] == "NaN 0xff"
    for name in ms.Format.names():
        assert {"element", "block", "scale", "scale rule", "NaN and Inf", "area", "energy"} <= set(ms.Format(name).datasheet())


def test_records_that_are_more_than_a_scale_have_no_type():
    for text in ["mx9", "hif4", "block(element=e2m1,scale=ue4m3,block_size=64,sub_scales=8/4)"]:
        assert ms.Format(text).scale_dtype is None
    assert "sub-scales 8/4" in ms.Format("hif4").describe()


def test_elements_of_signs_and_magnitudes():
    """Whose block has its largest element in [1, 2): its scale is 1."""
    for name in ["mx4", "mx6", "mx9", "bfp16"]:
        format = ms.Format(name)
        assert format.element is None and format.dtype is None
        values = format.values()
        np.testing.assert_array_equal(values, -np.roll(values, len(values) // 2))
        x = np.linspace(-1.9, 1.9, 64, dtype=np.float32).reshape(-1, 1).repeat(format.block_size, 1)
        x[:, ::2] = 1.5
        assert set(ms.quantize(x, name).ravel()) <= set(values) | (set(values / 2) if name != "bfp16" else set())
