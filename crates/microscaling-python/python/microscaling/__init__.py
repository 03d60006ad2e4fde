"""Number formats of OCP Microscaling (MX), NVFP4 and their kin, bit for bit.

Arrays are NumPy arrays of float16, bfloat16 (of ml_dtypes), float32 or float64 with any strides, or tensors on the CPU that speak
DLPack, as PyTorch's do. Their memory is read without a copy. A PyTorch tensor gives a PyTorch tensor, everything else a NumPy array.

All functions compute in float32. float64 is rounded to float32 first. Results have the type of the input, and are rounded to that
type, ties to even. Only float16 results may change by this: numbers beyond 65504 become Inf, and small numbers lose bits.

Formats are `Format`s or their text: `"mxfp4"`, `"nvfp4(tensor_scale=true)"`, `"mx(element=int4,block_size=16)"`;
`Format.names()` lists the named formats. `Format("binary8p4se")` is a format of IEEE P3109, elements without blocks.

`axis` is the axis along which blocks lie; negative numbers count from the last axis. `rounding` is `"even"` (ties to even), `"nearest"`
(ties away from zero), `"floor"` (toward zero) or `"stochastic"`, which needs a `seed`: an integer of 64 bits. The same seed gives the
same draws with any number of threads; the draw of an element depends on its position in row-major order alone. With another
rounding a seed has no effect, and a warning says so.

A wrong value is a ValueError, another type than an array of floats a TypeError. The message names the argument, its value and the
allowed values. Several threads share the work on large arrays (`RAYON_NUM_THREADS` sets their number), without the interpreter's
lock.
"""

import io
import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from . import _arrays, _native
from ._native import Format, Packed, Statistics, __version__

__all__ = [
    "Format",
    "Packed",
    "Statistics",
    "__version__",
    "bfloat",
    "check",
    "dot",
    "fp",
    "hadamard",
    "load",
    "pack",
    "quantize",
    "quantize_",
    "statistics",
    "unpack",
    "vectors",
]


def quantize(x: Any, format: Format | str, axis: int = -1, rounding: str = "even", seed: int | None = None) -> Any:
    """The values that the elements of `x` have in a block format ("fake quantization").

    `x` has any shape of one axis or more; the result has the same shape and type. A block with a NaN or an Inf is all NaN (in
    `bfp` formats they pass). The last block of an axis may be shorter than the others.

    >>> quantize(np.array([1.0, 2.4, -5.1, 7.9]), "mxfp4")
    array([ 1.,  2., -6.,  6.])
    """
    array = _arrays.view(x)
    if array.dtype == np.float32:
        return _arrays.like(x, _native.quantize(_arrays.contiguous(array), format, axis, rounding, seed))
    return _arrays.changed(x, lambda copy: _native.quantize_(copy, format, axis, rounding, seed))


def quantize_(x: Any, format: Format | str, axis: int = -1, rounding: str = "even", seed: int | None = None) -> Any:
    """`quantize` in place; gives `x` back.

    Without any copy if `x` is float32 in row-major order without gaps.
    """
    return _arrays.change_in_place(x, lambda array: _native.quantize_(array, format, axis, rounding, seed))


def pack(
    x: Any,
    format: Format | str,
    axis: int = -1,
    rounding: str | None = None,
    seed: int | None = None,
    dialect: str | None = None,
) -> Packed:
    """The bytes of `x` in a block format: codes of elements and scales of blocks.

    With a `dialect`, `x` is a weight `[..., in]`, blocks lie along the last axis, and the bytes are this tool's: `"ocp"`,
    `"microxcaling"`, `"torchao"`, `"quark"`, `"compressed-tensors"`, `"modelopt"`, `"ggml"`,
    `"transformer-engine"`, `"transformer-engine-fast-math"` or `"triton-kernels"`. A dialect fixes the rounding. Without a dialect the values are `quantize`'s, and `rounding` defaults to `"even"`.

    >>> packed = pack(np.array([[1.0, 2.4, -5.1, 7.9]]), "mxfp4")
    >>> packed.scales, packed.elements
    (array([[127]], dtype=uint8), array([[ 66, 127]], dtype=uint8))
    """
    if dialect is not None and rounding is not None:
        raise ValueError(f"rounding is `{rounding}` and dialect is `{dialect}`, which fixes the rounding, expected None")
    array = _arrays.view(x)
    halves = dialect is None and array.dtype in (np.dtype(np.float16), _arrays.BFLOAT16)
    array = np.require(array, requirements=["C", "ALIGNED"]) if halves else _arrays.contiguous(array)
    return _native.pack(array, format, axis, rounding or "even", seed, dialect)


