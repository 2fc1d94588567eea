"""The stage graph of a stack: which stage meets which, and how often.

A *node* is a stage seen together with the stage before it, because where the residual lies when a
stage runs may depend on how it was reached. An edge joins two nodes that follow each other in some
layer, and stands for one boundary. The graph is as small as the pattern: a thousand equal layers
have the nodes and edges of two.

A branch leaves the main line at the input of a stage and ends, like that stage, in a *merge*: a
node at which both outputs are added and from which the stack goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from boundaryc.language.model import Capture, Stack

ENTRY = ""
"""The producer of the first stage: there is none."""
FINAL = "final"
"""The consumer after the last stage: the norm that ends the stack."""
MERGE = "merge"
"""The consumer after the last stage of a branch and after the one beside it."""


class Node(NamedTuple):
    """A consumer (a stage, or the end of the stack) and the producer before it.

    ``captures`` are the names of the captures that keep the residual with which it is entered.
    ``prepared``: it takes the input that was read for the producer, whose output goes elsewhere.
    """

    producer: str
    consumer: str
    captures: tuple[str, ...] = ()
    prepared: bool = False

    @property
    def merges(self) -> bool:
        """Whether two outputs are added here; ``producer`` is the one whose update adds both."""
        return self.consumer == MERGE


class Edge(NamedTuple):
    """One boundary: the producer as it was reached, and the consumer it meets."""

    source: Node
    target: Node

    @property
    def producer(self) -> str:
        """The stage whose output crosses this boundary; ENTRY at the start of the stack."""
        return self.target.producer if self.source.merges else self.source.consumer

    @property
    def consumer(self) -> str:
        """The stage that reads; FINAL at the end of the stack, MERGE before a merge."""
        return self.target.consumer

    @property
    def forks(self) -> bool:
        """Whether it takes an input to a branch, and no output anywhere."""
        return self.target.prepared

    @property
    def merges(self) -> bool:
        """Whether its producer's output is added to another one."""
        return self.target.merges

    @property
    def beside(self) -> bool:
        """Whether its producer's output alone goes to a merge, and the residual with a branch."""
        return self.target.merges and self.source.consumer == self.target.producer


START = Node(ENTRY, ENTRY)
"""The node before the stack; the entry boundary leaves from it."""


@dataclass(frozen=True, slots=True)
class StageGraph:
    """The boundaries of a stack, and how the layers run through them.

    ``walk`` has, for every layer, the edge by which each of its stages is entered, ``left`` the one
    by which it is left; ``merged`` has the edge behind the merge of every layer that has a branch,
    by layer. ``last`` is the edge to the end of the stack. ``met`` has every edge once, in the
    order in which the stack first meets them, ``repeated`` those that it meets more than once.
    """

    walk: tuple[tuple[Edge, ...], ...]
    last: Edge
    met: tuple[Edge, ...]
    left: tuple[tuple[Edge, ...], ...]
    merged: Mapping[int, Edge]
    repeated: frozenset[Edge]

    def edges(self) -> tuple[Edge, ...]:
        """Every boundary once, in the order in which the stack first meets them."""
        return self.met

    def nodes(self) -> tuple[Node, ...]:
        """Every node once, in the order in which the stack first meets them."""
        return tuple(dict.fromkeys(edge.target for edge in self.met))

    def crossed(self, layer: int) -> tuple[Edge, ...]:
        """The boundaries that count in a layer: into its stages, and those to its merge."""
        return (*self.walk[layer], *(edge for edge in self.left[layer] if edge.merges))

    def repeats(self, edge: Edge) -> bool:
        """Whether the stack meets this boundary more than once."""
        return edge in self.repeated


def build_graph(stack: Stack) -> StageGraph:
    """The stage graph of a stack."""
    walk, last = _walk(stack)
    entering = [*(edge for layer in walk for edge in layer), last]
    following = iter(entering[1:])
    left: list[tuple[Edge, ...]] = []
    merged: dict[int, Edge] = {}
    passed: list[Edge] = []
    for index, layer in enumerate(walk):
        out, after = [], [next(following) for _ in layer]
        for edge, entered in zip(layer, after, strict=True):
            passed.append(edge)
            if entered.source.merges:
                out.append(Edge(edge.target, entered.source))
                merged[index] = entered
            else:
                out.append(entered)
        out = [_beside(out, edge) if edge.forks else edge for edge in out]
        passed += (edge for edge in out if edge.merges)
        left.append(tuple(out))
    met = Counter((*passed, last))
    repeated = frozenset(edge for edge, times in met.items() if times > 1)
    return StageGraph(walk, last, tuple(met), tuple(left), merged, repeated)


def _beside(out: list[Edge], fork: Edge) -> Edge:
    """The edge by which the stage at a fork is left: to the merge of its layer."""
    merge = next(edge.target for edge in out if edge.merges)
    return Edge(fork.source, merge)


def _walk(stack: Stack) -> tuple[tuple[tuple[Edge, ...], ...], Edge]:
    kept, branch = _captured(stack), stack.branch
    source, producer, at = START, ENTRY, 0
    walk = []
    for layer in stack.layers:
        entered = []
        for name in layer:
            prepared = branch is not None and name == branch.stages[0]
            node = Node(producer, name, tuple(kept.get(at, ())), prepared)
            entered.append(Edge(source, node))
            source, producer, at = node, name, at + 1
            if branch is not None and name == branch.stages[-1]:
                producer = branch.beside
                source = Node(producer, MERGE)
        walk.append(tuple(entered))
    return tuple(walk), Edge(source, Node(producer, FINAL, tuple(kept.get(at, ()))))


def _captured(stack: Stack) -> dict[int, list[str]]:
    """The captures at each boundary, boundaries numbered along the stack.

    What leaves layer k enters layer k + 1: both names mean the boundary before the first stage from
    there on, or the end of the stack where no stage follows.
    """
    found: dict[int, list[str]] = {}
    for capture in stack.captures:
        for place in capture_places(stack, capture):
            found.setdefault(place, []).append(capture.name)
    return found


def capture_places(stack: Stack, capture: Capture) -> tuple[int, ...]:
    """The boundaries at which a capture is taken, numbered along the stack."""
    first = list(accumulate((len(layer) for layer in stack.layers), initial=0))
    return tuple(first[layer + (capture.where == "after")] for layer in capture.layers)
