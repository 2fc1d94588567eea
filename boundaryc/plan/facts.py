"""The facts of one edge in one kind of batch: all that its operations may look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boundaryc.graph.build import ENTRY, FINAL, Edge
from boundaryc.graph.policy import POLICIES, UNRESTRICTED, Scatter
from boundaryc.language.model import Stack
from boundaryc.operations import Operation
from boundaryc.plan.state import EdgeFacts, Widths
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import Regime

ELEMENT = 2
"""Bytes of an element. All widths share it, so only ratios of costs depend on it."""


def edge_facts(
    stack: Stack,
    operations: Mapping[str, Operation],
    mesh: Mesh,
    demands: Regime,
    even: Iterable[str],
    policy: str,
    edge: Edge,
) -> EdgeFacts:
    """What the planner may know of ``edge`` in a batch that cuts the axes ``even`` evenly."""
    scatter, may_defer, at_producer, joins = UNRESTRICTED, True, False, False
    carries = stack.norm.accumulate == "fp32" and _reads_norm(stack, operations, edge)
    if edge.producer != ENTRY:
        stage = stack.stage(edge.producer)
        update = operations[stage.update].facts
        may_defer, at_producer = stage.reduction != "local_tail", update.at_producer
        joins = update.plain_add and stage.joins_sum
        carries = carries and update.plain_add and not at_producer
        scatter = UNRESTRICTED if stage.reduction == "partial" else POLICIES[policy]
    read_local, read_whole, complete_on = demands.read_local, 0, None
    if edge.consumer == FINAL:
        read_local, complete_on = 0, demands.rows if edge.producer != ENTRY else None
    else:
        read = operations[stack.stage(edge.consumer).read].facts
        read_local |= axes_mask(mesh, read.read_local)
        read_whole |= axes_mask(mesh, read.read_whole)
    width = stack.hidden_size * ELEMENT
    return EdgeFacts(
        sizes=mesh.sizes,
        even=axes_mask(mesh, even),
        shards=demands.shards if _orders_tokens(stack, edge) else 0,
        scatter=_scatterable(mesh, scatter, axes_mask(mesh, even)),
        scatter_by_size=scatter.by_size,
        may_defer=may_defer,
        complete_on=complete_on,
        joins_sum=joins,
        update_at_producer=at_producer,
        carries=carries,
        transform_linear=False,
        transform_row_wise=False,
        read_local=read_local,
        read_whole=read_whole,
        widths=Widths(width, width, width),
    )


def _orders_tokens(stack: Stack, edge: Edge) -> bool:
    """Whether a stage at either end wants its rows in token order; else nothing is permuted."""
    ends = (name for name in (edge.producer, edge.consumer) if name not in (ENTRY, FINAL))
    return any(stack.stage(name).order == "token" for name in ends)


def _reads_norm(stack: Stack, operations: Mapping[str, Operation], edge: Edge) -> bool:
    if edge.consumer == FINAL:
        return True
    return operations[stack.stage(edge.consumer).read].facts.plain_norm


def axes_mask(mesh: Mesh, axes: Iterable[str]) -> int:
    """The atoms of several named axes together."""
    mask = 0
    for axis in axes:
        mask |= mesh.mask(axis)
    return mask


def _scatterable(mesh: Mesh, scatter: Scatter, even: int) -> int:
    if scatter.uneven:
        return mesh.every
    return even if scatter.even else 0
