"""Small random models of one product, and models in which weights are found by detours."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def numbers(rng, shape, wild):
    """Numbers of many magnitudes: exact ties, zeros of both signs; if `wild`, subnormals, the largest numbers, NaN, infinities."""
    x = rng.normal(size=shape) * 2.0 ** rng.integers(-6, 6, size=shape)
    grid = rng.integers(-64, 64, size=shape) * 2.0 ** rng.integers(-7, 3, size=shape)
    x = np.where(rng.random(shape) < 0.4, grid, x).astype(np.float32)
    x = np.where(rng.random(shape) < 0.05, np.float32(0) * np.sign(x), x).astype(np.float32)
    if wild:
        few = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40, -1e-45, 1.1754944e-38, 2.0**-127, 1e30, -1e-30], np.float32)
        x = np.where(rng.random(shape) < 0.01, rng.choice(few, size=shape), x)
        # Whole rows of one magnitude, large or subnormal.
        scale = np.where(rng.random(shape[:1]) < 0.2, rng.choice([2.0**-140, 2.0**-120, 2.0**100, 2.0**118], size=shape[:1]), 1.0)
        with np.errstate(over="ignore"):
            x = x * scale.reshape((-1,) + (1,) * (len(shape) - 1)).astype(np.float32)
    return x.astype(np.float32)


def info(name, shape=None, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, weights, opset, functions=(), extra=(), rank=None):
    weights = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    inputs = [info(name, [f"{name}{axis}" for axis in range(x.ndim)], helper.np_dtype_to_tensor_dtype(x.dtype)) for name, x in inputs.items()]
    kind = inputs[0].type.tensor_type.elem_type
    rank = [None] if rank is None else [f"y{axis}" for axis in range(rank)]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", rank, kind)], weights)
    imports = [helper.make_opsetid("", opset), *extra]
    ir = 7 if opset < 15 and not functions else 8 if opset < 19 else 10
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=ir)


def size(rng, multiple=1):
    return int(rng.choice([1, 2, 3, 5, 7, 16, 31, 32, 33, 48, 64, 65, 96, 100])) * multiple


def product(rng, kind, wild):
    """A node of this kind, its input, its weight, the axes that it sums over in both, and the rank of its output."""
    k, n = size(rng), int(rng.integers(1, 20))
    if kind == "MatMul":
        x = numbers(rng, [(3, k), (2, 3, k), (k,), (2, 1, 2, k)][rng.integers(4)], wild)
        w = numbers(rng, [(k, n), (k, n), (k,)][rng.integers(3)], wild)
        return helper.make_node("MatMul", ["x", "w"], ["y"], name="node"), x, w, -1, max(w.ndim - 2, 0), x.ndim + w.ndim - 2
    if kind == "MatMulLeft":
        x = numbers(rng, [(k, n), (2, k, n), (k,)][rng.integers(3)], wild)
        w = numbers(rng, [(4, k), (k,)][rng.integers(2)], wild)
        x_axis = max(x.ndim - 2, 0)
        return helper.make_node("MatMul", ["w", "x"], ["y"], name="node"), x, w, x_axis, -1, x.ndim + w.ndim - 2
    if kind in ("Gemm", "GemmLeft"):
        a, b = (int(v) for v in rng.integers(2, size=2))
        left = (k, 4) if a else (4, k)
        right = (n, k) if b else (k, n)
        alpha = float(rng.choice([1.0, 0.5]))
        node = helper.make_node("Gemm", ["x", "w"] if kind == "Gemm" else ["w", "x"], ["y"], name="node", transA=a, transB=b, alpha=alpha)
        left, right = numbers(rng, left, wild), numbers(rng, right, wild)
        if kind == "Gemm":
            return node, left, right, 0 if a else 1, 1 if b else 0, 2
        return node, right, left, 1 if b else 0, 0 if a else 1, 2
    dims = int(rng.integers(1, 3))
    groups = int(rng.choice([1, 1, 2, 3]))
    inside, outside = size(rng), int(rng.integers(1, 6))
    kernel = tuple(int(v) for v in rng.integers(1, 4, size=dims))
    if kind == "Conv":
        w = numbers(rng, (outside * groups, inside, *kernel), wild)
        x = numbers(rng, (2, inside * groups, *(5,) * dims), wild)
        return helper.make_node("Conv", ["x", "w"], ["y"], name="node", group=groups), x, w, 1, 1, x.ndim
    w = numbers(rng, (inside * groups, outside, *kernel), wild)
    x = numbers(rng, (2, inside * groups, *(4,) * dims), wild)
    return helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="node", group=groups), x, w, 1, 0, x.ndim


KINDS = ["MatMul", "MatMulLeft", "Gemm", "GemmLeft", "Conv", "ConvTranspose"]
