"""The plans of both example stacks before the provenance checker, whole and damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, rejections, verify_plan
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import Phase, State
from tests.plan.mutations import Plan, changes_result, mutations
from tests.plan.stacks import DENSE_LAYERS, MIXED_LAYERS, stack, topology

EIGHT = (
    topology(1),
    topology(4),
    topology(4, dp=2),
    topology(4, dp=4, all_to_all=True),
    topology(8, dp=2, all_to_all=True),
    topology(8, dp=4, dense=2),
    topology(16, dp=4, moe_dp=2),
    topology(8, dp=2, dense=1),
)


@dataclass(frozen=True)
class Case:
    """One distinct plan with everything it is judged by."""

    boundary: Boundary
    atoms: int
    even: int
    start: DeclaredStart
    goal: DeclaredGoal

    @property
    def ops(self) -> Plan:
        """The operations."""
        return self.boundary.path.ops


def _distinct() -> Iterator[Case]:
    """The plans of both stacks, each combination of meaning and operations once.

    The checker chooses its own sizes, so topologies that differ only in size are one case.
    """
    seen = set()
    for layers in (DENSE_LAYERS, MIXED_LAYERS):
        for planned in plan_stack(stack(*EIGHT, layers=layers)).topologies:
            for tables in planned.tables.values():
                for table in tables:
                    for boundary in table.values():
                        start, goal = declarations(boundary)
                        case = Case(
                            boundary, len(planned.mesh.atoms), boundary.facts.even, start, goal
                        )
                        key = (case.ops, case.atoms, case.even, start, goal)
                        if key not in seen:
                            seen.add(key)
                            yield case


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """All distinct plans of both stacks on eight topologies."""
    return list(_distinct())


def test_every_plan_is_accepted(cases: list[Case]) -> None:
    for case in cases:
        found = verify_plan(
            case.ops, atoms=case.atoms, start=case.start, goal=case.goal, even=case.even
        )
        assert not found, (case.boundary.edge, case.ops, str(found[0].faults[0]))
    assert len(cases) > 100


def _typed(ops: Plan, boundary: Boundary) -> bool:
    """Whether the planner's typing rules admit these operations and they arrive."""
    state: State | None = boundary.start
    for op in ops:
        state = op.apply(state, boundary.facts) if state is not None else None
    return (
        state is not None
        and state.phase is Phase.INPUT
        and state.handed_off
        and (state.rows, state.residual) == (boundary.goal.rows, boundary.goal.residual)
    )


def test_damage_is_rejected_exactly_where_it_matters(cases: list[Case]) -> None:
    """A damaged plan that leaves another result is rejected, by the checker and by the types."""
    draw = random.Random(11)
    damaged = [
        (case, name, ops) for case in cases for name, ops in mutations(case.ops, atoms=case.atoms)
    ]
    changed = 0
    for case, name, ops in draw.sample(damaged, 700):
        judged = {"atoms": case.atoms, "start": case.start, "goal": case.goal, "even": case.even}
        accepted = next(rejections(ops, **judged), None) is None
        differs = changes_result(case.ops, ops, **judged)
        assert not (differs and accepted), (case.boundary.edge, name)
        if _typed(ops, case.boundary):
            assert accepted, ("typed but wrong", case.boundary.edge, name, ops)
        changed += differs
    assert changed >= 500
