"""OLMo 2 taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from examples.hf.architecture import Architecture, attention_and_mlp, final_norm, tiny


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms behind both; there are none in front of them."""
    layer = model.model.layers[index]
    return {
        "attention_output_norm": layer.post_attention_layernorm,
        "mlp_output_norm": layer.post_feedforward_layernorm,
    }


ARCHITECTURE = Architecture(
    name="olmo2",
    build=lambda: tiny("olmo2", num_hidden_layers=3, rms_norm_eps=1e-6),
    sublayers=attention_and_mlp,
    bindings=bindings,
    leave=final_norm,
)
