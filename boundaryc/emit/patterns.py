"""How the layers of a stack repeat: the different ones, and in which order they come."""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.graph.build import Edge
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Layers with the same stages between the same boundaries.

    ``boundaries`` has, for each stage, the edge by which it is entered and the one by which it is
    left; ``merged`` is the edge behind the merge of the layer's branch.
    """

    stages: tuple[str, ...]
    boundaries: tuple[tuple[Edge, Edge], ...]
    merged: Edge | None


@dataclass(frozen=True, slots=True)
class Pattern:
    """The different shapes of a stack's layers, how many layers each has, and the layers.

    ``order`` has for every layer the number of its shape.
    """

    shapes: tuple[LayerShape, ...]
    counts: tuple[int, ...]
    order: tuple[int, ...]


def layer_pattern(plan: StackPlan) -> Pattern:
    """The pattern of a stack; what follows works on its shapes, however many layers there are."""
    graph = plan.graph
    numbers = {edge: number for number, edge in enumerate(graph.edges())}
    found: dict[tuple[tuple[tuple[int, int], ...], int | None], int] = {}
    stages: list[tuple[str, ...]] = []
    order: list[int] = []
    for index, layer in enumerate(plan.stack.layers):
        around = zip(graph.walk[index], graph.left[index], strict=True)
        merged = numbers[graph.merged[index]] if index in graph.merged else None
        key = (tuple((numbers[into], numbers[out]) for into, out in around), merged)
        if key not in found:
            found[key] = len(found)
            stages.append(layer)
        order.append(found[key])
    edges = graph.edges()
    shapes = tuple(
        LayerShape(
            names,
            tuple((edges[into], edges[out]) for into, out in around),
            None if merged is None else edges[merged],
        )
        for names, (around, merged) in zip(stages, found, strict=True)
    )
    counts = [0] * len(shapes)
    for number in order:
        counts[number] += 1
    return Pattern(shapes, tuple(counts), tuple(order))
