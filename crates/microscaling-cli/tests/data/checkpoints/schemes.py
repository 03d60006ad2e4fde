"""schemes.safetensors: a weight in each scheme of compressed-tensors, by the library's own functions.

python schemes.py

The tensors `DTYPE/weight` are the weight, in float32, bfloat16 and float16; `DTYPE/SCHEME/PART` are the tensors that the library stores.
Needs compressed-tensors 0.20.0 and torch.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parents[1] / "python"))
from compressed_tensors_folders import PRESET_SCHEMES, compress, infer_module_format, numbers, preset_name_to_scheme

torch.manual_seed(0)
tensors = {}
for dtype in ["float32", "bfloat16", "float16"]:
    # Without −0.
    weight = numbers(8, 128, getattr(torch, dtype)) + 0
    tensors[f"{dtype}/weight"] = weight
    for name in sorted(set(PRESET_SCHEMES) - {"UNQUANTIZED"}):
        scheme = preset_name_to_scheme(name, ["Linear"])
        form = infer_module_format(torch.nn.Linear, scheme).value
        if form.startswith("mx") and dtype == "float16":
            continue
        for part, tensor in compress(weight, form, scheme).items():
            tensors[f"{dtype}/{name}/{part}"] = tensor.contiguous()
save_file(tensors, here / "schemes.safetensors")
