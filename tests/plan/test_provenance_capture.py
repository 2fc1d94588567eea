"""Captures before the provenance checker: plans by hand, and the planner's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boundaryc.language.model import Capture as Declared
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import Capture, HandOff, Operation, Read, ReduceScatter, Update
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, Reason, verify_plan
from tests.plan.stacks import TOPOLOGIES, stack

ALL = 1
H, U, R = HandOff(), Update(), Read()
START = DeclaredStart("contribution", 0, ALL, ALL)
GOAL = DeclaredGoal(ALL, ALL, hands_off=True, may_defer=True, captures=(0,))
SCATTER = ReduceScatter(ALL, variable=True)
KEEP = Capture(0, gather=ALL, cut=0, variable=True)


@pytest.mark.parametrize(
    ("ops", "right"),
    [
        ((H, SCATTER, U, R, KEEP), True),
        ((H, SCATTER, U, R), False),
        ((H, SCATTER, U, R, KEEP, KEEP), False),
        ((H, SCATTER, U, KEEP, R), False),
        ((H, SCATTER, U, R, Capture(0, gather=0, cut=0, variable=True)), False),
    ],
)
def test_hand_plans(ops: tuple[Operation, ...], right: bool) -> None:
    found = verify_plan(ops, atoms=1, start=START, goal=GOAL, even=0)
    reasons = {fault.reason for rejection in found for fault in rejection.faults}

    assert reasons == (set() if right else {Reason.CAPTURE})


def test_captures_mark_boundaries_and_survive_the_checker() -> None:
    """Kept after layer 1 and after the last, on the producer's rows, in every variant."""
    kept = Declared("eagle", (1, 3), "after", "producer")
    planned = plan_stack(replace(stack(*TOPOLOGIES), captures=(kept,)))
    marked = [edge for edge in planned.graph.edges() if edge.target.captures]
    assert [edge.consumer for edge in marked] == ["attention", "final"]
    seen = 0
    for plan in planned.topologies:
        for table in plan.tables["ar"]:
            for edge in marked:
                boundary = table[edge]
                start, goal = declarations(boundary)
                assert not verify_plan(
                    boundary.path.ops,
                    atoms=len(plan.mesh.atoms),
                    start=start,
                    goal=goal,
                    even=boundary.facts.even,
                )
                seen += sum(isinstance(op, Capture) for op in boundary.path.ops)
    assert seen > 20
