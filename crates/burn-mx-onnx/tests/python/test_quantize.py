"""Quantized models in ONNX Runtime, against the emulation of the Python module `microscaling`, bit for bit.

    pytest crates/burn-mx-onnx/tests/python

`QUANTIZE_ONNX` is the program; without it, cargo builds one. `ONNX_TEST_CASES` is the number of random models a format.
"""

import os
import subprocess
import sys

import microscaling as ms
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

import graphs
from models import LEVELS, NAMES, ROOT, assert_bits, format_of, is_integer, node_of, quantize, run, with_values

CASES = int(os.environ.get("ONNX_TEST_CASES", 12))
OTHERS = [
    "mx(element=int4,block_size=16)",
    "mx(element=int2,block_size=8)",
    "mx(element=int8,block_size=8)",
    "mx(element=fp8_e4m3,block_size=0)",
    "mx(element=fp6_e2m3,block_size=5,scale_mode=ceil)",
    "mx(element=fp4_e2m1,scale_mode=even)",
    "mx(element=int8,scale_mode=even)",
    "mx(element=fp4_e3m0)",
    "mx(element=fp3_e2m0,block_size=8)",
    "mxfp8_rceil",
    "mx(element=fp4_e2m1,scale_bits=4)",
    "mx(element=fp8_e5m2,flush_fp32_subnorms=true)",
    "microexponent(bit_width=13,block_size=32,sub_block_size=4,shift_bits=2)",
    "bfp(bit_width=12,block_size=16)",
    "nvfp4(tensor_scale=false)",
]


def check_product(program, folder, rng, config, kind, wild, rounding="even", opset=None):
    opset = int(opset or rng.choice([13, 17, 18, 21, 22]))
    node, x, w, x_axis, w_axis, rank = graphs.product(rng, kind, wild)
    passes = "bfp" in config.lower()
    if passes:
        w = np.where(np.isfinite(w), w, np.float32(1))
    source = graphs.model([node], {"x": x}, {"w": w}, opset, rank=rank)
    quantized = quantize(program, folder, source, config, "--rounding", rounding)
    expected = {
        "x": ms.quantize(x, format_of(config), axis=x_axis, rounding=rounding),
        "w": ms.quantize(w, format_of(config), axis=w_axis, rounding=rounding),
    }
    names = dict(zip(node.input, node_of(quantized).input))
    watched = with_values(quantized, [names["x"], names["w"]])
    (wanted,) = run(graphs.model([node], {k: expected[k] for k in "xw"}, {}, opset, rank=rank), expected, LEVELS[0])
    for level in LEVELS:
        y, got_x, got_w = run(watched, {"x": x}, level)
        assert_bits(got_w, expected["w"], not is_integer(config))
        assert_bits(got_x, expected["x"])
        for y in (y, run(quantized, {"x": x}, level)[0]):
            finite = np.isfinite(wanted)
            if finite.all() and not wild:
                assert np.abs(y - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("config", NAMES + OTHERS)
def test_products(program, tmp_path, config):
    rng = np.random.default_rng(NAMES.index(config) if config in NAMES else 100 + OTHERS.index(config))
    for case in range(CASES if config in NAMES else CASES // 2):
        kind = graphs.KINDS[case % len(graphs.KINDS)]
        check_product(program, tmp_path, rng, config, kind, wild=case % 3 == 2)


@pytest.mark.parametrize("rounding", ["nearest", "floor"])
@pytest.mark.parametrize("config", ["MXFP8E4M3", "MXFP4E2M1", "MXINT8", "MX6", "BFP16", "NVFP4"])
def test_rounding(program, tmp_path, config, rounding):
    rng = np.random.default_rng(1)
    for kind in ["MatMul", "Conv"]:
        check_product(program, tmp_path, rng, config, kind, False, rounding)


@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 5000.0])
def test_nvfp4_has_a_tensor_scale(program, tmp_path, magnitude):
    """The scales of blocks alone reach from 2^-6 to 448: activations of 1e-3 would be zeros, of 5000 clipped."""
    rng = np.random.default_rng(21)
    x, w = (rng.normal(size=shape).astype(np.float32) * np.float32(magnitude) for shape in [(8, 64), (64, 16)])
    source = graphs.model([helper.make_node("MatMul", ["x", "w"], ["y"], name="node")], {"x": x}, {"w": w}, 21, rank=2)
    for name, least in [("NVFP4", 15), ("nvfp4(tensor_scale=false)", 15 if magnitude == 1 else -1)]:
        quantized = quantize(program, tmp_path, source, name)
        y = x.astype(np.float64) @ w
        noise = run(quantized, {"x": x}, LEVELS[1])[0] - y
        decibels = 10 * np.log10((y**2).sum() / (noise**2).sum())
        assert decibels > least and (least > 0 or decibels < 5), (name, decibels)


