"""Exports each pair of an engine and a configuration from a small float model, and loads it in the engine: a table in Markdown.

python engine_pairs.py MICROSCALING [--lm LANGUAGE_MODEL] [--onnx QUANTIZE_ONNX] [--keep FOLDER]

Small models of random weights, by transformers: a Llama, a Mixtral and a gpt-oss. Each row is exported by the commands that it names. A row that says `loaded`
had no missing tensor and no other values than `microscaling unpack` gives. With float inputs the logits equal those of transformers with the unpacked
weights; with quantized inputs they are others. A row that is not loaded has the engine's own message. The exit status is 1 if a row ends in another way
than this file expects.
Needs torch, transformers 5.24.0 and compressed-tensors 0.20.0; for llama.cpp the program `lm`, cyllama and gguf; for ONNX Runtime the program
`quantize_onnx`, onnx and onnxruntime. Without these programs the rows are left out. `--keep` keeps the exported folders and logits, for
`vllm_pairs.py`.
"""

import argparse
import dataclasses
import json
import importlib.util
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import loguru
import numpy as np
import tokenizers
import torch
import transformers
from compressed_tensors.quantization.lifecycle.forward import forward_quantize
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

os.environ["TQDM_DISABLE"] = "1"
TOKENS = torch.arange(3, 35).reshape(1, -1)
# The linear layers of the Llama.
PARTS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
LAYERS = [f"model.layers.{layer}.{part}" for layer in range(2) for part in PARTS]
SKIP = ["--skip", "*embed*", "--skip", "lm_head*"]


@dataclasses.dataclass
class Row:
    engine: str
    configuration: str
    command: str
    said: str
    is_expected: bool = True

    def markdown(self):
        return f"| {self.engine} | {self.configuration} | {self.command} | {self.said} |"


def models(folder):
    """Folders of float models."""
    common = dict(vocab_size=256, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False)
    experts = dict(num_local_experts=4, num_experts_per_tok=2)
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    configs = {
        "llama": transformers.LlamaConfig(hidden_size=256, intermediate_size=384, num_hidden_layers=2, **common),
        "mixtral": transformers.MixtralConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, **common, **experts),
        "gpt-oss": transformers.GptOssConfig(
            hidden_size=64, intermediate_size=96, head_dim=16, num_hidden_layers=2, rope_parameters=rope, **common, **experts
        ),
    }
    for name, config in configs.items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            # Rows of other sizes, and zeros.
            if parameter.dim() > 1:
                parameter.data *= torch.exp2(torch.randint(-1, 2, (*parameter.shape[:-1], 1)).float())
                parameter.data[..., :3] = 0
        model.save_pretrained(folder / name)
        tokenizer(folder / name / "tokenizer.json")


