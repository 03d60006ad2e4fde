"""The files that `quantize_onnx` writes: what stays, sizes, external data, names, errors."""

import subprocess

import microscaling as ms
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import graphs
from models import LEVELS, NAMES, format_of, node_of, quantize, run


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

    # A place out of the folder or a file that is too short is refused, and nothing is left behind.
    model = onnx.load(source, load_external_data=False)
    (target.parent / "short.bin").write_bytes(b"1234")
    for location in ["../weights.bin", "/etc/passwd", "missing.bin", "link.bin", "short.bin"]:
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = location
        (target.parent / "link.bin").unlink(missing_ok=True)
        (target.parent / "link.bin").symlink_to("/etc/passwd")
        (target.parent / "bad.onnx").write_bytes(model.SerializeToString())
        before = sorted(target.parent.iterdir())
        refused = subprocess.run([program, target.parent / "bad.onnx", "--config", "MX6"], capture_output=True, text=True)
        assert refused.returncode == 2 and location in refused.stderr and "tensor `w`" in refused.stderr, refused.stderr
        assert sorted(target.parent.iterdir()) == before

    # The data file of the output exists, or is a folder.
    command = [program, source, "--config", "MX6", "--output", tmp_path / "other.onnx"]
    (tmp_path / "other.onnx.data").write_text("mine")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "other.onnx.data exists" in done.stderr
    assert not (tmp_path / "other.onnx").exists() and (tmp_path / "other.onnx.data").read_text() == "mine"
    (tmp_path / "other.onnx").mkdir()
    done = subprocess.run([*command, "--force"], capture_output=True, text=True)
    assert done.returncode == 2 and "other.onnx: " in done.stderr and (tmp_path / "other.onnx.data").read_text() == "mine"


def test_external_data_of_a_constant(program, tmp_path):
    """Nodes' attributes with external data are refused: the output would still name the input's file."""
    w = numpy_helper.from_array(np.ones((32, 4), np.float32), "w")
    nodes = [helper.make_node("Constant", [], ["w"], value=w), helper.make_node("MatMul", ["x", "w"], ["y"], name="node")]
    source = graphs.model(nodes, {"x": np.zeros((2, 32), np.float32)}, {}, 21, rank=2)
    data = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0, "convert_attribute": True}
    onnx.save(source, tmp_path / "model.onnx", **data)
    done = quantize(program, tmp_path, None, "MX6", check=False)
    assert done.returncode == 2 and "external data at `weights.bin`: it is a node's attribute" in done.stderr


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
    for opset in [12, 27]:
        other = graphs.model([node], {"x": x}, {"w": w}, 21, rank=2)
        other.opset_import[0].version = opset
        assert f"the operator set of the model is {opset}; allowed: 13 to 26" in refused(other, "MX6")
    del other.opset_import[:]
    assert "the operator set of the model is 0" in refused(other, "MX6")
    assert "24 or more" in refused(good, "MXFP4E2M1", "--newest-types")
    double = graphs.model([node], {"x": x.astype(np.float64)}, {"w": w.astype(np.float64)}, 21, rank=2)
    assert "layer `node`: its weight is DOUBLE" in refused(double, "MX6")
    # What is excluded is no error.
    both = [node, helper.make_node("MatMul", ["a", "b"], ["c"], name="other")]
    mixed = graphs.model(both, {"x": x, "a": x.astype(np.float64)}, {"w": w, "b": w.astype(np.float64)}, 21, rank=2)
    assert "layer `other`: its weight is DOUBLE" in refused(mixed, "MX6")
    assert quantize(program, tmp_path, mixed, "MX6", "--exclude", "other").graph.node[-1].name == "other"
    (tmp_path / "out.onnx").unlink()
    dynamic = onnx.ModelProto()
    dynamic.CopyFrom(good)
    dynamic.graph.initializer[0].dims[1] = -1
    assert "layer `node`: axis 1 of its weight `w` has the length -1, which is dynamic" in refused(dynamic, "MX6")
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


def test_names(program, tmp_path):
    """A reader of the graph sees what each node and constant belongs to."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node")
    w = graphs.numbers(np.random.default_rng(11), (70, 8), False)
    source = graphs.model([node], {"x": np.zeros((2, 70), np.float32)}, {"w": w}, 21, rank=2)
    for config in NAMES:
        quantized = quantize(program, tmp_path, source, config)
        names = [node.name for node in quantized.graph.node]
        assert len(set(names)) == len(names)
        assert all(name == "node" or name.startswith(("x_", "w_")) for name in names), names
        assert [name for name in names if name.startswith("x_")] == ["x_quantized"]
        assert all(tensor.name.startswith(("w_", "mx_")) for tensor in quantized.graph.initializer)
        (function,) = quantized.functions
        assert node_of(quantized, "x_quantized").op_type == function.name
        letters = "".join(letter for letter in format_of(config).lower() if letter.isalnum())
        assert letters.startswith(function.name.removesuffix("_padded").replace("_", ""))


@pytest.mark.parametrize("config", NAMES)
def test_sizes(program, tmp_path, config):
    """Weights take the bits that the format has, but for tables and names."""
    w = graphs.numbers(np.random.default_rng(8), (1024, 1024), False)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node")
    source = graphs.model([node], {"x": np.zeros((1, 1024), np.float32)}, {"w": w}, 21, rank=2)
    quantize(program, tmp_path, source, config)
    packed = ms.pack(w, format_of(config), axis=0)
    expected = packed.elements.nbytes + packed.scales.nbytes
    # Of float32's bytes: MXFP4 4.25 bits of 32, and the tables.
    assert config != "MXFP4E2M1" or (tmp_path / "out.onnx").stat().st_size <= 0.16 * w.nbytes
    # Tables, the blocks of rows (an int64 each, or two), names and nodes.
    assert expected < (tmp_path / "out.onnx").stat().st_size < expected + 49152
