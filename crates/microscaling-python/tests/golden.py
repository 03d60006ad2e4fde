"""The files of reference outputs that the Rust tests read, too."""

import json
import os
from pathlib import Path

import numpy as np
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"
TOOLS = ROOT / "crates" / "microscaling" / "tests" / "data"


def read(path):
    """The cases in a file's metadata, and its tensors."""
    with safe_open(os.fspath(path), "numpy") as file:
        cases = json.loads(file.metadata()["cases"])
        return cases, {name: file.get_tensor(name) for name in file.keys()}


def assert_same(got, expected, case):
    """The same values: −0 equals 0, a NaN is a NaN."""
    assert got.shape == expected.shape and got.dtype == expected.dtype, case
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    where = np.argwhere(~same)
    assert len(where) == 0, f"{case}: {len(where)} differ, first at {where[0]}: {got[tuple(where[0])]} is not {expected[tuple(where[0])]}"
