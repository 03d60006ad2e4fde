"""PyTorch's training step of the language model that `examples/language_model` trains, in float32 and in bfloat16's autocast.

    pip install torch==2.4.1 "numpy<2"       # the build for processors suffices
    python benches/peers/language_model.py --width 256 --context 128

Prints the median time of a step and the tokens a second. Defaults are those of `language_model train`.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()

        def linear(inputs, outputs):
            return nn.Linear(inputs, outputs, bias=False)

        # Two thirds of four widths, in multiples of 32.
        inner = (8 * width // 3 + 31) // 32 * 32
        self.heads = heads
        self.norms = nn.ModuleList(Norm(width) for _ in range(2))
        self.query, self.key, self.value, self.output = (linear(width, width) for _ in range(4))
        self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)
        features = width // heads
        frequencies = 1e4 ** (-torch.arange(0, features, 2).float() / features)
        angles = torch.outer(torch.arange(context).float(), frequencies)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def rotated(self, x):
        even, odd = x[..., ::2], x[..., 1::2]
        pair = even * self.cos - odd * self.sin, even * self.sin + odd * self.cos
        return torch.stack(pair, -1).flatten(-2)

    def forward(self, x):
        y = self.norms[0](x)
        query, key, value = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        attention = F.scaled_dot_product_attention(self.rotated(query), self.rotated(key), value, is_causal=True)
        x = x + self.output(attention.transpose(1, 2).flatten(-2))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocabulary, args.width)
        self.blocks = nn.Sequential(*(Block(args.width, args.heads, args.context) for _ in range(args.layers)))
        self.norm = Norm(args.width)
        self.head = nn.Linear(args.width, args.vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


def seconds_of_a_step(args, bfloat16):
    torch.manual_seed(0)
    model = Decoder(args)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    tokens = torch.randint(0, args.vocabulary, (args.batch, args.context))
    times, end = [], time.perf_counter() + args.seconds
    while time.perf_counter() < end or len(times) < 6:
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    # The first steps take memory from the system.
    times = sorted(times[2:])
    return times[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = dict(width=128, layers=4, heads=4, context=64, batch=12, vocabulary=256, threads=2)
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"[default: {value}]")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds a measurement [default: 5]")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name, bfloat16 in (("float32", False), ("bfloat16 autocast", True)):
        seconds = seconds_of_a_step(args, bfloat16)
        print(f"{name}: {seconds * 1e3:.2f} ms a step, {args.batch * args.context / seconds:.0f} tokens a second")


main()
