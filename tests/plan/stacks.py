"""Stacks and topologies that the planner's tests share."""

from __future__ import annotations

from boundaryc.language.model import MoeSpec, NormSpec, Stack, Stage, TopologySpec

ATTENTION = Stage("attention", "attention", False, "partial", "norm", "add")
MLP = Stage("mlp", "ffn", False, "scoped", "norm", "add")
EXPERTS = Stage("experts", "ffn", True, "scoped", "norm", "add")
DENSE_LAYERS = (("attention", "mlp"),) * 4
MIXED_LAYERS = (("attention", "mlp"), *((("attention", "experts"),) * 3))


def topology(
    tp: int,
    *,
    dp: int = 1,
    cp: int = 1,
    dense: int | None = None,
    moe_dp: int = 1,
    ep: int | None = None,
    all_to_all: bool = False,
) -> TopologySpec:
    """A resolved topology; what is left out fills the ranks."""
    ep = ep or tp // moe_dp
    moe = MoeSpec(moe_dp, ep, tp // moe_dp // ep, all_to_all)
    name = f"tp{tp}_dp{dp}_cp{cp}_dense{dense or tp}_moe{moe_dp}{'_a2a' if all_to_all else ''}"
    return TopologySpec(name, tp, dp, cp, tp // dp // cp, dense or tp, moe)


def stack(
    *topologies: TopologySpec,
    layers: tuple[tuple[str, ...], ...] = MIXED_LAYERS,
    variants: tuple[str, ...] = ("ordinary", "sequence_parallel"),
    stages: tuple[Stage, ...] = (ATTENTION, MLP, EXPERTS),
) -> Stack:
    """A stack over ``topologies``; unused stages are left out."""
    used = {name for layer in layers for name in layer}
    return Stack(
        name="sample",
        hidden_size=64,
        norm=NormSpec("rms", 1e-6, "fp32"),
        stages=tuple(stage for stage in stages if stage.name in used),
        layers=layers,
        topologies=topologies,
        variants=variants,
        operations=(),
        policy_auto="rs+rsv",
        source="sample.yaml",
        spans={},
    )


TOPOLOGIES = (
    topology(1),
    topology(4),
    topology(4, dp=2),
    topology(4, dp=4),
    topology(4, dp=2, all_to_all=True),
    topology(8, dp=4, dense=2),
    topology(8, dp=2, dense=1),
    topology(16, dp=4, moe_dp=2),
    topology(12, dp=3, ep=2),
)
