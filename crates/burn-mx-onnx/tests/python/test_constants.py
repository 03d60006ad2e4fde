"""Weights behind operators on constants: computed, or named in the report."""

import struct

import microscaling as ms
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphs
from models import LEVELS, assert_bits, node_of, quantize, run, with_values

RNG = np.random.default_rng(41)
X = graphs.numbers(RNG, (3, 24), False)
W = graphs.numbers(RNG, (24, 10), False).astype(np.float16).astype(np.float32)
PRODUCT = helper.make_node("MatMul", ["x", "v"], ["y"], name="node")


def integers(name, *values):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.int64)))


def before(op_type, stored, *second, **attributes):
    """Nodes from the initializer `w` to `v`, and the initializer."""
    inputs = ["w", "second"] if second else ["w"]
    nodes = [integers("second", *second)] if second else []
    return [*nodes, helper.make_node(op_type, inputs, ["v"], **attributes)], {"w": stored}


def computed():
    yield "cast", *before("Cast", W.astype(np.float16), to=TensorProto.FLOAT)
    yield "reshape", *before("Reshape", W.reshape(4, 6, 10), 24, -1)
    yield "reshape_copies", *before("Reshape", W.reshape(24, 2, 5), 0, 10)
    yield "flatten", *before("Flatten", W.reshape(4, 6, 10), axis=2)
    yield "unsqueeze", *before("Unsqueeze", W[:, 0].copy(), -1)
    yield "squeeze", *before("Squeeze", W[None, :, :, None].copy(), 0, -1)
    yield "squeeze_all", *before("Squeeze", W[None].copy())
    nodes, weights = before("Reshape", W.reshape(4, 6, 10), 24, 10)
    yield "two", [helper.make_node("Identity", ["w0"], ["w"]), *nodes], {"w0": weights["w"]}
    halves = helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT)
    shape = [integers("shape", 10, 24), helper.make_node("Reshape", ["c", "shape"], ["r"]), helper.make_node("Transpose", ["r"], ["v"])]
    yield "three", [halves, *shape], {"w": W.T.reshape(-1).astype(np.float16)}
    floats = helper.make_node("Constant", [], ["w"], value_floats=[float(value) for value in W[:, 0]])
    yield "value_floats", [floats, helper.make_node("Identity", ["w"], ["v"])], {}
    yield "value_floats_reshaped", [floats, *before("Reshape", None, 24, 1)[0]], {}


@pytest.mark.parametrize("parts", [(), ("--weights-only",)], ids=["both", "weights"])
@pytest.mark.parametrize("case", list(computed()), ids=lambda case: case[0])
def test_computed(program, tmp_path, case, parts):
    name, nodes, weights = case
    source = graphs.model([*nodes, PRODUCT], {"x": X}, weights, 18, rank=1 if name == "value_floats" else 2)
    floats = run(with_values(source, ["v"]), {"x": X}, LEVELS[0])[1]
    quantized = quantize(program, tmp_path, source, "MXFP8E4M3", *parts)
    # Neither the float weight nor what made it is left.
    assert {tensor.name for tensor in quantized.graph.initializer} & {"w", "w0"} == set()
    assert not {"v", "w", "r", "second", "shape"} & {name for node in quantized.graph.node for name in node.output}
    watched = with_values(quantized, [node_of(quantized).input[1]])
    for level in LEVELS:
        y, got = run(watched, {"x": X}, level)
        wanted = ms.quantize(floats, "MXFP8E4M3", axis=0)
        assert_bits(got, wanted)
        x = X if parts else ms.quantize(X, "MXFP8E4M3")
        assert np.abs(y - x @ wanted).max() <= 1e-5 * np.abs(x @ wanted).max()


def test_a_cast_to_less(program, tmp_path):
    """A weight that is rounded to float16 first is quantized from there, and products stay in float16."""
    nodes = [helper.make_node("Cast", ["w"], ["v"], to=TensorProto.FLOAT16), PRODUCT]
    w = (W * np.float32(1.0009)).astype(np.float32)
    source = graphs.model(nodes, {"x": X.astype(np.float16)}, {"w": w}, 18, rank=2)
    quantized = quantize(program, tmp_path, source, "MXINT8")
    watched = with_values(quantized, [node_of(quantized).input[1]], TensorProto.FLOAT16)
    got = run(watched, {"x": X.astype(np.float16)}, LEVELS[0])[1]
    assert_bits(got, ms.quantize(w.astype(np.float16), "MXINT8", axis=0), zero_signs=False)


