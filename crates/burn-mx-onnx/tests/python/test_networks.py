"""Whole networks, layer by layer: quantized inputs and weights equal the emulation's bit for bit, and products equal float32's.

The network of `examples/onnx` is always there. More networks are tested where they are:

    python3 crates/burn-mx-lab/python/fetch.py                     # EfficientNet-Lite0, in target/pretrained
    pip install --no-deps rapidocr-onnxruntime==1.4.4        # PP-OCRv4: text detection and recognition, and the angle of texts
"""

from importlib.util import find_spec
from pathlib import Path

import microscaling as ms
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, version_converter
from safetensors.numpy import load_file

import graphs
from models import LEVELS, NAMES, ROOT, assert_bits, format_of, is_integer, quantize, run, with_values

OPERATORS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


def digits(_):
    folder = ROOT / "examples/onnx"
    return folder / "digits_cnn.onnx", load_file(folder / "digits_cnn.safetensors")["test"][:48]


def efficientnet(_):
    folder = ROOT / "target/pretrained"
    if not (folder / "efficientnet-lite0.onnx").exists():
        pytest.skip("crates/burn-mx-lab/python/fetch.py did not run")
    return folder / "efficientnet-lite0.onnx", load_file(folder / "photos.safetensors")["test"][:2]


def text(width, height):
    """Images of lines of text, from −1 to 1."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), "white")
    for line in range(0, height - 24, 32):
        ImageDraw.Draw(image).text((6, line + 4), f"MXFP{line % 7 + 4} blocks of 32 share a scale", "black", font_size=24)
    return (np.asarray(image, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]


def rapidocr(part, width, height):
    def network(folder):
        spec = find_spec("rapidocr_onnxruntime")
        if spec is None:
            pytest.skip("rapidocr-onnxruntime is not installed")
        (path,) = (Path(spec.origin).parent / "models").glob(f"*_{part}_infer.onnx")
        # Its operator set is 11 or 12.
        model = version_converter.convert_version(onnx.load(path), 17)
        for at, node in enumerate(model.graph.node):
            node.name = node.name or f"{node.op_type}_{at}"
        onnx.save(model, folder / "network.onnx")
        return folder / "network.onnx", text(width, height)

    return network


NETWORKS = {
    "digits": digits,
    "efficientnet": efficientnet,
    "text_angle": rapidocr("cls", 192, 48),
    "text_detection": rapidocr("det", 320, 160),
    "text_recognition": rapidocr("rec", 320, 48),
}


def sqnr(reference, other):
    reference, other = reference.astype(np.float64), other.astype(np.float64)
    return 10 * np.log10((reference**2).sum() / max(((reference - other) ** 2).sum(), 1e-300))


def layers(model):
    """The products with a constant operand: the node, and which operand depends on the model's inputs."""
    names = {tensor.name for tensor in model.graph.initializer}
    moving = {value.name for value in model.graph.input} - names
    for node in model.graph.node:
        is_moving = [name in moving for name in node.input]
        if any(is_moving):
            moving.update(node.output)
        if node.op_type in OPERATORS and is_moving[0] != is_moving[1]:
            yield node, is_moving.index(True)


def axes(node, moving, x, w):
    """The axes that a product sums over, in its activation and its weight."""
    if node.op_type in ("Conv", "ConvTranspose"):
        return 1, int(node.op_type == "Conv")
    flags = {attribute.name: attribute.i for attribute in node.attribute}
    inner = [-1, -2]
    if flags.get("transA"):
        inner[0] = -2
    if flags.get("transB"):
        inner[1] = -1
    return tuple(max(axis + array.ndim, 0) for axis, array in [(inner[moving], x), (inner[1 - moving], w)])


def check_layers(program, folder, path, x, config):
    """The decibels that the network's first output keeps of float's."""
    source = onnx.load(path)
    quantized = quantize(program, folder, path, config)
    after = {node.output[0]: node for node in quantized.graph.node}
    chosen = [(node, moving, after[node.output[0]]) for node, moving in layers(source)]
    feeds = {source.graph.input[0].name: x}
    names = sorted({node.input[1 - moving] for node, moving, _ in chosen})
    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
    computed = [name for name in names if name not in known]
    outputs = run(with_values(source, computed), feeds, LEVELS[0])
    floats = outputs[0]
    weights = {**known, **dict(zip(computed, outputs[len(source.graph.output) :]))}
    watched = sorted({name for node, _, new in chosen for name in [*node.input, *new.input[:2], *node.output]} - set(names) - set(known) - set(feeds))
    for level in LEVELS:
        values = run(with_values(quantized, [name for name in watched if name]), feeds, level)
        values = dict(zip(watched, values[len(source.graph.output) :])) | feeds
        for node, moving, new in chosen:
            x_float, w_float = values[node.input[moving]], weights[node.input[1 - moving]]
            x_axis, w_axis = axes(node, moving, x_float, w_float)
            expected = [ms.quantize(np.ascontiguousarray(operand), format_of(config), axis=axis) for operand, axis in [(x_float, x_axis), (w_float, w_axis)]]
            assert_bits(values[new.input[moving]], expected[0])
            assert_bits(values[new.input[1 - moving]], expected[1], not is_integer(config))
            operands = dict(zip("xw" if moving == 0 else "wx", expected if moving == 0 else expected[::-1]))
            for name in node.input[2:]:
                operands["bias"] = known[name] if name in known else weights.get(name, values.get(name))
            alone = onnx.NodeProto()
            alone.CopyFrom(node)
            del alone.input[:], alone.output[:]
            alone.input.extend(operands)
            alone.output.append("y")
            (wanted,) = run(graphs.model([alone], operands, {}, 17), operands, LEVELS[0])
            got = values[node.output[0]]
            assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max(), node.name
    return sqnr(floats, run(quantized, feeds, LEVELS[1])[0]), len(chosen)


@pytest.mark.parametrize("config", NAMES)
@pytest.mark.parametrize("network", NETWORKS)
def test_layers(program, tmp_path, network, config):
    path, x = NETWORKS[network](tmp_path)
    decibels, count = check_layers(program, tmp_path, path, x, config)
    print(f"{network}: {config}: {count} layers, {decibels:.1f} dB of float's output")
    if config in ("MX9", "MXINT8", "BFP16"):
        assert decibels > 15
