"""Random checkpoints that compressed-tensors writes, read by `microscaling`, and converted ones, read by compressed-tensors.

python compressed_tensors_folders.py MICROSCALING [COUNT]

Each folder has a few linear layers in two to four formats of the library's presets and of random integer formats, with random shapes, as
one file or as two shards. The values of `unpack` equal the library's own in float32, zeros of either sign alike. `inspect`, `diff` and
`convert --to compressed-tensors` succeed; the library accepts the config that `convert` writes and reads the converted tensors. Folders of
integers alone go to GPTQ's and AWQ's layouts and back, with the same values and at last the same bytes.
Needs compressed-tensors 0.20.0, torch and NumPy.
"""

import collections
import copy
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.format import infer_module_format
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.mxfp6.helpers import unpack_fp6_from_uint8
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import load_file, save_file

PRESETS = {
    "W8A8": "int-quantized", "W8A16": "pack-quantized", "W4A16": "pack-quantized", "W4A16_ASYM": "pack-quantized",
    "FP8": "float-quantized", "FP8_DYNAMIC": "float-quantized", "FP8_BLOCK": "float-quantized",
    "NVFP4A16": "nvfp4-pack-quantized", "NVFP4": "nvfp4-pack-quantized",
    "MXFP4A16": "mxfp4-pack-quantized", "MXFP4": "mxfp4-pack-quantized",
    "MXFP6A16": "mxfp6-pack-quantized", "MXFP8A16": "mxfp8-quantized", "MXFP8": "mxfp8-quantized",
}


def some_scheme(targets):
    """A preset, or integers of any width."""
    if random.random() < 0.3:
        strategy = random.choice(["group", "channel"])
        size = {"group_size": random.choice([32, 64, 128])} if strategy == "group" else {}
        bits = random.choice([2, 3, 4, 5, 6, 7, 8])
        weights = QuantizationArgs(num_bits=bits, type="int", strategy=strategy, symmetric=random.random() < 0.5, **size)
        return "pack-quantized", QuantizationScheme(targets=targets, weights=weights)
    name = random.choice(sorted(PRESETS))
    return PRESETS[name], preset_name_to_scheme(name, targets)


