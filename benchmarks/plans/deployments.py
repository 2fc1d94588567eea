"""The deployments that are shown: both example stacks on published topologies, and a branch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from boundaryc.language import Stack, load, loads
from boundaryc.language.model import MoeSpec, TopologySpec
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.result import StackPlan
from boundaryc.topology.contracts import INPUT_SCATTERED, VARIANTS

WIDTH = 2048
"""Columns of a row; with two bytes each a row is 4,096 bytes."""
EXAMPLES = ("qwen3", "qwen3_moe")


def _spec(
    name: str, tp: int, dp: int = 1, cp: int = 1, *, width: int = 0, a2a: bool = False
) -> TopologySpec:
    return TopologySpec(name, tp, dp, cp, tp // dp // cp, width or tp, MoeSpec(1, tp, 1, a2a))


DENSE = (
    _spec("tp8", 8),
    _spec("tp4_dp2", 4, 2),
    _spec("tp8_dp4", 8, 4),
    _spec("tp8_dp8", 8, 8),
    _spec("tp16_dp4", 16, 4),
    _spec("tp8_cp8", 8, cp=8),
)
SPARSE = (
    *DENSE,
    _spec("tp8_a2a", 8, a2a=True),
    _spec("tp8_dp4_a2a", 8, 4, a2a=True),
    _spec("tp8_dp8_a2a", 8, 8, a2a=True),
    _spec("tp32_dp32_a2a", 32, 32, width=1, a2a=True),
    _spec("tp320_dp320_a2a", 320, 320, width=1, a2a=True),
)
TOPOLOGIES = {"qwen3": DENSE, "qwen3_moe": SPARSE}


BRANCHED = """\
boundaryc: 1
stack: shortcut
hidden_size: 2048
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  experts: {kind: ffn, sparse: true}
  dense: {kind: ffn}
  attention_2: {kind: attention}
  dense_2: {kind: ffn}
layers: {count: 28, default: [attention, experts]}
branch: {beside: experts, stages: [dense, attention_2, dense_2], merges_sum: allow}
topologies:
  tp8: {tp: 8, moe: {ep: 8}}
  tp8_dp4: {tp: 8, attn_dp: 4, moe: {ep: 8}}
  tp8_dp4_a2a: {tp: 8, attn_dp: 4, moe: {ep: 8, all_to_all: true}}
"""
"""Shortcut experts: a MoE beside two dense FFNs and an attention."""


def branched() -> StackPlan:
    """The plan of a stack with a branch, for which there are no rules of the reference."""
    return plan_stack(loads(BRANCHED, "shortcut"))


def deployed(examples: Path) -> list[tuple[StackPlan, StackPlan]]:
    """The plans of each example: without and with residuals that may join a sum.

    The second has input-scattered batches only: there the reference always lets them join.
    """
    found = []
    for name in EXAMPLES:
        stack = replace(
            load(examples / name / "stack.yaml"), hidden_size=WIDTH, topologies=TOPOLOGIES[name]
        )
        ordinary = tuple(variant for variant in VARIANTS if variant != INPUT_SCATTERED)
        plain = plan_stack(replace(stack, variants=ordinary))
        found.append((plain, plan_stack(joining(stack))))
    return found


def joining(stack: Stack) -> Stack:
    """The stack's input-scattered batches, with residuals that may join every sum."""
    stages = tuple(replace(stage, joins_sum=True) for stage in stack.stages)
    alone = tuple(one for one in stack.topologies if one.attn_tp == one.tp and one.tp > 1)
    alone = tuple(one for one in alone if not one.moe.all_to_all)
    return replace(stack, stages=stages, topologies=alone, variants=(INPUT_SCATTERED,))
