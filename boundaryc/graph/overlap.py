"""Where in a stack the output of an FFN goes on to another one of its kind."""

from __future__ import annotations

from boundaryc.graph.build import Edge, StageGraph
from boundaryc.language.model import Stack


def between_sparse(stack: Stack, graph: StageGraph, edge: Edge) -> bool:
    """Whether a sparse FFN produces ``edge`` and is the next FFN at every place where that is."""
    if not stack.stage(edge.producer).sparse:
        return False
    walked = [one for layer in graph.walk for one in layer]
    return all(
        _next_sparse(stack, walked[at:])
        for at, met in enumerate([*walked, graph.last])
        if met == edge
    )


def _next_sparse(stack: Stack, edges: list[Edge]) -> bool:
    following = (stack.stage(one.consumer) for one in edges)
    return next((stage.sparse for stage in following if stage.kind == "ffn"), False)
