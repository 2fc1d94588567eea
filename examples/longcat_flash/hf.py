"""LongCat-Flash taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from torch import nn

from boundaryc.topology.contracts import ORDINARY
from examples.hf.architecture import Architecture, Sublayer, final_norm, tiny


def build() -> nn.Module:
    """Of 3 experts that a token has some are of the 4 that return what they are given."""
    return tiny(
        "longcat_flash",
        without=("intermediate_size", "num_hidden_layers"),
        num_layers=3,
        ffn_hidden_size=192,
        expert_ffn_hidden_size=32,
        n_routed_experts=8,
        zero_expert_num=4,
        moe_topk=3,
        q_lora_rank=24,
        kv_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        head_dim=8,
        v_head_dim=16,
        num_key_value_heads=4,
    )


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """Two attentions, two dense FFNs, and experts."""
    layer = model.model.layers[index]
    return {
        "attention": Sublayer(layer.self_attn[0], "o_proj"),
        "experts": Sublayer(layer.mlp, tail=True),
        "dense": Sublayer(layer.mlps[0], "down_proj"),
        "attention_2": Sublayer(layer.self_attn[1], "o_proj"),
        "dense_2": Sublayer(layer.mlps[1], "down_proj"),
    }


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms; the first dense FFN reads what was read for the experts."""
    layer = model.model.layers[index]
    return {
        "attention": layer.input_layernorm[0],
        "experts": layer.post_attention_layernorm[0],
        "attention_2": layer.input_layernorm[1],
        "dense_2": layer.post_attention_layernorm[1],
    }


ARCHITECTURE = Architecture(
    name="longcat_flash",
    build=build,
    sublayers=sublayers,
    bindings=bindings,
    leave=final_norm,
    variants=(ORDINARY,),
    without=("overlap",),
)
