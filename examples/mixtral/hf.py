"""Mixtral taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from examples.hf.architecture import Architecture, Sublayer, final_norm, tiny


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """Attention and experts."""
    layer = model.model.layers[index]
    return {"attention": Sublayer(layer.self_attn, "o_proj"), "experts": Sublayer(layer.mlp)}


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms in front of both."""
    layer = model.model.layers[index]
    return {"attention": layer.input_layernorm, "experts": layer.post_attention_layernorm}


ARCHITECTURE = Architecture(
    name="mixtral",
    build=lambda: tiny(
        "mixtral",
        num_hidden_layers=3,
        num_local_experts=8,
        num_experts_per_tok=2,
        intermediate_size=64,
        rms_norm_eps=1e-5,
    ),
    sublayers=sublayers,
    bindings=bindings,
    leave=final_norm,
)
