"""What an exit leaves to a fused kernel, and what a boundary does behind one."""

from __future__ import annotations

from dataclasses import replace

from boundaryc.emit.between import Between
from boundaryc.emit.calls import Calls
from boundaryc.emit.crossings import Crossing
from boundaryc.emit.drafts import Draft, Drafts
from boundaryc.emit.ends import adds_tail
from boundaryc.emit.fused import FusedSum
from boundaryc.emit.scope import Scope
from boundaryc.emit.steps import Step, steps
from boundaryc.emit.ways import Way, crossed
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
        needs=frozenset({"FusedBoundary"} | ({"finalize"} if fused.own else set())),
    )
    exit_ = replace(exit_, fused=draft, finalizes=fused.own)
    if fused.all_reduce and exit_.adds_tail is None:
        exit_ = replace(exit_, adds_tail=adds_tail(producer, scope, fused.owes))
    return replace(found, exit=exit_)


def resumed(
    found: Between, boundary: Boundary, scope: Scope, calls: Calls, fused: FusedSum | None
) -> Between:
    """``found`` with how its boundary is crossed where an exit has deferred its work."""
    rest = behind(boundary, scope, calls, fused)
    own = finalized(boundary, scope, calls, fused)
    if rest is None and own is None:
        return found
    return replace(found, resume=replace(found.resume, fused=rest, finalized=own))


def finalized(
    boundary: Boundary, scope: Scope, calls: Calls, fused: FusedSum | None
) -> Draft | None:
    """The way from rows of experts whose sum over ranks is not owed; None where there is none."""
    if fused is None or not fused.own or fused.owes:
        return None
    edge, after = boundary.edge, steps(boundary)[1]
    start = after[0].before
    first = Step(ops.Finalize(), start, start)
    crossing = Crossing(edge.producer, "finalized", edge.consumer, calls.shown)
    way = Way(start, (first, *after), boundary.goal, (), crossing=crossing)
    found = crossed(way, edge.consumer, scope, calls)
    _, *rest = found.params
    params = ("experts: ExpertRows", *rest)
    return replace(found, params=params, needs=found.needs | {"ExpertRows"})


def behind(boundary: Boundary, scope: Scope, calls: Calls, fused: FusedSum | None) -> Draft | None:
    """What is left to do behind a fused kernel that did what an exit deferred; None for nothing."""
    if fused is None or not fused.offered or not (fused.finalize or fused.all_reduce):
        return None
    edge = boundary.edge
    after = steps(boundary)[1]
    read = next(at for at, step in enumerate(after) if isinstance(step.op, ops.Read))
    tail = after[read + 1 :]
    if not (tail or calls.lora or calls.latent):
        return None
    crossing = Crossing(edge.producer, "fused", edge.consumer, calls.shown)
    way = Way(after[read].after, tail, boundary.goal, (), crossing=crossing)
    return crossed(way, edge.consumer, scope, calls)
