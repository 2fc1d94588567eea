"""DeepSeek-V3 taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from examples.hf.architecture import Architecture, Sublayer, final_norm, tiny


class Columns(nn.Module):
    """Some columns of its input."""

    def __init__(self, first: int, stop: int) -> None:
        super().__init__()
        self.own = slice(first, stop)

    def forward(self, x: Tensor) -> Tensor:
        """[..., columns] of which these are."""
        return x[..., self.own]


class LatentAttention(nn.Module):
    """An attention of Transformers whose down-projections are apart from it.

    ``inner`` is the same attention on what these make of the hidden states.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.q_a_proj, self.kv_a_proj = attention.q_a_proj, attention.kv_a_proj_with_mqa
        queries, keys = self.q_a_proj.out_features, self.kv_a_proj.out_features
        attention.q_a_proj = Columns(0, queries)
        attention.kv_a_proj_with_mqa = Columns(queries, queries + keys)
        self.inner = attention

    def latent(self, hidden: Tensor, batch: object = None) -> Tensor:
        """The latent input [..., columns] of rows, each by itself."""
        return torch.cat((self.q_a_proj(hidden), self.kv_a_proj(hidden)), dim=-1)

    def forward(self, hidden_states: Tensor, **rest: Any) -> Any:
        """What the attention returns for hidden states."""
        return self.inner(hidden_states=self.latent(hidden_states), **rest)


def build() -> nn.Module:
    """Experts in two groups, of which a token has two of one."""
    model: Any = tiny(
        "deepseek_v3",
        num_hidden_layers=3,
        first_k_dense_replace=1,
        n_routed_experts=8,
        n_shared_experts=1,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        q_lora_rank=20,
        kv_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        head_dim=8,
        v_head_dim=16,
        num_key_value_heads=4,
    )
    for layer in model.model.layers:
        layer.self_attn = LatentAttention(layer.self_attn)
    found: nn.Module = model
    return found


def of_layer(layer: Any, ffn: str) -> dict[str, Sublayer]:
    """The sublayers of a decoder layer."""
    output = "down_proj" if ffn == "mlp" else ""
    return {
        "attention": Sublayer(layer.self_attn.inner, "o_proj"),
        ffn: Sublayer(layer.mlp, output),
    }


def bound_to(layer: Any, ffn: str) -> dict[str, object]:
    """A decoder layer's norms, and what makes its latent input."""
    return {
        "attention": layer.input_layernorm,
        "attention_qkv_latent": layer.self_attn.latent,
        ffn: layer.post_attention_layernorm,
    }


def kind_of_ffn(index: int) -> str:
    """The first layer is dense."""
    return "experts" if index else "mlp"


ARCHITECTURE = Architecture(
    name="deepseek_v3",
    build=build,
    sublayers=lambda model, index: of_layer(model.model.layers[index], kind_of_ffn(index)),  # type: ignore[union-attr, index]
    bindings=lambda model, index: bound_to(model.model.layers[index], kind_of_ffn(index)),  # type: ignore[union-attr, index]
    leave=final_norm,
)
