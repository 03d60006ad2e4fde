"""Arrays of any strides, sizes and types."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import microscaling as ms

FORMATS = ["mxfp4", "mx6", "bfp16", "nvfp4(tensor_scale=true)", "mx(element=fp8_e4m3,square=true)"]


def random(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def layouts(x):
    """The same numbers, as they may lie in memory."""
    wide = np.zeros((*x.shape, 3), x.dtype)
    wide[..., 1] = x
    padded = np.zeros([n + 2 for n in x.shape], x.dtype)
    inner = padded[tuple(slice(1, -1) for _ in x.shape)]
    inner[...] = x
    backwards = np.ascontiguousarray(x[::-1, ..., ::-1])[::-1, ..., ::-1]
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    return {
        "contiguous": x.copy(),
        "fortran": np.asfortranarray(x),
        "every third": wide[..., 1],
        "inner": inner,
        "backwards": backwards,
        "permuted": np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0),
        "unaligned": unaligned,
    }


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_strides(format, axis):
    x = random(5, 40, 34)
    expected = ms.quantize(x, format, axis)
    assert not np.array_equal(expected, x)
    for name, strided in layouts(x).items():
        np.testing.assert_array_equal(ms.quantize(strided, format, axis), expected, name)
        assert ms.pack(strided, format, axis) == ms.pack(x, format, axis), name
        assert ms.statistics(strided, format, axis).error == ms.statistics(x, format, axis).error
        around = strided.base.copy() if strided.base is not None and name == "inner" else None
        assert ms.quantize_(strided, format, axis) is strided
        np.testing.assert_array_equal(strided, expected, name)
        if around is not None:
            edge = np.ones(around.shape, bool)
            edge[1:-1, 1:-1, 1:-1] = False
            assert (strided.base[edge] == 0).all()


def test_pieces_of_large_arrays_are_those_of_the_whole():
    """Large arrays are copied and quantized in pieces; `quantize_` sees them whole."""
    x = random(301, 7, 160)
    for format in [*FORMATS, "mxint8", "nvfp4", "mx(element=int8,block_size=0)"]:
        for axis in range(3):
            for rounding, seed in [("even", None), ("stochastic", 5)]:
                whole = ms.quantize_(x.copy(), format, axis, rounding, seed)
                np.testing.assert_array_equal(ms.quantize(x, format, axis, rounding, seed), whole, f"{format} {axis}")


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3), (0, 2**40), (2**40, 0)])
def test_no_elements(shape):
    x = np.zeros(shape, np.float32)
    for axis in range(-len(shape), len(shape)):
        for format in ["mxfp4", "nvfp4(tensor_scale=true)"]:
            got = ms.quantize(x, format, axis)
            assert got.shape == shape and got.dtype == x.dtype
            ms.quantize_(x, format, axis)
            packed = ms.pack(x, format, axis)
            assert packed.elements.size == packed.scales.size == 0
            assert packed.unpack().shape == packed.codes().shape == shape
            statistics = ms.statistics(x, format, axis)
            assert statistics.elements == 0 and statistics.sqnr is None
    assert ms.bfloat(x, 16).shape == ms.hadamard(x).shape == shape


def test_long_axes():
    x = random(2**21 + 5)
    got = ms.quantize(x, "mxfp4")
    np.testing.assert_array_equal(got[:2**21], ms.quantize(x[:2**21].reshape(-1, 32), "mxfp4").ravel())
    np.testing.assert_array_equal(got[2**21 :], ms.quantize(x[2**21 :], "mxfp4"))
    # A block longer than its axis is one block.
    for size in [0, 2**40]:
        one = ms.quantize(x, f"mx(element=int8,block_size={size})")
        step = 2.0 ** (np.floor(np.log2(np.abs(x).max())) - 6)
        np.testing.assert_array_equal(one, np.clip(np.round(x / step), -127, 127).astype(np.float32) * np.float32(step))
    # What no memory holds.
    with pytest.raises(MemoryError):
        ms.quantize(np.broadcast_to(np.float32(1), (2**45,)), "mxfp4")


def test_read_only():
    x = random(4, 32)
    x.setflags(write=False)
    assert ms.quantize(x, "mxfp4").flags.writeable
    ms.pack(x, "mxfp4"), ms.statistics(x, "mxfp4")
    with pytest.raises(ValueError, match="x is read-only"):
        ms.quantize_(x, "mxfp4")
    with pytest.raises(ValueError, match="x is read-only"):
        ms.quantize_(np.broadcast_to(x[:1], (4, 32)), "mxfp4")
    np.testing.assert_array_equal(x, random(4, 32))
    packed = ms.pack(x, "mxfp4")
    assert not packed.scales.flags.writeable and not packed.elements.flags.writeable


def test_overlapping_rows():
    """Rows over the same memory: read they are an array like any other."""
    x = random(40)
    rows = np.lib.stride_tricks.sliding_window_view(x, 32)
    np.testing.assert_array_equal(ms.quantize(rows, "mxfp4"), ms.quantize(np.array(rows), "mxfp4"))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, ">f4", ">f8"])
def test_other_floats(dtype):
    dtype = np.dtype(dtype)
    x = random(6, 64).astype(dtype)
    expected = ms.quantize(x.astype(np.float32), "mxfp4")
    for got in [ms.quantize(x, "mxfp4"), ms.quantize_(x.copy(), "mxfp4"), ms.quantize_(x[::2], "mxfp4")]:
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.float32), expected[:: 6 // len(got)])
    x = random(6, 64).astype(dtype)
    assert ms.pack(x, "mxfp4") == ms.pack(x.astype(np.float32), "mxfp4")
    assert ms.pack(x.T, "mxfp4", 0).codes().T.tolist() == ms.pack(x, "mxfp4").codes().tolist()
    assert ms.pack(x, "mxfp4", dialect="torchao") == ms.pack(x.astype(np.float32), "mxfp4", dialect="torchao")
    assert ms.statistics(x, "mxfp4").error == ms.statistics(x.astype(np.float32), "mxfp4").error


def test_float16_overflows_to_inf():
    x = np.full(32, 65000, np.float16)
    assert np.isinf(ms.quantize(x, "mx(element=fp4,scale_mode=even)")).all()
    assert (ms.quantize(x.astype(np.float32), "mx(element=fp4,scale_mode=even)") == 65536).all()


def test_lists_and_arrays_without_axes():
    assert ms.quantize([1.0, 2.4, -5.1, 7.9], "mxfp4").tolist() == [1, 2, -6, 6]
    assert ms.bfloat(1.01, 16) == np.float32(1.0078125) and ms.bfloat(1.01, 16).shape == ()
    with pytest.raises(ValueError, match="axis is -1 of an array of 0 axes"):
        ms.quantize(np.float32(1), "mxfp4")


@pytest.mark.parametrize(
    "x", [np.arange(4), np.ones(4, bool), np.ones(4, complex), np.array(["1"]), np.array([None]), np.ones(4, "f4,f4"), np.ma.masked_array([1.0]), [1, 2], {}, None]
)
def test_wrong_types(x):
    for call in [ms.quantize, ms.pack, ms.statistics, ms.quantize_]:
        with pytest.raises(TypeError, match="expected"):
            call(x, "mxfp4")
    with pytest.raises(TypeError, match="x is (of dtype|of type|a masked)"):
        ms.bfloat(x, 16)


@pytest.mark.parametrize("rounding", ["even", "nearest", "floor", "stochastic"])
def test_a_seed_with_any_rounding(rounding):
    x = random(2, 32)
    calls = [
        lambda **seed: ms.quantize(x, "mxfp4", rounding=rounding, **seed),
        lambda **seed: ms.bfloat(x, 16, rounding=rounding, **seed),
        lambda **seed: ms.pack(x, "mxfp4", rounding=rounding, **seed).unpack(),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = call(seed=3)
        said = [str(warning.message) for warning in caught]
        if rounding == "stochastic":
            assert said == []
        else:
            assert said == [f"seed is 3 and has no effect: rounding `{rounding}` draws no random numbers"]
            np.testing.assert_array_equal(got, call())


def test_wrong_arguments():
    x = random(2, 32)
    for call, message in [
        (lambda: ms.quantize(x, "mxfp4", 2), r"axis is 2 of an array of 2 axes, expected -2 to 1"),
        (lambda: ms.quantize(x, "mxfp4", -3), r"axis is -3 of an array of 2 axes, expected -2 to 1"),
        (lambda: ms.quantize(x, "mxfp4", 2**62), r"axis is 4611686018427387904 "),
        (lambda: ms.quantize(x, "mxfp4", rounding="up"), r"`up`: expected one of nearest, floor, even, stochastic|`up`"),
        (lambda: ms.quantize(x, "mxfp4", rounding="stochastic"), r"seed is None, expected an integer"),
        (lambda: ms.statistics(x, "mxfp4", rounding="stochastic"), r"rounding is `stochastic` and quantized is None"),
        (lambda: ms.quantize(x, "mx(element=fp4,scale_bits=9)"), r"scale_bits is 9, expected 1 to 8"),
        (lambda: ms.pack(x, "mxfp4", dialect="torch"), r"`torch`: expected one of ocp, microxcaling"),
        (lambda: ms.pack(x, "mxfp6_e2m3", dialect="ggml"), r"dialect ggml: format is mxfp6_e2m3, expected one of mxfp4"),
        (lambda: ms.pack(x, "mxfp4", 0, dialect="ggml"), r"axis is 0 and dialect is ggml"),
        (lambda: ms.pack(x, "mxfp4", rounding="even", dialect="ggml"), r"rounding is `even` and dialect is `ggml`"),
        (lambda: ms.pack(x * np.nan, "bfp16"), r"the element at position 0 is NaN or Inf|position 0"),
        (lambda: ms.pack(x, "mxfp4").unpack("float64"), r"dtype is `float64`"),
        (lambda: ms.pack(x, "mxfp4").store("gptq"), r"`gptq`: expected one of mxfp4-pack-quantized"),
        (lambda: ms.pack(x, "mxfp8_e4m3").store("gpt-oss"), r"gpt-oss"),
        (lambda: ms.load("gpt-oss", "w", {}), r"`w_scales` is missing"),
        (lambda: ms.Packed("mxfp4", (2, 32), [127], np.zeros(32, np.uint8)), r"1.*2|2.*1"),
        (lambda: ms.bfloat(x, 9), r"9"),
        (lambda: ms.fp(x, 30), r"30"),
        (lambda: ms.hadamard(x, 48), r"block_size is 48, expected one of 16, 32, 64, 128|48"),
        (lambda: ms.hadamard(x, seed=1, signs=3), r"seed is 1 and signs is 0x3"),
        (lambda: ms.statistics(x, "mxfp4", quantized=x[:1]), r"32"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="format is of type int, expected Format or str"):
        ms.quantize(x, 4)
    with pytest.raises(OverflowError):
        ms.quantize(x, "mxfp4", 10**30)
    np.testing.assert_array_equal(x, random(2, 32))
