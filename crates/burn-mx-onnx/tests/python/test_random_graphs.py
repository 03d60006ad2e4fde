"""Random graphs: weights behind up to three operators, in branches, loops and functions, empty axes, versions of operators and files.

Each model runs in ONNX Runtime before and after. A product whose weight the program computes has the emulation's operands; every other
one has the float model's bits, and the report names it if its weight is constant. `ONNX_TEST_GRAPHS` is the number of models.
"""

import os

import microscaling as ms
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphs
from models import LEVELS, assert_bits, format_of, quantize, run

COUNT = int(os.environ.get("ONNX_TEST_GRAPHS", 60))
CONFIGS = ["MXFP8E4M3", "MXFP6E2M3", "MXFP4E2M1", "MXINT8", "MX6", "BFP16", "NVFP4", "mx(element=fp4_e2m1,block_size=8,scale_mode=even)"]
PLACES = ["graph", "graph", "branch", "loop", "function", "branch_of_function"]


class Scope:
    """Nodes and constants of one body. Functions have no initializers."""

    def __init__(self, rng, prefix, has_initializers=True):
        self.rng, self.prefix, self.has_initializers = rng, prefix, has_initializers
        self.nodes, self.initializers, self.count = [], [], 0

    def name(self):
        self.count += 1
        return f"{self.prefix}_{self.count}"

    def add(self, op_type, *inputs, output=None, **attributes):
        output = output or self.name()
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def constant(self, array):
        if array.dtype == np.float32 and array.ndim == 1 and self.rng.random() < 0.3:
            return self.add("Constant", value_floats=[float(value) for value in array])
        if not self.has_initializers or self.rng.random() < 0.4:
            return self.add("Constant", value=numpy_helper.from_array(array))
        name = self.name()
        tensor = numpy_helper.from_array(array, name)
        if array.dtype == np.float32 and self.rng.random() < 0.3:
            tensor = helper.make_tensor(name, TensorProto.FLOAT, array.shape, array.reshape(-1))
        self.initializers.append(tensor)
        return name

    def shape(self, *lengths):
        return self.constant(np.array(lengths, np.int64))

    def step(self, array):
        """An operator from a constant to `array`: that constant, a function that adds the node, and whether it is computed."""
        rng = self.rng
        kind = rng.choice(["Identity", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Cast", "Mul", "DequantizeLinear"])
        if array.dtype != np.float32 and kind in ("Cast", "Mul", "DequantizeLinear", "Flatten"):
            kind = "Identity"
        if kind == "Transpose":
            order = [int(axis) for axis in rng.permutation(array.ndim)]
            return np.ascontiguousarray(array.transpose(np.argsort(order))), lambda name: self.add(kind, name, perm=order), True
        if kind == "Reshape":
            given = [int(length) for length in array.shape]
            if rng.random() < 0.5 and array.size:
                given[rng.integers(array.ndim)] = -1
            return array.reshape(-1) if rng.random() < 0.5 else array[None], lambda name: self.add(kind, name, self.shape(*given)), True
        if kind == "Unsqueeze" and 1 in array.shape and array.ndim > 1:
            axis = array.shape.index(1)
            return array.squeeze(axis), lambda name: self.add(kind, name, self.shape(axis - (array.ndim if rng.random() < 0.5 else 0))), True
        if kind == "Squeeze":
            axis = int(rng.integers(array.ndim + 1))
            return np.expand_dims(array, axis), lambda name: self.add(kind, name, self.shape(axis)), True
        if kind == "Flatten" and array.ndim == 2:
            return array[:, None], lambda name: self.add(kind, name), True
        if kind == "Cast":
            return array.astype(np.float16), lambda name: self.add(kind, name, to=TensorProto.FLOAT), True
        if kind == "Mul":
            return array * np.float32(0.5), lambda name: self.add(kind, name, self.constant(np.float32(2.0))), False
        if kind == "DequantizeLinear":
            whole = np.clip(np.round(array * 16), -128, 127).astype(np.int8)
            return whole, lambda name: self.add(kind, name, self.constant(np.float32(1 / 16))), False
        return array, lambda name: self.add("Identity", name), True

    def weight(self, array):
        """A constant like `array` and the operators behind it: the name of the value, and whether it is computed."""
        steps, is_computed = [], True
        for _ in range(self.rng.integers(4)):
            if array.dtype == np.int8:
                break
            array, add, is_folded = self.step(array)
            steps.append(add)
            is_computed &= is_folded
        name = self.constant(array)
        for add in reversed(steps):
            name = add(name)
        return name, is_computed


def product_in(rng, at, place, opset, ir, outer, functions):
    """Adds the layer `at` to a model: its input, the axes of its products, and whether its weight is computed."""
    kind = str(rng.choice(graphs.KINDS))
    node, x, w, x_axis, w_axis, rank = graphs.product(rng, kind, False)
    # Of float16, so that a cast keeps it.
    w = w.astype(np.float16).astype(np.float32)
    is_function = place in ("function", "branch_of_function")
    # Before version 4 initializers are inputs, which branches do not have.
    body = Scope(rng, f"layer{at}", has_initializers=not is_function and ir > 3) if place != "graph" else outer
    is_argument = is_function and rng.random() < 0.2
    owner = outer if is_argument or (place in ("branch", "loop") and rng.random() < 0.5) else body
    weight, is_computed = owner.weight(w)
    names = {"x": f"x{at}", "w": "w" if is_argument else weight, "y": f"y{at}"}
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = f"node{at}"
    copy.input[:] = [names[name] for name in node.input]
    value = lambda name: graphs.info(name, [None] * rank)
    if place == "graph":
        copy.output[:] = [names["y"]]
        outer.nodes.append(copy)
    else:
        copy.output[:] = [f"inner{at}"]
        body.nodes.append(copy)
    if place in ("branch", "branch_of_function"):
        zeros = helper.make_node("Constant", [], [f"zero{at}"], value=numpy_helper.from_array(np.zeros([1] * rank, np.float32)))
        inside, around = (body, outer) if place == "branch" else (Scope(rng, f"branch{at}"), body)
        if place == "branch_of_function":
            inside.nodes.append(around.nodes.pop())
        branches = {
            "then_branch": helper.make_graph(inside.nodes, "then", [], [value(f"inner{at}")], inside.initializers),
            "else_branch": helper.make_graph([zeros], "else", [], [value(f"zero{at}")]),
        }
        around.add("If", around.constant(np.array(True)), output=names["y"], **branches)
    if place == "loop":
        inputs = [graphs.info(f"i{at}", [], TensorProto.INT64), graphs.info(f"c{at}", [], TensorProto.BOOL)]
        body.add("Identity", f"c{at}", output=f"d{at}")
        scanned = helper.make_graph(body.nodes, "loop", inputs, [graphs.info(f"d{at}", [], TensorProto.BOOL), value(f"inner{at}")], body.initializers)
        stacked = outer.add("Loop", outer.constant(np.array(1)), outer.constant(np.array(True)), body=scanned)
        outer.add("Squeeze", stacked, outer.shape(0), output=names["y"])
    if is_function:
        if place == "function":
            body.add("Identity", f"inner{at}", output=f"y{at}")
        arguments = [f"x{at}", *(["w"] if is_argument else [])]
        functions.append(helper.make_function("mine", f"Layer{at}", arguments, [f"y{at}"], body.nodes, [helper.make_opsetid("", opset)]))
        given = [f"x{at}", *([weight] if is_argument else [])]
        outer.nodes.append(helper.make_node(f"Layer{at}", given, [f"y{at}"], domain="mine"))
    return node, x, w, (x_axis, w_axis), rank, is_computed and not is_argument


def empty(rng, x, x_axis, kind):
    """`x`, or with an axis without elements that the float model takes."""
    axes = [axis for axis in range(x.ndim) if axis != x_axis % x.ndim]
    axes = [axis for axis in axes if not kind.startswith("Conv") or axis == 0]
    return np.take(x, [], axis=rng.choice(axes)) if axes and rng.random() < 0.25 else x


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_graphs(program, tmp_path, seed):
    rng = np.random.default_rng([77, seed])
    opset = int(rng.choice([13, 14, 17, 18, 20, 21]))
    outer, functions, layers = Scope(rng, "outer"), [], {}
    ir = int(rng.integers(3, 11))
    for at in range(rng.integers(1, 4)):
        # Functions are in files of version 8 and newer.
        place = str(rng.choice(PLACES if ir >= 8 else PLACES[:4]))
        layers[at] = product_in(rng, at, place, opset, ir, outer, functions)
    inputs = [graphs.info(f"x{at}", [None] * layer[1].ndim) for at, layer in layers.items()]
    if ir == 3:
        inputs += [graphs.info(tensor.name, tensor.dims, tensor.data_type) for tensor in outer.initializers]
    outputs = [graphs.info(f"y{at}", [None] * layer[4]) for at, layer in layers.items()]
    graph = helper.make_graph(outer.nodes, "g", inputs, outputs, outer.initializers)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid("mine", 1)] if functions else [])]
    source = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=ir)
    feeds = {f"x{at}": empty(rng, layer[1], layer[3][0], layer[0].op_type) for at, layer in layers.items()}
    # Optimizations fuse DequantizeLinear and MatMul into a product of integers.
    level = LEVELS[rng.integers(2) if all(layer[-1] for layer in layers.values()) else 0]
    before = run(source, feeds, level)

    config, rounding = str(rng.choice(CONFIGS)), str(rng.choice(["even", "nearest", "floor"]))
    parts = str(rng.choice(["both", "both", "weights", "activations"]))
    options = ["--rounding", rounding, *([f"--{parts}-only"] if parts != "both" else [])]
    done = quantize(program, tmp_path, source, config, *options, check=False)
    if not any(layer[-1] for layer in layers.values()):
        assert done.returncode == 2 and "these stay unchanged" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    quantized = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(quantized, full_check=True)
    assert {value.name for value in quantized.graph.input} == set(feeds)
    after = run(quantized, feeds, level)
    for at, (node, _, w, (x_axis, w_axis), rank, is_computed) in layers.items():
        assert (f"layer `node{at}` stays unchanged" in done.stdout) != is_computed, done.stdout
        x = feeds[f"x{at}"]
        if not is_computed:
            assert_bits(after[at], before[at])
            continue
        if parts != "weights" and x.size:
            x = ms.quantize(x, format_of(config), axis=x_axis, rounding=rounding)
        if parts != "activations":
            w = ms.quantize(w, format_of(config), axis=w_axis, rounding=rounding)
        operands = {"x": x, "w": w}
        (wanted,) = run(graphs.model([node], operands, {}, opset, rank=rank), operands, LEVELS[0])
        assert after[at].shape == wanted.shape
        assert not wanted.size or np.abs(after[at] - wanted).max() <= 1e-5 * np.abs(wanted).max()
