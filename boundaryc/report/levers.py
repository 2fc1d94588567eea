"""Which lines of a stack file decide what runs at a boundary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from boundaryc.graph.build import ENTRY, FINAL, MERGE, Edge
from boundaryc.report.deployment import Source
from boundaryc.report.explained import Lever
from boundaryc.topology.contracts import obeys_policy

if TYPE_CHECKING:
    from boundaryc.report.explain import Scope


def levers(scope: Scope, edge: Edge) -> tuple[Lever, ...]:
    """The nodes of the stack file that decide what runs at a boundary, with their lines."""
    return tuple(lever(scope.source, path, effect) for path, effect in _nodes(scope, edge))


def _nodes(scope: Scope, edge: Edge) -> Iterator[tuple[str, str]]:
    stack, name = scope.plan.stack, scope.topology.spec.name
    yield f"topologies.{name}", "the groups, and so who has to be told what"
    yield (
        f"topologies.{name}.link",
        "latency_us, bandwidth_gb_s: up to how many rows the fewest collectives win",
    )
    if edge.producer != ENTRY and not edge.forks:
        yield f"stages.{edge.producer}", "reduction, defer, joins_sum: how its sum may end"
        if obeys_policy(stack.stage(edge.producer)):
            yield "policy", "auto: which reduce-scatters its sum may end in (or --policy, load())"
    if edge.consumer not in (FINAL, MERGE):
        yield f"stages.{edge.consumer}", "read, before_gather, quantize: the rows it reads, and how"


def lever(source: Source, path: str, effect: str) -> Lever:
    """A node of the stack file; one that is not written has the line of the node around it."""
    span = source.stack.span(path)
    if span is None:
        return Lever(path, source.stack.source, 0, "", effect)
    line = span.start.line
    return Lever(path, source.stack.source, line, source.line(line), effect)
