"""The plans of one kind of batch on one topology: a table of boundaries for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache

from boundaryc.graph.build import Edge, StageGraph
from boundaryc.graph.policy import POLICIES
from boundaryc.plan.cost import Cost, Order
from boundaryc.plan.facts import Scattered, axes_mask, scattered
from boundaryc.plan.joint import TooEntangledError
from boundaryc.plan.layout import Layout, Layouts
from boundaryc.plan.path import fit
from boundaryc.plan.result import Boundary, Column, PlanError, Table
from boundaryc.plan.state import EdgeFacts
from boundaryc.plan.task import Task

Facts = Mapping[Edge, EdgeFacts]


class Planner:
    """Plans the batches of one variant, entry and mode, whatever they cut evenly."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.obeying = sorted({standing.obeys for standing in task.standing})
        self.small = Layouts(task, Order())
        self._tables: dict[tuple[Scattered, ...], tuple[Table, Table]] = {}

    def tables(self, column: Column) -> tuple[dict[str, Table], dict[str, Table]]:
        """The tables of every policy for batches of few rows, and for those of many.

        They are the same objects where plans for many rows send no less. Raises PlanError.
        """
        small: dict[str, Table] = {}
        large: dict[str, Table] = {}
        for policy in POLICIES:
            allowed = self._allowed(column, policy)
            key = tuple(allowed[obeys] for obeys in self.obeying)
            if key not in self._tables:
                self._tables[key] = self._planned(column, policy, self._facts(allowed))
            small[policy], large[policy] = self._tables[key]
        return small, large

    @cached_property
    def large(self) -> Layouts:
        """The plans for many rows, which few tasks need."""
        return Layouts(self.task, Order(self.task.alpha))

    def _allowed(self, column: Column, policy: str) -> tuple[Scattered, Scattered]:
        """What sums may do that do not obey the policy, and those that do."""
        mesh, variable = self.task.mesh, self.task.variable_scatter
        even = axes_mask(mesh, column.even)
        free, bound = (
            scattered(mesh, even, name, variable_scatter=variable) for name in (None, policy)
        )
        return free, bound

    def _facts(self, allowed: tuple[Scattered, Scattered]) -> Facts:
        """What the planner may know of every edge, whatever the order of costs."""
        return {
            edge: allowed[standing.obeys].applied(standing.facts)
            for edge, standing in zip(self.task.edges, self.task.standing, strict=True)
        }

    def _planned(self, column: Column, policy: str, facts: Facts) -> tuple[Table, Table]:
        few, repeated = self._found(self.small, column, policy, facts), self.task.repeated
        table, wire = _table(few, facts), _wire(repeated, few)
        if self._without_gain(wire):
            return table, table
        many = self._found(self.large, column, policy, facts)
        if _whole(_wire(repeated, many)) >= _whole(wire):
            return table, table
        return table, _table(many, facts)

    def _without_gain(self, wire: tuple[int, int]) -> bool:
        """Whether no plan for many rows sends less than one for few rows, which sends ``wire``.

        Another collective costs ``alpha`` more, and saves at most all that is sent: of what the
        stack meets again and again, which comes first, and of the rest.
        """
        return max(wire) < self.task.alpha or not any(wire)

    def _found(self, layouts: Layouts, column: Column, policy: str, facts: Facts) -> Layout:
        last = self.task.last
        try:
            found = layouts.find(facts)
        except TooEntangledError as size:
            raise PlanError(last, column, policy, _too_irregular(size)) from None
        if found is None or isinstance(found, Edge):
            edge = found or last
            raise PlanError(edge, column, policy, layouts.reason(edge, found, facts[edge]))
        return found


@lru_cache(maxsize=1024)
def planner(task: Task) -> Planner:
    """The planner of a task, shared by all stacks that have it."""
    return Planner(task)


def _table(found: Layout, facts: Facts) -> Table:
    return {
        edge: Boundary(edge, start, goal, facts[edge], fit(path, facts[edge]))
        for edge, (start, goal, path) in found.items()
    }


REPEATED = 1000
"""How much more a boundary counts here that the stack meets again and again, whatever its depth."""


def total(graph: StageGraph, table: Table) -> Cost:
    """What all boundaries of a table cost together."""
    costs = (
        boundary.path.cost.times(_weight(graph.repeated, edge)) for edge, boundary in table.items()
    )
    return Cost.total(costs)


def _wire(repeated: frozenset[Edge], found: Layout) -> tuple[int, int]:
    """What the boundaries send that the stack meets again and again, and what the others do."""
    sent = [0, 0]
    for edge, (_, _, path) in found.items():
        sent[edge not in repeated] += path.cost.wire
    return sent[0], sent[1]


def _whole(wire: tuple[int, int]) -> int:
    """What all of them send together."""
    return wire[0] * REPEATED + wire[1]


def _weight(repeated: frozenset[Edge], edge: Edge) -> int:
    return REPEATED if edge in repeated else 1


def _too_irregular(why: TooEntangledError) -> str:
    return (
        "the stages follow each other in too many different ways to be planned together: "
        f"{why}; use fewer kinds of stage or a more regular pattern of layers"
    )
