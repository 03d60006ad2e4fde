"""Models as files: quantized by the program, checked by ONNX, run in ONNX Runtime."""

import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

import graphs

ROOT = Path(__file__).parents[4]
NAMES = ["MXFP8E5M2", "MXFP8E4M3", "MXFP6E3M2", "MXFP6E2M3", "MXFP4E2M1", "MXINT8", "MX4", "MX6", "MX9", "BFP16", "NVFP4"]
LEVELS = [ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL]


def format_of(config):
    """The format of a configuration: without parameters, NVFP4 has a tensor scale."""
    return "nvfp4(tensor_scale=true)" if config == "NVFP4" else config


def quantize(program, folder, model, config, *options, check=True):
    """The quantized model, from a file to a file. `model` is a model, a path, or `None` for the file that is there."""
    source, target = folder / "model.onnx", folder / "out.onnx"
    if isinstance(model, Path):
        source = model
    elif model is not None:
        onnx.save(model, source)
    command = [program, source, "--config", config, "--output", target, "--force", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    onnx.checker.check_model(target, full_check=True)
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
    """Whether zeros of weights have no sign: their codes are integers."""
    return "int" in config.lower()
