"""The sizes of an example model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a Hugging Face configuration that the example models read.

    `sparse` holds the layers whose FFN is a mixture of experts; a dense model has none.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float
    sparse: frozenset[int] = frozenset()
    experts_per_token: int = 0
    norm_topk_prob: bool = False

    @classmethod
    def from_hf(cls, config: Any) -> Config:
        """Reads a Qwen3Config or a Qwen3MoeConfig."""
        sparse = (
            layer
            for layer in range(config.num_hidden_layers)
            if hasattr(config, "num_experts")
            and layer not in config.mlp_only_layers
            and (layer + 1) % config.decoder_sparse_step == 0
        )
        return cls(
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            eps=config.rms_norm_eps,
            rope_theta=config.rope_parameters["rope_theta"],
            sparse=frozenset(sparse),
            experts_per_token=getattr(config, "num_experts_per_tok", 0),
            norm_topk_prob=getattr(config, "norm_topk_prob", False),
        )
