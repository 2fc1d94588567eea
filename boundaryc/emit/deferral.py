"""What an exit leaves to a fused kernel, and what a boundary does behind one."""

from __future__ import annotations

from dataclasses import replace

from boundaryc.emit.calls import Calls
from boundaryc.emit.drafts import Draft, Drafts, Way, adds_tail, crossed
from boundaryc.emit.fused import FusedSum
from boundaryc.emit.scope import Scope
from boundaryc.emit.steps import steps
from boundaryc.plan import ops
from boundaryc.plan.result import Boundary


def deferring(found: Drafts, boundary: Boundary, scope: Scope, fused: FusedSum | None) -> Drafts:
    """``found`` with an exit that may leave its work to a fused kernel, where it may.

    A replicated part then enters on one rank, as the sum is not compute's.
    """
    exit_ = found.exit
    if exit_ is None or fused is None or not (fused.finalize or fused.all_reduce):
        return found
    producer, name = boundary.edge.producer, scope.fused_sum(fused)
    draft = Draft(
        base=f"{producer}_fused",
        params=("batch: Batch",),
        returns="FusedBoundary",
        doc=(f"Where fused kernels take what this exit defers: before {fused.consumer}.",),
        body=(f"return batch.groups.{name}",),
        needs=frozenset({"FusedBoundary"}),
    )
    exit_ = replace(exit_, fused=draft)
    if fused.all_reduce and exit_.adds_tail is None:
        exit_ = replace(exit_, adds_tail=adds_tail(producer, scope, fused.owes))
    return replace(found, exit=exit_)


def behind(boundary: Boundary, scope: Scope, calls: Calls, fused: FusedSum | None) -> Draft | None:
    """What is left to do behind a fused kernel that did what an exit deferred; None for nothing."""
    if fused is None or not (fused.finalize or fused.all_reduce):
        return None
    edge = boundary.edge
    after = steps(boundary)[1]
    read = next(at for at, step in enumerate(after) if isinstance(step.op, ops.Read))
    tail = after[read + 1 :]
    if not (tail or calls.lora or calls.latent):
        return None
    base, origin = f"{edge.producer}_fused_to_{edge.consumer}", f"From {edge.producer}, fused,"
    way = Way(base, origin, after[read].after, tail, boundary.goal, ())
    return crossed(way, edge.consumer, scope, calls)
