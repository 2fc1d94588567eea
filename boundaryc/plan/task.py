"""All that planning looks at in one kind of batch on one topology, as a value.

Stacks with the same stages, up to what no plan depends on, have equal tasks and share their plans:
a task is a stack without its name, its depth, its norms and its other topologies.
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
from boundaryc.plan.facts import Standing, standing_facts
from boundaryc.plan.result import Column
from boundaryc.plan.state import NO_RESIDUAL
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import Contract, Regime, contracts, regime


@dataclass(frozen=True, slots=True)
class Problem:
    """One topology to plan."""

    stack: Stack
    graph: StageGraph
    operations: Mapping[str, Operation]
    spec: TopologySpec


class Label(NamedTuple):
    """What is chosen for a node: how its consumer runs, and where the residual then rests."""

    contract: int
    residual: int


@dataclass(frozen=True, slots=True)
class Choices:
    """How the consumer of a node may run, and the labels to choose from."""

    ways: tuple[Contract, ...]
    labels: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """The boundaries of a stack in batches of one variant, entry and mode.

    ``edges`` come in the order in which the stack meets them, with what holds of each in
    ``standing``, the last one is ``last``; ``repeated`` are those that it meets more than once.
    ``choices`` has every node, START too; ``transformed`` are the stages that declare a transform.
    ``alpha`` is what a collective costs in batches of many rows.
    """

    mesh: Mesh
    edges: tuple[Edge, ...]
    repeated: frozenset[Edge]
    last: Edge
    standing: tuple[Standing, ...]
    choices: tuple[tuple[Node, Choices], ...]
    transformed: frozenset[str]
    alpha: int
    variable_scatter: bool


MANY_ROWS = 8192
"""Rows of all groups together for which the plans of large batches are made."""


def task(problem: Problem, mesh: Mesh, kind: Column) -> Task:
    """What ``kind`` is planned from, whatever it cuts evenly."""
    stack, graph, spec = problem.stack, problem.graph, problem.spec
    demands = regime(kind.variant, mesh, stack.entry)
    return Task(
        mesh=mesh,
        edges=graph.edges(),
        repeated=graph.repeated,
        last=graph.last,
        standing=tuple(
            standing_facts(stack, problem.operations, mesh, demands, kind.mode, edge)
            for edge in graph.edges()
        ),
        choices=tuple(_choices(problem, mesh, demands, dict(demands.entries)[kind.entry])),
        transformed=frozenset(stage.name for stage in stack.stages if stage.transform),
        alpha=spec.alpha * mesh.size(mesh.every) // MANY_ROWS,
        variable_scatter=spec.variable_scatter,
    )


def _choices(
    problem: Problem, mesh: Mesh, demands: Regime, entry_owes: int
) -> Iterator[tuple[Node, Choices]]:
    """For every node the contracts its consumer may run under, and the labels to choose from."""
    rests = _rests(mesh, demands)
    for node in problem.graph.nodes():
        ways = _ways(problem, mesh, demands, node)
        yield node, Choices(ways, _labels(demands, node, ways, rests))
    entry = Contract(demands.rows, demands.rows, entry_owes)
    yield START, Choices((entry,), (Label(0, NO_RESIDUAL),))


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
) -> tuple[Label, ...]:
    if node.consumer == FINAL:
        return (Label(0, demands.rows),)
    return tuple(Label(way, residual) for way in range(len(ways)) for residual in rests)