@pytest.mark.parametrize("config", ["mx(element=fp8_e4m3,scale_mode=ceil)", "mx(element=fp6_e2m3,scale_mode=even)", "mxfp8_rceil", "mx(element=fp4_e2m1,scale_mode=rceil)"])
def test_the_top_of_float32(program, tmp_path, config):
    """Elements that would round to 2^128 are the largest number of their mantissa bits."""
    top = np.finfo(np.float32).max
    x = np.float32([[top, -top, 2.0**127, -1e38] + [0.0] * 28])
    bits = 1 if "fp4" in config else 3
    largest = np.float32(2.0**127 * (2 - 2.0**-bits))
    source = graphs.model([helper.make_node("MatMul", ["x", "w"], ["y"], name="node")], {"x": x}, {"w": np.ones((32, 1), np.float32)}, 18, rank=2)
    for rounding in ["even", "nearest"]:
        quantized = quantize(program, tmp_path, source, config, "--activations-only", "--rounding", rounding)
        watched = with_values(quantized, [node_of(quantized).input[0]])
        for level in LEVELS:
            got = run(watched, {"x": x}, level)[1]
            assert_bits(got[0, :3], np.float32([largest, -largest, 2.0**127]))
            assert np.isfinite(got).all()
        # The same numbers in the emulation.
        assert_bits(got, ms.quantize(x, config, rounding=rounding))


@pytest.mark.parametrize("config", NAMES)
def test_eight_bit_numbers(program, tmp_path, config):
    """Numbers of images, with many exact ties. ONNX Runtime's optimizations must not change how often a quotient rounds."""
    x = np.random.default_rng(13).integers(-128, 128, size=(100_000, 16)).astype(np.float32) / 128
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node")
    source = graphs.model([node], {"x": x}, {"w": np.ones((16, 1), np.float32)}, 18, rank=2)
    quantized = quantize(program, tmp_path, source, config, "--activations-only")
    watched = with_values(quantized, [node_of(quantized).input[0]])
    for level in LEVELS:
        assert_bits(run(watched, {"x": x}, level)[1], ms.quantize(x, format_of(config)))


# One NaN is all of a tensor with a scale.
@pytest.mark.parametrize("config", [*NAMES[:-1], "nvfp4(tensor_scale=false)"])
def test_every_bfloat16_number(program, tmp_path, config):
    """Each number beside a large one and a small one, in blocks of which it decides the scale, or not."""
    every = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    x = np.stack([np.repeat(every, 2), np.tile([1.0, 3.1e-5], 1 << 16)], axis=-1).reshape(-1, 4).astype(np.float32)
    x[:, 3] *= np.where(np.arange(len(x)) % 2 == 0, 1, 777)
    source = graphs.model([helper.make_node("MatMul", ["x", "w"], ["y"], name="node")], {"x": x}, {"w": np.ones((4, 1), np.float32)}, 18, rank=2)
    quantized = quantize(program, tmp_path, source, config, "--activations-only")
    watched = with_values(quantized, [node_of(quantized).input[0]])
    for level in LEVELS:
        assert_bits(run(watched, {"x": x}, level)[1], ms.quantize(x, config))


