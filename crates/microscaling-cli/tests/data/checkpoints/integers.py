"""Writes gptq/, awq/ and their expected values: random words, whose values the tools' own functions give on a CPU.

python integers.py FOLDER_OF_AUTO_GPTQ FOLDER_OF_AUTOAWQ, with torch 2.8 and transformers; the folders are the unpacked packages of
auto-gptq 0.7.1 and autoawq 0.2.9, of which one file each is run.
"""

import importlib.util
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


here = pathlib.Path(__file__).parent
gptq = load(pathlib.Path(sys.argv[1]) / "auto_gptq/nn_modules/qlinear/qlinear_cuda.py")
awq = load(pathlib.Path(sys.argv[2]) / "awq/utils/packing_utils.py")
generator = torch.Generator().manual_seed(7)
inputs, outputs, group = 64, 32, 16


def words(*shape):
    return torch.randint(-(2**31), 2**31, shape, generator=generator).to(torch.int32)


def scales():
    return (0.01 * torch.randn(inputs // group, outputs, generator=generator)).to(torch.float16)


def write(name, tensors, expected, config):
    (here / name).mkdir(exist_ok=True)
    save_file(tensors, here / name / "model.safetensors", {"format": "pt"})
    save_file(expected, here / f"{name}.expected.safetensors")
    text = json.dumps({"quantization_config": config}, indent=1)
    (here / name / "config.json").write_text(text + "\n")


tensors, expected = {"norm.weight": torch.ones(inputs, dtype=torch.float16)}, {}
for bits in [2, 3, 4, 8]:
    layer = gptq.QuantLinear(bits, group, inputs, outputs, False)
    layer.qweight = words(inputs * bits // 32, outputs)
    layer.qzeros = words(inputs // group, outputs * bits // 32)
    layer.scales = scales()
    if bits != 2:
        order = torch.randperm(inputs, generator=generator)
        layer.g_idx = (torch.arange(inputs) // group)[order].to(torch.int32)
    tensors |= {f"bits{bits}.{part}": getattr(layer, part).clone() for part in ["qweight", "qzeros", "scales", "g_idx"]}
    layer.scales = layer.scales.float()
    # The product with the identity matrix.
    expected[f"bits{bits}.weight"] = layer(torch.eye(inputs)).t().contiguous()
write("gptq", tensors, expected, {"quant_method": "gptq", "group_size": group, "desc_act": True, "sym": False, "checkpoint_format": "gptq"})

tensors = {"a.qweight": words(inputs, outputs // 8), "a.qzeros": words(inputs // group, outputs // 8), "a.scales": scales()}
values = awq.dequantize_gemm(tensors["a.qweight"], tensors["a.qzeros"], tensors["a.scales"].float(), 4, group)
tensors["norm.weight"] = torch.ones(inputs, dtype=torch.float16)
config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
write("awq", tensors, {"a.weight": values.t().contiguous()}, config)
