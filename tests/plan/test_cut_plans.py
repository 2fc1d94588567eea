"""What crosses a pipeline cut, before the provenance checker: every way over it is one plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from boundaryc.language import loads
from boundaryc.plan import cuts
from boundaryc.plan.approve import RejectedPlanError, approve
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.cuts import cut_plans
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import AllReduce, Operation
from boundaryc.plan.provenance import rejections, verify_plan
from boundaryc.plan.result import Boundary, StackPlan
from boundaryc.topology.contracts import regime
from tests.verify.pair_stacks import PAIRS
from tests.verify.test_operations import HEAD
from tests.verify.test_pipeline import JOINS

TOPOLOGIES = """\
topologies:
  tp4: {tp: 4}
  tp4_dp2: {tp: 4, attn_dp: 2, dense_tp: attn_tp, moe: {dp: 2, ep: 2}}
  tp2_dp2: {tp: 2, attn_dp: 2, moe: {ep: 2, all_to_all: true}}
  tp4_cp2: {tp: 4, attn_cp: 2}
variants: [ordinary, context_parallel, sequence_parallel]
"""
Way = tuple[Boundary, str, tuple[Operation, ...], int]


def _planned(stages: str, payload: str) -> StackPlan:
    return plan_stack(loads(HEAD + stages + TOPOLOGIES + f"pipeline: {{payload: {payload}}}\n"))


def _ways(plan: StackPlan) -> Iterator[Way]:
    """Every different plan over a cut."""
    seen = set()
    for topology in plan.topologies:
        atoms = len(topology.mesh.atoms)
        for column, table in zip(topology.columns, topology.tables["rsv"], strict=True):
            rows = regime(column.variant, topology.mesh).rows
            for boundary in table.values():
                for name, ops in cut_plans(plan, boundary, rows):
                    key = (ops, atoms, boundary.facts.even, *declarations(boundary))
                    if key not in seen:
                        seen.add(key)
                        yield boundary, name, ops, atoms


@pytest.mark.parametrize(("stages", "payload"), [(PAIRS, "partial"), (JOINS, "complete")])
def test_every_way_over_a_cut_is_accepted(stages: str, payload: str) -> None:
    """On every mesh and batch that is tried; without its sums none is."""
    names, broken = set(), 0
    for number, (boundary, name, ops, atoms) in enumerate(_ways(_planned(stages, payload))):
        names.add(name)
        start, goal = declarations(boundary)
        judged = {"atoms": atoms, "even": boundary.facts.even, "start": start, "goal": goal}
        if number % 3 == 0:
            found = verify_plan(ops, **judged)  # type: ignore[arg-type]
            assert not found, (boundary.edge, name, ops, str(found[0].faults[0]))
        spoiled = tuple(op for op in ops if not isinstance(op, AllReduce))
        if spoiled != ops:
            assert next(rejections(spoiled, **judged), None)  # type: ignore[arg-type]
            broken += 1
    assert "finished" in names
    assert len(names) > 1  # most outputs that were completed early are finished alike
    assert broken > 20


def test_a_cut_that_loses_a_sum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that goes wrong at a cut alone is stopped before anything is emitted."""
    plan = _planned(JOINS, "complete")
    transfer = cuts.transfer

    def lossy(*parts: object, **more: object) -> object:
        found = transfer(*parts, **more)  # type: ignore[arg-type]
        kept = tuple(op for op in found.finish if not isinstance(op, AllReduce))
        return replace(found, finish=kept)

    assert approve(plan) is plan
    monkeypatch.setattr(cuts, "transfer", lossy)
    with pytest.raises(RejectedPlanError, match="finished at a cut, on a mesh of"):
        approve(plan)
