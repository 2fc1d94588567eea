"""What runs at the boundaries of two plans: collectives, bytes and kernels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from boundaryc.emit.around import calls_around
from boundaryc.graph.build import Edge
from boundaryc.plan import ops
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.report.diff.grid import Side, differing
from boundaryc.report.diff.model import BoundaryChange, Place, Ran
from boundaryc.report.kernels import kernels
from boundaryc.report.moves import priced, worded
from boundaryc.topology import Mesh

Sent = tuple[Ran, float]
"""What runs at a boundary, and the bytes that a rank sends for a token."""


def boundary_changes(before: StackPlan, after: StackPlan) -> tuple[BoundaryChange, ...]:
    """The boundaries at which something else runs, in the order of the stack."""
    found = differing(Side(before, _Reader(before).read), Side(after, _Reader(after).read))
    merged: dict[tuple[str, Ran | None, Ran | None], list[Place]] = {}
    for (name, was, now), places in found.items():
        ran = (was and was[0], now and now[0])
        priced_ = [
            replace(one, bytes_before=was and was[1], bytes_after=now and now[1]) for one in places
        ]
        merged.setdefault((name, *ran), []).extend(priced_)
    return tuple(
        BoundaryChange(name, was, now, tuple(places))
        for (name, was, now), places in merged.items()
    )


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
    steps, collectives, done = [], [], []
    at = 0
    for group, kernel in kernels(boundary.path.ops, calls_around(plan, boundary, "")):
        words = " + ".join(_worded(mesh, op) for op in group)
        sends = sum(cost.collectives for cost in costs[at : at + len(group)])
        at += len(group)
        steps.append(words if kernel in ("", "torch") else kernel)
        collectives += [words] if sends else []
        done += [kernel] if kernel else []
    wire = sum(cost.wire for cost in costs)
    ran = Ran(tuple(steps), tuple(collectives), tuple(done))
    return ran, float(Fraction(wire, mesh.size(mesh.every)))


def _worded(mesh: Mesh, op: ops.Operation) -> str:
    sizes = "variable " if getattr(op, "variable", False) else ""
    return f"{sizes}{worded(mesh, op)}"
