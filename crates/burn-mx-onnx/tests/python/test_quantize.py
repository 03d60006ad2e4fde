"""Quantized models in ONNX Runtime, against the emulation of the Python module `microscaling`, bit for bit.

    pytest crates/burn-mx-onnx/tests/python

`QUANTIZE_ONNX` is the program; without it, cargo builds one. `ONNX_TEST_CASES` is the number of random models a format.
"""

import os
import subprocess
import sys
from pathlib import Path

import microscaling as ms
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

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
        other = (np.signbit(got) != np.signbit(expected)) & ~np.isnan(expected)
        assert not other.any(), (np.argwhere(other)[:5], got[other][:5], expected[other][:5])


def is_integer(config):
    return "int" in config.lower()


def check_product(program, folder, rng, config, kind, wild, rounding="even", opset=None):
    opset = int(opset or rng.choice([13, 17, 18, 21, 22]))
    node, x, w, x_axis, w_axis, rank = graphs.product(rng, kind, wild)
    passes = "bfp" in config.lower()
    if passes:
        w = np.where(np.isfinite(w), w, np.float32(1))
    source = graphs.model([node], {"x": x}, {"w": w}, opset, rank=rank)
    quantized = quantize(program, folder, source, config, "--rounding", rounding)
    onnx.checker.check_model(quantized, full_check=True)
    expected = {
        "x": ms.quantize(x, config, axis=x_axis, rounding=rounding),
        "w": ms.quantize(w, config, axis=w_axis, rounding=rounding),
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


@pytest.mark.parametrize("config", NAMES)
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
        onnx.checker.check_model(quantized, full_check=True)
        tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
        codes, scales = tensors["w_codes"].astype(np.float32), tensors["w_scales"].astype(np.float32)
        assert_bits(codes * np.repeat(scales, 32, axis=0)[:48], ms.quantize(w, config, axis=0))
    run = quantize(program, tmp_path, source, "MXFP6E3M2", "--weights-only", "--newest-types", check=False)
    assert run.returncode == 2 and "allowed with the newest types: mxfp4" in run.stderr


def test_the_rest_stays_byte_for_byte(program, tmp_path):
    """Other nodes, weights, texts, metadata and unknown fields."""
    rng = np.random.default_rng(2)
    w, kept = graphs.numbers(rng, (64, 8), False), graphs.numbers(rng, (8,), False)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Add", ["h", "kept"], ["a"], doc_string="a note"),
        helper.make_node("MatMul", ["a", "other"], ["y"], name="second"),
    ]
    other = graphs.numbers(rng, (8, 3), False)
    source = graphs.model(nodes, {"x": np.zeros((2, 64), np.float32)}, {"w": w, "kept": kept, "other": other}, 17, rank=2)
    source.metadata_props.add(key="author", value="somebody")
    # A field that no version of ONNX has: number 1000, a text.
    (tmp_path / "model.onnx").write_bytes(source.SerializeToString() + b"\xc2\x3e\x05hello")
    quantized = quantize(program, tmp_path, None, "MX6", "--include", "first")
    assert b"\xc2\x3e\x05hello" in (tmp_path / "out.onnx").read_bytes()
    assert [node for node in quantized.graph.node if node.op_type == "Add" and node.doc_string] == [source.graph.node[1]]
    assert node_of(quantized, "second") == source.graph.node[2]
    tensors = {tensor.name: tensor for tensor in quantized.graph.initializer}
    assert "w" not in tensors
    assert tensors["kept"] == source.graph.initializer[1] and tensors["other"] == source.graph.initializer[2]
    assert quantized.metadata_props == source.metadata_props and quantized.ir_version == 8


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
    onnx.checker.check_model(quantized, full_check=True)
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
    onnx.checker.check_model(quantized, full_check=True)
    watched = with_values(quantized, node_of(quantized).input, TensorProto.FLOAT16)
    for level in LEVELS:
        _, got_x, got_w = run(watched, {"x": x}, level)
        assert_bits(got_x, ms.quantize(x, config))
        assert_bits(got_w, ms.quantize(w, config, axis=0))


