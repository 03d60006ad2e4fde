"""Runs an exported model by llama.cpp, or by transformers with compressed-tensors, and compares logits with those of the
command `evaluate --logits`.

    pip install llama-cpp-python                             # for a GGUF file
    pip install transformers compressed-tensors torch       # for a folder
    pip install nvidia-modelopt                              # for a folder of ModelOpt
    python engines.py MODEL LOGITS.json
"""

import json
import sys
from pathlib import Path

import numpy as np


def by_llama_cpp(file, tokens):
    from llama_cpp import Llama

    model = Llama(model_path=str(file), n_ctx=len(tokens), logits_all=True, verbose=False)
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


def by_transformers(folder, tokens):
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
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


model, reference = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
ours = np.array(reference["logits"])
theirs = (by_transformers if model.is_dir() else by_llama_cpp)(model, reference["tokens"])
noise = ((theirs - ours) ** 2).sum() / (ours**2).sum()
same = (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean()
largest = np.abs(theirs - ours).max() / np.abs(ours).max()
print(f"{len(ours)} positions: next tokens agree at {same:.1%}; largest difference {largest:.1e} of the largest logit; "
      f"SQNR {-10 * np.log10(noise):.1f} dB")
