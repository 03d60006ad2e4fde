"""Runs an exported model by llama.cpp, or by transformers with compressed-tensors, and compares logits with those of the
command `evaluate --logits`.

    pip install llama-cpp-python                             # for a GGUF file
    pip install transformers compressed-tensors torch       # for a folder
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


def by_transformers(folder, tokens):
    import torch
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    # Unpacked when loaded, to bfloat16, which holds MXFP4 and MXFP8; then everything is computed in float32.
    config = CompressedTensorsConfig(run_compressed=False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config).float().eval()
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
