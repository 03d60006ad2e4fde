"""Compares the logits of an inference engine with those of `language_model evaluate --logits`, and with a bound for sums in float32.

    pip install torch transformers==5.24.0 compressed-tensors==0.20.0 gguf numpy safetensors
    pip install cyllama                       # llama.cpp for processors; or llama-cpp-python, which compiles llama.cpp
    python benches/engines/language_model.py FOLDER LOGITS.json
    python benches/engines/language_model.py MODEL.gguf LOGITS.json
    python benches/engines/language_model.py FOLDER LOGITS.json --adapter ADAPTER     # pip install peft

A folder is loaded by transformers with compressed-tensors, a GGUF file by llama.cpp. With an adapter the values of the folder's packed weights are the
float weights of transformers' model, and PEFT loads LoRA or DoRA beside them. Prints a row of the table in docs/src/qat.md. The exit code is 1 if a
difference is above its bound, a next token with a margin above the bound differs, or the losses differ by more than 1e-4.

The bound: the model is computed once more in float64, by formulas of this file, from the values of the packed weights. Each operation v of the float32
computation adds a rounding error of at most r_v: for a sum of n products (n + 4) u times the sum of their magnitudes, in any order, with u = 2^-24; for other
operations some u of the result (`Rounded`). To first order a logit then moves by at most the sum over v of |d logit / d v| r_v. Two
computations in float32 differ by at most twice that. The derivatives are exact, by autograd in float64.

Quantized inputs are steps: a difference of 1e-7 before a tie becomes a difference of a whole step behind it. So with quantized inputs the bound holds
for positions without such a tie, in the position or before it. A position is near a tie if a change of its inputs by 4 times the difference (root mean
square) between float32 and float64 changes a quantized number. Other positions have no bound.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch

U = 2.0**-24
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


class Rounded:
    """Values in float64 and what float32 would add to each, as numbers that autograd sees."""

    def __init__(self, traces=True):
        self.traces, self.errors, self.bounds = traces, [], []

    def of(self, y, bound):
        if not self.traces:
            return y
        error = torch.zeros_like(y, requires_grad=True)
        self.errors.append(error)
        self.bounds.append(bound.detach())
        return y + error

    def relative(self, y, units):
        return self.of(y, units * U * y.abs())

    def product(self, a, b):
        """a @ b."""
        y = a @ b
        if not self.traces:
            return y
        return self.of(y, (a.shape[-1] + 4) * U * (a.abs() @ b.abs()).detach())


def unpacked(folder):
    """The weights of a folder of compressed-tensors, in float64, and whether inputs are quantized."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    weights = {}
    for name, tensor in tensors.items():
        if name.endswith(".weight_packed"):
            layer = name.removesuffix("_packed")
            codes = torch.stack([tensor & 15, tensor >> 4], -1).flatten(-2)
            scale = tensors[f"{layer}_scale"]
            if scale.dtype == torch.uint8:
                scale = 2.0 ** (scale.double() - 127)
            else:
                scale = scale.double() / tensors[f"{layer}_global_scale"].double()
            values = torch.tensor(E2M1, dtype=torch.float64)[codes.long()]
            weights[layer] = (values.unflatten(-1, (scale.shape[-1], -1)) * scale.unsqueeze(-1)).flatten(-2)
        elif name.endswith(("norm.weight", "embed_tokens.weight", "lm_head.weight")):
            weights[name] = tensor.double()
    return weights


GGUF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
GGUF_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def unpacked_gguf(file, config):
    """The weights of a GGUF file in float64, unpacked by the package gguf, under the names of transformers."""
    from gguf import GGUFReader, dequantize

    tensors = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    weights = {}
    for name, tensor in tensors.items():
        if name.endswith(".scale"):
            continue
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        scale = tensors.get(name.removesuffix("weight") + "scale")
        if scale is not None:
            values = values * float(scale.data[0])
        if name in GGUF_NAMES:
            weights[GGUF_NAMES[name]] = torch.from_numpy(values.copy())
            continue
        _, layer, part, _ = name.split(".")
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(part)
        if heads is not None:
            # The two features of a pair lie side by side in GGUF.
            rows, columns = values.shape
            values = values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        weights[f"model.layers.{layer}.{GGUF_PARTS[part]}.weight"] = torch.from_numpy(np.ascontiguousarray(values))
    return weights


def q8_0(x):
    """ggml's inputs of quantized weights: integers in blocks of 32, as its code for x86 rounds them."""
    blocks = x.float().unflatten(-1, (-1, 32))
    largest = blocks.abs().amax(-1, keepdim=True)
    integers = torch.where(largest > 0, blocks * (127 / largest), 0.0).round()
    return (integers * (largest / 127).half().float()).flatten(-2).to(x.dtype)


