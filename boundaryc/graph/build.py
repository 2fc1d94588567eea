"""The stage graph of a stack: which stage meets which, and how often.

A *node* is a stage seen together with the stage before it, because where the residual lies when a
stage runs may depend on how it was reached. An edge joins two nodes that follow each other in some
layer, and stands for one boundary. The graph is as small as the pattern: a thousand equal layers
have the nodes and edges of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import networkx as nx

from boundaryc.language.model import Capture, Stack

ENTRY = ""
"""The producer of the first stage: there is none."""
FINAL = "final"
"""The consumer after the last stage: the norm that ends the stack."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A consumer (a stage, or the end of the stack) and the producer before it.

    ``captures`` are the names of the captures that keep the residual with which it is entered.
    """

    producer: str
    consumer: str
    captures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """One boundary: the producer as it was reached, and the consumer it meets."""

    source: Node
    target: Node

    @property
    def producer(self) -> str:
        """The stage whose output crosses this boundary; ENTRY at the start of the stack."""
        return self.target.producer

    @property
    def consumer(self) -> str:
        """The stage that reads; FINAL at the end of the stack."""
        return self.target.consumer


START = Node(ENTRY, ENTRY)
"""The node before the stack; the entry boundary leaves from it."""


@dataclass(frozen=True, slots=True)
class StageGraph:
    """The graph, and how the layers run through it.

    ``walk`` has, for every layer, the edge by which each of its stages is entered; ``last`` is the
    edge to the end of the stack. Edges carry the attribute ``repeats``: met more than once.
    ``met`` has every edge once, in the order in which the stack first meets them.
    """

    graph: nx.DiGraph[Node]
    walk: tuple[tuple[Edge, ...], ...]
    last: Edge
    met: tuple[Edge, ...]

    def edges(self) -> tuple[Edge, ...]:
        """Every boundary once, in the order in which the stack first meets them."""
        return self.met

    def nodes(self) -> tuple[Node, ...]:
        """Every node once, in the order in which the stack first meets them."""
        return tuple(dict.fromkeys(edge.target for edge in self.met))

    def repeats(self, edge: Edge) -> bool:
        """Whether the stack meets this boundary more than once."""
        return bool(self.graph.edges[edge.source, edge.target]["repeats"])


def build_graph(stack: Stack) -> StageGraph:
    """The stage graph of a stack."""
    walk, last = _walk(stack)
    graph: nx.DiGraph[Node] = nx.DiGraph()
    for edge in _flat(walk, last):
        if graph.has_edge(edge.source, edge.target):
            graph.edges[edge.source, edge.target]["repeats"] = True
        else:
            graph.add_edge(edge.source, edge.target, repeats=False)
    return StageGraph(graph, walk, last, tuple(dict.fromkeys(_flat(walk, last))))


def _walk(stack: Stack) -> tuple[tuple[tuple[Edge, ...], ...], Edge]:
    names = [name for layer in stack.layers for name in layer]
    kept = _captured(stack)
    met = enumerate(pairwise([ENTRY, *names, FINAL]))
    nodes = [START, *(Node(a, b, tuple(kept.get(at, ()))) for at, (a, b) in met)]
    edges = iter([Edge(a, b) for a, b in pairwise(nodes)])
    walk = tuple(tuple(next(edges) for _ in layer) for layer in stack.layers)
    return walk, next(edges)


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


def _flat(walk: tuple[tuple[Edge, ...], ...], last: Edge) -> Iterator[Edge]:
    for layer in walk:
        yield from layer
    yield last
