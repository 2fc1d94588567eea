"""Token order before the provenance checker: plans by hand, and the planner's own."""

from __future__ import annotations

import pytest

from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import (
    AllGather,
    AllReduce,
    HandOff,
    Operation,
    Read,
    Reorder,
    Slice,
    Update,
)
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, Reason, verify_plan
from boundaryc.plan.result import StackPlan
from tests.plan.stacks import ATTENTION, EXPERTS, stack, topology

SHARD, HEADS = 1, 2
H, U, R = HandOff(), Update(), Read()
GATHER = AllGather(SHARD, variable=True)

# A token-order stage: its input is whole over the shards, and so is its partial output.
OUT = DeclaredStart("contribution", 0, HEADS, SHARD, shards=SHARD, by_token=True)
INTO = DeclaredGoal(0, SHARD, hands_off=True, may_defer=True, by_token=True)
PLAIN = DeclaredStart("contribution", SHARD, HEADS, SHARD, shards=SHARD)
BACK = DeclaredGoal(SHARD, SHARD, hands_off=True, may_defer=True)


@pytest.mark.parametrize(
    ("start", "goal", "ops", "reason"),
    [
        (PLAIN, INTO, (H, AllReduce(HEADS), U, R, GATHER, Reorder(True)), None),
        (OUT, BACK, (H, AllReduce(HEADS), Reorder(False), Slice(SHARD), U, R), None),
        (OUT, BACK, (H, Reorder(False), AllReduce(HEADS), Slice(SHARD), U, R), None),
        (PLAIN, INTO, (H, AllReduce(HEADS), U, R, GATHER), Reason.INPUT_ROWS),
        (PLAIN, INTO, (H, AllReduce(HEADS), U, R, GATHER, Reorder(False)), Reason.INPUT_ROWS),
        (PLAIN, INTO, (H, AllReduce(HEADS), U, R, Reorder(True), GATHER), Reason.ORDER),
        (OUT, BACK, (H, AllReduce(HEADS), Slice(SHARD), U, R), Reason.RESIDUAL_ROWS),
        (
            OUT,
            BACK,
            (H, AllReduce(HEADS), Reorder(True), Slice(SHARD), U, R),
            Reason.RESIDUAL_ROWS,
        ),
    ],
)
def test_hand_plans(
    start: DeclaredStart,
    goal: DeclaredGoal,
    ops: tuple[Operation, ...],
    reason: Reason | None,
) -> None:
    found = verify_plan(ops, atoms=2, start=start, goal=goal, even=0)
    reasons = {fault.reason for rejection in found for fault in rejection.faults}
    assert (reason in reasons) if reason else not reasons


@pytest.fixture(scope="module")
def planned() -> StackPlan:
    """Token-order and shard-order attention under context parallelism."""
    scan = type(ATTENTION)("scan", "attention", False, "partial", "norm", "add", order="token")
    layers = (("scan", "experts"), ("attention", "experts"), ("scan", "attention", "experts"))
    return plan_stack(
        stack(
            topology(4, cp=2),
            topology(8, dp=2, cp=2),
            topology(8, cp=2, all_to_all=True),
            topology(8, dp=2, cp=2, moe_dp=4),
            layers=layers,
            variants=("ordinary", "context_parallel"),
            stages=(ATTENTION, scan, EXPERTS),
        )
    )


def test_plans_under_context_parallelism_are_accepted(planned: StackPlan) -> None:
    seen = set()
    for plan in planned.topologies:
        for tables in plan.tables.values():
            for table in tables:
                for boundary in table.values():
                    start, goal = declarations(boundary)
                    key = (
                        boundary.path.ops,
                        len(plan.mesh.atoms),
                        boundary.facts.even,
                        start,
                        goal,
                    )
                    if key in seen:
                        continue
                    seen.add(key)
                    found = verify_plan(
                        boundary.path.ops,
                        atoms=len(plan.mesh.atoms),
                        start=start,
                        goal=goal,
                        even=boundary.facts.even,
                    )
                    assert not found, (boundary.edge, boundary.path.ops, found[0].faults)
    assert any(isinstance(op, Reorder) for ops, *_ in seen for op in ops)
