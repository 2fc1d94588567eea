"""Nemotron-H taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from torch import nn

from examples.hf.architecture import Architecture, Sublayer, tiny

STAGES = {
    "linear_attention": ("mamba", "out_proj"),
    "full_attention": ("attention", "o_proj"),
    "mlp": ("mlp", "down_proj"),
    "moe": ("experts", ""),
}
"""The stage of each kind of layer, and the linear map that makes its output."""

PATTERN = (
    *("linear_attention", "moe", "linear_attention", "full_attention"),
    *("moe", "mlp", "linear_attention", "moe"),
)
"""The layers of the stack file."""


def build() -> nn.Module:
    """Mamba, attention, FFN and experts, one in a layer."""
    return tiny(
        "nemotron_h",
        without=("num_hidden_layers",),
        layers_block_type=list(PATTERN),
        layer_norm_epsilon=1e-5,
        moe_intermediate_size=64,
        moe_shared_expert_intermediate_size=64,
        n_routed_experts=8,
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=16,
        n_groups=2,
        chunk_size=8,
    )


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """The one sublayer of a layer."""
    stage, output = STAGES[PATTERN[index]]
    return {stage: Sublayer(model.model.layers[index].mixer, output)}


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norm in front of it."""
    return {STAGES[PATTERN[index]][0]: model.model.layers[index].norm}


ARCHITECTURE = Architecture(
    name="nemotron_h",
    build=build,
    sublayers=sublayers,
    bindings=bindings,
    leave=lambda model: (model.model.norm_f,),  # type: ignore[union-attr]
)
