"""GLM-4 taken apart for the harness of `examples.hf`."""

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
    """The norms in front of both and behind both."""
    layer = model.model.layers[index]
    return {
        "attention": layer.input_layernorm,
        "attention_output_norm": layer.post_self_attn_layernorm,
        "mlp": layer.post_attention_layernorm,
        "mlp_output_norm": layer.post_mlp_layernorm,
    }


ARCHITECTURE = Architecture(
    name="glm4",
    build=lambda: tiny("glm4", rms_norm_eps=1e-5),
    sublayers=sublayers,
    bindings=bindings,
    leave=lambda model: (model.model.norm,),  # type: ignore[union-attr]
)
