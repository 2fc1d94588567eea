"""A planner that goes wrong is stopped before anything is emitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from boundaryc.plan.approve import RejectedPlanError, approve
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.cost import Cost
from boundaryc.plan.ops import AllReduce, Operation
from boundaryc.plan.path import Path, Sized, Way
from boundaryc.plan.result import Boundary, StackPlan
from tests.plan.stacks import stack, topology


def _of(ops: Iterable[Operation]) -> Path:
    """A path of these operations, whatever they cost."""
    return Path.of(Way(tuple(ops)), Cost())


def _without_sums(plan: StackPlan) -> StackPlan:
    """The plan with every all-reduce left out."""
    spoiled = []
    for one in plan.topologies:
        tables = {
            policy: tuple(
                {
                    edge: replace(
                        boundary,
                        path=_of(op for op in boundary.path.ops if not isinstance(op, AllReduce)),
                    )
                    for edge, boundary in table.items()
                }
                for table in found
            )
            for policy, found in one.tables.items()
        }
        spoiled.append(replace(one, tables=tables))
    return replace(plan, topologies=tuple(spoiled))


def _without_sizes(plan: StackPlan) -> StackPlan:
    """The plan with moves of equal parts alone, also where batches are uneven."""

    def spoiled(boundary: Boundary) -> Boundary:
        ops = tuple(
            replace(op, variable=False) if isinstance(op, Sized) else op for op in boundary.path.ops
        )
        return replace(boundary, path=_of(ops))

    topologies = []
    for one in plan.topologies:
        tables = {
            policy: tuple({edge: spoiled(each) for edge, each in table.items()} for table in found)
            for policy, found in one.tables.items()
        }
        topologies.append(replace(one, tables=tables))
    return replace(plan, topologies=tuple(topologies))


def test_a_move_without_sizes_is_refused_where_parts_are_uneven() -> None:
    plan = plan_stack(stack(topology(4, dp=2), variants=("ordinary",)))

    with pytest.raises(RejectedPlanError, match="parts of different sizes"):
        approve(_without_sizes(plan))


@pytest.mark.parametrize("spec", [topology(2), topology(4, dp=2), topology(8, dp=2, cp=2)])
def test_a_missing_sum_is_refused(spec: object) -> None:
    plan = plan_stack(stack(spec, variants=("ordinary",)))  # type: ignore[arg-type]

    assert approve(plan) is plan
    with pytest.raises(RejectedPlanError, match=r"\w+ -> \w+ on a mesh of .*incomplete sum"):
        approve(_without_sums(plan))
