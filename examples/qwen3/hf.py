"""Qwen3 taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from examples.hf.architecture import Architecture, Sublayer, tiny


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """Attention and a gated FFN."""
    layer = model.model.layers[index]
    return {
        "attention": Sublayer(layer.self_attn, "o_proj"),
        "mlp": Sublayer(layer.mlp, "down_proj"),
    }


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms in front of both."""
    layer = model.model.layers[index]
    return {"attention": layer.input_layernorm, "mlp": layer.post_attention_layernorm}


ARCHITECTURE = Architecture(
    name="qwen3",
    build=lambda: tiny("qwen3", attention_bias=True),
    sublayers=sublayers,
    bindings=bindings,
    leave=lambda model: (model.model.norm,),  # type: ignore[union-attr]
)
