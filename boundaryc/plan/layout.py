"""Where the residual rests: the boundaries of a stack, planned together.

Every node gets a label: under which contract its consumer runs, and on which rows the residual
then lies. A boundary's cost depends on the labels at its two ends only, so the best labels are the
minimum of a sum of pairwise costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from boundaryc.graph.build import START, Edge, Node
from boundaryc.plan.cost import Order
from boundaryc.plan.joint import Factor, minimise
from boundaryc.plan.pairs import Pairs, pairs
from boundaryc.plan.path import Path
from boundaryc.plan.search import unmet
from boundaryc.plan.state import NO_RESIDUAL, EdgeFacts, Phase, State
from boundaryc.plan.task import Choices, Label, Task
from boundaryc.plan.transitions import Goal
from boundaryc.topology.contracts import Contract

Layout = Mapping[Edge, tuple[State, Goal, Path]]


class Layouts:
    """The cheapest plans of all boundaries together, for one kind of batch.

    They depend on the evenness and the policy of a batch only through what its sums may scatter
    over: each set of these is planned once.
    """

    def __init__(self, task: Task, order: Order) -> None:
        self.task, self.order = task, order
        self.choices: Mapping[Node, Choices] = dict(task.choices)
        self.facts: dict[Edge, EdgeFacts] = {}
        for edge, standing in zip(task.edges, task.standing, strict=True):
            owed = reduce(or_, (way.owes for way in self.choices[edge.source].ways))
            self.facts[edge] = standing.facts._replace(scatter=owed)
        self._found: dict[tuple[int, ...], Layout | Edge | None] = {}
        self._ends = {edge: self._pairs(edge) for edge in task.edges}
        self._owed = tuple((edge, facts.scatter) for edge, facts in self.facts.items())
        self._whole = tuple(owed for _, owed in self._owed)

    def find(self, facts: Mapping[Edge, EdgeFacts]) -> Layout | Edge | None:
        """The plan for a batch with these ``facts``, whose moves are those of an even one.

        An edge that no path can serve is returned in its place; None means that each has a path but
        not together.
        """
        every = self._solved(self._whole)
        scatter = tuple([facts[edge].scatter & owed for edge, owed in self._owed])
        if isinstance(every, Mapping) and not _scatters_beyond(every, scatter):
            return every  # the cheapest of all is the cheapest of fewer, and of equals the same
        return self._solved(scatter)

    def _solved(self, scatter: tuple[int, ...]) -> Layout | Edge | None:
        if scatter not in self._found:
            self._found[scatter] = self._solve(scatter)
        return self._found[scatter]

    def _solve(self, scatter: tuple[int, ...]) -> Layout | Edge | None:
        every = tuple(zip(self._ends.items(), scatter, strict=True))
        for (edge, ends), atoms in every:
            if not ends.ways(atoms):
                return edge
        chosen = self._choose(scatter)
        if chosen is None:
            return None
        return {
            edge: (
                self._start(edge, chosen[edge.source]),
                _goal(edge, chosen[edge.target], self.choices[edge.target].ways),
                ends.path(atoms, (chosen[edge.source], chosen[edge.target])),
            )
            for (edge, ends), atoms in every
        }

    def _pairs(self, edge: Edge) -> Pairs:
        """The cheapest ways across an edge for every pair of labels at its ends."""
        labels = self.choices[edge.source].labels
        starts = tuple([(label, self._start(edge, label)) for label in labels])
        target = self.choices[edge.target]
        goals = tuple([(label, _goal(edge, label, target.ways)) for label in target.labels])
        return pairs(self.facts[edge], starts, goals, self.order)

    def _choose(self, scatter: tuple[int, ...]) -> dict[Node, Label] | None:
        repeated = self.task.repeated
        factors: list[Factor[Node, Label]] = [
            Factor((edge.source, edge.target), ends.ranks(atoms, repeats=edge in repeated))
            for (edge, ends), atoms in zip(self._ends.items(), scatter, strict=True)
        ]
        return minimise({node: one.labels for node, one in self.choices.items()}, factors)

    def reason(self, edge: Edge, found: Edge | None, facts: EdgeFacts) -> str:
        """Why ``edge`` has no plan, for people."""
        if found is None:
            return "no residual layout serves all boundaries together"
        ends = self._ends[edge]
        goals = frozenset(goal for _, goal in ends.goals)
        return unmet(ends.starts[0][1], goals, facts, self.order)

    def _start(self, edge: Edge, label: Label) -> State:
        contract = self.choices[edge.source].ways[label.contract]
        if edge.forks:
            rows, by_token = contract.rows_in, contract.by_token
            return State(Phase.INPUT, rows, 0, label.residual, handed_off=True, by_token=by_token)
        if edge.source == START:
            rows, owes = contract.rows_out, contract.owes
            return State(Phase.INITIAL, rows, owes, NO_RESIDUAL, handed_off=True)
        return State(
            Phase.CONTRIBUTION,
            contract.rows_out,
            contract.owes,
            NO_RESIDUAL if edge.beside else label.residual,
            transform=not edge.source.merges and edge.producer in self.task.transformed,
            by_token=contract.by_token,
        )


def _scatters_beyond(found: Layout, scatter: tuple[int, ...]) -> bool:
    """Whether some sum is scattered over atoms that it may not be scattered over."""
    return any(
        path.scatters & ~atoms for (_, _, path), atoms in zip(found.values(), scatter, strict=True)
    )


def _goal(edge: Edge, label: Label, ways: tuple[Contract, ...]) -> Goal:
    contract = ways[label.contract]
    if edge.merges:
        return Goal(
            contract.rows_in,
            NO_RESIDUAL if edge.beside else label.residual,
            phase=Phase.CONTRIBUTION,
            owes=contract.owes,
        )
    return Goal(contract.rows_in, label.residual, contract.by_token)