def blocks(weight, args):
    """The smallest and the largest number of each part of a weight that shares a scale."""
    strategy = str(getattr(args.strategy, "value", args.strategy))
    if strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    if strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    rows, columns = args.block_structure if strategy == "block" else (1, args.group_size)
    height, width = -(-weight.shape[0] // rows), -(-weight.shape[1] // columns)
    parts = [[weight[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns] for j in range(width)] for i in range(height)]
    return tuple(torch.stack([torch.stack([of(part) for part in row]) for row in parts]) for of in (torch.min, torch.max))


def compress(weight, form, scheme):
    """The tensors that the library stores, and its values in float32."""
    args = scheme.weights
    state = {"weight": weight}
    if form == "nvfp4-pack-quantized":
        state["weight_global_scale"] = generate_gparam(weight.min(), weight.max())
    low, high = blocks(weight, args)
    scale, zero = calculate_qparams(low, high, args, global_scale=state.get("weight_global_scale"))
    state["weight_scale"] = scale
    if not args.symmetric:
        state["weight_zero_point"] = zero
    stored = BaseCompressor.get_value_from_registry(form).compress(dict(state), scheme)
    return {name: tensor.detach() for name, tensor in stored.items()}


def values(stored, form, scheme):
    """The library's values in float32, as `decompress` computes them from float32 scales."""
    stored, args = dict(stored), scheme.weights
    compressor = BaseCompressor.get_value_from_registry(form)
    if form in ("float-quantized", "int-quantized", "pack-quantized"):
        stored["weight_scale"] = stored["weight_scale"].float()
        return compressor.decompress(stored, scheme)["weight"].float()
    if form == "mxfp8-quantized":
        codes = stored["weight"].float()
    elif form == "mxfp6-pack-quantized":
        rows, width = stored["weight_packed"].shape
        codes = unpack_fp6_from_uint8(stored["weight_packed"], rows, width * 4 // 3, torch.float32)
    else:
        rows, width = stored["weight_packed"].shape
        codes = unpack_fp4_from_uint8(stored["weight_packed"], rows, width * 2, torch.float32)
    scale = stored["weight_scale"]
    scale = decompress_mx_scale(scale).float() if form.startswith("mx") else scale.float()
    return dequantize(x_q=codes, scale=scale, args=args, dtype=torch.float32, global_scale=stored.get("weight_global_scale"))


def write(folder, tensors, config):
    names = sorted(tensors)
    if random.random() < 0.5:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    else:
        files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        places = {name: random.choice(files) for name in names} | {names[0]: files[0], names[-1]: files[1]}
        for file in files:
            save_file({name: tensors[name] for name in names if places[name] == file}, folder / file, {"format": "pt"})
        index = {"metadata": {}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))


def tensors_of(folder):
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def layer_of(tensors, module):
    return {name.removeprefix(module + "."): tensor for name, tensor in tensors.items() if name.startswith(module + ".")}


def one(microscaling, seed):
    random.seed(seed)
    torch.manual_seed(seed)

    def run(*words, status=0):
        done = subprocess.run([microscaling, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == status, (seed, words, done.stdout[-500:], done.stderr)
        return done.stdout

    modules, tensors, expected, groups = {}, {}, {}, {}
    for number in range(random.randint(2, 4)):
        targets = [f"re:.*layers\\.{number}\\..*"]
        form, scheme = some_scheme(targets)
        scheme.format = form
        groups[f"group_{number}"] = scheme
        for name in ["self_attn.q_proj", "mlp.up_proj"]:
            module = f"model.layers.{number}.{name}"
            weight = torch.randn(random.choice([32, 96, 160]), random.choice([128, 256, 384])) * 0.1
            weight[0, :32] = 0
            stored = compress(weight.to(torch.bfloat16 if random.random() < 0.5 else torch.float32), form, scheme)
            modules[module] = (form, scheme)
            tensors |= {f"{module}.{part}": tensor.contiguous() for part, tensor in stored.items()}
            expected[f"{module}.weight"] = values(stored, form, scheme)
            if form == "nvfp4-pack-quantized" and scheme.input_activations is not None:
                tensors[f"{module}.input_global_scale"] = torch.rand(1) + 1
    tensors["lm_head.weight"] = torch.randn(32, 64).to(torch.bfloat16)
    config = QuantizationConfig(config_groups=groups, ignore=["lm_head"], format="mixed-precision", quantization_status="compressed")
    config = json.loads(config.model_dump_json()) | {"quant_method": "compressed-tensors"}

    count = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ["in", "out"]:
            (folder / name).mkdir()
        write(folder / "in", tensors, config)
        run("unpack", folder / "in", "--out", folder / "float.safetensors")
        unpacked = load_file(folder / "float.safetensors")
        assert sorted(unpacked) == sorted([*expected, "lm_head.weight"]), seed
        for name, tensor in expected.items():
            assert torch.equal(unpacked[name], tensor), (seed, name, modules[name.removesuffix(".weight")])
            count += tensor.numel()
        said = json.loads(run("inspect", folder / "in", "--json"))
        assert said["unread"] == said["contradictions"] == [], (seed, said)
        run("diff", folder / "in", folder / "in")
        run("convert", folder / "in", folder / "out", "--to", "compressed-tensors")
        written = json.loads((folder / "out/model.config.json").read_text())["quantization_config"]
        accepted = QuantizationConfig.model_validate(copy.deepcopy(written))
        schemes = {}
        for scheme in accepted.config_groups.values():
            targets = modules if scheme.targets == ["Linear"] else scheme.targets
            schemes |= {module: scheme for module in targets}
        original = QuantizationConfig.model_validate(copy.deepcopy(config)).config_groups.values()
        original = {scheme.targets[0]: scheme for scheme in original}
        back = tensors_of(folder / "out")
        assert sorted(back) == sorted(tensors), seed
        for module, (form, scheme) in modules.items():
            was = original[scheme.targets[0]]
            assert schemes[module].format == form, (seed, module, form)
            assert (schemes[module].weights, schemes[module].input_activations) == (was.weights, was.input_activations), (seed, module)
            layer = {name: part for name, part in layer_of(back, module).items() if not name.startswith("input")}
            assert torch.equal(values(layer, form, schemes[module]), expected[f"{module}.weight"]), (seed, module, form)
    return count, {form for form, _ in modules.values()}


def integers(microscaling, seed):
    """A folder of integers in GPTQ's and AWQ's layouts, and back; the layouts that hold the folder."""
    random.seed(seed)
    torch.manual_seed(seed)

    def run(*words):
        return subprocess.run([microscaling, *map(str, words)], capture_output=True, text=True)

    form, tensors, groups = "pack-quantized", {}, {}
    bits = random.choice([2, 3, 4, 4, 4, 8])
    for module in ["a.q_proj", "a.up_proj"]:
        strategy = random.choice(["group", "channel"])
        size = {"group_size": random.choice([32, 64, 128])} if strategy == "group" else {}
        weights = QuantizationArgs(num_bits=bits, type="int", strategy=strategy, symmetric=random.random() < 0.5, **size)
        scheme = QuantizationScheme(targets=[module], weights=weights, format=form)
        weight = torch.randn(random.choice([32, 96, 100]), random.choice([128, 256])) * 0.1
        stored = compress(weight.to(torch.bfloat16 if random.random() < 0.5 else torch.float32), form, scheme)
        tensors |= {f"{module}.{part}": tensor.contiguous() for part, tensor in stored.items()}
        tensors[f"{module}.bias"] = torch.ones(len(weight))
        groups[f"group_{len(groups)}"] = scheme
    config = QuantizationConfig(config_groups=groups, format=form, quantization_status="compressed")
    config = json.loads(config.model_dump_json()) | {"quant_method": "compressed-tensors"}
    held = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "in").mkdir()
        write(folder / "in", tensors, config)
        for layout in ["gptq", "gptq_v2", "awq"]:
            done = run("convert", folder / "in", folder / layout, "--to", layout)
            if done.returncode:
                assert done.returncode == 2 and "allowed" in done.stderr and not (folder / layout).exists(), (seed, done.stderr)
                continue
            done = [
                run("diff", folder / "in", folder / layout),
                run("convert", folder / layout, folder / "back", "--to", "compressed-tensors"),
            ]
            assert not any(x.returncode for x in done), (seed, layout, [x.stderr + x.stdout for x in done])
            back = tensors_of(folder / "back")
            assert sorted(back) == sorted(tensors) and all(torch.equal(back[name], tensors[name]) for name in back), (seed, layout)
            shutil.rmtree(folder / "back")
            held.append(layout)
    return held


def awq(microscaling):
    """A weight of AWQ, as `convert` repacks it: compressed-tensors reads AutoAWQ's values."""
    data = pathlib.Path(__file__).parent.parent / "data/checkpoints"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder) / "out"
        command = [microscaling, "convert", data / "awq", folder, "--to", "compressed-tensors"]
        subprocess.run(command, check=True, capture_output=True)
        config = json.loads((folder / "model.config.json").read_text())["quantization_config"]
        scheme = QuantizationConfig.model_validate(config).config_groups["group_0"]
        layer = layer_of(tensors_of(folder), "a")
        expected = load_file(data / "awq.expected.safetensors")["a.weight"]
        assert torch.equal(values(layer, "pack-quantized", scheme), expected)


def numbers(rows, columns, dtype):
    """A weight with what rounds in another way: zeros, ties, subnormal numbers, large and small rows and columns."""
    weight = torch.randn(rows, columns)
    weight *= torch.exp2(torch.randint(-8, 8, (rows, 1)).float())
    # Half codes of integers and of FP8, beside a largest number that makes the scale a power of two.
    weight[1] = (torch.arange(columns) % 255 - 127) / 2
    weight[1, ::64] = 127.5
    weight[2] = (torch.arange(columns) % 64 + 0.5) * 2.0**-6
    weight[2, ::64] = 448
    weight[3] = torch.randn(columns) * 2.0**-130
    weight[4, :128] = 0
    weight[5] = 0
    weight[6] = -weight[6].abs()
    weight[7] = weight[7].abs()
    weight[:, 5] = -0.0
    return weight.to(dtype)


def from_floats(microscaling, seed):
    """`quantize --scheme` writes the library's tensors and the library's scheme; the values that were compared."""
    random.seed(seed)
    torch.manual_seed(seed)
    name = sorted(set(PRESET_SCHEMES) - {"UNQUANTIZED"})[seed % (len(PRESET_SCHEMES) - 1)]
    scheme = preset_name_to_scheme(name, ["Linear"])
    form = infer_module_format(torch.nn.Linear, scheme).value
    # In float16 the library makes 1 of MX scales that float16 does not have.
    dtype = random.choice([torch.float32, torch.bfloat16, *([] if form.startswith("mx") else [torch.float16])])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "in").mkdir()
        weights = {f"model.layers.0.{part}": numbers(random.choice([32, 96, 160]), random.choice([128, 256, 384]), dtype) for part in ["a", "b"]}
        stored = {f"{module}.weight": weight for module, weight in weights.items()} | {"lm_head.weight": torch.randn(32, 128)}
        save_file(stored, folder / "in/model.safetensors", {"format": "pt"})
        command = ["quantize", folder / "in", folder / "out", "--scheme", name, "--skip", "lm_head*"]
        largest = 3.0
        if scheme.input_activations is not None and scheme.input_activations.dynamic in (False, "local"):
            command += ["--input-max", largest]
        if form == "nvfp4-pack-quantized":
            command += ["--own-scales"]
        done = subprocess.run([microscaling, *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, (seed, name, done.stderr)
        written = json.loads((folder / "out/model.config.json").read_text())["quantization_config"]
        accepted = QuantizationConfig.model_validate(copy.deepcopy(written))
        group = accepted.config_groups["group_0"]
        # The observers are the calibration's, and the type of zero points is of weights that have them.
        same = lambda args: args and args.model_copy(update={"observer": None} | ({"zp_dtype": None} if args.symmetric else {}))
        assert (accepted.format, group.format, accepted.ignore) == (form, form, ["lm_head"]), (name, written)
        for part in ["weights", "input_activations"]:
            assert same(getattr(group, part)) == same(getattr(scheme, part)), (name, part, getattr(group, part), getattr(scheme, part))
        written = tensors_of(folder / "out")
        for module, weight in weights.items():
            layer = layer_of(written, module)
            expected = compress(weight, form, scheme)
            if "input_scale" in layer:
                expected["input_scale"], _ = calculate_qparams(-torch.tensor([largest], dtype=dtype), torch.tensor([largest], dtype=dtype), scheme.input_activations)
            if "input_global_scale" in layer:
                expected["input_global_scale"] = generate_gparam(torch.tensor(-largest), torch.tensor(largest))
            assert sorted(layer) == sorted(expected), (seed, name, sorted(layer), sorted(expected))
            for part, tensor in expected.items():
                is_equal = layer[part].dtype == tensor.dtype and layer[part].shape == tensor.shape
                assert is_equal, (seed, name, part, layer[part].dtype, layer[part].shape, tensor.dtype, tensor.shape)
                as_bytes = lambda x: x.clone(memory_format=torch.contiguous_format).view(torch.uint8)
                found_bytes, expected_bytes = as_bytes(layer[part]), as_bytes(tensor)
                if form == "mxfp8-quantized" and part == "weight":
                    # Zero points of 0, which the library adds in one of its ways, take the sign from -0; `quantize` has no sign there.
                    found_bytes[layer[part].float() == 0] = expected_bytes[tensor.float() == 0] = 0
                differ = (found_bytes != expected_bytes).nonzero()
                assert len(differ) == 0, (seed, name, dtype, part, len(differ), differ[:4])
        save_file({f"{module}.weight": values(compress(weight, form, scheme), form, scheme) for module, weight in weights.items()}, folder / "expected.safetensors")
        for command in [["unpack", folder / "out", "--out", folder / "unpacked.safetensors"], ["inspect", folder / "out"]]:
            done = subprocess.run([microscaling, *map(str, command)], capture_output=True, text=True)
            # `inspect` and `unpack` read config.json.
            assert done.returncode == 0, (seed, name, done.stdout[-600:], done.stderr)
        unpacked, expected = load_file(folder / "unpacked.safetensors"), load_file(folder / "expected.safetensors")
        for module, tensor in expected.items():
            assert torch.equal(unpacked[module], tensor), (seed, name, module)
    return sum(weight.numel() for weight in weights.values())


if __name__ == "__main__":
    awq(sys.argv[1])
    floats = sum(from_floats(sys.argv[1], seed) for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 100))
    print(f"quantize --scheme: {floats} codes and their scales equal those of compressed-tensors, in each of {len(PRESET_SCHEMES) - 1} schemes")
    total, forms, held = 0, set(), collections.Counter()
    for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 100):
        count, found = one(sys.argv[1], seed)
        total, forms = total + count, forms | found
        held.update(integers(sys.argv[1], seed))
    print(f"{total} values equal those of compressed-tensors; formats: {', '.join(sorted(forms))}")
    print(f"folders of integers that other layouts hold: {dict(held)}")
