"""Arrays and tensors of any kind as contiguous NumPy arrays, and back."""

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ._native import Packed

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64)]
# The types of the tensors that other tools' layouts have.
STORED = ("uint8", "float8_e4m3fn", "float8_e8m0fnu", "float32")
# DLPack's name of the CPU.
CPU = 1


def view(x: Any, name: str = "x") -> np.ndarray:
    """The elements of `x` as a NumPy array over the same memory; of what has no memory (a list) over a copy."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, expected an array without a mask")
    if isinstance(x, np.ndarray):
        array = x
    elif hasattr(x, "__dlpack__"):
        kind, _ = x.__dlpack_device__()
        if kind != CPU:
            raise ValueError(f"{name} is on DLPack's device {int(kind)}, expected one on the CPU ({CPU})")
        array = _from_dlpack(x)
    else:
        array = np.asarray(x)
    if array.dtype.newbyteorder("=") not in FLOATS:
        allowed = ", ".join(map(str, FLOATS))
        raise TypeError(f"{name} is of dtype {array.dtype}, expected {allowed}")
    return array


def _from_dlpack(x: Any) -> np.ndarray:
    if not _is_torch(x):
        return np.from_dlpack(x)
    # NumPy does not know DLPack's bfloat16.
    halves = str(x.dtype) == "torch.bfloat16"
    words = x.view(sys.modules["torch"].uint16) if halves else x
    array = np.from_dlpack(words)
    if not array.flags.writeable:
        # Before 2.3 NumPy takes all memory of others for read-only.
        array = words.numpy()
    return array.view(BFLOAT16) if halves else array


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def like(x: Any, array: np.ndarray) -> Any:
    """A NumPy array as what `x` is: a PyTorch tensor over the same memory, or the array."""
    if not _is_torch(x):
        return array
    torch = sys.modules["torch"]
    if array.dtype == BFLOAT16:
        return torch.from_dlpack(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_dlpack(array)


def contiguous(array: np.ndarray) -> np.ndarray:
    """The elements as float32 in row-major order without gaps: the array itself where it is that, or else a copy."""
    return np.require(array, np.float32, ["C", "ALIGNED"])


def operand(x: Any, name: str) -> Any:
    """A packed tensor as it is, anything else as contiguous float32; a vector or a matrix."""
    made = x if isinstance(x, Packed) else contiguous(view(x, name))
    if len(made.shape) not in (1, 2):
        raise ValueError(f"{name} has {len(made.shape)} axes, expected 1 or 2")
    return made


def changed(x: Any, change: Callable[[np.ndarray], None]) -> Any:
    """A copy of `x`, changed in place as contiguous float32 and converted back."""
    array = view(x)
    copy = np.array(array, dtype=np.float32, order="C")
    change(copy)
    return like(x, _back(copy, array.dtype))


def change_in_place(x: Any, change: Callable[[np.ndarray], None]) -> Any:
    """Changes `x`, as contiguous float32 and converted back where it is something else."""
    if not (isinstance(x, np.ndarray) or hasattr(x, "__dlpack__")):
        raise TypeError(f"x is of type {type(x).__name__}, expected a NumPy array or a tensor: there is nothing to change in place")
    array = view(x)
    if not array.flags.writeable:
        raise ValueError("x is read-only, expected an array that can be changed in place")
    floats = contiguous(array)
    change(floats)
    if floats is not array:
        with np.errstate(over="ignore"):
            array[...] = floats
    return x


def _back(floats: np.ndarray, dtype: np.dtype) -> np.ndarray:
    # A number beyond float16's largest becomes Inf, as documented.
    with np.errstate(over="ignore"):
        return floats.astype(dtype, copy=False)


def stored(tensor: Any) -> tuple[str, tuple[int, ...], np.ndarray]:
    """A tensor of a checkpoint: the name of its type, its shape and its bytes."""
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    if _is_torch(tensor):
        # NumPy knows no 8-bit floats of DLPack.
        tensor = _from_dlpack(tensor.detach().contiguous().reshape(-1).view(sys.modules["torch"].uint8))
    return dtype, shape, np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
