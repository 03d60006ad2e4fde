"""What stands around the models: the command line, configurations as JSON, and the table of `evaluate.py`."""

import json
import os
import pty
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image
from safetensors.numpy import save_file

import graphs
from models import ROOT, quantize

EVALUATE = ROOT / "crates/burn-mx-onnx/python/evaluate.py"
# The order of Quark's table.
ORDER = ["MX4", "MX4_ADAQUANT", "MX6", "MX9", "MXFP8E5M2", "MXFP8E4M3", "MXFP6E3M2", "MXFP6E2M3", "MXFP4E2M1", "MXINT8", "BFP16", "BFP16_ADAQUANT", "NVFP4"]


def product(rng):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node")
    w = graphs.numbers(rng, (70, 9), False)
    return graphs.model([node], {"x": np.zeros((2, 70), np.float32)}, {"w": w}, 21, rank=2)


@pytest.mark.parametrize(
    "attributes, config, rounding",
    [
        ({"MXAttributes": {"element_dtype": "int8", "axis": 1, "block_size": 8, "rounding_mode": 2}}, "mx(element=int8,block_size=8)", "even"),
        ({"MXAttributes": {"element_dtype": "fp6_e3m2", "rounding_mode": 0}}, "MXFP6E3M2", "nearest"),
        (
            {
                "BFPAttributes": {
                    "bfp_method": "to_bfp_prime",
                    "axis": 1,
                    "bit_width": 13,
                    "block_size": 16,
                    "sub_block_size": 2,
                    "sub_block_shift_bits": 1,
                    "rounding_mode": 2,
                }
            },
            "MX6",
            "even",
        ),
        ({"BFPAttributes": {"bit_width": 12}}, "bfp(bit_width=12,block_size=8)", "even"),
    ],
)
def test_quarks_attributes(program, tmp_path, attributes, config, rounding):
    """A file with attributes gives the same model, bit for bit, as the format's text."""
    source = product(np.random.default_rng(0))
    expected = quantize(program, tmp_path, source, config, "--rounding", rounding)
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(attributes))
    assert quantize(program, tmp_path, None, str(file)) == expected
    # The file's name is in the name of the output.
    subprocess.run([program, tmp_path / "model.onnx", "--config", file], check=True, capture_output=True)
    assert onnx.load(tmp_path / "model_mine.onnx") == expected


def test_attributes_without_a_meaning(program, tmp_path):
    source, file = product(np.random.default_rng(0)), tmp_path / "mine.json"

    def refused(text, *options):
        file.write_text(text)
        done = quantize(program, tmp_path, source, str(file), *options, check=False)
        assert done.returncode == 2 and not (tmp_path / "out.onnx").exists()
        return done.stderr

    mx = '{"MXAttributes": {"axis": 1}}'
    assert "mine.json: `axis` is 3; allowed: 1" in refused(mx.replace("1", "3"))
    assert "mine.json: `config` is" in refused("{'MXAttributes': {}}")
    assert "`--rounding` is given beside a JSON file" in refused(mx, "--rounding", "even")
    assert "does not tune" in refused('{"MXAttributes": {}, "FastFinetune": {"NumIterations": 10}}')
    file.unlink()
    assert "mine.json: No such file" in quantize(program, tmp_path, source, str(file), check=False).stderr


def test_progress(program, tmp_path):
    """A bar on a terminal. (`quantize` checks that nothing is printed where there is none.)"""
    onnx.save(product(np.random.default_rng(0)), tmp_path / "model.onnx")
    ours, theirs = pty.openpty()
    command = [program, tmp_path / "model.onnx", "--config", "MX6"]
    child = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
    assert child.wait() == 0
    os.close(theirs)
    assert b"1 layers" in os.read(ours, 1 << 16)


@pytest.fixture
def classifiers(program, tmp_path):
    """A float classifier of 8 × 8 images, and quantized ones in the order of the alphabet."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(192, 7)).astype(np.float32)
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"], name="node")]
    source = graphs.model(nodes, {"x": np.zeros((1, 3, 8, 8), np.float32)}, {"w": w}, 21, rank=2)
    onnx.save(source, tmp_path / "net.onnx")
    save_file({"w": w}, tmp_path / "tuned.safetensors")
    for config in ORDER:
        options = ["--tuned", tmp_path / "tuned.safetensors"] if config.endswith("_ADAQUANT") else []
        subprocess.run([program, tmp_path / "net.onnx", "--config", config, *options], check=True, capture_output=True)
    return tmp_path, w


def table(folder, *options):
    models = sorted(folder.glob("net_*.onnx"))
    command = [sys.executable, EVALUATE, folder / "net.onnx", *models, *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert head == ["DataType / Config", "Model size (kB)", "Top1", "Top5", "Seconds"]
    assert [row[0] for row in rows] == ["Float", *ORDER]
    return rows


def test_table_of_arrays(classifiers):
    folder, w = classifiers
    rng = np.random.default_rng(2)
    x, labels = rng.normal(size=(100, 3, 8, 8)).astype(np.float32), rng.integers(7, size=100)
    np.savez(folder / "data.npz", test=x, labels=labels)
    rows = table(folder, "--data", folder / "data.npz")
    order = np.argsort(-(x.reshape(100, -1) @ w), axis=1)[:, :5]
    top1, top5 = (order[:, 0] == labels).mean(), (order == labels[:, None]).any(axis=1).mean()
    size = (folder / "net.onnx").stat().st_size
    assert rows[0][1:4] == [f"{size / 1e3:.1f}", f"{top1:.3%}", f"{top5:.3%}"]
    assert all(float(row[4]) >= 0 for row in rows)


def test_table_of_images(classifiers):
    """Images in folders of their classes."""
    folder, w = classifiers
    rng = np.random.default_rng(3)
    mean, deviation = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    names = [f"n{at:02}" for at in range(7)]
    right = 0
    for label, name in enumerate(names):
        (folder / "val" / name).mkdir(parents=True)
        for at in range(4):
            pixels = rng.integers(256, size=(8, 8, 3), dtype=np.uint8)
            # Their shorter side has 256 pixels, as the network's would, so that only the middle is cut out.
            Image.fromarray(pixels).resize((256, 256), Image.NEAREST).save(folder / "val" / name / f"{at}.png")
            seen = np.asarray(Image.open(folder / "val" / name / f"{at}.png"), np.float32)[124:132, 124:132] / 255
            logits = ((seen - mean) / deviation).transpose(2, 0, 1).reshape(-1) @ w
            right += int(logits.argmax() == label)
    rows = table(folder, "--images", folder / "val", "--size", "8", "--batch", "3")
    assert rows[0][2] == f"{right / 28:.3%}"
