"""Tiny random Hugging Face models and the logits that the sharded models must reproduce."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from examples.common.config import Config

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded: weights are random

SIZES = {
    "vocab_size": 128,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "attention_bias": True,
    "tie_word_embeddings": False,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A random model and what it says about some sequences.

    config      the model's sizes
    weights     its state dict, float32
    sequences   token ids
    logits      [tokens, vocabulary] float32 for each sequence, computed alone and without a cache
    """

    config: Config
    weights: dict[str, Tensor]
    sequences: list[list[int]]
    logits: list[Tensor]


def reference(
    *, width: int, layers: int, dense: list[int], sparse: bool, lengths: list[int], seed: int
) -> Reference:
    """Builds a random Qwen3 or, where `sparse`, a Qwen3-MoE with dense FFNs in the layers `dense`.

    Its sequences are random too and have the given lengths.
    """
    from transformers import (
        Qwen3Config,
        Qwen3ForCausalLM,
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
    )

    sizes: dict[str, Any] = {**SIZES, "hidden_size": width, "num_hidden_layers": layers}
    model: Any
    if sparse:
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **EXPERTS, mlp_only_layers=dense))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**sizes))
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    _spread(model, generator)
    sequences = [
        torch.randint(SIZES["vocab_size"], (length,), generator=generator).tolist()
        for length in lengths
    ]
    with torch.inference_mode():
        logits = [model(torch.tensor([ids]), use_cache=False).logits[0] for ids in sequences]
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    return Reference(Config.from_hf(model.config), weights, sequences, logits)


@torch.no_grad()
def _spread(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Draws every parameter anew, so that norms and biases matter and values stay near one.

    Freshly initialised norms are all ones and biases all zeros: a model that forgot one, or added
    one on every rank, would still agree.
    """
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.copy_(1 + 0.2 * noise)
        elif name.endswith("bias"):
            parameter.copy_(0.2 * noise)
        elif "embed" in name:
            parameter.copy_(noise)
        else:
            parameter.copy_(noise * parameter.shape[-1] ** -0.5)