def tokenizer(file):
    """A token for each byte."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(file))


class Pairs:
    def __init__(self, microscaling, folder, keep):
        self.microscaling, self.folder, self.keep, self.rows = microscaling, folder, keep, []

    def run(self, *words):
        done = subprocess.run([self.microscaling, *map(str, words)], capture_output=True, text=True)
        return done.returncode, (done.stdout + done.stderr).strip()

    def export(self, model, name, *commands):
        """The folder that a chain of commands makes of a model."""
        source = self.folder / model
        for number, words in enumerate(commands):
            out = self.folder / f"{name}-{number}"
            status, said = self.run(words[0], source, out, *words[1:])
            if status:
                return None, said
            source = out
        return source, ""

    def reference(self, folder):
        """The float model of the values that `unpack` gives."""
        floats = self.folder / "floats"
        shutil.rmtree(floats, ignore_errors=True)
        floats.mkdir()
        status, said = self.run("unpack", folder, "--out", floats / "model.safetensors")
        assert status == 0, said
        config = json.loads((folder / "config.json").read_text())
        config.pop("quantization_config", None)
        (floats / "config.json").write_text(json.dumps(config))
        return AutoModelForCausalLM.from_pretrained(floats, dtype=torch.float32).eval()

    def load(self, folder, **loading):
        """The engine's model, what it says about the tensors, and its warnings."""
        warned = []
        handler = logging.Handler()
        handler.emit = lambda record: warned.append(record.getMessage())
        logger = logging.getLogger("transformers")
        logger.addHandler(handler)
        try:
            model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **loading)
        finally:
            logger.removeHandler(handler)
            # It comes before a later error, or before a model whose weights have no scales.
            if unknown := [line for line in warned if "Unknown quantization type" in line]:
                raise ValueError(unknown[0].split(" - ")[0]) from None
        return model.eval(), info

    def add(self, engine, configuration, command, said, is_expected=True):
        row = Row(engine, configuration, command, said.replace("|", "\\|"), is_expected)
        print(row.markdown() + ("" if is_expected else " NOT EXPECTED"), flush=True)
        self.rows.append(row)

    def check(self, engine, configuration, model, commands, expected=None, quantizes_inputs=False, **loading):
        """A row; `expected` is a part of the engine's message where the engine does not load the folder."""
        shown = ", then ".join(f"`{' '.join(map(str, words))}`" for words in commands).replace(f" {' '.join(SKIP)}", "")
        folder, said = self.export(model, f"{configuration}-{model}".replace(" ", "-"), *commands)
        if folder is None:
            return self.add(engine, configuration, shown, said, False)
        if len(commands) > 1:
            # Converted: the values of the first folder, but for the reciprocals of NVFP4's tensor scales.
            first = self.reference(self.folder / folder.name.replace(f"-{len(commands) - 1}", "-0")).state_dict()
            for name, tensor in self.reference(folder).state_dict().items():
                assert torch.allclose(tensor, first[name], rtol=3e-7, atol=0), (configuration, name)
        self.judge(engine, configuration, shown, folder, expected, quantizes_inputs, **loading)

    def judge(self, engine, configuration, shown, folder, expected=None, quantizes_inputs=False, **loading):
        """The row of a folder."""
        reference = self.reference(folder)
        keep = None
        if self.keep is not None and reference.config.model_type == "llama":
            keep = self.keep / (configuration.replace("`", "") + ("-modelopt" if "Optimizer" in engine else ""))
            shutil.copytree(folder, keep)
            with torch.no_grad():
                kept = [reference(TOKENS).logits[0].numpy()]
            np.save(f"{keep}.logits.npy", kept)
        try:
            loaded, info = self.load(folder, **loading)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            return self.add(engine, configuration, shown, f"not loaded: {text}", expected is not None and expected in text)
        said, is_expected = compare(loaded, info, reference, packed(folder))
        if quantizes_inputs:
            text, logits = inputs(folder)
            said += "; " + text
            if keep is not None:
                np.save(f"{keep}.logits.npy", [*kept, logits.float().numpy()])
            is_expected &= "inputs quantized" in said
        if expected is not None:
            is_expected = expected in said
        self.add(engine, configuration, shown, said, is_expected)


def inputs(folder):
    """Whether the engine quantizes the input of a layer, by the layer's own scheme."""
    # compressed-tensors unpacks some formats to bfloat16, and the product needs one type.
    dtype = torch.bfloat16 if any(name.startswith(("mx", "nvfp4")) for name in formats(folder)) else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        logits = model(TOKENS).logits[0]
        assert logits.isfinite().all()
        layer = model.model.layers[0].mlp.up_proj
        x = torch.randn(1, 8, layer.in_features, dtype=dtype)
        quantized = forward_quantize(layer, x, "input", layer.quantization_scheme.input_activations)
        expected, floats = (torch.nn.functional.linear(input, layer.weight) for input in (quantized, x))
        found = layer(x)
    fixed = [f"{name} {getattr(layer, name).item():g}" for name in ("input_scale", "input_global_scale") if hasattr(layer, name)]
    is_quantized = torch.equal(found, expected) and not torch.equal(found, floats)
    return ", ".join(["inputs quantized" if is_quantized else "inputs in float", *fixed]), logits


def formats(folder):
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    return [group["format"] for group in config.get("config_groups", {}).values() if "format" in group]


def packed(folder):
    """How many weights are quantized."""
    names = [name for file in folder.glob("*.safetensors") for name in load_file(file)]
    ends = ("_packed", "_blocks", ".qweight", "_scale_inv")
    count = sum(name.endswith(ends) for name in names)
    return count or sum(name.endswith("weight_scale") for name in names)


