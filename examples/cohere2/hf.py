"""Cohere 2 taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from torch import nn

from boundaryc.topology.contracts import ORDINARY
from examples.hf.architecture import Architecture, attention_and_mlp, final_norm, tiny

LOGITS = 0.25
"""What logits are multiplied by."""


def build() -> nn.Module:
    """Attention over a window of 6 tokens in two layers, and over all of them between."""
    return tiny(
        "cohere2",
        num_hidden_layers=3,
        layer_norm_eps=1e-5,
        logit_scale=LOGITS,
        sliding_window=6,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )


def bindings(model: Any, index: int) -> dict[str, object]:
    """The one norm of a layer; the FFN reads what was read for attention."""
    return {"attention": model.model.layers[index].input_layernorm}


ARCHITECTURE = Architecture(
    name="cohere2",
    build=build,
    sublayers=attention_and_mlp,
    bindings=bindings,
    leave=final_norm,
    variants=(ORDINARY,),
    without=("overlap",),
    multipliers=(1.0, LOGITS),
)
