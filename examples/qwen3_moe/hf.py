"""Qwen3-MoE taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from torch import nn

from examples.hf.architecture import (
    Architecture,
    Sublayer,
    attention_and_mlp,
    final_norm,
    norms,
    tiny,
)


def build() -> nn.Module:
    """One dense layer, then experts, as in the stack file."""
    return tiny(
        "qwen3_moe",
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[0],
    )


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """Attention, and a gated FFN or experts."""
    found = attention_and_mlp(model, index)
    if index:
        found["experts"] = Sublayer(found.pop("mlp").module)
    return found


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms in front of both."""
    bound = norms(model, index)
    if index:
        bound["experts"] = bound.pop("mlp")
    return bound


ARCHITECTURE = Architecture(
    name="qwen3_moe",
    build=build,
    sublayers=sublayers,
    bindings=bindings,
    leave=final_norm,
)