def compare(loaded, info, reference, count):
    """What a loaded model is, beside the model with the unpacked weights."""
    # The weights alone are loaded here.
    fixed = lambda name: name.endswith(("input_scale", "input_global_scale"))
    bad = {key: [name for name in names if not fixed(str(name))] for key, names in info.items()}
    bad = {key: names for key, names in bad.items() if names}
    if bad:
        return f"loaded without some tensors: {bad}"[:300], False
    state, expected = loaded.state_dict(), reference.state_dict()
    if state.keys() != expected.keys():
        return f"loaded with other names: {sorted(state.keys() ^ expected.keys())[:3]}", False
    differ = [name for name in expected if not torch.equal(state[name].float(), expected[name])]
    rounded = [name for name in differ if torch.equal(state[name].float(), expected[name].bfloat16().float())]
    if len(rounded) < len(differ):
        wrong = [name for name in differ if name not in rounded]
        return f"loaded with other values: {', '.join(f'`{name}`' for name in wrong[:1])} and {len(wrong) - 1} more", False
    with torch.no_grad():
        same = torch.equal(loaded.float()(TOKENS).logits, reference(TOKENS).logits)
    if not differ and not same:
        return "loaded; other logits", False
    return f"loaded: {count} weights equal" + (", rounded to bfloat16" if differ else ", and the logits"), True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("microscaling", type=pathlib.Path)
    parser.add_argument("--lm", type=pathlib.Path)
    parser.add_argument("--onnx", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.disable_default_handler()
    transformers.logging.disable_progress_bar()
    loguru.logger.remove()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        models(folder)
        pairs = Pairs(arguments.microscaling.resolve(), folder, arguments.keep)
        print("| engine | configuration | command | what the engine said |\n| --- | --- | --- | --- |")
        compressed_tensors(pairs)
        of_transformers(pairs)
        modelopt(pairs)
        if arguments.lm is not None:
            trained(pairs, arguments.lm.resolve())
            gguf(pairs, arguments.lm.resolve())
        if arguments.onnx is not None:
            onnx_runtime(pairs, arguments.onnx.resolve())
    bad = [row for row in pairs.rows if not row.is_expected]
    print(f"{len(pairs.rows)} rows, {len(bad)} not as expected", file=sys.stderr)
    return 1 if bad else 0


def compressed_tensors(pairs):
    dequantize = transformers.CompressedTensorsConfig(dequantize=True)
    for name, scheme in PRESET_SCHEMES.items():
        if name == "UNQUANTIZED":
            continue
        inputs = scheme.get("input_activations")
        fixed = ["--input-max", 8] if inputs is not None and inputs.dynamic in (False, "local") else []
        commands = [["quantize", "--scheme", name, *fixed, *SKIP]]
        pairs.check("transformers, compressed-tensors", name, "llama", commands, quantizes_inputs=inputs is not None, quantization_config=dequantize)
    for name in ["FP8_DYNAMIC", "W4A16", "NVFP4A16", "MXFP4A16"]:
        commands = [["quantize", "--scheme", name, *SKIP, "--skip", "*.gate.weight"]]
        # transformers 5.24 leaves out the tensor scales of experts: its values are larger by `weight_global_scale`.
        expected = "other values: `model.layers.0.mlp.experts" if name == "NVFP4A16" else None
        pairs.check(
            "transformers, compressed-tensors", f"{name}, experts of Mixtral", "mixtral", commands, expected, quantization_config=dequantize
        )


def of_transformers(pairs):
    block = ["quantize", "--scheme", "FP8_BLOCK", *SKIP]
    pairs.check("transformers", "`fp8`", "llama", [block, ["convert", "--to", "fp8"]])
    experts = ["quantize", "--layout", "gpt-oss", "--only", "*experts.gate_up_proj", "--only", "*experts.down_proj"]
    pairs.check("transformers", "`mxfp4`, gpt-oss", "gpt-oss", [experts])
    for layout, package in [("gptq", "optimum"), ("gptq_v2", "optimum"), ("awq", "gptqmodel")]:
        pairs.check("transformers", f"`{layout}`", "llama", [["quantize", "--layout", layout, *SKIP]], package)


def modelopt(pairs):
    """What Model Optimizer names by `quant_algo`. No engine of these folders runs on a CPU, and transformers knows none of them."""
    layout = ["quantize", "--layout", "modelopt-nvfp4", "--dialect", "modelopt", *SKIP]
    convert = ["convert", "--to", "modelopt"]
    fixed = ["--input-max", 8]
    for algorithm, commands in {
        "W4A16_NVFP4": [layout],
        "NVFP4": [["quantize", "--scheme", "NVFP4", *fixed, *SKIP], convert],
        "FP8": [["quantize", "--scheme", "FP8", *fixed, *SKIP], convert],
        "FP8_PER_CHANNEL_PER_TOKEN": [["quantize", "--scheme", "FP8_DYNAMIC", *SKIP], convert],
        "FP8_PB_WO": [["quantize", "--scheme", "FP8_BLOCK", *SKIP], convert],
        "MXFP8": [["quantize", "--scheme", "MXFP8", *SKIP], convert],
    }.items():
        pairs.check("transformers, folders of Model Optimizer", f"`{algorithm}`", "llama", commands, "Unknown quantization type, got modelopt")


def trained(pairs, language_model):
    """The numbers of a training, and of post-training quantization, in a folder of `lm export`."""
    recipes = pathlib.Path(__file__).parents[4] / "benches/engines/recipes"
    dequantize = transformers.CompressedTensorsConfig(dequantize=True)
    for name in ["mxfp4_w4a16", "mxfp4_w4a4", "nvfp4_w4a16", "nvfp4_w4a4", "MXFP4E2M1", "MXFP8E4M3"]:
        is_recipe = name.islower()
        option = ["--format", recipes / f"{name}.json"] if is_recipe else ["--config", name]
        folder = pairs.folder / f"lm-{name}"
        words = [language_model, "export", pairs.folder / "llama", "--engine", "compressed-tensors", *option, "--out", folder]
        subprocess.run(list(map(str, words)), check=True, capture_output=True)
        shown = f"`lm export --engine compressed-tensors {option[0]} {name}{'.json' if is_recipe else ''}`"
        pairs.judge(
            "transformers, compressed-tensors", f"`{name}`", shown, folder, quantizes_inputs=name.endswith("a4"), quantization_config=dequantize
        )


def gguf(pairs, language_model):
    """A file for llama.cpp: the weights are those of `quantize` in the same format."""
    file = pathlib.Path(__file__).parents[4] / "benches/engines/language_model.py"
    spec = importlib.util.spec_from_file_location("engines_language_model", file)
    engines = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engines)
    source = pairs.folder / "llama"
    description = json.loads((source / "config.json").read_text())
    for name, format in {"MXFP4E2M1": "mxfp4", "NVFP4": "nvfp4(tensor_scale=true)"}.items():
        made, folder = pairs.folder / f"{name}.gguf", pairs.folder / f"{name}-values"
        command = f"`lm export --engine gguf --config {name}`"
        words = [language_model, "export", source, "--engine", "gguf", "--config", name, "--out", made]
        subprocess.run(list(map(str, words)), check=True, capture_output=True)
        # `lm` gives layers that other engines fuse one scale for every engine.
        fused = ["--fused", "q_proj,k_proj,v_proj", "--fused", "gate_proj,up_proj"] if name == "NVFP4" else []
        status, said = pairs.run("quantize", source, folder, "--format", format, *fused, *SKIP)
        assert status == 0, said
        shutil.copy(source / "config.json", folder)
        reference = pairs.reference(folder)
        expected = reference.state_dict()
        found = engines.unpacked_gguf(made, description)
        # `unpack` rounds the product of a block's scale and the tensor's.
        tolerance = 3e-7 if name == "NVFP4" else 0
        differ = [key for key in expected if not torch.allclose(found[key].float(), expected[key], rtol=tolerance, atol=0)]
        model = engines.LlamaCpp(made, description["vocab_size"])
        logits = torch.from_numpy(model.logits(TOKENS[0].tolist()))
        noises = []
        # llama.cpp rounds the inputs of packed weights to Q8_0.
        for is_rounded in [False, True]:
            for key, layer in reference.named_modules():
                if is_rounded and isinstance(layer, torch.nn.Linear) and key != "lm_head":
                    layer.register_forward_pre_hook(lambda _, inputs: (engines.q8_0(inputs[0].double()).float(),))
            with torch.no_grad():
                ours = reference(TOKENS).logits[0].double()
            noises.append(-10 * ((logits - ours) ** 2).sum().div((ours**2).sum()).log10().item())
        said = f"loaded: {len(LAYERS)} weights equal; logits to {noises[1]:.0f} dB with inputs in Q8_0, {noises[0]:.0f} dB in float"
        if differ:
            said = f"loaded with other values: {differ[:3]}"
        pairs.add(model.name, f"`{name}`", command, said, not differ and noises[1] > 40)
        reference = pairs.reference(folder)
        try:
            loaded, info = pairs.load(pairs.folder, gguf_file=made.name, quantization_config=transformers.GgufConfig(dequantize=True))
            said, is_expected = compare(loaded, info, reference, len(LAYERS))
        except Exception as error:
            # gguf 0.19 reads the tensor of a scale, which is one number, as blocks.
            said = f"not loaded: {type(error).__name__}: {error}".splitlines()[0]
            is_expected = name == "NVFP4"
        pairs.add("transformers, GGUF files", f"`{name}`", command, said, is_expected)