def unpack(packed: Packed, dtype: Literal["float32", "bfloat16", "float16"] = "float32") -> np.ndarray:
    """The values of a packed tensor, an array of its shape: in `"float32"`, or rounded to `"bfloat16"` or `"float16"`.

    For bytes from another program: `unpack(Packed(format, shape, scales, elements))`.

    >>> unpack(Packed("mxfp4", (4,), scales=[128], elements=[0x42, 0x7f]))
    array([  2.,   4., -12.,  12.], dtype=float32)
    """
    return packed.unpack(dtype)


def load(layout: str, name: str, tensors: Mapping[str, Any]) -> Packed:
    """The packed weight `name` of a checkpoint in another tool's layout, the inverse of `Packed.store`.

    `tensors` are a checkpoint's, by name, such as `safetensors.numpy.load_file` returns them: NumPy arrays or PyTorch
    tensors. The function reads only the tensors of the weight.
    """
    own = {of: _arrays.stored(tensor) for of, tensor in tensors.items() if of.startswith(name)}
    return _native.load(layout, name, {of: stored for of, stored in own.items() if stored[0] in _arrays.STORED})


def statistics(x: Any, format: Format | str, axis: int = -1, rounding: str = "even", quantized: Any = None) -> Statistics:
    """The loss of `x` by quantization: SQNR, underflow, saturation, scales.

    `quantized` is an array of the same shape, the values of `x` in this format by another program. The default is `quantize`'s values,
    which are not stored.

    >>> statistics(np.array([1.0, 0.3, -7.0, 0.01]), "mxfp4")
    Statistics(elements=4, sqnr=16.83, underflow=1, saturated=1)
    """
    original = _arrays.contiguous(_arrays.view(x))
    if quantized is None:
        return _native.statistics(original, format, axis, rounding)
    return _native.statistics_of(original, _arrays.contiguous(_arrays.view(quantized, "quantized")), format, axis)


def dot(
    x: Any,
    w: Any,
    accumulator: str,
    format: Format | str | None = None,
    w_format: Format | str | None = None,
    c: Any = None,
) -> Any:
    """The product of `x` `[m, k]` and `w` `[k, n]`, summed as the matrix unit of a chip sums: float32 `[m, n]`.

    `x` may be a vector `[k]`, and so may `w`; the result has no axis for a vector.

    `accumulator` is a chip (`"hopper"`, `"blackwell"`, `"cdna3"`, `"hopper_promote128"`, …) or an accumulator by its fields:
    `"accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)"`; the README of the Rust crate lists the fields.

    An operand is an array with a format, or a `Packed` tensor, whose blocks lie along `k`. `w_format` is `format` unless it is given.
    With a block format (`"mxfp8_e4m3"`) the array is quantized first, ties to even. With the type of an element (`"fp8_e4m3"`,
    `"bfloat16"`, `"float16"`, `"tf32"`, `"float32"`) the array is taken as it is: every element has to be a number of this type.

    The sums start from `c`, an array of the result's shape, or from 0. Scales of whole tensors (`nvfp4(tensor_scale=true)`) multiply
    the finished sums.

    A sum of 2^14 and 63 ones: a unit that keeps 13 bits below the largest term loses the ones.

    >>> x = np.ones(64)
    >>> x[0] = 2.0**14
    >>> dot(x, np.ones(64), "accumulator(order=fma)", "float16")
    np.float32(16447.0)
    >>> dot(x, np.ones(64), "accumulator(order=joint,terms=4,fraction_bits=13,output=e8m13_rz)", "float16")
    np.float32(16384.0)
    """
    left, right = _arrays.operand(x, "x"), _arrays.operand(w, "w")
    rows, columns = left.shape[:-1], right.shape[1:]
    sums = np.zeros(rows + columns, np.float32)
    if c is not None:
        start = _arrays.view(c, "c")
        if start.shape != sums.shape:
            raise ValueError(f"c has shape {start.shape}, expected {sums.shape}")
        sums[...] = start
    if isinstance(left, np.ndarray) and not rows:
        left = left[np.newaxis]
    if isinstance(right, np.ndarray) and not columns:
        right = right[:, np.newaxis]
    matrix = sums.reshape(*(rows or (1,)), *(columns or (1,)))
    _native.dot(left, right, accumulator, format, format if w_format is None else w_format, matrix)
    return _arrays.like(x, sums) if sums.ndim else sums[()]


