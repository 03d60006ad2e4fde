"""Equal to what microxcaling, torchao, AMD Quark, compressed-tensors, Model Optimizer and gguf themselves computed."""

import ml_dtypes
import numpy as np
import pytest

import microscaling as ms
from golden import GOLDEN, TOOLS, assert_same, read


def test_mx_blocks_of_microxcaling():
    cases, tensors = read(GOLDEN / "mx_quantize.safetensors")
    assert len(cases) == 628
    for case in cases:
        fields = ["block_size", "scale_bits", "flush_fp32_subnorms", "shared_exp_method"]
        fields = ",".join(f"{field}={str(case[field]).lower()}" for field in fields)
        format = f"mx(element={case['elem_format']},{fields})"
        x = tensors[f"in/{case['input']}"]
        before = x.copy()
        seed = 0 if case["round"] == "stochastic" else None
        got = ms.quantize(x, format, case["axis"], case["round"], seed)
        assert_same(got, tensors[f"out/{case['id']}"], case)
        assert ms.quantize_(x, format, case["axis"], case["round"], seed) is x
        assert_same(x, got, case)
        x[...] = before


def test_elementwise_rounding_of_microxcaling():
    cases, tensors = read(GOLDEN / "elementwise.safetensors")
    assert len(cases) == 72
    for case in cases:
        of, bits = (ms.bfloat, case["bfloat"]) if case["bfloat"] else (ms.fp, case["fp"])
        got = of(tensors["in/x"], bits, case["round"], subnormals=case["subnorms"])
        assert_same(got, tensors[f"out/{case['id']}"], case)


def test_scale_modes_of_torchao():
    cases, tensors = read(GOLDEN / "scale_modes.safetensors")
    assert len(cases) == 80
    for case in cases:
        format = f"mx(element={case['elem_format']},block_size={case['block_size']},scale_mode={case['scale_mode']})"
        x = tensors[f"in/{case['input']}"]
        assert_same(ms.quantize(x, format, case["axis"], case["round"]), tensors[f"out/{case['id']}"], case)
        packed = ms.pack(x, format, case["axis"], case["round"])
        np.testing.assert_array_equal(packed.scales.ravel(), tensors[f"scale/{case['id']}"].ravel(), str(case))


def test_nvfp4_of_torchao():
    cases, tensors = read(GOLDEN / "nvfp4.safetensors")
    assert len(cases) == 8
    for case in cases:
        format = "nvfp4(tensor_scale=true)" if case["per_tensor_scale"] else "nvfp4"
        x, id = tensors[f"in/{case['input']}"], case["id"]
        assert_same(ms.quantize(x, format, case["axis"]), tensors[f"out/{id}"], case)
        packed = ms.pack(x, format, case["axis"])
        np.testing.assert_array_equal(packed.scales.ravel(), tensors[f"scale/{id}"].ravel())
        if case["per_tensor_scale"]:
            assert packed.tensor_scale == tensors[f"tensor_scale/{id}"]


def test_microexponents_of_quark():
    cases, tensors = read(GOLDEN / "microexponents.safetensors")
    assert len(cases) == 36
    for case in cases:
        format = case["format"]
        if format == "bfp":
            format = f"bfp(bit_width={case['bit_width']},block_size={case['block_size']})"
        got = ms.quantize(tensors[f"in/{case['input']}"], format, case["axis"], case["round"])
        # The others are numbers that the format does not have.
        valid = tensors[f"valid/{case['id']}"].astype(bool)
        assert_same(got[valid], tensors[f"out/{case['id']}"][valid], case)


def halves_to_pairs(elements):
    """ggml has element j and j + 16 of a block in one byte; all others 2j and 2j + 1."""
    blocks = elements.reshape(-1, 16)
    codes = np.concatenate([blocks & 15, blocks >> 4], axis=1).reshape(-1, 2)
    return codes[:, 0] | codes[:, 1] << 4


CASES, TENSORS = read(TOOLS / "dialects.safetensors")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_bytes_of_dialects(case):
    weight, id = TENSORS[f"in/{case['input']}"], case["id"]
    packed = ms.pack(weight, case["format"], dialect=case["dialect"])
    elements = TENSORS[f"{id}/elements"]
    if case["dialect"] == "ggml":
        stored = packed.store("gguf-mxfp4")["weight"].reshape(-1, 17)
        np.testing.assert_array_equal(stored[:, 0], TENSORS[f"{id}/scales"].ravel())
        np.testing.assert_array_equal(stored[:, 1:], elements.reshape(-1, 16))
        elements = halves_to_pairs(elements)
    np.testing.assert_array_equal(packed.scales.ravel(), TENSORS[f"{id}/scales"].ravel())
    np.testing.assert_array_equal(packed.elements.ravel(), elements.ravel())
    if f"{id}/tensor_scale" in TENSORS:
        stored = packed.tensor_scale if packed.divisor is None else packed.divisor
        assert stored == TENSORS[f"{id}/tensor_scale"]


STORED, FILES = read(TOOLS / "layouts.safetensors")


@pytest.mark.parametrize("case", STORED, ids=lambda case: case["id"])
def test_files_of_tools(case):
    """What the tools stored is read as ml_dtypes reads it, and written again to the byte."""
    tensors = {name: FILES[f"{case['id']}/{name}"] for name in case["stored"]}
    packed = ms.load(case["layout"], case["weight"], tensors)
    values = FILES[f"{case['id']}: ml_dtypes"]
    # A product of three numbers is rounded twice.
    rtol = 2.0**-23 if packed.format.has_tensor_scale else 0
    np.testing.assert_allclose(ms.unpack(packed), values.reshape(packed.shape), rtol=rtol, atol=0)
    again = packed.store(case["layout"], case["weight"])
    assert list(again) == case["stored"]
    for name, tensor in again.items():
        if tensor.dtype == np.float32 and packed.format.has_tensor_scale:
            # A divisor has several numbers with its reciprocal.
            assert ms.load(case["layout"], case["weight"], again) == packed
            continue
        assert tensor.shape == tensors[name].shape and tensor.dtype.itemsize == tensors[name].dtype.itemsize
        np.testing.assert_array_equal(tensor.view(np.uint8), tensors[name].view(np.uint8))


def test_bytes_mean_what_ml_dtypes_says():
    x = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    for name in ms.Format.names():
        packed = ms.pack(x, name)
        format = packed.format
        if format.dtype is None or format.scale_dtype is None:
            continue
        elements = packed.codes().view(format.dtype).astype(np.float64)
        scales = packed.scales.reshape(64, -1)
        if format.scale_dtype.itemsize > 1:
            scales = packed.scales.reshape(-1, format.scale_dtype.itemsize).view(format.scale_dtype)
        scales = scales.view(format.scale_dtype).astype(np.float64).reshape(64, -1)
        values = elements * np.repeat(scales, format.block_size, axis=1) * (packed.tensor_scale or 1)
        np.testing.assert_array_equal(ms.unpack(packed), values.astype(np.float32), name)
    assert ms.Format("nvfp4").scale_dtype == ml_dtypes.float8_e4m3fn
