"""Where the residual rests: the boundaries of a stack, planned together.

Every node gets a label: under which contract its consumer runs, and on which rows the residual
then lies. A boundary's cost depends on the labels at its two ends only, so the best labels are the
minimum of a sum of pairwise costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from boundaryc.graph.build import FINAL, START, Edge, Node, StageGraph
from boundaryc.language.model import Stack, TopologySpec
from boundaryc.operations import Operation
from boundaryc.plan.cost import Order
from boundaryc.plan.joint import Factor, minimise
from boundaryc.plan.search import Path, paths, unmet
from boundaryc.plan.state import NO_RESIDUAL, EdgeFacts, Phase, State
from boundaryc.plan.transitions import Goal
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import Contract, Regime, contracts


@dataclass(frozen=True, slots=True)
class Problem:
    """One topology to plan."""

    stack: Stack
    graph: StageGraph
    operations: Mapping[str, Operation]
    spec: TopologySpec


class _Label(NamedTuple):
    """What is chosen for a node: how its consumer runs, and where the residual then rests."""

    contract: int
    residual: int


Layout = Mapping[Edge, tuple[State, Goal, Path]]


@dataclass(frozen=True, slots=True)
class Batchwise:
    """What a kind of batch adds to the mesh: its demands, its entry, and how costs are ordered."""

    mesh: Mesh
    demands: Regime
    entry_owes: int
    order: Order


class Layouts:
    """The cheapest plans of all boundaries together, for one kind of batch.

    They depend on the evenness and the policy of a batch only through what its sums may scatter
    over: each set of these is planned once.
    """

    def __init__(self, problem: Problem, batch: Batchwise, facts: Mapping[Edge, EdgeFacts]) -> None:
        """``facts`` are those of even batches in which sums may be scattered at will."""
        self.problem, self.batch = problem, batch
        self.ways, self.labels = _choices(problem, batch)
        owed = {edge: reduce(or_, (way.owes for way in self.ways[edge.source])) for edge in facts}
        self.facts = {edge: f._replace(scatter=owed[edge]) for edge, f in facts.items()}
        self._found: dict[tuple[int, ...], Layout | Edge | None] = {}

    def find(self, facts: Mapping[Edge, EdgeFacts]) -> Layout | Edge | None:
        """The plan for a batch with these ``facts``, whose moves are those of an even one.

        An edge that no path can serve is returned in its place; None means that each has a path but
        not together.
        """
        whole = {edge: every.scatter for edge, every in self.facts.items()}
        every = self._solved(whole)
        scatter = {edge: facts[edge].scatter & owed for edge, owed in whole.items()}
        if isinstance(every, Mapping) and not _scatters_beyond(every, scatter):
            return every  # the cheapest of all is the cheapest of fewer, and of equals the same
        return self._solved(scatter)

    def _solved(self, scatter: Mapping[Edge, int]) -> Layout | Edge | None:
        key = tuple(scatter.values())
        if key not in self._found:
            self._found[key] = self._solve(scatter)
        return self._found[key]

    def _solve(self, scatter: Mapping[Edge, int]) -> Layout | Edge | None:
        pairs: dict[Edge, dict[tuple[_Label, _Label], Path]] = {}
        for edge in self.problem.graph.edges():
            pairs[edge] = self._pairs(edge, scatter[edge])
            if not pairs[edge]:
                return edge
        chosen = _choose(self.problem, self.batch, self.labels, pairs)
        if chosen is None:
            return None
        stack, ways = self.problem.stack, self.ways
        return {
            edge: (
                _start(stack, edge, chosen[edge.source], ways),
                _goals(edge, (chosen[edge.target],), ways[edge.target])[0],
                found[chosen[edge.source], chosen[edge.target]],
            )
            for edge, found in pairs.items()
        }

    def _pairs(self, edge: Edge, scatter: int) -> dict[tuple[_Label, _Label], Path]:
        """The shortest path of an edge for every pair of labels at its ends."""
        targets, order = self.labels[edge.target], self.batch.order
        goals = _goals(edge, targets, self.ways[edge.target])
        asked, facts = frozenset(goals), self.facts[edge]
        pairs: dict[tuple[_Label, _Label], Path] = {}
        for source in self.labels[edge.source]:
            start = _start(self.problem.stack, edge, source, self.ways)
            found = paths(facts, start, asked, order, scatter)
            for target, goal in zip(targets, goals, strict=True):
                if goal in found:
                    pairs[source, target] = found[goal]
        return pairs

    def reason(self, edge: Edge, found: Edge | None, facts: EdgeFacts) -> str:
        """Why ``edge`` has no plan, for people."""
        if found is None:
            return "no residual layout serves all boundaries together"
        start = _start(self.problem.stack, edge, self.labels[edge.source][0], self.ways)
        goals = frozenset(_goals(edge, self.labels[edge.target], self.ways[edge.target]))
        return unmet(start, goals, facts, self.batch.order)


def _scatters_beyond(found: Layout, scatter: Mapping[Edge, int]) -> bool:
    """Whether some sum is scattered over atoms that it may not be scattered over."""
    return any(path.scatters() & ~scatter[edge] for edge, (_, _, path) in found.items())


def _choices(
    problem: Problem, batch: Batchwise
) -> tuple[dict[Node, tuple[Contract, ...]], dict[Node, tuple[_Label, ...]]]:
    """For every node the contracts its consumer may run under, and the labels to choose from."""
    mesh, demands = batch.mesh, batch.demands
    ways = {node: _ways(problem, mesh, demands, node) for node in problem.graph.nodes()}
    rests = _rests(mesh, demands)
    labels = {node: _labels(demands, node, ways[node], rests) for node in ways}
    labels[START] = (_Label(0, NO_RESIDUAL),)
    ways[START] = (Contract(demands.rows, demands.rows, batch.entry_owes),)
    return ways, labels


def _rests(mesh: Mesh, demands: Regime) -> tuple[int, ...]:
    """Where a residual may rest: cut over some of the outermost atoms, so in contiguous runs."""
    prefixes = ((1 << length) - 1 for length in range(len(mesh.atoms) + 1))
    return tuple(mask for mask in prefixes if not demands.read_local & ~mask)


def _ways(problem: Problem, mesh: Mesh, demands: Regime, node: Node) -> tuple[Contract, ...]:
    if node.consumer == FINAL:
        return (Contract(demands.rows, demands.rows, 0),)
    if node.merges:
        return _merging(problem, mesh, demands)
    return contracts(problem.stack.stage(node.consumer), problem.spec, mesh, demands)


def _merging(problem: Problem, mesh: Mesh, demands: Regime) -> tuple[Contract, ...]:
    """The rows on which two outputs may be added, and the sums that they may still owe together.

    A complete output and a partial one are never added, nor are partials of different sums.
    """
    branch = problem.stack.branch
    assert branch is not None
    shared = mesh.every
    for name in (branch.beside, branch.stages[-1]):
        ways = contracts(problem.stack.stage(name), problem.spec, mesh, demands)
        shared &= reduce(or_, (way.owes for way in ways))
    sums = [0, *(_subsets(shared) if branch.merges_sum else ())]
    prefixes = ((1 << length) - 1 for length in range(len(mesh.atoms) + 1))
    pairs = ((rows, owes) for rows in prefixes for owes in sums if not rows & owes)
    return tuple(Contract(rows, rows, owes) for rows, owes in pairs)


def _subsets(mask: int) -> Iterator[int]:
    return (part for part in range(1, mask + 1) if not part & ~mask)


def _labels(
    demands: Regime, node: Node, ways: tuple[Contract, ...], rests: tuple[int, ...]
) -> tuple[_Label, ...]:
    if node.consumer == FINAL:
        return (_Label(0, demands.rows),)
    return tuple(_Label(way, residual) for way in range(len(ways)) for residual in rests)


def _start(
    stack: Stack, edge: Edge, label: _Label, ways: Mapping[Node, tuple[Contract, ...]]
) -> State:
    contract = ways[edge.source][label.contract]
    if edge.forks:
        rows, by_token = contract.rows_in, contract.by_token
        return State(Phase.INPUT, rows, 0, label.residual, handed_off=True, by_token=by_token)
    if edge.source == START:
        return State(Phase.INITIAL, contract.rows_out, contract.owes, NO_RESIDUAL, handed_off=True)
    return State(
        Phase.CONTRIBUTION,
        contract.rows_out,
        contract.owes,
        NO_RESIDUAL if edge.beside else label.residual,
        transform=not edge.source.merges and stack.stage(edge.producer).transform is not None,
        by_token=contract.by_token,
    )


def _goals(edge: Edge, labels: tuple[_Label, ...], ways: tuple[Contract, ...]) -> tuple[Goal, ...]:
    if edge.merges:
        return tuple(
            Goal(
                ways[label.contract].rows_in,
                NO_RESIDUAL if edge.beside else label.residual,
                phase=Phase.CONTRIBUTION,
                owes=ways[label.contract].owes,
            )
            for label in labels
        )
    return tuple(
        Goal(ways[label.contract].rows_in, label.residual, ways[label.contract].by_token)
        for label in labels
    )


def _choose(
    problem: Problem,
    batch: Batchwise,
    labels: Mapping[Node, tuple[_Label, ...]],
    paths: Mapping[Edge, Mapping[tuple[_Label, _Label], Path]],
) -> dict[Node, _Label] | None:
    factors: list[Factor[Node, _Label]] = [
        Factor(
            (edge.source, edge.target),
            {
                pair: batch.order.rank(path.cost, repeats=problem.graph.repeats(edge))
                for pair, path in pairs.items()
            },
        )
        for edge, pairs in paths.items()
    ]
    return minimise(labels, factors)