def test_external_data(program, tmp_path):
    """In place of the input's file the output has one of its own, and the same values."""
    rng = np.random.default_rng(7)
    w, other = graphs.numbers(rng, (64, 96), False), graphs.numbers(rng, (96, 32), False)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"), helper.make_node("MatMul", ["h", "other"], ["y"], name="second")]
    x = graphs.numbers(rng, (3, 64), False)
    source = graphs.model(nodes, {"x": x}, {"w": w, "other": other}, 21, rank=2)
    inside = quantize(program, tmp_path, source, "MXFP4E2M1", "--exclude", "second")
    onnx.save(source, tmp_path / "external.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    source, target = tmp_path / "external.onnx", tmp_path / "elsewhere" / "out.onnx"
    target.parent.mkdir()
    command = [program, source, "--config", "MXFP4E2M1", "--exclude", "second", "--output", target]
    subprocess.run(command, check=True, capture_output=True)
    onnx.checker.check_model(target, full_check=True)
    assert sorted(path.name for path in target.parent.iterdir()) == ["out.onnx", "out.onnx.data"]
    outside = onnx.load(target)
    assert {tensor.name: numpy_helper.to_array(tensor).tobytes() for tensor in inside.graph.initializer} == {
        tensor.name: numpy_helper.to_array(tensor).tobytes() for tensor in outside.graph.initializer
    }
    assert np.array_equal(run(inside, {"x": x}, LEVELS[0])[0], ort.InferenceSession(target).run(None, {"x": x})[0])

    # A place out of the folder is refused, and nothing is left behind.
    model = onnx.load(source, load_external_data=False)
    for location in ["../weights.bin", "/etc/passwd", "missing.bin", "link.bin"]:
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = location
        (target.parent / "link.bin").unlink(missing_ok=True)
        (target.parent / "link.bin").symlink_to("/etc/passwd")
        (target.parent / "bad.onnx").write_bytes(model.SerializeToString())
        before = sorted(target.parent.iterdir())
        refused = subprocess.run([program, target.parent / "bad.onnx", "--config", "MX6"], capture_output=True, text=True)
        assert refused.returncode == 2 and location in refused.stderr and "tensor `w`" in refused.stderr, refused.stderr
        assert sorted(target.parent.iterdir()) == before


def test_errors(program, tmp_path):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node")
    x, w = np.zeros((2, 32), np.float32), np.ones((32, 4), np.float32)
    good = graphs.model([node], {"x": x}, {"w": w}, 21, rank=2)

    def refused(model, config, *options):
        done = quantize(program, tmp_path, model, config, *options, check=False)
        assert done.returncode == 2 and not (tmp_path / "out.onnx").exists()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx"]
        return done.stderr

    assert "unknown" in refused(good, "MXFP7")
    assert "pattern `nothing*` matches no layer; the model has node" in refused(good, "MX6", "--exclude", "nothing*")
    assert "no layer to quantize" in refused(good, "MX6", "--exclude", "node")
    assert "`rounding` is stochastic" in refused(good, "MX6", "--rounding", "stochastic")
    assert "nf4" in refused(good, "nf4")
    assert "operator set" in refused(graphs.model([node], {"x": x}, {"w": w}, 12, rank=2), "MX6")
    assert "24 or more" in refused(good, "MXFP4E2M1", "--newest-types")
    double = graphs.model([node], {"x": x.astype(np.float64)}, {"w": w.astype(np.float64)}, 21, rank=2)
    assert "layer `node`: its weight is DOUBLE" in refused(double, "MX6")
    holes = graphs.model([node], {"x": x}, {"w": np.where(np.arange(4) == 2, np.nan, w).astype(np.float32)}, 21, rank=2)
    assert "tensor `w`" in refused(holes, "BFP16")
    short = onnx.ModelProto()
    short.CopyFrom(good)
    short.graph.initializer[0].raw_data = short.graph.initializer[0].raw_data[:-4]
    assert "tensor `w`: it has 127 elements, expected 128" in refused(short, "MX6")
    for size in [0, 1, 10, len(good.SerializeToString()) - 3]:
        (tmp_path / "model.onnx").write_bytes(good.SerializeToString()[:size])
        assert "no ONNX model" in refused(None, "MX6")
    (tmp_path / "model.onnx").write_bytes(b"\x00" * 100)
    assert "no ONNX model" in refused(None, "MX6")
    (tmp_path / "model.onnx").write_bytes(good.SerializeToString())
    (tmp_path / "out.onnx").write_text("mine")
    command = [program, tmp_path / "model.onnx", "--config", "MX6", "--output", tmp_path / "out.onnx"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "exists" in done.stderr and (tmp_path / "out.onnx").read_text() == "mine"


@pytest.mark.parametrize("config", NAMES)
def test_sizes(program, tmp_path, config):
    """Weights take the bits that the format has, but for tables and names."""
    w = graphs.numbers(np.random.default_rng(8), (1024, 1024), False)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node")
    source = graphs.model([node], {"x": np.zeros((1, 1024), np.float32)}, {"w": w}, 21, rank=2)
    quantize(program, tmp_path, source, config)
    packed = ms.pack(w, config, axis=0)
    expected = packed.elements.nbytes + packed.scales.nbytes
    # Tables, the blocks of rows (an int64 each, or two), names and nodes.
    assert expected < (tmp_path / "out.onnx").stat().st_size < expected + 49152


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
    onnx.checker.check_model(quantized, full_check=True)
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
