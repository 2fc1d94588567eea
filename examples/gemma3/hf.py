"""Gemma 3, its text model, taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from examples.hf.architecture import Architecture, attention_and_mlp, final_norm, tiny

LAYERS = ("sliding_attention", "full_attention", "sliding_attention")


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms in front of both and behind both."""
    layer = model.model.layers[index]
    return {
        "attention": layer.input_layernorm,
        "attention_output_norm": layer.post_attention_layernorm,
        "mlp": layer.pre_feedforward_layernorm,
        "mlp_output_norm": layer.post_feedforward_layernorm,
    }


ARCHITECTURE = Architecture(
    name="gemma3",
    build=lambda: tiny(
        "gemma3_text",
        num_hidden_layers=len(LAYERS),
        layer_types=list(LAYERS),
        sliding_window=4,
        query_pre_attn_scalar=16,
    ),
    sublayers=attention_and_mlp,
    bindings=bindings,
    leave=final_norm,
)