def by_compressed_tensors(arguments):
    """compressed-tensors' inputs: their quantization in float32, with a divisor of 1."""
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

    how = QuantizationArgs.model_validate(arguments)
    divisor = torch.ones(1) if how.strategy == "tensor_group" else None

    def quantized(x):
        values = x.float()
        scale, zero = compute_dynamic_scales_and_zp(values, how, None, global_scale=divisor)
        return fake_quantize(values, scale, zero, how, global_scale=divisor).to(x.dtype)

    return quantized


class Adapters:
    """The adapters of a folder of PEFT, in float64."""

    def __init__(self, folder):
        from safetensors.torch import load_file

        settings = json.loads((folder / "adapter_config.json").read_text())
        self.scale = settings["lora_alpha"] / settings["r"]
        tensors = load_file(folder / "adapter_model.safetensors")
        self.tensors = {name.removeprefix("base_model.model."): tensor.double() for name, tensor in tensors.items()}

    def beside(self, layer, x, weight, y, rounded):
        """The output of a layer whose weight alone gives y."""
        a, b = (self.tensors.get(f"{layer}.lora_{part}.weight") for part in "AB")
        if a is None:
            return y
        own = rounded.relative(rounded.product(rounded.product(x, a.T), b.T) * self.scale, 1)
        magnitude = self.tensors.get(f"{layer}.lora_magnitude_vector")
        if magnitude is None:
            return rounded.relative(y + own, 1)
        rows = weight + self.scale * b @ a
        norm = rows.norm(dim=1)
        # The error of each number of a row, then of the norm.
        error = U * (rows.abs() + (a.shape[0] + 6) * abs(self.scale) * (b.abs() @ a.abs()))
        relative = error.norm(dim=1) / norm + (rows.shape[1] / 2 + 8) * U
        factor = magnitude / norm
        # PEFT computes y + (factor - 1) * y + factor * own.
        size = y.abs() * (1 + 2 * (factor - 1).abs() + factor.abs()) + 3 * (factor * own).abs()
        bound = 2 * U * size + relative * factor.abs() * (y.abs() + own.abs())
        return rounded.of((y + own) * factor, bound)


