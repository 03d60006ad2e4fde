"""Runs a float ONNX model on calibration data, and keeps the largest magnitudes of its layers' inputs.

    pip install onnx onnxruntime numpy safetensors
    python calibrate.py digits_cnn.onnx --data digits_cnn.safetensors --inputs calibration --output largest.safetensors
    quantize_onnx digits_cnn.onnx --config MXINT8 --calibration largest.safetensors

The output is what `quantize_onnx --calibration` reads: for the input of each MatMul, Gemm, Conv and ConvTranspose of the main graph,
by the input's name, the largest magnitude at each place along the axis that the layer sums over.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file


def inputs_of_layers(model):
    """The name and the summed axis of each layer's input: of a product the operand that is no constant."""
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("Constant", "Identity", "Transpose") and all(name in constants for name in node.input):
            constants.update(node.output)
    for node in model.graph.node:
        flags = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type in ("Conv", "ConvTranspose"):
            yield node.input[0], 1
        elif node.op_type in ("MatMul", "Gemm"):
            is_right = node.input[1] in constants
            transposed = flags.get("transA" if is_right else "transB", 0)
            if node.input[0 if is_right else 1] not in constants and node.input[1 if is_right else 0] in constants:
                yield (node.input[0], -2 if transposed else -1) if is_right else (node.input[1], -1 if transposed else -2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="an .npz or .safetensors file")
    parser.add_argument("--inputs", default="calibration", help="the array in it (default: calibration)")
    parser.add_argument("--batch", type=int, default=32, help="items at a time (default: 32)")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    model = onnx.load(args.model)
    layers = {}
    for name, axis in inputs_of_layers(model):
        if layers.setdefault(name, axis) != axis:
            raise SystemExit(f"error: `{name}` is summed over along two axes; exclude one of its layers, and calibrate without it")
    known = {value.name for value in [*model.graph.input, *model.graph.output]}
    added = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in layers if name not in known]
    model.graph.output.extend(added)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = session.get_inputs()[0].name
    data = np.load(args.data) if args.data.suffix == ".npz" else load_file(args.data)
    largest = {}
    for start in range(0, len(data[args.inputs]), args.batch):
        x = data[args.inputs][start : start + args.batch]
        names = [name for name in layers if name != feed]
        values = dict(zip(names, session.run(names, {feed: x})), **({feed: x} if feed in layers else {}))
        for name, value in values.items():
            axis = layers[name] % value.ndim
            found = np.abs(value).max(axis=tuple(other for other in range(value.ndim) if other != axis)).astype(np.float32)
            largest[name] = np.maximum(largest.get(name, found), found)
    save_file(largest, args.output)
    print(f"{args.output}: inputs of {len(largest)} tensors")


if __name__ == "__main__":
    main()
