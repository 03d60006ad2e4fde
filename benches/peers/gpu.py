"""PyTorch's training steps of `train_step`'s models for GPUs, and NVFP4 kernels of others beside a copy, on CUDA.

    python benches/peers/gpu.py --seconds 0.7 --json peers.json

Steps are in float32, in tensor-float-32 and in bfloat16's autocast; the optimizer is SGD, as in `train_step`. The kernels are ModelOpt's for NVFP4,
where `nvidia-modelopt` is installed, and MXFP8 that `torch.compile` makes of PyTorch's ops. A tensor is 4096 x 4096 in float32.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch import nn


class Ffn(nn.Module):
    """The reference's FFN."""

    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Encoder(nn.Module):
    """A layer of Burn's transformer encoder, which normalizes after each part."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.inputs = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(3))
        self.output = nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))

    def forward(self, x):
        query, key, value = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in self.inputs)
        # By parts, as Burn computes it.
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        attention = (scores.softmax(-1) @ value).transpose(1, 2).flatten(-2)
        x = self.norms[0](x + self.output(attention))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


MODELS = {
    "ffn (2048, 2048)": (lambda: Ffn(2048), (2048, 2048)),
    "ffn (4096, 4096)": (lambda: Ffn(4096), (4096, 4096)),
    "transformer (2048, 2 of 1024)": (lambda: Encoder(2048, 16), (2, 1024, 2048)),
}


def milliseconds(run, seconds):
    """The median time of a call."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times = []
    while sum(times) < 1e3 * seconds or len(times) < 10:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def training_step(make, shape, precision):
    torch.manual_seed(0)
    model = make().cuda()
    x, target = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tensor-float-32"
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = F.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def steps(seconds):
    for name, (make, shape) in MODELS.items():
        for precision in ("float32", "tensor-float-32", "bfloat16"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            time = milliseconds(training_step(make, shape, precision), seconds)
            memory = torch.cuda.max_memory_allocated() / 2**20
            yield {"model": name, "precision": precision, "ms": time, "peak_mib": memory}


def mxfp8(x):
    """MXFP8 E4M3 along the last axis, by PyTorch's ops."""
    blocks = x.view(-1, 32)
    scale = torch.exp2(torch.floor(torch.log2(blocks.abs().amax(1, keepdim=True))) - 8)
    return ((blocks / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale).view_as(x)


def kernels(seconds):
    # Several tensors, lest one stays in the cache.
    tensors = [torch.randn(4096, 4096, device="cuda") for _ in range(4)]
    turn = 0

    def tensor():
        nonlocal turn
        turn = (turn + 1) % len(tensors)
        return tensors[turn]

    result = torch.empty_like(tensors[0])
    copy = milliseconds(lambda: result.copy_(tensor()), seconds)
    yield {"kernel": "copy", "ms": copy, "of_copy": 1.0}
    compiled = torch.compile(mxfp8)
    others = {"torch.compile, mxfp8_e4m3": lambda: compiled(tensor())}
    try:
        from modelopt.torch.kernels.quantization.gemm.fp4_kernel_hopper import fp4_fake_quant_block as nvfp4
    except ImportError as error:
        yield {"kernel": "ModelOpt, nvfp4", "error": str(error)}
    else:
        largest = torch.tensor(5.0, device="cuda")
        others["ModelOpt, nvfp4, largest magnitude known"] = lambda: nvfp4(tensor(), largest)

        def with_largest():
            x = tensor()
            return nvfp4(x, x.abs().amax())

        others["ModelOpt, nvfp4"] = with_largest
    for name, run in others.items():
        try:
            time = milliseconds(run, seconds)
        except Exception as error:  # A compiler may be missing; the other kernels go on.
            yield {"kernel": name, "error": f"{type(error).__name__}: {error}"}
        else:
            yield {"kernel": name, "ms": time, "of_copy": copy / time}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.7, help="time for each figure")
    parser.add_argument("--json", help="also writes the figures to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("PyTorch sees no CUDA device")
    figures = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "steps": [], "kernels": []}
    for name, measured in (("steps", steps), ("kernels", kernels)):
        for figure in measured(arguments.seconds):
            print(figure, flush=True)
            figures[name].append(figure)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
