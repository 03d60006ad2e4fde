"""The command line, as Python installs it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import microscaling as ms
from golden import load_file

PROGRAM = Path(sys.executable).parent / "microscaling"
RNG = np.random.default_rng(8)
TENSORS = {
    "up.weight": RNG.standard_normal((32, 64)).astype(np.float32),
    "down.weight": RNG.standard_normal((64, 32)).astype(np.float16),
    "norm.weight": np.ones(64, np.float32),
    "step": np.array([3]),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file(TENSORS, "model.safetensors", {"format": "pt", "who": "a test"})
    return tmp_path


def run(*args, status=0):
    ran = subprocess.run([PROGRAM, *args], capture_output=True, text=True)
    assert ran.returncode == status, ran
    return ran.stdout if status < 2 else ran.stderr


def test_quantize_writes_what_pack_makes(folder):
    run("quantize", "model.safetensors", "own.safetensors", "--format", "mxfp6_e3m2", "--rounding", "nearest")
    stored = load_file("own.safetensors")
    for name in ["up.weight", "down.weight"]:
        packed = ms.pack(TENSORS[name], "mxfp6_e3m2", rounding="nearest")
        np.testing.assert_array_equal(stored[f"{name}.scales"], packed.scales)
        np.testing.assert_array_equal(stored[f"{name}.elements"], packed.elements)
    np.testing.assert_array_equal(stored["step"], TENSORS["step"])
    assert "mxfp6_e3m2" in run("inspect", "own.safetensors") and "up.weight" in run("inspect", "own.safetensors")


@pytest.mark.parametrize(
    "layout, dialect",
    [
        ("mxfp4-pack-quantized", "compressed-tensors"),
        ("mxfp8-quantized", "compressed-tensors"),
        ("nvfp4-pack-quantized", "compressed-tensors"),
        ("modelopt-nvfp4", "modelopt"),
        ("gpt-oss", "ocp"),
        ("gguf-mxfp4", "ggml"),
    ],
)
def test_layouts(folder, layout, dialect):
    run("quantize", "model.safetensors", "theirs.safetensors", "--layout", layout, "--dialect", dialect, "--skip", "down*")
    stored = load_file("theirs.safetensors")
    packed = ms.load(layout, "up.weight", stored)
    assert packed == ms.pack(TENSORS["up.weight"], packed.format, dialect=dialect)
    expected = ms.pack(TENSORS["up.weight"], packed.format, dialect=dialect).store(layout, "up.weight")
    for name, tensor in expected.items():
        assert stored[name].tobytes() == tensor.tobytes()
        assert stored[name].shape == tensor.shape and stored[name].dtype == tensor.dtype
    np.testing.assert_array_equal(stored["down.weight"], TENSORS["down.weight"])
    if layout != "gguf-mxfp4":
        config = json.loads(Path("theirs.config.json").read_text())["quantization_config"]
        assert "down" in config.get("ignore", config.get("modules_to_not_convert"))

    source = ["--from", layout] if layout == "gguf-mxfp4" else []
    run("convert", "theirs.safetensors", "own.safetensors", "--to", "microscaling", *source)
    own = load_file("own.safetensors")
    np.testing.assert_array_equal(own["up.weight.scales"], packed.scales)
    run("convert", "own.safetensors", "again.safetensors", "--to", layout)
    if layout != "nvfp4-pack-quantized":
        # A divisor has several numbers with its reciprocal.
        assert Path("again.safetensors").read_bytes() == Path("theirs.safetensors").read_bytes()
    if not source:
        assert run("diff", "own.safetensors", "theirs.safetensors") == "0 of 4 tensors differ\n"


def test_diff(folder):
    for name in ["ocp", "quark"]:
        run("quantize", "model.safetensors", f"{name}.safetensors", "--format", "mxfp4", "--dialect", name)
    told = run("diff", "ocp.safetensors", "quark.safetensors", status=1)
    one, other = (ms.pack(TENSORS["up.weight"], "mxfp4", dialect=name) for name in ["ocp", "quark"])
    difference = one.difference(other)
    assert f"{difference['scales_differ']} of 64" in told and f"{difference['elements_differ']} of 2048" in told
    told = run("diff", "model.safetensors", "ocp.safetensors", status=1)
    assert f"{ms.statistics(TENSORS['up.weight'], 'mxfp4').sqnr:.2f}" in told
    assert run("diff", "model.safetensors", "model.safetensors") == "0 of 4 tensors differ\n"


def test_formats():
    told = run("formats")
    for name in [*ms.Format.names(), "modelopt-nvfp4", "compressed-tensors"]:
        assert name in told
    assert "0 0.5 1 1.5 2 3 4 6 -0 -0.5" in run("formats", "mxfp4")


def test_errors(folder):
    for args, message in [
        (["inspect", "none.safetensors"], "none.safetensors: No such file"),
        (["quantize", "model.safetensors", "x"], "`--format` has to say"),
        (["quantize", "model.safetensors", "x", "--format", "mxfp5"], "unknown block format `mxfp5`: expected one of"),
        (["quantize", "model.safetensors", "x", "--format", "mxfp4", "--only", "nothing"], "no name matches `nothing`"),
        (["quantize", "model.safetensors", "x", "--format", "mxfp4", "--only", "norm*"], "`norm.weight` is F32 of shape [64]; allowed"),
        (["quantize", "model.safetensors", "x", "--format", "mxfp4", "--axis", "2"], "axis is 2, expected -2 to 1"),
        (["quantize", "model.safetensors", "x", "--layout", "gpt-oss", "--format", "mxint8"], "gpt-oss"),
        (["quantize", "model.safetensors", "x", "--format", "mxfp4", "--rounding", "stochastic"], "`--seed` has to say"),
        (["convert", "model.safetensors", "x", "--to", "gpt-oss"], "the file has no packed weight"),
        (["convert", "model.safetensors", "x", "--to", "gptq3"], "unknown layout `gptq3`: expected one of microscaling"),
    ]:
        told = run(*args, status=2)
        assert message in told, told
        assert not Path("x").exists() and not list(folder.glob(".partial-*"))


def test_as_a_module():
    ran = subprocess.run([sys.executable, "-m", "microscaling", "formats"], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout == run("formats")
