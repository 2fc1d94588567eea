"""Where the residual rests: the boundaries of a stack, planned together.

Every node gets a label: under which contract its consumer runs, and on which rows the residual
then lies. A boundary's cost depends on the labels at its two ends only, so the best labels are the
minimum of a sum of pairwise costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from boundaryc.graph.build import FINAL, START, Edge, Node, StageGraph
from boundaryc.language.model import Stack, TopologySpec
from boundaryc.operations import Operation
from boundaryc.plan.cost import Order
from boundaryc.plan.joint import Factor, minimise
from boundaryc.plan.search import Goal, Moves, Path, unmet
from boundaryc.plan.state import NO_RESIDUAL, EdgeFacts, Phase, State
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import Contract, Regime, contracts


@dataclass(frozen=True, slots=True)
class Problem:
    """One topology to plan, with what has been found so far."""

    stack: Stack
    graph: StageGraph
    operations: Mapping[str, Operation]
    spec: TopologySpec
    moves: dict[EdgeFacts, Moves] = field(repr=False)  # shared by all topologies of a stack
    layouts: dict[object, Layout | Edge | None] = field(repr=False)


@dataclass(frozen=True, slots=True, order=True)
class _Label:
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


def layout(
    problem: Problem, batch: Batchwise, facts: Mapping[Edge, EdgeFacts]
) -> Layout | Edge | None:
    """The cheapest plan of all boundaries together.

    An edge that no path can serve is returned in its place; None means that each has a path but
    not together.
    """
    plain = {edge: f._replace(even=f.every, scatter_by_size=False) for edge, f in facts.items()}
    key = (batch, tuple(plain.values()))
    if key not in problem.layouts:
        problem.layouts[key] = _solve(problem, batch, plain)
    return problem.layouts[key]


def _solve(
    problem: Problem, batch: Batchwise, facts: Mapping[Edge, EdgeFacts]
) -> Layout | Edge | None:
    ways, labels = _choices(problem, batch)
    paths: dict[Edge, dict[tuple[_Label, _Label], Path]] = {}
    for edge in problem.graph.edges():
        paths[edge] = _pairs(problem, batch, edge, facts[edge], labels, ways)
        if not paths[edge]:
            return edge
    chosen = _choose(problem, batch, labels, paths)
    if chosen is None:
        return None
    return {
        edge: (
            _start(problem.stack, edge, chosen[edge.source], ways),
            _goals(edge, (chosen[edge.target],), ways[edge.target])[0],
            paths[edge][chosen[edge.source], chosen[edge.target]],
        )
        for edge in problem.graph.edges()
    }


def reason(
    problem: Problem, batch: Batchwise, edge: Edge, found: Edge | None, facts: EdgeFacts
) -> str:
    """Why ``edge`` has no plan, for people."""
    if found is None:
        return "no residual layout serves all boundaries together"
    ways, labels = _choices(problem, batch)
    start = _start(problem.stack, edge, labels[edge.source][0], ways)
    goals = frozenset(_goals(edge, labels[edge.target], ways[edge.target]))
    return unmet(start, goals, facts, batch.order)


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


def _pairs(
    problem: Problem,
    batch: Batchwise,
    edge: Edge,
    facts: EdgeFacts,
    labels: Mapping[Node, tuple[_Label, ...]],
    ways: Mapping[Node, tuple[Contract, ...]],
) -> dict[tuple[_Label, _Label], Path]:
    """The shortest path of an edge for every pair of labels at its ends."""
    targets = labels[edge.target]
    goals = _goals(edge, targets, ways[edge.target])
    asked = frozenset(goals)
    owed = reduce(or_, (way.owes for way in ways[edge.source]))
    scatter, facts = facts.scatter & owed, facts._replace(scatter=owed)
    moves = problem.moves.get(facts) or problem.moves.setdefault(facts, Moves(facts))
    pairs: dict[tuple[_Label, _Label], Path] = {}
    for source in labels[edge.source]:
        found = moves.paths(_start(problem.stack, edge, source, ways), asked, batch.order, scatter)
        for target, goal in zip(targets, goals, strict=True):
            if goal in found:
                pairs[source, target] = found[goal]
    return pairs


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
