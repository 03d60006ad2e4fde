"""Small random models of each architecture, with the logits that transformers computes for them.

    pip install transformers torch tokenizers
    python make_fixtures.py [NAME...]    # all without a name

Written with transformers 5.24.0 and torch 2.15.0, `mixtral` with 4.57.6 and 2.4.1. Each folder of `fixtures` has a model as `save_pretrained` writes it, in
bfloat16, the tokens (int64) and the logits (float32, `[2, 24, 64]`) of the model in float32. `mixtral` has a `balance.bin`, too, which transformers
5.24.0 and torch 2.15.0 computed from its folder.
"""

import json
import sys
from pathlib import Path

import numpy
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import AutoConfig, AutoModelForCausalLM

FIXTURES = Path(__file__).parent / "fixtures"
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=None,
             pad_token_id=None)
MODELS = {
    "llama": dict(model_type="llama"),
    # SmolLM and Llama 3.2: a tied head. Llama 3.1: stretched frequencies.
    "llama_tied": dict(model_type="llama", tie_word_embeddings=True, attention_bias=True, rope_theta=500000.0,
                       rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                         original_max_position_embeddings=16)),
    "mistral": dict(model_type="mistral", sliding_window=7, head_dim=16),
    "qwen2": dict(model_type="qwen2", tie_word_embeddings=True, use_sliding_window=True, sliding_window=9,
                  max_window_layers=1),
    "qwen3": dict(model_type="qwen3", head_dim=16, rope_theta=1000000.0),
    "mixtral": dict(model_type="mixtral", num_local_experts=5, num_experts_per_tok=2),
}


def tokenizer():
    """A token for each of 64 characters."""
    characters = [chr(code) for code in range(ord(" "), ord(" ") + 64)]
    tokenizer = Tokenizer(models.BPE(vocab={character: token for token, character in enumerate(characters)}, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


for name in sys.argv[1:] or MODELS:
    fields = MODELS[name]
    folder = FIXTURES / name
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(len(name))
    config = AutoConfig.for_model(**SIZES, **fields)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in model.parameters():
        # Norms around 1, the rest large enough for attention to choose.
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    model = model.to(torch.bfloat16)
    shard = "20KB" if name == "llama" else "1GB"
    model.save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    tokens = torch.randint(0, 64, (2, 24))
    # Loaded again, because `to` has rounded the rotary frequencies, too.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(tokens).logits
    (folder / "tokens.bin").write_bytes(tokens.numpy().tobytes())
    (folder / "logits.bin").write_bytes(logits.numpy().astype("<f4").tobytes())
    if name == "mixtral":
        # The balance of the experts' loads, and its gradients for the routers `[experts, width]`.
        loss = model(tokens, output_router_logits=True).aux_loss
        loss.backward()
        gates = [parameter.grad.numpy() for path, parameter in model.named_parameters() if path.endswith("gate.weight")]
        numbers = numpy.concatenate([loss.detach().numpy().reshape(-1), *(gate.reshape(-1) for gate in gates)])
        (folder / "balance.bin").write_bytes(numbers.astype("<f4").tobytes())
    print(name, [path.name for path in sorted(folder.iterdir())], logits.abs().max().item(), json.dumps(fields))
