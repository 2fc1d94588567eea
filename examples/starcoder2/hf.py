"""StarCoder2 taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from examples.hf.architecture import Architecture, Sublayer, final_norm, norms, tiny


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """Attention and an FFN without a gate, whose output projection has another name."""
    layer = model.model.layers[index]
    return {
        "attention": Sublayer(layer.self_attn, "o_proj"),
        "mlp": Sublayer(layer.mlp, "c_proj"),
    }


ARCHITECTURE = Architecture(
    name="starcoder2",
    build=lambda: tiny("starcoder2", num_hidden_layers=3, norm_epsilon=1e-5, sliding_window=None),
    sublayers=sublayers,
    bindings=norms,
    leave=final_norm,
)
