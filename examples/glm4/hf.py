"""GLM-4 taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from examples.hf.architecture import Architecture, attention_and_mlp, final_norm, norms, tiny


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms in front of both and behind both."""
    layer = model.model.layers[index]
    return {
        **norms(model, index),
        "attention_output_norm": layer.post_self_attn_layernorm,
        "mlp_output_norm": layer.post_mlp_layernorm,
    }


ARCHITECTURE = Architecture(
    name="glm4",
    build=lambda: tiny("glm4", rms_norm_eps=1e-5),
    sublayers=attention_and_mlp,
    bindings=bindings,
    leave=final_norm,
)
