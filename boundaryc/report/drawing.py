"""The stage graph of a stack as few nodes: layers that repeat are drawn once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from boundaryc.emit.runs import runs
from boundaryc.emit.shown import shown
from boundaryc.graph.build import FINAL, Edge
from boundaryc.plan.result import StackPlan
from boundaryc.report.deployment import AskedError

if TYPE_CHECKING:
    import networkx as nx

Label = Callable[[Edge], str]
"""What an edge sends, in words; empty for nothing."""

_SELECTOR = re.compile(r"(?:(\d*)\+)?(\w+)(?:\+(\d*))?")


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """Layers ``first`` to ``last``, of which ``period`` are drawn: they follow ``times`` times."""

    id: str
    first: int
    last: int
    period: int
    times: int

    @property
    def title(self) -> str:
        """The layers, and how often they repeat."""
        if self.first == self.last:
            return f"layer {self.first}"
        each = f"{self.period} layers " if self.period > 1 else ""
        return f"layers {self.first}-{self.last} ({each}x{self.times})"


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A stage, a merge, the start or the end; ``group`` is empty outside of layers."""

    id: str
    name: str
    group: str


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """A boundary that is met ``times`` times; ``sends`` are its collectives, empty for none.

    ``input``: it takes what was read for its source to a branch, and no output.
    """

    source: str
    target: str
    sends: str
    times: int
    input: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """The graph. ``what`` says of which batches the collectives are, empty where none are shown."""

    stack: str
    layers: int
    what: str
    groups: tuple[DrawnGroup, ...]
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


@dataclass(slots=True)
class _Pen:
    """What has been drawn so far: nodes by id, and every edge with the texts it was met with."""

    label: Label
    nodes: dict[str, DrawnNode] = field(default_factory=dict)
    met: dict[tuple[str, str, bool], Counter[str]] = field(default_factory=dict)

    def node(self, group: str, key: str, name: str) -> str:
        """The id of a node, drawn where it is new."""
        found = f"{group}_{key}" if group else key
        self.nodes.setdefault(found, DrawnNode(found, name, group))
        return found

    def edge(self, source: str, target: str, edge: Edge) -> None:
        """Goes along an edge once more."""
        met = self.met.setdefault((source, target, edge.forks), Counter())
        met[self.label(edge)] += 1


def drawing(plan: StackPlan, label: Label, what: str) -> Drawing:
    """The stage graph of a plan, with ``label`` at its edges."""
    groups = tuple(_groups(plan))
    pen = _drawn(plan, groups, label)
    edges = tuple(
        DrawnEdge(source, target, " or ".join(filter(None, met)), met.total(), forks)
        for (source, target, forks), met in pen.met.items()
    )
    count = len(plan.stack.layers)
    return Drawing(plan.stack.name, count, what, groups, tuple(pen.nodes.values()), edges)


def boundaries(plan: StackPlan) -> tuple[tuple[int, ...], ...]:
    """For each edge of a drawing the boundaries it stands for, by their place in `graph.edges`."""
    places = {edge: str(place) for place, edge in enumerate(plan.graph.edges())}
    pen = _drawn(plan, tuple(_groups(plan)), places.__getitem__)
    return tuple(tuple(map(int, met)) for met in pen.met.values())


def _drawn(plan: StackPlan, groups: Iterable[DrawnGroup], label: Label) -> _Pen:
    """Goes through the whole stack once."""
    pen = _Pen(label)
    before = pen.node("", "start", "start")
    for group in groups:
        for layer in range(group.first, group.last + 1):
            before = _layer(plan, pen, group, layer, before)
    last = pen.node("", "end", shown(plan.stack, FINAL).removeprefix("the "))
    pen.edge(before, last, plan.graph.last)
    return pen


def _groups(plan: StackPlan) -> Iterator[DrawnGroup]:
    first = 0
    names = [",".join(layer) for layer in plan.stack.layers]
    for index, run in enumerate(runs(names)):
        period = len(run.names)
        last = first + period * run.count - 1
        yield DrawnGroup(f"g{index}", first, last, period, run.count)
        first = last + 1


def _layer(plan: StackPlan, pen: _Pen, group: DrawnGroup, layer: int, before: str) -> str:
    """Draws one layer behind a node; the node that the next one follows."""
    graph, at = plan.graph, (layer - group.first) % group.period
    nodes: dict[str, str] = {}
    for place, edge in enumerate(graph.walk[layer]):
        here = pen.node(group.id, f"{at}_{place}", edge.consumer)
        pen.edge(nodes[edge.producer] if edge.forks else before, here, edge)
        before = nodes[edge.consumer] = here
    merging = [edge for edge in graph.left[layer] if edge.merges]
    if merging:
        merge = pen.node(group.id, f"{at}_merge", "merge")
        for edge in merging:
            pen.edge(nodes[edge.producer], merge, edge)
        return merge
    return before


def selected(found: Drawing, selector: str) -> Drawing:
    """A part of a drawing: ``1+experts+1`` are the nodes called so with one more on either side.

    Without a number all that lead there, or are reached from there. Raises AskedError for what is
    no selector, or names no node.
    """
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise AskedError(f"--select: {selector} is not a selector such as experts or 1+experts+1")
    names = [node.id for node in found.nodes if node.name.replace(" ", "_") == match[2]]
    if not names:
        known = ", ".join(dict.fromkeys(node.name.replace(" ", "_") for node in found.nodes))
        raise AskedError(f"--select: there is no {match[2]!r}; there is {known}")
    import networkx as nx  # no other part of a graph takes it, and it is long to import

    graph: nx.DiGraph[str] = nx.DiGraph((edge.source, edge.target) for edge in found.edges)
    back = _reached(graph.reverse(copy=False), names, match[1])
    kept = back | _reached(graph, names, match[3])
    nodes = tuple(node for node in found.nodes if node.id in kept)
    return replace(
        found,
        groups=tuple(one for one in found.groups if one.id in {node.group for node in nodes}),
        nodes=nodes,
        edges=tuple(one for one in found.edges if {one.source, one.target} <= kept),
    )


def _reached(graph: nx.DiGraph[str], names: Iterable[str], far: str | None) -> set[str]:
    """What is reached in so many steps: none for None, all for an empty text."""
    import networkx as nx

    steps = 0 if far is None else int(far) if far else None
    found = (nx.single_source_shortest_path_length(graph, name, steps) for name in names)
    return {node for lengths in found for node in lengths}