def bfloat(x: Any, bits: int, rounding: str = "even", seed: int | None = None, subnormals: bool = True) -> Any:
    """The elements of `x` rounded to bfloatN, floats of `bits` bits (10 to 32) with 8 exponent bits; of any shape.

    NaN and Inf pass, and numbers that are too large become Inf. Without `subnormals`, numbers below the smallest normal number
    become 0.
    """
    return _arrays.changed(x, lambda copy: _native.round_(copy, "bfloat", bits, subnormals, rounding, seed))


def fp(x: Any, bits: int, rounding: str = "even", seed: int | None = None, subnormals: bool = True) -> Any:
    """The elements of `x` rounded to fpN, floats of `bits` bits (7 to 29) with 5 exponent bits; otherwise as `bfloat`."""
    return _arrays.changed(x, lambda copy: _native.round_(copy, "fp", bits, subnormals, rounding, seed))


def hadamard(
    x: Any,
    block_size: int = 32,
    axis: int = -1,
    seed: int | None = None,
    signs: int | None = None,
    inverse: bool = False,
) -> Any:
    """The Hadamard transform of the blocks of `x`, an orthonormal rotation that spreads outliers over their block, or its inverse.

    Blocks have 16, 32, 64 or 128 elements along `axis`; a rest is cut into powers of two. Elements get signs first: random ones
    by their index along the axis (`seed`), the same ones for every block (bit i of `signs` is set for a minus of element i), or none.
    """
    return _arrays.changed(x, lambda copy: _native.hadamard_(copy, block_size, axis, seed, signs, inverse))


def vectors(kind: str, format: str, **options: Any) -> np.ndarray:
    """Test vectors for hardware: the array of a set, with a field for each input and output.

    `kind` is `"codes"`, `"elements"`, `"blocks"` or `"dot"`; for `"dot"`, `format` is an accumulator. The options are those of
    `microscaling vectors`: `rounding="down"`, `flush_outputs=True`, `lhs="fp8_e4m3"`, `limit=100`.

    >>> vectors("elements", "fp4_e2m1", rounding="odd", limit=2)["code"].tolist()
    [0, 8]
    """
    return np.load(io.BytesIO(bytes(_native.vectors(_arguments(kind, format, options)))))


def check(kind: str, format: str, dump: np.ndarray, **options: Any) -> dict[str, Any]:
    """Compares a device's outputs with a set of vectors, and names the rule that the device follows: the report of `microscaling check` as a
    dict.

    `dump` is an array like that of `vectors`, with all fields or with the outputs alone. The options say the rule that the device should
    follow; with `own_inputs=True` the inputs are the dump's.

    >>> report = check("elements", "fp8_e4m3", vectors("elements", "fp8_e4m3", rounding="nearest"))
    >>> report["rules"]
    ['ties away from zero']
    """
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(dump))
    return json.loads(_native.check(_arguments(kind, format, options), file.getvalue()))


def _arguments(kind: str, format: str, options: Mapping[str, Any]) -> list[str]:
    """The words of a command line."""
    words = [kind, str(format)]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not False and value is not None:
            words += [flag, str(value)]
    return words
