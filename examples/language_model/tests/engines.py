"""Runs an exported model by llama.cpp, or by transformers with compressed-tensors, and compares logits with those of the
command `evaluate --logits`.

    pip install llama-cpp-python                             # for a GGUF file
    pip install transformers compressed-tensors torch       # for a folder
    pip install nvidia-modelopt                              # for a folder of ModelOpt
    python engines.py MODEL.gguf --prompt "And the "
    python engines.py MODEL LOGITS.json
    python engines.py MODEL.gguf LOGITS.json --weights FOLDER

The last line also emulates the inputs that llama.cpp rounds to Q8_0, with the same weights from a folder of compressed-tensors.
"""

import argparse
import json
from pathlib import Path

import numpy as np


def text_by_llama_cpp(file, prompt, count):
    """The prompt, and the tokens that are the most probable ones each time."""
    from llama_cpp import Llama

    # The context that the model was trained with.
    model = Llama(model_path=str(file), n_ctx=0, verbose=False)
    return prompt + model(prompt, max_tokens=count, temperature=0.0)["choices"][0]["text"]


def by_llama_cpp(file, tokens):
    from llama_cpp import GGML_TYPE_F32, Llama

    # Keys and values in float32: llama.cpp's default is float16.
    cache = {"type_k": GGML_TYPE_F32, "type_v": GGML_TYPE_F32}
    model = Llama(model_path=str(file), n_ctx=len(tokens), logits_all=True, verbose=False, **cache)
    model.eval(tokens)
    return np.array(model.scores[: len(tokens)])


def unpacked_by_modelopt(folder):
    """The model of transformers, with weights that ModelOpt's own class unpacks: transformers does not know the layout."""
    import torch
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM

    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if tensors[name].dtype == torch.uint8]:
        packed, scale, of_tensor = tensors[name], tensors.pop(f"{name}_scale"), tensors.pop(f"{name}_scale_2")
        shape = torch.Size([packed.shape[0], 2 * packed.shape[1]])
        weight = NVFP4QTensor(shape, torch.float32, packed)
        tensors[name] = weight.dequantize(scale=scale, double_scale=of_tensor, block_sizes={-1: 16})
    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    return model


def q8_0(x):
    """Blocks of 32 integers with a scale in float16, as ggml rounds them: by the scale before it is rounded to float16."""
    import torch

    blocks = x.reshape(-1, 32)
    scale = blocks.abs().amax(dim=1, keepdim=True) / 127
    integers = torch.where(scale > 0, blocks * (1 / scale), 0.0).round()
    return (integers * scale.half().float()).reshape(x.shape)


def by_transformers(folder, tokens, round_inputs=None):
    import torch
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    method = json.loads((folder / "config.json").read_text()).get("quantization_config", {}).get("quant_method")
    if method == "modelopt":
        model = unpacked_by_modelopt(folder)
    else:
        # Unpacked when loaded, to bfloat16, which holds MXFP4 and MXFP8; then everything is computed in float32.
        config = CompressedTensorsConfig(run_compressed=False)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config)
    model = model.float().eval()
    if round_inputs is not None:
        for name, layer in model.named_modules():
            if isinstance(layer, torch.nn.Linear) and name != "lm_head":
                layer.register_forward_pre_hook(lambda _, inputs: (round_inputs(inputs[0]),))
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def compare(names, ours, theirs):
    noise = ((theirs - ours) ** 2).sum() / (ours**2).sum()
    same = (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean()
    largest = np.abs(theirs - ours).max() / np.abs(ours).max()
    print(f"{names}: {len(ours)} positions: next tokens agree at {same:.1%}; largest difference {largest:.1e} of the largest "
          f"logit; SQNR {-10 * np.log10(noise):.1f} dB")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", type=Path)
parser.add_argument("logits", type=Path, nargs="?")
parser.add_argument("--prompt", help="prints llama.cpp's continuation of this text")
parser.add_argument("--weights", type=Path, metavar="FOLDER")
arguments = parser.parse_args()
if arguments.prompt is not None:
    print(text_by_llama_cpp(arguments.model, arguments.prompt, 40))
if arguments.logits is None:
    raise SystemExit(0)
reference = json.loads(arguments.logits.read_text())[0]
ours = np.array(reference["logits"])
# The last one is only predicted.
tokens = reference["tokens"][: len(ours)]
engine = by_transformers if arguments.model.is_dir() else by_llama_cpp
theirs = engine(arguments.model, tokens)
compare("engine against evaluate", ours, theirs)
if arguments.weights is not None:
    compare("llama.cpp against inputs in Q8_0", by_transformers(arguments.weights, tokens, q8_0), theirs)
