"""Makes `dialects.safetensors`: bytes that other tools make of the same weights.

Each tool is called as it is published; nothing here rounds. With Python 3.11:

    pip install torch==2.15.0 torchao==0.18.0 compressed-tensors==0.20.0 nvidia-modelopt==0.47.0 gguf==0.19.0 safetensors
    pip install "triton_kernels @ git+https://github.com/triton-lang/triton@018a674f#subdirectory=python/triton_kernels"
    git clone https://github.com/NVIDIA/TransformerEngine && git -C TransformerEngine checkout d0067d0d
    PYTHONPATH=TransformerEngine/transformer_engine/pytorch/custom_recipes python dialects.py dialects.safetensors

`transformer_engine_fast_math.py` is the one exception: no tool quantizes so without a GPU, and that file transcribes the kernel.

The file's metadata have one key, `cases`: a JSON list of `{"dialect", "format", "input", "id"}`. Tensor `in/<input>` is the weight,
float32 [out, in]; `<id>/scales` and `<id>/elements` are u8, two elements a byte with the even one in the low nibble, and
`<id>/tensor_scale` is a float32 that multiplies, of NVFP4 with one.
"""

import json
import sys
import types
import typing
from unittest import mock

import gguf
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.mx_utils import compress_mx_scale
from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
from compressed_tensors.quantization import QuantizationArgs, preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import quantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor
from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import save_file
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale
from transformer_engine_fast_math import quantize as fast_math_quantize
from transformer_engine_fast_math import ties as fast_math_ties
from triton_kernels.numerics_details.mxfp import downcast_to_mxfp_torch

# TransformerEngine's tests compare its kernels with `reference_nvfp4.py`. The file's imports need a GPU, its quantizer does not.
sys.modules["transformer_engine"] = sys.modules["transformer_engine.pytorch"] = mock.MagicMock()
sys.modules["transformer_engine.pytorch.custom_recipes"] = mock.MagicMock()
sys.modules["transformer_engine.pytorch.quantized_tensor"] = types.SimpleNamespace(QuantizedTensorStorage=object, Quantizer=object)
with mock.patch.multiple(typing, Union=mock.MagicMock(), Optional=mock.MagicMock()):
    from reference_nvfp4 import NVFP4QuantizerRef

tensors, cases = {}, []


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).clone()


def case(dialect, format, source, scales, elements, tensor_scale=None):
    id = f"{dialect}/{format}/{source}"
    tensors[f"{id}/scales"] = bytes_of(scales)
    tensors[f"{id}/elements"] = bytes_of(elements)
    if tensor_scale is not None:
        tensors[f"{id}/tensor_scale"] = tensor_scale.float().reshape(1).clone()
    cases.append({"dialect": dialect, "format": format, "input": source, "id": id})


def inputs():
    """Rows of blocks of 32: usual weights, ties, largest magnitudes around every threshold of a scale, zeros, extremes."""
    generator = torch.Generator().manual_seed(15)
    usual = torch.randn(24, 64, generator=generator) * torch.logspace(-3, 1, 24)[:, None]
    steps = torch.arange(32) / 8
    ties = torch.stack([torch.cat([steps, -2 * steps]) * 2.0**e for e in (-20, -1, 0, 7)])
    tops = []
    for significand in (1, 1.5, 1.75, 1.875):
        for ulps in (-9, -1, 0, 1, 9, 30):
            top = torch.tensor([significand * 4.0]).view(torch.int32) + ulps
            row = usual[len(tops)].clone()
            row = row / row.abs().max()
            # The second block likewise, where a float32 logarithm is coarser.
            row[32:] *= 2.0**-70
            row[5], row[40] = top.view(torch.float32)[0], -(top.view(torch.float32)[0] * 2.0**-70)
            tops.append(row)
    rows = [usual, ties, torch.stack(tops)]
    zeros = torch.zeros(2, 64)
    zeros[0, 1::2] = -0.0
    zeros[1, 40] = -1e-3
    small = usual[:2] / usual[:2].abs().max() * torch.tensor([2.0**-110, 2.0**100])[:, None]
    mx = torch.cat([*rows, zeros, small])
    # One scale for all: blocks far below the largest, too.
    nvfp4 = torch.cat([*rows, zeros, usual[:8] * torch.logspace(-9, -2, 8)[:, None]])
    # Scales next to the least one.
    tiny = usual[:4] / usual[:4].abs().max() * torch.logspace(-127, -118, 4, base=2)[:, None]
    return {"mx": mx.contiguous(), "nvfp4": nvfp4.contiguous(), "tiny": tiny.contiguous()}


def torchao(mx, nvfp4, tiny):
    for name, dtype in [
        ("mxfp8_e4m3", torch.float8_e4m3fn),
        ("mxfp8_e5m2", torch.float8_e5m2),
        ("mxfp4", torch.float4_e2m1fn_x2),
    ]:
        for source, weight in [("mx", mx), ("tiny", tiny)]:
            scales, elements = to_mx(weight, dtype, 32, ScaleCalculationMode.FLOOR)
            case("torchao", name, source, scales, elements)
    scales, elements = nvfp4_quantize(nvfp4)
    case("torchao", "nvfp4", "nvfp4", scales, elements)
    scale = per_tensor_amax_to_scale(nvfp4.abs().max())
    scales, elements = nvfp4_quantize(nvfp4, per_tensor_scale=scale)
    case("torchao", "nvfp4(tensor_scale=true)", "nvfp4", scales, elements, scale)


