"""The formats of IEEE P3109, against gfloat where that package is there, and by properties."""

import pickle

import ml_dtypes
import numpy as np
import pytest

import microscaling as ms


def test_values_and_codes():
    format = ms.Format("binary8p4se")
    assert (format.bits, format.precision, format.bias, format.nan) == (8, 4, 8, 0x80)
    assert format.is_signed and format.is_extended and str(format) == "binary8p4se"
    assert format == ms.Format("Binary8p4se") == pickle.loads(pickle.dumps(format))
    values = format.values()
    assert values[0x40] == 1.0 and np.isnan(values[0x80]) and values[0x7F] == np.inf
    codes = format.project(values.reshape(16, 16), saturation="SatPropagate")
    assert codes.shape == (16, 16) and codes.dtype == np.uint16
    np.testing.assert_array_equal(codes.ravel(), np.arange(256))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.int32])
def test_any_type_of_numbers(dtype):
    format = ms.Format("binary8p3se")
    x = np.array([[0, 1, -2], [3, 100, -7]]).astype(dtype)
    np.testing.assert_array_equal(format.values()[format.project(x.T)], [[0, 3], [1, 96], [-2, -7]])
    assert format.project(1.0).shape == () and format.project(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("variant", ["StochasticA", "StochasticB", "StochasticC"])
def test_random_numbers_with_few_bits(variant):
    format = ms.Format("binary4p2sf")
    # A quarter of the way from 1 to 1.5.
    codes = format.project(np.full(8, 1.125), variant, random_bits=3, random=np.arange(8))
    assert (format.values()[codes] == 1.5).sum() == 2
    one = format.project([1.125, 1.125], variant, random_bits=3, random=7)
    np.testing.assert_array_equal(format.values()[one], [1.5, 1.5])


def test_errors():
    format = ms.Format("binary8p4se")
    for call, message in [
        (lambda: ms.Format("binary8"), "expected `binary`"),
        (lambda: ms.Format("binary8p8se"), "precision is 8, expected 1 to 7"),
        (lambda: format.project(1.0, "even"), "expected one of TowardZero"),
        (lambda: format.project([], "even"), "expected one of TowardZero"),
        (lambda: format.project(1.0, saturation="sat"), "expected one of SatFinite"),
        (lambda: format.project(1.0, "StochasticA"), "random_bits is 0, expected 1 to 31"),
        (lambda: format.project(1.0, "StochasticA", random_bits=2, random=4), "random is 4, expected less than 2^2"),
        (lambda: format.project([1.0, 2.0], "StochasticA", random_bits=2, random=[1, 2, 3]), "broadcast"),
        (lambda: format.project(1.0, "StochasticA", random_bits=2, random=-1), "random is -1, expected 0 or more"),
        (lambda: format.project(1.0, "StochasticA", random_bits=2, random=2**32 + 1), "random is 4294967297, expected"),
        (lambda: format.project(1.0, "ToOdd", random=1), "random is 1, expected less than 2^0"),
        (lambda: ms.Format("binary16p1se").values(), "float64"),
    ]:
        with pytest.raises(ValueError, match=message.replace("^", r"\^")):
            call()
    with pytest.raises(TypeError, match="x is an array of <U1, expected numbers"):
        format.project("a")


def test_elements_and_scales_of_blocks():
    format = ms.Format("block(element=binary8p4se,scale=binary8p1uf,block_size=4)")
    assert format.element == "binary8p4se"
    packed = ms.pack(np.array([1.0, -224.0, 0.3, 448.0], np.float32), format)
    codes = ms.Format("binary8p4se").project(np.array([0.5, -112.0, 0.15, 224.0]))
    np.testing.assert_array_equal(packed.codes(), codes)
    assert ms.Format("binary8p1uf").values()[packed.scales] == 2.0
    for call in [
        lambda: ms.quantize(np.ones(4, np.float32), "binary8p4se"),
        lambda: ms.pack(np.ones(4, np.float32), ms.Format("binary8p4se")),
    ]:
        with pytest.raises(ValueError, match=r"format is binary8p4se, elements without a scale; expected a block format"):
            call()
    with pytest.raises(ValueError, match=r"format is mxfp4, a block format; expected a format of P3109"):
        ms.Format("mxfp4").project(1.0)


def test_a_format_of_elements_has_no_blocks():
    format = ms.Format("binary8p4sf")
    assert (format.bits, format.element_bits, format.element) == (8, 8, "binary8p4sf")
    assert format.block_size is None and format.scale_dtype is None and format.scale_values() is None
    assert not format.is_square and not format.has_tensor_scale
    # The codes of this format are those of a type of ml_dtypes.
    assert format.dtype == ml_dtypes.float8_e4m3fnuz
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(format.values(), codes.view(format.dtype).astype(np.float64))
    assert format.datasheet()["largest number"] == "240" and format.describe().startswith("binary8p4sf: bits 8, precision 4")
    blocks = ms.Format("mxfp4")
    assert blocks.precision is blocks.bias is blocks.is_signed is blocks.is_extended is blocks.nan is None


def test_every_argument_of_the_issue():
    codes = ms.Format("binary8p4se").project(
        [0.3, 1000.0], rounding="NearestTiesToEven", saturation="SatFinite", random_bits=0, random=0
    )
    np.testing.assert_array_equal(codes, [0x32, 0x7E])