def decoder(weights, config, tokens, rounded, quantized, inputs, adapters=None):
    """A Llama of transformers' names. Appends the inputs of its linear layers to `inputs`."""
    dtype = weights["model.norm.weight"].dtype
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width, epsilon = config["hidden_size"], config["rms_norm_eps"]
    head = config.get("head_dim") or width // heads
    rope = config.get("rope_parameters") or config
    theta = rope.get("rope_theta", 10000.0)
    length = len(tokens)
    pairs = torch.arange(head // 2, dtype=dtype)
    angle = torch.arange(length, dtype=dtype)[:, None] * theta ** (-pairs * 2 / head)
    cos, sin = angle.cos(), angle.sin()
    # Frequencies are powers, or products of as many factors as there are pairs.
    angle_error = (pairs + 8) * U * angle + 2 * U

    def norm(x, name):
        y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weights[name]
        return rounded.relative(y, width / 2 + 8)

    def linear(x, name):
        if quantized is not None and name != "lm_head.weight":
            x = quantized(x.detach())
        y = rounded.product(x, weights[name].T)
        return y if adapters is None else adapters.beside(name.removesuffix(".weight"), x, weights[name], y, rounded)

    def seen(x):
        inputs.append(x.detach())
        return x

    def rotated(x):
        a, b = x[..., : head // 2], x[..., head // 2 :]
        y = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        size = a.abs() + b.abs()
        bound = torch.cat([size, size], -1) * (torch.cat([angle_error, angle_error], -1) + 4 * U)
        return rounded.of(y, bound)

    def split(x, count):
        return x.unflatten(-1, (count, head)).transpose(0, 1)

    future = torch.full((length, length), -math.inf, dtype=dtype).triu(1)
    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        h = seen(norm(x, at + "input_layernorm.weight"))
        q, k, v = (linear(h, f"{at}self_attn.{name}_proj.weight") for name in "qkv")
        q, k, v = rotated(split(q, heads)), rotated(split(k, kv_heads)), split(v, kv_heads)
        k, v = (y.repeat_interleave(heads // kv_heads, 0) for y in (k, v))
        scores = rounded.relative(rounded.product(q, k.transpose(1, 2)) * head**-0.5, 2)
        scores = scores + future
        p = scores.softmax(-1)
        distance = (scores.amax(-1, keepdim=True) - scores).clamp(max=100).detach()
        p = rounded.of(p, (length + 10 + distance) * U * p)
        y = seen(rounded.product(p, v).transpose(0, 1).flatten(1))
        x = rounded.relative(x + linear(y, at + "self_attn.o_proj.weight"), 1)
        h = seen(norm(x, at + "post_attention_layernorm.weight"))
        gate, up = (linear(h, f"{at}mlp.{name}_proj.weight") for name in ("gate", "up"))
        y = rounded.of(torch.nn.functional.silu(gate) * up, (12 + gate.abs()) * U * (gate * up).abs())
        x = rounded.relative(x + linear(seen(y), at + "mlp.down_proj.weight"), 1)
    table = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return rounded.product(norm(x, "model.norm.weight"), table.T)


def near_ties(exact, single, quantized):
    """For each position whether a quantized input is near a tie, there or before."""
    near = torch.zeros(exact[0].shape[0], dtype=torch.bool)
    for x, y in zip(exact, single):
        error = (x - y.double()).square().mean(-1, keepdim=True).sqrt()
        # Sums of few bits are exact, and may be ties.
        margin = torch.where(error > 0, 4 * error + 4 * U * x.abs(), 0.0)
        here = quantized(x)
        # Larger and smaller blocks, and both sides of each element.
        for move in (margin, -margin, margin * x.sign(), -margin * x.sign()):
            near |= (quantized(x + move) != here).any(-1)
    return near.cumsum(0) > 0


def bounds(logits, rounded, wanted):
    """The bound of each wanted logit (position, token) against another computation in float32."""
    result = torch.zeros(len(wanted), dtype=torch.float64)
    outputs = torch.stack([logits[position, token] for position, token in wanted])
    for part in torch.arange(len(wanted)).split(48):
        ones = torch.zeros(len(part), len(wanted), dtype=torch.float64)
        ones[torch.arange(len(part)), part] = 1
        # Behind a quantized input an error does not count.
        how = {"retain_graph": True, "is_grads_batched": True, "allow_unused": True}
        gradients = torch.autograd.grad(outputs, rounded.errors, ones, **how)
        for gradient, bound in zip(gradients, rounded.bounds):
            if gradient is not None:
                result[part] += (gradient.abs() * bound).flatten(1).sum(1)
    return (2 * result).numpy()


class Transformers:
    def __init__(self, folder):
        import compressed_tensors
        import compressed_tensors.compressors.nvfp4.base as nvfp4
        import transformers

        self.name = f"transformers {transformers.__version__}, compressed-tensors {compressed_tensors.__version__}"
        # compressed-tensors unpacks FP4 to bfloat16, which does not hold NVFP4's values. Its function has float32, too.
        unpack = nvfp4.unpack_fp4_from_uint8
        nvfp4.unpack_fp4_from_uint8 = lambda packed, m, n, dtype=None: unpack(packed, m, n, dtype=torch.float32)
        has_inputs = inputs_of(folder) is not None
        how = transformers.CompressedTensorsConfig(run_compressed=has_inputs)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=how)
        self.model = (model if has_inputs else model.float()).eval()

    def logits(self, tokens):
        with torch.no_grad():
            return self.model(torch.tensor([tokens])).logits[0].double().numpy()


class Peft(Transformers):
    """transformers' model with the values of packed weights in float32, and an adapter that PEFT loads."""

    def __init__(self, folder, adapter, weights):
        import peft
        import transformers

        self.name = f"PEFT {peft.__version__}, transformers {transformers.__version__}"
        config = transformers.AutoConfig.from_pretrained(folder)
        del config.quantization_config
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        single = {name: weight.float() for name, weight in weights.items()}
        missing, unexpected = model.load_state_dict(single, strict=False)
        assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
        model = peft.PeftModel.from_pretrained(model, adapter)
        # PEFT warns of missing tensors, and does not stop.
        tensors = Adapters(adapter).tensors
        own = peft.get_peft_model_state_dict(model)
        assert {name.removeprefix("base_model.model.") for name in own} == set(tensors), set(own) ^ set(tensors)
        self.model = model.eval()


class LlamaCpp:
    """By cyllama, else by llama-cpp-python. Keys and values are float32; llama.cpp's default is float16."""

    def __init__(self, file, vocabulary):
        try:
            import cyllama.llama.llama_cpp as binding
        except ImportError:
            return self.by_llama_cpp_python(file)
        binding.disable_logging()

        class Model(binding.LlamaModel):
            # A context asks for it.
            n_vocab = vocabulary

        version = json.loads((Path(binding.__file__).parent.parent / "build_config.json").read_text())["versions"]
        self.name = f"llama.cpp {version['llama_cpp_version']}"
        model = Model(str(file), binding.LlamaModelParams())

        def logits(tokens):
            params = binding.LlamaContextParams()
            params.n_ctx = params.n_batch = params.n_ubatch = len(tokens)
            params.type_k = params.type_v = 0
            # Flash attention rounds keys and values to float16.
            params.flash_attn_type = 0
            context = binding.LlamaContext(model, params)
            batch = binding.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
            for position, token in enumerate(tokens):
                batch.add(token, position, [0], True)
            assert context.decode(batch) == 0
            return np.array([context.get_logits_ith(i) for i in range(len(tokens))], dtype=np.float64)

        self.logits = logits

    def by_llama_cpp_python(self, file):
        import llama_cpp

        self.name = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"

        def logits(tokens):
            cache = {"type_k": 0, "type_v": 0}
            model = llama_cpp.Llama(model_path=str(file), n_ctx=len(tokens), logits_all=True, verbose=False, **cache)
            model.eval(tokens)
            return np.array(model.scores[: len(tokens)], dtype=np.float64)

        self.logits = logits


def inputs_of(folder):
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    return config["config_groups"]["group_0"].get("input_activations")


def losses(logits, targets):
    logits = torch.from_numpy(logits)
    return torch.nn.functional.cross_entropy(logits, torch.tensor(targets)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("logits", type=Path)
    parser.add_argument("--config", type=Path, help="config.json of a GGUF file's model")
    parser.add_argument("--adapter", type=Path, help="a folder of PEFT's files, beside the values of FOLDER")
    parser.add_argument("--format", default="", help="text for the table")
    parser.add_argument("--bounds", type=int, default=4, help="windows with bounds; the others are compared without [default: 4]")
    args = parser.parse_args()
    is_folder = args.model.is_dir()
    config = json.loads((args.model / "config.json" if is_folder else args.config).read_text())
    quantized = adapters = None
    if args.adapter is not None:
        weights, adapters = unpacked(args.model), Adapters(args.adapter)
        engine = Peft(args.model, args.adapter, weights)
    elif is_folder:
        engine, weights = Transformers(args.model), unpacked(args.model)
        if (how := inputs_of(args.model)) is not None:
            quantized = by_compressed_tensors(how)
    else:
        engine, weights = LlamaCpp(args.model, config["vocab_size"]), unpacked_gguf(args.model, config)
        quantized = q8_0
    single = {name: weight.float() for name, weight in weights.items()}

    largest = worst = worst_difference = bound_there = 0.0
    same = certain = certain_same = bounded = count = 0
    losses_of = [[], []]
    for number, window in enumerate(json.loads(args.logits.read_text())):
        tokens, ours = window["tokens"], np.array(window["logits"])
        length = len(ours)
        theirs = engine.logits(tokens[:length])
        for result, logits in zip(losses_of, (ours, theirs)):
            result.append(losses(logits, tokens[1 : length + 1]))
        difference = np.abs(ours - theirs)
        agree = ours.argmax(1) == theirs.argmax(1)
        same, count = same + agree.sum(), count + length
        largest = max(largest, difference.max())
        if number >= args.bounds:
            continue
        positions = range(length)
        if quantized is not None:
            exact, inputs = [], []
            decoder(weights, config, tokens[:length], Rounded(False), quantized, exact)
            decoder(single, config, tokens[:length], Rounded(False), quantized, inputs)
            # The first ones, since later positions see those before them.
            positions = range(int((~near_ties(exact, inputs, quantized)).sum()))
        if not positions:
            continue
        rounded = Rounded()
        logits = decoder(weights, config, tokens[: len(positions)], rounded, quantized, [], adapters)
        order = theirs.argsort(1)
        wanted = [
            (position, token)
            for position in positions
            for token in (difference[position].argmax(), order[position, -1], order[position, -2])
        ]
        of = bounds(logits, rounded, wanted).reshape(-1, 3)
        for position, (of_largest, of_first, of_second) in zip(positions, of):
            bounded += 1
            here = difference[position].max()
            if here / of_largest > worst:
                worst, worst_difference, bound_there = here / of_largest, here, of_largest
            first, second = order[position, -1], order[position, -2]
            if theirs[position, first] - theirs[position, second] > of_first + of_second:
                certain += 1
                certain_same += int(agree[position])
    ours, theirs = (float(np.mean(result)) for result in losses_of)
    print(
        f"| {engine.name} | {args.format} | {largest:.1e} | {worst_difference:.1e} of {bound_there:.1e}, at {bounded} | {same / count:.2%} of {count}; "
        f"{certain_same} of {certain} | {ours:.5f} | {theirs:.5f} |"
    )
    is_equal = worst <= 1 and certain == certain_same and abs(ours - theirs) <= 1e-4
    sys.exit(0 if is_equal and bounded > 0 else 1)


if __name__ == "__main__":
    main()
