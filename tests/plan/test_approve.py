"""A planner that goes wrong is stopped before anything is emitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boundaryc.plan.approve import RejectedPlanError, approve
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.ops import AllReduce
from boundaryc.plan.result import StackPlan
from tests.plan.stacks import stack, topology


def _without_sums(plan: StackPlan) -> StackPlan:
    """The plan with every all-reduce left out."""
    spoiled = []
    for one in plan.topologies:
        tables = {
            policy: tuple(
                {
                    edge: replace(
                        boundary,
                        path=replace(
                            boundary.path,
                            ops=tuple(
                                op for op in boundary.path.ops if not isinstance(op, AllReduce)
                            ),
                        ),
                    )
                    for edge, boundary in table.items()
                }
                for table in found
            )
            for policy, found in one.tables.items()
        }
        spoiled.append(replace(one, tables=tables))
    return replace(plan, topologies=tuple(spoiled))


@pytest.mark.parametrize("spec", [topology(2), topology(4, dp=2), topology(8, dp=2, cp=2)])
def test_a_missing_sum_is_refused(spec: object) -> None:
    plan = plan_stack(stack(spec, variants=("ordinary",)))  # type: ignore[arg-type]

    assert approve(plan) is plan
    with pytest.raises(RejectedPlanError, match=r"\w+ -> \w+ on a mesh of .*incomplete sum"):
        approve(_without_sums(plan))
