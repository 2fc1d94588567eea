"""How the layers of a stack repeat: the different ones, and in which order they come."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise

from boundaryc.graph.build import Edge
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Layers with the same stages between the same boundaries.

    ``boundaries`` has, for each stage, the edge by which it is entered and the one by which it is
    left.
    """

    stages: tuple[str, ...]
    boundaries: tuple[tuple[Edge, Edge], ...]


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
    numbers = {edge: number for number, edge in enumerate(plan.graph.edges())}
    flat = [numbers[edge] for edge in (*chain.from_iterable(plan.graph.walk), plan.graph.last)]
    around = iter(pairwise(flat))
    found: dict[tuple[tuple[int, int], ...], int] = {}
    stages: list[tuple[str, ...]] = []
    order: list[int] = []
    for layer in plan.stack.layers:
        key = tuple(next(around) for _ in layer)
        if key not in found:
            found[key] = len(found)
            stages.append(layer)
        order.append(found[key])
    edges = plan.graph.edges()
    shapes = tuple(
        LayerShape(names, tuple((edges[into], edges[out]) for into, out in key))
        for names, key in zip(stages, found, strict=True)
    )
    counts = [0] * len(shapes)
    for number in order:
        counts[number] += 1
    return Pattern(shapes, tuple(counts), tuple(order))
