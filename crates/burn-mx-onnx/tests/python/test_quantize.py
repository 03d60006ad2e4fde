"""Quantized models in ONNX Runtime, against the emulation of the Python module `microscaling`, bit for bit.

    pytest crates/burn-mx-onnx/tests/python

`QUANTIZE_ONNX` is the program; without it, cargo builds one. `ONNX_TEST_CASES` is the number of random models a format.
"""

import os
import subprocess
from pathlib import Path

import microscaling as ms
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphs

ROOT = Path(__file__).parents[4]
CASES = int(os.environ.get("ONNX_TEST_CASES", 12))
NAMES = ["MXFP8E5M2", "MXFP8E4M3", "MXFP6E3M2", "MXFP6E2M3", "MXFP4E2M1", "MXINT8", "MX4", "MX6", "MX9", "BFP16", "NVFP4"]
OTHERS = [
    "mx(element=int4,block_size=16)",
    "mx(element=int2,block_size=8)",
    "mx(element=int8,block_size=8)",
    "mx(element=fp8_e4m3,block_size=0)",
    "mx(element=fp6_e2m3,block_size=5,scale_mode=ceil)",
    "mx(element=fp4_e2m1,scale_mode=even)",
    "mx(element=int8,scale_mode=even)",
    "mxfp8_rceil",
    "mx(element=fp4_e2m1,scale_bits=4)",
    "mx(element=fp8_e5m2,flush_fp32_subnorms=true)",
    "microexponent(bit_width=13,block_size=32,sub_block_size=4,shift_bits=2)",
    "bfp(bit_width=12,block_size=16)",
    "nvfp4(tensor_scale=true)",
]
LEVELS = [ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL]


@pytest.fixture(scope="session")
def program():
    if "QUANTIZE_ONNX" in os.environ:
        return os.environ["QUANTIZE_ONNX"]
    subprocess.run(["cargo", "build", "--release", "-p", "burn-mx-onnx"], cwd=ROOT, check=True)
    return str(ROOT / "target/release/quantize_onnx")


def quantize(program, folder, model, config, *options, check=True):
    """The quantized model, from a file to a file."""
    source, target = folder / "model.onnx", folder / "out.onnx"
    if model is not None:
        onnx.save(model, source)
    run = subprocess.run(
        [program, source, "--config", config, "--output", target, "--force", *options], capture_output=True, text=True
    )
    if not check:
        return run
    assert run.returncode == 0, run.stderr
    return onnx.load(target)


def run(model, feeds, level):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def with_values(model, names, kind=TensorProto.FLOAT):
    """The model with more of its values as outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(graphs.info(name, None, kind) for name in names)
    return copy


def node_of(model, name="node"):
    return next(node for node in model.graph.node if node.name == name)


def assert_bits(got, expected, zero_signs=True):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert (np.isnan(got) == np.isnan(expected)).all()
    same = (got == expected) | np.isnan(expected)
    assert same.all(), (np.argwhere(~same)[:5], got[~same][:5], expected[~same][:5])
    if zero_signs:
        assert (np.signbit(got) == np.signbit(expected))[~np.isnan(expected)].all()


def is_integer(config):
    return "int" in config.lower()


def check_product(program, folder, rng, config, kind, wild, rounding="even", opset=None):
    opset = int(opset or rng.choice([13, 17, 18, 21, 22]))
    node, x, w, x_axis, w_axis = graphs.product(rng, kind, wild)
    passes = "bfp" in config.lower()
    if passes:
        w = np.where(np.isfinite(w), w, np.float32(1))
    source = graphs.model([node], {"x": x}, {"w": w}, opset)
    quantized = quantize(program, folder, source, config, "--rounding", rounding)
    onnx.checker.check_model(quantized, full_check=True)
    expected = {
        "x": ms.quantize(x, config, axis=x_axis, rounding=rounding),
        "w": ms.quantize(w, config, axis=w_axis, rounding=rounding),
    }
    names = dict(zip(node.input, node_of(quantized).input))
    watched = with_values(quantized, [names["x"], names["w"]])
    (wanted,) = run(graphs.model([node], {k: expected[k] for k in "xw"}, {}, opset), expected, LEVELS[0])
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


@pytest.mark.parametrize("config", NAMES)
def test_every_bfloat16_number(program, tmp_path, config):
    """Each number beside a large one and a small one, in blocks of which it decides the scale, or not."""
    every = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    x = np.stack([np.repeat(every, 2), np.tile([1.0, 3.1e-5], 1 << 16)], axis=-1).reshape(-1, 4).astype(np.float32)
    x[:, 3] *= np.where(np.arange(len(x)) % 2 == 0, 1, 777)
    source = graphs.model([helper.make_node("MatMul", ["x", "w"], ["y"], name="node")], {"x": x}, {"w": np.ones((4, 1), np.float32)}, 18)
    quantized = quantize(program, tmp_path, source, config, "--activations-only")
    watched = with_values(quantized, [node_of(quantized).input[0]])
    for level in LEVELS:
        assert_bits(run(watched, {"x": x}, level)[1], ms.quantize(x, config))
