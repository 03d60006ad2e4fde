"""Makes `layouts.safetensors`: packed weights as other tools store them, and what those tools read out of them.

Each tool is called as it is published; nothing here packs or unpacks, but for `independent`, which decodes with ml_dtypes. With
Python 3.11:

    pip install torch==2.15.0 compressed-tensors==0.20.0 nvidia-modelopt==0.47.0 transformers==5.23.0 gguf==0.19.0 ml_dtypes==0.6.0 safetensors==0.8.0
    python layouts.py layouts.safetensors

The file's metadata have one key, `cases`: a JSON list of `{"id", "layout", "weight", "stored", "config"}`. `stored` are the names
that the tool gives the tensors of the weight `weight`; each is here as `<id>/<name>`. `config` is the `quantization_config` that
the tool writes, or null. `<id>: tool` and `<id>: ml_dtypes` are float32: the weight as the tool decodes it (of compressed-tensors
and of gpt-oss in bfloat16, which is what they make), and in float64 from the codes of ml_dtypes, rounded once. Of an id that ends
in `codes` the elements and the scales are drawn, all codes among them that are numbers, and only read by the tool.
"""

import json
import sys
import tempfile
from pathlib import Path

import gguf
import ml_dtypes
import modelopt.torch.quantization as mtq
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.model_compressors.model_compressor import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, Mxfp4Config
from transformers.integrations.mxfp4 import Mxfp4Dequantize

tensors, cases = {}, []


def halves(codes):
    return np.stack([codes & 15, codes >> 4], -1)


def six(codes):
    """Codes of 6 bits, the low bits first."""
    bits = np.unpackbits(codes, axis=-1, bitorder="little")
    return np.packbits(bits.reshape(*codes.shape[:-1], -1, 6), axis=-1, bitorder="little")[..., 0]


def independent(layout, parts):
    """In float64: codes by ml_dtypes, times the scale of each block, times that of the tensor."""
    parts = [part.contiguous().view(torch.uint8).numpy() if part.element_size() == 1 else part.numpy() for part in parts]
    if layout == "gguf-mxfp4":
        blocks = parts[0].reshape(*parts[0].shape[:-1], -1, 17)
        codes = np.moveaxis(halves(blocks[..., 1:]), -1, -2)
        parts = [None, blocks[..., 0]]
    elif layout == "mxfp6-pack-quantized":
        codes = six(parts[0])
    elif layout != "mxfp8-quantized":
        codes = halves(parts[0])
    of_scale = ml_dtypes.float8_e4m3fn if "nvfp4" in layout else ml_dtypes.float8_e8m0fnu
    scales = parts[1].view(of_scale).astype(np.float64)
    if layout == "mxfp8-quantized":
        elements = parts[0].view(ml_dtypes.float8_e4m3fn)
    else:
        of_codes = ml_dtypes.float6_e2m3fn if "mxfp6" in layout else ml_dtypes.float4_e2m1fn
        elements = codes.astype(np.uint8).view(of_codes)
    elements = elements.astype(np.float64).reshape(*scales.shape, -1)
    decoded = elements * scales[..., None]
    if layout == "nvfp4-pack-quantized":
        decoded = decoded / parts[2].astype(np.float64).item()
    elif layout == "modelopt-nvfp4":
        decoded = decoded * parts[2].astype(np.float64).item()
    return torch.from_numpy(decoded.reshape(*scales.shape[:-1], -1).astype(np.float32))


def drawn(layout, parts):
    """Parts of the same types and shapes with other codes; the scale of the tensor stays."""
    generator = np.random.default_rng(43)

    def like(part, codes):
        drawn = generator.permutation(np.resize(codes, part.numel())).astype(np.uint8)
        return torch.from_numpy(drawn).view(part.dtype).reshape(part.shape)

    codes, scales = np.arange(256), np.arange(100, 150)
    if layout == "mxfp8-quantized":
        codes = codes[codes & 127 != 127]
    elif layout == "gguf-mxfp4":
        blocks = like(parts[0], codes)
        every = blocks.unflatten(-1, (-1, 17))[..., 0]
        every.copy_(like(every, scales))
        return [blocks]
    elif "nvfp4" in layout:
        scales = np.arange(127)
    return [like(parts[0], codes), like(parts[1], scales), *parts[2:]]


def case(id, layout, weight, stored, decode, config=None):
    """`stored` are the elements, the scales, and the scale of the tensor, in this order."""
    parts = [tensor.detach().contiguous().clone() for tensor in stored.values()]
    for id, parts in [(id, parts), (f"{id}/codes", drawn(layout, parts))]:
        for name, tensor in zip(stored, parts):
            tensors[f"{id}/{name}"] = tensor.clone()
        tensors[f"{id}: tool"] = decode(*parts).detach().float().contiguous().clone()
        tensors[f"{id}: ml_dtypes"] = independent(layout, parts)
        cases.append({"id": id, "layout": layout, "weight": weight, "stored": list(stored), "config": config})


def weights(*shape):
    generator = torch.Generator().manual_seed(40)
    return torch.randn(*shape, generator=generator) * torch.logspace(-2, 1, shape[-2])[:, None]


