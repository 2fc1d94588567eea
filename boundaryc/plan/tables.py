"""The plans of one kind of batch on one topology: a table of boundaries for every policy."""

from __future__ import annotations

from collections.abc import Mapping

from boundaryc.graph.build import Edge, StageGraph
from boundaryc.graph.policy import POLICIES
from boundaryc.plan.cost import Cost, Order
from boundaryc.plan.facts import Scattered, Standing, axes_mask, scattered, standing_facts
from boundaryc.plan.joint import TooEntangledError
from boundaryc.plan.layout import Batchwise, Layout, Layouts, Problem
from boundaryc.plan.result import Boundary, Column, PlanError, Table
from boundaryc.plan.search import fit
from boundaryc.plan.state import EdgeFacts
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import regime

MANY_ROWS = 8192
"""Rows of all groups together for which the plans of large batches are made."""

Facts = Mapping[Edge, EdgeFacts]


class Planner:
    """Plans the batches of one variant, entry and mode, whatever they cut evenly."""

    def __init__(self, problem: Problem, mesh: Mesh, kind: Column) -> None:
        """``kind``: one of these batches."""
        self.problem, self.mesh = problem, mesh
        demands = regime(kind.variant, mesh, problem.stack.entry)
        self.standing: Mapping[Edge, Standing] = {
            edge: standing_facts(problem.stack, problem.operations, mesh, demands, kind.mode, edge)
            for edge in problem.graph.edges()
        }
        self.obeying = sorted({standing.obeys for standing in self.standing.values()})
        owes, facts = dict(demands.entries)[kind.entry], _facts(self.standing)
        alpha = problem.spec.alpha * mesh.size(mesh.every) // MANY_ROWS
        self.small, self.large = (
            Layouts(problem, Batchwise(mesh, demands, owes, order), facts)
            for order in (Order(), Order(alpha))
        )

    def tables(self, column: Column) -> tuple[dict[str, Table], dict[str, Table]]:
        """The tables of every policy for batches of few rows, and for those of many.

        They are the same objects where plans for many rows send no less. Raises PlanError.
        """
        small: dict[str, Table] = {}
        large: dict[str, Table] = {}
        known: dict[tuple[Scattered, ...], tuple[Table, Table]] = {}
        for policy in POLICIES:
            allowed = self._allowed(column, policy)
            key = tuple(allowed[obeys] for obeys in self.obeying)
            if key not in known:
                known[key] = self._planned(column, policy, self._facts(allowed))
            small[policy], large[policy] = known[key]
        return small, large

    def _allowed(self, column: Column, policy: str) -> tuple[Scattered, Scattered]:
        """What sums may do that do not obey the policy, and those that do."""
        even, variable = axes_mask(self.mesh, column.even), self.problem.spec.variable_scatter
        free, bound = (
            scattered(self.mesh, even, name, variable_scatter=variable) for name in (None, policy)
        )
        return free, bound

    def _facts(self, allowed: tuple[Scattered, Scattered]) -> Facts:
        """What the planner may know of every edge, whatever the order of costs."""
        return {
            edge: allowed[standing.obeys].applied(standing.facts)
            for edge, standing in self.standing.items()
        }

    def _planned(self, column: Column, policy: str, facts: Facts) -> tuple[Table, Table]:
        few, graph = self._found(self.small, column, policy, facts), self.problem.graph
        table, wire = _table(few, facts), _wire(graph, few)
        if not wire:
            return table, table  # nothing sends less than nothing
        many = self._found(self.large, column, policy, facts)
        if _wire(graph, many) >= wire:
            return table, table
        return table, _table(many, facts)

    def _found(self, layouts: Layouts, column: Column, policy: str, facts: Facts) -> Layout:
        last = self.problem.graph.last
        try:
            found = layouts.find(facts)
        except TooEntangledError as size:
            raise PlanError(last, column, policy, _too_irregular(size)) from None
        if found is None or isinstance(found, Edge):
            edge = found or last
            raise PlanError(edge, column, policy, layouts.reason(edge, found, facts[edge]))
        return found


def _facts(standing: Mapping[Edge, Standing]) -> Facts:
    return {edge: one.facts for edge, one in standing.items()}


def _table(found: Layout, facts: Facts) -> Table:
    return {
        edge: Boundary(edge, start, goal, facts[edge], fit(path, facts[edge]))
        for edge, (start, goal, path) in found.items()
    }


REPEATED = 1000
"""How much more a boundary counts here that the stack meets again and again, whatever its depth."""


def total(graph: StageGraph, table: Table) -> Cost:
    """What all boundaries of a table cost together."""
    costs = (boundary.path.cost.times(_weight(graph, edge)) for edge, boundary in table.items())
    return Cost.total(costs)


def _wire(graph: StageGraph, found: Layout) -> int:
    """What all boundaries send together."""
    return sum(path.cost.wire * _weight(graph, edge) for edge, (_, _, path) in found.items())


def _weight(graph: StageGraph, edge: Edge) -> int:
    return REPEATED if graph.repeats(edge) else 1


def _too_irregular(why: TooEntangledError) -> str:
    return (
        "the stages follow each other in too many different ways to be planned together: "
        f"{why}; use fewer kinds of stage or a more regular pattern of layers"
    )
