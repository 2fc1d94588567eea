"""Every way over a pipeline cut, as plans of the boundary at which it lies.

What is done before an output travels and what follows where it arrives make up one plan, from the
boundary's start to its goal: the provenance checker judges it like any other. An output that
travels as its stage left it needs none, as then the boundary's own plan is what runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from boundaryc.graph.build import ENTRY
from boundaryc.operations import transform_operation
from boundaryc.plan.access import Access, Ops, access
from boundaryc.plan.ops import HandOff
from boundaryc.plan.result import Boundary, StackPlan
from boundaryc.plan.transfer import Transfer, bound, transfer


def cut_plans(plan: StackPlan, boundary: Boundary, rows: int) -> Iterator[tuple[str, Ops]]:
    """The plans over a cut at ``boundary``, each with what it is for people.

    ``rows`` are those on which the stack is entered and left. There is none where nothing is cut.
    """
    edge, payload = boundary.edge, plan.stack.pipeline
    if payload is None or edge.producer == ENTRY or edge.forks or edge.merges:
        return
    stage, ways = plan.stack.stage(edge.producer), access(boundary, rows)
    transform = None
    if stage.transform is not None:
        transform = plan.operations[transform_operation(stage.transform.name)]
    params = bound(ways.handed_off, transform, plan.operations[stage.update])
    yield from crossings(boundary, ways, transfer(ways, payload, bound=params))


def crossings(boundary: Boundary, ways: Access, cut: Transfer) -> Iterator[tuple[str, Ops]]:
    """The plans over one cut: of an output as left, completed early, and folded behind it."""
    ops = boundary.path.ops
    left = ops[: ops.index(HandOff()) + 1]
    arrived = ways.written if cut.received is None else cut.received
    yield "finished", (*left, *cut.finish, *arrived)
    if cut.finish_completed is not None:
        yield "completed early", (*left, *ways.complete, *cut.finish_completed, *arrived)
    if cut.fold is not None:
        yield "folded where it arrives", (*left, *cut.finish, *cut.fold, *ways.written)
