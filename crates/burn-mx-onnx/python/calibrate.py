"""Runs a float ONNX model on calibration data, and keeps the largest magnitudes of its layers' inputs.

    pip install onnx onnxruntime numpy safetensors
    python calibrate.py digits_cnn.onnx --data digits_cnn.safetensors --inputs calibration --output largest.safetensors
    quantize_onnx digits_cnn.onnx --config MXINT8 --calibration largest.safetensors

The output is what `quantize_onnx --calibration` reads: for the input of each MatMul, Gemm, Conv and ConvTranspose of the main graph,
by the input's name, the largest magnitude at each place along the axis that the layer sums over.

The data are an array for each input of the model, in the order of the inputs. Without `--inputs`, a model of one input takes the array
`calibration`, and a model of several inputs takes the arrays of their names. Items lie along the first axis of each array.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file

FOLDER = "session.model_external_initializers_file_folder_path"


def inputs_of_layers(model):
    """The name and the summed axis of each layer's input: of a product the operand that is no constant."""
    constants = {tensor.name for tensor in model.graph.initializer} | {tensor.values.name for tensor in model.graph.sparse_initializer}
    if model.ir_version >= 4:
        # Defaults, which an input may replace.
        constants -= {value.name for value in model.graph.input}
    for node in model.graph.node:
        if node.op_type == "Constant" or (node.input and all(name in constants for name in node.input if name)):
            constants.update(node.output)
    for node in model.graph.node:
        flags = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type in ("Conv", "ConvTranspose") and node.input[0] not in constants:
            yield node.input[0], 1
        elif node.op_type in ("MatMul", "Gemm"):
            is_right = node.input[1] in constants
            transposed = flags.get("transA" if is_right else "transB", 0)
            if node.input[0 if is_right else 1] not in constants and node.input[1 if is_right else 0] in constants:
                yield (node.input[0], -2 if transposed else -1) if is_right else (node.input[1], -1 if transposed else -2)


def arrays(path, inputs, names):
    """The array of each input of the model, in the input's type."""
    data = np.load(path) if path.suffix == ".npz" else load_file(path)
    if not names:
        names = ["calibration"] if len(inputs) == 1 else [value.name for value in inputs]
    if len(names) != len(inputs):
        raise SystemExit(f"error: `--inputs` has {len(names)} names; the model has {len(inputs)} inputs: {', '.join(value.name for value in inputs)}")
    found = {}
    for value, name in zip(inputs, names):
        if name not in data:
            raise SystemExit(f"error: {path} has no array `{name}` for the input `{value.name}`; it has {', '.join(data)}; `--inputs` names an array for each input")
        array, kind = data[name], helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if not np.can_cast(array.dtype, kind, "same_kind"):
            raise SystemExit(f"error: the array `{name}` is {array.dtype}, and the input `{value.name}` is {np.dtype(kind)}")
        found[value.name] = array.astype(kind)
    lengths = {name: len(array) if array.ndim else 1 for name, array in found.items()}
    if len(set(lengths.values())) != 1:
        raise SystemExit(f"error: the arrays have different numbers of items: {lengths}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="an .npz or .safetensors file")
    parser.add_argument("--inputs", nargs="+", help="the arrays in it, one for each input of the model")
    parser.add_argument("--batch", type=int, default=32, help="items at a time (default: 32)")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    if args.output.exists() and any(args.output.samefile(path) for path in (args.model, args.data)):
        parser.error(f"--output {args.output} is a file that is read; allowed: another file")
    # External data stay where they are: no message of protobuf may have 2 GB.
    model = onnx.load(args.model, load_external_data=False)
    layers = {}
    for name, axis in inputs_of_layers(model):
        if layers.setdefault(name, axis) != axis:
            raise SystemExit(f"error: `{name}` is summed over along two axes; exclude one of its layers, and calibrate without it")
    defaults = {tensor.name for tensor in model.graph.initializer}
    feeds = arrays(args.data, [value for value in model.graph.input if value.name not in defaults], args.inputs)
    # Whatever the types of the layers' inputs are, they are looked at in float32.
    watched = {name: f"calibrated/{name}" for name in layers}
    for name, output in watched.items():
        model.graph.node.append(helper.make_node("Cast", [name], [output], to=TensorProto.FLOAT))
        model.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(FOLDER, str(args.model.absolute().parent))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    largest = {}
    for start in range(0, max(map(len, feeds.values()), default=0), args.batch):
        values = session.run(list(watched.values()), {name: array[start : start + args.batch] for name, array in feeds.items()})
        for name, value in zip(watched, values):
            axis = layers[name] % value.ndim
            others = tuple(other for other in range(value.ndim) if other != axis)
            found = np.abs(value).max(axis=others, initial=0)
            largest[name] = np.maximum(largest.get(name, found), found)
    save_file(largest, args.output)
    print(f"{args.output}: inputs of {len(largest)} tensors")


if __name__ == "__main__":
    main()
