"""How fast quantizing a 4096 × 4096 float32 matrix is, beside torchao, microxcaling, compressed-tensors and Model Optimizer, in one run.

    pip install torch torchao compressed-tensors nvidia-modelopt requests
    git clone https://github.com/microsoft/microxcaling
    PYTHONPATH=microxcaling python benches/quantize.py

All take turns, and the best of each counts. Peers that are not installed are named and left out. PyTorch has all processors.
"""

import platform
import time

import numpy as np
import torch

import microscaling as ms

SIZE, ROUNDS = 4096, 20


def processor():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {len(names)} processors"


def peer(make):
    """A job, or None with a printed word where the peer is not installed."""
    try:
        return make()
    except ImportError as error:
        print(f"left out: {error}")


def microxcaling(x, element):
    from mx.mx_ops import _quantize_mx

    return lambda: _quantize_mx(x, 8, element, axes=[-1], block_size=32, round="even")


def torchao(x, dtype, compiled):
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    job = torch.compile(to_mx) if compiled else to_mx
    return lambda: job(x, dtype, 32)


def modelopt(x):
    from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor

    return lambda: MXFP4QTensor.quantize(x, 32)


def compressed_tensors(x):
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    args = QuantizationArgs(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype=torch.uint8)

    def job():
        blocks = x.unflatten(-1, (-1, 32))
        scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args)
        return pack_fp4_to_uint8(quantize(x, scale, zero, args))

    return job


def compare(title, own, peers):
    """Ours first; then how many times as long each of the others takes."""
    jobs = {"microscaling": own, **{name: job for name, job in peers.items() if job}}
    best = dict.fromkeys(jobs, float("inf"))
    for round in range(ROUNDS + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            # The first round compiles, and warms up.
            if round:
                best[name] = min(best[name], time.perf_counter() - start)
    print(f"\n{title}")
    for name, seconds in best.items():
        ratio = seconds / best["microscaling"]
        print(f"  {name:28} {1e3 * seconds:9.1f} ms {4 * SIZE**2 / seconds / 1e9:7.2f} GB/s {ratio:7.1f} ×")


def main():
    x = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    print(f"{processor()}; PyTorch {torch.__version__}, NumPy {np.__version__}, {SIZE} × {SIZE}")
    for element in ["fp8_e4m3", "fp4_e2m1"]:
        compare(
            f"values, MX with {element}",
            lambda: ms.quantize(x, f"mx(element={element})"),
            {"microxcaling": peer(lambda: microxcaling(x, element))},
        )
    for format, dtype in [("mxfp8_e4m3", torch.float8_e4m3fn), ("mxfp4", torch.float4_e2m1fn_x2)]:
        peers = {
            "torchao": peer(lambda: torchao(x, dtype, False)),
            "torchao, torch.compile": peer(lambda: torchao(x, dtype, True)),
        }
        if format == "mxfp4":
            peers |= {"Model Optimizer": peer(lambda: modelopt(x)), "compressed-tensors": peer(lambda: compressed_tensors(x))}
        compare(f"bytes, {format}", lambda: ms.pack(x, format), peers)


main()
