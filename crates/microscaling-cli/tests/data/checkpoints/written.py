"""Writes written.safetensors: one weight, rounded and packed by the tools' own functions on a CPU.

python written.py FOLDER_OF_AUTO_GPTQ FOLDER_OF_GPTQMODEL FOLDER_OF_AUTOAWQ, with torch 2.15, transformers 5.24 and compressed-tensors 0.20.0; the
folders are the unpacked packages of auto-gptq 0.7.1, gptqmodel 7.7.0 and autoawq 0.2.9, of which these functions are run:

* `Quantizer.find_params` and `quantize` of auto_gptq/quantization/quantizer.py: scales and zero points of each group from the floats, and the
  integers, with the scale as float16.
* `QuantLinear.pack` of auto_gptq/nn_modules/qlinear/qlinear_cuda.py, line 108: GPTQ.
* `pack_original` of gptqmodel/nn_modules/qlinear/__init__.py, line 1614: GPTQ's second version.
* `WQLinear_GEMM.from_linear` of awq/modules/linear/gemm.py, line 181: AWQ.
* `pack_to_int32` of compressed_tensors/compressors/pack_quantized/helpers.py: pack-quantized.

The names are `TOOL/FORMAT/PART`; `w.weight` are the floats.
"""

import ast
import importlib.util
import math
import pathlib
import sys
import types

import numpy as np
import torch
import transformers
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from safetensors.torch import save_file

auto_gptq, gptqmodel, autoawq = map(pathlib.Path, sys.argv[1:])


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def part_of(path, name, names):
    """A class or a method of a file whose other parts need a GPU."""
    tree = ast.parse(path.read_text())
    (found,) = [node for node in ast.walk(tree) if getattr(node, "name", None) == name]
    found.decorator_list = []
    exec(compile(ast.Module([found], []), str(path), "exec"), names)
    return names[name]


class Threads:
    def threadpool_limits(self, _):
        return self

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


quantizer = load(auto_gptq / "auto_gptq/quantization/quantizer.py")
cuda = load(auto_gptq / "auto_gptq/nn_modules/qlinear/qlinear_cuda.py")
second = {"t": torch, "nn": torch.nn, "np": np, "math": math, "transformers": transformers, "_ConvNd": torch.nn.modules.conv._ConvNd}
second = part_of(gptqmodel / "gptqmodel/nn_modules/qlinear/__init__.py", "pack_original", second | {"THREADPOOLCTL": Threads()})
gemm = {"torch": torch, "nn": torch.nn, "get_best_device": lambda: "cpu"}
gemm = part_of(autoawq / "awq/modules/linear/gemm.py", "WQLinear_GEMM", gemm)

generator = torch.Generator().manual_seed(59)
outputs, inputs, group = 32, 96, 32
weight = 0.05 * torch.randn(outputs, inputs, generator=generator)
weight[3, 7], weight[5, 40] = 1.5, -0.9
weight[8] *= 1e-3
weight[9, :group] = 0
tensors = {"w.weight": weight.clone()}
for bits in [2, 3, 4, 8]:
    for zero_points in [False, True]:
        grid = quantizer.Quantizer()
        grid.configure(bits, perchannel=True, sym=not zero_points)
        found = []
        for first in range(0, inputs, group):
            grid.find_params(weight[:, first : first + group], weight=True)
            found.append((grid.scale.flatten()[:outputs].clone(), grid.zero.flatten()[:outputs].clone()))
        scales, zeros = (torch.stack(parts, 1) for parts in zip(*found))
        scales = scales.half().float()
        wide = [x.repeat_interleave(group, 1) for x in (scales, zeros)]
        values = quantizer.quantize(weight, *wide, 2**bits - 1)
        integers = torch.round(values / wide[0] + wide[1]).int()
        linear = torch.nn.Linear(inputs, outputs, bias=False)
        linear.weight.data = values
        g_idx = (torch.arange(inputs) // group).int()
        name = f"int{bits}(group_size={group},zero_points={str(zero_points).lower()})"

        def add(tool, **parts):
            tensors.update({f"{tool}/{name}/{part}": tensor.contiguous().clone() for part, tensor in parts.items()})

        def add_layer(tool, layer, *more):
            parts = {part: getattr(layer, part) for part in ["qweight", "qzeros", *more]}
            add(tool, scales=layer.scales.half(), **parts)

        if zeros.min() > 0:
            # The function stores 0 as -1.
            layer = cuda.QuantLinear(bits, group, inputs, outputs, False)
            layer.pack(linear, scales.clone(), zeros.clone(), g_idx)
            add_layer("gptq", layer, "g_idx")
        layer = types.SimpleNamespace(bits=bits, maxq=2**bits - 1, pack_dtype_bits=32, pack_factor=32 // bits, planar=False)
        layer.pack_np_math_dtype, layer.pack_np_dtype, layer.bias = np.uint32, np.int32, None
        layer.register_buffer = lambda part, tensor, layer=layer: setattr(layer, part, tensor)
        second(layer, linear, scales.clone(), zeros.clone(), g_idx)
        add_layer("gptq_v2", layer, "g_idx")
        if bits == 4:
            layer = gemm.from_linear(linear, bits, group, scales=scales.t().contiguous(), zeros=zeros.t().contiguous())
            add_layer("awq", layer)
        middle = 2 ** (bits - 1)
        add("compressed-tensors", weight_packed=pack_to_int32((integers - middle).to(torch.int8), bits))
        add("compressed-tensors", weight_scale=scales.half(), weight_shape=torch.tensor([outputs, inputs]))
        if zero_points:
            packed = pack_to_int32((zeros - middle).to(torch.int8), bits, packed_dim=0)
            add("compressed-tensors", weight_zero_point=packed)
save_file(tensors, pathlib.Path(__file__).parent / "written.safetensors", {"format": "pt"})
