"""Models that were quantized before, versions of the file's format, and empty batches."""

import microscaling as ms
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphs
from models import LEVELS, assert_bits, format_of, node_of, quantize, run, with_values

X = graphs.numbers(np.random.default_rng(31), (3, 70), False)


def two_layers(rng, ir=10, as_inputs=False):
    """Two products of one input; if `as_inputs`, initializers are inputs too."""
    weights = {"v": graphs.numbers(rng, (70, 5), False), "w": graphs.numbers(rng, (70, 4), False)}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], name="first"),
        helper.make_node("MatMul", ["x", "w"], ["b"], name="second"),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=1),
    ]
    source = graphs.model(nodes, {"x": X}, weights, 17, rank=2)
    source.ir_version = ir
    if as_inputs:
        source.graph.input.extend(graphs.info(name, w.shape) for name, w in weights.items())
    return source, weights


def expected(weights, config, *roundings):
    operands = zip(weights.values(), roundings)
    quantized = [ms.quantize(w, config, axis=0, rounding=rounding).astype(np.float64) for w, rounding in operands]
    inputs = [ms.quantize(X, config, rounding=rounding).astype(np.float64) for rounding in roundings]
    return np.concatenate([x @ w for x, w in zip(inputs, quantized)], axis=1)


@pytest.mark.parametrize("roundings", [("even", "even"), ("even", "floor"), ("floor", "nearest")])
def test_one_layer_after_the_other(program, tmp_path, roundings):
    """A function is used again if it is the same one; another rounding has another one."""
    source, weights = two_layers(np.random.default_rng(32))
    once = quantize(program, tmp_path, source, "MXFP8E4M3", "--include", "first", "--rounding", roundings[0])
    twice = quantize(program, tmp_path, once, "MXFP8E4M3", "--include", "second", "--rounding", roundings[1])
    names = [function.name for function in twice.functions]
    assert len(set(names)) == len(names) == (1 if roundings[0] == roundings[1] else 2)
    assert [entry.domain for entry in twice.opset_import].count("burn_mx") == 1
    wanted = expected(weights, "MXFP8E4M3", *roundings)
    for level in LEVELS:
        (y,) = run(twice, {"x": X}, level)
        assert np.abs(y - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_second_time(program, tmp_path):
    """Layers that are quantized already stay as they are, which the report says."""
    source, weights = two_layers(np.random.default_rng(32))
    once = quantize(program, tmp_path, source, "MXFP8E4M3", "--include", "first")
    done = quantize(program, tmp_path, once, "MXFP8E4M3", check=False)
    assert done.returncode == 0 and done.stdout.count("stays unchanged") == 1 and "layer `first` stays" in done.stdout
    both = onnx.load(tmp_path / "out.onnx")
    wanted = expected(weights, "MXFP8E4M3", "even", "even")
    assert np.abs(run(both, {"x": X}, LEVELS[1])[0] - wanted).max() <= 1e-5 * np.abs(wanted).max()
    done = quantize(program, tmp_path, both, "MXFP8E4M3", check=False)
    assert done.returncode == 2 and "these stay unchanged: `first`: its weight" in done.stderr


@pytest.mark.parametrize("options", [(), ("--weights-only",), ("--activations-only",)])
def test_the_oldest_files(program, tmp_path, options):
    """Before version 4 each initializer is an input. Weights leave the inputs, and files of version 4 take the additions."""
    source, weights = two_layers(np.random.default_rng(33), ir=3, as_inputs=True)
    first = quantize(program, tmp_path, source, "MXFP8E4M3", "--include", "first", *options)
    second = quantize(program, tmp_path, first, "MXFP8E4M3", "--include", "second", *options)
    for model in (first, second):
        assert model.ir_version >= (4 if options == ("--weights-only",) else 8)
        assert [value.name for value in model.graph.input] == ["x"]
    for level in LEVELS:
        y = run(second, {"x": X}, level)[0]
        x, v, w = (array.astype(np.float64) for array in (X, *weights.values()))
        if "--activations-only" not in options:
            v, w = (ms.quantize(w, "MXFP8E4M3", axis=0).astype(np.float64) for w in weights.values())
        if "--weights-only" not in options:
            x = ms.quantize(X, "MXFP8E4M3").astype(np.float64)
        wanted = np.concatenate([x @ v, x @ w], axis=1)
        assert np.abs(y - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_types_have_a_version(program, tmp_path):
    """8-bit floats are in files of version 9 and newer."""
    source, _ = two_layers(np.random.default_rng(34), ir=8)
    source.opset_import[0].version = 21
    assert quantize(program, tmp_path, source, "MXFP8E4M3", "--weights-only").ir_version == 9
    assert quantize(program, tmp_path, source, "MXINT8", "--weights-only").ir_version == 8


@pytest.mark.parametrize("opset", [13, 18, 21])
@pytest.mark.parametrize("config", ["MXFP8E4M3", "MX6", "BFP16", "NVFP4"])
@pytest.mark.parametrize("kind", graphs.KINDS)
def test_empty_activations(program, tmp_path, kind, config, opset):
    """An axis without elements, wherever the float model takes one. Other inputs of the same model have the emulation's bits."""
    rng = np.random.default_rng(35 + opset)
    # Blocks that fill the axis, and ones that do not.
    for _ in range(2):
        node, x, w, x_axis, w_axis, rank = graphs.product(rng, kind, False)
        source = graphs.model([node], {"x": x}, {"w": w}, opset, rank=rank)
        quantized = quantize(program, tmp_path, source, config)
        watched = with_values(quantized, [dict(zip(node.input, node_of(quantized).input))["x"]])
        assert_bits(run(watched, {"x": x}, LEVELS[1])[1], ms.quantize(x, format_of(config), axis=x_axis))
        for axis in range(x.ndim):
            is_place = kind.startswith("Conv") and axis > 1
            if axis == x_axis % x.ndim or is_place:
                continue
            empty = np.take(x, [], axis=axis)
            for level in LEVELS:
                (before,) = run(source, {"x": empty}, level)
                after, activation = run(watched, {"x": empty}, level)
                assert after.shape == before.shape and activation.shape == empty.shape
