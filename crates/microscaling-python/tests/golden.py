"""The files of reference outputs that the Rust tests read, too."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"
TOOLS = ROOT / "crates" / "microscaling" / "tests" / "data"
# safetensors' own function for NumPy knows no 8-bit floats.
TYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "U8": np.uint8, "F8_E4M3": ml_dtypes.float8_e4m3fn}


def load_file(path):
    """The tensors of a safetensors file."""
    tensors = safetensors.deserialize(Path(path).read_bytes())
    return {name: np.frombuffer(t["data"], TYPES[t["dtype"]]).reshape(t["shape"]).copy() for name, t in tensors}


def read(path):
    """The cases in a file's metadata, and its tensors."""
    with safetensors.safe_open(str(path), "numpy") as file:
        return json.loads(file.metadata()["cases"]), load_file(path)


def assert_same(got, expected, case):
    """The same values: −0 equals 0, a NaN is a NaN."""
    assert got.shape == expected.shape and got.dtype == expected.dtype, case
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    where = np.argwhere(~same)
    assert len(where) == 0, f"{case}: {len(where)} differ, first at {where[0]}: {got[tuple(where[0])]} is not {expected[tuple(where[0])]}"