ONNX = {
    "MXFP8E5M2": "mxfp8_e5m2", "MXFP8E4M3": "mxfp8_e4m3", "MXFP6E3M2": "mxfp6_e3m2", "MXFP6E2M3": "mxfp6_e2m3", "MXFP4E2M1": "mxfp4",
    "MXINT8": "mxint8", "MX4": "mx4", "MX6": "mx6", "MX9": "mx9", "BFP16": "bfp16", "NVFP4": "nvfp4(tensor_scale=true)",
}


def onnx_runtime(pairs, quantize_onnx):
    """The configurations of `quantize_onnx`: the product of the identity and a weight is the weight's values."""
    import onnx
    import onnxruntime

    runtime = f"ONNX Runtime {onnxruntime.__version__}"
    onnxruntime.set_default_logger_severity(4)
    width = 128
    weight = load_file(pairs.folder / "llama/model.safetensors")[f"{LAYERS[0]}.weight"][:96, :width].numpy().copy()
    np.save(pairs.folder / "w.npy", weight)
    tensor = lambda name, shape: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g", [tensor("x", ["n", width])], [tensor("y", ["n", 96])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(weight.T), "w")],
    )
    for version in [21, 24]:
        imports = [onnx.helper.make_opsetid("", version)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=11), pairs.folder / f"{version}.onnx")
    x = np.random.default_rng(0).normal(size=(8, width)).astype(np.float32)

    def outputs(name, x, *options, version=21):
        out = pairs.folder / "q.onnx"
        command = [quantize_onnx, pairs.folder / f"{version}.onnx", "--config", name, *options, "--output", out, "--force"]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        return onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]

    for name, format in ONNX.items():
        values = pairs.folder / "w.safetensors"
        for command in [
            ["quantize", pairs.folder / "w.npy", pairs.folder / "w-packed.safetensors", "--format", format, "--force"],
            ["unpack", pairs.folder / "w-packed.safetensors", "--out", values, "--force"],
        ]:
            status, said = pairs.run(*command)
            assert status == 0, said
        (expected,) = load_file(values).values()
        found = outputs(name, np.eye(width, dtype=np.float32), "--weights-only")
        in_floats, quantized = outputs(name, x, "--weights-only"), outputs(name, x)
        is_equal = bool((found.T == expected.numpy()).all())
        is_quantized = bool(np.isfinite(quantized).all() and (quantized != in_floats).any())
        said = "loaded: the weight is equal; inputs quantized" if is_equal and is_quantized else f"{is_equal=} {is_quantized=}"
        pairs.add(runtime, f"`{name}`", f"`quantize_onnx --config {name}`", said, is_equal and is_quantized)
    for name in ["MXFP8E4M3", "MXFP4E2M1", "NVFP4"]:
        try:
            outputs(name, x, "--newest-types", version=24)
            said = "loaded"
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode()
        except Exception as error:
            said = f"not loaded: {type(error).__name__}: {error}".splitlines()[0][:200]
        pairs.add(runtime, f"`{name}`, types of operator set 24", f"`quantize_onnx --config {name} --newest-types`", said, "not loaded" in said)


if __name__ == "__main__":
    sys.exit(main())