def test_floats_in_packed_runs(program, tmp_path):
    """`float_data` may come in several packed fields, and in fields of one number."""
    raw = W.astype("<f4").tobytes()
    runs = [raw[:400], b"", raw[400:900]]
    fields = b"".join(b"\x22" + bytes([len(run) % 128 | 128, len(run) // 128]) + run for run in runs)
    fields += b"".join(b"\x25" + raw[at : at + 4] for at in range(900, len(raw), 4))
    dims = b"\x08\x18\x08\x0a\x10\x01"
    tensor = dims + fields + b"\x42\x01v"
    assert np.array_equal(numpy_helper.to_array(TensorProto.FromString(tensor)), W)
    source = graphs.model([PRODUCT], {"x": X}, {}, 18, rank=2)
    graph = source.graph.SerializeToString() + b"\x2a" + bytes([len(tensor) % 128 | 128, len(tensor) // 128]) + tensor
    source.ClearField("graph")
    head = source.SerializeToString()
    length = bytes([len(graph) % 128 | 128, len(graph) // 128])
    (tmp_path / "model.onnx").write_bytes(head + b"\x3a" + length + graph)
    quantized = quantize(program, tmp_path, None, "MXFP4E2M1")
    watched = with_values(quantized, [node_of(quantized).input[1]])
    assert_bits(run(watched, {"x": X}, LEVELS[0])[1], ms.quantize(W, "MXFP4E2M1", axis=0))
    # A run that is cut off is no list of floats.
    broken = tensor.replace(struct.pack("<BBB", 0x22, 400 % 128 | 128, 400 // 128), struct.pack("<BBB", 0x22, 399 % 128 | 128, 399 // 128), 1)
    graph = graph.replace(tensor, broken)
    (tmp_path / "model.onnx").write_bytes(head + b"\x3a" + length + graph)
    assert "no ONNX model" in quantize(program, tmp_path, None, "MXFP4E2M1", check=False).stderr


def sparse():
    at = np.flatnonzero(W)[::3]
    values = numpy_helper.from_array(W.reshape(-1)[at], "v")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(at, "indices"), W.shape)


def left():
    """Products that stay: the nodes before them, initializers, a change of the model, and words of the reason."""
    whole = np.round(W * 8).clip(-128, 127).astype(np.int8)
    scale = {"scale": np.float32(0.125)}
    nothing = lambda source: None
    yield "dequantize", [helper.make_node("DequantizeLinear", ["w", "scale"], ["v"])], {"w": whole, **scale}, nothing, "comes from DequantizeLinear"
    yield "cast_of_int8", [helper.make_node("Cast", ["w"], ["v"], to=TensorProto.FLOAT)], {"w": whole}, nothing, "from Cast from or to another type"
    yield "multiplied", [helper.make_node("Mul", ["w", "scale"], ["v"])], {"w": W, **scale}, nothing, "comes from Mul"
    behind = [helper.make_node("Mul", ["w", "scale"], ["u"]), helper.make_node("Transpose", ["u"], ["v"], perm=[1, 0])]
    yield "behind", behind, {"w": W.T.copy(), **scale}, nothing, "comes from Mul"
    shape = [integers("a", 24), integers("b", 10), helper.make_node("Concat", ["a", "b"], ["shape"], axis=0)]
    yield "shape", [*shape, helper.make_node("Reshape", ["w", "shape"], ["v"])], {"w": W.reshape(-1)}, nothing, "with a computed second input"
    yield "sparse_constant", [helper.make_node("Constant", [], ["v"], sparse_value=sparse())], {}, nothing, "or a sparse one"
    yield "sparse", [], {}, lambda source: source.graph.sparse_initializer.append(sparse()), "is sparse"
    yield "default", [], {"v": W}, lambda source: source.graph.input.append(graphs.info("v", W.shape)), "is the default of an input"


@pytest.mark.parametrize("case", list(left()), ids=lambda case: case[0])
def test_left(program, tmp_path, case):
    name, nodes, weights, change, reason = case
    other = helper.make_node("MatMul", ["x", "other"], ["z"], name="other")
    for is_alone in (True, False):
        source = graphs.model([*nodes, PRODUCT], {"x": X}, weights, 18, rank=2)
        change(source)
        if not is_alone:
            source.graph.node.append(other)
            source.graph.initializer.append(numpy_helper.from_array(W[:, :3].copy(), "other"))
            source.graph.output.append(graphs.info("z", [None, None]))
        done = quantize(program, tmp_path, source, "MXFP8E4M3", check=False)
        report = done.stderr if is_alone else done.stdout
        assert done.returncode == (2 if is_alone else 0) and "`node`" in report and "its weight `v` " in report and reason in report, report
    quantized = onnx.load(tmp_path / "out.onnx")
    # ONNX infers no shape of a sparse initializer.
    onnx.checker.check_model(quantized, full_check=name != "sparse")
    assert node_of(quantized) == PRODUCT
    # ONNX Runtime's optimizations fuse DequantizeLinear and MatMul into a product of integers.
    for level in LEVELS[: 1 if name == "dequantize" else 2]:
        before, after = (run(model, {"x": X}, level) for model in (source, quantized))
        assert_bits(after[0], before[0])
        wanted = ms.quantize(X, "MXFP8E4M3") @ ms.quantize(W[:, :3].copy(), "MXFP8E4M3", axis=0)
        assert np.abs(after[1] - wanted).max() <= 1e-5 * np.abs(wanted).max()
        if name == "default":
            assert_bits(run(quantized, {"x": X, "v": 2 * W}, level)[0], run(source, {"x": X, "v": 2 * W}, level)[0])
    # A pattern may name such a layer.
    assert quantize(program, tmp_path, source, "MXFP8E4M3", "--exclude", "node", check=False).returncode == 0


def functions():
    """Functions with a product whose weight is an argument, or which has an attribute of the function."""
    imports = [helper.make_opsetid("", 18)]
    inner = helper.make_node("Gemm", ["x", "v"], ["y"], name="node")
    yield "argument", helper.make_function("mine", "Layer", ["x", "v"], ["y"], [inner], imports), {}, "is an argument of the function around it"
    inner = helper.make_node("Gemm", ["x", "v"], ["y"], name="node")
    inner.attribute.append(onnx.AttributeProto(name="transB", ref_attr_name="is_turned", type=onnx.AttributeProto.INT))
    constant = helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(W.T.copy()))
    function = helper.make_function("mine", "Layer", ["x"], ["y"], [constant, inner], imports, ["is_turned"])
    yield "attribute", function, {"is_turned": 1}, "`transB` is one of the function around it"
    turn = helper.make_node("Transpose", ["w"], ["v"])
    turn.attribute.append(onnx.AttributeProto(name="perm", ref_attr_name="order", type=onnx.AttributeProto.INTS))
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(W))
    nodes = [constant, turn, helper.make_node("MatMul", ["x", "v"], ["y"], name="node")]
    function = helper.make_function("mine", "Layer", ["x"], ["y"], nodes, imports, ["order"])
    yield "order", function, {"order": [0, 1]}, "comes from Transpose with an attribute of the function"


@pytest.mark.parametrize("case", list(functions()), ids=lambda case: case[0])
def test_left_in_functions(program, tmp_path, case):
    _, function, attributes, reason = case
    call = helper.make_node("Layer", list(function.input), ["a"], domain="mine", **attributes)
    nodes = [call, helper.make_node("MatMul", ["a", "other"], ["y"], name="other")]
    weights = {"other": W[:10, :3].copy(), **({"v": W} if "v" in function.input else {})}
    source = graphs.model(nodes, {"x": X}, weights, 18, [function], [helper.make_opsetid("mine", 1)], rank=2)
    done = quantize(program, tmp_path, source, "MXFP8E4M3", check=False)
    assert done.returncode == 0 and "`node`" in done.stdout and reason in done.stdout, done.stdout + done.stderr
    quantized = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(quantized, full_check=True)
    wanted = ms.quantize(X @ W, "MXFP8E4M3") @ ms.quantize(weights["other"], "MXFP8E4M3", axis=0)
    assert np.abs(run(quantized, {"x": X}, LEVELS[0])[0] - wanted).max() <= 1e-5 * np.abs(wanted).max()
