"""Test vectors for hardware, and the check of a device."""

import ml_dtypes
import numpy as np
import pytest

import microscaling as ms


def test_a_set_is_an_array():
    cases = ms.vectors("codes", "fp4_e2m1")
    values = cases["value"].astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(values, ms.Format("mxfp4").values())
    blocks = ms.vectors("blocks", "bfp16ebs8", limit=50)
    assert len(blocks) == 50
    x = blocks["input"].astype(np.uint32).view(np.float32)
    for case, numbers in zip(blocks, x):
        packed = ms.pack(numbers[: case["count"]], "bfp16ebs8")
        assert packed.scales[0] == case["scale"]


def test_check_names_the_rule_of_a_device():
    device = ms.vectors("elements", "fp8_e4m3", rounding="nearest", flush_outputs=True)
    report = ms.check("elements", "fp8_e4m3", device)
    assert report["rules"] == ["ties away from zero", "subnormal outputs flushed to zero (after rounding)"]
    assert report["differ"] > 0 and report["share_unexplained"] == 0
    outputs = np.ascontiguousarray(ms.vectors("elements", "fp8_e4m3")["code"])
    assert ms.check("elements", "fp8_e4m3", outputs)["differ"] == 0


def finite_inputs(cases):
    """The cases whose inputs are numbers, and these."""
    x = cases["input"].astype(np.uint32).view(np.float32)
    is_finite = np.isfinite(x) if x.ndim == 1 else np.isfinite(x).all(axis=1)
    return cases[is_finite], x[is_finite]


ELEMENTS = {
    "fp4_e2m1": "float4_e2m1fn",
    "fp6_e2m3": "float6_e2m3fn",
    "fp6_e3m2": "float6_e3m2fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e4m3b11fnuz": "float8_e4m3b11fnuz",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e5m2fnuz": "float8_e5m2fnuz",
}


@pytest.mark.parametrize("element", ELEMENTS)
def test_conversions_are_those_of_ml_dtypes(element):
    dtype = np.dtype(getattr(ml_dtypes, ELEMENTS[element]))
    overflow = "infinity" if "fp8" in element else "saturate"
    cases, x = finite_inputs(ms.vectors("elements", element, overflow=overflow))
    assert len(cases) > 800
    with np.errstate(all="ignore"):
        expected = x.astype(dtype)
        got = cases["code"].astype(np.uint8).view(dtype)
        both_nan = np.isnan(expected.astype(np.float32)) & np.isnan(got.astype(np.float32))
    assert ((expected.view(np.uint8) == got.view(np.uint8)) | both_nan).all()


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"])
def test_blocks_are_those_of_ml_dtypes(format):
    """The scale is 2^(floor(log2 amax) - emax); ml_dtypes converts the quotients."""
    dtype = ms.Format(format).dtype
    largest = float(ml_dtypes.finfo(dtype).max)
    cases, x = finite_inputs(ms.vectors("blocks", format))
    assert len(cases) > 900
    x = x.astype(np.float64)
    amax = np.abs(x).max(axis=1)
    exponent = np.clip(np.frexp(amax)[1] - np.frexp(largest)[1], -127, 127)
    exponent[amax == 0] = -127
    np.testing.assert_array_equal(cases["scale"], exponent + 127)
    quotients = np.clip(x * 2.0 ** -exponent[:, np.newaxis], -largest, largest)
    np.testing.assert_array_equal(cases["code"], quotients.astype(dtype).view(np.uint8))


@pytest.mark.parametrize("input", ["fp8_e4m3", "fp8_e5m2"])
def test_inputs_of_eight_bits(input):
    cases = ms.vectors("elements", "fp4_e2m1", input=input, exhaustive=True)
    np.testing.assert_array_equal(cases["input"], np.arange(256))
    x = cases["input"].astype(np.uint8).view(getattr(ml_dtypes, ELEMENTS[input])).astype(np.float32)
    expected = x.clip(-6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    is_number = ~np.isnan(x)
    np.testing.assert_array_equal(cases["code"][is_number], expected[is_number])


@pytest.mark.parametrize("element", ["fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3", "fp8_e5m2", "binary8p4se", "binary6p3se"])
@pytest.mark.parametrize("rounding", ["even", "nearest", "floor", "up", "down"])
def test_conversions_are_those_of_gfloat(element, rounding):
    gfloat = pytest.importorskip("gfloat", reason="gfloat is not installed: no conversion is compared with it")
    formats = pytest.importorskip("gfloat.formats")
    mode = {
        "even": "TiesToEven",
        "nearest": "TiesToAway",
        "floor": "TowardZero",
        "up": "TowardPositive",
        "down": "TowardNegative",
    }[rounding]
    if element.startswith("binary"):
        info = formats.format_info_p3109(int(element[6]), int(element[8]))
    else:
        info = getattr(formats, f"format_info_ocp_{element[4:]}")
    cases, x = finite_inputs(ms.vectors("elements", element, rounding=rounding))
    values = ms.vectors("codes", element)["value"].astype(np.uint32).view(np.float32)
    rounded = [gfloat.round_float(info, float(number), gfloat.RoundMode[mode], sat=True) for number in x]
    np.testing.assert_array_equal(values[cases["code"]], rounded)


def test_errors():
    for call, message in [
        (lambda: ms.vectors("elements", "fp9"), "fp9"),
        (lambda: ms.vectors("tiles", "fp8_e4m3"), "tiles"),
        (lambda: ms.vectors("codes", "fp8_e4m3", output="x.hex"), "without output"),
        (lambda: ms.check("codes", "fp8_e4m3", np.zeros((3, 3))), "expected one axis"),
        (lambda: ms.check("codes", "fp4_e2m1", ms.vectors("codes", "fp4_e2m1")[:3]), "3 cases, expected 16"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
