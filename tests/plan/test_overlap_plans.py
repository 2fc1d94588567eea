"""Boundaries of stages that ran without an exit: where they hand on, and that they are right."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from boundaryc.graph.build import FINAL
from boundaryc.language.model import Transform
from boundaryc.plan.access import handed_off
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import AllReduce, GatherSum, ReduceScatter
from boundaryc.plan.overlap import hand_off_rows, handed_on
from boundaryc.plan.provenance import check
from boundaryc.plan.provenance_batches import count_vectors, size_vectors
from boundaryc.plan.state import Phase
from boundaryc.topology.contracts import regime
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, TOPOLOGIES, stack, topology

VARIANTS = ("ordinary", "sequence_parallel")
SUMS = (AllReduce, ReduceScatter, GatherSum)


@pytest.mark.parametrize("spec", TOPOLOGIES, ids=lambda spec: spec.name)
def test_what_is_left_holds_on_provenance(spec: object) -> None:
    """Every such boundary, of all policies and batches: tokens, order, each partial once."""
    scaled = replace(MLP, transform=Transform("scale", 0.5, False))
    plan = plan_stack(stack(spec, stages=(ATTENTION, scaled, EXPERTS)))  # type: ignore[arg-type]
    seen = set()
    (planned,) = plan.topologies
    for tables in planned.tables.values():
        for column, table in zip(planned.columns, tables, strict=True):
            rows = regime(column.variant, planned.mesh).rows
            for boundary in table.values():
                if boundary.edge.producer not in ("mlp", "experts"):
                    continue
                handed = handed_on(plan, boundary, rows)
                state = handed_off(handed)
                assert (state.owes, state.transform) == (0, False)
                assert (state.phase, state.residual) == (
                    Phase.CONTRIBUTION,
                    boundary.start.residual,
                )
                assert not any(isinstance(op, SUMS) for op in handed.path.ops)
                seen.add(handed)
    atoms = len(planned.mesh.atoms)
    for handed in seen:
        start, goal = declarations(handed)
        sizes = size_vectors(atoms)[-1]
        for counts in count_vectors(sizes, 0)[:2]:
            assert not check(handed.path.ops, sizes=sizes, start=start, goal=goal, counts=counts)
    assert seen


@pytest.mark.parametrize("all_to_all", [True, False])
@pytest.mark.parametrize("pattern", list(itertools.product("DS", repeat=3)))
def test_hand_off_rows_follow_from_sparse_and_next_sparse(
    pattern: tuple[str, ...], all_to_all: bool
) -> None:
    """Between two sparse FFNs a rank's own rows behind an all-to-all, else those of attention."""
    spec = topology(4, dp=2, all_to_all=all_to_all)
    names = ["mlp" if letter == "D" else "experts" for letter in pattern]
    layers = tuple(("attention", name) for name in names)
    plan = plan_stack(stack(spec, layers=layers, variants=("ordinary",)))
    (planned,) = plan.topologies
    attention = planned.mesh.mask("attn_dp")
    walked = [edge for layer in plan.graph.walk for edge in layer]
    follows = {edge: [] for edge in plan.graph.edges()}
    left = [*walked[2::2], plan.graph.last]
    for edge, name, after in zip(left, names, [*names[1:], FINAL], strict=True):
        follows[edge].append((name == "experts", after == "experts"))
    for edge, pairs in follows.items():
        if edge.producer not in ("mlp", "experts"):
            continue
        boundary = planned.tables["ar"][0][edge]
        own = boundary.start.rows
        rows = hand_off_rows(plan, edge, own, attention)
        inside = all_to_all and all(pair == (True, True) for pair in pairs)
        assert rows == (planned.mesh.every if inside else attention)
        assert handed_off(handed_on(plan, boundary, attention)).rows == rows
