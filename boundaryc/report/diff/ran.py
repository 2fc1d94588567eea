"""What runs at the boundaries of two plans: collectives, bytes and kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from boundaryc.emit.around import calls_around
from boundaryc.graph.build import Edge
from boundaryc.plan import ops
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.report.diff.grid import Side, differing
from boundaryc.report.diff.model import BoundaryChange, Place, Ran
from boundaryc.report.kernels import kernels
from boundaryc.report.moves import priced, worded
from boundaryc.topology import Mesh

Priced = tuple[Ran, float]
"""What runs at a boundary, and the bytes that a rank sends for a token."""


class Sent(NamedTuple):
    """What runs at a boundary: as it is told, with the sizes of collectives, and what it sends."""

    ran: Ran
    sized: Ran
    bytes: float


def boundary_changes(before: StackPlan, after: StackPlan) -> tuple[BoundaryChange, ...]:
    """The boundaries at which something else runs, in the order of the stack."""
    found = differing(Side(before, _Reader(before).read), Side(after, _Reader(after).read), _shown)
    merged: dict[tuple[str, Ran | None, Ran | None], list[Place]] = {}
    for name, (was, now), places in found:
        merged.setdefault((name, was and was[0], now and now[0]), []).extend(
            replace(one, bytes_before=was and was[1], bytes_after=now and now[1]) for one in places
        )
    return tuple(
        BoundaryChange(name, was, now, tuple(places)) for (name, was, now), places in merged.items()
    )


def _shown(was: Sent | None, now: Sent | None) -> tuple[Priced | None, Priced | None]:
    """What of two ways is told: the sizes of collectives only where nothing else differs."""
    if was and now and (was.ran, was.bytes) == (now.ran, now.bytes):
        return (was.sized, was.bytes), (now.sized, now.bytes)
    return was and (was.ran, was.bytes), now and (now.ran, now.bytes)


class _Reader:
    """What runs at the boundaries of a plan; most policies and columns share them."""

    def __init__(self, plan: StackPlan) -> None:
        self._plan = plan
        self._known: dict[int, Sent] = {}  # by identity: the plan keeps them all

    def read(self, topology: TopologyPlan, column: int, policy: str, edge: Edge) -> Sent:
        boundary = topology.tables[policy][column][edge]
        known = self._known.get(id(boundary))
        if known is None:
            known = self._known[id(boundary)] = sent(self._plan, topology.mesh, boundary)
        return known


def sent(plan: StackPlan, mesh: Mesh, boundary: Boundary) -> Sent:
    """What runs at a boundary, and what it sends."""
    costs = [cost for _, cost in priced(boundary)]
    wire = sum(cost.wire for cost in costs)
    calls = calls_around(plan, boundary)
    groups = list(kernels(boundary.path.ops, calls))
    sends = [one for one, cost in zip(boundary.path.ops, costs, strict=True) if cost.collectives]
    done = tuple(kernel for _, kernel in groups if kernel)

    def ran(say: Callable[[Mesh, ops.Operation], str]) -> Ran:
        steps = (
            " + ".join(say(mesh, op) for op in group) if kernel in ("", "torch") else kernel
            for group, kernel in groups
        )
        return Ran(tuple(steps), tuple(say(mesh, op) for op in sends), done)

    return Sent(ran(worded), ran(_sized), float(Fraction(wire, mesh.size(mesh.every))))


def _sized(mesh: Mesh, op: ops.Operation) -> str:
    """An operation with whether every member of a group may have another number of rows."""
    return f"{'variable ' if getattr(op, 'variable', False) else ''}{worded(mesh, op)}"
