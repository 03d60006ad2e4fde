"""The program that the tests run: `QUANTIZE_ONNX`, or one that cargo builds."""

import os
import subprocess

import pytest

from models import ROOT


@pytest.fixture(scope="session")
def program():
    if "QUANTIZE_ONNX" in os.environ:
        return os.environ["QUANTIZE_ONNX"]
    subprocess.run(["cargo", "build", "--release", "-p", "burn-mx-onnx"], cwd=ROOT, check=True)
    return str(ROOT / "target/release/quantize_onnx")
