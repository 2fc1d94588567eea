"""The other ways across every boundary exist, are typed, and survive the provenance checker."""

from __future__ import annotations

from dataclasses import replace

from boundaryc.plan.access import access
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.provenance import DeclaredStart, verify_plan
from boundaryc.plan.state import NO_RESIDUAL, Phase
from tests.plan.stacks import TOPOLOGIES, stack


def test_every_boundary_has_its_other_ways() -> None:
    seen = set()
    for plan in plan_stack(stack(*TOPOLOGIES)).topologies:
        rows = plan.mesh.mask("attn_dp")
        for table in plan.tables["rsv"]:
            for boundary in table.values():
                start, goal = declarations(boundary)
                key = (boundary.path.ops, start, goal, len(plan.mesh.atoms), boundary.facts.even)
                if key in seen:
                    continue
                seen.add(key)
                ways = access(boundary, rows)
                state = ways.handed_off
                judged = {"atoms": len(plan.mesh.atoms), "even": boundary.facts.even}
                after = replace(goal, hands_off=False)
                written = DeclaredStart("stream", rows, 0, rows)
                assert not verify_plan(ways.written, start=written, goal=after, **judged)
                if ways.completed is not None:
                    assert state.phase is Phase.CONTRIBUTION
                    assert state.residual != NO_RESIDUAL
                    done = DeclaredStart("contribution", state.rows, 0, state.residual)
                    assert not verify_plan(ways.completed, start=done, goal=after, **judged)
    assert len(seen) > 60
