"""The plans of one kind of batch on one topology: a table of boundaries for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from boundaryc.graph.build import Edge, StageGraph
from boundaryc.graph.policy import POLICIES
from boundaryc.plan.cost import Cost, Order
from boundaryc.plan.facts import Standing, axes_mask, edge_facts, standing_facts
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
        known: dict[tuple[EdgeFacts, ...], tuple[Table, Table]] = {}
        for policy in POLICIES:
            facts = self._facts(column, policy)
            key = tuple(facts.values())
            if key not in known:
                known[key] = self._planned(column, policy, facts)
            small[policy], large[policy] = known[key]
        return small, large

    def _facts(self, column: Column, policy: str) -> Facts:
        """What the planner may know of every edge, whatever the order of costs."""
        even, variable = axes_mask(self.mesh, column.even), self.problem.spec.variable_scatter
        return {
            edge: edge_facts(standing, self.mesh, even, policy, variable_scatter=variable)
            for edge, standing in self.standing.items()
        }

    def _planned(self, column: Column, policy: str, facts: Facts) -> tuple[Table, Table]:
        few, graph = self._found(self.small, column, policy, facts), self.problem.graph
        table, wire = _table(few, facts), _cost(graph, few).wire
        if not wire:
            return table, table  # nothing sends less than nothing
        many = self._found(self.large, column, policy, facts)
        if _cost(graph, many).wire >= wire:
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
    return _sum(graph, {edge: boundary.path.cost for edge, boundary in table.items()})


def _cost(graph: StageGraph, found: Layout) -> Cost:
    return _sum(graph, {edge: path.cost for edge, (_, _, path) in found.items()})


def _sum(graph: StageGraph, costs: Mapping[Edge, Cost]) -> Cost:
    weighed = (cost.times(REPEATED if graph.repeats(edge) else 1) for edge, cost in costs.items())
    return reduce(Cost.plus, weighed, Cost())


def _too_irregular(why: TooEntangledError) -> str:
    return (
        "the stages follow each other in too many different ways to be planned together: "
        f"{why}; use fewer kinds of stage or a more regular pattern of layers"
    )