def compressed_tensors(mx, nvfp4, tiny):
    def args(bits, group, strategy, scale_dtype):
        return QuantizationArgs(
            num_bits=bits, type="float", strategy=strategy, group_size=group, symmetric=True, scale_dtype=scale_dtype
        )

    def parameters(weight, args, global_scale=None):
        blocks = weight.unflatten(-1, (-1, args.group_size))
        return calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=global_scale)

    for name, bits in [("mxfp4", 4), ("mxfp8_e4m3", 8)]:
        of_weights = args(bits, 32, "group", torch.uint8)
        scale, zero = parameters(mx, of_weights)
        codes = quantize(mx, scale, zero, of_weights)
        elements = pack_fp4_to_uint8(codes) if bits == 4 else codes.to(torch.float8_e4m3fn)
        case("compressed-tensors", name, "mx", compress_mx_scale(scale, torch.uint8), elements)
    # The compressor of the layout, which has no zero point.
    scheme = preset_name_to_scheme("MXFP6A16", ["Linear"])
    compressor = BaseCompressor.get_value_from_registry("mxfp6-pack-quantized")
    for source, weight in [("mx", mx), ("tiny", tiny)]:
        scale, _ = parameters(weight, scheme.weights)
        stored = compressor.compress({"weight": weight, "weight_scale": scale}, scheme)
        case("compressed-tensors", "mxfp6_e2m3", source, stored["weight_scale"], stored["weight_packed"])
    of_weights = args(4, 16, "tensor_group", torch.float8_e4m3fn)
    global_scale = generate_gparam(nvfp4.min(), nvfp4.max())
    scale, zero = parameters(nvfp4, of_weights, global_scale)
    codes = quantize(nvfp4, scale, zero, of_weights, global_scale=global_scale)
    scales = scale.to(torch.float8_e4m3fn)
    # What it stores is the divisor.
    case("compressed-tensors", "nvfp4(tensor_scale=true)", "nvfp4", scales, pack_fp4_to_uint8(codes), global_scale)


def modelopt(mx, nvfp4, **_):
    packed, scales = MXFP4QTensor.quantize(mx.clone(), 32)
    case("modelopt", "mxfp4", "mx", scales, packed._quantized_data)
    packed, scales = MXFP8QTensor.quantize(mx.clone())
    case("modelopt", "mxfp8_e4m3", "mx", scales, packed._quantized_data)
    packed, scales, scale = NVFP4QTensor.quantize(nvfp4.clone(), 16)
    case("modelopt", "nvfp4(tensor_scale=true)", "nvfp4", scales, packed._quantized_data, scale)


def ggml(mx):
    blocks = gguf.quants.quantize(mx.numpy(), gguf.GGMLQuantizationType.MXFP4).reshape(-1, 17)
    case("ggml", "mxfp4", "mx", torch.from_numpy(blocks[:, :1].copy()), torch.from_numpy(blocks[:, 1:].copy()))


def transformer_engine(**weights):
    for source, weight in weights.items():
        amax = weight.abs().max()
        elements, scales = NVFP4QuantizerRef._quantize_blockwise_reference(
            weight, amax, tile_len_x=16, tile_len_y=1, pow_2_scales=False, eps=0.0
        )
        # As the kernel that dequantizes multiplies.
        scale = amax * torch.tensor(1.0 / (6.0 * 448.0))
        case("transformer-engine", "nvfp4(tensor_scale=true)", source, scales, elements, scale)


def transformer_engine_fast_math(**weights):
    weights["ties"] = tensors["in/ties"] = torch.from_numpy(fast_math_ties())
    for source, weight in weights.items():
        elements, scales, scale = fast_math_quantize(weight.numpy())
        parts = [torch.from_numpy(scales), torch.from_numpy(elements), torch.tensor(scale)]
        case("transformer-engine-fast-math", "nvfp4(tensor_scale=true)", source, *parts)


def triton_kernels(mx, tiny, **_):
    for name, dtype in [("mxfp4", torch.uint8), ("mxfp8_e4m3", torch.float8_e4m3fn), ("mxfp8_e5m2", torch.float8_e5m2)]:
        for source, weight in [("mx", mx), ("tiny", tiny)]:
            elements, scales = downcast_to_mxfp_torch(weight, dtype, axis=-1)
            case("triton-kernels", name, source, scales, elements)


weights = inputs()
tensors.update({f"in/{name}": weight for name, weight in weights.items()})
torchao(**weights)
compressed_tensors(**weights)
modelopt(**weights)
ggml(weights["mx"])
transformer_engine(**weights)
triton_kernels(**weights)
transformer_engine_fast_math(**weights)
save_file(tensors, sys.argv[1], {"cases": json.dumps(cases)})
