"""`calibrate.py` on models of many kinds: the largest magnitudes are those of NumPy's own products."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

import graphs
from models import ROOT, quantize

SCRIPT = ROOT / "crates/burn-mx-onnx/python/calibrate.py"
RNG = np.random.default_rng(51)


def calibrate(folder, model, data, *options, check=True):
    if model is not None:
        onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **data)
    command = [sys.executable, SCRIPT, folder / "model.onnx", "--data", folder / "data.npz", "--output", folder / "largest.safetensors"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    return load_file(folder / "largest.safetensors")


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_types(program, tmp_path, kind):
    """Inputs and intermediates in float16; data may be float32."""
    x, w = RNG.normal(size=(40, 16)).astype(kind), RNG.normal(size=(16, 8)).astype(kind)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"), helper.make_node("MatMul", ["h", "v"], ["y"], name="second")]
    model = graphs.model(nodes, {"x": x}, {"w": w, "v": w[:8].copy()}, 18, rank=2)
    largest = calibrate(tmp_path, model, {"calibration": x.astype(np.float32)})
    assert largest["x"].dtype == np.float32 and np.array_equal(largest["x"], np.abs(x).max(axis=0))
    h = np.abs(x.astype(np.float64) @ w).max(axis=0)
    assert np.allclose(largest["h"], h, rtol=2e-3 if kind == np.float16 else 1e-5)
    quantize(program, tmp_path, model, "MXINT8", "--calibration", tmp_path / "largest.safetensors")


def test_two_inputs(tmp_path):
    """An array for each input, by the inputs' names or in the order of `--inputs`."""
    ids, mask = RNG.integers(10, size=(50, 6)), RNG.random((50, 6, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("Mul", ["e", "mask"], ["m"]),
        helper.make_node("MatMul", ["m", "w"], ["y"], name="node"),
    ]
    table = RNG.normal(size=(10, 8)).astype(np.float32)
    model = graphs.model(nodes, {"ids": ids, "mask": mask}, {"table": table, "w": np.ones((8, 2), np.float32)}, 18, rank=3)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    wanted = np.abs(table[ids] * mask).max(axis=(0, 1))
    assert np.array_equal(calibrate(tmp_path, model, {"ids": ids, "mask": mask})["m"], wanted)
    assert np.array_equal(calibrate(tmp_path, model, {"a": ids.astype(np.int32), "b": mask}, "--inputs", "a", "b")["m"], wanted)
    for data, options, words in [
        ({"ids": ids}, (), "has no array `mask` for the input `mask`; it has ids"),
        ({"ids": ids, "mask": mask}, ("--inputs", "ids"), "`--inputs` has 1 names; the model has 2 inputs: ids, mask"),
        ({"ids": ids, "mask": mask[:3]}, (), "different numbers of items"),
        ({"ids": mask, "mask": mask}, (), "the array `ids` is float32, and the input `ids` is int64"),
    ]:
        done = calibrate(tmp_path, model, data, *options, check=False)
        assert done.returncode == 1 and words in done.stderr, done.stderr


def test_empty_intermediates(tmp_path):
    """A layer that gets nothing in some batches, such as boxes that a network did not find."""
    nodes = [
        helper.make_node("ReduceMax", ["x", "axes"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "limit"], ["is_large"]),
        helper.make_node("Compress", ["x", "is_large"], ["h"], axis=0),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="node"),
    ]
    x = RNG.normal(size=(64, 8)).astype(np.float32)
    x[:32] = -np.abs(x[:32])
    weights = {"axes": np.int64([1]), "limit": np.float32(1), "w": np.ones((8, 2), np.float32)}
    model = graphs.model(nodes, {"x": x}, weights, 18, rank=2)
    wanted = np.abs(x[x.max(axis=1) > 1]).max(axis=0)
    assert np.array_equal(calibrate(tmp_path, model, {"calibration": x})["h"], wanted)
    assert np.array_equal(calibrate(tmp_path, model, {"calibration": x[:32]})["h"], np.zeros(8, np.float32))


def test_large_external_data(tmp_path):
    """2.35 GB of external data, more than a message of protobuf can have; the file has holes for most of it."""
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=(9_180_000, 64), data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "table.bin", "offset": 0, "length": 9_180_000 * 256}.items():
        table.external_data.add(key=key, value=str(value))
    rows = RNG.normal(size=(10, 64)).astype(np.float32)
    with open(tmp_path / "table.bin", "wb") as file:
        file.write(rows.tobytes())
        file.truncate(9_180_000 * 256)
    ids = RNG.integers(10, size=(40,))
    nodes = [helper.make_node("Gather", ["table", "x"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"], name="node")]
    model = graphs.model(nodes, {"x": ids}, {"w": np.ones((64, 2), np.float32)}, 18, rank=2)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model.graph.initializer.append(table)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert np.array_equal(calibrate(tmp_path, None, {"calibration": ids})["h"], np.abs(rows[ids]).max(axis=0))


def test_weights_behind_operators(program, tmp_path):
    """The layers are those of the program, whatever operators their constants come through."""
    x, w = RNG.normal(size=(9, 16)).astype(np.float32), RNG.normal(size=(4, 4, 3)).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["c", "shape"], ["v"]),
        helper.make_node("MatMul", ["x", "v"], ["y"], name="node"),
    ]
    model = graphs.model(nodes, {"x": x}, {"w": w, "shape": np.int64([16, 3])}, 18, rank=2)
    assert np.array_equal(calibrate(tmp_path, model, {"calibration": x})["x"], np.abs(x).max(axis=0))
    quantize(program, tmp_path, model, "MXINT8", "--calibration", tmp_path / "largest.safetensors")