def test_weights_of_newest_types(program, tmp_path):
    """ONNX Runtime 1.32 has no kernels for them: the elements, the scales and the checker are looked at."""
    rng = np.random.default_rng(5)
    w = graphs.numbers(rng, (48, 6), False)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node")
    source = graphs.model([node], {"x": np.zeros((2, 48), np.float32)}, {"w": w}, 24, rank=2)
    for config in ["MXFP4E2M1", "MXFP8E4M3", "MXFP8E5M2"]:
        quantized = quantize(program, tmp_path, source, config, "--weights-only", "--newest-types")
        tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
        codes, scales = tensors["w_codes"].astype(np.float32), tensors["w_scales"].astype(np.float32)
        assert_bits(codes * np.repeat(scales, 32, axis=0)[:48], ms.quantize(w, config, axis=0))
    run = quantize(program, tmp_path, source, "MXFP6E3M2", "--weights-only", "--newest-types", check=False)
    assert run.returncode == 2 and "allowed with the newest types: mxfp4" in run.stderr


def detours():
    """Models in which the weight of `node` is found by a detour, with its value and axis."""
    rng = np.random.default_rng(3)
    w = graphs.numbers(rng, (24, 70), False)
    tensor = numpy_helper.from_array(w, "w")
    product = helper.make_node("MatMul", ["x", "v"], ["y"], name="node")
    flip = [helper.make_node("Transpose", ["w"], ["u"], perm=[1, 0]), helper.make_node("Identity", ["u"], ["v"])]
    yield "transpose", [*flip, product], {"w": w}, (), w.T, 0
    yield "constant", [helper.make_node("Constant", [], ["w"], value=tensor), flip[0], flip[1], product], {}, (), w.T, 0
    # Also used as it is: the float weight stays.
    shared = [*flip, product, helper.make_node("ReduceSum", ["w"], ["sum"], keepdims=0), helper.make_node("Add", ["y0", "sum"], ["y"])]
    shared[2] = helper.make_node("MatMul", ["x", "v"], ["y0"], name="node")
    yield "shared", shared, {"w": w}, (), w.T, 0
    # In a branch, from the graph around it.
    inner = [helper.make_node("MatMul", ["x", "v"], ["z"], name="node")]
    branch = helper.make_graph(inner, "then", [], [graphs.info("z", ["a", "b"])])
    outer = [*flip, helper.make_node("Constant", [], ["true"], value=numpy_helper.from_array(np.array(True)))]
    yield "branch", [*outer, helper.make_node("If", ["true"], ["y"], then_branch=branch, else_branch=branch)], {"w": w}, (), w.T, 0
    # In a function.
    body = [helper.make_node("Constant", [], ["w"], value=tensor), *flip, helper.make_node("MatMul", ["x", "v"], ["y"], name="node")]
    function = helper.make_function("mine", "Layer", ["x"], ["y"], body, [helper.make_opsetid("", 18)])
    yield "function", [helper.make_node("Layer", ["x"], ["y"], domain="mine", name="call")], {}, [function], w.T, 0


@pytest.mark.parametrize("config", ["MXFP8E4M3", "MX6", "MXINT8"])
@pytest.mark.parametrize("case", list(detours()), ids=lambda case: case[0])
def test_detours(program, tmp_path, case, config):
    name, nodes, weights, functions, w, axis = case
    x = graphs.numbers(np.random.default_rng(4), (3, 70), False)
    extra = [helper.make_opsetid("mine", 1)] if functions else []
    opset = 18 if functions else 21
    source = graphs.model(nodes, {"x": x}, weights, opset, functions, extra, rank=2)
    quantized = quantize(program, tmp_path, source, config)
    # Whatever has the float weight: constants of 24 × 70 numbers.
    floats = [tensor for tensor in quantized.graph.initializer if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2]
    assert [tensor.name for tensor in floats if 24 in tensor.dims] == (["w"] if name == "shared" else [])
    product = ms.quantize(x, config).astype(np.float64) @ ms.quantize(np.ascontiguousarray(w), config, axis=axis).astype(np.float64)
    if name == "shared":
        product += weights["w"].astype(np.float64).sum()
    for level in LEVELS:
        (y,) = run(quantized, {"x": x}, level)
        assert np.abs(y - product).max() <= 1e-5 * np.abs(product).max()


@pytest.mark.parametrize("config", ["MXFP8E4M3", "MXFP4E2M1"])
def test_float16(program, tmp_path, config):
    rng = np.random.default_rng(6)
    x, w = (graphs.numbers(rng, shape, False).astype(np.float16) for shape in [(4, 40), (40, 5)])
    source = graphs.model([helper.make_node("MatMul", ["x", "w"], ["y"], name="node")], {"x": x}, {"w": w}, 21, rank=2)
    quantized = quantize(program, tmp_path, source, config)
    watched = with_values(quantized, node_of(quantized).input, TensorProto.FLOAT16)
    for level in LEVELS:
        _, got_x, got_w = run(watched, {"x": x}, level)
        assert_bits(got_x, ms.quantize(x, config))
        assert_bits(got_w, ms.quantize(w, config, axis=0))