def compressed_tensors(layout, weight, of_weights):
    group = {"targets": ["Linear"], "weights": of_weights}
    model = torch.nn.ModuleDict({"proj": torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)})
    model["head"] = torch.nn.Linear(32, 2, bias=False)
    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": group}, ignore=["head"]))
    proj = model["proj"]
    args = proj.quantization_scheme.weights
    proj.weight.data.copy_(weight)
    global_scale = None
    if hasattr(proj, "weight_global_scale"):
        global_scale = generate_gparam(weight.min(), weight.max())
        # Of the shape that the tool made room for.
        proj.weight_global_scale.data.copy_(global_scale.reshape(proj.weight_global_scale.shape))
    blocks = weight.unflatten(-1, (-1, args.group_size))
    scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=global_scale)
    proj.weight_scale.data.copy_(scale)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    with tempfile.TemporaryDirectory() as folder:
        # As `save_pretrained` does it: by way of a file.
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, f"{folder}/model.safetensors")
        compressor.update_config(folder)
        file = load_file(f"{folder}/model.safetensors")
        config = json.loads(Path(folder, "config.json").read_text())["quantization_config"]
    of_proj = {name: tensor for name, tensor in file.items() if name.startswith("proj.")}
    # The elements first, then the scales of the blocks, then that of the tensor.
    order = ["proj.weight", "proj.weight_packed", "proj.weight_scale", "proj.weight_global_scale"]
    stored = {name: of_proj.pop(name) for name in order if name in of_proj}
    assert not of_proj, of_proj.keys()
    own = BaseCompressor.get_value_from_registry(layout)

    def decode(*parts):
        local = {name.removeprefix("proj."): part for name, part in zip(stored, parts)}
        return own.decompress(local, proj.quantization_scheme)["weight"]

    case(f"compressed-tensors/{layout}", layout, "proj.weight", stored, decode, config)


def modelopt(layout):
    torch.manual_seed(41)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=32,
        architectures=["LlamaForCausalLM"],
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    quantized = mtq.quantize(model, mtq.W4A16_NVFP4_CFG, lambda model: model(torch.arange(16)[None]))
    with tempfile.TemporaryDirectory() as folder:
        export_hf_checkpoint(quantized, export_dir=folder)
        file = {}
        for path in Path(folder).glob("*.safetensors"):
            file.update(load_file(path))
        config = json.loads(Path(folder, "config.json").read_text())["quantization_config"]
    weight = "model.layers.0.mlp.up_proj.weight"
    of_weight = {name: tensor for name, tensor in file.items() if name.startswith("model.layers.0.mlp.up_proj.")}
    stored = {name: of_weight.pop(name) for name in [weight, f"{weight}_scale", f"{weight}_scale_2"]}
    assert not of_weight, of_weight.keys()

    def decode(codes, scales, scale):
        packed = NVFP4QTensor(torch.Size([codes.shape[0], 2 * codes.shape[1]]), torch.float32, codes)
        return packed.dequantize(dtype=torch.float32, scale=scales, double_scale=scale, block_sizes={-1: 16})

    case(f"modelopt/{layout}", layout, weight, stored, decode, config)


def gpt_oss(layout):
    generator = torch.Generator().manual_seed(42)
    prefix = "model.layers.0.mlp.experts."
    blocks = torch.randint(256, (2, 6, 3, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(100, 150, (2, 6, 3), generator=generator, dtype=torch.uint8)
    model = torch.nn.Module()
    model.gate_up_proj = torch.nn.Parameter(torch.empty(2, 96, 6, dtype=torch.bfloat16))
    config = json.loads(json.dumps(Mxfp4Config(modules_to_not_convert=["head"]).to_dict()))
    stored = {prefix + "gate_up_proj_blocks": blocks, prefix + "gate_up_proj_scales": scales}

    def decode(*parts):
        local = {name.removeprefix(prefix): part for name, part in zip(stored, parts)}
        decoded = Mxfp4Dequantize(None).convert(local, model=model, full_layer_name="gate_up_proj")["gate_up_proj"]
        # [experts, in, out]
        return decoded.transpose(1, 2)

    case(f"transformers/{layout}", layout, prefix + "gate_up_proj", stored, decode, config)


def ggml(layout, weight, name):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        kind = gguf.GGMLQuantizationType.MXFP4
        writer.add_tensor(name, gguf.quants.quantize(weight.numpy(), kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        (read,) = gguf.GGUFReader(path).tensors
        assert (read.name, read.tensor_type) == (name, kind)
        # A GGUF file has the lengths of axes from the last to the first, in elements.
        assert list(read.shape[::-1]) == list(weight.shape)
        data = np.array(read.data)

    def decode(blocks):
        return torch.from_numpy(gguf.quants.dequantize(blocks.numpy(), kind))

    case(f"gguf/{layout}/{name}", layout, name, {name: torch.from_numpy(data)}, decode)


def float_args(bits, group, strategy, scale_dtype):
    return {
        "num_bits": bits, "type": "float", "symmetric": True, "strategy": strategy, "group_size": group, "scale_dtype": scale_dtype
    }  # fmt: skip


compressed_tensors("mxfp4-pack-quantized", weights(6, 96), float_args(4, 32, "group", torch.uint8))
compressed_tensors("mxfp6-pack-quantized", weights(6, 96), float_args(6, 32, "group", torch.uint8))
compressed_tensors("mxfp8-quantized", weights(6, 96), float_args(8, 32, "group", torch.uint8))
compressed_tensors("nvfp4-pack-quantized", weights(6, 64), float_args(4, 16, "tensor_group", torch.float8_e4m3fn))
modelopt("modelopt-nvfp4")
gpt_oss("gpt-oss")
ggml("gguf-mxfp4", weights(6, 96), "blk.0.ffn_up.weight")
ggml("gguf-mxfp4", weights(2, 6, 64), "blk.0.ffn_up_exps.weight")
save_file(tensors, sys.argv[1], {"cases": json.dumps(cases)})
