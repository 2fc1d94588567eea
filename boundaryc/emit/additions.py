"""How a boundary is crossed with an addition of the model between its update and its read."""

from __future__ import annotations

from dataclasses import replace

from boundaryc.emit.calls import Calls
from boundaryc.emit.crossings import Crossing
from boundaryc.emit.drafts import Draft
from boundaryc.emit.scope import Scope
from boundaryc.emit.steps import Step, replayed
from boundaryc.emit.ways import Way, crossed
from boundaryc.graph.build import Edge
from boundaryc.plan import ops
from boundaryc.plan.access import Access
from boundaryc.plan.state import Phase, State


def addition(edge: Edge, ways: Access, scope: Scope, calls: Calls) -> Draft | None:
    """The function from an output to the input, with an addition on the stack's rows in between.

    It folds the output and reads what is written then, as is done without it, but for the addition
    and what stands beside it, which are one kernel. None where no kernel has that: behind an update
    of one's own, where rows move behind the update, and where a capture is to show the residual
    without the addition.
    """
    fold = ways.fold or ()
    if not calls.addition or fold[-1:] != (ops.Update(),) or calls.captures:
        return None
    if calls.update is None or calls.update.call is not None or calls.read.call is not None:
        return None
    start, facts = ways.handed_off, ways.facts
    folded = replayed(fold, start, facts._replace(carries=False))
    written = State(Phase.STREAM, ways.stack_rows, 0, ways.stack_rows, handed_off=True)
    added = Step(ops.Addition(), written, written)
    way = Way(
        start,
        (*folded, added, *replayed(ways.written, written, facts)),
        ways.goal,
        ("hidden = stream.take(hidden)",),
        "Tensor | OwedOutput",
        crossing=Crossing(edge.producer, "with_addition", edge.consumer, calls.shown),
    )
    found = crossed(way, edge.consumer, scope, replace(calls, kept=False))
    hidden, batch, *read = found.params
    return replace(found, params=(hidden, batch, "addition: Tensor", *read))