@pytest.mark.parametrize("config", ["MXFP8E4M3", "MXFP4E2M1", "MXINT8", "MX6", "BFP16"])
def test_calibrated_scales(program, tmp_path, config):
    """Each block has the scale of a block with the largest magnitude of calibration; larger numbers saturate."""
    rng = np.random.default_rng(9)
    w = graphs.numbers(rng, (6, 40, 1, 1), False)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="node")
    data = graphs.numbers(rng, (5, 40, 2, 3), False)
    source = graphs.model([node], {"x": data}, {"w": w}, 18, rank=4)
    onnx.save(source, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", calibration=data)
    script = [sys.executable, ROOT / "crates/burn-mx-onnx/python/calibrate.py", tmp_path / "model.onnx"]
    largest = tmp_path / "largest.safetensors"
    subprocess.run([*script, "--data", tmp_path / "data.npz", "--output", largest], check=True)
    quantized = quantize(program, tmp_path, None, config, "--calibration", largest)
    x = graphs.numbers(rng, (5, 40, 2, 3), False) * 3
    x[0, 1, 0, 0] = 0 if config == "BFP16" else np.nan
    size = {"BFP16": 8, "MX6": 16}.get(config, 32)
    wide = {
        "BFP16": "bfp(bit_width=16,block_size=64)",
        "MX6": "microexponent(bit_width=13,block_size=64)",
    }.get(config, f"mx(element={ {'MXFP8E4M3': 'fp8_e4m3', 'MXFP4E2M1': 'fp4_e2m1', 'MXINT8': 'int8'}.get(config) },block_size=64)")
    expected = np.empty_like(x)
    for start in range(0, 40, size):
        block = slice(start, start + size)
        amax = np.abs(data[:, block]).max()
        # No further than the end of the power of two: there each format is at its largest number.
        end = np.float32(2.0) ** (np.floor(np.log2(amax)) + 1) * np.float32(1 - 2**-24)
        pin = np.full_like(x[:, :2], 0)
        pin[:, 0] = amax
        both = np.concatenate([pin, np.clip(x[:, block], -end, end)], axis=1)
        expected[:, block] = ms.quantize(both, wide, axis=1)[:, 2:]
    watched = with_values(quantized, [node_of(quantized).input[0]])
    for level in LEVELS:
        assert_bits(run(watched, {"x": x}, level)[1], expected)


def test_tuned_weights(program, tmp_path):
    """Tuned weights and biases stand in for those of the model."""
    rng = np.random.default_rng(10)
    w, bias = graphs.numbers(rng, (32, 4), False), graphs.numbers(rng, (4,), False)
    nodes = [helper.make_node("Gemm", ["x", "w", "bias"], ["y"], name="node")]
    source = graphs.model(nodes, {"x": np.zeros((2, 32), np.float32)}, {"w": w, "bias": bias}, 21, rank=2)
    save_file({"w": -w, "bias": 2 * bias}, tmp_path / "tuned.safetensors")
    quantized = quantize(program, tmp_path, source, "MX9_ADAQUANT", "--weights-only", "--tuned", tmp_path / "tuned.safetensors")
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    assert_bits(tensors["bias"], 2 * bias)
    watched = with_values(quantized, [node_of(quantized).input[1]])
    assert_bits(run(watched, {"x": np.zeros((2, 32), np.float32)}, LEVELS[0])[1], ms.quantize(-w, "MX9", axis=0))
    refused = quantize(program, tmp_path, source, "MX9_ADAQUANT", check=False)
    assert refused.returncode == 2 and "does not tune" in refused.stderr
    save_file({"w": w[:, :2].copy()}, tmp_path / "tuned.safetensors")
    refused = quantize(program, tmp_path, source, "MX9", "--tuned", tmp_path / "tuned.safetensors", check=False)
    assert refused.returncode == 2 and "tensor `w`" in refused.stderr
