"""A residual that joins a sum: written by hand, because the planner joins only where it must."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from boundaryc.emit.calls import Calls
from boundaryc.emit.drafting import draft
from boundaryc.emit.drafts import rendered
from boundaryc.emit.scope import Scope
from boundaryc.graph.build import Edge, Node
from boundaryc.operations import BUILTIN
from boundaryc.plan.cost import Cost
from boundaryc.plan.ops import (
    AllReduce,
    HandOff,
    Join,
    Operation,
    Read,
    ReduceScatter,
    ResidualSlice,
)
from boundaryc.plan.path import Path, Way
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import Phase, State
from boundaryc.plan.transitions import Goal
from boundaryc.runtime import join
from boundaryc.runtime.members import Members
from boundaryc.topology import Sizes, build_mesh
from tests.emit.facts import facts
from tests.runtime.doubling import Doubler

MESH = build_mesh(Sizes(tp=4, attn_dp=2, attn_cp=1, attn_tp=2, dense_tp=4, moe_dp=1))
DP, TP = 0b01, 0b10
BUILT_IN = {operation.name: operation for operation in BUILTIN}


def prepare(start: State, goal: Goal, *ops: Operation) -> str:
    """The consumer's function of a boundary of plain adds and norms."""
    edge = Edge(Node("", "attention"), Node("attention", "mlp"))
    boundary = Boundary(edge, start, goal, facts(MESH, joins_sum=True), Path.of(Way(ops), Cost()))
    calls = Calls("attention", "mlp", "mlp", BUILT_IN["add"], BUILT_IN["norm"], {})
    found = draft(boundary, Scope(MESH), calls, scoped=False).prepare
    return "\n".join(rendered(found, found.base, "mlp", ()))


def test_one_rank_of_the_group_adds() -> None:
    """The residual lies on the partial's rows: exactly one rank may add it."""
    start = State(Phase.CONTRIBUTION, DP, TP, DP)
    text = prepare(start, Goal(DP, DP), HandOff(), Join(), AllReduce(TP), Read())

    assert text.endswith(
        """
    groups, stream = batch.groups, batch.stream
    if stream.due is not at.here or hidden is not stream.handle:
        return at.detour(hidden, batch)
    hidden, stream.value, stream.handle, stream.due = stream.value, None, None, at
    (norm,) = at.read
    if groups.attn_tp.rank == 0:
        hidden = join(hidden, stream.residual)
    stream.residual = groups.attn_tp.all_reduce(hidden)
    return rms_norm(stream.residual, norm.weight)"""
    )


def test_each_rank_adds_its_own_rows() -> None:
    """The residual is cut over the sum's ranks: each adds at its own place, none twice."""
    start = State(Phase.CONTRIBUTION, DP, TP, DP)
    text = prepare(
        start,
        Goal(DP | TP, DP | TP),
        HandOff(),
        ResidualSlice(TP),
        Join(),
        ReduceScatter(TP, variable=False),
        Read(),
    )

    assert "    hidden = join(hidden, place_rows(stream.residual, rows.attn_tp))\n" in text
    assert "rank == 0" not in text
    assert "    stream.residual = groups.attn_tp.reduce_scatter(hidden)\n" in text


def test_e97_a_slice_of_the_residual_is_added_to_its_rows_alone() -> None:
    """Value 1s in 4 rows, the first rank's slice 3s, a sum that doubles: rows 8, 8, 2 and 2."""
    start = State(Phase.CONTRIBUTION, DP, TP, DP | TP)
    text = prepare(start, Goal(DP, DP), HandOff(), Join(), AllReduce(TP), Read())
    log: list[str] = []
    found: dict[str, Any] = {"join": join, "rms_norm": lambda x, weight: x * weight}
    found["place_rows"] = lambda x, members: members.place(x)
    exec(f"from __future__ import annotations\n{text}", found)
    residual, value = torch.full((2, 8), 3.0), torch.ones(4, 8)
    at = SimpleNamespace(here="here", read=(SimpleNamespace(weight=torch.ones(8)),))
    stream = SimpleNamespace(due="here", handle=value, value=value, residual=residual)
    rows = SimpleNamespace(attn_tp=Members((2, 2), 0))
    groups = SimpleNamespace(attn_tp=Doubler(log))
    batch = SimpleNamespace(groups=groups, rows=rows, stream=stream)

    hidden = found["attention_to_mlp"](at, value, batch)

    assert hidden[:, 0].tolist() == [8.0, 8.0, 2.0, 2.0]
    assert stream.residual.equal(hidden)
    assert log == ["sum"]


def test_an_operation_that_is_not_legal_is_a_bug() -> None:
    """The emitter replays the typing rules and refuses a plan that breaks them."""
    with pytest.raises(ValueError, match="is not legal"):
        prepare(State(Phase.CONTRIBUTION, DP, TP, DP), Goal(DP, DP), HandOff(), Read())
