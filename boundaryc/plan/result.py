"""What planning a stack returns: a table from edge to boundary for every batch and policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from boundaryc.graph.build import Edge, StageGraph
from boundaryc.language.model import Stack, TopologySpec
from boundaryc.operations import Operation
from boundaryc.plan.path import Path
from boundaryc.plan.state import EdgeFacts, State
from boundaryc.plan.transitions import Goal
from boundaryc.topology import Mesh


class PlanError(Exception):
    """A boundary that no order of legal operations can serve."""

    def __init__(self, edge: Edge, column: Column, policy: str, reason: str) -> None:
        super().__init__(reason)
        self.edge, self.column, self.policy, self.reason = edge, column, policy, reason


@dataclass(frozen=True, slots=True)
class Column:
    """One kind of batch: its variant, and the axes over which its cuts have equal sizes.

    ``entry`` says in what state the stack's input arrives. ``few`` tells batches of at most
    ``few_rows`` rows from larger ones where the two are planned differently; None serves both.
    ``mode`` is None in stacks that treat prefill and decode alike.
    """

    variant: str
    even: tuple[str, ...]
    entry: str = "complete"
    few: bool | None = None
    mode: Literal["prefill", "decode"] | None = None


@dataclass(frozen=True, slots=True)
class Boundary:
    """One planned boundary."""

    edge: Edge
    start: State
    goal: Goal
    facts: EdgeFacts
    path: Path

    def touched(self) -> int:
        """The atoms over which rows are cut anywhere on this boundary."""
        seen, state = self.start.rows | self.goal.residual, self.start
        for op in self.path.ops:
            after = op.apply(state, self.facts)
            assert after is not None
            seen |= after.rows | max(after.residual, 0)
            state = after
        return seen


Table = Mapping[Edge, Boundary]


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """All boundaries of a stack on one topology.

    ``tables[policy][c]`` plans the batches of ``columns[c]``; equal tables are one object.
    ``row_multiples`` has the padding of every variant: the rows of an attention-DP group are a
    multiple of it, so that cuts inside the group are even. ``few_rows`` is, per variant, how many
    padded rows of all groups together are still few. ``skipped`` are the variants that have no
    meaning here, with the reason.
    """

    spec: TopologySpec
    mesh: Mesh
    columns: tuple[Column, ...]
    row_multiples: Mapping[str, int]
    few_rows: Mapping[str, int]
    tables: Mapping[str, tuple[Table, ...]]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StackPlan:
    """The planned stack."""

    stack: Stack
    graph: StageGraph
    operations: Mapping[str, Operation]
    topologies: tuple[TopologyPlan, ...]
